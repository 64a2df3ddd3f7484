"""A consensus member; SIGTERM ends it.

Arguments: ``ID CLIENT_ADDRESS RAFT_ADDRESSES_JSON DIRECTORY PASSWORD``.
"""

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from ares.cluster.tables import BEAT_S_DEFAULT
from ares.consensus.member_host import MemberParts, run_consensus_member
from ares.consensus.raft.member import RaftMember
from ares.model.identity import ServerId
from ares.net.libzmq import ZmqListener


async def main(
    member: str, address: str, raft_addresses: str, directory: str, password: str
) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    raft = RaftMember(
        ServerId(member), json.loads(raft_addresses), Path(directory), password, BEAT_S_DEFAULT
    )
    await run_consensus_member(raft, MemberParts(ZmqListener(address), stop))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main(*sys.argv[1:]))
