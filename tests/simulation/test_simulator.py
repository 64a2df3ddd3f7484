"""The simulator itself: runs repeat, the seeds of CI are clean, and findings are shrunk."""

import subprocess
from pathlib import Path

import msgspec
import pytest

from ares.fragment.divide import CHUNKINGS
from ares.platform.interpreter import python
from ares.testing.sim.plan import OBJECT_SCENARIOS, SimPlan, draw
from ares.testing.sim.run import run_plan, shrink
from tests.simulation.controls import CONTROLS, hunt

FEW_SEEDS, FIXED_SEEDS = range(6), range(6, 25)

ONCE_FAILED = sorted((Path(__file__).parent / "once_failed").glob("*.json"))
"""Plans (made smaller) that broke a promise in the past.

Plans are kept because the draws of a seed change with the scenarios.
"""


@pytest.mark.parametrize("scenario", sorted(OBJECT_SCENARIOS))
@pytest.mark.parametrize(
    "seeds", [FEW_SEEDS, pytest.param(FIXED_SEEDS, marks=pytest.mark.slow)], ids=["few", "more"]
)
def test_fixed_seeds_are_clean(scenario, seeds):
    for seed in seeds:
        verdict = run_plan(draw(seed, scenario))
        assert verdict.violation is None, (
            f"python -P -m ares.testing.sim --scenario {scenario} --seed {seed} --story"
        )


def test_files_are_cut_in_every_way(monkeypatch):
    seen = set()
    monkeypatch.setattr(
        "ares.testing.sim.run.judge_files",
        lambda chronicle: seen.update(genesis.chunking for *_, genesis in chronicle.geneses()),
    )
    for seed in FEW_SEEDS:
        run_plan(draw(seed, "files"))
    assert seen == set(CHUNKINGS)


@pytest.mark.parametrize("path", ONCE_FAILED, ids=lambda path: path.stem)
def test_plans_that_once_failed_are_clean(path):
    assert run_plan(msgspec.json.decode(path.read_bytes(), type=SimPlan)).violation is None


def test_the_same_seed_gives_the_same_run():
    for scenario in OBJECT_SCENARIOS:
        plan = draw(7, scenario)
        first, second = run_plan(plan), run_plan(plan, keep_story=True)
        assert first.digest == second.digest
        assert first.operations == second.operations
    assert run_plan(draw(7, "general")).digest != run_plan(draw(8, "general")).digest


@pytest.mark.parametrize("scenario", ["reconfigure", "journal", "rot"])
def test_the_same_seed_gives_the_same_run_in_another_process(scenario):
    """The run does not depend on hashes of strings or addresses of objects."""
    command = python("-m", "ares.testing.sim", "--seed", "3", "--scenario", scenario)
    runs = {
        subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": salt}
        ).stdout
        for salt in "12"
    }
    assert len(runs) == 1
    assert "clean" in runs.pop()


def test_a_violation_is_told_and_made_smaller():
    broken, scenario = CONTROLS["GC before finalize"]
    seed, _ = next(hunt("GC before finalize", 0, 50))
    with broken():
        plan = draw(seed, scenario)
        small = shrink(plan)
        verdict = run_plan(small, keep_story=True)
    assert verdict.violation is not None
    assert sum(len(client.steps) for client in small.clients) < sum(
        len(client.steps) for client in plan.clients
    )
    story = "\n".join(verdict.story)
    for word in ("BEGINS", "ENDS", "CollectConfig", "VIOLATION"):
        assert word in story


def test_a_run_that_never_ends_is_a_violation():
    """Liveness is judged: servers that swallow all messages after the healing are noticed."""
    from unittest.mock import patch

    with patch(
        "ares.testing.sim.simulated_server.SimServer.receive", lambda self, client, frames: None
    ):
        verdict = run_plan(draw(1, "calm"))
    assert verdict.violation is not None
    assert "did not finish" in verdict.violation


def test_many_seeds_from_the_command_line():
    command = python("-m", "ares.testing.sim", "--runs", "60", "--jobs", "2", "--scenario", "calm")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "60 runs of calm" in done.stdout
    assert "0 violations" in done.stdout
