"""Cassandra: nodes with a copy of all data each; reads and writes at QUORUM.

The number of nodes is a parameter (three in the bench). Timestamps decide between writes, so
Cassandra is no atomic register.

Debian has no package of Cassandra. The jars come from Maven Central; the bench looks for them in
the directory that ARES_BENCH_CASSANDRA names, or in ~/.cache.
"""

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.bench.ansible_roles import described, lacking, started
from experiments.bench.peers import Peer, RunningStore
from experiments.bench.store_clients import CassandraStore
from experiments.bench.store_processes import free_ports

CASSANDRA_SERVERS = 3
CASSANDRA_START_S = 300.0
HEAP = "1g"
SMALL_HEAP = "512m"
"""The role's own heap, for rounds with as many nodes as servers."""

BESIDE_HEAP_BYTES = 480 << 20
"""Memory of a node beside the heap."""

BENCH_KEYSPACE = "bench"


def jars() -> Path:
    """Return the directory of the jars."""
    return Path(
        os.environ.get("ARES_BENCH_CASSANDRA") or Path.home() / ".cache" / "ares-bench-cassandra"
    )


class Cassandra(Peer, frozen=True):
    """A cluster of Cassandra.

    ``durability`` "memory" is Cassandra's default: the commit log is synced every ten seconds.
    """

    name: str = "cassandra"
    note: str = (
        "three nodes, QUORUM; concurrent writes are ordered by the clocks of its clients; "
        "DataStax's Python driver"
    )
    value_bytes_max: int | None = 16 * 1024 * 1024
    warm_up_s: float = 15.0
    n: int = CASSANDRA_SERVERS
    heap: str = HEAP

    def missing(self) -> str | None:
        """Check Java, jars, driver and memory."""
        why = lacking("cassandra", self._variables(Path(), [0] * 4, "", ["here"]))
        if why is not None:
            return why
        if importlib.util.find_spec("cassandra") is None:
            return "cassandra needs its Python driver: pip install 'ares-storage[bench]'"
        needed, there = self.n * (_bytes(self.heap) + BESIDE_HEAP_BYTES), _available_bytes()
        if needed <= there:
            return None
        need = f"{self.n} nodes of cassandra need {needed >> 20} MiB of memory"
        return f"{need}, and {there >> 20} are free"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[RunningStore]:
        """Start the nodes, and yield once every node serves clients and knows all nodes."""
        ports = free_ports(4 * self.n)
        names = [f"c{number}" for number in range(self.n)]
        seeds = ",".join(f"127.0.0.1:{port}" for port in ports[::4])
        hosts = {}
        for number, name in enumerate(names):
            own = ports[4 * number :][:4]
            given = self._variables(directory / name, own, seeds, names)
            hosts[name] = described("cassandra", name, given)
        with started(directory, hosts, CASSANDRA_START_S) as servers:
            from experiments.bench.cassandra_client import make_table

            nodes = tuple(("127.0.0.1", port) for port in ports[2::4])
            make_table(nodes, BENCH_KEYSPACE, self.n)
            yield RunningStore(CassandraStore(nodes, BENCH_KEYSPACE), servers)

    def _variables(
        self, directory: Path, ports: Sequence[int], seeds: str, names: list[str]
    ) -> dict[str, Any]:
        own = {"address": "127.0.0.1", "heap": self.heap, "durability": self.durability}
        return cassandra_variables(directory, ports, seeds=seeds, hosts=names, **own)


def cassandra_variables(directory: Path, ports: Sequence[int], **more: Any) -> dict[str, Any]:
    """Return the role's variables for a node.

    ``ports`` are two for nodes, one for clients, and one for JMX.
    """
    storage, _, native, jmx = ports
    return {
        "storage_port": storage,
        "native_port": native,
        "jmx_port": jmx,
        "user": "",
        "directory": str(directory),
        "jars": str(jars()),
        "durability": "memory",
    } | more


CASSANDRA: tuple[Cassandra, ...] = (
    Cassandra(),
    Cassandra(name="cassandra-fsync", durability="fsync"),
)


def _bytes(size: str) -> int:
    """Return the bytes of a size in Java's notation, with a g or an m."""
    return int(size[:-1]) << {"g": 30, "m": 20}[size[-1]]


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) * 1024
