"""A client's session with a chain: reads, tail, follow, trim, reconfiguration, errors."""

import pytest
from msgspec import structs

import ares
from ares.model.configuration import Configuration
from ares.model.errors import LogSealed, NotWritten, PositionTaken, Trimmed
from ares.model.log_messages import ReadLog, Seal
from ares.model.messages import Introduce, Reason, Refused
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.log_operations import Follower
from ares.sharedlog.log_reconfiguration import decided_end

from .chain_clients import C0, ClientLog
from .chains import NAMES, call, chain


@pytest.fixture
def log():
    return ClientLog()


def test_append_read_tail_follow_and_trim(log):
    on = log.session.operations
    assert log.append(b"a", b"b") == 0
    assert log.append(b"c") == 2
    assert log.append(b"d", at=3) == 3
    assert log.do(on.read(1)) == b"b"
    assert log.do(on.read(3, uncommitted=True)) == b"d"
    assert log.do(on.read_range(1, 9)) == [(1, b"b"), (2, b"c"), (3, b"d")]
    assert log.do(on.tail()) == 4
    follower = Follower(on, 1)
    assert log.do(follower.take()) == (1, (b"b", b"c", b"d"))
    with pytest.raises(NotWritten, match="position 4"):
        log.do(on.read(4))
    log.do(on.trim(2))
    with pytest.raises(Trimmed, match="up to position 2"):
        log.do(on.read(1))
    with pytest.raises(Trimmed):
        log.do(Follower(on, 0).take())
    with pytest.raises(ares.BadInput, match="ends at 4"):
        log.do(on.trim(5))
    for position in (-1, POSITION_MAX + 1):
        with pytest.raises(ares.BadInput):
            log.do(on.read(position))
    assert log.do(on.read_range(3, 3)) == []


def test_conditional_appends_in_the_past_and_beyond(log):
    log.append(b"a")
    with pytest.raises(PositionTaken) as taken:
        log.append(b"b", at=0)
    assert (taken.value.position, taken.value.tail) == (0, 1)
    with pytest.raises(PositionTaken) as beyond:
        log.append(b"b", at=7)
    assert beyond.value.tail == 1
    assert log.append(b"c", at=1) == 1


def test_reads_from_the_tail(log):
    log = ClientLog(reads_from_tail=True)
    log.append(b"a")
    log.asked.clear()
    assert log.do(log.session.operations.read(0)) == b"a"
    assert {server for server, message in log.asked if isinstance(message, ReadLog)} == {"s2"}


def test_negative_answers_need_a_majority_and_one_silent_node_stops_none(log):
    log.append(b"a")
    log.cut = ("s0",)
    assert log.do(log.session.operations.tail()) == 1
    log.cut = ("s2",)
    assert log.do(log.session.operations.tail()) == 1, (
        "the head and the one behind it hold the same"
    )
    log.cut = ("s1", "s2")
    with pytest.raises(ares.Unavailable):
        log.do(log.session.operations.tail())


def test_a_sealed_log_says_so_at_the_deadline_and_goes_on_reading(log):
    log.append(b"a")
    for name in ("s0", "s1"):
        log.nodes.hand(name, Seal(call(), C0.id), sender="g")
    log.nodes.sent.clear()
    for operation in (log.session.operations.tail(), log.session.operations.read(1)):
        with pytest.raises(LogSealed, match="chain 0 of log 'events' is sealed"):
            log.do(operation, timeout_s=1.0)
    assert log.do(log.session.operations.read(0)) == b"a"


def test_a_reconfiguration_moves_everything_and_every_operation_goes_on(log):
    log.append(b"a", b"b")
    wished = chain(servers=("s3", "s4", "s5"))
    other = ClientLog(first_id=100)
    other.nodes, other.table = log.nodes, log.table
    made = log.do(log.session.reconfiguration.reconfigure(wished), timeout_s=30.0)
    assert (made.index, made.start, made.server_ids) == (1, 2, ("s3", "s4", "s5"))
    assert all(log.nodes.nodes[name].state.base_upto == 2 for name in made.server_ids)
    assert all(
        segment.collected
        for name in NAMES
        for segment in log.nodes.nodes[name].state.segments.values()
    )
    assert log.append(b"c") == 2
    log.cut = other.cut = NAMES[:1]
    assert other.do(other.session.operations.read_range(0, 9)) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert other.append(b"d") == 3


