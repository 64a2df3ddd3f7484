"""Bounds of a peer's message: checked before work, refused alone, without harm to others.

See docs/limits.md.
"""

import sys
from typing import Any

import msgspec
import pytest

from ares.client.store import checked_prefix
from ares.compiled import replica_parts
from ares.consensus.local import LocalConsensus
from ares.consensus.member_host import ConsensusHost
from ares.model.codec import BATCH_MESSAGES_MAX, decode, encode
from ares.model.configuration import (
    CONFIGURATION_BYTES_MAX,
    SERVERS_MAX,
    Configuration,
    Server,
    Status,
    Successor,
)
from ares.model.element import sealed
from ares.model.errors import BadInput, BadMessage
from ares.model.identity import (
    DEFAULT_DOMAIN,
    DIRECTORY_PREFIX,
    DOMAIN_BYTES_MAX,
    FILE_DOMAINS,
    KEY_BYTES_MAX,
    fits,
)
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    SITES_REPORTED_MAX,
    USAGES_MAX,
    Ack,
    AskedFrom,
    CollectConfig,
    ConsensusDescription,
    Describe,
    Description,
    FollowReport,
    GetData,
    GetHint,
    GetTag,
    Introduce,
    ListedObject,
    ListObjects,
    ObjectsReply,
    Propose,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    TellFinalized,
    Usage,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.reconfig.listing import _united
from ares.replica.port import PAGE_CHARACTERS_MAX
from ares.replica.replica import Replica
from tests.inproc.network import InprocListener, InprocNetwork

