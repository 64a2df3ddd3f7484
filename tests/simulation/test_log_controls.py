"""Deliberately broken variants of the shared log, each of which the simulator catches.

They are apart from the others because no process of theirs has a compiled core.
"""

import pytest

from tests.simulation.controls import hunt
from tests.simulation.log_controls import FIRST_SEEDS
from tests.simulation.log_disk_controls import DISK_FIRST_SEEDS
from tests.simulation.log_rule_controls import RULE_FIRST_SEEDS

pytestmark = pytest.mark.slow

LOG_VARIANTS = {
    control.__name__.replace("_", " "): seed
    for control, seed in (FIRST_SEEDS | DISK_FIRST_SEEDS | RULE_FIRST_SEEDS).items()
}
"""The first seed of each variant's hunt."""

RUNS_MAX = 6000


@pytest.mark.parametrize("name", LOG_VARIANTS)
def test_a_broken_log_is_caught(name):
    caught = next(hunt(name, LOG_VARIANTS[name], RUNS_MAX), None)
    assert caught is not None, f"{name}: {RUNS_MAX} runs noticed nothing"
