"""Random requests, commits, crashes and compactions of a server with a journal.

The server equals the plain replica that handled the surviving requests.
"""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ares.compiled import replica_parts
from ares.model.element import sealed
from ares.model.messages import PutData
from ares.model.units import KIB
from ares.replica.replica import Replica
from ares.server.storage_process import recovered
from ares.store.journal.segment_journal import SegmentJournal

from ..property.test_replica_properties import INITIAL, ME, MEMBERS, few_tags, likely
from .journal_node import AtOnce, Owner, change, room_for, state
from .journal_node import Node as PlainNode
from .recorded_disk import RecordedDisk, crash

OWNER = Owner(INITIAL.cluster_id, MEMBERS[ME].id, MEMBERS[ME].identity)


@st.composite
def large_puts(draw):
    object, tag, size = (
        draw(st.sampled_from(["a", "b"])),
        draw(few_tags),
        draw(st.sampled_from([8 * KIB, 20 * KIB])),
    )
    data = bytes([tag.number]) * size
    return PutData(
        1,
        INITIAL.id,
        object,
        tag,
        sealed(INITIAL.id, object, tag, ME, size, (data[:100], data[100:])),
    )


steps = st.one_of(
    likely, likely, likely, large_puts(), st.sampled_from(["commit", "commit", "compact", "crash"])
)


class Node(PlainNode):
    def __init__(self, journal):
        self.journal, self.errors = journal, []
        me = MEMBERS[ME]
        self.replica = recovered(me.id, me.identity, INITIAL, journal, replica_parts())


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=60), st.integers(0, 2**32))
def test_requests_crashes_and_compactions(story, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        where, disk = Path(directory) / "0", RecordedDisk()
        node = Node(SegmentJournal(where, OWNER, AtOnce(), disk, 48 * KIB))
        handled, told = [], 0
        for number, step in enumerate(story):
            if step == "commit":
                node.commit()
                told = len(handled)
            elif step == "compact":
                node.commit()
                told = len(handled)
                if node.journal.places():
                    node.compact(rng.choice(sorted(node.journal.places())))
            elif step == "crash":
                where = Path(directory) / f"{number + 1}"
                crash(disk.ops, rng, where)
                disk = RecordedDisk(where)
                node = Node(SegmentJournal(where, OWNER, AtOnce(), disk, 48 * KIB))
                survived = [plain(handled[:some]) for some in range(told, len(handled) + 1)]
                matching = [
                    some for some, replica in enumerate(survived) if state(replica) == node.state
                ]
                assert matching, "it is no state that the server went through since the last commit"
                handled = handled[: told + matching[-1]]
            else:
                reply = node.handle(step)
                assert reply == plain(handled).handle(step)
                handled.append(step)
        assert node.state == state(plain(handled))


def plain(requests):
    replica = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL)
    for request in requests:
        replica.handle(request)
    return replica


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(likely, large_puts()), max_size=30), st.randoms(use_true_random=False))
def test_facts_are_joined_in_any_order_and_as_often_as_you_like(requests, rng):
    server = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, journaled=True)
    facts = [fact for request in requests if (fact := change(server, request, 1)[1]) is not None]
    shuffled = facts + rng.sample(facts, len(facts) // 2)
    rng.shuffle(shuffled)
    again = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, journaled=True)
    for fact in shuffled:
        again.restore(fact, 1)
    again.restored()
    assert state(again) == state(server) == state(plain(requests))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(likely, large_puts()), max_size=30))
def test_a_request_leaves_a_fact_exactly_when_it_changes_something(requests):
    server = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, journaled=True)
    for request in requests:
        before, room = state(server), room_for(server, request)
        _, fact = change(server, request, 1)
        assert (fact is not None) == (state(server) != before)
        assert room or fact is None
        assert room_for(server, request) == 0 or fact is None, "again, it would change nothing"
