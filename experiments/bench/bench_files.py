"""The frame of the commands of the bench: their options, and the files of a run.

The runs are below OUT/rounds. OUT/report.html is the page of all of them (docs/results.md).
"""

import argparse
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from ares.platform.interpreter import python
from ares.results.load_points import LoadFile, LoadPoint
from experiments import ENVIRONMENT
from experiments.bench.figures import Figure
from experiments.bench.measured_points import point_of
from experiments.bench.peers import Peer
from experiments.bench.performance_page import BENCH_RESULTS, record
from experiments.bench.points import BenchTurn
from experiments.bench.store_processes import BenchError
from experiments.bench.workload import Workload, size_text
from experiments.kept_runs import keep_run
from experiments.rounds.provenance import checkout_commit


def bench_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all benches, and note the commit."""
    checkout_commit()
    parser = argparse.ArgumentParser(
        prog=module, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = f"where the files go (default: {BENCH_RESULTS})"
    parser.add_argument("--out", type=Path, default=BENCH_RESULTS, help=words)
    return parser


def write_report(
    out: Path, name: str, report: Struct, text: str, found: Mapping[str, Figure]
) -> str:
    """Write NAME.json, NAME_figures.json and NAME.txt; return the text with the goals' page."""
    out.mkdir(parents=True, exist_ok=True)
    text = f"{text}\n{record(out, name, found)}".rstrip() + "\n"
    (out / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (out / f"{name}.txt").write_text(text)
    return text


def finished(out: Path, name: str) -> str:
    """Make the page of all runs, and name the files."""
    return f"wrote {out}/{name}.json, {name}.txt and {make_page(out).name}"


def emptied(out: Path, scenarios: Iterable[str]) -> Path:
    """Remove the rounds of these scenarios, left by the last bench; return the place of rounds."""
    for scenario in scenarios:
        shutil.rmtree(out / "rounds" / scenario, ignore_errors=True)
    return out / "rounds"


def make_page(out: Path) -> Path:
    """Import all rounds of ``out`` and make their page. Raises :class:`BenchError` on failure.

    The rounds stay after a failure.
    """
    rounds, database, page = out / "rounds", out / "results.db", out / "report.html"
    # the database is made of the rounds, and some rounds may be gone
    database.unlink(missing_ok=True)
    for words in (["import", rounds, "--into", database], ["report", database, "-o", page]):
        command = python("-m", "ares", "results", *map(str, words))
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        if ended.returncode:
            raise BenchError(f"no page was made of {rounds}: {ended.stderr.strip()}")
    return page


def write_turns(
    out: Path,
    turns: Sequence[BenchTurn],
    workloads: Mapping[str, Workload],
    peers: Sequence[Peer],
) -> None:
    """Write a run for every store, size of values and round.

    The points of a run have growing numbers of clients.
    """
    by_name, rounds = {peer.name: peer for peer in peers}, emptied(out, ["bench"])
    found: dict[tuple[str, str, int, int], LoadFile] = {}
    for turn in turns:
        workload, peer = workloads[turn.workload], by_name[turn.peer]
        kind = "half reads" if workload.pattern == "even" else workload.pattern
        words = f"{size_text(workload.value_bytes)}, {kind}, {peer.durability}"
        key = (turn.peer, workload.pattern, workload.value_bytes, turn.round)
        file = found.setdefault(key, LoadFile([], turn.peer, words, wrong=[]))
        file.points.append(_point_of_turn(turn, workload))
        file.wrong.extend(turn.measured.wrong)
    for (name, pattern, size, number), file in found.items():
        peer, kinds = by_name[name], [] if pattern == "even" else [pattern]
        about = {
            "object_size": size,
            "iteration": number + 1,
            "parameters": {"durability": peer.durability, "pattern": pattern},
            "provenance": {"note": peer.note} if peer.note else {},
        }
        run = "_".join([name, *kinds, f"{size}_{number + 1}"])
        keep_run(rounds, "bench", run, file, **about)


def _point_of_turn(turn: BenchTurn, workload: Workload) -> LoadPoint:
    figures = {
        "memory of servers (MiB)": turn.resident_bytes / 2**20,
        "processors of generators": sum(turn.measured.generator_cpu),
        "processors of other programs": turn.measured.others_cpu,
    }
    return structs.replace(point_of(turn.measured, workload), figures=figures)
