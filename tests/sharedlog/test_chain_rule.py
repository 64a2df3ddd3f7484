"""A chain that commits side by side: forwards at once, restarts, and records taken back."""

import pytest
from msgspec import structs

from ares.model.configuration import CHAIN_RULE, Status, Successor
from ares.model.identity import NO_CALL
from ares.model.log_messages import (
    Append,
    Appended,
    AppendOutcome,
    AwaitAppend,
    Committed,
    Forward,
    GivenBack,
    LogRecord,
    Look,
    LookDone,
    ReadLog,
    Seal,
    SealDone,
    TakeBack,
    Trim,
    TrimDone,
    seal_of,
)
from ares.model.messages import Introduce, WriteConfig
from ares.sharedlog.chain_segment import AWAITED_MAX
from ares.sharedlog.log_facts import RecordsTaken
from tests.simulation.log_controls import commits_asked_for_while_records_are_lacking
from tests.simulation.log_rule_controls import (
    bounds_of_a_tail_that_is_not_informed,
    earlier_lives_not_shut_out,
    forwards_before_the_introduction_is_durable,
    forwards_to_an_earlier_life_taken,
    giving_back_before_one_has_taken_back,
    informed_by_a_node_that_is_not,
    records_given_back_late_taken,
    records_given_to_an_earlier_life_taken,
    taking_back_without_rows,
)

from .chains import CLIENT, NAMES, Wired, call, chain

C0 = chain(rule=CHAIN_RULE)


def append(number, *entries, lowest=1, since=0, at=None):
    return Append(call(number), C0.id, CLIENT, number, lowest, since, entries or (b"x",), at)


def record(first, number, entry):
    sealed = LogRecord(first, CLIENT, number, 1, (entry,))
    return structs.replace(sealed, seal=seal_of(*structs.astuple(sealed)[:5]))


@pytest.fixture
def wired():
    """Return nodes that know the lives of neighbours, after an append at position 0."""
    wired = Wired()
    for name in NAMES:
        wired.hand(name, Introduce(NO_CALL, C0))
    wired.hand("s0", append(1, b"0"))
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 0)]
    return wired


def segment(wired, name):
    return wired.nodes[name].state.segments[C0.id]


def positions(wired, field):
    return [getattr(segment(wired, name), field) for name in NAMES]


def outcomes(messages):
    return [
        (message.outcome, message.position) for message in messages if isinstance(message, Appended)
    ]


def looks(wired, *names):
    for name in names:
        wired.hand(name, Look(call(), C0.id), sync=False)
    return [
        message for message in wired.run(without=NAMES, sync=False) if isinstance(message, LookDone)
    ]


def test_records_pass_the_chain_before_any_disk_has_them(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    assert wired.run(sync=False) == []
    assert positions(wired, "length") == [2, 2, 2]
    assert positions(wired, "durable") == [1, 1, 1]


@pytest.mark.parametrize("last", NAMES)
def test_an_append_is_committed_when_the_last_disk_has_it(wired, last):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    for name in NAMES:
        if name != last:
            wired.collect(name)
            assert outcomes(wired.run(sync=False)) == []
    assert positions(wired, "committed") == [1, 1, 1]
    wired.collect(last)
    assert outcomes(wired.run(sync=False)) == [(AppendOutcome.DONE, 1)]
    assert positions(wired, "committed") == [2, 2, 2]


def test_the_first_forward_waits_for_the_life_of_the_next_node_and_for_the_introduction():
    wired = Wired()
    for name in NAMES:
        wired.hand(name, Introduce(NO_CALL, C0), sync=name != "s0")
    wired.hand("s0", append(1), sync=False)
    ((_, _, asked),) = wired.sent
    assert (asked.records, asked.to_life) == ((), 0)
    wired.run(sync=False)
    wired.tick(sync=False)
    wired.run(sync=False)
    assert positions(wired, "length") == [1, 0, 0], "a crash would make s0 forget the chain"
    wired.collect("s0")
    wired.run(sync=False)
    assert positions(wired, "length") == [1, 1, 1]


def test_a_head_takes_back_what_its_crash_lost(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.crash("s0")
    assert positions(wired, "length") == [1, 2, 2]
    wired.hand("s0", append(3, b"other", lowest=3))
    assert outcomes(wired.run(without=NAMES)) == [(AppendOutcome.BEHIND, 0)]
    assert wired.nodes["s0"].state.describe()[0].chain.returning
    wired.tick()
    wired.run()
    assert positions(wired, "committed") == [2, 2, 2]
    wired.hand("s0", append(2, b"1", lowest=2))
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 1)]
    assert not wired.nodes["s0"].state.describe()[0].chain.returning


