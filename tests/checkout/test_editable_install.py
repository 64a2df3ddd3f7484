"""Tests of an editable install beside a clone called `ares`.

A script beside the clone finds the package and the types.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
BUILD = """
import sys
from setuptools import build_meta
build_meta.build_editable(sys.argv[1])
"""
SCRIPT = """
import ares
print(ares.ORIGIN)
wrong: int = ares.ORIGIN
"""


def package(directory: Path, origin: str) -> None:
    """Write a package `ares` with its origin, and a version as ours."""
    (directory / "ares/platform").mkdir(parents=True)
    shutil.copy(CHECKOUT / "ares/platform/release.py", directory / "ares/platform")
    (directory / "ares/__init__.py").write_text(f"ORIGIN = {origin!r}\n")
    (directory / "ares/py.typed").touch()


def run(directory: Path, *words: str | Path, **environment: str) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        words,
        cwd=directory,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return ended.returncode, ended.stdout


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a directory with a clone called `ares` and a script, and the clone's Python."""
    pytest.importorskip("setuptools_rust")
    directory = tmp_path_factory.mktemp("beside")
    clone, wheels = directory / "ares", directory / "wheels"
    package(clone, "the clone")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, clone)
    wheels.mkdir()
    status, said = run(clone, sys.executable, "-P", "-c", BUILD, wheels, ARES_PURE="1")
    assert status == 0, said
    environment = directory / "venv"
    venv.create(environment, symlinks=True)
    interpreter = environment / "bin/python"
    paths = {"base": str(environment), "platbase": str(environment)}
    with zipfile.ZipFile(next(wheels.glob("*.whl"))) as archive:
        archive.extractall(sysconfig.get_path("purelib", "venv", paths))
    (directory / "script.py").write_text(SCRIPT)
    return directory, interpreter


def test_a_script_beside_the_clone_finds_the_package(beside):
    directory, interpreter = beside
    assert run(directory, interpreter, "script.py") == (0, "the clone\n")


def test_a_worktree_on_the_path_comes_first(beside, tmp_path):
    directory, interpreter = beside
    package(tmp_path, "the worktree")
    assert run(directory, interpreter, "script.py", PYTHONPATH=str(tmp_path)) == (
        0,
        "the worktree\n",
    )


def test_mypy_finds_the_types(beside):
    directory, interpreter = beside
    checking = (sys.executable, "-P", "-m", "mypy", "--config-file=", "--cache-dir=/dev/null")
    status, said = run(directory, *checking, "--python-executable", interpreter, "script.py")
    assert status == 1, said
    assert 'expression has type "str", variable has type "int"' in said
    assert "Found 1 error" in said
