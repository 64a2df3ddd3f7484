"""Watches of a server with the compiled core (rule R26): changes come from the core's facts."""

from unittest.mock import patch

import pytest

from ares.compiled import CORE
from ares.testing.sim.plan import draw
from ares.testing.sim.run import run_plan

pytestmark = [
    pytest.mark.skipif(CORE is None, reason="this tests the compiled core: make core"),
    pytest.mark.slow,
]


def test_a_server_that_does_not_read_the_facts_of_its_core_is_caught():
    with patch("ares.server.storage_server._decode_facts", lambda _: []):
        violations = (run_plan(draw(seed, "watch-journal")).violation for seed in range(60))
        found = next(filter(None, violations), "")
    assert "is not told of" in found
