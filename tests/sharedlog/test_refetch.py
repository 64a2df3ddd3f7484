"""A second fetch of lost records: from any chain that has them as final, and from no liar."""

import pytest
from msgspec.structs import replace

from ares.model.configuration import Status, Successor
from ares.model.log_messages import Append, Fetch, Fetched, Seal, Trim
from ares.model.messages import CollectConfig, Introduce
from ares.reconfig.throttle import Throttle
from ares.sharedlog.earlier_chains import (
    REFETCH_AGAIN_S,
    REFETCH_AGAIN_S_MAX,
    REFETCH_S_MAX,
    REFETCH_WAITS_MAX,
)
from ares.sharedlog.log_facts import PIECES, LostRecords

from .chains import CLIENT, Wired, call, chain, sealed

C0 = chain()
C1 = chain(1, start=6, servers=("s1", "s2", "s3"))
GONE = LostRecords(C0.id, 1, 5, 1000)


def append(number, *entries):
    return Append(call(number), C0.id, CLIENT, number, number, 0, entries)


@pytest.fixture
def wired():
    """Have three records of two entries each at three nodes, and a node of the next chain."""
    wired = Wired("s0", "s1", "s2", "s3")
    for name in C0.server_ids:
        wired.hand(name, Introduce(call(), C0))
    for number in (1, 2, 3):
        wired.hand("s0", append(number, b"a", b"b"))
    wired.run()
    for _ in range(3):
        wired.tick()
        wired.run()
    return wired


def records(wired, name="s0"):
    return wired.nodes[name].state.segments[C0.id].entries.records(0, 6)


def sought(wired, name, lost, first, upto):
    """Return the fetch of a node, after all messages."""
    refetch = wired.nodes[name].refetch
    refetch.seek(lost, first, upto)
    for _ in range(9):
        wired.tick(REFETCH_AGAIN_S)
        wired.run()
    assert refetch.ended
    return refetch


def test_committed_records_come_from_any_node_of_a_live_chain(wired):
    refetch = sought(wired, "s1", LostRecords(C0.id, 2, 6, 1000), 2, 6)
    assert not refetch.failed
    assert refetch.found == list(records(wired))[1:]


def test_the_first_record_may_begin_before_the_needed_part(wired):
    """A trim may end inside of a record."""
    refetch = sought(wired, "s1", LostRecords(C0.id, 2, 6, 1000), 3, 6)
    assert refetch.found == list(records(wired))[1:]
    refetch = sought(wired, "s1", LostRecords(C0.id, 3, 6, 1000), 3, 6)
    assert refetch.failed, "the lost records began at another position"
    refetch = sought(wired, "s1", LostRecords(PIECES, 3, 6, 1000), 3, 6)
    assert refetch.found == list(records(wired))[1:], "a fetched piece began below a trim"


def test_nothing_is_asked_for_where_nothing_is_needed(wired):
    wired.nodes["s1"].refetch.seek(GONE, 5, 5)
    wired.tick()
    assert wired.nodes["s1"].refetch.ended
    assert not [message for _, _, message in wired.sent if isinstance(message, Fetch)]


def test_records_that_are_not_committed_are_not_given(wired):
    wired.hand("s0", append(4, b"dirty"))
    wired.sent.clear()
    for first, count in ((0, 3), (6, 0)):
        wired.hand("s0", Fetch(call(9), C0.id, first, None), "s1")
        [fetched] = [message for _, _, message in wired.sent if isinstance(message, Fetched)]
        assert len(fetched.records) == count
        wired.sent.clear()


def test_records_of_an_old_chain_come_from_a_node_that_fetched_them(wired):
    for name in C0.server_ids:
        wired.hand(name, Seal(call(6), C0.id))
    for name in ("s1", "s2", "s3"):
        wired.hand(name, Introduce(call(7), C1, (C0,)))
    for _ in range(9):
        wired.tick()
        wired.run()
    collect = CollectConfig(call(8), C0.id, Successor(C1, Status.FINALIZED))
    wanted = list(records(wired))
    for name in C0.server_ids:
        wired.hand(name, collect)
    wired.run()
    refetch = sought(wired, "s2", LostRecords(PIECES, 0, 6, 1000), 0, 6)
    assert refetch.found == wanted


def asked(wired):
    [(to, request)] = [(to, it) for _, to, it in wired.sent if isinstance(it, Fetch)]
    wired.sent.clear()
    return to, request


