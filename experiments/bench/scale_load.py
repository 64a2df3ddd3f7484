"""Growth of the cost of an operation: clients of an object, keys, servers and size of values.

Loads come from the bench's generators.
"""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ares.client.connect import connect
from ares.platform.loop import run
from experiments.bench.growth_sample import MIB, GrowthSample, load_figures, resident_mib
from experiments.bench.load import Generators, LoadExtent, MeasuredWorkload, generators
from experiments.bench.peers import Ares, RunningStore
from experiments.bench.store_clients import AresStore, Store
from experiments.bench.store_processes import cpu_of, resident_bytes
from experiments.bench.workload import Workload
from experiments.measuring import Repeats

SCALE_REPEATS = Repeats(rounds=1, seconds=2.0, warm_s=1.0)
LOADED_IDLE_S = 3.0
SLOWEST_MIB_S = 16.0
"""Smallest rate for which a large value gets enough time."""

# Readers and writers.
_READERS_AND_WRITERS = ((1, 1), (10, 4), (40, 10))  # readers and writers
_CLIENTS_FULL = (*_READERS_AND_WRITERS, (100, 20), (250, 20))
_KEYS = (1_000, 10_000, 50_000)
_KEYS_FULL = (1_000, 10_000, 100_000, 1_000_000)
_SERVERS = (3, 5, 9, 15)
_SERVERS_FULL = (3, 5, 7, 9, 11, 13, 15)
_SIZES = (10, 1024, 64 * 1024, MIB, 16 * MIB)
_SIZES_FULL = (*_SIZES, 64 * MIB, 256 * MIB)


class _Load(NamedTuple):
    """A store under the load of generators, for consecutive workloads."""

    running: RunningStore
    processes: Generators

    def measured(
        self, workload: Workload, more_s: float = 0.0, shares: Sequence[float] | None = None
    ) -> MeasuredWorkload:
        """Write the initial values, and run the workload, ``more_s`` longer than usual."""
        store, servers = self.running.store, self.running.servers
        self.processes.preload_once(store, workload)
        extent = LoadExtent(SCALE_REPEATS.warm_s, SCALE_REPEATS.seconds + more_s)
        return self.processes.run(store, workload, extent, servers, shares=shares)


@contextlib.contextmanager
def _loaded(peer: Ares, count: int = 2) -> Iterator[_Load]:
    """Start a store, and ``count`` generators."""
    with (
        tempfile.TemporaryDirectory() as directory,
        peer.running(Path(directory)) as running,
        generators(count) as processes,
    ):
        yield _Load(running, processes)


def clients(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more clients of the same object.

    Every client is a separate process with a separate connection, and only reads or only writes.
    """
    for dap in ("abd", "ec"):
        for readers, writers in _CLIENTS_FULL if full else _READERS_AND_WRITERS:
            count, shares = readers + writers, [1.0] * readers + [0.0] * writers
            with _loaded(Ares(dap, dap), count) as load:
                measured = load.measured(Workload(count, keys=1), SCALE_REPEATS.seconds, shares)
                pids = load.running.servers.values()
                figures = load_figures(measured) | {
                    "MiB per server": resident_mib(pids) / len(pids)
                }
            yield GrowthSample(
                "clients", dap.upper(), "clients", count, figures, list(measured.wrong)
            )


def keys(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more keys in a cluster, and an idle time at the end."""
    with _loaded(Ares("abd")) as load:
        pids = list(load.running.servers.values())
        empty_bytes = sum(map(resident_bytes, pids))
        for count in _KEYS_FULL if full else _KEYS:
            workload = Workload(100, keys=count)
            began_s, begun = time.perf_counter(), sum(cpu_of(pids).values())
            load.processes.preload_once(load.running.store, workload)
            filled_s, filled = time.perf_counter() - began_s, sum(cpu_of(pids).values()) - begun
            measured = load.measured(workload)
            idle_from = sum(cpu_of(pids).values())
            time.sleep(LOADED_IDLE_S)
            idle_s = sum(cpu_of(pids).values()) - idle_from
            grown_bytes = sum(map(resident_bytes, pids)) - empty_bytes
            figures = load_figures(measured) | {
                "us to write first": filled_s / count * 1e6,
                "us server CPU to write first": filled / count * 1e6,
                "bytes per key and server": grown_bytes / count / len(pids),
                "idle CPU of a server, %": idle_s / LOADED_IDLE_S / len(pids) * 100,
            }
            yield GrowthSample("keys", "ABD n=5", "keys", count, figures, list(measured.wrong))


def servers(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more servers; with EC each has a smaller part."""
    for dap in ("abd", "ec"):
        for n in _SERVERS_FULL if full else _SERVERS:
            with _loaded(Ares(dap, dap, n=n, k=(n - 1) // 2)) as load:
                measured = load.measured(Workload(32))
            label = "ABD" if dap == "abd" else "EC k=(n-1)/2"
            yield GrowthSample(
                "servers", label, "servers", n, load_figures(measured), list(measured.wrong)
            )


def values(full: bool) -> Iterator[GrowthSample]:
    """Measure sizes of values with a client that has a single operation at a time.

    Each large value has its own key. With EC a server keeps several versions.
    """
    for label, peer in (("ABD n=3", Ares("abd", n=3)), ("EC n=5 k=3", Ares("ec", "ec"))):
        for size in _SIZES_FULL if full else _SIZES:
            with _loaded(peer, 1) as load:
                workload = Workload(1, size, keys=100 if size < MIB else 1)
                measured = load.measured(workload, 8 * size / MIB / SLOWEST_MIB_S)
                figures = load_figures(measured) | {
                    "MiB/s": measured.per_s * size / MIB,
                    "MiB of all servers": resident_mib(load.running.servers.values()),
                    "MiB of the client": load.processes.peak_mib(),
                    "MiB that they store": run(_stored_bytes(load.running.store)) / MIB,
                }
            yield GrowthSample("values", label, "bytes", size, figures, list(measured.wrong))


async def _stored_bytes(store: Store) -> int:
    """Return the stored bytes that the servers report."""
    assert isinstance(store, AresStore)
    async with connect(store.file) as manager:
        described = (await manager.status()).servers.values()
    return sum(
        hosted.bytes for server in described if server is not None for hosted in server.hosted
    )
