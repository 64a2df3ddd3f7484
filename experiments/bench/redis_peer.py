"""Redis: a primary and four replicas with asynchronous replication, optionally with WAIT.

With WAIT a write counts once two replicas have it, with the primary a majority. Reads go to the
primary. Neither variant promises safety after loss of the primary. Failover needs an operator or a
Sentinel, and the new primary may lack the last writes. Redis is the lower bound of the cost of
replication, not a register.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.bench.ansible_roles import described, lacking, started
from experiments.bench.peers import Peer, RunningStore
from experiments.bench.store_clients import RedisStore
from experiments.bench.store_processes import free_ports

REDIS_START_S = 15.0
_AOF_NOTE = (
    "the primary's fsync comes before the answer; replicas acknowledge to WAIT data that is in "
    "their memory (WAITAOF came with Redis 7.2)"
)


class Redis(Peer, frozen=True):
    """A primary with replicas.

    ``wait`` is the number of replicas that a write waits for. ``durability`` "fsync" is an
    append-only file, synced before every answer, on all servers.
    """

    fails_over: bool = False
    wait: int = 0

    def missing(self) -> str | None:
        """Say how to install Redis.

        Debian's package starts a service on port 6379, which the bench neither needs nor touches.
        """
        return lacking("redis", self._given(Path(), 0, 0, ["here"]))

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[RunningStore]:
        """Start the servers, and yield once all replicas have finished the first synchronising."""
        ports = free_ports(self.n)
        names = [f"r{number}" for number in range(self.n)]
        hosts = {
            name: described("redis", name, self._given(directory / name, port, ports[0], names))
            for name, port in zip(names, ports, strict=True)
        }
        with started(directory, hosts, REDIS_START_S) as servers:
            yield RunningStore(RedisStore(f"127.0.0.1:{ports[0]}", self.wait), servers)

    def _given(self, directory: Path, port: int, primary: int, names: list[str]) -> dict[str, Any]:
        return {
            "address": "127.0.0.1",
            "port": port,
            "hosts": names,
            "primary_address": "127.0.0.1",
            "primary_port": primary,
            "user": "",
            "directory": str(directory),
            "durability": self.durability,
        }


REDIS: tuple[Redis, ...] = (
    Redis("redis", note="asynchronous: an acknowledged write is lost with the primary"),
    Redis("redis-wait", wait=2),
    Redis(
        "redis-aof",
        durability="fsync",
        note="asynchronous: an acknowledged write is lost with the primary's disk",
    ),
    Redis("redis-wait-aof", wait=2, durability="fsync", note=_AOF_NOTE),
)
