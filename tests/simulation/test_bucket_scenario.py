"""The scenario `bucket`: runs repeat, and the seeds of CI are clean.

The controls are in test_bucket_controls.py.
"""

import msgspec
import pytest

from ares.testing.sim.buckets.bucket_plan import BucketPlan, draw_bucket
from ares.testing.sim.run import drawn, run_plan

GIVEN_UP_READ_SEED = 3263
"""A fetch ends after the end of the read, and finds a dropped blob."""

LATE_SNAPSHOT_SEED = 8441
"""A late command names a snapshot below the trim: a beginning process must pass over it."""

BUCKET_SEEDS = (*range(16), GIVEN_UP_READ_SEED, LATE_SNAPSHOT_SEED)
MORE_SEEDS = range(16, 80)


@pytest.mark.parametrize(
    "seeds", [BUCKET_SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=["few", "more"]
)
def test_fixed_seeds_of_buckets_are_clean(seeds):
    for seed in seeds:
        assert run_plan(draw_bucket(seed)).violation is None, (
            f"python -P -m ares.testing.sim --scenario bucket --seed {seed} --story"
        )


def test_the_same_seed_gives_the_same_run_of_buckets():
    first, second = run_plan(drawn(3, "bucket")), run_plan(drawn(3, "bucket"), keep_story=True)
    assert (first.digest, first.operations) == (second.digest, second.operations)
    assert first.operations > 0
    assert "SENDS" in "\n".join(second.story)
    assert run_plan(draw_bucket(4)).digest != first.digest


def test_a_plan_of_buckets_is_plain_data():
    plan = draw_bucket(5)
    assert msgspec.json.decode(plan.describe(), type=BucketPlan) == plan
