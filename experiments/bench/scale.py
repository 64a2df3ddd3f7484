"""Growth of ares: clients, keys, servers, sizes of values, domains, objects, buckets, idle servers.

    make bench-scale
    .venv/bin/python -m experiments.bench.scale --full             # long
    .venv/bin/python -m experiments.bench.scale --only keys,empty

`--full` has up to 270 client processes, 1,000,000 keys, 256 MiB, 10,000 domains and 10,000,000
objects of a server. Processor time for each operation is printed beside the rate, because all
processes share this machine. The bench prints a table, and writes scale.json, scale_figures.json,
scale.txt and the page report.html. The exit status is 1 if a read returned a value that no client
wrote.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from ares.client.connect import connect
from ares.compiled import CORE_NAME
from ares.fragment.divide import Sizes
from ares.model.units import KIB, MIB
from ares.platform.interpreter import python
from ares.platform.loop import run
from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench import one_server
from experiments.bench.alone import PEAK, Figures, alone
from experiments.bench.bench_files import bench_parser, emptied, finished, write_report
from experiments.bench.chunkings import SMALL_SIZES, compared
from experiments.bench.figures import Figure
from experiments.bench.index_rows import INDEX_PARTS
from experiments.bench.load import LoadExtent, generators
from experiments.bench.one_server import LONGEST_MS_OF
from experiments.bench.peers import Ares
from experiments.bench.store_processes import (
    ProgramNotStarted,
    cpu_of,
    end_on_sigterm,
    resident_bytes,
)
from experiments.bench.text import aligned, number
from experiments.bench.workload import Workload
from experiments.command_options import add_choice
from experiments.kept_runs import keep_run
from experiments.local_cluster import local_cluster, pid_of, server_pids
from experiments.measuring import Repeats

SCALE_REPEATS = Repeats(rounds=1, seconds=2.0, warm_s=1.0)
SCALE_IDLE_S = 3.0
SLOWEST_MIB_S = 16.0
"""Smallest rate for which a large value gets enough time."""

STARTS = 3
DOMAINS_AT_ONCE, DOMAIN_USES = 16, 400
"""Domains made or used at the same time, and objects written and read, domain by domain."""


class GrowthSample(Struct, frozen=True):
    """The figures at ``x`` of the ``axis``; names of figures include the unit."""

    series: str
    axis: str
    x: int
    figures: Figures
    wrong: list[str] = []


class Scale(Struct, frozen=True):
    """All results of the bench, by section."""

    samples: dict[str, list[GrowthSample]]


class LoadStep(NamedTuple):
    """A store under the load of ``processes`` generators, ``more_s`` longer than usual.

    ``shares`` are the shares of reads of each process.
    """

    series: str
    axis: str
    x: int
    peer: Ares
    workload: Workload
    processes: int = 2
    shares: Sequence[float] | None = None
    more_s: float = 0.0

    def measured(self) -> GrowthSample:
        """Write the initial values, run the workload, and rest, on a new cluster."""
        workload, repeats = self.workload, SCALE_REPEATS
        with (
            tempfile.TemporaryDirectory() as directory,
            self.peer.running(Path(directory)) as running,
            generators(self.processes) as load,
        ):
            pids, keys = list(running.servers.values()), workload.keys
            empty_mib, began_s, begun_s = resident_mib(pids), time.perf_counter(), _cpu_s(pids)
            load.preload_once(running.store, workload)
            filled_s, filling_s = time.perf_counter() - began_s, _cpu_s(pids) - begun_s
            extent = LoadExtent(repeats.warm_s, repeats.seconds + self.more_s)
            found = load.run(running.store, workload, extent, running.servers, self.shares)
            grown_mib, client_mib, begun_s = resident_mib(pids), load.peak_mib(), _cpu_s(pids)
            time.sleep(SCALE_IDLE_S)
            idle_s = _cpu_s(pids) - begun_s
        taken_s = sum(found.server_cpu.values()) + sum(found.generator_cpu)
        figures = {
            "op/s": found.per_s,
            "read p50 ms": found.latency_ms(0.5, writes=False),
            "write p50 ms": found.latency_ms(0.5, reads=False),
            "us CPU/op": taken_s / found.per_s * 1e6 if found.per_s else float("inf"),
            "failed": float(sum(found.troubles.values())),
            "MiB/s": found.per_s * workload.value_bytes / MIB,
            "us to write first": filled_s / keys * 1e6,
            "us server CPU to write first": filling_s / keys * 1e6,
            "bytes per key and server": (grown_mib - empty_mib) * MIB / keys / len(pids),
            "MiB per server": grown_mib / len(pids),
            "MiB of the largest client": client_mib,
            "idle CPU of a server, %": idle_s / SCALE_IDLE_S / len(pids) * 100,
        }
        return GrowthSample(self.series, self.axis, self.x, figures, list(found.wrong))


def resident_mib(pids: Iterable[int]) -> float:
    """Return the sum over all processes."""
    return sum(map(resident_bytes, pids)) / MIB


def _cpu_s(pids: Iterable[int]) -> float:
    return sum(cpu_of(pids).values())


def clients(full: bool) -> Iterator[LoadStep]:
    """Yield more and more clients of the same object.

    Every client is a separate process with a separate connection, and only reads or only writes.
    """
    counts = ((1, 1), (10, 4), (40, 10), (100, 20), (250, 20))  # readers and writers
    for dap in ("abd", "ec"):
        for readers, writers in counts if full else counts[:3]:
            count, shares = readers + writers, [1.0] * readers + [0.0] * writers
            rest = Ares(dap, dap=dap), Workload(count, keys=1), count, shares, SCALE_REPEATS.seconds
            yield LoadStep(dap.upper(), "clients", count, *rest)


def keys(full: bool) -> Iterator[LoadStep]:
    """Yield more and more keys in a cluster."""
    for count in (1_000, 10_000, 100_000, 1_000_000) if full else (1_000, 10_000, 50_000):
        yield LoadStep("ABD n=5", "keys", count, Ares("abd"), Workload(100, keys=count))


def servers(full: bool) -> Iterator[LoadStep]:
    """Yield more and more servers; with EC each has a smaller part."""
    for dap, label in (("abd", "ABD"), ("ec", "EC k=(n-1)/2")):
        for n in (3, 5, 7, 9, 11, 13, 15) if full else (3, 5, 9, 15):
            peer = Ares(dap, dap=dap, n=n, k=(n - 1) // 2)
            yield LoadStep(label, "servers", n, peer, Workload(32))


def values(full: bool) -> Iterator[LoadStep]:
    """Yield sizes of values, with a client that has a single operation at a time.

    Each large value has its own key. With EC a server keeps several versions.
    """
    sizes = (10, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
    for label, peer in (("ABD n=3", Ares("abd", n=3)), ("EC n=5 k=3", Ares("ec", dap="ec"))):
        for size in sizes if full else sizes[:5]:
            workload = Workload(1, size, keys=100 if size < MIB else 1)
            more_s = 8 * size / MIB / SLOWEST_MIB_S
            yield LoadStep(label, "bytes", size, peer, workload, 1, more_s=more_s)


def empty(full: bool) -> Iterator[GrowthSample]:
    """Measure a server without and with a disk, and a single consensus member, before any request.

    A single member elects itself.
    """
    for label, durability, words in (
        ("server in memory", "memory", ["server", "--id", "s0"]),
        ("server with a disk", "fsync", ["server", "--id", "s0"]),
        ("consensus member", "memory", ["consensus", "--id", "r0"]),
    ):
        found = [_started(durability, words) for _ in range(STARTS)]
        figures = {name: statistics.median(one[name] for one in found) for name in found[0]}
        yield GrowthSample(label, "processes", 1, figures)


def _started(durability: str, words: list[str]) -> Figures:
    ares = python("-m", "ares")
    with tempfile.TemporaryDirectory(prefix="ares-bench-") as directory:
        shape = f"--servers 3 --consensus 1 --base-port 0 --durability {durability}".split()
        init = [*ares, "init", f"{directory}/c", *shape]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL)
        command = [*ares, words[0], f"{directory}/c/cluster.toml", *words[1:]]
        log, began_s = Path(directory) / "log", time.perf_counter()
        with (
            log.open("wb") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process,
        ):
            try:
                assert process.stdout is not None
                if not process.stdout.readline().startswith(b"READY"):
                    raise ProgramNotStarted(log.read_text(errors="replace")[-1500:])
                ready_s, taken_s = time.perf_counter() - began_s, _cpu_s([process.pid])
                time.sleep(0.5)
                idle_from_s = _cpu_s([process.pid])
                time.sleep(SCALE_IDLE_S)
                return {
                    "s to start": ready_s,
                    "s CPU to start": taken_s,
                    "MiB": resident_mib([process.pid]),
                    "idle CPU, %": (_cpu_s([process.pid]) - idle_from_s) / SCALE_IDLE_S * 100,
                }
            finally:
                process.terminate()


def domains(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more domains in a cluster, with an object in each.

    Creation takes the consensus service; use of an existing domain must not.
    """
    counts = (1, 10, 100, 1_000, 10_000) if full else (1, 10, 100)
    with local_cluster(5, "--consensus 3") as file:
        yield from run(_grown(file, counts))


