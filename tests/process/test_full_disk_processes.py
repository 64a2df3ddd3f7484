"""Servers with full disks: they refuse changes with the reason, and serve reads.

They accept changes again with free space from any source.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ares
from ares.client.blocking import BlockingManager
from ares.cluster.settings import Settings
from ares.platform.interpreter import python

from .warm_start import ares_cli

pytestmark = [pytest.mark.process, pytest.mark.slow]

DISK_MIB = 10
BALLAST_BYTES = 3 << 20
VALUE_BYTES = 50_000
PATIENCE_S = 60.0


def namespace() -> list[str] | None:
    """Return the command for a private mount namespace, or `None` if impossible."""
    for words in (["unshare", "-m"], ["unshare", "-rm"]):
        with suppress(OSError):
            done = subprocess.run(
                [*words, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
            )
            if done.returncode == 0:
                return words
    return None


OWN_NAMESPACE = namespace()
needs_mounts = pytest.mark.skipif(
    OWN_NAMESPACE is None, reason="a small disk needs root, or a user who may make namespaces"
)


class SmallDisks:
    """A cluster of three servers, each with a separate disk of DISK_MIB.

    The mounts end with the process that holds them.
    """

    def __init__(self, directory: Path, members: int = 0) -> None:
        assert OWN_NAMESPACE is not None
        words = ["init", str(directory), "--servers", "3", "--consensus", str(members)]
        subprocess.run(ares_cli(*words, "--base-port", "0"), check=True, capture_output=True)
        self.file = directory / "cluster.toml"
        settings = Settings.load(self.file)
        self._homes = [server.data for server in settings.servers.values()]
        self._processes = [("server", id) for id in settings.servers]
        self._processes += [("consensus", id) for id in settings.members]
        for home in self._homes:
            home.mkdir(parents=True, exist_ok=True)
        mounts = "".join(
            f"mount -t tmpfs -o size={DISK_MIB}m none '{home}' && " for home in self._homes
        )
        self._holder = subprocess.Popen(
            [*OWN_NAMESPACE, "sh", "-c", f"{mounts} echo mounted && exec sleep 600"],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"
        prepare = self.inside(
            *python("-m", "ares", "prepare", self.file, *(id for _, id in self._processes))
        )
        subprocess.run(prepare, check=True, capture_output=True)
        self._servers: list[subprocess.Popen[bytes]] = []

    def inside(self, *words: str | Path) -> list[str | Path]:
        """Return the words of a command that sees the disks."""
        user = [] if OWN_NAMESPACE == ["unshare", "-m"] else ["-U", "--preserve-credentials"]
        return ["nsenter", "-t", str(self._holder.pid), "-m", *user, f"--wd={Path.cwd()}", *words]

    def start(self) -> None:
        for kind, id in self._processes:
            command = self.inside(*python("-m", "ares", kind, self.file, "--id", id))
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self._servers.append(process)
            assert process.stdout is not None
            assert b"READY" in process.stdout.readline()

    def kill(self) -> None:
        for process in self._servers:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate()
        self._servers.clear()

    def put_ballast(self) -> None:
        for home in self._homes:
            subprocess.run(
                self.inside(
                    "dd", "if=/dev/zero", f"of={home}/ballast", f"bs={BALLAST_BYTES}", "count=1"
                ),
                check=True,
                capture_output=True,
            )

    def fill(self, server: str) -> None:
        """Fill the disk of a server."""
        home = next(home for home in self._homes if home.name == server)
        subprocess.run(
            self.inside("dd", "if=/dev/zero", f"of={home}/rest", "bs=65536"), capture_output=True
        )

    def remove_ballast(self) -> None:
        for home in self._homes:
            subprocess.run(self.inside("rm", home / "ballast"), check=True)

    def close(self) -> None:
        self.kill()
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[SmallDisks]:
    made = SmallDisks(tmp_path / "c")
    try:
        made.put_ballast()
        made.start()
        yield made
    finally:
        made.close()


class Writer:
    """A writer of objects that remembers acknowledged values."""

    def __init__(self, store: BlockingManager) -> None:
        self.store = store
        self.acknowledged: dict[str, bytes] = {}
        self._count = 0

    def fill(self) -> ares.AresError:
        """Write until the first failure, and return the error."""
        for _ in range((DISK_MIB << 20) // VALUE_BYTES):
            try:
                self.write()
            except ares.AresError as error:
                return error
        raise AssertionError("the disks took more than they have room for")

    def write(self) -> None:
        key, value = f"object {self._count}", os.urandom(VALUE_BYTES)
        self._count += 1
        self.store.write(key, value, timeout_s=1)
        self.acknowledged[key] = value

    def write_eventually(self) -> None:
        """Write until success; space is released gradually."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.write()
            except ares.AresError:
                assert time.monotonic() < deadline_s
                time.sleep(0.05)

    def check(self, store: BlockingManager) -> None:
        assert {key: store.read(key) for key in self.acknowledged} == self.acknowledged


