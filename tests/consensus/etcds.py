"""etcd for tests: Debian's etcd-server, a process for each member, on loopback.

Members can be killed and started again.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from aetcd import rpc

from ares.cluster.tables import EtcdSettings
from ares.consensus.etcd import EtcdConsensus
from ares.model.messages import ConsensusDescription

from ..ports import free_addresses
from .clusters import PATIENCE_S

CLUSTER = bytes(range(16))
"""Id of the ares cluster of the decisions in these tests."""


def etcd_program() -> str:
    """Return the path of etcd; without etcd the test is skipped."""
    path = shutil.which("etcd")
    if path is None:
        pytest.skip("etcd is not installed: apt-get install etcd-server")
    return path


class EtcdProcesses:
    """The members of an etcd cluster.

    ``options`` are added to every command line, after ``--name`` and the addresses.
    """

    def __init__(
        self, directory: Path, count: int = 1, scheme: str = "http", options: tuple[str, ...] = ()
    ) -> None:
        addresses = free_addresses(2 * count)
        self._program = etcd_program()
        self._directory = directory
        self._scheme = scheme
        self._options = options
        self._peers = addresses[count:]
        self._token = secrets.token_hex(4)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: list[EtcdConsensus] = []
        self.endpoints = tuple(addresses[:count])

    def start(self, *endpoints: str) -> None:
        """Start the members that serve at ``endpoints``, or all."""
        for endpoint in endpoints or self.endpoints:
            number = self.endpoints.index(endpoint)
            client, peer = f"{self._scheme}://{endpoint}", f"http://{self._peers[number]}"
            arguments = {
                "name": f"m{number}",
                "data-dir": str(self._directory / f"m{number}"),
                "listen-client-urls": client,
                "advertise-client-urls": client,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": ",".join(
                    f"m{index}=http://{address}" for index, address in enumerate(self._peers)
                ),
                "initial-cluster-token": self._token,
                "heartbeat-interval": "50",
                "election-timeout": "500",
            }
            words = [
                self._program,
                *(f"--{key}={value}" for key, value in arguments.items()),
                *self._options,
            ]
            environment = {
                key: value for key, value in os.environ.items() if not key.startswith("ETCD")
            }
            with (self._directory / f"m{number}.log").open("ab") as log:
                self._processes[endpoint] = subprocess.Popen(
                    words, stdout=log, stderr=log, env=environment
                )

    def kill(self, *endpoints: str) -> None:
        """Kill members with SIGKILL, all without arguments."""
        named = endpoints or tuple(self._processes)
        for endpoint in named:
            self._processes[endpoint].send_signal(signal.SIGKILL)
        for endpoint in named:
            self._processes.pop(endpoint).wait()

    def settings(self, *endpoints: str, **others: object) -> EtcdSettings:
        return EtcdSettings(
            endpoints or self.endpoints, file=self._directory / "cluster.toml", **others
        )  # type: ignore[arg-type]

    def client(self, *endpoints: str, cluster: bytes = CLUSTER, **others: object) -> EtcdConsensus:
        client = EtcdConsensus(self.settings(*endpoints, **others), cluster)
        self._clients.append(client)
        return client

    async def described(
        self, client: EtcdConsensus, condition: Callable[[list[ConsensusDescription]], bool]
    ) -> list[ConsensusDescription]:
        """Return the members' descriptions, as soon as ``condition`` holds for them."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                descriptions = await client.describe(1.0)
                if condition(descriptions):
                    return descriptions
                await asyncio.sleep(0.05)

    async def leader(self, client: EtcdConsensus) -> str:
        """Return the endpoint of the member that all running members call leader."""

        def agreed(descriptions: list[ConsensusDescription]) -> bool:
            return (
                len(descriptions) == len(self._processes)
                and len({each.leader for each in descriptions} - {""}) == 1
            )

        return (await self.described(client, agreed))[0].leader

    async def raw(self, endpoint: str, method: str, request: object) -> object:
        """Send a request as another user of this etcd; "KV.Put" is a method."""
        service, _, name = method.partition(".")
        channel = rpc.insecure_channel(endpoint, options=(("grpc.enable_http_proxy", 0),))
        try:
            return await getattr(getattr(rpc, f"{service}Stub")(channel), name)(
                request, wait_for_ready=True, timeout=PATIENCE_S
            )
        finally:
            await channel.close()

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        self.kill()