LIES = {
    "nothing": lambda right: [],
    "wrong seal": lambda right: [replace(right[0], seal=7), *right[1:]],
    "another client": lambda right: [replace(right[0], client=8), *right[1:]],
    "another position": lambda right: [sealed(right[0], first=3)],
    "before the lost ones": lambda right: [sealed(right[0], first=1, entries=(b"a",) * 3)],
    "a gap": lambda right: [right[0], sealed(right[1], first=5, entries=(b"a",))],
    "beyond the lost ones": lambda right: [right[0], sealed(right[1], entries=(b"a",) * 3)],
    "too much": lambda right: [sealed(right[0], entries=(b"a" * 600, b"b" * 600))],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
@pytest.mark.parametrize("ends_well", [True, False])
def test_after_a_wrong_answer_the_next_holder_is_asked_and_each_once(wired, lie, ends_well):
    right, node = list(records(wired))[1:], wired.nodes["s1"]
    wired.sent.clear()
    node.refetch.seek(LostRecords(C0.id, 2, 6, 1000), 2, 6)
    node.refetch.go_on(wired.now)
    wired.collect("s1")
    first, request = asked(wired)
    wired.hand("s1", Fetched(request.call, 2, tuple(lie(right)), 0), first)
    second, request = asked(wired)
    assert {first, second} == {"s0", "s2"}
    wired.hand("s1", Fetched(request.call, 2, tuple(right if ends_well else lie(right)), 0), second)
    assert node.refetch.ended
    assert node.refetch.failed != ends_well
    assert node.refetch.found == (right if ends_well else [])
    assert not [it for _, _, it in wired.sent if isinstance(it, Fetch)]


def test_silent_holders_are_passed_over_and_other_senders_are_not_heard(wired):
    right, node = list(records(wired))[1:], wired.nodes["s1"]
    wired.sent.clear()
    node.refetch.seek(LostRecords(C0.id, 2, 6, 1000), 2, 6)
    node.refetch.go_on(wired.now)
    wired.collect("s1")
    first, request = asked(wired)
    wired.hand("s1", Fetched(request.call, 2, tuple(right), 0), "s9")
    assert not node.refetch.ended
    wired.tick(REFETCH_AGAIN_S)
    second, _ = asked(wired)
    assert second != first
    wired.hand("s1", Fetched(request.call, 2, tuple(right), 0), first)
    assert not node.refetch.found, "the answer came late"
    wired.tick(REFETCH_AGAIN_S)
    assert node.refetch.failed


def test_a_slow_answer_is_awaited(wired):
    right, node = list(records(wired))[1:], wired.nodes["s1"]
    wired.sent.clear()
    node.refetch.seek(LostRecords(C0.id, 2, 6, 1000), 2, 6)
    node.refetch.go_on(wired.now)
    wired.collect("s1")
    first, request = asked(wired)
    wired.tick(4.0)
    wired.hand("s1", Fetched(request.call, 2, tuple(right), 0), first)
    assert node.refetch.found == right


def test_a_fetch_of_lost_records_ends_in_any_case(wired):
    """A throttle may always be busy, and a holder may give a small record at a time."""
    node, now = wired.nodes["s1"], 1000.0
    lost = LostRecords(C0.id, 0, 1000, 10_000)
    node.refetch._throttle = Throttle(1.0)
    node.refetch._throttle.count(now, 10_000)
    node.refetch.seek(lost, 0, 1000)
    node.refetch.go_on(now)
    node.refetch.go_on(now + REFETCH_S_MAX - 1)
    assert not node.refetch.ended
    node.refetch.go_on(now + REFETCH_S_MAX)
    assert node.refetch.failed
    node.refetch._throttle = None
    node.refetch.seek(lost, 0, 1000)
    wired.collect("s1")
    for at in range(1000):
        node.refetch.go_on(now)
        wired.sent.clear()
        wired.collect("s1")
        if node.refetch.ended:
            break
        to, request = asked(wired)
        now += 0.8 * REFETCH_AGAIN_S
        record = sealed(records(wired)[0], first=at, entries=(b"x",))
        node.refetch.accept(to, Fetched(request.call, at, (record,), 0), now)
    assert node.refetch.failed
    assert 0 < len(node.refetch.found) < 100
    assert not node.refetch.awaits(Fetched(request.call, at, (), 0)), "no late answer counts"


@pytest.mark.parametrize("first", [0, 3], ids=["all", "a trim took the first"])
def test_a_fetch_goes_on_behind_the_records_of_an_earlier_one(wired, first):
    right, node = list(records(wired)), wired.nodes["s1"]
    wired.sent.clear()
    node.refetch.seek(LostRecords(C0.id, 0, 6, 6), first, 6, right[:2])
    node.refetch.go_on(wired.now)
    wired.collect("s1")
    to, request = asked(wired)
    assert request.first == right[2].first
    wired.hand("s1", Fetched(request.call, request.first, tuple(right[2:]), 0), to)
    assert node.refetch.ended
    assert not node.refetch.failed
    assert node.refetch.found == right[first // 2 :]
    node.refetch.stop()
    assert node.refetch.ended
    assert not node.refetch.found


def test_kept_records_beyond_a_cut_are_not_needed(wired):
    right, node = list(records(wired)), wired.nodes["s1"]
    node.refetch.seek(LostRecords(C0.id, 0, 6, 6), 0, 4, right)
    assert node.refetch.ended
    assert node.refetch.found == right[:2]


def test_kept_records_count_with_the_records_that_come(wired):
    right, node = list(records(wired)), wired.nodes["s1"]
    wired.sent.clear()
    node.refetch.seek(LostRecords(C0.id, 0, 6, 5), 0, 6, right[:2])
    node.refetch.go_on(wired.now)
    wired.collect("s1")
    to, request = asked(wired)
    wired.hand("s1", Fetched(request.call, 4, tuple(right[2:]), 0), to)
    assert not node.refetch.ended, "they are more than the lost records"


def test_a_holder_that_answers_is_asked_again(wired):
    right, node = list(records(wired)), wired.nodes["s1"]
    wired.sent.clear()
    node.refetch.seek(LostRecords(C0.id, 0, 6, 1000), 0, 6)
    node.refetch.go_on(wired.now)
    holders = []
    for record in right:
        wired.collect("s1")
        to, request = asked(wired)
        holders.append(to)
        wired.hand("s1", Fetched(request.call, record.first, (record,), 0), to)
    assert node.refetch.ended
    assert len(set(holders)) == 1


def test_the_next_fetch_waits_longer_for_slow_holders(wired):
    node, lost, waits = wired.nodes["s1"], LostRecords(C0.id, 2, 6, 1000), []

    def seek(lost):
        node.refetch.seek(lost, 2, 6)
        begun = wired.now
        while not node.refetch.ended:
            node.refetch.go_on(wired.now)
            wired.now += 1.0
        waits.append(wired.now - begun)

    for _ in range(4):
        seek(lost)
    assert waits == sorted(waits)
    assert waits[0] < 2 * REFETCH_AGAIN_S + 3
    assert 2 * REFETCH_AGAIN_S_MAX <= waits[-1] < 2 * REFETCH_AGAIN_S_MAX + 3
    seek(lost._replace(first=1))
    assert waits[-1] == waits[0]
    seek(lost)
    assert waits[-1] == waits[3], "another loss does not shorten the waits for this one"
    for first in range(10, 10 + 2 * REFETCH_WAITS_MAX):
        seek(lost._replace(first=first))
    assert len(node.refetch._waits_s) == REFETCH_WAITS_MAX
    assert lost not in node.refetch._waits_s


def test_what_is_needed_depends_on_durable_facts(wired):
    node = wired.nodes["s1"]
    lost = LostRecords(C0.id, 2, 6, 1000)
    assert node.needed(lost) == (2, 6)
    assert node.needed(lost._replace(upto=7)) is None, "that may still be cut"
    wired.hand("s0", Trim(call(5), C0.id, 3))
    wired.run()
    wired.tick()
    wired.run()
    assert node.needed(lost) == (3, 6)
    assert node.needed(LostRecords(PIECES, 0, 2, 9)) == (3, 3)
    shorter = chain(1, start=4, servers=("s1", "s2", "s3"))
    for name in ("s0", "s1"):
        wired.nodes[name].state.segments[C0.id].committed = 4
    wired.hand("s1", Introduce(call(7), shorter, (C0,)), sync=False)
    assert node.needed(lost) is None, "the end of the chain is not durable yet"
    wired.collect("s1")
    assert node.needed(lost) == (3, 4)
    for name in ("s0", "s1"):
        wired.hand(name, CollectConfig(call(8), C0.id, Successor(shorter, Status.FINALIZED)))
    assert node.needed(lost) == (3, 4), "they are in the old part of the next chain's node"
    assert wired.nodes["s0"].needed(lost) == (3, 3), "s0 dropped them"
