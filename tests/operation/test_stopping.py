"""Ends of processes: clean on SIGTERM, during any work, and at once on the second signal."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ares
from ares.cluster.settings import Settings
from ares.model.identity import ClientId, DomainName, ServerId
from ares.model.messages import Ack, Propose
from ares.net.libzmq import ZmqConnections
from ares.platform.interpreter import python
from ares.replica.port import lists_of
from tests.journal.journal_node import AtOnce, Node, log_journal, put
from tests.journal.test_journal_full_disk import host_of
from tests.process.warm_start import ares_cli

from .pages import elsewhere, fetch, health, samples

pytestmark = pytest.mark.process

CLIENTS = 8
SIGNALLED_MAX = 5


def cli(*words: str | Path) -> None:
    done = subprocess.run(ares_cli(*words), capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr.decode()


def start(cluster: Path, kind: str, id: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        python("-m", "ares", kind, str(cluster), "--id", id),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert b"READY" in process.stdout.readline()
    return process


class StoppingCluster:
    """Processes by id; remaining processes are killed at the end."""

    def __init__(self, directory: Path, *words: str) -> None:
        cli("init", directory, "--base-port", "0", *words)
        self.file = directory / "cluster.toml"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, kind: str, *ids: str) -> None:
        for id in ids:
            self.running[id] = start(self.file, kind, id)

    def end(self, id: str, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit status and the log."""
        process = self.running.pop(id)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        return process.returncode, said.decode()


@pytest.fixture
def make(tmp_path):
    made: list[StoppingCluster] = []

    def cluster(*words: str) -> StoppingCluster:
        made.append(StoppingCluster(tmp_path / f"c{len(made)}", *words))
        return made[-1]

    yield cluster
    for each in made:
        for process in each.running.values():
            process.kill()
            process.communicate()


class Load:
    """Clients that write at full speed until :meth:`end`.

    ``acknowledged`` has the last value of every key.
    """

    def __init__(self, file: Path) -> None:
        self.acknowledged: dict[str, bytes] = {}
        self.errors: list[BaseException] = []
        self.writes = 0
        self._file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        async with ares.connect(self._file) as store:
            await asyncio.gather(*(self._work(store, worker) for worker in range(CLIENTS)))

    async def _work(self, store, worker: int) -> None:
        number = 0
        while not self._over.is_set():
            key, value = f"{worker} {number % 10}", os.urandom(30_000 if number % 20 == 0 else 20)
            try:
                await store.write(key, value)
            except ares.AresError as error:
                self.errors.append(error)
                return
            self.acknowledged[key] = value
            self.writes += 1
            number += 1

    def until(self, writes: int) -> None:
        """Wait until `writes` more were acknowledged."""
        wanted = self.writes + writes
        while self.writes < wanted and self._thread.is_alive():
            self._over.wait(0.01)

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)
        assert self.errors == []

    def check(self) -> None:
        with ares.connect_blocking(self._file) as store:
            for key, value in self.acknowledged.items():
                assert store.read(key) == value


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_a_server_that_is_stopped_under_load_ends_well_and_no_client_notices(make, durability):
    cluster = make("--servers", "3", "--consensus", "0", "--durability", durability)
    cluster.start("server", "s0", "s1", "s2")
    load = Load(cluster.file)
    load.until(300)
    status, said = cluster.end("s1")
    load.until(300)
    load.end()
    assert (status, '"message":"stopped"' in said, "Traceback" in said) == (0, True, False)
    load.check()


@pytest.mark.slow
def test_servers_that_are_stopped_one_after_the_other_lose_nothing(make):
    cluster = make("--servers", "3", "--consensus", "0", "--durability", "fsync")
    cluster.start("server", "s0", "s1", "s2")
    load = Load(cluster.file)
    for id in ("s0", "s1", "s2", "s0"):
        load.until(100)
        status, _ = cluster.end(id)
        assert status == 0
        cluster.start("server", id)
    load.end()
    load.check()
    for id in ("s0", "s1", "s2"):
        assert cluster.end(id)[0] == 0


