"""A server's promises, kept as given; every kind of forgetting is noticed.

Facts that clients asked the server to drop may be gone.
"""

import pytest

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import hollow, sealed
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    CollectConfig,
    ConfigurationReport,
    DataReply,
    Description,
    GetData,
    GetTag,
    ListedObject,
    ListObjects,
    ObjectsReply,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    TagReply,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.testing.kills.kill_members import ProposerDecisions
from ares.testing.promises import Promises, PromiseWitness

NAMES = ("s0", "s1", "s2")
C0 = Configuration.abd([Server(ServerId(name), "h:1", name * 16) for name in NAMES]).at(
    "default", 0
)
C1 = Configuration.abd([Server(ServerId(name), "h:1", name * 16) for name in NAMES]).at(
    "default", 1, C0.id
)
ID: ConfigurationId = C0.id
KEY = ObjectName("key")
CALL = CallId(1)
PENDING, FINALIZED = Successor(C1, Status.PENDING), Successor(C1, Status.FINALIZED)


def tag(number: int) -> Tag:
    return Tag(number, 7)


def element(number: int, data: bytes = b"value"):
    return sealed(ID, KEY, tag(number), 0, len(data), (data,))


def put(number: int) -> PutData:
    return PutData(CALL, ID, KEY, tag(number), element(number))


def data(
    number: int,
    *,
    tags: tuple[int, ...] | None = None,
    trimmed: int = 0,
    successor: Successor | None = None,
    its=None,
) -> DataReply:
    """Return a right answer for the newest element, with the given changes."""
    held = tuple(tag(each) for each in tags) if tags is not None else (tag(number),)
    return DataReply(
        CALL,
        held,
        5,
        tag(trimmed) if trimmed else TAG_ZERO,
        element(number) if its is None else its,
        successor,
    )


def broken(promises: Promises, reply) -> str:
    [versions] = promises.versions()
    return promises.broken_by_data(versions, reply)


@pytest.fixture
def promises() -> Promises:
    """Return the promises of a server that acknowledged versions 3 and 4."""
    made = Promises()
    for number in (3, 4):
        made.note_reply(put(number), Ack(CALL, None))
    return made


@pytest.mark.parametrize(
    "reply",
    [
        data(4, tags=(4, 3)),
        data(4, trimmed=3),
        data(9, trimmed=4),
        data(4, tags=(4, 3), successor=FINALIZED, its=hollow(element(4))),
    ],
)
def test_replies_that_keep_promises_pass(promises, reply):
    assert broken(promises, reply) == ""


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (DataReply(CALL, (), -1, TAG_ZERO, None, None), "2 versions that it told of are lost"),
        (data(3), "1 versions that it told of are lost"),
        (data(4), "1 versions that it told of are lost"),
        (data(3, trimmed=2), "are lost"),
        (data(4, tags=(4, 3), its=element(3)), "is not what was stored"),
        (data(4, tags=(4, 3), its=hollow(element(4))), "is not what was stored"),
        (DataReply(CALL, (), -1, TAG_ZERO, None, FINALIZED), "are lost"),
        (Refused(CALL, Reason.IDENTITY, "somebody else"), "refused, IDENTITY"),
        (Refused(CALL, Reason.UNKNOWN_CONFIGURATION, ""), "refused, UNKNOWN_CONFIGURATION"),
        (Ack(CALL, None), "Ack"),
    ],
)
def test_replies_that_forget_facts_are_named(promises, reply, words):
    assert words in broken(promises, reply)


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (GetTag(CALL, ID, KEY), TagReply(CALL, tag(5), None)),
        (GetData(CALL, ID, KEY, False), data(5, trimmed=4)),
        (
            ListObjects(CALL, ID, "", 10),
            ObjectsReply(CALL, (ListedObject(KEY, tag(5), False),), False, None),
        ),
    ],
)
def test_what_was_shown_is_promised_as_well(promises, request_, reply):
    promises.note_reply(request_, reply)
    assert "1 versions that it told of are lost" in broken(promises, data(4, trimmed=3))
    assert broken(promises, data(5, trimmed=4)) == ""


def test_what_was_dropped_stays_dropped(promises):
    promises.note_reply(GetData(CALL, ID, KEY, False), data(5, trimmed=4))
    assert "it had" in broken(promises, data(5, tags=(5, 4), trimmed=3))


