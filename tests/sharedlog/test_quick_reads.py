"""Reads asked for before any sending: a single request for a server, an answer for each read."""

import pytest

from ares.model.errors import ConnectionClosed, NotWritten, Trimmed
from ares.model.identity import CallId
from ares.model.log_messages import EACH_MAX, EachRead, LogEntries, ReadEach, ReadLog
from ares.model.work import entries_bulk
from ares.sharedlog.quick_reads import QuickReads, ReadOptions

from .chain_clients import C0, ClientLog
from .chains import call


class Reader(ClientLog):
    """A reader; ``results`` has the results in the order of their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.results = {}

    def read(self, first, upto=None, timeout_s=5.0, uncommitted=False):
        def done(result, error):
            self.results[first, upto] = result if error is None else error

        self.session.reads.ask(
            done, self.nodes.now, first, upto, timeout_s, ReadOptions(False, uncommitted)
        )

    def go_on(self):
        for _ in range(50):
            self.step()
            self.nodes.tick(0.03)
            self.session.tick(self.nodes.now)


@pytest.fixture
def reader():
    reader = Reader()
    for number in range(5):
        reader.append(b"%d" % number)
    reader.append(b"5", b"6", b"7")
    reader.nodes.run()
    reader.asked.clear()
    return reader


def test_many_go_in_one_request_and_each_gets_its_own(reader):
    for position in (4, 0, 7, 4):
        reader.read(position)
    reader.read(2, 3)
    reader.go_on()
    assert reader.results == {
        (4, None): b"4",
        (0, None): b"0",
        (7, None): b"7",
        (2, 3): [(2, b"2")],
    }
    assert [message.positions for _, message in reader.asked if isinstance(message, ReadEach)] == [
        (4, 0, 7, 4, 2)
    ]


def test_what_is_not_there_is_told_as_ever_and_the_others_do_not_wait_for_it(reader):
    reader.do(reader.session.operations.trim(2))
    for position in (1, 3, 99):
        reader.read(position)
    reader.go_on()
    assert reader.results[3, None] == b"3"
    assert isinstance(reader.results[1, None], Trimmed)
    assert isinstance(reader.results[99, None], NotWritten)


def test_ranges_go_alone_and_requests_are_bounded(reader):
    for position in range(EACH_MAX + 1):
        reader.read(position)
    reader.read(0, 5)
    ((_, messages),) = reader.session.take_letters().items()
    assert [type(message) for message in messages] == [ReadEach, ReadLog, ReadLog]
    assert [len(messages[0].positions), messages[1].first, messages[2].count] == [
        EACH_MAX,
        EACH_MAX,
        5,
    ]


@pytest.mark.parametrize(
    "answer",
    [
        EachRead(CallId(0), (b"x",), None),
        EachRead(CallId(0), (b"x",) * 3, None),
        LogEntries(CallId(0), 0, (b"x",), 0, 0, (), None),
    ],
)
def test_an_answer_that_does_not_fit_is_none(reader, answer):
    reader.read(0)
    reader.read(1)
    ((server, (request,)),) = reader.session.take_letters().items()
    reader.session.receive(
        server,
        [
            type(answer)(
                request.call, *[getattr(answer, name) for name in answer.__struct_fields__[1:]]
            )
        ],
        reader.nodes.now,
    )
    assert reader.results == {}
    reader.go_on()
    assert reader.results == {(0, None): b"0", (1, None): b"1"}


def test_a_silent_server_is_left_and_a_closed_connection_ends_all(reader):
    reader.read(0)
    reader.read(1)
    ((server, _),) = reader.session.take_letters().items()
    reader.cut = (server,)
    reader.nodes.now += 2.0
    reader.session.tick(reader.nodes.now)
    reader.go_on()
    assert reader.results == {(0, None): b"0", (1, None): b"1"}
    reader.results.clear()
    reader.read(0)
    reader.read(1)
    reader.session.close(ConnectionClosed)
    assert {type(error) for error in reader.results.values()} == {ConnectionClosed}


def test_a_node_answers_what_it_may_show_and_says_nothing_about_the_rest(reader):
    node = reader.nodes.nodes["s1"]
    reader.nodes.hand("s1", ReadEach(call(9), C0.id, (7, 8, 0, 2**40)))
    ((_, _, reply),) = reader.nodes.sent
    assert reply == EachRead(call(9), (b"7", None, b"0", None), None)
    assert node.outbox_bytes == 0


def test_a_dirty_one_is_asked_for_once_more_and_the_others_do_not_wait(reader):
    segment = reader.nodes.nodes["s1"].state.segments[C0.id]
    segment.committed = 6
    reader.nodes.hand("s1", ReadEach(call(9), C0.id, (0, 7, 99)))
    (reply,) = reader.nodes.run()
    assert reply.entries == (b"0", None, None)
    reader.read(0)
    reader.read(7)
    reader.go_on()
    assert reader.results == {(0, None): b"0", (7, None): b"7"}


def test_uncommitted_ones_do_not_wait_and_go_in_requests_of_their_own(reader):
    for name in ("s0", "s1", "s2"):
        reader.nodes.nodes[name].state.segments[C0.id].committed = 6
    reader.cut = ("s2",)
    for position in (0, 6, 7):
        reader.read(position, uncommitted=True)
    reader.read(1)
    reader.step()
    reader.step()
    assert reader.results == {(0, None): b"0", (6, None): b"6", (7, None): b"7", (1, None): b"1"}
    assert sorted(len(getattr(message, "positions", "1")) for _, message in reader.asked) == [1, 3]


@pytest.mark.parametrize("positions", [(99, 5, 6), (5, 99, 6), (0, 99, 6, 5), (6, 5, 0)])
def test_a_position_beyond_the_end_makes_no_dirty_one_visible(reader, positions):
    state = reader.nodes.nodes["s1"].state
    state.segments[C0.id].committed = 5
    alone = tuple(
        state.answer(state.segments[C0.id], ReadLog(call(), C0.id, position)).entries or (None,)
        for position in positions
    )
    assert state.each(positions) == tuple(entries[0] for entries in alone)
    assert state.each(positions)[positions.index(5)] is None


def test_neighbours_in_one_record_are_read_once(reader, monkeypatch):
    state, asked = reader.nodes.nodes["s1"].state, []
    entries = state.segments[C0.id].entries
    monkeypatch.setattr(
        entries,
        "record",
        lambda position, record=entries.record: asked.append(position) or record(position),
    )
    assert state.each((5, 6, 7, 5)) == (b"5", b"6", b"7", b"5")
    assert asked == [5]


def test_no_read_joins_a_request_that_ended_before_it_was_sent(reader):
    reader.read(0, timeout_s=0.002)
    reader.nodes.now += 0.002
    reader.session.tick(reader.nodes.now)
    reader.read(1)
    reader.go_on()
    assert reader.results[1, None] == b"1"


def test_the_bytes_of_an_answer_are_bounded(reader, monkeypatch):
    monkeypatch.setattr("ares.sharedlog.log_state.ANSWER_BYTES_MAX", 2 * entries_bulk((b"0",)))
    reader.nodes.hand("s1", ReadEach(call(9), C0.id, (0, 1, 5, 2)))
    (reply,) = reader.nodes.run()
    assert reply.entries == (b"0", b"1", None, None)


def test_reads_are_busy_until_they_are_answered(reader):
    reads: QuickReads = reader.session.reads
    reader.read(0)
    assert reads.busy
    reader.go_on()
    assert not reads.busy