ME = Server("s0", "h:1", f"{0:032x}")
C0 = Configuration.abd([ME], allow_no_faults=True).at(DEFAULT_DOMAIN, 0)
TAG = Tag(1, 1)
BAD_NAMES = ["", "n" * (KEY_BYTES_MAX + 1), "ü" * (KEY_BYTES_MAX // 2) + "n", "n" * 2**20]
LONGEST = ["n" * KEY_BYTES_MAX, "ü" * (KEY_BYTES_MAX // 2), "\U0001f600" * (KEY_BYTES_MAX // 4)]
GROWTH_MAX = 2.2


def replica() -> Replica:
    return Replica(ME.id, ME.identity, C0, parts=replica_parts())


def put(name: str, tag: Tag = TAG) -> PutData:
    return PutData(1, C0.id, name, tag, sealed(C0.id, name, tag, 0, 1, (b"x",)))


def refused(reply: Any, reason: Reason = Reason.BAD_REQUEST) -> bool:
    return (
        isinstance(reply, Refused)
        and reply.reason is reason
        and len(reply.detail) <= DETAIL_CHARACTERS_MAX
    )


# -- collections -----------------------------------------------------------------------------------


class Counted(str):
    """A name with a count of comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def comparisons(servers: int) -> int:
    Counted.compared = 0
    with pytest.raises(BadInput, match="1 to 32 servers"):
        Configuration("abd", tuple(Server(Counted(f"s{number}")) for number in range(servers)))
    return Counted.compared


def test_servers_beyond_the_bound_are_not_looked_at():
    assert comparisons(1000) <= GROWTH_MAX * comparisons(500)


@pytest.mark.parametrize(
    "make",
    [
        lambda more: Describe(1, True, ("d",) * (USAGES_MAX + more)),
        lambda more: Description(
            1, "s0", "i", b"c", "1", 1.0, 1, (), usage=(Usage("d", 1, ()),) * (USAGES_MAX + more)
        ),
        lambda more: Description(
            1,
            "s0",
            "i",
            b"c",
            "1",
            1.0,
            1,
            (),
            usage=(Usage("d", 1, (AskedFrom("a", 1.0),) * (SITES_REPORTED_MAX + more)),),
        ),
        lambda more: ConsensusDescription(
            1,
            "r0",
            "r0",
            1,
            1,
            1,
            1,
            "",
            (FollowReport("d", "a", "here", "why"),) * (USAGES_MAX + more),
        ),
    ],
)
def test_the_users_of_domains_are_reported_up_to_a_bound(make):
    assert decode(encode([make(0)])) == [make(0)]
    with pytest.raises(BadMessage):
        decode(encode([make(1)]))


def test_a_configuration_of_too_many_servers_is_refused_while_decoding():
    for servers in (SERVERS_MAX, SERVERS_MAX + 1, 20_000):
        header = b"\x01" + msgspec.msgpack.encode(
            [[8, 1, ["abd", [[f"s{number}"] for number in range(servers)], 1, 0, "", "d", 1]]]
        )
        if servers <= SERVERS_MAX:
            decode([header])
        else:
            with pytest.raises(BadMessage, match="length <= 32"):
                decode([header])


def test_a_batch_of_too_many_messages_is_refused():
    assert len(decode(encode([ReadConfig(1, C0.id)] * BATCH_MESSAGES_MAX))) == BATCH_MESSAGES_MAX
    with pytest.raises(BadMessage, match=f"length <= {BATCH_MESSAGES_MAX}"):
        decode(encode([ReadConfig(1, C0.id)] * (BATCH_MESSAGES_MAX + 1)))


def work(messages: list[Any]) -> int:
    """Return the number of calls to decode a batch, and to make and encode the answers."""
    server, header, calls = replica(), encode(messages), 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        encode(
            [reply for message in decode(header) if (reply := server.handle(message)) is not None]
        )
    finally:
        sys.setprofile(None)
    return calls


NEXT = Successor(C0.at(DEFAULT_DOMAIN, 1, C0.id), Status.PENDING)
KINDS = {
    "puts of one object": lambda number: put("k", Tag(number + 1, 1)),
    "puts of many": lambda number: put(f"k{number}"),
    "reads": lambda number: GetData(number, C0.id, f"k{number}", True),
    "reads that bring a successor": lambda number: GetData(
        number, C0.id, f"k{number}", True, None, NEXT
    ),
    "listings": lambda number: ListObjects(number, C0.id, "", 10),
    "introductions": lambda number: Introduce(number, C0.at(f"domain {number}", 0, C0.id)),
    "bad names": lambda number: put("n" * (KEY_BYTES_MAX + 1 + number)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_twice_as_much_is_twice_the_work(kind):
    few, many = (work([KINDS[kind](number) for number in range(count)]) for count in (500, 1000))
    assert many <= GROWTH_MAX * few


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LONGEST)
def test_the_longest_names_are_taken(name):
    server = replica()
    assert isinstance(server.handle(put(name)), Ack)
    assert server.handle(GetTag(2, C0.id, name)).tag == TAG
    assert [
        listed.name for listed in server.handle(ListObjects(3, C0.id, "", 10, name)).objects
    ] == [name]
    assert server.handle(ListObjects(3, C0.id, name, 10)).objects == ()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_server_refuses_names_that_clients_refuse_and_keeps_nothing(name):
    server = replica()
    for request in (put(name), GetTag(1, C0.id, name), GetData(1, C0.id, name, True)):
        assert refused(server.handle(request))
    assert server.hosted[C0.id].objects.names(None, 1) == []


@pytest.mark.parametrize("name", BAD_NAMES[1:])
def test_a_server_refuses_prefixes_and_cursors_that_no_name_has(name):
    assert refused(replica().handle(ListObjects(1, C0.id, name, 10)))
    assert refused(replica().handle(ListObjects(1, C0.id, "", 10, name)))


@pytest.mark.parametrize("domain", ["", "d" * (DOMAIN_BYTES_MAX + 1), "d" * 2**20, "line\nline"])
def test_a_server_keeps_no_domain_that_no_client_can_name(domain):
    server = replica()
    assert refused(server.handle(Introduce(1, C0.at(domain, 0, C0.id))))
    assert list(server.hosted) == [C0.id]


def test_the_longest_domain_is_taken():
    assert replica().handle(Introduce(1, C0.at("d" * DOMAIN_BYTES_MAX, 0, C0.id))) is None


def test_a_configuration_of_too_many_bytes_is_kept_nowhere():
    fat = Configuration("abd", (ME, Server("s1", "a" * CONFIGURATION_BYTES_MAX)))
    server = replica()
    assert refused(server.handle(Introduce(1, fat.at("d", 0, C0.id))))
    told = Successor(fat.at(DEFAULT_DOMAIN, 1, C0.id), Status.FINALIZED)
    for request in (
        WriteConfig(1, C0.id, told),
        CollectConfig(1, C0.id, told),
        GetData(1, C0.id, "k", True, None, told),
        ListObjects(1, C0.id, "", 1, "", told),
    ):
        assert refused(server.handle(request))
    assert server.handle(ReadConfig(1, C0.id)).successor is None


def test_a_configuration_as_large_as_settings_allow_is_taken():
    servers = tuple(
        Server(f"{number:02d}".ljust(64, "s"), "h" * 253 + ":65535/" + "k" * 64, f"{number:032x}")
        for number in range(SERVERS_MAX)
    )
    Configuration("abd", servers, certificate=bytes(64), cluster=bytes(16)).at(
        "d" * DOMAIN_BYTES_MAX, 1, bytes(16)
    ).check_bounds()


def test_a_refusal_does_not_repeat_all_that_was_asked():
    server = replica()
    others = Configuration(
        "abd", tuple(Server(f"{number:02d}".ljust(64, "x")) for number in range(SERVERS_MAX))
    )
    assert refused(server.handle(Introduce(1, others.at("d", 0, C0.id))), Reason.NOT_A_MEMBER)
    bad = msgspec.structs.replace(put("\x01" * KEY_BYTES_MAX), tag=Tag(2, 2))
    assert refused(server.handle(bad), Reason.BAD_ELEMENT)


def test_clients_refuse_prefixes_that_servers_refuse():
    checked_prefix("n" * KEY_BYTES_MAX)
    before = DIRECTORY_PREFIX + FILE_DOMAINS
    checked_prefix("n" * (KEY_BYTES_MAX - len(before)), before)
    for prefix, put_before in (
        ("n" * (KEY_BYTES_MAX + 1), ""),
        ("n" * KEY_BYTES_MAX, before),
        ("\ud800", ""),
    ):
        with pytest.raises(BadInput, match="names begin with"):
            checked_prefix(prefix, put_before)


@pytest.mark.parametrize("text", ["", "a", "ü", "\U0001f600", "aü\U0001f600"])
@pytest.mark.parametrize("times", [1, 3, 100])
def test_fits_counts_bytes_of_utf_8(text, times):
    for bytes_max in (0, 1, 4, 7, 300, 699, 700):
        assert fits(text * times, bytes_max) == (len((text * times).encode()) <= bytes_max)


# -- listings --------------------------------------------------------------------------------------


def test_a_page_is_bounded_in_bytes_and_the_listing_is_whole():
    server = replica()
    names = sorted(f"{number:04d}".ljust(KEY_BYTES_MAX, "n") for number in range(500))
    for name in names:
        server.handle(put(name))
    listed, after, pages = [], "", 0
    while after is not None:
        page = server.handle(ListObjects(1, C0.id, after, 1000))
        assert 0 < sum(len(entry.name) for entry in page.objects) <= PAGE_CHARACTERS_MAX
        listed += [entry.name for entry in page.objects]
        after, pages = page.objects[-1].name if page.more else None, pages + 1
    assert listed == names
    assert pages > 1


def test_names_from_before_stop_neither_a_start_nor_a_listing():
    """An earlier release stored any name from a program without the client library."""
    server = Replica(ME.id, ME.identity, C0, True, replica_parts())
    server.begin_restoring()
    for number, name in enumerate(["a", *BAD_NAMES, "z"]):
        server.restore(put(name), number)
    server.restored()
    assert len(server.hosted[C0.id].objects) == 2 + len(BAD_NAMES)
    page = server.handle(ListObjects(1, C0.id, "", 1000))
    assert ([entry.name for entry in page.objects], page.more) == (["a", "z"], False)
    for name in BAD_NAMES:
        assert server.handle(GetTag(1, C0.id, name)).tag == TAG, "who knows it can read it"
        assert refused(server.handle(put(name, Tag(2, 1))))


def test_a_listing_passes_over_impossible_names_of_earlier_releases():
    reply = ObjectsReply(
        1,
        tuple(ListedObject(name, TAG, False) for name in ["", "a", "n" * (KEY_BYTES_MAX + 1), "z"]),
        False,
        None,
    )
    assert list(_united([reply]).objects) == ["a", "z"]


# -- consensus members -----------------------------------------------------------------------------


async def test_a_consensus_member_refuses_them_at_once():
    host = ConsensusHost(LocalConsensus(), InprocListener(InprocNetwork(), "here"))
    fat = Configuration("abd", (ME, Server("s1", "a" * CONFIGURATION_BYTES_MAX))).at("d", 1)
    nameless = C0.at("", 1, C0.id)
    asked = [
        Propose(1, fat, 1),
        TellFinalized(2, fat),
        Propose(3, nameless, 1),
        GetHint(4, ""),
        GetHint(5, "d" * 2**20),
    ]
    assert [refused(reply) for reply in host._handle("a client", asked)] == [True] * len(asked)
    assert len(host._under_way) == 0
    await host.close()