def test_records_come_back_from_the_tail_after_all_nodes_lost_power(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.collect("s2")
    for name in NAMES:
        wired.crash(name)
    wired.sent.clear()
    assert positions(wired, "length") == [1, 1, 2]
    wired.hand("s1", TakeBack(call(), C0.id, "s0", 2, 1), "s0")
    assert wired.run(without=NAMES) == [], "s1 has not taken back its records"
    assert segment(wired, "s0").returning
    for _ in range(3):
        wired.tick()
        wired.run()
    assert positions(wired, "committed") == [2, 2, 2]
    assert all(positions(wired, "informed"))


def test_large_records_come_back_in_pieces(wired):
    for number in range(2, 6):
        wired.hand("s0", append(number, bytes(700_000), lowest=number), sync=False)
        wired.run(sync=False)
    wired.crash("s0")
    wired.tick()
    given = 0
    while wired.sent:
        sender, to, message = wired.sent.pop(0)
        given += isinstance(message, GivenBack)
        wired.hand(to, message, sender)
    assert given > 1
    assert positions(wired, "length") == [5, 5, 5]


def test_a_node_that_restarted_takes_no_forward_to_its_earlier_life(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    ((_, _, late),) = wired.sent
    wired.sent.clear()
    wired.crash("s0")
    wired.crash("s2")
    wired.hand("s2", Forward(NO_CALL, C0.id, "s1", 1, late.records, 0, 0, False, 1, 1), "s1")
    assert segment(wired, "s2").length == 1
    wired.hand("s2", Forward(NO_CALL, C0.id, "s1", 1, late.records, 0, 0, False, 1, 2), "s1")
    assert segment(wired, "s2").length == 2


def test_a_forward_of_an_earlier_life_comes_too_late(wired):
    assert [copy.entries for copy in a_late_forward(wired)] == [(b"again",)] * 3


def test_another_record_in_the_same_place_is_a_fault(wired):
    other = record(0, 7, b"other")
    wired.hand("s1", Forward(NO_CALL, C0.id, "s0", 0, (other,), 0, 0, False, 1, 1), "s0")
    damage = wired.nodes["s1"].state.damage
    assert damage is not None
    assert "another record at position 0" in str(damage)


def test_a_returning_node_can_be_sealed_and_gives_back_nothing_then(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.crash("s1")
    wired.hand("s1", Seal(call(), C0.id))
    (done,) = [message for message in wired.run(without=NAMES) if isinstance(message, SealDone)]
    assert done.length == 1
    wired.tick()
    wired.run(without=("s0",))
    assert segment(wired, "s1").length == 1
    wired.hand("s1", TakeBack(call(), C0.id, "s0", 2, 1), "s0")
    (_, (_, _, given)) = wired.sent
    assert (given.sealed, given.records) == (True, ())


def test_a_returning_head_is_sealed_when_the_next_node_is(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.crash("s0")
    wired.hand("s1", Seal(call(), C0.id))
    wired.run(without=NAMES)
    assert segment(wired, "s0").returning
    wired.tick()
    wired.run()
    assert not segment(wired, "s0").returning
    wired.hand("s0", append(2, b"1", lowest=2))
    assert outcomes(wired.run()) == [(AppendOutcome.SEALED, 0)]
    wired.crash("s0")
    assert segment(wired, "s0").sealed


def test_a_node_that_knows_the_successor_names_it(wired):
    wired.hand("s1", WriteConfig(call(), C0.id, Successor(chain(1, 1), Status.PENDING)))
    wired.run(without=NAMES)
    wired.crash("s0")
    assert segment(wired, "s0").returning
    wired.tick()
    wired.run()
    assert segment(wired, "s0").successor is not None
    assert not segment(wired, "s0").returning


def test_a_returning_head_trims(wired):
    wired.hand("s0", append(2, b"1", lowest=2))
    wired.run()
    wired.crash("s0")
    assert segment(wired, "s0").committed == 1, "kept with the records"
    wired.hand("s0", Trim(call(), C0.id, 1))
    assert wired.run() == [TrimDone(call(), True, 2, None)]
    assert segment(wired, "s0").returning
    assert [node.state.trimmed for node in wired.nodes.values()] == [1, 1, 1]


def test_a_tail_bounds_the_log_by_its_commit_only_if_it_is_informed(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.collect("s2")
    wired.sent.clear()
    (seen,) = looks(wired, "s2")
    assert (seen.length, seen.committed) == (1, 1)
    wired.crash("s2")
    (seen,) = looks(wired, "s2")
    assert (seen.length, seen.committed) == (2, 1), "more may be known to the other nodes"
    for _ in range(2):
        wired.tick()
        wired.run()
    (seen,) = looks(wired, "s2")
    assert (seen.length, seen.committed) == (2, 2)


def test_a_lost_report_of_a_life_is_repeated(wired):
    wired.crash("s2")
    for _ in range(2):
        wired.tick()
        wired.sent.clear()
    assert not segment(wired, "s2").informed
    wired.tick()
    wired.run()
    assert segment(wired, "s2").informed
    wired.hand("s0", append(2, lowest=2))
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 1)]


def test_uncommitted_reads_show_no_record_that_a_crash_could_take(wired):
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.hand("s1", ReadLog(call(), C0.id, 1, uncommitted=True), sync=False)
    assert [reply.entries for reply in wired.run(without=NAMES, sync=False)] == [()]
    wired.collect("s1")
    wired.hand("s1", ReadLog(call(), C0.id, 1, uncommitted=True), sync=False)
    assert [reply.entries for reply in wired.run(without=NAMES, sync=False)] == [(b"1",)]


def test_the_committed_position_is_kept_with_the_records(wired):
    wired.hand("s0", append(2, b"1", lowest=2))
    wired.run()
    kept = [fact.committed for fact in wired.disks["s1"] if isinstance(fact, RecordsTaken)]
    assert kept == [0, 1]
    wired.crash("s1")
    assert segment(wired, "s1").committed == 1


def test_a_chain_of_an_earlier_release_keeps_its_rule():
    wired, old = Wired(), chain(rule="")
    for name in NAMES:
        wired.hand(name, Introduce(NO_CALL, old))
    wired.hand("s0", Append(call(), old.id, CLIENT, 1, 1, 0, (b"x",)), sync=False)
    assert wired.sent == [], "records leave when they are durable"
    wired.collect("s0")
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 0)]
    wired.crash("s0")
    assert not wired.nodes["s0"].state.segments[old.id].returning
    wired.crash("s2")
    assert wired.nodes["s2"].state.segments[old.id].committed == 1


def test_a_node_that_stores_in_the_same_turn_sends_one_forward(wired):
    """A server that keeps everything in memory needs no second message about durable records."""
    wired.nodes["s0"].forwards_at_once = False
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    assert wired.sent == []
    wired.collect("s0")
    ((_, _, forward),) = wired.sent
    assert (len(forward.records), forward.ahead) == (1, 2)
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 1)]


