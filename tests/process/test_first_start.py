"""An emptied or unmounted data directory, in which no server or member starts as if new."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.cluster.settings import Settings
from ares.model.identity import ServerId
from ares.platform.interpreter import python

from .test_up_down import ares, pids

pytestmark = pytest.mark.process


@pytest.fixture(params=["memory", "fsync"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Make a new cluster of 3 servers, a spare and 3 consensus members, stopped at the end."""
    yield from _made(tmp_path, request.param)


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Path]:
    """Make the same cluster with stores at the servers."""
    yield from _made(tmp_path, "fsync")


def _made(tmp_path: Path, durability: str) -> Iterator[Path]:
    directory = tmp_path / "cluster"
    made = ares(
        "init",
        directory,
        "--servers",
        "3",
        "--spares",
        "1",
        "--base-port",
        "0",
        "--durability",
        durability,
    )
    assert made.returncode == 0, made.stderr
    yield directory
    ares("down", directory)


def once(cluster: Path, kind: str, id: str, *more: str) -> str:
    """Start the process alone, kill the serving process, and return a server's identity."""
    command = python("-m", "ares", kind, cluster / "cluster.toml", "--id", id, *more)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"READY {id} ")
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return (cluster / f"data/{id}/identity").read_text().strip() if kind == "server" else ""


def refused(cluster: Path, kind: str, id: str, ran: bool = False) -> str:
    """Return the error of a refused start, after a check of the remedy.

    ``ran``: the error mentions an earlier start of the process.
    """
    done = ares(kind, cluster / "cluster.toml", "--id", id)
    assert (done.returncode, done.stdout) == (1, "")
    nothing = f"nothing is in {cluster / 'data' / id}: "
    never = (
        f"If {id} never ran on any machine, `ares-cli prepare {cluster / 'cluster.toml'} {id}` "
        "says so"
    )
    before = (
        f"{id} ran there before, says {cluster / f'data/{id}.started'}, so the disk is lost or "
        "not mounted."
    )
    assert (
        nothing + (before if ran else f"the disk is lost or not mounted, or {id} never ran.")
        in done.stderr
    )
    assert (never in done.stderr) == (not ran)
    assert "If the disk is not mounted, mount it" in done.stderr
    assert f"`ares-cli prepare {cluster / 'cluster.toml'} {id} --forget`" in done.stderr
    return done.stderr


def empty(cluster: Path, id: str) -> None:
    """Empty the directory, as after a missing mount."""
    shutil.rmtree(cluster / "data" / id)
    (cluster / "data" / id).mkdir()


def test_an_emptied_server_is_refused_until_it_is_told_to_forget(cluster: Path) -> None:
    known = Settings.load(cluster / "cluster.toml").servers[ServerId("s1")].identity
    assert once(cluster, "server", "s1") == known
    empty(cluster, "s1")
    for _ in range(2):  # the remains of a refused start are not taken for a server's
        assert "the other servers have its data" in refused(cluster, "server", "s1", ran=True)
    assert once(cluster, "server", "s1", "--forget") != known
    assert once(cluster, "server", "s1") != known


@pytest.mark.slow
def test_an_emptied_server_begins_anew_where_it_was_prepared_for_that(cluster: Path) -> None:
    known = Settings.load(cluster / "cluster.toml").servers[ServerId("s1")].identity
    once(cluster, "server", "s1")
    empty(cluster, "s1")
    prepared = ares("prepare", cluster / "cluster.toml", "s1", "--forget")
    assert prepared.returncode == 0, prepared.stderr
    assert "lets s1 begin anew, empty and under " in prepared.stdout
    assert known not in {once(cluster, "server", "s1"), once(cluster, "server", "s1")}


