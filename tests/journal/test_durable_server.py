"""A durable server over the in-process transport: waiting replies, and state after a restart.

Replies wait for the disk only if necessary.
"""

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest
from msgspec import structs

from ares.client.domain_directory import ClientParts
from ares.client.manager import Manager
from ares.consensus.local import LocalConsensus
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.errors import StoreFailed, Unavailable
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.model.messages import (
    Ack,
    Describe,
    GetData,
    GetHint,
    GetTag,
    Introduce,
    ListObjects,
    ReadConfig,
    WriteConfig,
)
from ares.model.units import KIB
from ares.platform import tasks
from ares.reconfig.view import Switches
from ares.replica import group_commit
from ares.server.storage_process import ServingParts, run_server
from ares.server.storage_server import ServerParts, StorageServer
from ares.store.journal.disk import Disk
from ares.store.journal.segment_journal import SegmentJournal, open_journal
from ares.store.journal.segments import Owner
from ares.store.journal.writer import WriterThread
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork

from .journal_node import INITIAL, NEXT, PHOTOS, AtOnce, Node, log_journal, put
from .test_journal_full_disk import FailingDisk, SmallDisk

PATIENCE_S = 60.0

# -- which replies wait ----------------------------------------------------------------------------


class Waiting:
    """A host with commits ended by a call of the test."""

    def __init__(self, directory):
        self.background = AtOnce(waiting=True)
        self.node = Node(log_journal(directory, background=self.background))
        self.later: list = []
        self.host = StorageServer(
            self.node.replica,
            self.node.journal,
            ServerParts(lambda sender, replies: self.later.extend(replies), lambda error: None),
        )

    def calls(self, *requests):
        """Return the calls of the requests answered at once."""
        return [reply.call for reply in self.host.handle("client", list(requests))]

    async def synced(self):
        """Make waiting facts durable; return the calls answered by this."""
        await asyncio.sleep(0)
        del self.later[:]
        self.background.step()
        return [reply.call for reply in self.later]


@pytest.fixture
async def waiting(tmp_path):
    waiting = Waiting(tmp_path / "j")
    waiting.calls(Introduce(1, PHOTOS), put("old", 1, b"x"), put("p", 1, b"x", PHOTOS))
    assert await waiting.synced() == [7, 7]
    return waiting


async def test_what_needs_not_wait(waiting):
    assert waiting.calls(put("new", 1, b"x")) == []
    quick = [
        GetTag(1, INITIAL.id, "old"),
        GetData(2, INITIAL.id, "old", True),
        ReadConfig(3, INITIAL.id),
        ListObjects(4, PHOTOS.id, "", 9),
    ]
    assert waiting.calls(
        *quick, put("old", 1, b"x"), GetTag(5, b"unknown", "new"), GetHint(6, "d")
    ) == [1, 2, 3, 4, 7, 5, 6]
    assert await waiting.synced() == [7]


async def test_an_error_of_a_tracer_is_no_error_of_the_disk(waiting, monkeypatch):
    """The trace is lost; the requests are answered as usual, at once or after the commit."""
    counts = tasks.failures.counts
    before, traced = counts["trace of a request"], []

    def fail(served):
        traced.append(served.kind)
        raise OSError(errno.ENOSPC, "no space for traces")

    monkeypatch.setattr(waiting.host, "traced", fail)
    quick = structs.replace(GetTag(1, INITIAL.id, "old"), trace=b"t" * 26)
    slow = structs.replace(put("new", 1, b"x"), trace=b"t" * 26)
    assert waiting.calls(quick, slow) == [1]
    assert await waiting.synced() == [7]
    assert traced == ["GetTag", "PutData"]
    assert counts["trace of a request"] == before + 2
    assert waiting.calls(put("newer", 1, b"x")) == []
    assert await waiting.synced() == [7]


async def test_a_message_that_is_no_request_is_refused_beside_a_commit(waiting):
    assert waiting.calls(put("new", 1, b"x")) == []
    (refused,) = waiting.host.handle("client", [Ack(4, None)])
    assert (refused.call, "no request" in refused.detail) == (4, True)
    assert await waiting.synced() == [7]