def test_a_return_ends_without_the_name_of_the_successor(wired):
    """Roles keep a server from naming a chain after the next chain."""
    wired.hand("s1", WriteConfig(call(), C0.id, Successor(chain(2, 1), Status.FINALIZED)))
    wired.run(without=NAMES)
    wired.crash("s0")
    wired.tick()
    (asked,) = [message for _, _, message in wired.sent if isinstance(message, TakeBack)]
    wired.hand("s1", asked, "s0")
    wired.sent = [each for each in wired.sent if not isinstance(each[2], WriteConfig)]
    wired.run()
    assert segment(wired, "s0").sealed
    assert not segment(wired, "s0").returning


# -- controls that random schedules meet too seldom ------------------------------------------------


def a_late_forward(wired):
    """Return the nodes' copies of position 1 after a forward of an earlier life of the head."""
    wired.hand("s0", append(2, b"lost", lowest=2), sync=False)
    ((_, _, late),) = wired.sent
    wired.sent.clear()
    wired.crash("s0")
    wired.tick()
    wired.run()
    wired.hand("s1", late, "s0")
    wired.run()
    wired.hand("s0", append(2, b"again", lowest=2))
    wired.run()
    return [segment(wired, name).entries.record(1) for name in NAMES]


def test_control_a_forward_of_an_earlier_life_splits_the_log(wired):
    with earlier_lives_not_shut_out():
        head, *behind = a_late_forward(wired)
    assert head.entries == (b"again",)
    assert [copy.entries for copy in behind] == [(b"lost",)] * 2


