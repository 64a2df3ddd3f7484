"""The fog study of Confais, Lebre and Parrein (CloudCom 2016) on this machine, as root.

    sudo .venv/bin/python -m experiments.sites --quick --sites 1,7 --stores 'ares x1,ares x3'
    sudo .venv/bin/python -m experiments.sites --paper-scale --only access,cut
    sudo .venv/bin/python -m experiments.sites --points

The study measures object stores on sites: local and remote access, a busy site, a site that is cut
off, moving users, YCSB; Table I follows from the measurements. Missing stores are left out and
named. A killed runner's network is removed by `python -m experiments local clean NAME`.
"""

import argparse
import time
from collections.abc import Awaitable, Collection
from datetime import UTC, datetime
from pathlib import Path

from ares.model.errors import AresError
from ares.platform.loop import run
from experiments.bench.store_processes import ProgramNotStarted, end_on_sigterm
from experiments.command_options import POINTS, add_choice, add_results
from experiments.sites import outcome
from experiments.sites.access_times import measure_local, measure_metadata, measure_remote
from experiments.sites.disturbances import measure_containment, measure_cut, measure_move
from experiments.sites.fog_network import BED_SITES_MAX, FogNetwork, bed, obstacle
from experiments.sites.fog_plan import FOG_EXTENTS, SITE_COUNTS
from experiments.sites.fog_scene import FogScene
from experiments.sites.outcome import Measurement
from experiments.sites.site_store import OperationFailed
from experiments.sites.store_table import SITE_STORES, module_of
from experiments.sites.ycsb import measure_ycsb
from experiments.verdicts.claimed_points import claims, fog_points

SITE_TESTS = {
    "local": measure_local,
    "remote": measure_remote,
    "metadata": measure_metadata,
    "containment": measure_containment,
    "cut": measure_cut,
    "move": measure_move,
    "ycsb": measure_ycsb,
}
SITE_PARTS = {"access": ("local", "remote")} | {name: (name,) for name in list(SITE_TESTS)[2:]}
_ONE_SITE_TESTS = ("local", "ycsb")
"""Tests that a single site can run, too."""


class Study:
    """The measurements of a run of this program."""

    def __init__(self, scale: str, results: Path) -> None:
        self._extent, self._results = FOG_EXTENTS[scale], results
        self._began = datetime.now(UTC).isoformat()
        self.measured: list[Measurement] = []

    def note(self, measurement: Measurement) -> None:
        """Print and keep a measurement."""
        self.measured.append(measurement)
        outcome.append(self._results / outcome.FOG_FILE, measurement)
        work = " ".join(f"{value}" for value in measurement.work.values())
        figures = "  ".join(
            f"{name} {value:.3g}"
            for name, value in measurement.figures.items()
            if value or name not in ("failed", "wrong")
        )
        why = f"  ({measurement.why})" if measurement.why else ""
        print(f"  {measurement.test} {work}: {figures}{why}", flush=True)

    def through(self, store: str, sites: int, tests: Collection[str]) -> None:
        """Run the tests, each trial on a separate network and store."""
        for trial in range(1, self._extent.trials + 1):
            print(f"\n{store}, sites: {sites}, trial {trial}", flush=True)
            with bed([f"site{number}" for number in range(sites)]) as made:
                run(self._trial(made, store, trial, tests))

    async def _trial(
        self, made: FogNetwork, store: str, trial: int, tests: Collection[str]
    ) -> None:
        row = SITE_STORES[store]
        deployment = module_of(row).deployment(**row.options)
        try:
            began_s = time.monotonic()
            await deployment.start(made, row.replicas)
            print(f"  serves after {time.monotonic() - began_s:.1f} s", flush=True)
            scene = FogScene(made, store, deployment, self._extent, trial, self.note)
            for test, measure in SITE_TESTS.items():
                if test in tests and (len(made.sites) > 1 or test in _ONE_SITE_TESTS):
                    await self._measured(scene, measure.__name__, measure(scene))
        except ProgramNotStarted as error:
            print(f"  without {store}: {error}", flush=True)
        finally:
            await deployment.stop()

    async def _measured(self, scene: FogScene, name: str, work: Awaitable[None]) -> None:
        try:
            await work
        except OperationFailed as error:
            print(f"  {name} of {scene.store} came to no end: {error}", flush=True)

    def end(self) -> None:
        """Write runs for verdicts, and Table I."""
        outcome.keep(self._results, self.measured, self._began)
        print("\nTable I, from these measurements")
        for line in outcome.table_text(self.measured):
            print(f"  {line}")


def main() -> None:
    given = _arguments()
    if why := obstacle():
        raise SystemExit(why)
    end_on_sigterm()
    study = Study(given.scale, given.results)
    chosen_tests = {test for part in given.only for test in SITE_PARTS[part]}
    points = fog_points(claims()) if given.scale == POINTS else None
    try:
        for store in given.stores:
            if lacking := module_of(SITE_STORES[store]).missing():
                print(f"without {store}: {lacking}")
                continue
            for sites in given.sites:
                named = chosen_tests if points is None else points.get((store, sites), set())
                if tests := chosen_tests & named:
                    study.through(store, sites, tests)
    finally:
        study.end()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.sites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    scale = parser.add_mutually_exclusive_group()
    for flag, const, words in (
        ("--quick", "quick", "one trial, short (default)"),
        ("--paper-scale", "paper", "ten trials; a site is cut off for a minute"),
        ("--points", POINTS, "what claims name, in three trials, about an hour"),
    ):
        scale.add_argument(flag, dest="scale", action="store_const", const=const, help=words)
    parser.set_defaults(scale="quick")
    usual = ",".join(map(str, SITE_COUNTS))
    words = f"how many (default: {usual})"
    parser.add_argument("--sites", type=_counts, default=usual, metavar="N,...", help=words)
    add_choice(parser, "--stores", SITE_STORES, "NAME,...")
    add_choice(parser, "--only", SITE_PARTS)
    add_results(parser)
    return parser.parse_args()


def _counts(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isdecimal() and 1 <= int(count) <= BED_SITES_MAX for count in counts):
        raise argparse.ArgumentTypeError(f"numbers from 1 to {BED_SITES_MAX} with commas")
    return [int(count) for count in counts]


if __name__ == "__main__":
    try:
        main()
    except AresError as error:
        raise SystemExit(str(error)) from None
