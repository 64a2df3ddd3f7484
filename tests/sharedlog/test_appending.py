"""A client's appends: in order, each once, and with care after an unknown outcome."""

import pytest

import ares
from ares.model.configuration import CHAIN_RULE
from ares.model.errors import AppendUncertain, PositionTaken, Unavailable
from ares.model.identity import ClientId
from ares.model.log_messages import Appended, AppendOutcome
from ares.sharedlog.appending import (
    APPEND_RESEND_S,
    AWAITED_IN_FLIGHT_MAX,
    TOGETHER_BYTES_MAX,
    TOGETHER_MAX,
    Appender,
)

from .chains import call, chain

C0 = chain()


class Client:
    """An appender; ``results`` has the outcomes of its appends, in order.

    An append leaves at once, unless it is ``together`` with the next.
    """

    def __init__(self) -> None:
        self.ids = iter(range(1, 100))
        self.appender = Appender(self.new(), C0, self.new)
        self.results = []
        self.outbox = []

    def new(self) -> ClientId:
        return ClientId(next(self.ids))

    def append(self, *entries, at=None, now=0.0, timeout_s=10.0, together=False):
        self.appender.submit(
            lambda position, error: self.results.append(error or position),
            now,
            entries or (b"x",),
            at,
            timeout_s,
        )
        if not together:
            self.outbox += self.appender.take_outbox()

    def sent(self):
        sent, self.outbox = self.outbox + self.appender.take_outbox(), []
        return sent

    def answer(self, append, outcome, position=0, now=0.0):
        self.appender.receive(Appended(append.call, append.number, outcome, position, None), now)


@pytest.fixture
def client():
    return Client()


def test_many_are_in_flight_and_their_answers_come_in_any_order(client):
    for _ in range(3):
        client.append()
    first, second, third = client.sent()
    assert [(each.number, each.lowest, each.since) for each in (first, second, third)] == [
        (1, 1, 0),
        (2, 1, 0),
        (3, 1, 0),
    ]
    client.answer(second, AppendOutcome.DONE, 8)
    client.append()
    (fourth,) = client.sent()
    assert (fourth.lowest, fourth.since) == (1, 0), (
        "since is of the lowest number, whatever is known by now"
    )
    client.answer(first, AppendOutcome.DONE, 7)
    client.append()
    (fifth,) = client.sent()
    assert (fifth.number, fifth.lowest, fifth.since) == (5, 3, 0)
    assert client.results == [8, 7]


def test_what_is_called_before_anything_leaves_is_one_append_and_each_caller_gets_its_position(
    client,
):
    client.append(b"a", together=True)
    client.append(b"b", b"c", together=True)
    client.append(b"d")
    (first,) = client.sent()
    assert (first.number, first.entries) == (1, (b"a", b"b", b"c", b"d"))
    client.append(b"e")
    (second,) = client.sent()
    client.answer(first, AppendOutcome.DONE, 7)
    assert client.results == [7, 8, 10]
    client.appender.tick(APPEND_RESEND_S)
    (copy,) = client.sent()
    assert (copy.number, copy.entries) == (second.number, (b"e",))