def a_forward_to_an_earlier_life(wired):
    """Return the lengths after a restarted tail took a forward for an earlier life."""
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    ((_, _, late),) = wired.sent
    wired.sent.clear()
    wired.crash("s0")
    wired.crash("s1")
    wired.hand("s1", GivenBack(NO_CALL, C0.id, "s2", 2, 1, (), 1), "s2")
    wired.hand("s0", GivenBack(NO_CALL, C0.id, "s1", 2, 2, (), 1), "s1")
    wired.hand("s1", late, "s0")
    return positions(wired, "length")


def test_a_forward_to_an_earlier_life_is_not_taken(wired):
    assert a_forward_to_an_earlier_life(wired) == [1, 1, 1]


def test_control_a_forward_to_an_earlier_life_brings_what_its_sender_forgot(wired):
    with forwards_to_an_earlier_life_taken():
        assert a_forward_to_an_earlier_life(wired) == [1, 2, 1]


def records_given_to_others(wired):
    """Return the head's length after records given to an earlier life, and to the live head."""
    wired.crash("s0")
    given = GivenBack(NO_CALL, C0.id, "s1", 1, 1, (record(1, 2, b"1"),), 2)
    wired.hand("s0", given, "s1")
    first = segment(wired, "s0").length
    wired.hand("s0", structs.replace(given, to_life=2, records=(), length=first), "s1")
    wired.hand("s0", structs.replace(given, to_life=2), "s1")
    return first, segment(wired, "s0").length


def test_records_are_taken_back_in_the_life_that_asked_and_while_returning(wired):
    assert records_given_to_others(wired) == (1, 1)


def test_control_records_given_to_an_earlier_life_are_taken(wired):
    with records_given_to_an_earlier_life_taken():
        assert records_given_to_others(wired)[0] == 2


def test_control_a_live_head_takes_records_in_places_that_it_gives_away(wired):
    with records_given_back_late_taken():
        assert records_given_to_others(wired) == (1, 2)


def lengths_after_loss_of_power(wired):
    """Return the lengths when the head asks a returning node."""
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.collect("s2")
    wired.crash("s0")
    wired.crash("s1")
    wired.sent.clear()
    wired.hand("s1", TakeBack(call(), C0.id, "s0", 2, 1), "s0")
    wired.run(without=("s1", "s2"))
    wired.hand("s0", append(2, b"other", lowest=2))
    return positions(wired, "length"), segment(wired, "s0").returning


def test_a_node_gives_back_when_it_has_taken_back(wired):
    assert lengths_after_loss_of_power(wired) == ([1, 1, 2], True)


def test_control_a_head_goes_on_before_it_has_what_the_tail_has(wired):
    with giving_back_before_one_has_taken_back():
        assert lengths_after_loss_of_power(wired) == ([2, 1, 2], False)


def positions_of_an_append_sent_twice(wired):
    """Return the positions of an append that the head lost, took back, and got again."""
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.crash("s0")
    wired.tick()
    wired.run()
    wired.hand("s0", append(2, b"1", lowest=2))
    return [position for _, position in outcomes(wired.run())]


def test_the_rows_of_clients_come_back_with_the_records(wired):
    assert positions_of_an_append_sent_twice(wired) == [1]


def test_control_an_append_is_taken_twice(wired):
    with taking_back_without_rows():
        assert positions_of_an_append_sent_twice(wired) == [2]


def first_forward_of_a_new_chain():
    """Return the lengths after an append to a chain whose introduction is not durable."""
    wired = Wired()
    for name in NAMES:
        wired.hand(name, Introduce(NO_CALL, C0), sync=name != "s0")
    wired.hand("s0", append(1), sync=False)
    wired.run(sync=False)
    return positions(wired, "length")


def test_no_record_leaves_before_the_introduction_is_durable():
    assert first_forward_of_a_new_chain() == [1, 0, 0]


def test_control_a_head_forwards_what_it_may_forget_with_the_chain():
    with forwards_before_the_introduction_is_durable():
        assert first_forward_of_a_new_chain() == [1, 1, 1]


def bound_of_a_tail_that_restarted(wired):
    """Return the evidence of a restarted tail that forgot the committed position.

    The node before restarted, too, without news.
    """
    wired.hand("s0", append(2, b"1", lowest=2))
    wired.run()
    wired.crash("s1")
    wired.crash("s2")
    wired.hand("s2", Forward(NO_CALL, C0.id, "s1", 2, (), 0, 0, False, 2, 2), "s1")
    wired.sent.clear()
    (seen,) = looks(wired, "s2")
    return seen.length, segment(wired, "s0").committed