@pytest.mark.slow
def test_what_the_only_server_acknowledged_while_it_stopped_is_there(make):
    cluster = make(
        "--servers", "1", "--consensus", "0", "--durability", "fsync", "--allow-no-faults"
    )
    cluster.start("server", "s0")
    load = Load(cluster.file)
    for _ in range(3):
        load.until(50)
        assert cluster.end("s0")[0] == 0
        cluster.start("server", "s0")
    load.end()
    load.check()


def test_a_consensus_member_ends_well(make):
    cluster = make("--servers", "1", "--consensus", "1", "--allow-no-faults")
    cluster.start("consensus", "r0")
    assert cluster.end("r0")[0] == 0


@contextlib.asynccontextmanager
async def busy_member(cluster: StoppingCluster) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a single member of three, with constant requests.

    Requests are under way that the member will try to answer for a while.
    """
    cluster.start("consensus", "r0")
    settings = Settings.load(cluster.file)
    member = settings.members[ServerId("r0")]
    connections = ZmqConnections()
    connections.open(lambda server, messages: None)
    connections.learn(member.id, member.address)

    async def ask() -> None:
        while True:
            connections.post(
                member.id,
                [
                    Propose(
                        1,
                        settings.initial.at(DomainName("photos"), 0, settings.initial.id),
                        ClientId(1),
                    )
                ],
            )
            await asyncio.sleep(0.05)

    asking = asyncio.create_task(ask())
    try:
        async with asyncio.timeout(120):
            while True:
                _, page = await elsewhere(fetch, member.http, "/metrics")
                if samples(page)["ares_consensus_under_way"]:
                    break
                await asyncio.sleep(0.05)
        yield cluster.running["r0"]
    finally:
        asking.cancel()
        await connections.close()


async def test_a_consensus_member_that_is_busy_finishes(make):
    cluster = make("--servers", "1", "--consensus", "3", "--allow-no-faults")
    async with busy_member(cluster):
        status, said = await elsewhere(cluster.end, "r0")
    assert (status, "Traceback" in said) == (0, False)


async def test_the_second_signal_ends_a_process_at_once(make):
    """On a busy machine the member may finish its requests before the second signal leaves."""
    cluster = make("--servers", "1", "--consensus", "3", "--allow-no-faults")
    for _ in range(SIGNALLED_MAX):
        async with busy_member(cluster) as process:
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            while b"stopping on SIGTERM" not in await elsewhere(process.stderr.readline):
                pass
            process.send_signal(signal.SIGTERM)
            status = await elsewhere(process.wait, 30)
        if status != 0:
            break
    assert status == -signal.SIGTERM


def test_it_tells_that_it_serves_over_http_and_systemd(make, tmp_path, monkeypatch):
    cluster = make("--servers", "1", "--consensus", "0", "--allow-no-faults")
    address = Settings.load(cluster.file).servers[ServerId("s0")].http
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(120)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        cluster.start("server", "s0")
        assert manager.recv(100) == b"READY=1\nSTATUS=s0 serves"
        assert health(address)[0] == 200
        assert cluster.end("s0")[0] == 0
        assert manager.recv(100).startswith(b"STOPPING=1\n")


async def test_a_host_that_finishes_takes_nothing_more_and_replies_to_what_it_took(tmp_path):
    background = AtOnce(waiting=True)
    node = Node(log_journal(tmp_path / "j", background=background))
    host, later, _ = host_of(node)
    host.handle("client", [put("a", 1, b"taken")])
    await asyncio.sleep(0)
    host.handle("client", [put("b", 1, b"taken, for the next commit")])
    finishing = asyncio.create_task(host.finish())
    await asyncio.sleep(0)
    assert host.handle("client", [put("c", 1, b"too late")]) == []
    while not finishing.done():
        background.step()
        await asyncio.sleep(0)
    assert later == [Ack(7, None), Ack(7, None)]
    objects = {
        name
        for hosting in Node(log_journal(tmp_path / "j")).replica.hosted.values()
        for name, _ in lists_of(hosting.objects)
    }
    assert objects == {"a", "b"}
