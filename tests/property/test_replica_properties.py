"""A server under arbitrary messages of any sender: answers and invariants.

See ares/replica/replica.py.
"""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.compiled import replica_parts
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    REPLY_OF,
    CollectConfig,
    Element,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PutData,
    Refused,
    Request,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.port import lists_of
from ares.replica.replica import Replica

from .strategies import BY_TYPE, tags
from .test_pointer_properties import C0, moves_forward

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(5)]
INITIAL = Configuration.ec(MEMBERS, 3, 1).at(DEFAULT_DOMAIN, 3, C0.id)
NEXT = [
    Configuration.abd(MEMBERS[:3]),
    Configuration.abd(MEMBERS[2:]),
    Configuration.ec(MEMBERS, 2, 1),
]
ME = 1

requests_of_any_kind = st.one_of(*(BY_TYPE[kind] for kind in get_args(Request)))
ids = st.sampled_from([INITIAL.id] * 5 + [NEXT[0].at(DEFAULT_DOMAIN, 4, C0.id).id, b"unknown"])
objects = st.sampled_from(["a", "b"])
clusters = st.sampled_from([C0.id] * 5 + [b"", b"another"])
places = st.builds(
    lambda content, index, cluster: content.at(DEFAULT_DOMAIN, index, cluster),
    st.sampled_from(NEXT),
    st.integers(2, 6),
    clusters,
)
successors = st.builds(Successor, places, st.sampled_from(Status))
maybe = st.none() | successors
few_tags = st.builds(Tag, st.integers(1, 5), st.integers(1, 2))


@st.composite
def puts(draw):
    """Draw puts, mostly with elements of this server, which stores them."""
    object, tag, data = draw(objects), draw(few_tags), draw(st.binary(max_size=5))
    index = draw(st.sampled_from([ME, ME, ME, 0, 7]))
    element = sealed(INITIAL.id, object, tag, index, len(data), (data,))
    return PutData(
        1,
        draw(ids),
        object,
        tag,
        element if draw(st.integers(0, 4)) else Element(index, len(data), 0, (data,)),
    )


likely = st.one_of(
    puts(),
    puts(),
    st.builds(GetTag, st.just(1), ids, objects),
    st.builds(GetData, st.just(1), ids, objects, st.booleans(), st.none() | few_tags, maybe),
    st.builds(
        ListObjects,
        st.just(1),
        ids,
        st.sampled_from(["", "a"]),
        st.integers(-1, 3),
        st.sampled_from(["", "b"]),
        maybe,
    ),
    st.builds(WriteConfig, st.just(1), ids, successors),
    st.builds(CollectConfig, st.just(1), ids, successors),
    st.builds(Introduce, st.just(1), successors.map(lambda successor: successor.configuration)),
)


def state(replica):
    """Return nextC, whether collected, and by object the highest tag and the number of versions.

    The result is by configuration.
    """
    return {
        id: (
            hosting.successor,
            hosting.collected,
            {
                name: (versions.newest, len(versions.entries))
                for name, versions in lists_of(hosting.objects)
            },
        )
        for id, hosting in replica.hosted.items()
    }


def check(before, after, replica):
    for id, (successor, collected, objects) in after.items():
        hosting = replica.hosted[id]
        stored = [
            element
            for _, versions in lists_of(hosting.objects)
            for _, element, _ in versions.entries
        ]
        assert hosting.bytes == sum(element.size for element in stored)
        assert all(count <= hosting.configuration.delta + 1 for _, count in objects.values())
        assert not (collected and objects), "a collected configuration holds data"
        assert not collected or successor.finalized
        if id in before:
            old_successor, old_collected, old_objects = before[id]
            assert collected >= old_collected
            if id == INITIAL.id:
                assert moves_forward_from(old_successor, successor)
            if not collected:
                assert all(
                    objects.get(name, (TAG_ZERO, 0))[0] >= newest
                    for name, (newest, _) in old_objects.items()
                ), "a tag decreased"
    assert set(after) >= set(before)
    places = [
        (hosting.configuration.domain, hosting.configuration.index)
        for hosting in replica.hosted.values()
    ]
    assert len(places) == len(set(places)), "two configurations for one place"
    assert {hosting.configuration.cluster_id for hosting in replica.hosted.values()} == {C0.id}, (
        "a configuration of another cluster"
    )


def moves_forward_from(before, after):
    return before == after or moves_forward(before, after)


def answered(replica, request):
    """Handle the request, and check the kind of the answer."""
    reply = replica.handle(request)
    if isinstance(request, Introduce):
        assert reply is None or type(reply) is Refused
    else:
        assert type(reply) in (REPLY_OF[type(request)], Refused)
    if reply is not None:
        assert reply.call == request.call
    return reply


@settings(deadline=None, max_examples=150)
@given(st.lists(likely, max_size=25))
def test_invariants_hold_after_every_request(requests):
    replica = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, parts=replica_parts())
    before = state(replica)
    for request in requests:
        answered(replica, request)
        after = state(replica)
        check(before, after, replica)
        before = after


@settings(deadline=None, max_examples=150)
@given(st.lists(requests_of_any_kind, max_size=5))
def test_arbitrary_requests_are_answered(requests):
    replica = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, parts=replica_parts())
    for request in requests:
        answered(replica, request)


numbers_of_64_bits = st.integers(-(2**63), 2**64 - 1)
any_tags = st.builds(Tag, numbers_of_64_bits, numbers_of_64_bits)


def test_a_put_of_arbitrary_numbers_is_answered():
    @settings(deadline=None, max_examples=200, database=None, report_multiple_bugs=False)
    @given(tags | any_tags, numbers_of_64_bits, st.sampled_from([ME, 0]))
    def is_answered(tag, length, index):
        replica = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, parts=replica_parts())
        answered(replica, PutData(1, INITIAL.id, "a", tag, Element(index, length, 0, (b"x",))))

    is_answered()


def test_the_checks_reject_a_server_that_forgets():
    replica = Replica(MEMBERS[ME].id, MEMBERS[ME].identity, INITIAL, parts=replica_parts())
    tag = Tag(2, 1)
    replica.handle(PutData(1, INITIAL.id, "a", tag, sealed(INITIAL.id, "a", tag, ME, 1, (b"x",))))
    before = state(replica)
    hosting = replica.hosted[INITIAL.id]
    hosting.objects.clear()
    with pytest.raises(AssertionError, match="a tag decreased"):
        check(before, state(replica), replica)
