"""The client's side: the member asked, and the meaning of failures.

The host's side: answers to requests for unserved domains.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ares.cluster.home import prepare
from ares.consensus.local import LocalConsensus
from ares.consensus.member_host import UNDER_WAY_OF_CLIENT_MAX, ConsensusHost
from ares.consensus.raft.member import RaftMember
from ares.consensus.remote import RemoteConsensus
from ares.model.configuration import Configuration
from ares.model.errors import ConsensusUnavailable, NotAuthorized
from ares.model.identity import CallId, ClientId, DomainName, ServerId
from ares.model.messages import (
    AnyMessage,
    Decided,
    Describe,
    GetHint,
    Propose,
    Reason,
    Refused,
    Undecided,
)
from ares.net.port import Sender
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork

from ..ports import free_addresses
from .clusters import MEMBERS, PASSWORD, PATIENCE_S, configuration

ME = ClientId(1)
R0, R1, R2 = MEMBERS


class Service:
    """Three hosts over the same local table, so that every member decides alike."""

    def __init__(self) -> None:
        self.network = InprocNetwork()
        self.consensus = LocalConsensus()
        self.asked: list[ServerId] = []

    async def start(self) -> None:
        for member in MEMBERS:
            await ConsensusHost(self.consensus, RecordingListener(self, member)).start()

    def client(self) -> RemoteConsensus:
        return RemoteConsensus(
            InprocConnections(self.network), {member: member for member in MEMBERS}
        )


class RecordingListener(InprocListener):
    """A listener with a note of each use."""

    def __init__(self, service: Service, member: ServerId) -> None:
        super().__init__(service.network, member)
        self._service = service
        self._member = member

    def take(self, origin: object, frames: Sequence[bytes]) -> None:
        self._service.asked.append(self._member)
        super().take(origin, frames)


@pytest.fixture
async def service() -> Service:
    made = Service()
    await made.start()
    return made


async def test_one_member_is_asked_at_a_time(service: Service) -> None:
    client = service.client()
    for index in range(5):
        await client.propose(configuration(index), ME, PATIENCE_S)
    assert service.asked == [R0] * 5


async def test_a_silent_member_is_passed_over_and_the_one_that_answered_is_asked_first(
    service: Service,
) -> None:
    client = service.client()
    service.network.stop(R0)
    for index in range(3):
        await client.propose(configuration(index), ME, PATIENCE_S)
    assert service.asked == [R1] * 3


async def test_replies_meet_their_calls(service: Service) -> None:
    client = service.client()
    decided = await asyncio.gather(
        *(client.propose(configuration(index), ME, PATIENCE_S) for index in range(200))
    )
    assert [each.configuration.index for each in decided] == list(range(200))


async def test_a_failure_names_every_member_and_its_last_words(service: Service) -> None:
    client = service.client()
    service.network.stop(R0)
    refusing = InprocListener(service.network, "elsewhere")
    await refusing.serve(
        lambda _, messages: [Undecided(message.call, "no leader") for message in messages]
    )
    client = RemoteConsensus(InprocConnections(service.network), {R0: R0, R1: "elsewhere"})
    with pytest.raises(ConsensusUnavailable, match=r"r0 \(no answer\), r1 \(no leader\)") as caught:
        await client.propose(configuration(0), ME, 1.5)
    assert caught.value.may_have_taken_effect


def denying(call: int | None) -> Callable[[Sender, Sequence[AnyMessage]], list[AnyMessage]]:
    """Return a handler that denies access over a connection (`None`) or in the handshake (0)."""
    return lambda _, messages: [
        Refused(CallId(message.call if call is None else call), Reason.NOT_AUTHORIZED, "no")
        for message in messages
    ]


@pytest.mark.parametrize(
    ("call", "uncertain"), [(None, False), (0, True)], ids=["over a connection", "in the handshake"]
)
async def test_what_all_members_deny_is_known_to_have_changed_nothing_if_they_said_so_to_it(
    service: Service, call: int | None, uncertain: bool
) -> None:
    """A refusal in a handshake has no proof.

    An earlier connection may have passed the proposal on.
    """
    for place in ("a", "b"):
        await InprocListener(service.network, place).serve(denying(call))
    client = RemoteConsensus(InprocConnections(service.network), {R0: "a", R1: "b"})
    with pytest.raises(NotAuthorized, match=r"r[01]: no") as caught:
        await client.propose(configuration(0), ME, PATIENCE_S)
    assert caught.value.may_have_taken_effect is uncertain


async def test_one_member_that_denies_in_the_handshake_keeps_no_other_from_deciding(
    service: Service,
) -> None:
    await InprocListener(service.network, "elsewhere").serve(denying(0))
    client = RemoteConsensus(InprocConnections(service.network), {R0: "elsewhere", R1: R1})
    assert (await client.propose(configuration(0), ME, PATIENCE_S)).configuration == configuration(
        0
    )


async def test_a_failure_tells_why_a_member_could_not_be_reached(service: Service) -> None:
    service.network.stop(R0)
    connections = InprocConnections(service.network)
    client = RemoteConsensus(connections, {R0: R0})
    connections.troubles[R0] = "connection refused"
    assert client.troubles == {R0: "connection refused"}
    with pytest.raises(ConsensusUnavailable, match=r"r0 \(connection refused\)"):
        await client.hint(DomainName("default"), 0.1)


async def test_a_deadline_that_passes_early_names_the_members_not_asked(service: Service) -> None:
    for member in MEMBERS:
        service.network.stop(member)
    with pytest.raises(
        ConsensusUnavailable, match=r"r0 \(no answer\), r1 \(not asked\), r2 \(not asked\)"
    ):
        await service.client().hint(DomainName("default"), 0.2)


async def test_a_cluster_without_consensus_members_says_so() -> None:
    client = RemoteConsensus(InprocConnections(InprocNetwork()), {})
    placed = configuration(0)
    for attempt in (
        client.propose(placed, ME, 1.0),
        client.tell_finalized(placed, 1.0),
        client.hint(placed.domain, 1.0),
    ):
        with pytest.raises(ConsensusUnavailable, match="names no consensus members") as caught:
            await attempt
        assert not caught.value.may_have_taken_effect
    assert await client.describe(1.0) == []


async def test_describe_gathers_those_that_answer(service: Service) -> None:
    service.network.stop(R1)
    assert len(await service.client().describe(0.3)) == 2


async def ask(network: InprocNetwork, member: ServerId, message: AnyMessage) -> AnyMessage:
    connections = InprocConnections(network)
    answer: asyncio.Future[AnyMessage] = asyncio.get_running_loop().create_future()
    connections.open(lambda _, messages: answer.set_result(messages[0]))
    connections.learn(member, member)
    connections.post(member, [message])
    return await asyncio.wait_for(answer, PATIENCE_S)


async def test_a_member_refuses_what_is_for_storage_servers(service: Service) -> None:
    reply = await ask(service.network, R0, Describe(CallId(7)))
    assert isinstance(reply, Refused)
    assert (reply.call, reply.reason) == (7, Reason.BAD_REQUEST)


async def test_a_member_refuses_an_unplaced_proposal_itself(service: Service) -> None:
    reply = await ask(
        service.network, R0, Propose(CallId(8), Configuration.abd(["s0", "s1", "s2"]), ME)
    )
    assert isinstance(reply, Undecided)
    assert reply.call == 8
    assert "no place" in reply.why


async def test_a_member_that_cannot_decide_says_why(tmp_path: Path) -> None:
    prepare(tmp_path)
    alone = RaftMember(R0, dict(zip(MEMBERS, free_addresses(3), strict=True)), tmp_path, PASSWORD)
    alone.start()
    network = InprocNetwork()
    host = ConsensusHost(alone, InprocListener(network, R0))
    await host.start()
    try:
        reply = await ask(network, R0, Propose(CallId(9), configuration(0), ME))
    finally:
        await host.close()
        await alone.close()
    assert isinstance(reply, Undecided)
    assert "no leader is elected" in reply.why


async def test_no_client_alone_keeps_a_member_busy() -> None:
    class Endless(LocalConsensus):
        async def hint(self, domain: DomainName, timeout_s: float) -> None:
            await asyncio.sleep(3600)

    network = InprocNetwork()
    host = ConsensusHost(Endless(), InprocListener(network, R0))
    await host.start()
    many: list[AnyMessage] = [
        GetHint(CallId(call), DomainName("d")) for call in range(UNDER_WAY_OF_CLIENT_MAX + 3)
    ]
    replies: dict[str, list[AnyMessage]] = {}
    for who, asked in (("greedy", many), ("modest", [Propose(CallId(1), configuration(1), ME)])):
        connections, replies[who] = InprocConnections(network), []
        connections.open(lambda _, messages, who=who: replies[who].extend(messages))
        connections.learn(R0, R0)
        connections.post(R0, asked)
        for _ in range(10):
            await asyncio.sleep(0)
    assert [(type(reply), reply.call) for reply in replies["greedy"]] == [
        (Undecided, UNDER_WAY_OF_CLIENT_MAX + more) for more in range(3)
    ]
    assert [type(reply) for reply in replies["modest"]] == [Decided]
    await host.close()
