"""Batches of a journal joined by the core and by Python: the replicas agree.

See :class:`ares.replica.port.BatchReplay`.
"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ares.compiled import CORE, replica_parts
from ares.model.codec import encode_array
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import hollow
from ares.model.errors import StoreDamaged
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import DELETED_LENGTH, LEFT_LENGTH, Element, PutData
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.facts import ConfigurationRecord, NamesDropped, TagsTrimmed
from ares.replica.port import lists_of
from ares.replica.replica import Replica
from ares.store.journal.format import Batch

pytestmark = pytest.mark.skipif(CORE is None, reason="nothing is compiled")

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(5)]
C0 = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
DEEP = Configuration.ec(MEMBERS, 2, 2).at("films", 0, C0.id)
C1 = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 1, C0.id)
CONFIGURATIONS = [C0, DEEP, C1]
_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(Batch).decode

ids = st.sampled_from([each.id for each in CONFIGURATIONS])
names = st.sampled_from(["a", "b", "é" * 20, "", "n" * 2000])
tags = st.builds(Tag, st.integers(1, 5), st.integers(0, 1)) | st.just(Tag(2**64 - 1, 2**64 - 1))
small = st.builds(lambda data: Element(1, 2 * len(data), 9, (data,)), st.binary(max_size=20))
elements = st.one_of(
    *(small, small, small, small.map(hollow)),
    *(st.just(Element(0, length, 0, ())) for length in (DELETED_LENGTH, LEFT_LENGTH, 0)),
    *(st.just(Element(2, 9000, 1, (b"y" * 9000,))), st.just(Element(2, 4, 1, (b"ab", b"cd")))),
)
puts = st.builds(PutData, st.just(7), ids, names, tags | st.just(TAG_ZERO), elements)
usual_puts = st.builds(PutData, st.just(7), ids, names, tags, small)
trims = st.builds(TagsTrimmed, ids, names, tags)
drops = st.builds(
    NamesDropped, ids, st.lists(names, max_size=3).map(tuple), st.just((1, 2)) | st.just((9,))
)
successors = [None, Successor(C1, Status.PENDING), Successor(C1, Status.FINALIZED)]
records = st.one_of(
    st.builds(ConfigurationRecord, st.sampled_from(CONFIGURATIONS), st.none(), st.just(False)),
    st.builds(
        lambda successor, gone: ConfigurationRecord(C0, successor, gone and successor.finalized),
        *(st.sampled_from(successors[1:]), st.booleans()),
    ),
)
batches = st.tuples(
    st.one_of(
        st.lists(usual_puts | trims, max_size=6),
        st.lists(usual_puts | trims, max_size=6),
        st.lists(st.one_of(puts, trims, drops, records), max_size=4),
    ),
    st.integers(1, 3),
)


def body_of(facts) -> bytes:
    return b"\x92" + encode_array(facts) + _encode((4, 5))


def started(parts, journal):
    """Return the replica of a journal, and the number of batches joined without decoding."""
    replica, joined = Replica("s1", MEMBERS[1].identity, C0, True, *parts), 0
    replica.begin_restoring()
    for facts, place in journal:
        if replica.restore_batch(memoryview(body_of(facts)), place):
            joined += 1
        else:
            for fact in _decode(body_of(facts)).facts:
                replica.restore(fact, place)
    try:
        replica.restored()
    except StoreDamaged as error:
        return str(error), joined
    return state(replica), joined


def state(replica):
    account = replica.account
    return (
        {
            id: (
                *(hosting.successor, hosting.collected, hosting.order_known, hosting.describe()),
                *(hosting.elements, hosting.bytes),
                [
                    (name, versions.trimmed, versions.trimmed_place, hosting.objects.follows(name))
                    for name, versions in lists_of(hosting.objects)
                ],
                [list(map(tuple, versions.entries)) for _, versions in lists_of(hosting.objects)],
            )
            for id, hosting in replica.hosted.items()
        },
        {place: bytes for place, bytes in account.live.items() if bytes},
        (account.died, account.hollows),
    )


@settings(deadline=None, max_examples=400)
@given(st.lists(batches, max_size=12))
def test_starts_agree(journal):
    pure, joined = started((), journal)
    assert joined == 0
    assert started((replica_parts(),), journal)[0] == pure


def test_usual_batches_are_joined_without_objects_of_their_facts():
    """Batches of a configuration that a later batch introduces are, too."""
    facts = [
        PutData(1, id.id, f"{number}", Tag(1, 1), Element(0, 1, 5, (b"x",)))
        for number in range(100)
        for id in (C0, C1)
    ]
    record = ConfigurationRecord(C1, None, False)
    journal = [(facts[:80], 1), ([record], 1), (facts[80:], 2)]
    found, joined = started((replica_parts(),), journal)
    assert joined == 2
    assert found == started((), journal)[0]


def test_a_batch_that_waits_for_many_configurations_is_decoded_once():
    waiting = [Configuration.abd(MEMBERS).at(f"d{number}", 0, C0.id) for number in range(9)]
    puts = [PutData(1, each.id, "a", Tag(1, 1), Element(0, 1, 5, (b"x",))) for each in waiting]
    records = [([ConfigurationRecord(each, None, False)], 1) for each in waiting]
    for count, joined in ((8, 1), (9, 0)):
        journal = [(puts[:count], 1), *records]
        assert started((replica_parts(),), journal) == (started((), journal)[0], joined)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\x92", b"\x93\x90\x90\xc0", b"\x92\x90\x90\x00", b"\x92\x91\x90\x90"),
        b"\x92\xdd\xff\xff\xff\xff",
        body_of([TagsTrimmed(C0.id, "a", Tag(1, 1))])[:-1],
        *(b"\x92\x90" + _encode(discarded) for discarded in (7, "a", {1: 2}, ["a"], [[1]], [None])),
    ],
)
def test_a_batch_that_cannot_be_read_is_left_to_python(body):
    replica = Replica("s1", MEMBERS[1].identity, C0, True, replica_parts())
    before = state(replica)
    assert not replica.restore_batch(memoryview(body), 1)
    assert state(replica) == before


def test_another_order_of_copies_is_noticed():
    """A control: the last copy of a version tells its place."""
    put = PutData(1, C0.id, "a", Tag(1, 1), Element(0, 1, 5, (b"x",)))
    journal = [([put], 1), ([put], 2)]
    assert started((replica_parts(),), journal)[0] != started((), journal[::-1])[0]