@pytest.mark.parametrize(
    ("each", "count", "sizes"),
    [
        (1, 2 * TOGETHER_MAX + 1, [TOGETHER_MAX, TOGETHER_MAX, 1]),
        (TOGETHER_BYTES_MAX // 2, 3, [2, 1]),
        (TOGETHER_BYTES_MAX + 1, 2, [1, 1]),
    ],
)
def test_what_goes_together_is_bounded_in_entries_and_in_bytes(client, each, count, sizes):
    for _ in range(count):
        client.append(bytes(each), together=True)
    assert [len(append.entries) for append in client.sent()] == sizes


def test_those_that_went_together_share_their_fate_with_an_error_each(client):
    client.append(together=True, timeout_s=5)
    client.append(timeout_s=1)
    client.appender.tick(2.0)
    assert [type(each) for each in client.results] == [AppendUncertain] * 2
    assert client.results[0] is not client.results[1]


def test_an_answer_to_an_append_that_was_not_sent_is_none(client):
    client.append(together=True)
    client.appender.receive(Appended(call(), 1, AppendOutcome.DONE, 5, None), 0.0)
    assert client.results == []
    client.append()
    (append,) = client.sent()
    client.answer(append, AppendOutcome.DONE, 7)
    assert client.results == [7, 8]


def test_a_conditional_append_is_not_together_with_others(client):
    for at in (None, 1, None, None):
        client.append(at=at, together=True)
    (first,) = client.sent()
    client.answer(first, AppendOutcome.DONE, 0)
    (conditional,) = client.sent()
    client.answer(conditional, AppendOutcome.DONE, 1)
    (third,) = client.sent()
    assert [len(each.entries) for each in (first, conditional, third)] == [1, 1, 2]


def test_everything_unanswered_is_sent_again_from_a_gap_on_and_when_the_head_is_silent(client):
    for _ in range(3):
        client.append()
    copies = client.sent()
    client.answer(copies[2], AppendOutcome.GAP, 2)
    assert [each.number for each in client.sent()] == [2, 3]
    client.answer(copies[1], AppendOutcome.GAP, 1)
    assert client.sent() == [], "an answer to an older copy says nothing about the last one"
    client.appender.tick(APPEND_RESEND_S)
    assert [each.number for each in client.sent()] == [1, 2, 3]
    assert client.appender.stalled
    client.appender.moved(chain(1, 9), 1.0)
    assert {(each.configuration, each.since) for each in client.sent()} == {(chain(1, 9).id, 0)}


def test_a_conditional_append_goes_alone_and_not_beyond_what_is_known(client):
    client.append()
    client.append(at=1)
    client.append()
    (first,) = client.sent()
    client.answer(first, AppendOutcome.DONE, 0)
    (conditional,) = client.sent()
    assert (conditional.number, conditional.at) == (2, 1)
    client.answer(conditional, AppendOutcome.TAKEN, 5)
    assert [each.number for each in client.sent()] == [3]
    assert isinstance(client.results[1], PositionTaken)
    client.append(at=9)
    assert not client.appender.wants_tail
    client.appender.receive(Appended(call(), 3, AppendOutcome.DONE, 5, None), 0.0)
    assert client.appender.wants_tail
    client.appender.tail_known(7, 0.0)
    assert (client.results[-1].position, client.results[-1].tail) == (9, 7)
    assert client.sent() == []


def test_a_number_that_was_sent_once_goes_on_and_one_sent_twice_is_uncertain(client):
    client.append()
    (copy,) = client.sent()
    client.answer(copy, AppendOutcome.UNCERTAIN, 6)
    (again,) = client.sent()
    assert (again.client, again.number, again.since) == (1, 1, 6)
    client.append()
    client.appender.tick(APPEND_RESEND_S)
    copies = client.sent()
    client.append(timeout_s=99)
    client.sent()
    client.answer(copies[1], AppendOutcome.UNCERTAIN, 9)
    assert [type(each) for each in client.results] == [AppendUncertain] * 3
    assert all(each.may_have_taken_effect for each in client.results)
    client.append()
    (fresh,) = client.sent()
    assert (fresh.client, fresh.number, fresh.lowest) == (2, 4, 4), (
        "under a new client id; the numbers go on"
    )


def test_a_higher_number_waits_with_its_since_until_it_is_the_lowest(client):
    client.append()
    client.append()
    first, second = client.sent()
    client.answer(second, AppendOutcome.UNCERTAIN, 6)
    assert client.sent() == [], "since speaks for the first one, too, which may have been taken"
    client.answer(first, AppendOutcome.DONE, 3)
    (again,) = client.sent()
    assert (again.number, again.lowest, again.since) == (2, 2, 6)


def test_what_takes_too_long_is_uncertain_if_it_was_sent(client):
    client.append(timeout_s=1)
    client.append(at=0, timeout_s=1)
    client.appender.tick(2.0)
    assert [type(each) for each in client.results] == [Unavailable, AppendUncertain]
    assert not client.results[0].may_have_taken_effect


def test_bad_input_is_told_at_once(client):
    for entries, at in (((), None), ((b"x",), -1), ((b"x",), 2**63)):
        with pytest.raises(ares.BadInput):
            client.appender.submit(print, 0.0, entries, at, 1.0)
    assert client.sent() == []


def test_the_tail_is_asked_for_few_appends_in_flight():
    client = Client()
    client.appender.moved(chain(1, rule=CHAIN_RULE), 0.0)
    for _ in range(AWAITED_IN_FLIGHT_MAX + 2):
        client.append()
    awaited = [each.number for each in client.appender.take_awaits()]
    assert awaited == [*range(1, AWAITED_IN_FLIGHT_MAX + 1)]
    assert client.appender.take_awaits() == []


@pytest.mark.parametrize(
    "of",
    [chain(1, rule=""), chain(1, servers=("s0",), rule=CHAIN_RULE)],
    ids=["earlier rule", "one server"],
)
def test_no_tail_is_asked_that_would_not_understand_or_is_the_head(of):
    client = Client()
    client.appender.moved(of, 0.0)
    client.append()
    assert client.appender.take_awaits() == []


def test_nothing_is_awaited_at_a_tail_left_behind():
    client = Client()
    client.appender.moved(chain(1, rule=CHAIN_RULE), 0.0)
    client.append()
    after = chain(2, rule=CHAIN_RULE)
    client.appender.moved(after, 0.0)
    client.sent()
    assert [each.configuration for each in client.appender.take_awaits()] == [after.id]
