"""Tests of building the compiled core by `make`, with stand-ins for cargo.

The stand-ins work, fail, hang or are missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
TOOLS = ("cp", "dirname", "make", "rm", "sed", "sh", "sleep", "tail", "test", "timeout", "touch")
COUNTING = 'echo "building $*" >>"$PWD/calls"\n'
WORKS = COUNTING + "mkdir -p core/target/release && touch core/target/release/libares_core.so\n"
FAILS = COUNTING + "echo 'error: rustc 1.63 is too old' >&2\nexit 101\n"
HANGS = COUNTING + "echo 'Compiling ares-core'\nexec sleep 600\n"


class Checkout:
    """A directory with the Makefile and scripts, an installed .venv, and no crate."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.programs = directory / "programs"
        for name in (".venv/bin", "ares", "core", "programs"):
            (directory / name).mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "core/build", "core/Cargo.toml"):
            shutil.copy(CHECKOUT / name, directory / name)
        (directory / "core/Cargo.lock").touch()
        for tool in (*TOOLS, "mkdir"):
            found = shutil.which(tool)
            assert found is not None, tool
            (self.programs / tool).symlink_to(found)
        (directory / ".venv/bin/python").symlink_to(sys.executable)
        self._program(directory / ".venv/bin/ares-cli", "echo ares\n")
        self.log = directory / ".venv/core-build.log"
        (directory / ".venv/.installed").touch()

    @staticmethod
    def _program(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def cargo(self, script: str) -> None:
        self._program(self.programs / "cargo", script)

    def make(self, *words: str) -> tuple[int, str]:
        ended = subprocess.run(
            ("make", *words),
            cwd=self.directory,
            env={**os.environ, "PATH": str(self.programs)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        return ended.returncode, ended.stdout

    @property
    def calls(self) -> int:
        path = self.directory / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def cores(self) -> int:
        return len(list((self.directory / "ares").glob("_core*.so")))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_core_that_was_built_is_not_built_again(checkout):
    checkout.cargo(WORKS)
    assert (checkout.make("venv")[0], checkout.calls, checkout.cores) == (0, 1, 1)
    assert (checkout.make("venv")[0], checkout.calls, checkout.cores) == (0, 1, 1)
    assert (checkout.make("core")[0], checkout.calls, checkout.cores) == (0, 2, 1)


def test_a_failure_is_told_and_tried_again(checkout):
    checkout.cargo(WORKS)
    checkout.make("venv")
    checkout.cargo(FAILS)
    (checkout.directory / "core/Cargo.toml").touch()
    status, said = checkout.make("venv")
    assert (status, checkout.cores) == (0, 0)
    assert "cargo failed with status 101" in said
    assert "rustc 1.63 is too old" in said
    assert "rustc 1.63 is too old" in checkout.log.read_text()
    assert "ares runs in Python instead, only slower" in said
    checkout.make("venv")
    assert checkout.calls == 3
    checkout.cargo(WORKS)
    assert (checkout.make("venv")[0], checkout.cores) == (0, 1)


def test_a_time_limit_is_no_failure(checkout):
    checkout.cargo(HANGS)
    status, said = checkout.make("venv", "CORE_SECONDS=1")
    assert status == 0
    assert "not ready within 1 s" in said
    assert "cargo failed" not in said
    assert "Compiling ares-core" in said
    assert "`make core CORE_SECONDS=4` waits longer" in said
    assert "Compiling ares-core" in checkout.log.read_text()
    checkout.make("venv", "CORE_SECONDS=1")
    assert checkout.calls == 2


def test_without_cargo_the_next_make_looks_again(checkout):
    status, said = checkout.make("venv")
    assert (status, "no cargo here" in said, "`make core`" in said) == (0, True, True)
    checkout.cargo(WORKS)
    assert (checkout.make("venv")[0], checkout.cores) == (0, 1)


@pytest.mark.parametrize("script", [FAILS, None])
def test_making_the_core_alone_fails_without_it(checkout, script):
    if script is not None:
        checkout.cargo(script)
    assert checkout.make("core")[0] != 0
