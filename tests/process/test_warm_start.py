"""A forked `ares-cli`, which acts like a command started by a user."""

import os
import subprocess
from pathlib import Path

import pytest

from ares.platform.interpreter import python

from .warm_start import ares_cli

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--version"], 0),
        (["no-such-command"], 2),
        (["down", "nowhere"], 2),
        (["ls", "--json"], 2),
        (["keys", "new", "\udcff", "--role", "none"], 2),
    ],
)
def test_it_answers_the_same_with_the_same_status(
    tmp_path: Path, words: list[str], status: int
) -> None:
    environment = os.environ | {"ARES_CLUSTER": str(tmp_path / "none.toml")}
    warm, cold = (
        subprocess.run(
            command, capture_output=True, check=False, timeout=240, cwd=tmp_path, env=environment
        )
        for command in (ares_cli(*words), python("-m", "ares", *words))
    )
    assert (warm.returncode, warm.stdout, warm.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )
    assert warm.returncode == status


def test_a_command_works_in_the_directory_of_its_caller(tmp_path: Path) -> None:
    subprocess.run(
        ares_cli("init", "here", "--servers", "3", "--consensus", "0"),
        cwd=tmp_path,
        capture_output=True,
        check=True,
        timeout=240,
    )
    assert (tmp_path / "here/cluster.toml").exists()


def test_a_command_ends_when_its_waiting_caller_is_killed(tmp_path: Path) -> None:
    """The command has begun to read before the kill.

    The output, which only the command holds open, ends with the command.
    """
    subprocess.run(
        ares_cli("init", tmp_path / "c", "--servers", "3", "--consensus", "0"),
        capture_output=True,
        check=True,
        timeout=240,
    )
    os.mkfifo(tmp_path / "pipe")
    command = ares_cli("-c", tmp_path / "c/cluster.toml", "write", "key", tmp_path / "pipe")
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as launcher,
        (tmp_path / "pipe").open("wb"),
    ):
        launcher.kill()
        assert launcher.stdout is not None
        assert launcher.stdout.read() == b""