async def _grown(file: Path, counts: tuple[int, ...]) -> list[GrowthSample]:
    storage = list(server_pids(file).values())
    deciding = [pid_of(file, f"r{number}") for number in range(3)]
    found, made = list[GrowthSample](), 0
    async with connect(file) as store:
        await store.write("first", b"0123456789")
        empty_mib, deciding_mib = resident_mib(storage), resident_mib(deciding)

        async def make(number: int) -> None:
            await store.create_domain(f"d{number}")

        async def use(number: int) -> None:
            domain = await store.domain(f"d{number % made}")
            await domain.write("object", b"0123456789")
            assert await domain.read("object") == b"0123456789"

        for count in counts:
            began_s = time.perf_counter()
            await _in_turns(make, range(made, count))
            making_s, fresh, made = time.perf_counter() - began_s, count - made, count
            began_s, begun_s = time.perf_counter(), _cpu_s(storage)
            await _in_turns(use, range(DOMAIN_USES))
            using_s, used_s = time.perf_counter() - began_s, _cpu_s(storage) - begun_s
            grown_kib = (resident_mib(storage) - empty_mib) * 1024 / len(storage)
            deciding_kib = (resident_mib(deciding) - deciding_mib) * 1024 / len(deciding)
            figures = {
                "ms to make one": making_s / fresh * 1e3,
                "ms to write and read": using_s / DOMAIN_USES * 1e3,
                "us server CPU to write and read": used_s / DOMAIN_USES * 1e6,
                "KiB per domain and server": grown_kib / count,
                "KiB per domain and consensus member": deciding_kib / count,
            }
            found.append(GrowthSample("ABD n=5", "domains", count, figures))
    return found