def status_of(disks: SmallDisks) -> dict[str, Any]:
    """Return the full disks and the state of `default`.

    Reads succeed; the exit status is therefore 0.
    """
    command = ares_cli("-c", disks.file, "status")
    told = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, check=True, timeout=240).stdout
    )
    full = {id: server["stored"]["full"] for id, server in told["servers"].items()}
    shown = subprocess.run(command, capture_output=True, check=True, text=True, timeout=240).stdout
    assert [f"{id} has a full disk: it answers reads" in shown for id in full] == list(
        full.values()
    )
    assert told["domains"][0]["takes_writes"] is not any(full.values())
    return {"servers": full, "outlook": told["domains"][0]["outlook"]}


@needs_mounts
def test_a_full_disk_refuses_changes_serves_reads_and_goes_on_when_there_is_space(disks):
    with ares.connect_blocking(disks.file) as store:
        writer = Writer(store)
        error = writer.fill()
        assert isinstance(error, ares.Unavailable)
        assert (
            "its disk is full: it answers reads, and takes changes again when there is space"
            in str(error)
        )
        assert len(writer.acknowledged) > 10
        deadline_s = time.monotonic() + PATIENCE_S
        while set(status_of(disks)["servers"].values()) != {True}:
            # a write refused before may find room after another stops asking
            assert time.monotonic() < deadline_s
            writer.fill()
        assert str(writer.fill()).endswith("nothing was changed")
        writer.check(store)
        who = ", ".join(f"s{number} has a full disk" for number in range(3))
        assert (
            status_of(disks)["outlook"]
            == "default: ABD 3, NO WRITES, 2 more of its servers must take them, reads go on: "
            f"{who}"
        )

        disks.remove_ballast()
        before = len(writer.acknowledged)
        writer.write_eventually()
        assert status_of(disks) == {
            "servers": {"s0": False, "s1": False, "s2": False},
            "outlook": "default: ABD 3, survives 1 more crash",
        }
        writer.fill()
        assert len(writer.acknowledged) > before + BALLAST_BYTES // VALUE_BYTES // 2
        writer.check(store)

        for key in list(writer.acknowledged)[::2]:
            store.delete(key)
            del writer.acknowledged[key]
        for _ in range(len(writer.acknowledged) // 2):
            writer.write_eventually()
        writer.check(store)

        writer.fill()
        disks.kill()
        disks.start()
        writer.check(store)
    with ares.connect_blocking(disks.file) as store:
        writer.check(store)
        store.delete(next(iter(writer.acknowledged)))


@needs_mounts
def test_an_append_names_the_full_disk_in_the_middle_of_its_chain(tmp_path):
    disks = SmallDisks(tmp_path / "c", members=1)
    try:
        disks.start()
        with ares.connect_blocking(disks.file) as store:
            log = store.log("events", ares.Configuration.chain(["s0", "s1", "s2"]))
            assert log.append(b"first") == 0
            disks.fill("s1")
            many = [os.urandom(VALUE_BYTES)] * ((DISK_MIB << 20) // VALUE_BYTES // 8)
            with pytest.raises(ares.AppendUncertain, match="s1: its disk is full") as caught:
                log.append_many(many, timeout_s=6)
            assert "s0, its head: no answer" in str(caught.value)
            assert log.read(0) == b"first"
    finally:
        disks.close()