@pytest.mark.slow
def test_a_server_on_another_machine_is_prepared_there(cluster: Path) -> None:
    """The machine has the cluster file, and no directories of `init`.

    A file of an earlier release would have no directories either.
    """
    shutil.rmtree(cluster / "data")
    refused(cluster, "server", "s0")
    prepared = ares("prepare", cluster / "cluster.toml", "s0", "s3", "r0")
    assert prepared.returncode == 0, prepared.stderr
    assert [line.split(":")[0] for line in prepared.stdout.splitlines()] == ["s0", "s3", "r0"]
    assert f"s0: {cluster}/data/s0 (file system mounted at /" in prepared.stdout
    again = json.loads(ares("prepare", cluster / "cluster.toml", "s0", "--json").stdout)
    assert again["prepared"]["s0"]["said"] == "was ready for its first start already"
    assert (
        once(cluster, "server", "s0")
        == Settings.load(cluster / "cluster.toml").servers[ServerId("s0")].identity
    )
    once(cluster, "consensus", "r0")
    once(cluster, "consensus", "r0")
    refused(cluster, "server", "s1")
    refused(cluster, "consensus", "r1")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("s0", "s9"), ("s0",), ("r0",)])
def test_what_ran_cannot_be_prepared(durable: Path, words: tuple[str, ...]) -> None:
    once(durable, "server", "s0")
    once(durable, "consensus", "r0")
    done = ares("prepare", durable / "cluster.toml", *words)
    assert done.returncode == 2
    expected = (
        "no process with id s9; known: s0"
        if "s9" in words
        else "is not the directory of a process that never ran"
    )
    assert expected in done.stderr


@pytest.mark.slow
def test_a_server_that_runs_cannot_be_made_to_forget(durable: Path) -> None:
    assert ares("up", durable, "--detach").returncode == 0
    for id in ("s0", "r0"):
        done = ares("prepare", durable / "cluster.toml", id, "--forget")
        assert done.returncode == 2
        assert "is in use by" in done.stderr


@pytest.mark.slow
def test_up_leaves_emptied_processes_out_and_takes_them_back(durable: Path) -> None:
    file = durable / "cluster.toml"
    assert ares("up", durable, "--detach").returncode == 0
    assert ares("-c", file, "write", "greeting", durable / "cluster.toml").returncode == 0
    assert (
        ares(
            "-c", file, "domain", "create", "photos", "--dap", "abd", "--servers", "s0,s1,s2"
        ).returncode
        == 0
    )
    ares("down", durable)
    empty(durable, "s2")
    shutil.rmtree(durable / "data/r1")
    up = ares("up", durable, "--detach")
    assert up.returncode == 1
    assert f"  s2: nothing is in {durable / 'data/s2'}" in up.stderr
    assert f"  r1: nothing is in {durable / 'data/r1'}" in up.stderr
    assert sorted(pids(durable)) == ["r0", "r2", "s0", "s1", "s3"], up.stderr
    assert ares("-c", file, "read", "greeting").returncode == 0
    prepared = ares("prepare", file, "s2", "r1", "--forget")
    assert prepared.returncode == 0, prepared.stderr
    again = ares("up", durable, "--detach", "--json")
    assert (again.returncode, json.loads(again.stdout)["started"]) == (0, ["r1", "s2"])
    status = json.loads(ares("-c", file, "status", "--json").stdout)
    assert "s2" in json.dumps(status["domains"])
    assert ares("-c", file, "reconfig", "--dap", "abd", "--servers", "s0,s1,s2").returncode == 0
    assert ares("-c", file, "read", "greeting").stdout == file.read_text()


@pytest.mark.slow
def test_a_member_begins_anew_only_while_all_others_run(durable: Path) -> None:
    for id in ("r0", "r1"):
        once(durable, "consensus", id)
    empty(durable, "r1")
    assert "might vote a second time" in refused(durable, "consensus", "r1", ran=True)
    done = ares("prepare", durable / "cluster.toml", "r1", "--forget")
    assert done.returncode == 2
    assert "r1 cannot begin anew now: r0 does not answer at" in done.stderr
    refused(durable, "consensus", "r1", ran=True)


@pytest.mark.slow
def test_the_only_member_cannot_begin_anew(tmp_path: Path) -> None:
    assert (
        ares(
            "init", tmp_path / "c", "--servers", "3", "--consensus", "1", "--base-port", "0"
        ).returncode
        == 0
    )
    done = ares("prepare", tmp_path / "c/cluster.toml", "r0", "--forget")
    assert done.returncode == 2
    assert "no other process has the decisions" in done.stderr