def test_what_is_trimmed_is_asked_for_no_more(promises):
    assert broken(promises, data(9, trimmed=4)) == ""
    [versions] = promises.versions()
    assert versions.reported == frozenset()


def test_what_may_be_collected_may_be_gone_and_only_with_a_successor_that_is_finalized(promises):
    gone = DataReply(CALL, (), -1, TAG_ZERO, None, FINALIZED)
    assert broken(promises, gone)
    promises.asked(CollectConfig(CALL, ID, FINALIZED))
    assert broken(promises, gone) == ""
    assert broken(promises, DataReply(CALL, (), -1, TAG_ZERO, None, PENDING))
    promises.note_reply(put(8), Ack(CALL, None))
    assert broken(promises, data(4, trimmed=3)) == "", (
        "what is acknowledged from then on need not be stored"
    )
    promises.note_reply(CollectConfig(CALL, ID, FINALIZED), Ack(CALL, FINALIZED))
    assert promises.versions() == []


def describe(successor: Successor | None, collected: bool = False, objects: int = 0) -> Description:
    return Description(
        CALL,
        ServerId("s0"),
        "",
        b"",
        "",
        0.0,
        0,
        (ConfigurationReport(C0, objects, 0, collected, successor),),
    )


def test_pointers_never_go_back(promises):
    promises.note_reply(ReadConfig(CALL, ID), Ack(CALL, PENDING))
    promises.note_reply(WriteConfig(CALL, ID, FINALIZED), Ack(CALL, FINALIZED))
    promises.note_reply(ReadConfig(CALL, ID), Ack(CALL, PENDING))
    assert promises.broken_by(describe(FINALIZED), *promises.pointers()) == []
    for description in (
        describe(PENDING),
        describe(None),
        Description(CALL, ServerId("s0"), "", b"", "", 0.0, 0, ()),
    ):
        [words] = promises.broken_by(description, *promises.pointers())
        assert "FINALIZED 1" in words


def test_a_collection_is_for_ever(promises):
    promises.note_reply(CollectConfig(CALL, ID, FINALIZED), Ack(CALL, FINALIZED))
    assert promises.broken_by(describe(FINALIZED, True), *promises.pointers()) == []
    assert len(promises.broken_by(describe(FINALIZED, False), *promises.pointers())) == 1
    assert len(promises.broken_by(describe(FINALIZED, True, 1), *promises.pointers())) == 1


class Wire:
    """A transport in which the test is the server."""

    def __init__(self):
        self.troubles = {}
        self.connected_s = {}
        self.over_sockets = set()

    def open(self, deliver):
        self.deliver = deliver

    def post(self, server, messages):
        self.posted = [(server, message) for message in messages]

    def learn(self, server, address):
        pass

    def receiving(self, server):
        return False

    def sending(self, server, call):
        return False

    async def close(self):
        pass


def test_a_witness_notes_each_reply_once_and_passes_everything_on():
    wire, promises, heard = Wire(), {ServerId("s0"): Promises(), ServerId("s1"): Promises()}, []
    witness = PromiseWitness(wire, promises)
    witness.open(lambda server, replies: heard.extend((server, reply) for reply in replies))
    witness.post(ServerId("s0"), [put(3)])
    assert wire.posted == [("s0", put(3))]
    for server in ("s1", "s0", "s0"):
        wire.deliver(ServerId(server), [Ack(CALL, None)])
    assert heard == [(server, Ack(CALL, None)) for server in ("s1", "s0", "s0")]
    assert (promises[ServerId("s0")].count, promises[ServerId("s1")].count) == (1, 0)
    [versions] = promises[ServerId("s0")].versions()
    assert versions.reported == {tag(3)}


def test_two_decisions_for_one_place_are_noticed():
    decisions = ProposerDecisions()
    place = ("default", 1)
    decisions.hear(place, C1, "one")
    decisions.hear(place, C1, "another")
    assert (decisions.findings, decisions.next_index("default")) == ([], 2)
    other = Configuration.ec(["s0", "s1", "s2"], 1).at("default", 1, C0.id)
    decisions.hear(place, other, "a third")
    decisions.hear(("default", 2), C1, "a fourth")
    assert len(decisions.findings) == 2
