"""ares beside other stores, under the same load, in the same run.

    make bench                  # every installed store, all workloads
    make bench-quick            # the most important stores: under two minutes
    .venv/bin/python -m experiments.bench --only ares-abd,redis-wait --workloads '10 B' --rounds 5
    sudo .venv/bin/python -m experiments.bench --only ares-abd,redis-wait --servers 3 --apart 0.5

Keys have 24 bytes, and the loop is closed: every client has a single operation outstanding. Half of
the operations are reads; `--workloads YCSB` has the six workloads of YCSB instead, for every store.
All processes run on this machine, generators included, on free ports of loopback, and are gone
afterwards; quote ratios of the same run. The bench prints a table, and the goals of its ratios
beside the last run kept in git. It writes bench.json, bench_figures.json, bench.txt and the page
report.html. Missing stores are named. The exit status is 1 if a read returned a value that no
client wrote. The scenario `bad_leader` measures slowed and killed servers.
"""

import argparse
import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from ares.model.errors import BadInput
from ares.platform.release import version
from experiments.bench.apart import apart_obstacle, late_packets
from experiments.bench.bench_files import bench_parser, finished, write_report, write_turns
from experiments.bench.cassandra_peer import CASSANDRA
from experiments.bench.etcd_peer import Etcd
from experiments.bench.figures import BenchReport, goal_ratios, points
from experiments.bench.patterns import pattern_maker
from experiments.bench.peers import ARES_PEERS, QUICK_PEERS, Ares, Peer
from experiments.bench.points import turns
from experiments.bench.redis_peer import REDIS, Redis
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
from experiments.rounds.provenance import provenance

BENCH_REPEATS, QUICK_REPEATS = Repeats(3, 2.0, 0.5), Repeats(2, 0.8, 0.2)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = bench_parser("experiments.bench", __doc__)
    words = "few stores, few workloads, short: under two minutes"
    parser.add_argument("--quick", action="store_true", help=words)
    parser.add_argument("--only", help="these stores, by name, with commas between them")
    names = "'10 B', '10 B, 100 clients', '1 MiB', 'YCSB', 'YCSB A'"
    parser.add_argument("--workloads", help=f"only workloads that begin with this: {names}")
    words = "only the workload of this class (experiments/bench/patterns.py)"
    parser.add_argument("--pattern", metavar="FILE:CLASS", help=words)
    words = "number of repetitions of all workloads (default 3; quick: 2)"
    parser.add_argument("--rounds", type=int, help=words)
    words = "of each measurement (default 2; quick: 0.8)"
    parser.add_argument("--seconds", type=float, help=words)
    processes = min(2, os.cpu_count() or 1)
    words = "that make the load (default: 2)"
    parser.add_argument("--processes", type=int, default=processes, help=words)
    words = "number of servers of every store (default: 5; Cassandra has 3)"
    parser.add_argument("--servers", type=int, help=words)
    words = "delay every packet, of servers and of clients, by MS milliseconds; as root"
    parser.add_argument("--apart", type=float, default=0.0, metavar="MS", help=words)
    words = "name the stores and the missing programs, and end"
    parser.add_argument("--list", action="store_true", help=words)
    return parser.parse_args(given)


def machine() -> str:
    """Describe the machine."""
    origin = provenance("processes", 0)
    load = f"load average {origin['load_average']:.1f} when it began"
    python = f"Python {platform.python_version()}"
    where = f"ares {version()}, {python}, {origin['machine']}, {load}"
    if is_on_memory(Path(tempfile.gettempdir())):
        where += "; the directory for temporary files is in memory: fsync costs nothing here"
    return where


def conditions(given: argparse.Namespace) -> str:
    """Return the unusual conditions of this run, for the names of its figures."""
    words = [f"{given.servers} servers"] if given.servers else []
    words += [f"{given.apart:g} ms apart"] if given.apart else []
    return f"{' '.join(words)}, " if words else ""


def of_size(peer: Peer, servers: int) -> Peer:
    """Return the store with so many servers: a majority of them has a write that counts."""
    more = {"k": servers // 2 + 1} if isinstance(peer, Ares) else {}
    more |= {"wait": servers // 2} if isinstance(peer, Redis) and peer.wait else {}
    return structs.replace(peer, n=servers, **more)


def chosen(given: argparse.Namespace, missing: dict[str, str]) -> tuple[list[Peer], list[Workload]]:
    """Return the stores to measure and their workloads; add uninstalled stores to ``missing``."""
    peers: list[Peer] = [*ARES_PEERS, *REDIS, Etcd(), *CASSANDRA]
    peers = [of_size(peer, given.servers) for peer in peers] if given.servers else peers
    names = [peer.name for peer in peers]
    wanted = given.only.split(",") if given.only else QUICK_PEERS if given.quick else names
    if unknown := set(wanted) - set(names):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(names)}")
    found = [peer for peer in peers if peer.name in wanted]
    missing |= {peer.name: why for peer in found if (why := peer.missing()) is not None}
    if given.apart:
        sockets = [each.name for each in found if isinstance(each, Ares) and each.local_sockets]
        missing |= {name: f"{name}: Unix sockets cannot be apart" for name in sockets}
    known = QUICK_WORKLOADS if given.quick else FULL_WORKLOADS
    workloads = list(known)
    if given.pattern:
        pattern_maker(given.pattern, 0.0)
        workloads = [patterned(given.pattern)]
    elif given.workloads:
        known = (*known, *YCSB_WORKLOADS)
        workloads = [each for each in known if each.name.startswith(given.workloads)]
    if not workloads:
        told = "; ".join(workload.name for workload in known)
        sys.exit(f"no workload begins with {given.workloads!r}; known: {told}")
    return [peer for peer in found if peer.name not in missing], workloads


def measure(
    peers: Sequence[Peer],
    workloads: Sequence[Workload],
    given: argparse.Namespace,
    missing: dict[str, str],
) -> BenchReport:
    """Run all measurements, and print each line at once."""
    repeats = QUICK_REPEATS if given.quick else BENCH_REPEATS
    rounds, seconds = given.rounds or repeats.rounds, given.seconds or repeats.seconds
    repeats = Repeats(rounds, seconds, repeats.warm_s)
    where = machine()
    made = turns(peers, workloads, repeats, given.processes, missing)
    by_name = {workload.name: workload for workload in workloads}
    write_turns(given.out, made, by_name, peers)
    return BenchReport(
        machine=where,
        settings=f"{conditions(given)}{rounds} rounds of {seconds:g} s after {repeats.warm_s:g} s "
        f"of warming up; {given.processes} generators",
        points=points(made, peers, by_name),
        notes={peer.name: peer.note for peer in peers if peer.note},
        missing=missing,
    )


def write(report: BenchReport, directory: Path, prefix: str = "") -> str:
    """Write the files, and return the text. Names of figures begin with ``prefix``."""
    ratios = dict(goal_ratios(report.points, prefix))
    return write_report(directory, "bench", report, text(report), ratios)


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
    with contextlib.ExitStack() as stack:
        if given.apart:
            if obstacle := apart_obstacle():
                print(f"not measured: stores apart: {obstacle}")
                return 0
            stack.enter_context(late_packets(given.apart / 1000))
        report = measure(peers, workloads, given, missing)
    print("\n" + write(report, given.out, conditions(given)))
    print(finished(given.out, "bench"))
    return 1 if report.wrong else 0


if __name__ == "__main__":
    end_on_sigterm()
    sys.exit(main())
