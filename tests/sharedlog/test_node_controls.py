"""Controls of the shared log that random schedules meet too seldom (docs/log.md).

Each fault is shown by hand, with a check of the real node.
"""

from ares.model.configuration import Status, Successor
from ares.model.identity import NO_CALL, ClientId
from ares.model.log_messages import (
    Append,
    Appended,
    AppendOutcome,
    Look,
    LookDone,
    LookRow,
    ReadLog,
    Seal,
    Trim,
)
from ares.model.messages import Introduce, WriteConfig
from ares.sharedlog import log_operations
from ares.sharedlog.log_operations import evidence
from ares.sharedlog.node import LogNode
from tests.simulation.log_controls import (
    a_later_start_taken_for_the_end,
    evidence_of_sealed_nodes,
    evidence_of_the_tail_alone,
    older_rows_believed,
    rows_of_a_node_that_does_not_know_the_successor,
    rows_of_a_node_that_lacks_entries,
)

from .chain_clients import ClientLog
from .chains import CLIENT, NAMES, Wired, call, chain

C0 = chain()
OTHER = ClientId(8)
APART = ("s3", "s4", "s5")


def wired(first=C0):
    """Make nodes of the first chain and of another; the latter fetch no entries for a long time."""
    found = Wired(*NAMES)
    for name in APART:
        found.nodes[name] = LogNode(name, name)
        found.nodes[name].fetcher.pause_s = 1e6
        found.disks[name] = []
    for name in first.server_ids:
        found.hand(name, Introduce(NO_CALL, first))
    return found


def append(of, number, entry, lowest, since, client=CLIENT):
    return Append(call(number), of.id, client, number, lowest, since, (entry,))


def outcomes(messages):
    return [
        (message.outcome, message.position) for message in messages if isinstance(message, Appended)
    ]


# -- evidence of sealed nodes ----------------------------------------------------------------------


def sealed_looks():
    """Return the answers of sealed nodes after an append.

    A head that learned the successor acknowledged the append; the tail never got it.
    """
    nodes = wired()
    nodes.hand("s0", append(C0, 1, b"x", 1, 0))
    nodes.run(without=("s2",))
    for name in ("s1", "s2"):
        nodes.hand(name, Seal(call(), C0.id))
    nodes.run(without=NAMES)
    nodes.hand("s0", WriteConfig(call(), C0.id, Successor(chain(1, 1, APART), Status.PENDING)))
    assert (AppendOutcome.DONE, 0) in outcomes(nodes.run(without=NAMES))
    for name in ("s1", "s2"):
        nodes.hand(name, Look(call(), C0.id))
    return [message for message in nodes.run(without=NAMES) if isinstance(message, LookDone)]


def test_sealed_nodes_are_no_evidence():
    assert evidence(C0, sealed_looks()) is None


def test_control_sealed_nodes_say_that_an_acknowledged_append_is_not_there():
    with evidence_of_sealed_nodes():
        found = log_operations.evidence(C0, sealed_looks())
    assert found is not None
    assert found.length <= found.committed == 0, "tail() is 0, and position 0 was acknowledged"


# -- evidence of the tail alone --------------------------------------------------------------------


def tail_by_a_client_of_the_first_chain():
    """Return the tail position for a client that knows the first chain.

    The tail of the first chain was cut off when the chain was sealed, and the next chain has a new
    entry.
    """
    log, c1 = ClientLog(), chain(1, 1, APART)
    log.append(b"x")
    log.nodes.run(without=("client",))
    for name in ("s0", "s1"):
        log.nodes.hand(name, Seal(call(), C0.id))
        log.nodes.hand(name, WriteConfig(call(), C0.id, Successor(c1, Status.PENDING)))
    for name in APART:
        log.nodes.hand(name, Introduce(NO_CALL, c1, (C0,)))
    log.nodes.hand("s3", append(c1, 1, b"y", 1, 1, OTHER))
    assert (AppendOutcome.DONE, 1) in outcomes(log.nodes.run())
    return log.do(log.session.operations.tail())


def test_a_majority_tells_of_the_new_chain():
    assert tail_by_a_client_of_the_first_chain() == 2


def test_control_the_tail_of_a_sealed_chain_tells_an_old_end():
    with evidence_of_the_tail_alone():
        assert tail_by_a_client_of_the_first_chain() == 1


# -- a later start ---------------------------------------------------------------------------------


def read_of_a_node_left_behind():
    """Return an answer of a node that holds cut entries.

    The node hears only of the chain after the next.
    """
    nodes = wired()
    nodes.hand("s0", append(C0, 1, b"cut", 1, 0))
    nodes.run(without=NAMES)
    nodes.hand("s0", WriteConfig(call(), C0.id, Successor(chain(2, 5, APART), Status.FINALIZED)))
    nodes.run(without=NAMES)
    nodes.hand("s0", ReadLog(call(), C0.id, 0))
    (reply,) = nodes.run(without=NAMES)
    return reply


