"""ares beside other stores, under the same load, in the same run.

    make bench                  # every installed store, all workloads, faults: half an hour
    make bench-quick            # the most important stores: under two minutes
    .venv/bin/python -m experiments.bench --only ares-abd,redis-wait --workloads '10 B' --rounds 5

Keys have 24 bytes, and the loop is closed: every client has a single operation outstanding. Half of
the operations are reads; `--workloads YCSB` has the six workloads of YCSB instead, for every store.
All processes run on this machine, generators included, on free ports of loopback, and are gone
afterwards; quote ratios of the same run. The bench prints a table, and writes bench.json, bench.txt
and the page report.html. Missing stores are named. The exit status is 1 if a read returned a value
that no client wrote.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ares.model.errors import BadInput
from ares.platform.release import version
from experiments.bench import baseline
from experiments.bench.as_runs import write_faults, write_turns
from experiments.bench.bench_files import bench_parser, finished, write_report
from experiments.bench.cassandra_peer import CASSANDRA
from experiments.bench.etcd_peer import Etcd
from experiments.bench.faults import faults
from experiments.bench.figures import BenchReport, fault_points, points
from experiments.bench.patterns import pattern_maker
from experiments.bench.peers import ARES_PEERS, Peer
from experiments.bench.peers import QUICK_PEERS as QUICK_PEERS
from experiments.bench.points import BenchSettings, turns
from experiments.bench.redis_peer import REDIS
from experiments.bench.store_processes import end_on_sigterm, is_on_memory
from experiments.bench.text import text
from experiments.bench.workload import (
    FULL_WORKLOADS,
    QUICK_WORKLOADS,
    YCSB_WORKLOADS,
    Workload,
    patterned,
)
from experiments.measuring import Repeats

BENCH_REPEATS, QUICK_REPEATS = Repeats(3, 2.0, 0.5), Repeats(2, 0.8, 0.2)
FAULTED_PEERS = ("ares-abd", "ares-ec", "ares-abd-fsync", "redis-wait", "etcd")
FAULTED_QUICK = ("ares-abd",)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench", __doc__)
    parser.add_argument(
        "--quick", action="store_true", help="few stores, few workloads, short: under two minutes"
    )
    parser.add_argument("--only", help="these stores, by name, with commas between them")
    parser.add_argument(
        "--workloads",
        help="only workloads with a name that begins with this: '10 B', '10 B, 100 clients', '1 "
        "MiB', 'YCSB', 'YCSB A'",
    )
    parser.add_argument(
        "--pattern",
        metavar="FILE:CLASS",
        help="only the workload of this class (experiments/bench/patterns.py)",
    )
    parser.add_argument(
        "--rounds", type=int, help="number of repetitions of all workloads (default 3; quick: 2)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="of each measurement (default 2; quick: 0.8); three times as long where a process is "
        "slowed or killed",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="that make the load (default: 2)",
    )
    parser.add_argument(
        "--no-faults", action="store_true", help="leave slow and killed replicas out"
    )
    parser.add_argument(
        "--list", action="store_true", help="name the stores and the missing programs, and end"
    )
    parser.add_argument(
        "--write-baseline",
        action="store_true",
        help="from now on compare with the ratios of this run",
    )
    return parser.parse_args(given)


def machine() -> str:
    """Describe the machine."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    disk = (
        "; the directory for temporary files is in memory: fsync costs nothing here"
        if is_on_memory(Path(tempfile.gettempdir()))
        else ""
    )
    load = f"load average {os.getloadavg()[0]:.1f} when it began"
    return (
        f"ares {version()}, Python {platform.python_version()}, {len(models)} x "
        f"{models[0] if models else 'processor'}, {load}{disk}"
    )


def chosen(given: argparse.Namespace, missing: dict[str, str]) -> tuple[list[Peer], list[Workload]]:
    """Return the stores to measure and their workloads; add uninstalled stores to ``missing``."""
    peers: list[Peer] = [*ARES_PEERS, *REDIS, Etcd(), *CASSANDRA]
    wanted = (
        given.only.split(",")
        if given.only
        else QUICK_PEERS
        if given.quick
        else [peer.name for peer in peers]
    )
    unknown = set(wanted) - {peer.name for peer in peers}
    if unknown:
        sys.exit(
            f"unknown: {', '.join(sorted(unknown))}; known: "
            f"{', '.join(peer.name for peer in peers)}"
        )
    found = [peer for peer in peers if peer.name in wanted]
    missing |= {peer.name: why for peer in found if (why := peer.missing()) is not None}
    known = QUICK_WORKLOADS if given.quick else FULL_WORKLOADS
    workloads = list(known)
    if given.pattern:
        pattern_maker(given.pattern, 0.0)
        workloads = [patterned(given.pattern)]
    elif given.workloads:
        known = (*known, *YCSB_WORKLOADS)
        workloads = [each for each in known if each.name.startswith(given.workloads)]
    if not workloads:
        sys.exit(
            f"no workload begins with {given.workloads!r}; known: "
            f"{'; '.join(workload.name for workload in known)}"
        )
    return [peer for peer in found if peer.name not in missing], workloads


def measure(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    given: argparse.Namespace,
    missing: dict[str, str],
) -> BenchReport:
    """Run all measurements, and print each line at once."""
    repeats = QUICK_REPEATS if given.quick else BENCH_REPEATS
    settings = BenchSettings(
        given.rounds or repeats.rounds,
        given.seconds or repeats.seconds,
        repeats.warm_s,
        given.processes,
    )
    where = machine()
    made = turns(peers, workloads, settings, lambda line: print(line, flush=True), missing)
    faulted = [
        peer
        for peer in peers
        if peer.name not in missing
        and peer.name in (FAULTED_QUICK if given.quick else FAULTED_PEERS)
        and not given.no_faults
    ]
    once = msgspec.structs.replace(settings, rounds=1) if given.quick else settings
    disturbed = faults(faulted, once, lambda line: print(line, flush=True), missing)
    by_name = {workload.name: workload for workload in workloads}
    write_turns(given.out, made, by_name, peers, where)
    write_faults(given.out, disturbed, where)
    return BenchReport(
        machine=where,
        settings=f"{settings.rounds} rounds of {settings.seconds:g} s after {settings.warm_s:g} s "
        f"of warming up; {settings.processes} generators",
        points=points(
            made,
            peers,
            {name: (workload.value_bytes, workload.clients) for name, workload in by_name.items()},
        ),
        faults=fault_points(disturbed),
        notes={peer.name: peer.note for peer in peers if peer.note},
        missing=missing,
        durabilities={peer.name: peer.durability for peer in peers},
    )


def write(report: BenchReport, directory: Path) -> str:
    """Write the files, and return the text."""
    return write_report(directory, "bench", report, text(report, baseline.load()))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit status."""
    given, missing = arguments(words), dict[str, str]()
    try:
        peers, workloads = chosen(given, missing)
    except BadInput as error:
        sys.exit(str(error))
    if given.list:
        print("\n".join([*(peer.name for peer in peers), *missing.values()]))
        return 0
    for why in missing.values():
        print(f"not measured: {why}")
    report = measure(peers, workloads, given, missing)
    print("\n" + write(report, given.out))
    print(finished(given.out, "bench"))
    if given.write_baseline:
        baseline.save(report)
        print(f"the baseline is now this run's: {baseline.BASELINE_FILE}")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
