"""A cluster's processes: started together, stopped exactly, never confused with foreign processes.

A process is never restarted as if it remembered lost data.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.cli.local import supervisor
from ares.cluster.addresses import split_address
from ares.cluster.settings import Settings
from ares.model.identity import ServerId
from ares.platform.interpreter import python
from tests.ports import free_addresses

from .warm_start import ares_cli

pytestmark = pytest.mark.process


def ares(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ares_cli(*arguments), capture_output=True, text=True, check=False, timeout=240
    )


def pids(directory: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text()) for path in (directory / "run").glob("*.pid")}


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


def _made(directory: Path, *more: str) -> Iterator[Path]:
    made = ares("init", directory, "--servers", "3", "--base-port", "0", *more)
    assert made.returncode == 0, made.stderr
    try:
        yield directory
    finally:
        ares("down", directory)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """Make a new cluster of 3 servers and 3 consensus members, stopped at the end."""
    yield from _made(tmp_path / "cluster")


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[Path]:
    """Make the same cluster with all data in memory."""
    yield from _made(tmp_path / "cluster", "--durability", "memory")


def test_up_detached_and_down(cluster: Path) -> None:
    up = ares("up", cluster, "--detach", "--json")
    assert up.returncode == 0, up.stderr
    shown = json.loads(up.stdout)["processes"]
    started = pids(cluster)
    assert {id: process["pid"] for id, process in shown.items()} == started
    assert sorted(started) == ["r0", "r1", "r2", "s0", "s1", "s2"]
    assert all(runs(pid) for pid in started.values())
    settings = Settings.load(cluster / "cluster.toml")
    for server in settings.servers.values():
        log = (cluster / f"logs/{server.id}.log").read_text()
        assert f"READY {server.id} {server.address}\n" in log
        assert (server.data / "identity").read_text().strip() == server.identity
    again = ares("up", cluster)
    assert again.returncode == 1
    assert (
        f"is up already: {', '.join(f'{id} (pid {started[id]})' for id in sorted(started))}"
        in again.stderr
    )
    down = ares("down", cluster, "--json")
    assert json.loads(down.stdout) == {"stopped": sorted(started)}
    assert not any(runs(pid) for pid in started.values())
    assert pids(cluster) == {}
    second = ares("down", cluster)
    assert (second.returncode, second.stdout) == (0, "nothing was running\n")


@pytest.fixture
def near_cluster() -> Iterator[Path]:
    """Make the same cluster at a short path wherever TMPDIR is: paths of sockets are bounded."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield from _made(Path(directory) / "cluster", "--transport", "native")


def test_a_cluster_without_sockets_is_reached_over_tcp(near_cluster: Path) -> None:
    file = near_cluster / "cluster.toml"
    file.write_text("local_sockets = false\n" + file.read_text())
    assert ares("up", near_cluster, "--detach").returncode == 0
    assert [*(near_cluster / "run").glob("*.sock")] == []
    told = json.loads(ares("-c", file, "status", "--json").stdout)["servers"]
    assert [server["over_socket"] for server in told.values()] == [False] * 3
    assert all(server["identity"] for server in told.values())


