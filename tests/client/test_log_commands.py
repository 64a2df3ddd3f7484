"""Logs on the command line, and without asyncio, on real processes with stores.

The tests check output, refusals, and the cost of kills.
"""

import base64
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ares
from ares.platform.interpreter import python
from tests.process.command_line import Cli, running_cluster
from tests.process.warm_start import ares_cli

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    yield from running_cluster(tmp_path_factory.mktemp("logs") / "cluster")


@pytest.fixture
def log(cli: Cli, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    cli.ok("log", "create", name, "--servers", "s0,s1,s2")
    return name


def test_append_read_follow_and_trim(cli: Cli, log: str, tmp_path: Path) -> None:
    (tmp_path / "entry").write_bytes(b"\0first\xff")
    assert cli.ok("log", "append", log, tmp_path / "entry") == b"0\n"
    assert (
        cli.ok("log", "append", log, "--lines", stdin=b"two\n\nfour") == b"3 entries, from 1 to 3\n"
    )
    assert (
        cli.ok("log", "append", log, "--at", "4", "--lines", stdin=b"five\nsix\n")
        == b"2 entries, from 4 to 5\n"
    )
    assert cli.ok("log", "append", log, "--lines") == b"0 entries\n"
    assert cli.ok("log", "read", log, "0") == b"\0first\xff"
    assert cli.ok("log", "read", log, "0", "--uncommitted") == b"\0first\xff"
    assert cli.ok("log", "read", log, "1", "--to", "100") == b"two\n\nfour\nfive\nsix\n"
    assert cli.json("log", "read", log, "0") == {
        "position": 0,
        "base64": base64.b64encode(b"\0first\xff").decode(),
    }
    assert cli.ok("log", "tail", log) == b"6\n"
    cli.ok("log", "trim", log, "2")
    assert b"4, from 2 to 5" in cli.ok("log", "stat", log)
    told = cli.json("log", "stat", log)
    assert (told["first"], told["tail"], told["servers"]) == (2, 6, ["s0", "s1", "s2"])
    assert followed(cli, log, 4) == [(2, b""), (3, b"four"), (4, b"five"), (5, b"six")]
    assert cli.json("log", "append", log, "--lines") == {
        "log": log,
        "entries": 0,
        "position": None,
        "last": None,
    }


def followed(cli: Cli, log: str, count: int) -> list[tuple[int, bytes]]:
    """Return the output of `follow` until an interrupt."""
    command = python("-m", "ares", "log", "follow", log, "--json")
    environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        lines = [json.loads(follower.stdout.readline()) for _ in range(count)]
        follower.send_signal(signal.SIGINT)
        assert b"goes on where this ended" in follower.stderr.read()
    assert follower.returncode == 130
    return [(line["position"], base64.b64decode(line["base64"])) for line in lines]


def test_what_cannot_be_done_is_told(cli: Cli, log: str) -> None:
    cli.ok("log", "append", log, stdin=b"x")
    assert "nothing is at position 7" in cli.fails(1, "log", "read", log, "7")
    assert "did not get position 0" in cli.fails(1, "log", "append", log, "--at", "0", stdin=b"x")
    assert "the log ends at 1, so nothing can be at 9 yet" in cli.fails(
        1, "log", "append", log, "--at", "9", stdin=b"x"
    )
    assert "ends at 1" in cli.fails(2, "log", "trim", log, "5")
    assert "at most 1.0 MiB" in cli.fails(2, "log", "append", log, stdin=bytes(2**20 + 1))
    assert "line 1 has more than" in cli.fails(
        2, "log", "append", log, "--lines", stdin=bytes(2**20 + 1)
    )
    told = cli.fails(1, "log", "append", log, "--lines", stdin=b"a\n" * 5000 + bytes(2**20 + 1))
    assert (
        "5000 lines are in the log, the last at 5000, and nothing after them: line 5001 has more "
        "than" in told
    )
    assert "is a log, which holds no objects" in cli.fails(
        2, "write", "--domain", log, "key", stdin=b"x"
    )
    assert "is no log" in cli.fails(2, "log", "tail", "default")
    assert "`ares-cli log create nowhere" in cli.fails(1, "log", "tail", "nowhere")
    assert "exists already" in cli.fails(1, "log", "create", log, "--servers", "s1,s2,s3")
    assert "one crash stops it" in cli.fails(2, "log", "create", "short", "--servers", "s0,s1")
    assert "no log" in cli.fails(1, "reconfig", "--dap", "chain", "--servers", "s0,s1,s2")
    assert "--dap chain" in cli.fails(
        1, "reconfig", "--domain", log, "--dap", "abd", "--servers", "s0,s1,s2"
    )
    assert "beyond P" in cli.fails(2, "log", "read", log, "3", "--to", "3")
    assert "cannot be read" in cli.fails(2, "log", "append", log, cli.directory)


def test_commands_about_all_domains_pass_over_logs(cli: Cli, log: str) -> None:
    cli.ok("write", "key", stdin=b"value")
    assert [log, "chain", "n=3"] in [
        line.split()[:3] for line in cli.ok("domain", "ls").decode().splitlines()
    ]
    assert cli.ok("collect").startswith(b"0 blocks")
    moved = cli.json("reconfig", "--all", "--dap", "abd", "--servers", "s0,s1,s2")
    assert log not in [domain["domain"] for domain in moved["domains"]]
    assert f"{log}: chain 3, survives 1 more crash" in cli.ok("status").decode()
    assert b"key" in cli.ok("ls")


@pytest.mark.slow
def test_kills_of_servers_and_moves(cli: Cli, log: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(50_000))
    assert (
        cli.ok("log", "append", log, "--lines", stdin=lines) == b"50000 entries, from 0 to 49999\n"
    )
    for number, (dead, chain) in enumerate([("s1", "s0,s2,s3"), ("s0", "s1,s2,s3")]):
        cli.kill(dead)
        assert "may be in the log" in cli.fails(
            1, "log", "append", log, "--timeout", "1.5", stdin=b"under way"
        )
        assert f"NO APPENDS: {dead} is down" in cli.ok("status").decode()
        cli.ok("reconfig", "--domain", log, "--dap", "chain", "--servers", chain)
        tail = int(cli.ok("log", "append", log, "--timeout", "5", stdin=b"after %d" % number))
        assert cli.ok("log", "read", log, "0", "--to", "50000") == lines
        assert cli.ok("log", "read", log, str(tail)) == b"after %d" % number
        subprocess.run(
            ares_cli("up", cli.directory, "--detach"), capture_output=True, check=True, timeout=100
        )
    for dead in ("s0", "s1", "s2"):
        cli.kill(dead)
    subprocess.run(
        ares_cli("up", cli.directory, "--detach"), capture_output=True, check=True, timeout=100
    )
    assert cli.ok("log", "read", log, "0", "--to", "50000") == lines
    assert int(cli.ok("log", "append", log, stdin=b"last")) == tail + 1


def test_a_log_is_used_without_asyncio(cli: Cli, log: str) -> None:
    with ares.connect_blocking(cli.settings) as store:
        events = store.log(log)
        assert [events.append(b"%d" % number) for number in range(3)] == [0, 1, 2]
        assert events.append_many([b"3", b"4"]) == 3
        assert events.read(4) == b"4"
        with pytest.raises(ares.NotWritten):
            events.read(5)
        found = events.follow(1)
        assert [next(found) for _ in range(4)] == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
        found.close()
        assert events.tail() == 5
        events.trim(1)
        assert events.stat().first == 1
        moved = store.reconfigure(ares.Configuration.chain(["s1", "s2", "s3"]), domain=log)
        assert moved.configuration.index == 1
        assert events.append(b"5") == 5
        assert [
            domain.name
            for domain in store.domains()
            if domain.configuration.dap == "chain" and domain.name == log
        ] == [log]


@pytest.mark.slow
def test_the_role_of_a_key_permits_read_append_or_move(tmp_path: Path) -> None:
    for cli in running_cluster(tmp_path / "cluster", "--security", "curve"):
        keys = {
            role: Path(cli.json("keys", "new", f"a-{role}", "--role", role)["secret"])
            for role in ("read", "write", "reconfigure")
        }
        assert "not authorized" in cli.fails(
            1, "--key", keys["write"], "log", "create", "events", "--servers", "s0,s1,s2"
        )
        cli.ok("--key", keys["reconfigure"], "log", "create", "events", "--servers", "s0,s1,s2")
        assert cli.ok("--key", keys["write"], "log", "append", "events", stdin=b"a") == b"0\n"
        told = cli.fails(1, "--key", keys["read"], "log", "append", "events", stdin=b"b")
        assert "not authorized" in told
        assert "nothing was changed" in told
        assert cli.ok("--key", keys["read"], "log", "read", "events", "0") == b"a"
        assert "not authorized" in cli.fails(1, "--key", keys["read"], "log", "trim", "events", "1")
        move = ("reconfig", "--domain", "events", "--dap", "chain", "--servers", "s1,s2,s3")
        assert b"not authorized" in cli.run("--key", keys["write"], *move).stderr
        assert cli.ok("--key", keys["write"], "log", "append", "events", stdin=b"b") == b"1\n", (
            "it was not sealed"
        )
        cli.ok("--key", keys["reconfigure"], *move)
        assert cli.ok("--key", keys["write"], "log", "append", "events", stdin=b"c") == b"2\n"
        assert "NO APPENDS" not in cli.ok("status").decode()
