"""The commands that use a cluster, against real processes: output, refusals, survival."""

import asyncio
import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.cli.terminal import size
from ares.client.connect import connect
from ares.consensus.remote import RemoteConsensus
from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN, VALUE_BYTES_DEFAULT, ClientId
from ares.net.libzmq import ZmqConnections
from ares.platform.interpreter import python

from .command_line import Cli, running_cluster
from .warm_start import ares_cli

pytestmark = pytest.mark.process

ABD_3 = "ABD n=3 on s0,s1,s2; quorum 2, survives 1 crash"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Yield a running cluster that the tests share; each test uses separate keys and domains."""
    yield from running_cluster(tmp_path_factory.mktemp("shared") / "cluster")


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Cli]:
    """Yield a running cluster; the test may kill processes of the cluster."""
    yield from running_cluster(tmp_path / "cluster")


def test_an_object_lives_and_dies(cli: Cli, tmp_path: Path) -> None:
    value = bytes(range(256)) * 40
    (tmp_path / "in").write_bytes(value)
    told = cli.json("write", "life/a", tmp_path / "in")
    assert (told["key"], told["bytes"], told["domain"]) == ("life/a", len(value), "default")
    assert cli.ok("read", "life/a") == value
    assert base64.b64decode(cli.json("read", "life/a")["base64"]) == value
    stat = cli.json("stat", "life/a")
    assert (stat["tag"], stat["bytes"]) == (told["tag"], len(value))
    assert told["tag"] in cli.ok("stat", "life/a").decode()
    assert cli.ok("write", "life/b", stdin=b"").startswith(b"life/b: 0 bytes, tag 1.")
    assert cli.ok("read", "life/b") == b""
    assert cli.ok("ls", "life/") == b"life/a\nlife/b\n"
    assert cli.json("ls", "life/b") == {"domain": "default", "prefix": "life/b", "keys": ["life/b"]}
    assert b"deleted" in cli.ok("delete", "life/a")
    assert cli.fails(1, "delete", "life/a") == "error: no object 'life/a' in domain 'default'\n"
    assert cli.fails(1, "read", "life/a") == cli.fails(1, "stat", "life/a")
    assert cli.ok("ls", "life/") == b"life/b\n"


def test_changes_are_told_as_they_come_and_a_watch_goes_on(cli: Cli) -> None:
    def watching(*words: str) -> subprocess.Popen[bytes]:
        command = ares_cli("watch", "seen/", "--json", *words)
        environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)} | cli.environment
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)

    tag = cli.json("write", "seen/a", Path(__file__))["tag"]
    with watching() as watch:
        assert watch.stdout is not None
        first = json.loads(watch.stdout.readline())
        assert (first["key"], first["tag"], first["kind"]) == ("seen/a", tag, "write")
        cli.json("delete", "seen/a")
        second = json.loads(watch.stdout.readline())
        assert (second["key"], second["kind"]) == ("seen/a", "delete")
        watch.kill()
    cli.json("write", "seen/b", Path(__file__))
    with watching("--since", second["since"]) as watch:
        assert watch.stdout is not None
        keys = []
        while "seen/b" not in keys:
            keys.append(json.loads(watch.stdout.readline())["key"])
        watch.kill()
    assert "no point" in cli.fails(2, "watch", "--since", "x")


@pytest.mark.parametrize("words", [("write",), ("trace", "write")], ids=" ".join)
def test_a_cluster_file_that_is_a_pipe_is_read_once(
    cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=(cli.settings.path.read_text(),))
    writing.start()
    cli.environment["OTEL_TRACES_EXPORTER"] = "none"
    try:
        cli.ok("-c", pipe, *words, "piped", stdin=b"value")
    finally:
        del cli.environment["OTEL_TRACES_EXPORTER"]
        writing.join()
    assert cli.ok("read", "piped") == b"value"


def test_an_output_file_appears_complete_and_keeps_its_mode(cli: Cli, tmp_path: Path) -> None:
    cli.ok("write", "out", "-", stdin=b"secret")
    target = tmp_path / "target"
    target.write_text("what was there before, and longer")
    target.chmod(0o600)
    (tmp_path / "link").symlink_to(target)
    assert cli.json("read", "out", "-o", tmp_path / "link")["bytes"] == 6
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"secret", 0o600)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "target"]
    cli.fails(1, "read", "no such object", "-o", target)
    assert target.read_bytes() == b"secret"
    cli.ok("read", "out", "-o", "/dev/null")
    assert not Path("/dev/null").is_file()


@pytest.mark.slow
def test_where_there_was_no_room_is_named(cli: Cli) -> None:
    cli.ok("write", "full", stdin=b"x")
    assert (
        cli.fails(1, "read", "full", "-o", "/dev/full")
        == "error: No space left on device: /dev/full\n"
    )
    with open("/dev/full", "wb") as full:
        for words in (["read", "full"], ["ls"], ["status"]):
            command = python("-m", "ares", "-c", str(cli.settings.path), *words)
            done = subprocess.run(
                command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=240
            )
            assert (done.returncode, done.stderr) == (
                1,
                "error: No space left on device: standard output\n",
            )


def test_a_name_cannot_speak_to_the_terminal(cli: Cli) -> None:
    cli.ok("write", "evil\x1b[31m", stdin=b"x")
    assert cli.ok("ls", "evil") == b"'evil\\x1b[31m'\n"
    assert cli.json("ls", "evil")["keys"] == ["evil\x1b[31m"]


def test_what_cannot_be_stored_is_refused_before_anything_is_sent(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as big:
        big.truncate(VALUE_BYTES_DEFAULT + 1)
    assert f"more than the {VALUE_BYTES_DEFAULT} bytes" in cli.fails(
        2, "write", "refused", tmp_path / "big"
    )
    assert "No such file" in cli.fails(2, "write", "refused", tmp_path / "missing")
    assert "Is a directory" in cli.fails(2, "write", "refused", tmp_path)
    assert "1 to 1024 bytes" in cli.fails(2, "write", "", stdin=b"x")
    assert "no directory" in cli.fails(2, "read", "refused", "-o", tmp_path / "no/where")
    cli.fails(1, "stat", "refused")


@pytest.mark.parametrize(
    "words",
    ["write k", "read k", "delete k", "ls", "stat k", "reconfig --dap abd --servers s0,s1,s2"],
)
def test_a_domain_that_was_never_made(cli: Cli, words: str) -> None:
    assert "no domain 'nowhere'" in cli.fails(1, *words.split(), "--domain", "nowhere")


def test_domains_are_apart_and_have_their_own_configuration(cli: Cli) -> None:
    made = cli.json(
        "domain", "create", "apart", "--dap", "ec", "--k", "2", "--servers", "s0,s1,s2,s3"
    )
    assert (made["dap"], made["k"], made["crashes_survived"]) == ("ec", 2, 1)
    again = cli.fails(1, "domain", "create", "apart")
    assert "exists already" in again
    assert made["configuration"] in again
    cli.ok("write", "k", "--domain", "apart", stdin=b"there")
    cli.fails(1, "read", "k")
    assert cli.ok("read", "k", "--domain", "apart") == b"there"
    assert cli.json("stat", "k", "--domain", "apart")["configuration"] == made["configuration"]
    assert {
        domain["domain"]: domain["configuration"] for domain in cli.json("domain", "ls")["domains"]
    }["apart"] == made["configuration"]


def test_a_reconfiguration_shows_itself_first_and_a_new_domain_takes_after_it(mortal: Cli) -> None:
    cli = mortal
    cli.ok("write", "k", stdin=b"kept")
    dry = cli.ok("reconfig", "--dap", "ec", "--servers", "s0,s1,s2,s3", "--dry-run").decode()
    assert "ABD n=4" in dry
    assert "EC n=4 k=2" in dry
    assert "nothing was changed" in dry
    assert cli.json("stat", "k")["index"] == 0
    [moved] = cli.json("reconfig", "--dap", "ec", "--servers", "s0,s1,s2,s3")["domains"]
    assert (moved["ours"], moved["moved"], moved["bytes"], moved["after"]["index"]) == (
        True,
        1,
        4,
        1,
    )
    assert (cli.ok("read", "k"), cli.json("stat", "k")["index"]) == (b"kept", 1)
    [same] = cli.json("reconfig", "--dap", "ec", "--servers", "s0,s1,s2,s3")["domains"]
    assert (same["ours"], same["moved"], same["after"]) == (True, 0, moved["after"])
    assert (
        "nothing to do: that is the configuration"
        in cli.ok("reconfig", "--dap", "ec", "--servers", "s0,s1,s2,s3").decode()
    )
    again = ("reconfig", "--dap", "ec", "--servers", "s0,s1,s2,s3", "--anyway")
    [anyway] = cli.json("--no-ahead", *again)["domains"]
    assert (anyway["moved"], anyway["after"]["index"]) == (1, 2)
    assert cli.json("domain", "create", "heir")["configuration"] == moved["after"]["configuration"]
    every = cli.json("reconfig", "--all", "--dap", "abd", "--servers", "s0,s1,s2")["domains"]
    assert [(domain["domain"], domain["after"]["configuration"]) for domain in every] == [
        ("default", ABD_3),
        ("heir", ABD_3),
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--dap", "abd", "--servers", "s0,s1,s9"], "unknown server s9; known: s0, s1, s2, s3"),
        (["--dap", "abd", "--servers", "s0,,s1"], "one comma between two"),
        (["--dap", "abd", "--servers", "s0,s0,s1"], "named twice"),
        (["--dap", "abd", "--servers", "s0,s1"], "say --allow-no-faults"),
        (["--dap", "abd", "--servers", "s0,s1,s2", "--k", "2"], "belong to --dap ec"),
        (["--dap", "ec", "--servers", "s0,s1,s2", "--k", "3"], "1 <= k < 3, not k = 3"),
        (["--dap", "ec", "--servers", "s0,s1,s2", "--k", "many"], "--k"),
        (["--dap", "ec", "--servers", "s0,s1,s2", "--delta", "0"], "must be from 1 to 1000, not 0"),
        (["--dap", "raid", "--servers", "s0,s1,s2"], "--dap"),
        (["--dap", "abd"], "--servers is missing"),
        (["--servers", "s0,s1,s2"], "--dap is missing"),
    ],
)
@pytest.mark.parametrize(
    "command", [["reconfig"], ["domain", "create", "never"]], ids=["reconfig", "create"]
)
def test_a_configuration_that_makes_no_sense_is_wrong_usage(
    cli: Cli, command: list[str], words: list[str], why: str
) -> None:
    assert why in cli.fails(2, *command, *words)


@pytest.mark.slow
def test_reconfig_completes_another_clients_decision(mortal: Cli) -> None:
    cli = mortal

    async def decide_and_die() -> None:
        async with connect(cli.settings) as manager:
            theirs = (await manager.identified(Configuration.abd(["s0", "s1", "s2"]))).at(
                DEFAULT_DOMAIN, 1, cli.settings.initial.id
            )
        consensus = RemoteConsensus(
            ZmqConnections(),
            {member.id: member.address for member in cli.settings.members.values()},
        )
        await consensus.propose(theirs, ClientId(1), 20.0)
        await consensus.close()

    cli.ok("write", "k", stdin=b"kept")
    asyncio.run(decide_and_die())
    done = cli.run("reconfig", "--dap", "abd", "--servers", "s1,s2,s3")
    assert done.returncode == 1
    assert (
        f"another client's proposal was decided first and is completed: {ABD_3} is in force now"
        in done.stdout.decode()
    )
    assert cli.json("stat", "k")["configuration"] == ABD_3
    assert cli.ok("read", "k") == b"kept"


@pytest.mark.slow
def test_status_tells_what_could_fail_next(mortal: Cli) -> None:
    cli = mortal
    cli.ok("domain", "create", "three", "--dap", "abd", "--servers", "s0,s1,s2")
    whole = cli.json("status")
    assert {domain["domain"]: domain["crashes_survived"] for domain in whole["domains"]} == {
        "default": 1,
        "three": 1,
    }
    assert all(server["reachable"] for server in whole["servers"].values())
    assert {member["leader"] for member in whole["consensus"].values()} <= {"r0", "r1", "r2", ""}
    cli.kill("s0")
    told = cli.ok("status").decode()
    assert "three: ABD 3, survives 0 more crashes: s0 is down" in told
    assert "\ns0: connection refused: is it running?\n" in told
    cli.ok("reconfig", "--dap", "abd", "--servers", "s1,s2,s3")
    moved = cli.json("status")["domains"]
    assert [
        (domain["domain"], domain["crashes_survived"], domain["index"]) for domain in moved
    ] == [("default", 1, 1), ("three", 0, 0)]
    cli.kill("s1")
    default, three = cli.json("status", status=1)["domains"]
    assert (default["serves"], three["serves"]) == (True, False)
    assert (
        three["outlook"]
        == "three: ABD 3, NO QUORUM, 1 more of its servers must answer: s0 is down, s1 is down"
    )
    failed = json.loads(
        cli.run("write", "k", "--domain", "three", "--timeout", "3", "--json", stdin=b"x").stderr
    )
    assert (failed["kind"], failed["may_have_taken_effect"]) == ("Unavailable", False)
    refused = "connection refused: is it running?"
    assert f"missing: s0 ({refused}), s1 ({refused}); nothing was changed" in failed["error"]
    assert f"s0 does not answer (s0: {refused})" in cli.fails(
        1, "reconfig", "--dap", "abd", "--servers", "s0,s2,s3", "--dry-run"
    )


@pytest.mark.slow
def test_status_without_any_process(mortal: Cli) -> None:
    for id in ("s0", "s1", "s2", "s3", "r0", "r1", "r2"):
        mortal.kill(id)
    told = mortal.json("status", status=1)
    assert not any(
        process["reachable"] for process in (told["servers"] | told["consensus"]).values()
    )
    assert [(domain["domain"], domain["serves"]) for domain in told["domains"]] == [
        ("default", False)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_a_restarted_server_counts_if_it_remembers(tmp_path: Path, durability: str) -> None:
    for cli in running_cluster(tmp_path / "cluster", "--durability", durability):
        cli.kill("s0")
        command = python("-m", "ares", "server", cli.settings.path, "--id", "s0")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("READY s0 ")
                told = cli.json("status")
            finally:
                process.terminate()
        assert told["servers"]["s0"]["reachable"]
        [default] = told["domains"]
        forgot = (0, {"s0": "restarted without its memory"})
        assert (default["crashes_survived"], default["missing"]) == (
            forgot if durability == "memory" else (1, {})
        )
        assert (told["servers"]["s0"]["stored"] is None) == (durability == "memory")


@pytest.mark.slow
def test_status_tells_what_disks_hold(mortal: Cli) -> None:
    cli = mortal
    cli.ok("write", "large", stdin=bytes(3 << 20))
    told = cli.json("status")["servers"]["s1"]["stored"]
    assert 3 << 20 <= told["live_bytes"] <= told["disk_bytes"]
    assert (told["quarantined"], told["repaired"]) == (0, 0)
    assert (
        f"s1 {size(told['disk_bytes'])} ({size(told['live_bytes'])} needed)"
        in cli.ok("status").decode()
    )
    assert cli.json("status")["servers"]["s1"]["bytes"] == 3 << 20


def test_a_missing_cluster_file_is_named(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ARES_CLUSTER"}
    for words, why in (
        ([], "which cluster?"),
        (["-c", tmp_path / "none.toml"], "cannot be read"),
        (["-c", tmp_path], "is a directory"),
    ):
        done = subprocess.run(
            ares_cli("ls", *words),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            env=environment,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