async def _in_turns(work: Callable[[int], Awaitable[None]], numbers: Iterable[int]) -> None:
    """Do the work for every number, DOMAINS_AT_ONCE at a time."""
    left = iter(numbers)

    async def worker() -> None:
        for each in left:
            await work(each)

    await asyncio.gather(*(worker() for _ in range(DOMAINS_AT_ONCE)))


def objects(full: bool) -> Iterator[GrowthSample]:
    """Measure more and more objects of a server with a journal, without a network."""
    for count in (10_000, 1_000_000, 10_000_000) if full else (10_000, 100_000):
        with tempfile.TemporaryDirectory(prefix="ares-bench-") as directory:
            alone(one_server.fill, directory, count)
            found = alone(one_server.start, directory, count)
        yield GrowthSample("core: " + CORE_NAME, "objects", count, found)


def churn(full: bool) -> Iterator[GrowthSample]:
    """Measure names of a write-once domain created and dropped at a server with a journal."""
    for count in (10_000, 1_000_000) if full else (10_000, 100_000):
        with tempfile.TemporaryDirectory(prefix="ares-bench-") as directory:
            found = alone(one_server.churn, directory, count)
        yield GrowthSample("core: " + CORE_NAME, "names", count, found)


def index(full: bool) -> Iterator[GrowthSample]:
    """Measure the parts of the index of a bucket with many keys."""
    count = 1_000_000 if full else 100_000
    with tempfile.TemporaryDirectory(prefix="ares-bench-") as directory:
        for part in INDEX_PARTS:
            found = alone(part, directory, count)
            peak = found.pop(PEAK)
            for name, figure in found.items():
                yield GrowthSample(name, "keys", count, {"figure": figure, PEAK: peak})


def chunkings(full: bool) -> Iterator[GrowthSample]:
    """Compare the chunkings of files, for small and for the usual sizes of blocks."""
    mib = 32 if full else 8
    for label, sizes in (("blocks of 4 to 8 KiB", SMALL_SIZES), ("the default sizes", Sizes())):
        for name, figures in compared(sizes, mib * MIB):
            yield GrowthSample(f"{name}, {label}", "MiB", mib, figures)


