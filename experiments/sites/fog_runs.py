"""Measurements of the study as runs of RESULTS, for verdicts.

The claims are in experiments/verdicts/claims/fog.toml.
"""

from collections.abc import Sequence
from pathlib import Path

from ares.results.load_points import LoadFile, LoadPoint
from experiments.kept_runs import import_runs, keep_run
from experiments.sites.fog_plan import FOG_STUDY
from experiments.sites.outcome import Measurement


def keep(results: Path, measurements: Sequence[Measurement], began: str) -> None:
    """Write a run for each measurement, and replace runs of the same name.

    ``began`` is the start of the runner, ISO 8601.
    """
    if not measurements:
        return
    import_runs(results, [_written(results, each, began) for each in measurements])


def _written(results: Path, of: Measurement, began: str) -> Path:
    words = [
        of.store.replace(" ", "-"),
        str(of.sites),
        of.test,
        *map(str, of.work.values()),
        str(of.trial),
    ]
    directory = results / FOG_STUDY / "_".join(words)
    about = {"scenario": FOG_STUDY, "algorithm": of.store, "iteration": of.trial}
    run = about | {"parameters": {"sites": of.sites, "test": of.test} | of.work}
    point = LoadPoint(
        clients=int(of.work.get("parallel", 1)), read=of.read, write=of.write, began=began,
        figures=of.figures,
        failed=int(of.figures["failed"]),
    )  # fmt: skip
    file = LoadFile([point], of.store, of.test)
    return keep_run(directory, run, "sites", began, file)
