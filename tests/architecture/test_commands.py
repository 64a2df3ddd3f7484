"""Commands that scripts know: they keep working when a module moves."""

import ast
import subprocess
from pathlib import Path

import pytest

import ares
from ares.platform.interpreter import python


@pytest.mark.parametrize(
    "module", ["ares", "ares.testing.sim", "ares.testing.kills", "ares.testing.fuzz"]
)
def test_it_is_there_and_refuses_what_it_does_not_know(module: str) -> None:
    told = subprocess.run(python("-m", module, "--no-such-option"), capture_output=True, text=True)
    assert (told.returncode, told.stdout, "--no-such-option" in told.stderr) == (2, "", True)


def test_the_simulators_status_is_that_of_its_runs() -> None:
    """A violation ends the simulator with 1; `.ci/run` relies on this."""
    program = (
        "import msgspec, runpy, sys; import ares.testing.sim.run as run; wrong = "
        "msgspec.structs.replace(run.run_plan(run.drawn(1, 'moving')), violation='wrong'); "
        "run.run_plan = lambda *_, **__: wrong; sys.argv = ['x', '--seed', '1', '--scenario', "
        "'moving']; runpy.run_module('ares.testing.sim', run_name='__main__')"
    )
    assert subprocess.run(python("-c", program), capture_output=True).returncode == 1


def test_what_a_module_runs_when_it_is_started_stands_at_its_end() -> None:
    """Definitions below the start do not exist yet.

    `python -P -m ares.testing.fuzz` ended with a NameError for this reason.
    """
    for path in Path(ares.__file__).parent.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        started = [
            place
            for place, node in enumerate(body, 1)
            if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
        ]
        assert started in ([], [len(body)]), path
