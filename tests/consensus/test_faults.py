"""Members as processes: killed in the middle, restarted, too few of them."""

import asyncio

import pytest

from ares.consensus.remote import RemoteConsensus
from ares.model.errors import ConsensusUnavailable
from ares.model.identity import ClientId, DomainName
from ares.model.messages import Decided

from .clusters import MEMBERS, PATIENCE_S, MemberProcesses, configuration, until

pytestmark = pytest.mark.process

ALICE, BOB, CAROL = ClientId(1), ClientId(2), ClientId(3)
R0, R1, R2 = MEMBERS
STREAM = 150


async def propose(client: RemoteConsensus, proposer: ClientId, index: int) -> Decided:
    return await client.propose(
        configuration(index, servers=f"s0 s1 t{proposer}"), proposer, PATIENCE_S
    )


async def decide(client: RemoteConsensus, indices: range) -> list[Decided]:
    return [await propose(client, ALICE, index) for index in indices]


async def check(client: RemoteConsensus, decided: list[Decided]) -> None:
    """Check that another proposer gets the decisions."""
    again = await asyncio.gather(
        *(propose(client, CAROL, each.configuration.index) for each in decided)
    )
    assert [(each.configuration, each.proposer) for each in again] == [
        (each.configuration, each.proposer) for each in decided
    ]


@pytest.mark.slow
async def test_a_leader_killed_in_a_stream_of_proposals(processes: MemberProcesses) -> None:
    processes.start(*MEMBERS)
    rivals = {ALICE: processes.client(R0, R1, R2), BOB: processes.client(R2, R1, R0)}
    decided: dict[ClientId, list[Decided]] = {ALICE: [], BOB: []}

    async def stream(proposer: ClientId) -> None:
        for index in range(STREAM):
            decided[proposer].append(await propose(rivals[proposer], proposer, index))

    leader = await processes.leader(rivals[ALICE])
    async with asyncio.TaskGroup() as streams:
        for proposer in rivals:
            streams.create_task(stream(proposer))
        await until(lambda: len(decided[ALICE]) >= 30)
        assert len(decided[ALICE]) < STREAM
        processes.kill(leader)
    assert [(each.configuration, each.proposer) for each in decided[ALICE]] == [
        (each.configuration, each.proposer) for each in decided[BOB]
    ]
    assert {each.proposer for each in decided[ALICE]} <= {ALICE, BOB}
    await check(rivals[ALICE], decided[ALICE])
    processes.start(leader)
    await check(processes.client(leader), decided[ALICE])


async def test_a_restarted_member_completes_a_majority_from_its_journal(
    processes: MemberProcesses,
) -> None:
    processes.start(*MEMBERS)
    client = processes.client()
    decided = await decide(client, range(20))
    processes.kill(R1)
    decided += await decide(client, range(20, 40))
    processes.start(R1)
    await processes.described(
        client, lambda all_: {each.member: each.decisions for each in all_}.get(R1) == 40
    )
    processes.kill(R0)
    await check(processes.client(R1, R2), decided)


async def test_all_members_killed_and_restarted_keep_everything(processes: MemberProcesses) -> None:
    processes.start(*MEMBERS)
    client = processes.client()
    decided = await decide(client, range(30))
    await client.tell_finalized(decided[-1].configuration, PATIENCE_S)
    terms = [each.term for each in await client.describe(PATIENCE_S)]
    processes.kill_all()
    processes.start(*MEMBERS)
    await check(client, decided)
    assert await client.hint(DomainName("default"), PATIENCE_S) == decided[-1].configuration
    await processes.leader(client)  # every member has heard of the new term
    # a vote was not forgotten
    assert min(each.term for each in await client.describe(PATIENCE_S)) > max(terms)


async def test_without_a_majority_it_is_unavailable_and_then_goes_on(
    processes: MemberProcesses,
) -> None:
    processes.start(*MEMBERS)
    client = processes.client()
    decided = await decide(client, range(5))
    processes.kill(R0, R1)
    with pytest.raises(ConsensusUnavailable, match=r"r0 .*r1 .*r2 .*Reads and writes go on"):
        await client.propose(configuration(5), BOB, 6.0)
    processes.start(R1)
    await check(client, decided)
    await propose(client, BOB, 6)


async def test_a_member_describes_itself_and_ends_cleanly(processes: MemberProcesses) -> None:
    processes.start(*MEMBERS)
    client = processes.client()
    await decide(client, range(3))
    leader = await processes.leader(client)
    for each in await client.describe(PATIENCE_S):
        assert (each.leader, each.members_total) == (leader, 3)
    processes.kill(leader)
    left = await processes.described(
        client, lambda all_: len(all_) == 2 and {each.members_reachable for each in all_} == {2}
    )
    assert leader not in {each.member for each in left}
    assert processes.stop(left[0].member) == 0
