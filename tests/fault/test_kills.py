"""kill -9 in short loops; `python -P -m ares.testing.kills` runs thousands of kills."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from ares.platform.interpreter import python
from ares.testing.kills.kills import kill_members, kill_servers
from ares.testing.kills.storm import StormLimits

pytestmark = [pytest.mark.process, pytest.mark.slow]


def servers(directory, kills: int, durability: str, seed: int):
    return kill_servers(directory / "c", StormLimits(kills), 5, seed, durability)


def test_servers_that_are_killed_lose_nothing(tmp_path):
    report = servers(tmp_path, 60, "fsync", 1)
    assert report.findings == []
    assert report.toll.kills >= 60
    assert report.toll.starting > 0
    assert report.toll.all_at_once > 0
    assert report.operations.writes > 20
    assert report.checked > 100
    assert (tmp_path / "c/run").is_dir()


def test_servers_that_forget_are_caught(tmp_path):
    report = servers(tmp_path, 60, "memory", 2)
    told = ("refused", "pointer", "lost", "is unknown, and was answered for")
    assert any(words in finding for finding in report.findings for words in told)
    assert not (tmp_path / "c/run").exists()


def test_consensus_members_that_are_killed_never_decide_twice(tmp_path):
    report = kill_members(tmp_path / "c", StormLimits(20), 3, 3)
    assert report.findings == []
    assert report.toll.kills >= 20
    assert report.decisions > 0
    assert report.checked == 3 * report.decisions
    assert (tmp_path / "c/run").is_dir()


def in_session(leader: int) -> list[str]:
    """Return the processes of a session, by pid.

    The fields of stat come after the command in parentheses.
    """
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(stat.parent.name)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_running_by_a_run_that_is_ended(tmp_path, number):
    command = python("-m", "ares.testing.kills", "--kills", "100000", "--dir", tmp_path)
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        while len(in_session(run.pid)) < 8:
            assert run.poll() is None
        os.kill(run.pid, number)
        run.communicate(timeout=240)
    finally:
        run.kill()
    while in_session(run.pid):
        pass  # each process ends in its own time; the test runner's patience bounds this
    assert number == signal.SIGKILL or list(tmp_path.iterdir()) == []
