"""The simulator's runs, equal with the compiled core and without.

Servers send the same bytes, at the same times.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ares.compiled import CORE
from ares.platform.environment import PURE_VARIABLE
from ares.platform.interpreter import python
from ares.testing.sim.run import drawn, quiet, run_plan

pytestmark = pytest.mark.skipif(CORE is None, reason="nothing is compiled")

SCENARIOS = [
    "general",
    "calm",
    "crash",
    "moving",
    "coverable",
    "journal",
    "rot",
    "gone",
    "transfer",
    "overload",
]
SEEDS = range(500, 502)
_PROGRAM = "from tests.compiled.test_same_digests import digests; print(digests())"


def digests(scenarios=SCENARIOS):
    quiet()
    return [run_plan(drawn(seed, scenario)).digest for scenario in scenarios for seed in SEEDS]


def test_runs_are_the_same_without_the_core():
    environment = os.environ | {PURE_VARIABLE: "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    pure = subprocess.run(
        python("-c", _PROGRAM),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert pure.stdout.strip() == str(digests())


def test_another_answer_is_noticed(monkeypatch):
    """A control: a core without some random acknowledgements."""
    before = digests(["general"])
    server, taken = CORE.ServerCore, []

    class Forgetful:
        def __init__(self, *of) -> None:
            self._core = server(*of)

        def serve(self, *came):
            served = self._core.serve(*came)
            taken.append(served)
            return Silent(served) if served is not None and len(taken) % 20 == 0 else served

    class Silent:
        reply = None

        def __init__(self, served) -> None:
            self._served = served

        def __getattr__(self, name):
            return getattr(self._served, name)

    monkeypatch.setattr("ares.testing.sim.simulated_server.server_core", Forgetful)
    assert digests(["general"]) != before
