"""A cluster of durable servers: killed at any moment, stopped, without a store."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import ares
from ares.platform.interpreter import python

from .warm_start import ares_cli

pytestmark = pytest.mark.process

ROUNDS = 6


def cli(*words: str | Path, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ares_cli(*words), input=stdin, capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def start(cluster: Path, server: str) -> subprocess.Popen[bytes]:
    """Run a single server up to the message of its readiness."""
    process = subprocess.Popen(
        python("-m", "ares", "server", str(cluster), "--id", server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"READY" in process.stdout.readline()
    return process


@pytest.fixture
def directory(tmp_path):
    cli("init", tmp_path / "c", "--servers", "3", "--consensus", "0", "--base-port", "0")
    return tmp_path / "c"


@pytest.fixture
def servers(directory):
    running = {server: start(directory / "cluster.toml", server) for server in ("s0", "s1", "s2")}
    yield running
    for process in running.values():
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_nothing_acknowledged_is_lost_when_all_servers_are_killed_again_and_again(
    directory, servers
):
    rng = random.Random(8)
    acknowledged: dict[str, bytes] = {}
    for round in range(ROUNDS):
        with ares.connect_blocking(directory / "cluster.toml") as store:
            for key, value in acknowledged.items():
                assert store.read(key) == value
            until = time.monotonic() + rng.random() * 0.5
            number = 0
            while time.monotonic() < until or not number:
                key, value = f"{round} {number % 50}", os.urandom(rng.choice([10, 3000, 40_000]))
                store.write(key, value)
                acknowledged[key] = value
                number += 1
        for process in servers.values():
            kill(process)
        servers.update({server: start(directory / "cluster.toml", server) for server in servers})
    with ares.connect_blocking(directory / "cluster.toml") as store:
        assert {key: store.read(key) for key in acknowledged} == acknowledged


@pytest.mark.slow
def test_a_server_without_its_store_is_refused_and_may_forget(directory, servers):
    with ares.connect_blocking(directory / "cluster.toml") as store:
        store.write("key", b"value")
        kill(servers.pop("s2"))
        shutil.rmtree(directory / "data" / "s2" / "journal")
        refused = subprocess.run(
            python("-m", "ares", "server", str(directory / "cluster.toml"), "--id", "s2"),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert refused.returncode == 1
        assert "is gone, although this server ran here before" in refused.stderr
        assert "--forget" in refused.stderr
        forgetful = subprocess.Popen(
            python(
                "-m", "ares", "server", str(directory / "cluster.toml"), "--id", "s2", "--forget"
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        servers["s2"] = forgetful
        assert b"READY" in forgetful.stdout.readline()
        kill(servers.pop("s1"))
        with pytest.raises(ares.Unavailable, match="lost its memory"):
            store.read("key", timeout_s=2)
        servers["s1"] = start(directory / "cluster.toml", "s1")
        assert store.read("key") == b"value"


@pytest.mark.slow
def test_a_server_without_its_segments_is_refused_until_they_are_back(directory, servers):
    """The server would begin empty under the old identity."""
    with ares.connect_blocking(directory / "cluster.toml") as store:
        store.write("key", b"value" * 3000)
        journal, aside = directory / "data/s2/journal", directory / "aside"
        while not any(b"value" * 3000 in path.read_bytes() for path in journal.glob("*.log")):
            time.sleep(0.05)  # this server may be the last to have it
        kill(servers.pop("s2"))
        aside.mkdir()
        for segment in journal.glob("*.log"):
            segment.rename(aside / segment.name)
        before = {
            path: path.read_bytes()
            for path in (directory / "data/s2").rglob("*")
            if path.is_file() and path.name != "lock"
        }
        refused = subprocess.run(
            python("-m", "ares", "server", directory / "cluster.toml", "--id", "s2"),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert refused.returncode == 1
        for words in (
            "segment 1 had begun, says ",
            "journal.anchor, and none is there",
            "nothing was changed",
            "bring all of them back",
            "--forget",
        ):
            assert words in refused.stderr
        assert before == {path: path.read_bytes() for path in before}
        assert store.read("key") == b"value" * 3000
        for segment in aside.iterdir():
            segment.rename(journal / segment.name)
        servers["s2"] = start(directory / "cluster.toml", "s2")
        kill(servers.pop("s1"))
        assert store.read("key") == b"value" * 3000


@pytest.mark.slow
def test_down_and_up_again_keeps_everything(tmp_path):
    directory, file = tmp_path / "c", tmp_path / "c" / "cluster.toml"
    cli("init", directory, "--base-port", "0")
    try:
        cli("up", directory, "--detach")
        cli("-c", file, "write", "greeting", stdin=b"hello")
        assert b"is on its servers' disks" in cli("down", directory)
        cli("up", directory, "--detach")
        assert cli("-c", file, "read", "greeting") == b"hello"
    finally:
        cli("down", directory)


@pytest.mark.slow
def test_up_starts_what_does_not_run(tmp_path):
    directory, file = tmp_path / "c", tmp_path / "c" / "cluster.toml"
    cli("init", directory, "--servers", "3", "--consensus", "1", "--base-port", "0")
    try:
        first = json.loads(cli("up", directory, "--detach", "--json"))
        cli("-c", file, "write", "greeting", stdin=b"hello")
        for id in ("s1", "s2", "r0"):
            os.kill(first["processes"][id]["pid"], signal.SIGKILL)
        again = json.loads(cli("up", directory, "--detach", "--json"))
        assert again["started"] == ["r0", "s1", "s2"]
        assert again["processes"]["s0"] == first["processes"]["s0"]
        assert cli("-c", file, "read", "greeting") == b"hello"
        up = subprocess.run(
            ares_cli("up", directory, "--detach"),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert up.returncode == 1
        assert "is up already" in up.stderr
        (directory / "data/s2/journal/identity").unlink()
        os.kill(again["processes"]["s2"]["pid"], signal.SIGKILL)
        up = subprocess.run(
            ares_cli("up", directory, "--detach"),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert up.returncode == 1
        assert "s2: ended with status 1: the store " in up.stderr
        assert cli("-c", file, "read", "greeting") == b"hello"
    finally:
        assert json.loads(cli("down", directory, "--json"))["stopped"] == ["r0", "s0", "s1"]