def test_a_node_that_does_not_know_the_end_shows_nothing():
    assert read_of_a_node_left_behind().entries == ()


def test_control_what_was_cut_is_shown_as_committed():
    with a_later_start_taken_for_the_end():
        assert read_of_a_node_left_behind().entries == (b"cut",)


# -- a row at a node that does not know the successor ----------------------------------------------


def second_try_of_what_was_cut():
    """Return the answers to a repeated append after a cut of the first copy.

    The old head holds number 2 at position 1, where the new chain starts; another client's entry
    gets that position.
    """
    nodes, c1 = wired(), chain(1, 1, APART)
    nodes.hand("s0", append(C0, 1, b"x", 1, 0))
    nodes.run()
    nodes.hand("s0", append(C0, 2, b"cut", 1, 0))
    nodes.run(without=("s1", "s2"))
    for name in APART:
        nodes.hand(name, Introduce(NO_CALL, c1, (C0,)))
    nodes.hand("s3", append(c1, 1, b"y", 1, 1, OTHER), sender="other")
    nodes.run()
    nodes.hand("s3", append(c1, 2, b"again", 1, 0))
    answers = [answer for answer in outcomes(nodes.run()) if answer[0] is not AppendOutcome.SEALED]
    nodes.hand("s5", ReadLog(call(), c1.id, answers[0][1]))
    return answers, nodes.run()[-1].entries


def test_a_node_installs_the_successor_before_it_answers_with_a_row():
    answers, entries = second_try_of_what_was_cut()
    assert (answers, entries) == ([(AppendOutcome.DONE, 2)], (b"again",))


def test_control_a_second_try_gets_the_position_of_another_append():
    with rows_of_a_node_that_does_not_know_the_successor():
        answers, entries = second_try_of_what_was_cut()
    assert (answers, entries) == ([(AppendOutcome.DONE, 1)], (b"y",))


# -- a row at a node that lacks entries ------------------------------------------------------------


def second_try_of_what_one_node_lacks():
    """Return the answers to a repeated append that the tail of the first chain never got.

    The new head asks the tail first.
    """
    nodes, c1 = wired(), chain(1, 1, APART)
    nodes.hand("s0", append(C0, 1, b"x", 1, 0))
    nodes.run(without=("s2",))
    successor = Successor(c1, Status.PENDING)
    for name in NAMES:
        nodes.hand(name, WriteConfig(call(), C0.id, successor))
    nodes.run(without=NAMES)
    for name in APART:
        nodes.hand(name, Introduce(NO_CALL, c1, (C0,)))
    nodes.hand("s3", append(c1, 1, b"x", 1, 0))
    asked = [to for _, to, message in nodes.sent if isinstance(message, LookRow)]
    answers = outcomes(nodes.run())
    nodes.tick()
    return asked[0], answers + outcomes(nodes.run())


def test_a_node_that_lacks_entries_has_no_answer():
    assert second_try_of_what_one_node_lacks() == ("s2", [(AppendOutcome.DONE, 0)])


def test_control_an_append_that_one_node_lacks_is_taken_twice():
    with rows_of_a_node_that_lacks_entries():
        assert second_try_of_what_one_node_lacks() == ("s2", [(AppendOutcome.DONE, 1)])


# -- an older row ----------------------------------------------------------------------------------


def second_try_of_what_was_trimmed():
    """Return the answers to a repeated append that was trimmed.

    Number 1 is in the first chain, number 2 in the second, where it is trimmed; the answer was
    lost.
    """
    nodes, c1 = wired(), chain(1, 3, APART)
    nodes.hand("s0", append(C0, 1, b"1", 1, 0))
    for number in (1, 2):
        nodes.hand("s0", append(C0, number, b"o", number, 0, OTHER), sender="other")
    nodes.run()
    for name in APART:
        nodes.hand(name, Introduce(NO_CALL, c1, (C0,)))
    nodes.hand("s3", append(c1, 2, b"2", 2, 1))
    nodes.hand("s3", append(c1, 3, b"o", 3, 3, OTHER), sender="other")
    assert (AppendOutcome.DONE, 4) in outcomes(nodes.run())
    nodes.hand("s3", Trim(call(), c1.id, 5), sender="other")
    nodes.run()
    nodes.hand("s3", append(c1, 2, b"2", 2, 1))
    return outcomes(nodes.run())


def test_a_trimmed_append_is_uncertain_and_no_earlier_chain_is_asked():
    assert second_try_of_what_was_trimmed() == [(AppendOutcome.UNCERTAIN, 5)]


def test_control_an_older_row_has_the_append_taken_twice():
    with older_rows_believed():
        assert second_try_of_what_was_trimmed() == [(AppendOutcome.DONE, 5)]
