"""The scenario `log`: runs repeat, and the seeds of CI are clean.

The controls are in test_controls.py.
"""

import logging
import subprocess

import msgspec
import pytest

from ares.platform.interpreter import python
from ares.testing.sim.run import drawn, run_plan, shrink
from ares.testing.sim.shared_log.log_plan import FLAVOURS, LogPlan, draw_log
from tests.simulation.log_controls import LOG_CONTROLS

FEW_SEEDS, FIXED_SEEDS = range(5), range(5, 20)
ROTTEN_SEEDS = (8, 40, 41, 147, 164)


@pytest.mark.parametrize("flavour", range(len(FLAVOURS)))
@pytest.mark.parametrize(
    "numbers", [FEW_SEEDS, pytest.param(FIXED_SEEDS, marks=pytest.mark.slow)], ids=["few", "more"]
)
def test_fixed_seeds_are_clean(flavour, numbers):
    for seed in (flavour + number * len(FLAVOURS) for number in numbers):
        assert run_plan(draw_log(seed)).violation is None, (
            f"python -P -m ares.testing.sim --scenario log --seed {seed} --story"
        )


def test_servers_repair_rotten_places(caplog):
    """Each server starts from the repaired disk, and the checks see the repaired records."""
    caplog.set_level(logging.INFO, "ares.server.log_scrub")
    for seed in ROTTEN_SEEDS:
        assert run_plan(draw_log(seed)).violation is None
    assert caplog.text.count("repaired place") > 2


def test_a_client_follows_after_the_end_of_its_joint_reads():
    """A follow ran beside the next follow, and both moved the client's only follower."""
    assert run_plan(drawn(500_427, "log")).violation is None


def test_the_same_seed_gives_the_same_run():
    for seed in range(len(FLAVOURS)):
        first, second = run_plan(drawn(seed, "log")), run_plan(drawn(seed, "log"), keep_story=True)
        assert (first.digest, first.operations) == (second.digest, second.operations)
        assert first.operations > 0
        assert second.story
    assert run_plan(draw_log(0)).digest != run_plan(draw_log(6)).digest


def test_the_same_seed_gives_the_same_run_in_another_process():
    command = python("-m", "ares.testing.sim", "--seed", "3", "--scenario", "log")
    runs = {
        subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": salt}
        ).stdout
        for salt in "12"
    }
    assert len(runs) == 1
    assert "clean" in runs.pop()


def test_a_plan_is_plain_data():
    plan = draw_log(5)
    assert msgspec.json.decode(plan.describe(), type=LogPlan) == plan


def test_a_violation_is_told_and_made_smaller():
    control, _ = LOG_CONTROLS["finalized when one node has everything"]
    with control():
        plan = next(
            plan for plan in map(draw_log, range(50)) if run_plan(plan).violation is not None
        )
        small = shrink(plan)
        verdict = run_plan(small, keep_story=True)
    assert verdict.violation is not None
    assert sum(len(client.steps) for client in small.clients) < sum(
        len(client.steps) for client in plan.clients
    )
    story = "\n".join(verdict.story)
    for word in ("BEGINS", "DECIDES", "Seal", "VIOLATION"):
        assert word in story
