"""Measurements as runs of a directory of results, for pages and verdicts."""

import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ares.platform.interpreter import python
from ares.results.load_points import LoadFile
from experiments.bench.measured_points import write_load
from experiments.rounds.provenance import provenance


def keep_run(
    directory: Path, run: Mapping[str, Any], testbed: str, began: str | None, file: LoadFile
) -> Path:
    """Write a run with its load, over a run of the same name; return the directory.

    ``run`` is the content of `run.json` without the provenance.
    """
    directory.mkdir(parents=True, exist_ok=True)
    origin = provenance(testbed, 0) | {"began": began}
    ended = {"ended": datetime.now(UTC).isoformat()}
    (directory / "run.json").write_bytes(msgspec.json.encode({**run, "provenance": origin}))
    (directory / "outcome.json").write_bytes(msgspec.json.encode(ended))
    write_load(directory, file)
    return directory


def import_runs(results: Path, made: Sequence[Path]) -> None:
    """Import the runs into the database of the results."""
    command = python("-m", "ares", "results", "import", *made, "--into", results / "results.db")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
