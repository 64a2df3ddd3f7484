"""Measurements of the study as runs of RESULTS, for verdicts.

The claims are in experiments/verdicts/claims/fog.toml.
"""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ares.platform.interpreter import python
from ares.results.load_points import LoadFile, LoadPoint
from experiments.bench.measured_points import write_load
from experiments.rounds.provenance import provenance
from experiments.sites.fog_plan import FOG_STUDY
from experiments.sites.outcome import Measurement


def keep(results: Path, measurements: Sequence[Measurement], began: str) -> None:
    """Write a run for each measurement, and replace runs of the same name.

    ``began`` is the start of the runner, ISO 8601.
    """
    if not measurements:
        return
    made = [_written(results, each, began) for each in measurements]
    command = python("-m", "ares", "results", "import", *made, "--into", results / "results.db")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _written(results: Path, of: Measurement, began: str) -> Path:
    words = [
        of.store.replace(" ", "-"),
        str(of.sites),
        of.test,
        *map(str, of.work.values()),
        str(of.trial),
    ]
    directory = results / FOG_STUDY / "_".join(words)
    directory.mkdir(parents=True, exist_ok=True)
    about = {"scenario": FOG_STUDY, "algorithm": of.store, "iteration": of.trial}
    parameters = {"sites": of.sites, "test": of.test} | of.work
    run = about | {
        "parameters": parameters,
        "provenance": provenance("sites", 0) | {"began": began},
    }
    (directory / "run.json").write_bytes(msgspec.json.encode(run))
    (directory / "outcome.json").write_bytes(
        msgspec.json.encode({"ended": datetime.now(UTC).isoformat()})
    )
    point = LoadPoint(
        clients=int(of.work.get("parallel", 1)), read=of.read, write=of.write, began=began,
        figures=of.figures,
        failed=int(of.figures["failed"]),
    )  # fmt: skip
    write_load(directory, LoadFile([point], of.store, of.test))
    return directory
