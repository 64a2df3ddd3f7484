"""A full disk: changes are refused, reads succeed, and all work continues with new room.

See ares/store/journal/segment_journal.py.
"""

import asyncio
import errno
import os
import subprocess
from contextlib import contextmanager

import pytest

from ares.model.configuration import Status, Successor
from ares.model.messages import Ack, CollectConfig, DataReply, GetData, Introduce, Reason, Refused
from ares.model.units import KIB
from ares.replica.facts import fact_bytes_max
from ares.server.storage_server import ServerParts, StorageServer
from ares.store.journal.disk import Disk
from ares.store.journal.segments import Segment
from ares.store.port import Use

from .journal_node import INITIAL, NEXT, PHOTOS, Node, log_journal, plain, put, state


class SmallDisk(Disk):
    """A disk that allocates at most ``room`` bytes over all its files."""

    def __init__(self, room):
        super().__init__()
        self.room = room
        self._taken = {}
        self._paths = {}

    def create(self, path, size):
        descriptor = super().create(path, size)
        self._paths[descriptor] = path
        return descriptor

    @property
    def used(self):
        return sum(self._taken.values())

    def allocate(self, descriptor, start, end):
        path = self._paths[descriptor].with_suffix(".log")
        taken = self._taken.get(path, 0)
        if self.used - taken + end > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._taken[path] = max(taken, end)
        super().allocate(descriptor, start, end)

    def truncate(self, descriptor, size):
        super().truncate(descriptor, size)
        path = self._paths.get(descriptor)
        if path is not None:
            self._taken[path.with_suffix(".log")] = min(self._taken[path.with_suffix(".log")], size)

    def unlink(self, path):
        super().unlink(path)
        self._taken.pop(path.with_suffix(".log"), None)


def host_of(node):
    later, failures = [], []
    host = StorageServer(
        node.replica,
        node.journal,
        ServerParts(lambda sender, replies: later.extend(replies), failures.append),
    )
    return host, later, failures


async def ask(host, later, request):
    """Return the only reply, now or later."""
    del later[:]
    replies = host.handle("client", [request])
    await host.settle()
    [reply] = replies + later
    return reply


async def fill(host, later, limit=10_000):
    """Write until a write is refused; return the number of accepted writes."""
    for number in range(limit):
        reply = await ask(host, later, put(f"{number}", 1, b"d" * 3 * KIB))
        if isinstance(reply, Refused):
            assert reply.reason is Reason.STORAGE
            assert "disk is full" in reply.detail
            return number
        assert reply == Ack(7, None)
    raise AssertionError("the disk has no end")


async def life_on_a_full_disk(node, host, later, free):
    taken = await fill(host, later)
    assert taken > 20
    for number in (0, taken - 1):
        reply = await ask(host, later, GetData(1, INITIAL.id, f"{number}", True))
        assert isinstance(reply, DataReply)
        assert reply.element is not None
    assert (await ask(host, later, GetData(1, INITIAL.id, f"{taken}", True))).tags == ()
    assert await ask(host, later, put("0", 1, b"d" * 3 * KIB)) == Ack(7, None), (
        "what it has it need not write"
    )
    pointer = Successor(NEXT, Status.FINALIZED)
    assert await ask(host, later, CollectConfig(2, PHOTOS.id, pointer)) == Ack(2, pointer), (
        "what frees space takes the spare"
    )
    free()
    assert await fill(host, later) > 10
    return taken


async def test_a_small_disk_fills_and_recovers(tmp_path):
    disk = SmallDisk(400 * KIB)
    node = Node(log_journal(tmp_path / "j", disk))
    host, later, failures = host_of(node)
    assert host.handle("client", [Introduce(1, PHOTOS)]) == []

    def free():
        disk.room += 200 * KIB

    taken = await life_on_a_full_disk(node, host, later, free)
    assert failures == []
    again = Node(log_journal(tmp_path / "j"))
    assert again.state == node.state
    assert len(again.replica.hosted[INITIAL.id].objects) > taken


