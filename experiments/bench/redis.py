"""Redis: one primary and four replicas. Replication is asynchronous; with WAIT a write counts once two replicas have it, with the primary a majority.

Reads are the primary's. Without WAIT nothing is promised when the primary is lost. With WAIT neither: nobody takes over unless an operator or a
Sentinel says so, and the one that does need not have the last writes. It is the floor of what replication costs, not a register.
"""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from experiments.bench.peers import Durability, N, Running
from experiments.bench.processes import await_that, free_ports, installed, programs
from experiments.bench.stores import RedisStore

START_S = 15.0
_AOF_NOTE = "the primary's fsync comes before the answer; replicas acknowledge to WAIT what they have in memory (WAITAOF came with Redis 7.2)"


class Redis(Struct, frozen=True):
    """``wait``: replicas that a write waits for; ``durability`` "fsync": an append-only file, synced before every answer, on all of them."""

    name: str
    wait: int = 0
    durability: Durability = "memory"
    note: str = ""
    value_bytes_max: int | None = None
    fails_over: bool = False
    warm_up_s: float = 0.0
    n: int = N

    def missing(self) -> str | None:
        """Debian's package starts a service of its own on port 6379, which the bench neither needs nor touches."""
        return None if installed("redis-server") else "redis-server is not installed: sudo apt-get install redis-server"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        """Serves when all replicas have finished their first synchronisation."""
        ports = free_ports(self.n)
        commands = {}
        for number, port in enumerate(ports):
            (directory / f"r{number}").mkdir()
            commands[f"r{number}"] = self._command(port, directory / f"r{number}", None if number == 0 else ports[0])
        with programs(directory, commands) as servers:
            ready = f"connected_slaves:{self.n - 1}"

            def synchronised() -> bool:
                told = _info(ports[0])
                return ready in told and told.count("state=online") == self.n - 1

            await_that(synchronised, "that all replicas of Redis follow", START_S, directory / "r0.log")
            yield Running(RedisStore(f"127.0.0.1:{ports[0]}", self.wait), servers, replica="r2", leader="r0")

    def _command(self, port: int, directory: Path, primary: int | None) -> list[str]:
        options = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": directory,
            "save": "",
            "appendonly": "yes" if self.durability == "fsync" else "no",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "repl-diskless-sync": "yes",
            "repl-diskless-sync-delay": 0,
            "repl-backlog-size": "64mb",
            "client-output-buffer-limit": "replica 0 0 0",
            "daemonize": "no",
        }
        words = ["redis-server"]
        for key, value in options.items():
            words += [f"--{key}", str(value)]
        return words if primary is None else [*words, "--replicaof", "127.0.0.1", str(primary)]


REDIS: tuple[Redis, ...] = (
    Redis("redis", note="asynchronous: an acknowledged write is lost with the primary"),
    Redis("redis-wait", wait=2),
    Redis("redis-aof", durability="fsync", note="asynchronous: an acknowledged write is lost with the primary's disk"),
    Redis("redis-wait-aof", wait=2, durability="fsync", note=_AOF_NOTE),
)


def _info(port: int) -> str:
    """What the server says of its replication; nothing while it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(b"INFO replication\r\n")
            return connection.recv(65536).decode(errors="replace")
    except OSError:
        return ""
