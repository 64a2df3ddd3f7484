"""The commands of README.md and the tutorials work in their order, like the examples in Python."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
REFERENCE = sorted(CHECKOUT.glob("docs/api*.md"))
STORIES = [CHECKOUT / "README.md", *sorted(CHECKOUT.glob("docs/learn-*.md"))]
AROUND = (
    "ares-cli init c\n"
    "ares-cli up c --detach\n"
    "export ARES_CLUSTER=$PWD/c/cluster.toml\n"
    "{}ares-cli down c"
)
ENDS_S = 540
BLOCK = re.compile(r"^```(\w*)\n((?:[^`].*\n|\n)*)```$|((?:^    .*\n|^\n(?=    ))+)", re.MULTILINE)

pytestmark = [pytest.mark.process, pytest.mark.slow]


def blocks(page: Path) -> Iterator[str]:
    """Yield the page's shell blocks (indented) and Python blocks (fenced), as shell scripts.

    Blocks with `make` are left out: they install.
    """
    for language, fenced, indented in BLOCK.findall(page.read_text()):
        if language == "python":
            yield f"python <<'PYTHON'\n{fenced}PYTHON\n"
        elif indented.strip() and "make demo" not in indented:
            yield textwrap.dedent(indented)


def story(page: Path) -> str:
    """Return a page as a script; the Python of README.md runs before the cluster goes down."""
    found = list(blocks(page))
    if page.name == "README.md":
        shell, python = found
        found = [shell.replace("ares-cli down", python + "ares-cli down")]
    return "\n".join(found)


def reference() -> str:
    """Return the examples of the reference as a script with a cluster for all of them."""
    return AROUND.format("".join(block for page in REFERENCE for block in blocks(page)))


@pytest.mark.parametrize("page", STORIES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    said = run(story(page), tmp_path)
    if page.stem == "learn-replicated-map":
        assert said.count("blue\n20\n") == 1


def test_the_examples_of_the_reference_run(tmp_path: Path) -> None:
    assert len(REFERENCE) == 7
    assert "survives 1 crash" in run(reference(), tmp_path)


def run(script: str, tmp_path: Path) -> str:
    """Run a script in an empty directory, also the home and /tmp; return the output."""
    shutil.copy(CHECKOUT / "LICENSE", tmp_path)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, line in (
        ("python", f'exec {sys.executable} -P "$@"'),
        ("ares-cli", f'exec {sys.executable} -P -m ares "$@"'),
    ):
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
    }
    script = script.replace(". .venv/bin/activate\n", "").replace("/tmp/", "$HOME/")
    script = script.replace("ares-cli init", "ares-cli init --base-port 0")
    try:
        ended = subprocess.run(
            ["bash", "-eux", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ENDS_S,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout
    finally:
        for made in {path.parent for path in tmp_path.glob("*/cluster.toml")}:
            subprocess.run(
                [commands / "ares-cli", "down", made], env=environment, capture_output=True
            )
