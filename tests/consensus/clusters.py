"""Consensus members for tests: three in this process, or each a separate process to kill."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from ares.cluster.home import prepare
from ares.cluster.tables import BEAT_S_DEFAULT
from ares.consensus.member_host import ConsensusHost
from ares.consensus.raft.member import RaftMember
from ares.consensus.remote import RemoteConsensus
from ares.model.configuration import Configuration
from ares.model.identity import DomainName, ServerId
from ares.model.messages import ConsensusDescription
from ares.net.libzmq import ZmqConnections
from ares.platform.interpreter import python
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork

from ..ports import free_addresses

MEMBERS = [ServerId("r0"), ServerId("r1"), ServerId("r2")]
PASSWORD = "a password for tests"
PATIENCE_S = 240.0
"""Seconds far beyond any time in these tests, also on a busy machine with a slow disk."""


def configuration(index: int, domain: str = "default", servers: str = "s0 s1 s2") -> Configuration:
    return Configuration.abd(servers.split()).at(DomainName(domain), index)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (state of another thread)
            await asyncio.sleep(0.001)


class LocalMembers:
    """Raft members in this process, each served over the in-process transport."""

    def __init__(self, directory: Path, count: int = 3, beat_s: float = BEAT_S_DEFAULT) -> None:
        self.beat_s = beat_s
        self.raft_addresses = dict(zip(MEMBERS, free_addresses(count), strict=False))
        self.running: dict[ServerId, RaftMember] = {}
        self._hosts: dict[ServerId, ConsensusHost] = {}
        self._network = InprocNetwork()
        self._directory = directory
        for member in self.raft_addresses:
            prepare(self.directory(member))

    def directory(self, member: ServerId) -> Path:
        return self._directory / member

    def make(self, member: ServerId) -> RaftMember:
        return RaftMember(
            member, self.raft_addresses, self.directory(member), PASSWORD, self.beat_s
        )

    async def start(self, member: ServerId) -> RaftMember:
        raft = self.make(member)
        raft.start()
        self.running[member] = raft
        self._hosts[member] = ConsensusHost(raft, InprocListener(self._network, member))
        await self._hosts[member].start()
        return raft

    async def start_all(self) -> None:
        for member in self.raft_addresses:
            await self.start(member)

    async def stop(self, member: ServerId) -> None:
        await self._hosts.pop(member).close()
        await self.running.pop(member).close()

    async def stop_all(self) -> None:
        for member in list(self.running):
            await self.stop(member)

    def client(self) -> RemoteConsensus:
        return RemoteConsensus(
            InprocConnections(self._network), {member: member for member in self.raft_addresses}
        )


class MemberProcesses:
    """Members as processes (member_process.py), reached over ZeroMQ on loopback."""

    def __init__(self, directory: Path) -> None:
        addresses = free_addresses(2 * len(MEMBERS))
        self._addresses = dict(zip(MEMBERS, addresses, strict=False))
        self._raft_addresses = dict(zip(MEMBERS, addresses[len(MEMBERS) :], strict=True))
        self._directory = directory
        for member in MEMBERS:
            prepare(directory / member)
        self._processes: dict[ServerId, subprocess.Popen[bytes]] = {}
        self._clients: list[RemoteConsensus] = []

    def start(self, *members: ServerId) -> None:
        for member in members:
            script = Path(__file__).with_name("member_process.py")
            arguments = [
                member,
                self._addresses[member],
                json.dumps(self._raft_addresses),
                str(self._directory / member),
                PASSWORD,
            ]
            with (self._directory / f"{member}.log").open("ab") as log:
                self._processes[member] = subprocess.Popen(
                    python(str(script), *arguments), stdout=log, stderr=log
                )

    def kill(self, *members: ServerId) -> None:
        """Kill the members with SIGKILL."""
        for member in members:
            self._processes[member].send_signal(signal.SIGKILL)
        for member in members:
            self._processes.pop(member).wait()

    def stop(self, member: ServerId) -> int:
        """Send SIGTERM; return the exit status."""
        process = self._processes.pop(member)
        process.terminate()
        return process.wait(PATIENCE_S)

    def kill_all(self) -> None:
        self.kill(*self._processes)

    async def close(self) -> None:
        self.kill_all()
        for client in self._clients:
            await client.close()

    def client(self, *members: ServerId) -> RemoteConsensus:
        client = RemoteConsensus(
            ZmqConnections(), {member: self._addresses[member] for member in members or MEMBERS}
        )
        self._clients.append(client)
        return client

    async def described(
        self, client: RemoteConsensus, condition: Callable[[list[ConsensusDescription]], bool]
    ) -> list[ConsensusDescription]:
        """Return the members' descriptions, as soon as ``condition`` holds for them."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                descriptions = await client.describe(0.5)
                if condition(descriptions):
                    return descriptions
                await asyncio.sleep(0.05)

    async def leader(self, client: RemoteConsensus) -> ServerId:
        """Return the running member that all running members call leader."""

        def agreed(descriptions: list[ConsensusDescription]) -> bool:
            leaders = {description.leader for description in descriptions}
            return (
                len(descriptions) == len(self._processes)
                and len(leaders) == 1
                and leaders <= set(self._processes)
            )

        return ServerId((await self.described(client, agreed))[0].leader)