def test_a_log_is_not_sealed_when_a_server_of_the_new_chain_is_down(log):
    log.append(b"a")
    log.cut = ("s5",)
    with pytest.raises(ares.Unavailable):
        log.do(
            log.session.reconfiguration.reconfigure(chain(servers=("s3", "s4", "s5"))),
            timeout_s=30.0,
        )
    assert log.nodes.nodes["s0"].state.segments[C0.id].live


@pytest.mark.parametrize("early", ["s4", "s1"], ids=["of the next chain", "of the last chain"])
def test_a_log_is_not_sealed_for_a_server_of_an_earlier_release(early):
    first = chain(rule="")
    log = ClientLog(first=first)
    log.append(b"a")
    log.early = (early,)
    wished = chain(servers=("s3", "s4", "s5"))
    with pytest.raises(ares.ConfigurationRefused, match=rf"^{early} \(release 1\.0\): .*upgrade"):
        log.do(log.session.reconfiguration.reconfigure(wished), timeout_s=30.0)
    assert log.nodes.nodes["s0"].state.segments[first.id].live


def test_a_log_is_not_sealed_for_an_early_server_that_answers_after_the_majority():
    first = chain(rule="")
    log = ClientLog(first=first)
    log.append(b"a")
    log.early, log.slow = ("s2",), ("s2",)
    wished = chain(servers=("s3", "s4", "s5"))
    with pytest.raises(ares.ConfigurationRefused, match=r"^s2 \(release 1\.0\)"):
        log.do(log.session.reconfiguration.reconfigure(wished), timeout_s=30.0)
    assert log.nodes.nodes["s0"].state.segments[first.id].live


def test_a_server_that_is_gone_stops_no_reconfiguration():
    """A server with another identity is no member, and its release does not matter."""
    members = chain(rule="").servers
    gone = (*members[:2], structs.replace(members[2], identity="before"))
    first = structs.replace(chain(rule=""), servers=gone)
    log = ClientLog(first=first)
    log.early = ("s2",)
    wished = chain(servers=("s0", "s1", "s3"))
    assert log.do(log.session.reconfiguration.reconfigure(wished), timeout_s=30.0) is not None


def test_a_log_is_not_sealed_for_a_consensus_of_an_earlier_release(log):
    log.append(b"a")
    log.early_consensus = True
    wished = chain(servers=("s3", "s4", "s5"))
    with pytest.raises(ares.ConfigurationRefused, match=r"^a member of consensus: .*upgrade"):
        log.do(log.session.reconfiguration.reconfigure(wished), timeout_s=30.0)
    assert log.nodes.nodes["s0"].state.segments[C0.id].live


def test_a_tail_that_refuses_to_wait_refuses_nothing_else(log):
    log.append(b"a")
    log.session.append(lambda *_: None, log.nodes.now, (b"b",), None, 5.0)
    letters = log.session.take_letters()
    (asked,) = letters["s2"]
    refusal = Refused(asked.call, Reason.STORAGE, "its disk is full")
    log.session.receive("s2", [refusal], log.nodes.now)
    assert log.session.appender.busy
    assert not log.session.appender.stalled


def test_the_next_configuration_of_a_log_is_a_chain(log):
    with pytest.raises(ares.ConfigurationRefused):
        log.do(log.session.reconfiguration.reconfigure(Configuration.abd(["s0", "s1", "s2"])))


def test_the_end_is_the_smallest_length_of_the_best_majority():
    assert decided_end([5, 3], 2) == 3
    assert decided_end([2, 5, 4], 2) == 4
    assert decided_end([1, 9, 7, 7, 2], 3) == 7


def test_nodes_are_introduced_by_the_first_client(log):
    log.append(b"a")
    assert any(isinstance(message, Introduce) for _, message in log.asked)