def test_the_bound_of_a_tail_that_restarted_is_what_its_disk_has(wired):
    assert bound_of_a_tail_that_restarted(wired) == (2, 2)


@pytest.mark.parametrize(
    "control", [bounds_of_a_tail_that_is_not_informed, informed_by_a_node_that_is_not]
)
def test_control_a_tail_denies_what_was_acknowledged(wired, control):
    with control():
        assert bound_of_a_tail_that_restarted(wired) == (1, 2)


def answers_after_a_lost_commit(wired):
    """Return the answers to an append of which the last news of the commit was lost."""
    wired.hand("s0", append(2, b"1", lowest=2))
    wired.run(without=("s2",))
    wired.tick()
    while wired.sent:  # s1 confirms its copy; later it tells of the commit, and this is lost
        sender, to, message = wired.sent.pop(0)
        if not (isinstance(message, Committed) and to == "s0" and message.committed == 2):
            wired.hand(to, message, sender)
    assert [segment(wired, "s0").confirmed, *positions(wired, "committed")] == [2, 1, 2, 2]
    wired.tick()
    return outcomes(wired.run())


def test_a_lost_commit_is_asked_for(wired):
    assert answers_after_a_lost_commit(wired) == [(AppendOutcome.DONE, 1)]


def test_control_a_head_waits_for_ever_for_the_news_of_a_commit(wired):
    with commits_asked_for_while_records_are_lacking():
        assert answers_after_a_lost_commit(wired) == []


# -- the tail answers ------------------------------------------------------------------------------


def awaited(number):
    return AwaitAppend(NO_CALL, C0.id, CLIENT, number)


def test_the_tail_tells_the_client_first(wired):
    wired.hand("s0", append(2, b"1", lowest=2))
    wired.hand("s2", awaited(2), sync=False)
    assert outcomes(wired.run(without=("s0",))) == [(AppendOutcome.DONE, 1)]
    assert positions(wired, "committed") == [1, 2, 2]


def test_the_tail_tells_of_an_append_that_comes_later_or_was_committed_before(wired):
    wired.hand("s2", awaited(2))
    assert wired.run(without=NAMES) == []
    wired.hand("s0", append(2, b"1", lowest=2))
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 1)] * 2
    wired.hand("s2", awaited(2))
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 1)]


@pytest.mark.parametrize("disk", NAMES)
def test_the_tail_tells_of_no_append_that_a_disk_lacks(wired, disk):
    wired.hand("s2", awaited(2))
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    for name in NAMES:
        if name != disk:
            wired.collect(name)
    assert wired.run(sync=False) == []


def test_another_client_learns_nothing_of_an_append(wired):
    wired.hand("s2", structs.replace(awaited(2), secret=b"another"))
    wired.hand("s0", append(2, b"1", lowest=2))
    assert outcomes(wired.run()) == [(AppendOutcome.DONE, 1)]  # from the head


def test_only_the_tail_of_a_live_chain_answers(wired):
    wired.hand("s1", awaited(1))
    wired.hand("s2", Seal(call(), C0.id))
    wired.run()
    wired.hand("s2", awaited(1))
    assert wired.run() == []


def test_awaited_appends_are_bounded(wired):
    for number in range(2, AWAITED_MAX + 4):
        wired.hand("s2", awaited(number), sync=False)
    for number in (2, 3, 4):
        wired.hand("s0", append(number, lowest=number))
    answered = [
        message.number for message in wired.run(without=("s0",)) if isinstance(message, Appended)
    ]
    assert answered == [4]


def test_the_tail_tells_nobody_that_it_is_sealed(wired):
    wired.hand("s2", awaited(2))
    wired.hand("s0", append(2, b"1", lowest=2), sync=False)
    wired.run(sync=False)
    wired.hand("s2", Seal(call(), C0.id))
    assert outcomes(wired.run(without=("s0", "s1"))) == []


def test_a_next_node_of_an_earlier_release_gets_missing_records_again():
    """The node reports life 0, and the chain has the earlier rule."""
    of, nodes = chain(rule=""), Wired()
    for name in NAMES:
        nodes.hand(name, Introduce(NO_CALL, of))
    nodes.hand("s0", Append(call(1), of.id, CLIENT, 1, 1, 0, (b"x",)))
    nodes.run()
    nodes.hand("s0", Committed(NO_CALL, of.id, "s1", 0, 0, 0, True), "s1")
    ((_, to, again),) = nodes.sent
    assert (to, again.first, len(again.records)) == ("s1", 0, 1)
