"""Recipes of the Makefile with several steps: a failed step hides no other step."""

import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
STEPS = {
    "bench": (
        " --servers 3",
        " --servers 5",
        ".logs --only speed",
        ".moving",
        ".scale",
        ".performance_page",
    ),
    "experiments-quick": (" run", ".logs"),
    "experiments-points": (" run", ".logs", ".sites", " verdicts"),
}


def made(directory: Path, target: str, failing: str) -> tuple[int, list[str]]:
    """Return the exit status and the steps; a step that contains ``failing`` fails."""
    step = directory / "step"
    step.write_text(
        f'#!/bin/sh\necho "$*" >>{directory}/steps\ncase "$*" in *"{failing}"*) exit 3;; esac\n'
    )
    step.chmod(0o755)
    words = [f"{name}={step} module" for name in ("EXPERIMENTS", "BENCH")]
    command = ["make", "-f", str(CHECKOUT / "Makefile"), "-o", ".venv/.bench-installed"]
    ended = subprocess.run([*command, *words, target], cwd=directory, capture_output=True)
    return ended.returncode, (directory / "steps").read_text().splitlines()


@pytest.mark.parametrize(
    ("target", "failing"),
    [(target, failing) for target, steps in STEPS.items() for failing in ("no step", *steps)],
)
def test_each_step_runs_and_a_failed_step_is_told(tmp_path, target, failing):
    status, steps = made(tmp_path, target, failing)
    assert (status != 0) == (failing != "no step")
    wanted = iter(steps)
    assert all(any(words in step for step in wanted) for words in STEPS[target])
