"""A machine that refuses a need of a command: the error names the need, and is the only output."""

import subprocess
from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.model.errors import BadInput
from ares.platform.interpreter import python
from ares.platform.named_files import NotToml, parse_toml


def stderr_of(script: str, *words: str) -> str:
    """Return the standard error of a command started by the shell."""
    started = subprocess.run(
        ["sh", "-c", script, "sh", *python("-m", "ares", *words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert started.returncode != 0
    return started.stderr


def test_too_few_descriptors_for_an_event_loop(tmp_path: Path) -> None:
    file = create(tmp_path, InitPlan(servers=3, consensus=1)).path
    for limit in (8, 10, 14):
        said = stderr_of(f'ulimit -n {limit}; exec "$@"', "-c", str(file), "ls")
        assert (
            said == "error: Too many open files: this process may not open enough of them; raise "
            "`ulimit -n`\n"
        )


@pytest.mark.parametrize("words", [["--help"], ["init", "--help"], ["--version"], []])
def test_help_that_cannot_be_written(words: list[str]) -> None:
    assert (
        stderr_of('exec "$@" > /dev/full', *words)
        == "error: No space left on device: standard output\n"
    )


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    said = stderr_of(f'cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec "$@"', "init", "x")
    assert (
        said
        == "error: the directory in which this was started does not exist any more: start it in "
        "another one\n"
    )


def test_an_integer_without_end_is_told_in_our_words() -> None:
    with pytest.raises(NotToml, match="one of its integers has thousands of digits") as refused:
        parse_toml(f"x = {'9' * 100_000}")
    assert "sys." not in str(refused.value)


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_of_init_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(
        BadInput, match="--host: expected the address that all processes listen on, and it is empty"
    ):
        create(tmp_path, InitPlan(servers=3, consensus=1, host=host))
