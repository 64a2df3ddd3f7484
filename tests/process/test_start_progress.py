"""A start that lasts: the server tells its progress, and then serves at the same port."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.cluster.settings import Settings
from ares.platform.interpreter import python
from tests.operation.pages import health

from .test_up_down import ares

pytestmark = pytest.mark.process

HELD_START = """
import sys, time
from pathlib import Path
from ares.server.process_lifecycle import run_storage_server
from ares.store.journal.segment_journal import SegmentJournal

go, recover = Path(sys.argv[2]), SegmentJournal.recover

def held(self, join=None):
    for place, facts in recover(self):
        while not go.exists():
            time.sleep(0.01)
        yield place, facts

SegmentJournal.recover = held
run_storage_server(Path(sys.argv[1]), "s0")
"""
"""A server whose start waits in its first batch for a file."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """Make a stopped cluster whose servers have journals."""
    directory = tmp_path / "cluster"
    options = ("--servers", "3", "--base-port", "0", "--durability", "fsync")
    for command in (("init", directory, *options), ("up", directory, "--detach")):
        made = ares(*command)
        assert made.returncode == 0, made.stderr
    value = tmp_path / "value"
    value.write_bytes(bytes(1000))
    put = ares("--cluster", directory / "cluster.toml", "put", value, "key")
    assert put.returncode == 0, put.stderr
    ares("down", directory)
    yield directory
    ares("down", directory)


def server_seen(cluster: Path) -> dict[str, object]:
    done = ares("--cluster", cluster / "cluster.toml", "--json", "status")
    seen: dict[str, object] = json.loads(done.stdout)["servers"]["s0"]
    return seen


def test_status_tells_how_far_a_start_is(cluster: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = python("-c", HELD_START, cluster / "cluster.toml", go)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while "refused" in str((seen := server_seen(cluster)).get("why")):
                assert process.poll() is None
            assert seen["reachable"] is False
            assert str(seen["why"]).startswith("starting: ")
            assert "% of its journal of " in str(seen["why"])
            http = Settings.load(cluster / "cluster.toml").servers["s0"].http
            status, page = health(http)
            assert (status, page["why"]) == (503, seen["why"])
            told = ares("--cluster", cluster / "cluster.toml", "status")
            assert f"s0: {seen['why']}" in told.stdout
            assert told.returncode == 1, "no domain has a quorum"
            go.touch()
            assert process.stdout.readline().startswith("READY s0 ")
            assert server_seen(cluster)["reachable"] is True
        finally:
            process.send_signal(signal.SIGKILL)
