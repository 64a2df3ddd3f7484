"""A log on servers' disks: killed at any moment, larger than memory, trimmed, rotten."""

import asyncio
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import ares
from ares.platform.interpreter import python

from .command_line import Cli, running_cluster

pytestmark = pytest.mark.process

CHAIN_SERVERS = ("s0", "s1", "s2")
KILLS = 20
LOG_MIB = 144
RECORD_BYTES = 1 << 20


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cli]:
    yield from running_cluster(tmp_path / "c")


class Servers:
    """Servers that are killed and started again, with the seconds of each restart.

    ``summary`` has figures for a person.
    """

    summary = ""

    def __init__(self, cluster: Cli) -> None:
        self.restarts_s: list[float] = []
        self._cluster = cluster
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def pid(self, id: str) -> int:
        process = self._started.get(id)
        return (
            process.pid
            if process is not None
            else int((self._cluster.directory / f"run/{id}.pid").read_text())
        )

    def kill(self, id: str) -> None:
        ended = os.pidfd_open(self.pid(id))
        signal.pidfd_send_signal(ended, signal.SIGKILL)
        select.select([ended], [], [])  # the directory is free after the end of the process
        os.close(ended)
        process = self._started.pop(id, None)
        if process is not None:
            process.communicate()

    def start(self, id: str) -> None:
        begin_s = time.monotonic()
        command = python("-m", "ares", "server", self._cluster.settings.path, "--id", id)
        with self.output_path(id).open("ab") as output:
            process = self._started[id] = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=output
            )
        assert process.stdout is not None
        assert b"READY" in process.stdout.readline()
        self.restarts_s.append(time.monotonic() - begin_s)

    def output_path(self, id: str) -> Path:
        return self._cluster.directory / f"{id}.out"

    def memory_mib(self, id: str) -> float:
        status = Path(f"/proc/{self.pid(id)}/status").read_text()
        return (
            int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
            / 1024
        )

    def directory(self, id: str) -> Path:
        return self._cluster.directory / "data" / id / "journal" / "logs"

    def disk_mib(self, id: str) -> float:
        return sum(
            path.stat().st_blocks * 512 for path in self.directory(id).rglob("*") if path.is_file()
        ) / (1 << 20)

    def close(self) -> None:
        for process in self._started.values():
            process.kill()
            process.communicate()


@pytest.fixture
def servers(cluster: Cli) -> Iterator[Servers]:
    made = Servers(cluster)
    yield made
    made.close()


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_servers_are_killed_under_appends(cluster, servers):
    asyncio.run(_appends_and_kills(cluster, servers))


async def _appends_and_kills(cluster: Cli, servers: Servers) -> None:
    rng, acknowledged = random.Random(4), dict[int, bytes]()
    ended = False

    async def append(log: ares.Log, name: int) -> None:
        number = 0
        while not ended or len(acknowledged) <= KILLS:  # a slow machine ends few between two kills
            entry = b"%d %d " % (name, number) + rng.randbytes(rng.choice([10, 1000, 100_000]))
            number += 1
            try:
                acknowledged[await log.append(entry, timeout_s=30)] = entry
            except ares.Uncertain:
                continue

    async with ares.connect(cluster.settings.path) as store:
        log = await store.log("events", ares.Configuration.chain(CHAIN_SERVERS))
        writers = [asyncio.create_task(append(log, name)) for name in range(8)]
        for _ in range(KILLS):
            await asyncio.sleep(rng.random() * 0.3)
            id = rng.choice(CHAIN_SERVERS)
            await asyncio.to_thread(servers.kill, id)
            await asyncio.to_thread(servers.start, id)
        ended = True
        async with asyncio.timeout(120):
            await asyncio.gather(*writers)
        for first in range(0, max(acknowledged) + 1, 50):
            for position, entry in await log.read_range(
                first, min(first + 50, max(acknowledged) + 1)
            ):
                assert acknowledged.pop(position, entry) == entry
        for (
            position,
            entry,
        ) in acknowledged.items():  # of ranges that were too large for a single answer
            assert await log.read(position) == entry


@pytest.mark.slow
def test_a_log_takes_disk_and_no_memory_and_a_trim_gives_the_disk_back(cluster, servers, capsys):
    asyncio.run(_large_log(cluster, servers, LOG_MIB))
    with capsys.disabled():
        sys.stdout.write(f"\n{LOG_MIB} MiB of log: {servers.summary}\n")


