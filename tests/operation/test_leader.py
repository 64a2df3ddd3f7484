"""A member without the others, which knows no leader, whatever it knew before.

/health of a member relies on this.
"""

import asyncio

from tests.consensus.clusters import MEMBERS, PATIENCE_S, LocalMembers


async def leader_of(members: LocalMembers, member: str, wanted) -> str:
    """Return the leader in the member's view, once it is as wanted."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            [description] = await members.running[member].describe(1.0)
            if wanted(description):
                return description.leader
            await asyncio.sleep(0.01)


async def test_a_follower_alone_knows_no_leader(tmp_path):
    members = LocalMembers(tmp_path)
    await members.start_all()
    try:
        leader = await leader_of(members, MEMBERS[0], lambda said: said.leader)
        last = next(member for member in MEMBERS if member != leader)
        await leader_of(members, last, lambda said: said.leader)
        for member in MEMBERS:
            if member != last:
                await members.stop(member)
        assert await leader_of(members, last, lambda said: said.members_reachable == 1) == ""
    finally:
        await members.stop_all()
