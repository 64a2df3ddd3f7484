"""A node of a chain, message by message: accepted and refused messages, and early replies.

Some messages leave before the disk has their facts.
"""

import pytest
from msgspec import structs

from ares.model.codec import decode_requests, encode
from ares.model.configuration import CHAIN_RULE, Status, Successor
from ares.model.identity import NO_CALL
from ares.model.log_messages import (
    BATCH_ENTRIES_MAX,
    RECORDS_MAX,
    Append,
    Appended,
    AppendOutcome,
    Committed,
    Forward,
    LogEntries,
    LogRecord,
    Look,
    LookDone,
    ReadLog,
    Seal,
    SealDone,
    Stand,
    Trim,
    TrimDone,
    seal_of,
)
from ares.model.messages import (
    EARLIER_MAX,
    Ack,
    CollectConfig,
    Introduce,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.log_facts import RecordsTaken

from . import chains
from .chains import CLIENT, NAMES, Wired, call, chain

C0 = chain()


@pytest.fixture(autouse=True, params=["", CHAIN_RULE], ids=["earlier rule", "side by side"])
def rule(request, monkeypatch):
    """Run every test with chains of both rules."""
    monkeypatch.setattr(chains, "default_rule", request.param)
    monkeypatch.setitem(globals(), "C0", chain())
    return request.param


def append(number, *entries, lowest=1, since=0, at=None, of=None, client=CLIENT):
    return Append(
        call(number), (of or C0).id, client, number, lowest, since, entries or (b"x",), at
    )


@pytest.fixture
def wired():
    """Return nodes that know each other's life, as after a first append."""
    wired = Wired()
    for name, node in wired.nodes.items():
        wired.hand(name, Introduce(NO_CALL, C0))
        segment = node.state.segments[C0.id]
        segment.life_before = segment.life_after = node.life
    return wired


def test_no_entry_is_shown_at_a_position_that_is_not_its_own(wired):
    for number in range(1, 6):
        wired.hand("s0", append(number, b"%d" % number, lowest=number))
        wired.run()
    segment = wired.nodes["s1"].state.segments[C0.id]
    del segment.entries._records[2]
    for first, count, entries in (
        (0, 5, (b"1", b"2")),
        (2, 1, ()),
        (2, 3, ()),
        (3, 2, (b"4", b"5")),
    ):
        wired.hand("s1", ReadLog(call(), C0.id, first, count))
        (reply,) = wired.run()
        assert reply.entries == entries
        assert bool(reply.elsewhere) == (not entries)


def test_no_fact_has_more_records_than_can_be_read_back(wired):
    count = RECORDS_MAX + 5
    for number in range(1, count):
        wired.nodes["s0"].handle("client", append(number, b"", lowest=number), 0.0)
    wired.hand("s0", append(count, b"", lowest=count), sync=False)
    taken = [fact for fact in wired.disks["s0"] if isinstance(fact, RecordsTaken)]
    assert [len(fact.records) for fact in taken] == [RECORDS_MAX, 5]
    wired.nodes["s0"].stored(len(wired.disks["s0"]), 0.0)
    assert wired.nodes["s0"].state.segments[C0.id].durable == count


def outcome(messages):
    (answer,) = messages
    assert isinstance(answer, Appended), answer
    return answer.outcome, answer.position


def test_an_append_is_answered_when_the_tail_has_it(wired):
    wired.hand("s0", append(1, b"a", b"b"))
    assert wired.run(without=("s2",)) == []
    wired.tick()
    assert outcome(wired.run()) == (AppendOutcome.DONE, 0)
    wired.hand("s1", ReadLog(call(), C0.id, 1))
    (reply,) = wired.run()
    assert reply.entries == (b"b",)


def test_nothing_leaves_before_it_is_durable(wired, rule):
    """Records leave at once in a chain that commits side by side; nothing else does."""
    wired.hand("s0", append(1), sync=False)
    assert [type(message) for _, _, message in wired.sent] == ([Forward] if rule else [])
    wired.sent.clear()
    wired.hand("s0", Look(call(), C0.id), sync=False)
    ((_, _, seen),) = wired.sent
    assert isinstance(seen, LookDone)
    assert seen.length == 0, "only what is durable counts"
    wired.sent.clear()
    wired.hand("s0", Seal(call(2), C0.id), sync=False)
    assert all(
        isinstance(message, Appended) or not isinstance(message, SealDone)
        for _, _, message in wired.sent
    )
    wired.collect("s0")
    assert any(
        isinstance(message, SealDone) and message.length == 1 for _, _, message in wired.sent
    )


def test_numbers_are_taken_in_order_and_once(wired):
    wired.hand("s0", append(2))
    assert outcome(wired.run()) == (AppendOutcome.GAP, 1)
    for _ in range(2):
        wired.hand("s0", append(1, b"a"))
        assert outcome(wired.run()) == (AppendOutcome.DONE, 0)
    assert wired.nodes["s2"].state.segments[C0.id].length == 1


def test_a_lost_forward_is_repeated_and_a_gap_asked_for(wired):
    wired.hand("s0", append(1))
    wired.sent.clear()
    wired.hand("s0", append(2))
    assert len(wired.run()) == 2
    wired.hand("s0", append(3))
    wired.sent.clear()
    wired.tick()
    assert outcome(wired.run()) == (AppendOutcome.DONE, 2)


def test_a_lost_commit_is_asked_for(wired):
    wired.hand("s0", append(1))
    wired.run(without=("s2",))
    wired.tick()
    while wired.sent:  # s1 confirms its copy; later it tells of the commit, and this is lost
        sender, to, message = wired.sent.pop(0)
        if not (isinstance(message, Committed) and to == "s0" and message.committed):
            wired.hand(to, message, sender)
    segment = wired.nodes["s0"].state.segments[C0.id]
    assert (segment.confirmed, segment.committed) == (1, 0)
    wired.tick()
    assert outcome(wired.run()) == (AppendOutcome.DONE, 0)


def test_records_that_are_not_what_the_head_made_are_not_taken(wired):
    record = LogRecord(0, CLIENT, 1, 1, (b"x",), 12345)
    news = (0, 0, False, 1, 1)
    wired.hand("s1", Forward(NO_CALL, C0.id, "s0", 0, (record,), *news), sender="s0")
    good = structs.replace(record, seal=seal_of(*structs.astuple(record)[:5]))
    wired.hand("s1", Forward(NO_CALL, C0.id, "s0", 0, (good,), *news), sender="s2")
    assert wired.nodes["s1"].state.segments[C0.id].length == 0
    wired.hand("s1", Forward(NO_CALL, C0.id, "s0", 0, (good,), *news), sender="s0")
    assert wired.nodes["s1"].state.segments[C0.id].length == 1


def test_a_sealed_node_takes_nothing_for_ever(wired):
    wired.hand("s0", append(1))
    wired.run()
    wired.hand("s0", Seal(call(), C0.id))
    (done,) = wired.run()
    assert done.length == 1
    wired.restart("s0")
    wired.hand("s0", append(2))
    assert outcome(wired.run()) == (AppendOutcome.SEALED, 0)
    wired.hand("s0", append(1))
    wired.tick()
    assert AppendOutcome.SEALED in {
        message.outcome for message in wired.run() if isinstance(message, Appended)
    }


def test_what_is_at_or_beyond_the_end_counts_for_nothing_and_rows_are_cut_with_it(wired):
    wired.hand("s0", append(1))
    wired.run()
    wired.hand("s0", append(2, b"cut"))
    wired.sent.clear()
    c1 = chain(1, 1)
    wired.hand("s0", Introduce(NO_CALL, c1, (C0,)))
    segment = wired.nodes["s0"].state.segments[C0.id]
    assert (segment.length, segment.committed, wired.nodes["s0"].state.base_upto) == (1, 1, 1)
    wired.sent.clear()
    for name in ("s1", "s2"):
        wired.hand(name, Introduce(NO_CALL, c1, (C0,)))
    wired.hand("s0", append(2, b"again", lowest=2, since=0, of=c1))
    assert outcome(wired.run()) == (AppendOutcome.DONE, 1)
    wired.hand("s2", ReadLog(call(), c1.id, 0, 10))
    assert wired.run()[0].entries == (b"x", b"again")


def test_a_server_is_told_as_many_chains_as_a_message_holds(wired):
    for index in range(1, EARLIER_MAX + 10):
        wired.hand("s0", Introduce(NO_CALL, chain(index), (chain(index - 1),)))
    wired.run()
    wired.hand("s0", Refused(call(), Reason.UNKNOWN_CONFIGURATION, ""), sender="s1")
    ((_, to, told),) = wired.sent
    assert (to, told.configuration, len(told.earlier)) == (
        "s1",
        chain(EARLIER_MAX + 9),
        EARLIER_MAX,
    )
    assert decode_requests(encode([told])) == [told]


def test_a_successor_that_starts_below_what_is_committed_is_refused_loudly(wired):
    wired.hand("s0", append(1))
    wired.run()
    wired.hand("s0", WriteConfig(call(), C0.id, Successor(chain(1, 0), Status.PENDING)))
    (refused,) = wired.run()
    assert refused.reason is Reason.CONFLICTING_SUCCESSOR
    assert wired.nodes["s0"].state.segments[C0.id].live


def test_a_later_chain_alone_does_not_tell_the_end(wired):
    wired.hand("s0", append(1))
    wired.hand(
        "s0",
        WriteConfig(call(), C0.id, Successor(chain(3, 7, ("s5", "s6", "s7")), Status.FINALIZED)),
    )
    wired.sent.clear()
    segment = wired.nodes["s0"].state.segments[C0.id]
    assert (segment.end, segment.length) == (None, 0)
    wired.hand("s0", ReadLog(call(), C0.id, 0))
    (reply,) = wired.run()
    assert (reply.entries, reply.elsewhere) == ((), ("s1", "s2", "s5", "s6", "s7"))


def test_a_collected_node_stays_sealed_over_restarts(wired):
    wired.hand("s0", append(1))
    wired.run()
    c1 = chain(1, 1, ("s5", "s6", "s7"))
    wired.hand("s0", CollectConfig(call(), C0.id, Successor(c1, Status.FINALIZED)))
    assert [type(message) for message in wired.run()] == [Ack]
    wired.restart("s0")
    assert not list(wired.nodes["s0"].state.base.records(0, 10))
    wired.hand("s0", Introduce(NO_CALL, C0))
    wired.hand("s0", Look(call(), C0.id))
    (seen,) = wired.run()
    assert seen.successor is not None


def test_a_conditional_append_waits_for_what_is_dirty(wired):
    wired.hand("s0", append(1))
    wired.sent.clear()
    wired.hand("s0", append(1, at=0, client=8), sender="other")
    assert [message for _, to, message in wired.sent if to == "other"] == []
    wired.tick()
    told = wired.run()
    assert {message.outcome for message in told} == {AppendOutcome.DONE, AppendOutcome.TAKEN}
    wired.hand("s0", append(2, at=9, lowest=2, since=1, client=8), sender="other")
    assert outcome(wired.run())[0] is AppendOutcome.BEHIND


def test_a_trim_goes_down_the_chain_and_not_above_what_is_committed(wired):
    wired.hand("s0", append(1, b"a", b"b"))
    wired.run()
    wired.hand("s0", Trim(call(), C0.id, 3))
    assert wired.run() == [TrimDone(call(), False, 2, None)]
    wired.hand("s0", Trim(call(), C0.id, 2))
    assert wired.run() == [TrimDone(call(), True, 2, None)]
    for name in NAMES:
        wired.hand(name, ReadLog(call(), C0.id, 1))
        (reply,) = wired.run()
        assert isinstance(reply, LogEntries)
        assert reply.trimmed == 2
    wired.hand("s0", append(5, lowest=5, since=0))
    assert outcome(wired.run()) == (AppendOutcome.UNCERTAIN, 2)
    wired.hand("s0", append(5, lowest=5, since=2))
    assert outcome(wired.run()) == (AppendOutcome.DONE, 2)


def test_a_new_node_fetches_what_it_lacks(wired):
    for number in (1, 2, 3):
        wired.hand("s0", append(number, lowest=number))
    wired.run()
    c1 = chain(1, 3, ("s3", "s1", "s2"))
    wired.nodes["s3"] = Wired("s3").nodes["s3"]
    wired.disks["s3"] = []
    wired.hand("s3", Introduce(NO_CALL, c1, (C0,)))
    for _ in range(4):
        wired.tick()
        wired.run()
    wired.hand("s3", Stand(call(), c1.id))
    (stood,) = wired.run()
    assert stood.complete
    wired.restart("s3")
    assert wired.nodes["s3"].state.base_upto == 3
    wired.tick()
    wired.run()
    wired.hand("s3", append(3, lowest=3, of=c1))
    assert outcome(wired.run()) == (AppendOutcome.DONE, 2), "a repetition is found below the start"


def test_a_dirty_read_asks_the_tail(wired):
    wired.hand("s0", append(1, b"a"))
    wired.run(without=("client",))
    node = wired.nodes["s1"]
    segment = node.state.segments[C0.id]
    segment.committed = 0
    wired.hand("s1", ReadLog(call(9), C0.id, 0))
    (reply,) = wired.run()
    assert reply.entries == (b"a",)


def test_a_read_that_follows_is_held_until_there_is_something(wired):
    wired.hand("s2", ReadLog(call(4), C0.id, 0, 10, wait_s=2.0))
    assert wired.run() == []
    wired.hand("s0", append(1, b"a"))
    assert {type(message) for message in wired.run()} == {Appended, LogEntries}
    wired.hand("s2", ReadLog(call(5), C0.id, 1, 10, wait_s=0.5))
    wired.tick()
    (reply,) = wired.run()
    assert reply.entries == ()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: append(1, of=chain(5)), Reason.UNKNOWN_CONFIGURATION),
        (lambda: structs.replace(append(1), lowest=2), Reason.BAD_REQUEST),
        (lambda: structs.replace(append(1), entries=()), Reason.BAD_REQUEST),
        (
            lambda: structs.replace(append(1), entries=(b"",) * (BATCH_ENTRIES_MAX + 1)),
            Reason.BAD_REQUEST,
        ),
        (lambda: Introduce(NO_CALL, chain(0, 0, ("s7", "s8"))), Reason.OTHER_CLUSTER),
        (lambda: Introduce(NO_CALL, chain(2, 5), (chain(1, 9),)), Reason.BAD_REQUEST),
        (lambda: Introduce(NO_CALL, chain(3, 5), (chain(1, 2),)), Reason.BAD_REQUEST),
        (lambda: Introduce(NO_CALL, chain(1, 5, ("s8", "s9"))), Reason.NOT_A_MEMBER),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(wired, made, reason):
    before = len(wired.disks["s0"])
    wired.hand("s0", made())
    (refused,) = wired.run()
    assert isinstance(refused, Refused)
    assert refused.reason is reason
    assert len(wired.disks["s0"]) == before


def test_appends_and_trims_go_to_the_head_alone(wired):
    for message in (append(1), Trim(call(), C0.id, 0)):
        wired.hand("s1", message)
        assert wired.run()[0].reason is Reason.BAD_REQUEST


def test_an_append_beyond_the_last_position_is_refused():
    wired, late = Wired(), chain(0, POSITION_MAX)
    wired.hand("s0", Introduce(NO_CALL, late))
    wired.hand("s0", append(1, of=late))
    (refused,) = wired.run()
    assert refused.reason is Reason.BAD_REQUEST
