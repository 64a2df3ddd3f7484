"""Configurations that a server accepts and refuses (ares/replica/replica.py)."""

import msgspec
import pytest

from ares.compiled import replica_parts
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    Ack,
    CollectConfig,
    DataReply,
    Describe,
    Description,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    ObjectsReply,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    TagReply,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.replica.replica import Replica

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(5)]
ME = MEMBERS[1]
INITIAL = Configuration.abd(MEMBERS[:3]).at(DEFAULT_DOMAIN, 0)
OTHER = Configuration.abd(MEMBERS[1:4])
REBORN = Configuration.abd([Server("s1", "host:1", "f" * 32), *MEMBERS[2:4]])


def replica(initial: Configuration = INITIAL) -> Replica:
    return Replica(ME.id, ME.identity, initial, parts=replica_parts())


def test_it_serves_the_initial_configuration_at_once():
    server = replica()
    put = PutData(1, INITIAL.id, "k", Tag(1, 1), sealed(INITIAL.id, "k", Tag(1, 1), 0, 1, (b"x",)))
    assert server.handle(put) == Ack(1, None)
    assert server.handle(GetTag(2, INITIAL.id, "k")) == TagReply(2, Tag(1, 1), None)


def test_a_stranger_waits_to_be_introduced():
    server, placed = replica(), OTHER.at("photos", 0, INITIAL.id)
    assert server.handle(ReadConfig(1, placed.id)) == Refused(
        1, Reason.UNKNOWN_CONFIGURATION, "introduce it"
    )
    assert server.handle(Introduce(2, placed)) is None
    assert server.handle(ReadConfig(3, placed.id)) == Ack(3, None)
    assert server.handle(Introduce(4, placed)) is None, "twice is no harm"


def test_a_second_introduction_keeps_the_state():
    server = replica()
    server.handle(
        WriteConfig(
            1, INITIAL.id, Successor(OTHER.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.PENDING)
        )
    )
    server.handle(Introduce(2, INITIAL))
    assert server.handle(ReadConfig(3, INITIAL.id)).successor is not None


@pytest.mark.parametrize(
    ("configuration", "reason", "why"),
    [
        (
            Configuration.abd([MEMBERS[0], *MEMBERS[2:4]]).at("d", 0, INITIAL.id),
            Reason.NOT_A_MEMBER,
            "s1 is not in ABD n=3 on s0,s2,s3",
        ),
        (OTHER.at(DEFAULT_DOMAIN, 0), Reason.OTHER_CLUSTER, "is this the right cluster file"),
        (
            OTHER.at(DEFAULT_DOMAIN, 0, INITIAL.id),
            Reason.OTHER_CLUSTER,
            "is this the right cluster file",
        ),
        (OTHER.at("d", 0), Reason.OTHER_CLUSTER, "is this the right cluster file"),
        (
            OTHER.at("d", 3, OTHER.at(DEFAULT_DOMAIN, 0).id),
            Reason.OTHER_CLUSTER,
            "is this the right cluster file",
        ),
        (REBORN.at("d", 0, INITIAL.id), Reason.IDENTITY, "lost its memory; reconfigure"),
    ],
)
def test_introductions_that_are_refused(configuration, reason, why):
    server = replica()
    refused = server.handle(Introduce(9, configuration))
    assert (refused.call, refused.reason) == (9, reason)
    assert why in refused.detail
    assert server.handle(ReadConfig(1, configuration.id)).reason is Reason.UNKNOWN_CONFIGURATION


def test_two_configurations_for_one_place_are_refused():
    server = replica()
    assert server.handle(Introduce(1, OTHER.at("photos", 2, INITIAL.id))) is None
    assert (
        server.handle(Introduce(2, INITIAL.at("photos", 2, INITIAL.id))).reason
        is Reason.OTHER_CLUSTER
    )
    assert server.handle(Introduce(3, INITIAL.at("photos", 3, INITIAL.id))) is None


def test_a_server_outside_c0_knows_its_digest_all_the_same():
    outside = Replica("s4", MEMBERS[4].identity, INITIAL)
    assert outside.handle(ReadConfig(1, INITIAL.id)).reason is Reason.UNKNOWN_CONFIGURATION
    forged = Configuration.abd(MEMBERS[2:5]).at(DEFAULT_DOMAIN, 0)
    assert outside.handle(Introduce(2, forged)).reason is Reason.OTHER_CLUSTER


