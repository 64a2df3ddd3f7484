"""Measurements as runs of a directory of results, for pages and verdicts."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ares.platform.interpreter import python
from ares.results.load_points import LoadFile
from experiments.bench.measured_points import write_load
from experiments.rounds.provenance import provenance


def keep_run(
    results: Path,
    scenario: str,
    name: str,
    file: LoadFile,
    *,
    testbed: str = "processes",
    **about: Any,
) -> Path:
    """Write a run with its load, over a run of the same name; return the directory.

    ``about`` is further content of `run.json`. The algorithm is the store that the file names.
    """
    plain = "".join(letter if letter.isalnum() or letter in "-.+" else "_" for letter in name)
    directory = results / scenario / plain
    directory.mkdir(parents=True, exist_ok=True)
    origin = provenance(testbed, 0) | {"began": file.points[0].began} | about.pop("provenance", {})
    run = {"scenario": scenario, "algorithm": file.peer} | about | {"provenance": origin}
    ended = {"ended": datetime.now(UTC).isoformat()}
    (directory / "run.json").write_bytes(msgspec.json.encode(run))
    (directory / "outcome.json").write_bytes(msgspec.json.encode(ended))
    write_load(directory, file)
    return directory


def import_runs(results: Path, made: Sequence[Path]) -> None:
    """Import the runs into the database of the results."""
    command = python("-m", "ares", "results", "import", *made, "--into", results / "results.db")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