async def test_collecting_makes_room(tmp_path):
    """The data of a collected configuration is released even without room for large copies."""
    disk = SmallDisk(400 * KIB)
    node = Node(log_journal(tmp_path / "j", disk))
    host, later, _ = host_of(node)
    host.handle("client", [Introduce(1, PHOTOS)])
    number = 0
    while not isinstance(
        await ask(
            host, later, put(f"{number}", 1, b"d" * 3 * KIB, [INITIAL, PHOTOS, PHOTOS][number % 3])
        ),
        Refused,
    ):
        number += 1
    await ask(host, later, CollectConfig(2, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    assert isinstance(await ask(host, later, put("more", 1, b"d" * 30 * KIB)), Refused)
    assert await ask(host, later, put("more", 1, b"d" * 30 * KIB)) == Ack(7, None), (
        "who is refused makes it look for what can be given back"
    )
    assert disk.used < 350 * KIB
    assert Node(log_journal(tmp_path / "j")).state == node.state


@contextmanager
def tmpfs(directory, kib):
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(directory)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("only root mounts a disk of its own")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


async def test_a_real_disk_of_two_mib(tmp_path):
    with tmpfs(tmp_path / "disk", 2048):
        other = tmp_path / "disk" / "somebody else's"
        other.write_bytes(bytes(1024 * KIB))
        node = Node(log_journal(tmp_path / "disk" / "j"))
        host, later, failures = host_of(node)
        host.handle("client", [Introduce(1, PHOTOS)])
        await life_on_a_full_disk(node, host, later, other.unlink)
        assert failures == []
        await host.settle()
        assert Node(log_journal(tmp_path / "disk" / "j")).state == node.state
        node.journal.close()


def test_the_spare_is_for_those_that_free_space(tmp_path):
    journal = log_journal(tmp_path / "j", SmallDisk(100 * KIB))
    list(journal.recover())
    fact, counts = put("a", 1, b"d" * 700), {}
    for use in Use:
        counts[use] = 0
        while journal.reserve(1000, use) is not None:
            journal.append(fact, fact_bytes_max(fact))
            counts[use] += 1
    assert all(counts.values())


class FailingDisk(Disk):
    def __init__(self, what):
        super().__init__()
        self.what = what
        self.fails = False

    def _check(self, what):
        if self.fails and what == self.what:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def sync(self, descriptor):
        self._check("sync")
        super().sync(descriptor)

    def write(self, descriptor, buffers, offset):
        self._check("write")
        super().write(descriptor, buffers, offset)

    def allocate(self, descriptor, start, end):
        self._check("allocate")
        super().allocate(descriptor, start, end)


@pytest.mark.parametrize("what", ["sync", "write", "allocate"])
async def test_a_disk_that_fails_ends_the_server(tmp_path, what):
    disk = FailingDisk(what)
    node = Node(log_journal(tmp_path / "j", disk))
    host, later, failures = host_of(node)
    assert await ask(host, later, put("a", 1, b"x")) == Ack(7, None)
    disk.fails = True
    del later[:]
    for number in range(100):
        replies = host.handle("client", [put(f"{number}", 1, b"d" * 2 * KIB)])
        await asyncio.sleep(0)
        await host.settle()
        if failures:
            break
        assert (what, replies + later) == ("allocate", [Ack(7, None)] * (number + 1))
    [error] = failures
    assert error.errno == errno.EIO
    assert host.handle("client", [GetData(1, INITIAL.id, "a", True)]) == [], (
        "after that it is silent"
    )
    assert (
        Node(log_journal(tmp_path / "j")).state[INITIAL.id][3]["a"]
        == state(plain([put("a", 1, b"x")]))[INITIAL.id][3]["a"]
    )


class Growing(Segment):
    """A segment with more room after each look, as if another thread allocated room."""

    @property
    def allocated(self):
        seen = self.__dict__["allocated"]
        self.__dict__["allocated"] = self.size
        return seen

    @allocated.setter
    def allocated(self, bytes):
        self.__dict__["allocated"] = bytes


def test_room_that_a_commit_allocates_at_the_same_time_fails_no_server(tmp_path):
    journal = log_journal(tmp_path / "j")
    node = Node(journal)
    node.handle(put("a", 1, b"x"))
    node.commit()
    head = journal._head
    head.__class__ = Growing
    bytes = vars(head)["allocated"] - head.taken
    assert head.taken + bytes < head.size
    assert journal.reserve(bytes, Use.DATA) == head.number