@pytest.mark.slow
def test_what_was_prepared_below_a_mount_point_is_not_believed_when_the_disk_is_missing(
    cluster: Path,
) -> None:
    """`init` prepared the directories, and the disks were mounted there later."""
    for kind, id in (("server", "s1"), ("consensus", "r1")):
        below = cluster / "below" / id
        shutil.copytree(cluster / "data" / id, below)
        once(cluster, kind, id)
        shutil.rmtree(cluster / "data" / id)
        below.rename(cluster / "data" / id)
        assert (cluster / "data" / id / "never-started").exists()
        refused(cluster, kind, id, ran=True)
    up = ares("up", cluster, "--detach", "--json")
    left_out = json.loads(up.stdout)["left_out"]
    assert (up.returncode, list(left_out)) == (1, ["s1", "r1"])
    assert f"r1 ran there before, says {cluster / 'data/r1.started'}, so" in left_out["r1"]


@pytest.mark.slow
def test_a_process_that_ran_is_not_prepared_again_in_an_emptied_directory(durable: Path) -> None:
    once(durable, "server", "s0")
    once(durable, "consensus", "r0")
    for id in ("s0", "r0"):
        shutil.rmtree(durable / "data" / id)
        done = ares("prepare", durable / "cluster.toml", "s1", id)
        assert done.returncode == 2
        assert (
            f"{id} ran in {durable}/data/{id} before, says {durable}/data/{id}.started, and its "
            "data is not there: " in done.stderr
        )
        assert (
            f"If the disk is lost, `ares-cli prepare {durable}/cluster.toml {id} --forget`"
            in done.stderr
        )
        assert not (durable / "data" / id).exists()
    assert (
        "If the process that ran there belonged to another cluster, remove " in done.stderr
    ) == (id == "r0")
    known = Settings.load(durable / "cluster.toml").servers[ServerId("s0")].identity
    assert ares("prepare", durable / "cluster.toml", "s0", "--forget").returncode == 0
    assert once(durable, "server", "s0") != known


@pytest.mark.slow
def test_a_member_that_began_anew_is_remembered_again(durable: Path) -> None:
    assert ares("up", durable, "--detach").returncode == 0
    os.kill(pids(durable)["r1"], signal.SIGKILL)
    empty(durable, "r1")
    assert ares("prepare", durable / "cluster.toml", "r1", "--forget").returncode == 0
    assert not (durable / "data/r1.started").exists()
    assert ares("up", durable, "--detach").returncode == 0
    assert (durable / "data/r1.started").read_text() == "r1\n"


@pytest.mark.slow
def test_up_fresh_gives_all_processes_new_identities(cluster: Path) -> None:
    for kind, id in (("server", "s1"), ("consensus", "r1")):
        once(cluster, kind, id)
        shutil.rmtree(cluster / "data" / id)
    up = ares("up", cluster, "--detach", "--fresh")
    assert up.returncode == 0, up.stderr
    identities = {
        id: server.identity
        for id, server in Settings.load(cluster / "cluster.toml").servers.items()
    }
    assert {id: (cluster / f"data/{id}.started").read_text() for id in identities} == {
        id: f"{identity}\n" for id, identity in identities.items()
    }


@pytest.mark.slow
def test_init_refuses_what_is_left_of_an_earlier_cluster(durable: Path) -> None:
    once(durable, "server", "s0")
    (durable / "cluster.toml").unlink()
    shutil.rmtree(durable / "secrets")
    done = ares("init", durable)
    assert done.returncode == 2
    assert "data/s0/identity is left of an earlier cluster" in done.stderr
    assert not (durable / "secrets").exists()
    shutil.rmtree(durable / "data/s0")
    done = ares("init", durable)
    assert done.returncode == 2
    assert (
        f"choose another directory, or remove {durable}/data/s0.started yourself; nothing was "
        "written" in done.stderr
    )
