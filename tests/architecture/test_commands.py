"""Commands that scripts know go on working, whatever module they are in."""

import subprocess

import pytest

from ares.machine.interpreter import python


@pytest.mark.parametrize("module", ["ares", "ares.sim", "ares.torture.kills", "ares.torture.fuzz"])
def test_it_is_there_and_refuses_what_it_does_not_know(module: str) -> None:
    told = subprocess.run(python("-m", module, "--no-such-option"), capture_output=True, text=True)
    assert (told.returncode, told.stdout, "--no-such-option" in told.stderr) == (2, "", True)


def test_the_simulators_status_is_that_of_its_runs() -> None:
    """A violation ends it with 1; `.ci/run` relies on that."""
    program = "import ares.testing.sim.__main__ as sim, runpy, sys; sim.main = lambda: 1; sys.argv = ['x']; runpy.run_module('ares.sim.__main__')"
    assert subprocess.run(python("-c", program), capture_output=True).returncode == 1