def test_unix_sockets_of_up(near_cluster: Path) -> None:
    cluster = near_cluster
    file, run = cluster / "cluster.toml", cluster / "run"

    def reached() -> set[str]:
        told = json.loads(ares("-c", file, "status", "--json").stdout)["servers"]
        return {id for id, server in told.items() if server["over_socket"]}

    assert ares("up", cluster, "--detach").returncode == 0
    processes = Settings.load(file).processes()
    assert {path.stem for path in run.glob("*.sock")} == {each.address for each in processes}
    assert "\nreached over Unix sockets: s0, s1, s2\n" in ares("-c", file, "status").stdout
    os.kill(pids(cluster)["s0"], signal.SIGKILL)
    assert ares("up", cluster, "--detach").returncode == 0
    assert reached() == {"s0", "s1", "s2"}
    (run / f"{Settings.load(file).servers[ServerId('s1')].address}.sock").unlink()
    assert reached() == {"s0", "s2"}
    assert ares("down", cluster).returncode == 0
    assert [*run.glob("*.sock")] == []


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--security", "curve")])
def test_up_is_up_when_the_cluster_reads_writes_and_decides(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    with contextlib.contextmanager(_made)(tmp_path / "cluster", *more) as cluster:
        assert ares("up", cluster, "--detach").returncode == 0
        file = cluster / "cluster.toml"
        told = json.loads(ares("-c", file, "status", "--json").stdout)
        assert [member["leader"] != "" for member in told["consensus"].values()] == [True] * 3
        assert ares("-c", file, "reconfig", "--dap", "ec", "--servers", "s0,s1,s2").returncode == 0


@pytest.mark.slow
def test_up_says_what_does_not_work_when_everything_runs(cluster: Path) -> None:
    assert ares("up", cluster, "--detach").returncode == 0
    frozen = [pids(cluster)[id] for id in ("r0", "r1")]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    os.kill(pids(cluster)["s0"], signal.SIGKILL)
    try:
        up = ares("up", cluster, "--detach", "--timeout", "4")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert up.returncode == 1
    assert (
        "the consensus service has no leader yet: creating domains and reconfiguring wait"
        in up.stderr
    )
    assert "s0" in pids(cluster)


@pytest.mark.slow
def test_a_stopped_cluster_that_forgot_is_not_started_as_if_it_remembered(forgetful: Path) -> None:
    cluster = forgetful
    up = ares("up", cluster, "--detach")
    assert up.returncode == 0
    os.kill(pids(cluster)["s1"], signal.SIGKILL)
    assert "is up already" in ares("up", cluster, "--detach").stderr
    assert "is gone" in ares("down", cluster).stdout
    before = Settings.load(cluster / "cluster.toml")
    refused = ares("up", cluster, "--detach")
    assert refused.returncode == 1
    assert "is gone" in refused.stderr
    assert "--fresh" in refused.stderr
    assert pids(cluster) == {}
    journal = before.members[ServerId("r0")].data / "left-over"
    journal.write_text("of the earlier cluster")
    fresh = ares("up", cluster, "--detach", "--fresh")
    assert fresh.returncode == 0, fresh.stderr
    after = Settings.load(cluster / "cluster.toml")
    assert not journal.exists()
    assert {server.identity for server in before.servers.values()}.isdisjoint(
        server.identity for server in after.servers.values()
    )
    assert all(
        (server.data / "identity").read_text().strip() == server.identity
        for server in after.servers.values()
    )
    running = ares("up", cluster, "--fresh")
    assert running.returncode == 1
    assert Settings.load(cluster / "cluster.toml") == after


@pytest.mark.slow
def test_fresh_begins_anew(cluster: Path) -> None:
    assert ares("up", cluster, "--detach").returncode == 0
    assert "ares-cli up" in ares("down", cluster).stdout
    before = Settings.load(cluster / "cluster.toml")
    segments = list(cluster.glob("data/s*/journal/*.log"))
    assert len(segments) == 0, "nothing was written"
    (cluster / "data/s0/journal/left-over").write_text("of the earlier cluster")
    assert ares("up", cluster, "--detach", "--fresh").returncode == 0
    after = Settings.load(cluster / "cluster.toml")
    assert not list(cluster.glob("data/s0/journal/left-over"))
    assert {server.identity for server in before.servers.values()}.isdisjoint(
        server.identity for server in after.servers.values()
    )


@pytest.mark.slow
def test_fresh_removes_nothing_outside_the_cluster(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("keep")
    file = cluster / "cluster.toml"
    file.write_text(file.read_text().replace('id = "s1"', 'id = "s1"\ndata = "../precious"'))
    refused = ares("up", cluster, "--fresh")
    assert refused.returncode == 2
    assert "the data of s1 is in" in refused.stderr
    assert (tmp_path / "precious/file").read_text() == "keep"


def test_up_in_the_foreground_stops_all_processes_on_a_signal(cluster: Path) -> None:
    with subprocess.Popen(
        python("-m", "ares", "up", cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stderr is not None
        assert up.stderr.readline() == "Ctrl-C stops the cluster.\n"
        started = pids(cluster)
        os.kill(started["s1"], signal.SIGKILL)
        assert "s1 ended with status -9" in up.stderr.readline()
        up.send_signal(signal.SIGINT)
        assert "stopped r0, r1, r2, s0, s2" in up.stderr.readline()
        assert up.wait(timeout=120) == 0
    assert len(started) == 6
    assert not any(runs(pid) for pid in started.values())


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_what_cannot_start_is_left_out_and_the_others_run(tmp_path: Path, durability: str) -> None:
    for cluster in _made(tmp_path / "cluster", "--durability", durability):
        shutil.rmtree(cluster / "data/s2")
        (cluster / "data/s2").write_text("a file where a directory should be")
        up = ares("up", cluster, "--detach", "--json")
        shown, error = json.loads(up.stdout), json.loads(up.stderr)
        assert (up.returncode, error["kind"]) == (1, "LeftOut")
        assert "s2: ended with status 2: " in error["error"]
        assert "data/s2 cannot be used" in error["error"]
        assert list(shown["left_out"]) == ["s2"]
        assert shown["left_out"]["s2"] in error["error"]
        assert shown["processes"]["s2"]["pid"] is None
        assert sorted(pids(cluster)) == ["r0", "r1", "r2", "s0", "s1"]
        assert {
            id: process["pid"]
            for id, process in shown["processes"].items()
            if process["pid"] is not None
        } == pids(cluster)
        (cluster / "data/s2").unlink()
        assert ares("prepare", cluster / "cluster.toml", "s2").returncode == 0
        again = ares("up", cluster, "--detach", "--json")
        assert (again.returncode, json.loads(again.stdout)["started"]) == (0, ["s2"])


@pytest.mark.slow
def test_what_cannot_start_is_left_out_in_the_foreground_too(cluster: Path) -> None:
    shutil.rmtree(cluster / "data/s2")
    with subprocess.Popen(
        python("-m", "ares", "up", cluster),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stderr is not None
        assert up.stderr.readline() == "error: some processes do not run; the rest runs.\n"
        while up.stderr.readline() != "Ctrl-C stops the cluster.\n":
            pass
        up.send_signal(signal.SIGINT)
        assert up.stderr.readline().startswith("stopped r0, r1, r2, s0, s1; ")
        assert up.wait(timeout=30) == 1


@pytest.mark.slow
def test_when_nothing_can_start_nothing_is_up(cluster: Path) -> None:
    (cluster / "data").rename(cluster / "elsewhere")
    up = ares("up", cluster, "--detach")
    assert (up.returncode, up.stdout, pids(cluster)) == (1, "", {})
    assert up.stderr.startswith("error: nothing was started.\n  s0, s1, s2: nothing is in ")
    assert "\n  r0, r1, r2: nothing is in " in up.stderr
    assert "--fresh` begins anew" in up.stderr


@pytest.mark.slow
def test_a_taken_address_stops_one_server_of_a_cluster_that_ran_and_not_the_others(
    cluster: Path,
) -> None:
    assert ares("up", cluster, "--detach").returncode == 0
    ares("down", cluster)
    address = Settings.load(cluster / "cluster.toml").servers[ServerId("s0")].address
    with socket.create_server(split_address(address)):
        up = ares("up", cluster, "--detach")
    assert up.returncode == 1
    assert f"s0: was not started: {address} cannot be listened on" in up.stderr
    assert sorted(pids(cluster)) == ["r0", "r1", "r2", "s1", "s2"]


@pytest.mark.slow
def test_up_waits_for_ports_that_a_killed_server_still_holds(cluster: Path) -> None:
    """A server with much memory keeps its ports for a moment after kill -9."""
    assert ares("up", cluster, "--detach").returncode == 0
    assert ares("down", cluster).returncode == 0
    address = Settings.load(cluster / "cluster.toml").servers[ServerId("s0")].address
    held = socket.create_server(split_address(address))
    threading.Timer(1.5, held.close).start()
    up = ares("up", cluster, "--detach")
    assert up.returncode == 0, up.stderr


def test_an_address_in_use_is_found_before_any_server_starts(cluster: Path) -> None:
    address = Settings.load(cluster / "cluster.toml").servers[ServerId("s0")].address
    with socket.create_server(split_address(address)):
        up = ares("up", cluster, "--detach")
        assert up.returncode == 1
        taken = f"nothing was started: s0: {address} cannot be listened on: another process listens"
        assert taken in up.stderr
        assert re.search(r"Use --base-port \d+: 15 ports from \d+ on are free", up.stderr)
        alone = ares("server", cluster / "cluster.toml", "--id", "s0")
        assert alone.returncode == 2
        assert f"s0 cannot listen on {address}" in alone.stderr
    assert not list(cluster.glob("data/*/identity"))


@pytest.mark.slow
def test_init_with_a_port_that_is_taken_names_it_and_free_ones(tmp_path: Path) -> None:
    """No file is written: the same line with the named ports makes the cluster."""
    [address] = free_addresses(1)
    port = split_address(address)[1]
    wanted = ("init", tmp_path / "c", "--servers", "3", "--base-port")
    with socket.create_server(("127.0.0.1", port)):
        refused = ares(*wanted, str(port))
        assert refused.returncode == 2
        taken = f"error: {address} cannot be listened on: another process listens there"
        assert taken in refused.stderr
        assert not (tmp_path / "c").exists()
        advised = re.search(r"Use --base-port (\d+): 15 ports from \1 on are free", refused.stderr)
        assert advised, refused.stderr
        assert ares(*wanted, advised[1]).returncode == 0
        again = ares(*wanted, str(port))
        assert "exists, and init never overwrites" in again.stderr


@pytest.mark.slow
def test_down_leaves_a_process_alone_that_only_has_the_pid(cluster: Path) -> None:
    with subprocess.Popen(
        python("-c", "import sys; sys.stdin.read()"), stdin=subprocess.PIPE
    ) as stranger:
        (cluster / "run").mkdir()
        (cluster / "run/s0.pid").write_text(f"{stranger.pid}\n")
        assert ares("down", cluster).stdout == "nothing was running\n"
        assert stranger.poll() is None
        assert stranger.stdin is not None
        stranger.stdin.close()


@pytest.mark.slow
def test_down_stops_what_an_earlier_release_started(forgetful: Path) -> None:
    """The earlier release started Python without -P."""
    command = [
        word
        for word in python("-m", "ares", "server", forgetful / "cluster.toml", "--id", "s0")
        if word != "-P"
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"READY s0")
        (forgetful / "run").mkdir()
        (forgetful / "run/s0.pid").write_text(f"{process.pid}\n")
        assert ares("down", forgetful).stdout.startswith("stopped s0;")


@pytest.mark.slow
def test_a_process_that_does_not_listen_to_sigterm_is_killed(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PROCESS_STOP_S", 0.3)
    assert ares("up", cluster, "--detach").returncode == 0
    started = pids(cluster)
    os.kill(started["s1"], signal.SIGSTOP)
    assert supervisor.Supervisor(cluster / "cluster.toml").stop() == sorted(started)
    assert not any(runs(pid) for pid in started.values())


@pytest.mark.parametrize(("kind", "id"), [("server", "s0"), ("consensus", "r0")])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_process_says_ready_and_stops_cleanly(
    cluster: Path, kind: str, id: str, number: signal.Signals
) -> None:
    [address] = [
        process.address
        for process in Settings.load(cluster / "cluster.toml").processes()
        if process.id == id
    ]
    command = python("-m", "ares", kind, cluster / "cluster.toml", "--id", id)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"READY {id} {address}\n"
        second = ares(kind, cluster / "cluster.toml", "--id", id)
        assert second.returncode == 2
        assert "in use" in second.stderr
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "")
    for line in err.splitlines():
        assert json.loads(line)["server"] == id


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_a_restarted_server_says_when_its_identity_is_new(tmp_path: Path, durability: str) -> None:
    cluster, identities = tmp_path / "cluster", []
    assert (
        ares(
            "init", cluster, "--servers", "3", "--base-port", "0", "--durability", durability
        ).returncode
        == 0
    )
    for _ in range(2):
        command = python("-m", "ares", "server", cluster / "cluster.toml", "--id", "s0")
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            identities.append((cluster / "data/s0/identity").read_text().strip())
            process.send_signal(signal.SIGKILL)
            _, err = process.communicate()
    assert identities[0] == Settings.load(cluster / "cluster.toml").servers[ServerId("s0")].identity
    assert (identities[1] == identities[0]) == (durability == "fsync")
    warnings = [
        line for line in map(json.loads, err.splitlines()) if line["levelname"] == "WARNING"
    ]
    assert [warning["identity"] for warning in warnings] == (
        [identities[1]] if durability == "memory" else []
    )
    assert all(warning["asctime"].endswith("+00:00") for warning in warnings)


@pytest.mark.parametrize("arguments", [("server", "--id", "s9"), ("consensus", "--id", "s0")])
def test_an_unknown_id_is_refused_with_the_known_ones(
    cluster: Path, arguments: tuple[str, ...]
) -> None:
    refused = ares(arguments[0], cluster / "cluster.toml", *arguments[1:])
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "known: s0, s1, s2" in refused.stderr or "known: r0, r1, r2" in refused.stderr
