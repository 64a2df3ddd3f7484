"""Failures of other logs, as steps of nodes of a chain, which does not fail.

Acknowledged records lost by a membership change with a partition (nats-server #7545) need whole
runs: the simulator's scenario `log` and `ares-cli torture --workload log`.
"""

import pytest

from ares.model.configuration import Status, Successor
from ares.model.identity import ClientId
from ares.model.log_messages import (
    Append,
    Appended,
    AppendOutcome,
    Fetch,
    Fetched,
    LogEntries,
    Look,
    LookDone,
    ReadLog,
    Seal,
    Trim,
    TrimDone,
)
from ares.model.messages import Ack, Introduce, ReadConfig, Refused, WriteConfig

from .chains import CLIENT, NAMES, Wired, call, chain

C0 = chain()
C1 = chain(1, start=2, servers=("s1", "s2", "s0"))
C2 = chain(2, start=2)


@pytest.fixture
def wired() -> Wired:
    wired = Wired()
    for name in wired.nodes:
        wired.hand(name, Introduce(call(), C0))
    for number in (1, 2):
        wired.hand("s0", Append(call(number), C0.id, CLIENT, number, number, 0, (b"%d" % number,)))
    told = wired.run()
    assert [answer.outcome for answer in told if isinstance(answer, Appended)] == [
        AppendOutcome.DONE
    ] * 2
    return wired


def test_a_reader_that_waits_at_a_sealed_tail_is_told_of_the_next_chain(wired: Wired) -> None:
    """A reader was parked for ever: the seal came first and the move later (restate #5054)."""
    wired.hand("s2", ReadLog(call(5), C0.id, 2, 10, wait_s=60.0), "before")
    wired.hand("s2", Seal(call(6), C0.id), "mover")
    wired.hand("s2", ReadLog(call(7), C0.id, 2, 10, wait_s=60.0), "after")
    assert not [message for _, _, message in wired.sent if isinstance(message, LogEntries)]
    wired.hand("s2", Introduce(call(8), C1, (C0,)), "mover")
    told = {to: message for _, to, message in wired.sent if isinstance(message, LogEntries)}
    assert told.keys() == {"before", "after"}
    assert {
        message.successor.configuration.id
        for message in told.values()
        if message.successor is not None
    } == {C1.id}


def test_a_reader_waiting_at_a_node_without_news_gets_an_empty_answer_in_time(
    wired: Wired,
) -> None:
    """The node was left behind: an empty answer has no meaning, and the client asks other nodes."""
    wired.hand("s2", Seal(call(6), C0.id), "mover")
    wired.hand("s2", ReadLog(call(7), C0.id, 2, 10, wait_s=5.0), "reader")
    wired.run()
    wired.tick(6.0)
    [told] = [message for _, to, message in wired.sent if to == "reader"]
    assert (told.entries, told.successor) == ((), None)
    wired.hand("s2", Look(call(9), C0.id), "reader")
    assert [message.sealed for _, to, message in wired.sent if isinstance(message, LookDone)] == [
        True
    ], "and that is no evidence"


def test_a_trim_is_never_beyond_what_is_there_and_what_it_took_is_told_as_trimmed(
    wired: Wired,
) -> None:
    """A trim point beyond the sealed tail looked like missing records (restate #2680)."""
    wired.hand("s0", Trim(call(3), C0.id, 3), "trimmer")
    [refused] = [message for _, to, message in wired.sent if isinstance(message, TrimDone)]
    assert (refused.done, refused.committed) == (False, 2)
    wired.sent.clear()
    wired.hand("s0", Trim(call(4), C0.id, 2), "trimmer")
    wired.run()
    for name in wired.nodes:
        wired.hand(name, Seal(call(5), C0.id))
        wired.hand(name, Introduce(call(6), C1, (C0,)))
    wired.run()
    wired.hand("s1", Append(call(7), C1.id, ClientId(8), 1, 1, 2, (b"next",)))
    wired.run()
    for position, entries, trimmed in ((0, (), 2), (1, (), 2), (2, (b"next",), 2)):
        wired.hand("s1", ReadLog(call(8), C1.id, position))
        [told] = [message for message in wired.run() if isinstance(message, LogEntries)]
        assert (told.entries, told.trimmed, told.elsewhere) == (entries, trimmed, ())
    wired.hand("s1", Fetch(call(9), C0.id, 0, None))
    [fetched] = [message for message in wired.run() if isinstance(message, Fetched)]
    assert (fetched.records, fetched.trimmed) == ((), 2)


def test_nothing_is_acknowledged_before_every_node_has_synced(wired: Wired) -> None:
    """Acknowledged data was not yet synced, by default for two minutes (nats-server #7564)."""
    wired.hand("s0", Append(call(3), C0.id, CLIENT, 3, 3, 0, (b"3",)), sync=False)
    for name in NAMES:
        assert wired.run(sync=False) == [], f"{name} has not synced"
        wired.collect(name)
    assert [message.outcome for message in wired.run() if isinstance(message, Appended)] == [
        AppendOutcome.DONE
    ]


def test_what_a_node_knows_of_chains_never_goes_back(wired: Wired) -> None:
    """3FS #412: the version of a chain table went backwards."""
    wired.hand("s0", WriteConfig(call(3), C0.id, Successor(C2, Status.FINALIZED)))
    wired.sent.clear()
    for older in (
        Successor(C1, Status.PENDING),
        Successor(C1, Status.FINALIZED),
        Successor(C2, Status.PENDING),
    ):
        wired.hand("s0", WriteConfig(call(4), C0.id, older))
        wired.hand("s0", ReadConfig(call(5), C0.id))
        told = [message.successor for message in wired.run() if isinstance(message, Ack)]
        assert told[-1] == Successor(C2, Status.FINALIZED)
    other = chain(2, start=2, servers=("s0", "s1", "s9"))
    wired.hand("s0", WriteConfig(call(6), C0.id, Successor(other, Status.FINALIZED)))
    assert isinstance(wired.run()[-1], Refused)
    wired.restart("s0")
    wired.hand("s0", ReadConfig(call(7), C0.id))
    assert [message.successor for message in wired.run() if isinstance(message, Ack)] == [
        Successor(C2, Status.FINALIZED)
    ]
