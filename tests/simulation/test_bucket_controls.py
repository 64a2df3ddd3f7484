"""Deliberately broken variants of buckets, each of which the simulator catches.

Each control has the first seed of its hunt, which noticed the control when it was written down.
"""

import pytest

from ares.testing.sim.run import drawn, run_plan
from tests.simulation.bucket_controls import BUCKET_FIRST_SEEDS

pytestmark = pytest.mark.slow

HUNTED_RUNS_MAX = 400


@pytest.mark.parametrize("control", BUCKET_FIRST_SEEDS, ids=lambda control: control.__name__)
def test_a_broken_index_of_buckets_is_caught(control):
    first = BUCKET_FIRST_SEEDS[control]
    with control():
        caught = any(
            run_plan(drawn(seed, "bucket")).violation is not None
            for seed in range(first, first + HUNTED_RUNS_MAX)
        )
    assert caught, f"{HUNTED_RUNS_MAX} runs noticed nothing"
