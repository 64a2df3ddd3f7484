"""Deliberately broken variants of buckets, each of which the simulator catches.

Each control has the first seed of its hunt, which noticed the control when it was written down.
"""

import pytest

from ares.testing.sim.buckets.bucket_plan import draw_bucket
from ares.testing.sim.run import run_plan
from tests.simulation.bucket_controls import BUCKET_FIRST_SEEDS, BUCKET_PLAYS

pytestmark = pytest.mark.slow

HUNTED_RUNS_MAX = 400


@pytest.mark.parametrize("control", BUCKET_FIRST_SEEDS, ids=lambda control: control.__name__)
def test_a_broken_index_of_buckets_is_caught(control):
    first, draw = BUCKET_FIRST_SEEDS[control], BUCKET_PLAYS.get(control, draw_bucket)
    with control():
        caught = any(
            run_plan(draw(seed)).violation is not None
            for seed in range(first, first + HUNTED_RUNS_MAX)
        )
    assert caught, f"{HUNTED_RUNS_MAX} runs noticed nothing"


@pytest.mark.parametrize("control", BUCKET_PLAYS, ids=lambda control: control.__name__)
def test_a_play_of_a_control_is_clean_without_the_control(control):
    assert run_plan(BUCKET_PLAYS[control](BUCKET_FIRST_SEEDS[control])).violation is None
