"""Growth of the cost of an operation: clients of an object, keys, servers and size of values.

Loads come from the bench's generators.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ares.client.connect import connect
from ares.platform.loop import run
from experiments.bench.growth_sample import MIB, GrowthSample, load_figures, resident_mib
from experiments.bench.load import LoadExtent, generators
from experiments.bench.peers import Ares
from experiments.bench.store_clients import AresStore, Store
from experiments.bench.store_processes import cpu_of, resident_bytes
from experiments.bench.workload import Workload

SCALE_S, SCALE_WARM_S = 2.0, 0.5
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


def clients(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more clients of the same object.

    Every client is a separate process with a separate connection, and only reads or only writes.
    """
    for dap in ("abd", "ec"):
        for readers, writers in _CLIENTS_FULL if full else _READERS_AND_WRITERS:
            count = readers + writers
            workload = Workload(count, keys=1)
            with (
                tempfile.TemporaryDirectory() as directory,
                Ares(dap, dap).running(Path(directory)) as running,
                generators(count) as load,
            ):
                load.preload_once(running.store, workload)
                shares = [1.0] * readers + [0.0] * writers
                measured = load.run(
                    running.store,
                    workload,
                    LoadExtent(2 * SCALE_WARM_S, 2 * SCALE_S),
                    running.servers,
                    shares=shares,
                )
                memory = {
                    "MiB per server": resident_mib(running.servers.values()) / len(running.servers)
                }
            figures = load_figures(measured) | memory
            yield GrowthSample(
                "clients", dap.upper(), "clients", count, figures, list(measured.wrong)
            )


def keys(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more keys in a cluster, and an idle time at the end."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Ares("abd").running(Path(directory)) as running,
        generators(2) as load,
    ):
        pids = list(running.servers.values())
        empty_bytes = sum(map(resident_bytes, pids))
        for count in _KEYS_FULL if full else _KEYS:
            workload = Workload(100, keys=count)
            began_s, begun = time.perf_counter(), cpu_of(pids)
            load.preload_once(running.store, workload)
            filled_s, filled = time.perf_counter() - began_s, cpu_of(pids)
            measured = load.run(
                running.store, workload, LoadExtent(SCALE_WARM_S, SCALE_S), running.servers
            )
            idle_from = cpu_of(pids)
            time.sleep(LOADED_IDLE_S)
            idle_s = sum(cpu_of(pids).values()) - sum(idle_from.values())
            figures = load_figures(measured) | {
                "us to write first": filled_s / count * 1e6,
                "us server CPU to write first": (sum(filled.values()) - sum(begun.values()))
                / count
                * 1e6,
                "bytes per key and server": (sum(map(resident_bytes, pids)) - empty_bytes)
                / count
                / len(pids),
                "idle CPU of a server, %": idle_s / LOADED_IDLE_S / len(pids) * 100,
            }
            yield GrowthSample("keys", "ABD n=5", "keys", count, figures, list(measured.wrong))


def servers(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more servers; with EC each has a smaller part."""
    workload = Workload(32)
    for dap in ("abd", "ec"):
        for n in _SERVERS_FULL if full else _SERVERS:
            peer = Ares(dap, dap, n=n, k=(n - 1) // 2)
            with (
                tempfile.TemporaryDirectory() as directory,
                peer.running(Path(directory)) as running,
                generators(2) as load,
            ):
                load.preload_once(running.store, workload)
                measured = load.run(
                    running.store, workload, LoadExtent(SCALE_WARM_S, SCALE_S), running.servers
                )
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
            workload = Workload(1, size, keys=100 if size < MIB else 1)
            with (
                tempfile.TemporaryDirectory() as directory,
                peer.running(Path(directory)) as running,
                generators(1) as load,
            ):
                load.preload_once(running.store, workload)
                seconds = SCALE_S + 8 * size / MIB / SLOWEST_MIB_S
                measured = load.run(
                    running.store, workload, LoadExtent(SCALE_WARM_S, seconds), running.servers
                )
                figures = load_figures(measured) | {
                    "MiB/s": measured.per_s * size / MIB,
                    "MiB of all servers": resident_mib(running.servers.values()),
                    "MiB of the client": load.peak_mib(),
                    "MiB that they store": run(_stored_bytes(running.store)) / MIB,
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