@pytest.mark.parametrize(
    "shows",
    [
        GetTag(1, INITIAL.id, "new"),
        GetData(1, INITIAL.id, "new", True),
        ListObjects(1, INITIAL.id, "", 9),
        Describe(1),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_what_shows_an_unsynced_element_waits(waiting, shows):
    """This holds for the gathering commit, and for the commit under way."""
    assert waiting.calls(put("new", 1, b"x"), shows) == []
    await asyncio.sleep(0)
    assert waiting.calls(put("newer", 1, b"x"), shows) == []
    first = await waiting.synced()
    assert first[:2] == [7, 1]
    assert (await waiting.synced() or first[2:])[-1] in (1, 7)
    assert waiting.calls(shows) == [1]


async def test_a_client_has_so_much_waiting_for_a_slow_disk_and_no_more(waiting, monkeypatch):
    """A stop of the disk for seconds must not let waiting replies fill memory."""
    monkeypatch.setattr(group_commit, "ROWS_MAX", 30)
    waiting.calls(put("new", 1, b"x"))
    for call in range(100, 200):
        # three rows: two objects, and itself
        assert waiting.calls(ListObjects(call, INITIAL.id, "", 9)) == []
    assert waiting.host.handle("another client", [GetTag(2, INITIAL.id, "new")]) == []
    assert await waiting.synced() == [7, *range(100, 109), 2]
    assert waiting.calls(ListObjects(109, INITIAL.id, "", 9)) == [109]


async def test_a_resend_of_what_is_not_durable_waits(waiting):
    assert waiting.calls(put("new", 1, b"x"), put("new", 1, b"x")) == []
    assert await waiting.synced() == [7, 7]


ABOUT = [
    GetTag(1, PHOTOS.id, "p"),
    GetData(1, PHOTOS.id, "p", True),
    put("p", 1, b"x", PHOTOS),
    ListObjects(1, PHOTOS.id, "", 9),
]


@pytest.mark.parametrize(
    "shows", [ReadConfig(1, PHOTOS.id), *ABOUT], ids=lambda request: type(request).__name__
)
async def test_every_answer_about_a_configuration_shows_its_pointer(waiting, shows):
    assert waiting.calls(
        WriteConfig(9, PHOTOS.id, Successor(NEXT, Status.PENDING)),
        shows,
        GetTag(5, INITIAL.id, "old"),
    ) == [5]
    assert await waiting.synced() == [9, shows.call]


async def test_carried_successors_wait_too(waiting):
    assert (
        waiting.calls(GetData(4, PHOTOS.id, "p", True, None, Successor(NEXT, Status.PENDING))) == []
    )
    assert await waiting.synced() == [4]
    assert waiting.calls(
        GetData(4, PHOTOS.id, "p", True, None, Successor(NEXT, Status.PENDING))
    ) == [4], "again, it changes nothing"


async def test_a_turn_of_the_loop_is_one_commit(waiting):
    for number in range(20):
        waiting.calls(put(f"{number}", 1, b"x"))
    await asyncio.sleep(0)
    assert len(waiting.background.jobs) == 1
    for number in range(20, 30):
        waiting.calls(put(f"{number}", 1, b"x"))
        await asyncio.sleep(0)
    assert len(waiting.background.jobs) == 1, "one is under way; the next gathers"
    assert len(await waiting.synced()) == 20
    assert waiting.background.jobs == [], (
        "the replies leave first: to sync is to keep the loop, perhaps"
    )
    assert len(await waiting.synced()) == 10


# -- a cluster -------------------------------------------------------------------------------------


class DurableCluster:
    """Three servers s0 to s2 with journals, in the same loop.

    Each can be stopped as if killed, and started again.
    """

    def __init__(self, directory: Path):
        self.directory, self.network, self.consensus = directory, InprocNetwork(), LocalConsensus()
        self.book = {
            server.id: server
            for server in (
                Server(f"s{number}", f"host{number}:1", f"{number:032x}") for number in range(3)
            )
        }
        self.initial = Configuration.abd(self.book.values()).at(DEFAULT_DOMAIN, 0)
        self.running: dict = {}
        self.disks: dict = {}
        self.managers: list[Manager] = []

    async def start(self, *names):
        for name in names or self.book:
            server = self.book[name]
            owner = Owner(self.initial.id, name, server.identity)
            journal = open_journal(self.directory / name, owner, 256 * KIB)
            if name in self.disks:
                journal = SegmentJournal(
                    self.directory / name, owner, WriterThread(), self.disks[name], 256 * KIB
                )
            stop, listener = asyncio.Event(), InprocListener(self.network, server.address)
            task = asyncio.create_task(
                run_server(
                    ServingParts(server.id, server.identity, self.initial, listener, stop, journal)
                )
            )
            self.running[name] = (task, stop)
            await asyncio.sleep(0)

    async def stop(self, *names):
        for name in names or list(self.running):
            task, stop = self.running.pop(name)
            stop.set()
            await task

    def manager(self, timeout_s=10.0):
        client = ClientId(len(self.managers) + 1)
        manager = Manager(
            ClientParts(
                lambda: InprocConnections(self.network),
                self.consensus,
                self.initial,
                self.book,
                client,
                Switches(),
                timeout_s,
            )
        )
        self.managers.append(manager)
        return manager

    async def close(self):
        for manager in self.managers:
            await manager.close()
        await self.stop()


@pytest.fixture
async def cluster(tmp_path):
    cluster = DurableCluster(tmp_path)
    yield cluster
    await cluster.close()


async def test_everything_is_there_after_all_servers_were_stopped(cluster):
    await cluster.start()
    store = cluster.manager()
    values = {f"key {number}": bytes([number]) * (number * 1000) for number in range(40)}
    await asyncio.gather(*(store.write(key, value) for key, value in values.items()))
    await store.delete("key 7")
    del values["key 7"]
    for _ in range(2):
        await cluster.stop()
        await cluster.start()
        again = cluster.manager()
        assert (
            dict(zip(values, await asyncio.gather(*map(again.read, values)), strict=True)) == values
        )


async def test_overwriting_takes_bounded_space(cluster):
    await cluster.start()
    store = cluster.manager()
    for number in range(60):
        await asyncio.gather(
            *(store.write(f"key {key}", bytes([number]) * 20_000) for key in range(5))
        )
    async with asyncio.timeout(PATIENCE_S):  # compaction may be behind the writes
        while taken_bytes(cluster.directory / "s0") >= 1_500 * KIB:  # noqa: ASYNC110 (state of a disk)
            await asyncio.sleep(0.05)
    await cluster.stop()
    await cluster.start()
    assert await cluster.manager().read("key 3") == bytes([59]) * 20_000


def taken_bytes(directory: Path) -> int:
    """Return the bytes on the disk of the files of a directory."""
    taken = 0
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):  # discarded meanwhile
            taken += path.stat().st_blocks * 512
    return taken


async def test_a_full_server_counts_as_missing_with_its_reason(cluster):
    cluster.disks = {name: SmallDisk(800 * KIB) for name in ("s0", "s1", "s2")}
    cluster.disks["s2"].room = 10**9
    await cluster.start()
    store = cluster.manager(timeout_s=10.0)
    written = []

    async def write_until_refused():
        for number in range(200):
            await store.write(f"key {number}", b"d" * 20_000)
            written.append(number)

    with pytest.raises(Unavailable) as refused:
        await write_until_refused()
    assert len(written) > 10
    assert "disk is full" in str(refused.value)
    assert set(refused.value.missing) >= {"s0"} or set(refused.value.missing) >= {"s1"}
    assert await store.read("key 0") == b"d" * 20_000
    cluster.disks["s0"].room = 10**9
    assert await store.write("another", b"d" * 20_000)
    assert await store.read("another") == b"d" * 20_000


async def test_a_failing_disk_ends_the_server_without_an_acknowledgement(cluster):
    cluster.disks["s1"] = FailingDisk("sync")
    await cluster.start()
    store = cluster.manager()
    await store.write("a", b"before")
    cluster.disks["s1"].fails = True
    await store.write("a", b"after")
    task, _ = cluster.running.pop("s1")
    with pytest.raises(StoreFailed, match="of s1 failed: Input/output error"):
        await task
    cluster.disks["s1"] = Disk()
    await cluster.start("s1")
    await cluster.stop("s0")
    assert await store.read("a") == b"after"


async def test_accepted_requests_are_finished_when_it_is_stopped(tmp_path):
    waiting = Waiting(tmp_path / "j")
    assert waiting.calls(put("a", 1, b"x")) == []
    settled = asyncio.create_task(waiting.host.settle())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not settled.done()
    assert await waiting.synced() == [7]
    await settled
    assert waiting.calls(put("a", 1, b"x")) == [7]
    assert waiting.later == [Ack(7, None)]


# -- turns -----------------------------------------------------------------------------------------


async def test_what_is_verified_and_what_is_answered_count_as_work(waiting):
    """Large elements are verified at each read, which counts for a turn.

    See tests/transport/test_turns.py.
    """
    waiting.calls(put("large", 1, b"x" * 10 * KIB))
    assert await waiting.synced() == [7]
    meter = waiting.host._meter
    for count in (1, 3):
        before = meter.spent
        asked = [GetData(call, INITIAL.id, "large", True) for call in range(count)]
        assert len(waiting.host.handle("client", asked)) == count
        assert meter.spent - before == count * 2 * 10 * KIB