def test_a_server_with_a_new_identity_does_not_serve_under_the_old_one():
    reborn = Replica(ME.id, "f" * 32, INITIAL)
    assert reborn.handle(ReadConfig(1, INITIAL.id)).reason is Reason.UNKNOWN_CONFIGURATION
    assert reborn.handle(Introduce(2, INITIAL)).reason is Reason.IDENTITY


def carrying(kind, successor):
    return {
        GetData: lambda: GetData(1, INITIAL.id, "k", True, None, successor),
        ListObjects: lambda: ListObjects(1, INITIAL.id, "", 5, "", successor),
        WriteConfig: lambda: WriteConfig(1, INITIAL.id, successor),
        CollectConfig: lambda: CollectConfig(1, INITIAL.id, successor),
    }[kind]()


KINDS = [
    (GetData, DataReply),
    (ListObjects, ObjectsReply),
    (WriteConfig, Ack),
    (CollectConfig, Ack),
]


@pytest.mark.parametrize(("kind", "answer"), KINDS)
def test_r1_a_carried_successor_is_installed_before_the_answer(kind, answer):
    server, successor = (
        replica(),
        Successor(OTHER.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.PENDING),
    )
    reply = server.handle(carrying(kind, successor))
    assert type(reply) is answer
    assert reply.successor == successor
    assert server.hosted[INITIAL.id].successor == successor


@pytest.mark.parametrize(("kind", "answer"), KINDS)
def test_r2_a_second_successor_is_refused_and_nothing_changes(kind, answer):
    server, first = replica(), Successor(OTHER.at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.PENDING)
    server.handle(WriteConfig(1, INITIAL.id, first))
    second = Successor(
        Configuration.abd(MEMBERS[2:]).at(DEFAULT_DOMAIN, 1, INITIAL.id), Status.FINALIZED
    )
    refused = server.handle(carrying(kind, second))
    assert refused.reason is Reason.CONFLICTING_SUCCESSOR
    assert server.hosted[INITIAL.id].successor == first
    assert not server.hosted[INITIAL.id].collected


@pytest.mark.parametrize(("kind", "answer"), KINDS)
def test_a_successor_of_another_cluster_is_refused_and_nothing_changes(kind, answer):
    server, foreign = (
        replica(),
        Successor(OTHER.at(DEFAULT_DOMAIN, 1, OTHER.at(DEFAULT_DOMAIN, 0).id), Status.FINALIZED),
    )
    refused = server.handle(carrying(kind, foreign))
    assert (refused.reason, "another cluster" in refused.detail) == (
        Reason.CONFLICTING_SUCCESSOR,
        True,
    )
    assert server.hosted[INITIAL.id].successor is None
    assert not server.hosted[INITIAL.id].collected


def test_a_server_that_begins_later_in_the_sequence_is_of_the_same_cluster():
    server = replica(OTHER.at("d", 4, INITIAL.id))
    assert server.handle(Introduce(1, INITIAL)) is None
    assert server.handle(Introduce(2, OTHER.at("d", 5, INITIAL.id))) is None
    assert (
        server.handle(Introduce(3, OTHER.at("d", 6, OTHER.at("d", 4, INITIAL.id).id))).reason
        is Reason.OTHER_CLUSTER
    )


def test_a_bad_element_is_refused():
    bad = PutData(1, INITIAL.id, "k", Tag(1, 1), sealed(INITIAL.id, "k", Tag(1, 2), 0, 1, (b"x",)))
    assert replica().handle(bad).reason is Reason.BAD_ELEMENT


def test_a_description_has_the_server_and_its_configurations():
    server = replica()
    server.handle(Introduce(1, OTHER.at("photos", 0, INITIAL.id)))
    described = server.handle(Describe(5))
    assert isinstance(described, Description)
    assert (described.call, described.server, described.identity, described.version) == (
        5,
        "s1",
        ME.identity,
        "",
    )
    assert [hosted.configuration for hosted in described.hosted] == [
        INITIAL,
        OTHER.at("photos", 0, INITIAL.id),
    ]
    assert server.handle(Describe(6, brief=True)) == msgspec.structs.replace(
        described, call=6, hosted=()
    )
