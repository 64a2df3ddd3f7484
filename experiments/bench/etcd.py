"""etcd: five members, every write synced by a majority before it is acknowledged, reads linearizable (its defaults)."""

import contextlib
import importlib.util
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from experiments.bench.peers import Durability, N, Running
from experiments.bench.processes import await_that, free_ports, installed, programs
from experiments.bench.stores import EtcdStore

START_S = 30.0
REQUEST_BYTES_MAX = 1_572_864
"""etcd's own default. Its documentation advises against more."""

_QUOTA_BYTES = 8 * 1024**3


class Etcd(Struct, frozen=True):
    """Clients talk to the leader, which spares them a hop; when it is gone, to the others in turn."""

    name: str = "etcd"
    durability: Durability = "fsync"
    note: str = "clients are gRPC's C core under asyncio, and talk to the leader"
    value_bytes_max: int | None = REQUEST_BYTES_MAX - 4096
    fails_over: bool = True
    warm_up_s: float = 0.0
    n: int = N

    def missing(self) -> str | None:
        """Debian's package starts a service of its own on port 2379, which the bench neither needs nor touches."""
        if importlib.util.find_spec("aetcd") is None:
            return "etcd needs a Python client: pip install 'ares-storage[bench]'"
        return None if installed("etcd") else "etcd is not installed: sudo apt-get install etcd-server"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        """Serves when every member knows the same leader."""
        ports = free_ports(2 * self.n)
        clients, peers = ports[: self.n], ports[self.n :]
        cluster = ",".join(f"m{number}=http://127.0.0.1:{port}" for number, port in enumerate(peers))
        commands = {f"m{number}": _command(directory, number, clients[number], peers[number], cluster) for number in range(self.n)}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD")}
        with programs(directory, commands, environment) as servers:
            await_that(lambda: _leader(clients) is not None, "that etcd has a leader", START_S, directory / "m0.log")
            leader = _leader(clients)
            assert leader is not None
            order = [leader, *(number for number in range(self.n) if number != leader)]
            endpoints = tuple(f"127.0.0.1:{clients[number]}" for number in order)
            yield Running(EtcdStore(endpoints), servers, replica=f"m{order[-1]}", leader=f"m{leader}")


def _command(directory: Path, number: int, client: int, peer: int, cluster: str) -> list[str]:
    options = {
        "name": f"m{number}",
        "data-dir": directory / f"m{number}",
        "listen-client-urls": f"http://127.0.0.1:{client}",
        "advertise-client-urls": f"http://127.0.0.1:{client}",
        "listen-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
        "initial-cluster": cluster,
        "initial-cluster-token": directory.name,
        "quota-backend-bytes": _QUOTA_BYTES,
        "max-request-bytes": REQUEST_BYTES_MAX,
    }
    return ["etcd", *(f"--{key}={value}" for key, value in options.items())]


def _leader(ports: list[int]) -> int | None:
    """The number of the member that all call their leader; None if they do not agree or do not answer."""
    told = [_status(port) for port in ports]
    leaders = {status.get("leader") for status in told}
    if len(leaders) != 1 or leaders <= {None, "0"}:
        return None
    (leader,) = leaders
    return [status["header"]["member_id"] for status in told].index(leader)


def _status(port: int) -> dict[str, Any]:
    """What a member says of itself, by its JSON gateway; nothing while it does not answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/maintenance/status", data=b"{}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=1.0) as answer:
            status: dict[str, Any] = json.load(answer)
            return status
    except (OSError, urllib.error.URLError):
        return {}