Section = Callable[[bool], Iterator[LoadStep | GrowthSample]]
SCALE_SECTIONS: dict[str, tuple[str, Section]] = {
    "empty": ("A server that holds nothing", empty),
    "clients": ("Readers and writers of one object, each a process of its own", clients),
    "keys": ("Keys of 10 bytes, ABD n=5", keys),
    "servers": ("Servers, 32 clients, 10 bytes", servers),
    "values": ("Sizes of values, one client", values),
    "objects": ("Objects of 100 bytes on one server, ABD", objects),
    "churn": ("Names of a write-once domain, of which 3,000 stay, on one server", churn),
    "index": ("The index of a bucket, without servers", index),
    "chunkings": ("Files cut into blocks, and edited", chunkings),
    "domains": ("Domains, one object in each, ABD n=5", domains),
}


def text(samples: dict[str, list[GrowthSample]]) -> str:
    """Return a table for each section."""
    lines: list[str] = []
    for section, found in samples.items():
        head = ("", found[0].axis, *found[0].figures)
        rows = [(each.series, *map(number, (each.x, *each.figures.values()))) for each in found]
        lines += ["", SCALE_SECTIONS[section][0], *aligned([head, *rows])]
        lines += [f"WRONG READS: {each.series}: {each.wrong}" for each in found if each.wrong]
    return "\n".join(lines).strip() + "\n"


def goal_figures(samples: dict[str, list[GrowthSample]]) -> dict[str, Figure]:
    """Return the figures of keys and of a server's objects, by the names of goals.

    Bytes of a key are the bytes beside the key and the value.
    """
    usual, found = Workload(1), dict[str, float]()
    for each in samples.get("keys", ()):
        beside = each.figures["bytes per key and server"] - len(usual.key(0)) - usual.value_bytes
        found[f"{each.series}, {each.x:,} keys: bytes beside key and value"] = beside
    for each in samples.get("objects", ()):
        pauses = [ms for name, ms in each.figures.items() if name.startswith(LONGEST_MS_OF)]
        of = f"{each.x:,} objects of a server"
        found[f"{of}, start"] = each.figures["s to start"]
        found[f"{of}, memory"] = each.figures["MiB"] * MIB / 1e9
        found[f"{of}, names listed"] = each.figures["names listed/s"]
        found[f"{of}, longest pause"] = max(pauses)
    return {name: Figure.of([figure]) for name, figure in found.items()}


def keep_samples(out: Path, samples: dict[str, list[GrowthSample]]) -> None:
    """Write a run for every sample; every section is a scenario."""
    rounds = emptied(out, [f"scale_{section}" for section in samples])
    for section, found in samples.items():
        for place, sample in enumerate(found):
            column = {"servers": "servers", "bytes": "object_size"}.get(sample.axis)
            about = {column: sample.x} if column else {"parameters": {sample.axis: sample.x}}
            figures = {name: each for name, each in sample.figures.items() if 0 <= each < 1e18}
            point = LoadPoint(
                sample.x if sample.axis == "clients" else 0,
                per_s=figures.pop("op/s", None),
                failed=int(figures.pop("failed", 0)),
                figures=figures,
            )
            file = LoadFile([point], sample.series, SCALE_SECTIONS[section][0], wrong=sample.wrong)
            keep_run(rounds, f"scale_{section}", f"{sample.series}_{place}", file, **about)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench.scale", __doc__)
    parser.add_argument(
        "--full", action="store_true", help="all sizes; without it what ends in minutes"
    )
    add_choice(parser, "--only", SCALE_SECTIONS)
    return parser.parse_args(given)


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    given = arguments(words)
    samples: dict[str, list[GrowthSample]] = {}
    for section in given.only:
        for step in SCALE_SECTIONS[section][1](given.full):
            print(f"{section}, {step.series}: {step.axis} {step.x:,}", flush=True)
            sample = step.measured() if isinstance(step, LoadStep) else step
            figures = (f"{name} {number(figure)}" for name, figure in sample.figures.items())
            print(f"  {', '.join(figures)}", flush=True)
            samples.setdefault(section, []).append(sample)
    found = goal_figures(samples)
    told = write_report(given.out, "scale", Scale(samples), text(samples), found)
    keep_samples(given.out, samples)
    print(f"\n{told}\n{finished(given.out, 'scale')}")
    return 1 if any(sample.wrong for found in samples.values() for sample in found) else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
