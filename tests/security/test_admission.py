"""Admission as a function: every request has its role, and only permitted requests pass."""

import typing
from collections.abc import Hashable, Mapping, Sequence

import pytest

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.identity import (
    DEFAULT_DOMAIN,
    DIRECTORY_PREFIX,
    FOLLOWING_PREFIX,
    CallId,
    ClientId,
    ConfigurationId,
    ObjectName,
    ServerId,
)
from ares.model.log_messages import (
    Append,
    AwaitAppend,
    ChainRequest,
    Committed,
    Fetch,
    Forward,
    GivenBack,
    Look,
    LookRow,
    NeighbourMessage,
    ReadEach,
    ReadLog,
    Seal,
    Stand,
    TakeBack,
    Trim,
)
from ares.model.messages import (
    Ack,
    Adopt,
    AnyMessage,
    CollectConfig,
    ConsensusRequest,
    Describe,
    DescribeConsensus,
    Drop,
    Element,
    Finalize,
    GetAhead,
    GetData,
    GetHint,
    GetTag,
    Introduce,
    ListObjects,
    ObjectVersion,
    Propose,
    PullElement,
    PutAhead,
    PutData,
    QueryList,
    ReadConfig,
    Reason,
    Refused,
    Request,
    Role,
    Scrub,
    SetLogLevel,
    TellFinalized,
    Upkeep,
    WatchObjects,
    Where,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.replica.configuration_state import ConfigurationState
from ares.replica.replica import Replica
from ares.security import roles as admission
from ares.security.clients_file import AuthorisedClient
from ares.security.roles import Admission

CALL = CallId(5)
KEY = ObjectName("key")
SERVERS = [Server(ServerId(f"s{number}"), f"h:{number}", f"{number:032x}") for number in range(3)]
C0 = Configuration.abd(SERVERS).at(DEFAULT_DOMAIN, 0)
NEXT, LATER = (Configuration.abd(SERVERS).at(DEFAULT_DOMAIN, index, C0.id) for index in (1, 4))
FORGED = Configuration.abd(SERVERS[::-1]).at(DEFAULT_DOMAIN, 1, C0.id)
FINAL, PENDING = Successor(NEXT, Status.FINALIZED), Successor(NEXT, Status.PENDING)
JUMP = Successor(LATER, Status.FINALIZED)
HOSTED = Replica(SERVERS[0].id, SERVERS[0].identity, C0).hosted


class Everybody:
    """A policy in which a sender's role is the sender's name."""

    unknown_keys = 3

    def client(self, sender: Hashable) -> AuthorisedClient | None:
        return AuthorisedClient("name", "key", sender) if isinstance(sender, Role) else None


def admit(
    gate: Admission,
    sender: Hashable,
    messages: Sequence[AnyMessage],
    hosted: Mapping[ConfigurationId, ConfigurationState] = admission.NOTHING_HOSTED,
) -> tuple[list[AnyMessage], list[AnyMessage]]:
    """Admit all messages at once."""
    admitted, refused = gate.admit(sender, messages, hosted)
    return list(admitted), refused


COPY = Element(0, 1, 0, (b"x",))


def put(key: str) -> PutData:
    return PutData(CALL, C0.id, ObjectName(key), Tag(1, ClientId(1)), COPY)


REQUESTS: dict[Role, list[AnyMessage]] = {
    Role.READ: [
        GetTag(CALL, C0.id, KEY),
        QueryList(CALL, C0.id, KEY),
        QueryList(CALL, C0.id, KEY, PENDING),
        GetData(CALL, C0.id, KEY, True),
        GetData(CALL, C0.id, KEY, True, None, PENDING),
        ListObjects(CALL, C0.id, "", 10),
        ListObjects(CALL, C0.id, "", 10, "", PENDING),
        WatchObjects(CALL, C0.id, "", 0, 0, None),
        ReadConfig(CALL, C0.id),
        WriteConfig(CALL, C0.id, PENDING),
        Introduce(CALL, NEXT),
        Describe(CALL),
        Where(CALL, DEFAULT_DOMAIN),
        GetHint(CALL, DEFAULT_DOMAIN),
        DescribeConsensus(CALL),
        ReadLog(CALL, C0.id, 0),
        ReadEach(CALL, C0.id, (0,)),
        Look(CALL, C0.id),
        Stand(CALL, C0.id),
    ],
    Role.WRITE: [
        put("key"),
        put("\0block/1/2"),
        put("\0mirror/as-of"),
        Append(CALL, C0.id, ClientId(1), 1, 1, 0, (b"x",)),
        AwaitAppend(CALL, C0.id, ClientId(1), 1),
        Trim(CALL, C0.id, 1),
        Drop(CALL, C0.id, (KEY,)),
    ],
    Role.RECONFIGURE: [
        put(f"{DIRECTORY_PREFIX}photos"),
        put(f"{FOLLOWING_PREFIX}photos"),
        *map(put, ("\0mine", "\0", "\0block", "\0\0file/x", "\0filex")),
        CollectConfig(CALL, C0.id, FINAL),
        Finalize(CALL, C0.id),
        PullElement(CALL, C0.id, KEY, Tag(1, ClientId(1)), 1, NEXT),
        GetAhead(CALL, C0.id, KEY, True),
        PutAhead(CALL, NEXT.id, KEY, Tag(1, ClientId(1)), COPY, DEFAULT_DOMAIN, NEXT.index),
        Adopt(CALL, NEXT.id, (ObjectVersion(KEY, Tag(1, ClientId(1))),)),
        Propose(CALL, NEXT, ClientId(1)),
        TellFinalized(CALL, NEXT),
        Seal(CALL, C0.id),
    ],
    Role.ADMIN: [Scrub(CALL, True), SetLogLevel(CALL, "debug")],
}


def test_every_request_has_a_role() -> None:
    kinds = {type(request) for requests in REQUESTS.values() for request in requests}
    every = {
        kind
        for kind in (
            *typing.get_args(Request),
            *typing.get_args(Upkeep),
            *typing.get_args(ConsensusRequest),
        )
        if isinstance(kind, type)
    }
    every |= {PullElement, *typing.get_args(ChainRequest)}
    of_servers = {*typing.get_args(NeighbourMessage), LookRow, Fetch}
    assert kinds | of_servers == every == set(admission.REQUEST_KINDS)


@pytest.mark.parametrize(
    "message",
    [
        Forward(CALL, C0.id, ServerId("s1"), 0, (), 0),
        Committed(CALL, C0.id, ServerId("s1"), 0, 0, 0),
        TakeBack(CALL, C0.id, ServerId("s1"), 1, 0),
        GivenBack(CALL, C0.id, ServerId("s1"), 1, 1, (), 0),
    ],
)
def test_only_the_server_itself_sends_what_a_server_sends(message: NeighbourMessage) -> None:
    class Named(Everybody):
        def __init__(self, server: str) -> None:
            super().__init__()
            self.server = server

        def client(self, sender: Hashable) -> AuthorisedClient | None:
            return AuthorisedClient("whoever", "k", Role.ADMIN, self.server)

    assert admit(Admission(Named("s1"), lambda _: True), Role.ADMIN, [message], HOSTED) == (
        [message],
        [],
    )
    for other in ("", "s0"):
        admitted, refused = admit(
            Admission(Named(other), lambda _: True), Role.ADMIN, [message], HOSTED
        )
        assert admitted == []
        assert [refusal.reason for refusal in refused] == [Reason.NOT_AUTHORIZED]


@pytest.mark.parametrize(
    "message",
    [LookRow(CALL, C0.id, ClientId(1), 0, PENDING), Fetch(CALL, C0.id, 0, PENDING)],
)
def test_only_servers_ask_for_records_and_rows(message: LookRow | Fetch) -> None:
    """The answers reveal client ids, or facts about a client id."""

    class ServesEverybody(Everybody):
        def client(self, sender: Hashable) -> AuthorisedClient | None:
            return AuthorisedClient("s1", "k", Role.READ, "s1")

    assert admit(Admission(ServesEverybody(), lambda _: True), Role.READ, [message], HOSTED)[0] == [
        message
    ]
    for role in Role:
        admitted, refused = admit(Admission(Everybody(), lambda _: True), role, [message], HOSTED)
        assert (admitted, [each.reason for each in refused]) == ([], [Reason.NOT_AUTHORIZED])


def test_each_chain_that_is_told_was_decided() -> None:
    asked: list[Configuration] = []
    gate = Admission(Everybody(), lambda chain: asked.append(chain) or chain is NEXT)
    assert admit(gate, Role.READ, [Introduce(CALL, NEXT, (C0,))], HOSTED)[0] == []
    assert asked == [NEXT, C0]


@pytest.mark.parametrize("role", Role)
def test_a_role_includes_the_ones_before(role: Role) -> None:
    gate = Admission(Everybody(), lambda _: True)
    for needed, requests in REQUESTS.items():
        for request in requests:
            admitted, refused = admit(gate, role, [request], HOSTED)
            if role >= needed:
                assert (admitted, refused) == ([request], [])
            else:
                assert admitted == []
                assert [
                    (refusal.call, refusal.reason)
                    for refusal in refused
                    if isinstance(refusal, Refused)
                ] == [(CALL, Reason.NOT_AUTHORIZED)]


def test_an_unknown_client_may_send_no_request() -> None:
    gate = Admission(Everybody(), lambda _: True)
    batch = [request for requests in REQUESTS.values() for request in requests]
    admitted, refused = admit(gate, "stranger", batch, HOSTED)
    assert admitted == []
    assert [refusal.call for refusal in refused] == [CALL] * len(batch)
    assert gate.unknown_keys == 3


CARRYING: list[AnyMessage] = [
    GetData(CALL, C0.id, KEY, True, None, PENDING),
    ListObjects(CALL, C0.id, "", 10, "", PENDING),
    WriteConfig(CALL, C0.id, PENDING),
    CollectConfig(CALL, C0.id, FINAL),
    PullElement(CALL, C0.id, KEY, Tag(1, ClientId(1)), 1, NEXT),
    Introduce(CALL, NEXT),
    TellFinalized(CALL, NEXT),
]


@pytest.mark.parametrize("role", [Role.RECONFIGURE, Role.ADMIN])
@pytest.mark.parametrize("request_", CARRYING, ids=lambda request: type(request).__name__)
def test_an_undecided_configuration_is_refused_from_every_role(
    role: Role, request_: AnyMessage
) -> None:
    asked: list[Configuration] = []
    gate = Admission(Everybody(), lambda configuration: bool(asked.append(configuration)))
    admitted, [refusal] = admit(gate, role, [request_], HOSTED)
    assert admitted == []
    assert isinstance(refusal, Refused)
    assert refusal.reason is Reason.NOT_CERTIFIED
    assert asked == [NEXT]


def test_after_one_forgery_no_certificate_of_a_batch_is_looked_at() -> None:
    """A check of a certificate takes long, and a batch has room for thousands."""
    asked: list[Configuration] = []
    gate = Admission(
        Everybody(),
        lambda configuration: not asked.append(configuration) and configuration != FORGED,
    )
    good, bad, plain = (
        WriteConfig(CallId(1), C0.id, PENDING),
        Introduce(CallId(2), FORGED),
        GetTag(CallId(3), C0.id, KEY),
    )
    admitted, refused = admit(gate, Role.READ, [good, bad, bad, good, plain], HOSTED)
    assert admitted == [good, plain]
    assert [
        (refusal.call, refusal.reason) for refusal in refused if isinstance(refusal, Refused)
    ] == [(CallId(call), Reason.NOT_CERTIFIED) for call in (2, 2, 1)]
    assert asked == [NEXT, FORGED]
    assert admit(gate, Role.READ, [good], HOSTED)[0] == [good]


def test_a_proposal_need_not_be_decided() -> None:
    proposal = Propose(CALL, NEXT, ClientId(1))
    assert admit(Admission(Everybody(), lambda _: False), Role.RECONFIGURE, [proposal]) == (
        [proposal],
        [],
    )


@pytest.mark.parametrize("role", [Role.READ, Role.WRITE])
def test_a_finalized_successor_from_a_client_counts_as_pending(role: Role) -> None:
    gate = Admission(Everybody(), lambda _: True)
    batch: list[AnyMessage] = [
        WriteConfig(CALL, C0.id, FINAL),
        GetData(CALL, C0.id, KEY, True, None, FINAL),
        ListObjects(CALL, C0.id, "", 10, "", FINAL),
    ]
    admitted, refused = admit(gate, role, batch, HOSTED)
    assert refused == []
    assert admitted == [
        WriteConfig(CALL, C0.id, PENDING),
        GetData(CALL, C0.id, KEY, True, None, PENDING),
        ListObjects(CALL, C0.id, "", 10, "", PENDING),
    ]


@pytest.mark.parametrize("known", ["hosted", "introduced just now"])
def test_hearsay_of_a_later_one_is_left_out(known: str) -> None:
    gate = Admission(Everybody(), lambda _: True)
    batch: list[AnyMessage] = [
        Introduce(CALL, C0),
        WriteConfig(CALL, C0.id, JUMP),
        GetData(CALL, C0.id, KEY, True, None, JUMP),
        ListObjects(CALL, C0.id, "", 10, "", JUMP),
    ]
    admitted, refused = admit(gate, Role.READ, batch, HOSTED if known == "hosted" else {})
    assert refused == []
    assert admitted == [
        Introduce(CALL, C0),
        ReadConfig(CALL, C0.id),
        GetData(CALL, C0.id, KEY, True),
        ListObjects(CALL, C0.id, "", 10),
    ]


def test_the_role_reconfigure_finalizes() -> None:
    gate = Admission(Everybody(), lambda _: True)
    batch: list[AnyMessage] = [WriteConfig(CALL, C0.id, FINAL), WriteConfig(CALL, C0.id, JUMP)]
    assert admit(gate, Role.RECONFIGURE, batch, HOSTED) == (batch, [])


def test_what_is_no_request_is_for_the_host_to_refuse() -> None:
    strange: list[AnyMessage] = [Ack(CALL, None), Refused(CALL, Reason.STORAGE, "says a client")]
    assert admit(Admission(Everybody(), lambda _: True), Role.READ, strange, HOSTED) == (
        strange,
        [],
    )