async def _large_log(cluster: Cli, servers: Servers, mib: int) -> None:
    async with ares.connect(cluster.settings.path) as store:
        log = await store.log("events", ares.Configuration.chain(CHAIN_SERVERS))
        await log.append(b"first")
        before_mib = servers.memory_mib("s1")
        for first in range(0, mib, 8):
            await asyncio.gather(
                *(
                    log.append(os.urandom(RECORD_BYTES), timeout_s=60)
                    for _ in range(min(8, mib - first))
                )
            )
        grown_mib, full_mib = servers.memory_mib("s1") - before_mib, servers.disk_mib("s1")
        assert full_mib > mib
        servers.kill("s1")
        servers.start("s1")
        assert await log.read(0) == b"first"
        assert len(await log.read(mib // 2)) == RECORD_BYTES
        await log.append(b"after")
        restarted_mib = servers.memory_mib("s1")
        await log.trim(mib)
        deadline_s = time.monotonic() + 20
        while servers.disk_mib("s1") > 32:
            assert time.monotonic() < deadline_s, "the trim gave nothing back"
            await asyncio.sleep(0.1)
        assert await log.read(mib + 1) == b"after"
        servers.summary = (
            f"memory grew by {grown_mib:.0f} MiB, {restarted_mib:.0f} MiB after a restart of "
            f"{servers.restarts_s[-1]:.1f} s; {full_mib:.0f} MiB on a disk, "
            f"{servers.disk_mib('s1'):.0f} after the trim"
        )
        assert grown_mib < mib / 2
        assert restarted_mib < before_mib + mib / 2


def test_what_rotted_is_repaired_from_others_and_a_start_finds_it_whole(cluster, servers):
    asyncio.run(_rotten_log(cluster, servers))
    servers.kill("s1")
    rot(servers)
    command = python("-m", "ares", "server", cluster.settings.path, "--id", "s1")
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1, "a server that is down repairs nothing"
    for words in ("/logs/", "is damaged", "nothing was changed", "--forget"):
        assert words in refused.stderr


def rot(servers: Servers) -> None:
    """Overwrite a part of two files of s1."""
    for path in sorted(servers.directory("s1").rglob("*.log"))[:2]:
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"\0" * 64)


@pytest.mark.slow
def test_a_start_without_a_log_is_refused(cluster, servers):
    cluster.ok("log", "create", "events", "--servers", ",".join(CHAIN_SERVERS))
    cluster.ok("log", "append", "events", "-", stdin=b"acknowledged")
    servers.kill("s1")
    [directory] = [path for path in servers.directory("s1").iterdir() if path.is_dir()]
    command = python("-m", "ares", "server", cluster.settings.path, "--id", "s1")
    for gone, why in [
        (directory, f"{directory.name}.anchor, and none"),
        (directory.parent, "begun"),
    ]:
        shutil.rmtree(gone)
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1
        for words in (str(directory), "is damaged", why, "nothing was changed", "--forget"):
            assert words in refused.stderr


async def _rotten_log(cluster: Cli, servers: Servers) -> None:
    entries = [os.urandom(RECORD_BYTES) for _ in range(24)]
    async with ares.connect(cluster.settings.path) as store:
        log = await store.log("events", ares.Configuration.chain(CHAIN_SERVERS))
        for entry in entries:
            await log.append(entry)
        servers.kill("s1")
        servers.start("s1")
        rot(servers)
        await _read_from_each(log, entries)
        assert await log.append(b"on") == len(entries)
        output = servers.output_path("s1")
        assert "records of a log cannot be read" in output.read_text()
        deadline_s = time.monotonic() + 60
        while output.read_text().count("repaired place") < 2:
            assert time.monotonic() < deadline_s, "what the reads found is not repaired"
            await asyncio.sleep(0.1)
        rot(servers)
        words = ("scrub", "--rate", "200MiB", "--server", "s1")
        scrubbed = (await asyncio.to_thread(partial(cluster.json, *words)))["servers"]["s1"]
        assert scrubbed["in_logs"] == 0
        assert "of a log differs from the written data" in output.read_text()
        assert output.read_text().count("repaired place") == 4
        servers.kill("s1")
        servers.start("s1")
        await _read_from_each(log, entries)
        for other in ("s0", "s2"):
            servers.kill(other)
        for position, entry in enumerate(entries):  # of s1 alone
            assert await log.read(position) == entry


async def _read_from_each(log: ares.Log, entries: list[bytes]) -> None:
    for turn in range(3):  # each server is asked first
        log._session.operations._turn = turn
        for position, entry in enumerate(entries):
            assert await log.read(position) == entry
