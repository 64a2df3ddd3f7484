"""Results of benches, as directories of runs and as a page.

The runs are below OUT/rounds. OUT/report.html is the page of all of them (docs/results.md).
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from ares.platform.interpreter import python
from ares.results.load_points import LoadFile, LoadPoint
from experiments import ENVIRONMENT
from experiments.bench.faults import DisturbedRun
from experiments.bench.growth_sample import GrowthSample
from experiments.bench.measured_points import began, point_of, write_load
from experiments.bench.moving_figures import Duration
from experiments.bench.moving_load import WatchedOperation
from experiments.bench.moving_runs import MoveRun
from experiments.bench.peers import Peer
from experiments.bench.points import BenchTurn
from experiments.bench.store_processes import BenchError
from experiments.bench.workload import FAULTED, Workload, size_text

ROUNDS_NAME = "rounds"
_COLUMN_OF = {"servers": "servers", "bytes": "object_size"}
"""Names in `run.json` for the axis of a sample; any other axis is a parameter."""


def emptied(out: Path, scenarios: Iterable[str]) -> None:
    """Remove the rounds of these scenarios from ``out``, left by the last bench of this kind."""
    for scenario in scenarios:
        shutil.rmtree(out / ROUNDS_NAME / scenario, ignore_errors=True)


def round_directory(out: Path, scenario: str, name: str, **about: Any) -> Path:
    """Make a new directory with a `run.json`."""
    directory = (
        out
        / ROUNDS_NAME
        / scenario
        / "".join(letter if letter.isalnum() or letter in "-.+" else "_" for letter in name)
    )
    directory.mkdir(parents=True)
    (directory / "run.json").write_bytes(
        msgspec.json.format(msgspec.json.encode({"scenario": scenario, **about}), indent=1)
    )
    return directory


def keep_load(
    out: Path, scenario: str, name: str, file: LoadFile, machine: str, **about: Any
) -> None:
    """Write a run with points of load, of the store that the file names."""
    origin = about.pop("provenance", {}) | {"machine": machine}
    algorithm = about.pop("algorithm", file.peer)
    write_load(
        round_directory(out, scenario, name, algorithm=algorithm, provenance=origin, **about), file
    )


def make_page(out: Path) -> Path:
    """Import all rounds of ``out`` and make their page. Raises :class:`BenchError` on failure.

    The rounds stay after a failure.
    """
    database, page = out / "results.db", out / "report.html"
    # the database is made of the rounds, and some rounds may be gone
    database.unlink(missing_ok=True)
    for words in (
        ["import", out / ROUNDS_NAME, "--into", database],
        ["report", database, "-o", page],
    ):
        ended = subprocess.run(
            python("-m", "ares", "results", *map(str, words)),
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise BenchError(f"no page was made of {out / ROUNDS_NAME}: {ended.stderr.strip()}")
    return page


def write_turns(
    out: Path,
    turns: Sequence[BenchTurn],
    workloads: Mapping[str, Workload],
    peers: Sequence[Peer],
    machine: str,
) -> None:
    """Write a run for every store, size of values and round.

    The points of a run have growing numbers of clients.
    """
    by_name = {peer.name: peer for peer in peers}
    emptied(out, ["bench"])
    found: dict[tuple[str, str, int, int], list[LoadPoint]] = {}
    wrong: dict[tuple[str, str, int, int], list[str]] = {}
    for turn in turns:
        workload, measured = workloads[turn.workload], turn.measured
        key = (turn.peer, workload.pattern, workload.value_bytes, turn.round)
        figures = {
            "memory of servers (MiB)": turn.resident_bytes / 2**20,
            "processors of generators": sum(measured.generator_cpu),
            "processors of other programs": measured.others_cpu,
        }
        found.setdefault(key, []).append(
            structs.replace(point_of(measured, workload), figures=figures)
        )
        wrong.setdefault(key, []).extend(measured.wrong)
    for key, points in found.items():
        peer, pattern, size, number = key
        durability, note = by_name[peer].durability, by_name[peer].note
        kind = [] if pattern == "even" else [pattern]
        words = f"{size_text(size)}, {pattern if kind else 'half reads'}, {durability}"
        keep_load(
            out,
            "bench",
            "_".join([peer, *kind, str(size), str(number + 1)]),
            LoadFile(points, peer, words, wrong=wrong[key]),
            machine,
            object_size=size,
            iteration=number + 1,
            parameters={"durability": durability, "pattern": pattern},
            provenance={"note": note} if note else {},
        )


def write_faults(
    out: Path, disturbed: Sequence[DisturbedRun], machine: str, workload: Workload = FAULTED
) -> None:
    """Write a run for every store, fault and round."""
    emptied(out, ["bench_faults"])
    for one in disturbed:
        keep_load(
            out,
            "bench_faults",
            f"{one.peer}_{one.name}_{one.round + 1}",
            LoadFile([one.point], one.peer, workload.name, one.name, one.wrong),
            machine,
            object_size=workload.value_bytes,
            iteration=one.round + 1,
        )


def write_samples(
    out: Path, samples: Sequence[GrowthSample], titles: Mapping[str, str], machine: str
) -> None:
    """Write a run for every sample; every section is a scenario."""
    emptied(out, dict.fromkeys(f"scale_{sample.section}" for sample in samples))
    for number, sample in enumerate(samples):
        column, scenario = _COLUMN_OF.get(sample.axis), f"scale_{sample.section}"
        about = {column: int(sample.x)} if column else {"parameters": {sample.axis: sample.x}}
        figures = {
            name: value
            for name, value in sample.figures.items()
            if name not in ("op/s", "failed") and 0 <= value < 1e18
        }
        clients = int(sample.x) if sample.axis == "clients" else 0
        failed = int(sample.figures.get("failed", 0))
        point = LoadPoint(clients, per_s=sample.figures.get("op/s"), failed=failed, figures=figures)
        file = LoadFile([point], sample.series, titles[sample.section], wrong=sample.wrong)
        keep_load(out, scenario, f"{sample.series}_{number}", file, machine, **about)


def write_move(out: Path, run: MoveRun, objects: int, value_bytes: int, machine: str) -> None:
    """Write a run of a domain that moved under load.

    The run has the operations, with the stages of the move on their timeline.
    """
    about = {
        "object_size": value_bytes,
        "parameters": {"load": run.load, "objects": objects},
        "provenance": {"machine": machine},
    }
    directory = round_directory(
        out, "moving", f"{run.case}_{run.load}", algorithm=run.case, **about
    )
    lines = (_line(number, one) for number, one in enumerate(run.outcome.operations))
    (directory / "operations.log").write_bytes(
        b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    )
    stages = [*run.moved.stages, ("the move has ended", run.moved.ended_s)]
    events = (
        {"time": began(at_s), "event": "phase", "server": None, "detail": name}
        for name, at_s in stages
    )
    (directory / "events.jsonl").write_bytes(
        b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    )


def _line(number: int, one: WatchedOperation) -> dict[str, Any]:
    """Return a line of an operation log."""
    kind = "read" if one.reading else "write"
    return {
        "asctime": began(one.ended_s),
        "message": f"{kind.upper()}-COMPLETE",
        "status": "SUCCESS",
        "outcome": "ok",
        "op": kind,
        "clientID": "all",
        "opID": f"{kind}-{number}",
        "op_latency_start": one.began_s,
        "op_latency_end": one.ended_s,
        "op_latency": one.ended_s - one.began_s,
        "rounds": one.rounds,
        "confs_no": one.configurations,
    }


def write_durations(out: Path, durations: Sequence[Duration], machine: str) -> None:
    """Write a run for every move of an unused domain."""
    for one in durations:
        batch = "on" if one.batch else "off"
        name = f"{one.case}, batch {batch}"
        figures = {
            "ms to move an object": one.seconds / one.objects * 1e3,
            "objects/s": one.objects_per_s,
            "MiB/s": one.mib_per_s,
            "us CPU/object": one.cpu_us_per_object,
        }
        keep_load(
            out,
            "moving_alone",
            f"{name} {one.value_bytes}",
            LoadFile([LoadPoint(0, figures=figures)], one.case, "moves that no client sees"),
            machine,
            algorithm=name,
            object_size=one.value_bytes,
            parameters={"batch": batch, "objects": one.objects},
        )
