"""Snapshots of the buckets' index, the trim of its log, and its file: real servers in a loop."""

import asyncio
import threading
from functools import partial

import pytest

import ares
from ares.bucket.bucket_state import counted_digest
from ares.bucket.commands import KeepSnapshot
from ares.bucket.index_records import Blob
from ares.bucket.port import RowTableFailed
from ares.client.buckets.blob_store import BlobStore
from ares.client.buckets.bucket_domains import INDEX_LOG, SNAPSHOT_DOMAIN
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.buckets import Buckets
from ares.client.buckets.upkeep import bucket_snapshots, index_upkeep
from ares.client.buckets.upkeep.bucket_snapshots import (
    BucketSnapshots,
    SnapshotName,
    parsed_snapshot_name,
)
from ares.model.configuration import Configuration
from ares.model.errors import LeftBehind, Trimmed
from ares.model.identity import ClientId
from ares.model.tag import Tag
from ares.store.sqlite_table import SqliteTable, open_index_table

SERVERS = ["s0", "s1", "s2", "s3", "s4"]
LIMIT_S = 10.0


@pytest.fixture
async def store(cluster, monkeypatch):
    monkeypatch.setattr(index_upkeep, "SESSION_BEAT_S", 0.05)
    monkeypatch.setattr(index_upkeep, "COLLECTION_S", 0.05)
    monkeypatch.setattr(bucket_snapshots, "PORTION_ROWS", 7)
    monkeypatch.setattr(bucket_snapshots, "PORTION_PAUSE_S", 0)
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.abd(SERVERS))
    return manager


@pytest.fixture
def opened(cluster, tmp_path):
    """Return a function that opens the bucket of another client, with the file of an index."""

    async def open_bucket(name="index"):
        manager = cluster.manager()
        manager._buckets = Buckets(manager, partial(open_index_table, tmp_path / name, b"log"))
        return await manager.bucket("photos")

    return open_bucket


async def index_of(bucket):
    return await bucket._buckets.index(LIMIT_S)


async def snapshots_of(store):
    return BucketSnapshots(BlobStore(await store.domain(SNAPSHOT_DOMAIN)))


async def put_many(bucket, count, first=0):
    for number in range(first, first + count):
        await bucket.put(f"key{number:04d}", b"%d" % number)


async def read_many(bucket, count):
    for number in range(count):
        assert await (await bucket.get(f"key{number:04d}")).read() == b"%d" % number


async def names(store):
    return sorted([name async for name in (await store.domain(SNAPSHOT_DOMAIN)).list()])


async def first_left(store):
    return (await (await store.log(INDEX_LOG)).stat()).first


async def until(condition):
    while not await condition():  # noqa: ASYNC110  # the condition is at servers
        await asyncio.sleep(0.02)


# -- taking and trimming ---------------------------------------------------------------------------


async def test_snapshots_are_taken_by_the_oldest_session_and_the_log_is_trimmed(
    store, bucket, opened, monkeypatch
):
    other = await opened()
    monkeypatch.setattr(bucket_snapshots, "SNAPSHOT_COMMANDS", 40)
    monkeypatch.setattr(bucket_snapshots, "SNAPSHOT_LOOK_S", 0.05)
    for each in (bucket, other):  # tasks begin to look often
        index = await index_of(each)
        index.begin((await snapshots_of(store)).keep_up(index), "snapshots")
    index = await index_of(bucket)

    async def trimmed():
        await put_many(bucket, 10)
        return await first_left(store) > 0

    await asyncio.wait_for(until(trimmed), 60)
    kept = index.state.snapshots()
    assert len(kept) == 2
    assert {snapshot.blob.session for snapshot in kept} == {index.session.number}
    assert await first_left(store) <= kept[0].position
    await put_many(bucket, 30)
    third = await opened("a third client without rows")
    assert (await index_of(third)).fold.state.position > kept[0].position
    await read_many(third, 30)


async def test_bytes_of_the_log_make_a_snapshot_due(store, bucket, monkeypatch):
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    monkeypatch.setattr(bucket_snapshots, "SNAPSHOT_LOG_BYTES", 20_000)
    assert not await snapshots.take_due(index)
    await put_many(bucket, 1)
    assert not await snapshots.take_due(index)
    for number in range(9):
        await bucket.put(f"large{number}", bytes(3000))
    assert await snapshots.take_due(index)
    assert index.log_bytes < 20_000
    assert not await snapshots.take_due(index)
    assert await first_left(store) == 0, "a single snapshot is no reason to trim"


async def test_the_rows_of_a_position_are_kept_while_the_fold_goes_on(
    store, bucket, opened, tmp_path, monkeypatch
):
    monkeypatch.setattr(bucket_snapshots, "PORTION_PAUSE_S", 0.002)
    await put_many(bucket, 50)
    for taker in (bucket, await opened()):
        index, snapshots = await index_of(taker), await snapshots_of(store)
        store_rows, changes = snapshots._store, []

        async def store_beside(*arguments, taker=taker, rest=store_rows, changes=changes):
            storing = asyncio.ensure_future(rest(*arguments))
            while not storing.done():
                await taker.put(f"key{len(changes) % 50:04d}", b"changed")
                await taker.put(f"zz{len(changes):04d}", b"new")
                changes.append(taker)
            return await storing

        snapshots._store = store_beside
        assert await snapshots.take(index)
        assert len(changes) > 3
        kept = index.state.snapshots()[-1]
        table = SqliteTable(tmp_path / f"{kept.position}", b"log")
        assert await snapshots.load(table, kept.position, LIMIT_S)
        assert table.saved().position == kept.position < index.state.position - 6
        assert table.saved().digest == counted_digest(table) == int.from_bytes(kept.digest)
        table.close()


@pytest.mark.parametrize("wrong", ["0", "manifest"])
async def test_a_snapshot_that_is_read_back_otherwise_is_not_told(store, bucket, wrong):
    await put_many(bucket, 5)
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    fetch = snapshots._fetch

    async def fetch_otherwise(name, timeout_s):
        return await fetch(name, timeout_s) + b"more" * name.endswith(f"/{wrong}")

    snapshots._fetch = fetch_otherwise
    with pytest.raises(ares.AresError, match="read back"):
        await snapshots.take(index)
    await index.verified(LIMIT_S)
    assert index.state.snapshots() == []
    assert index.session._open_blobs == set()


async def test_rows_without_their_digest_are_no_snapshot(store, opened, bucket):
    await put_many(bucket, 5)
    other = await opened()
    index, snapshots = await index_of(other), await snapshots_of(store)
    table = index.state.table
    table.put(b"zz", b"a row that rotted")
    with pytest.raises(ares.IndexStopped, match="digest"):
        await snapshots.take(index)
    assert await first_left(store) == 0
    await read_many(other, 5)
    again = await index_of(other)
    assert again.state.digest == counted_digest(again.state.table), "the rows were begun again"


async def test_snapshots_that_are_not_kept_are_dropped(store, bucket):
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    number = index.session.number
    under_way = index.session.take_blob()
    settled = index.session.take_blob()
    index.session.close_blob(settled)
    litter = [SnapshotName(3, number, settled).part(0), SnapshotName(3, 1, 7).part("manifest")]
    stays = [SnapshotName(9, number, under_way).part(0), "a name of a stranger"]
    for name in (*litter, *stays):
        await snapshots._domain.create(name, b"bytes", LIMIT_S)
    for _ in range(3):
        await put_many(bucket, 2)
        assert await snapshots.take(index)
    await asyncio.sleep(0.2)  # several beats
    await index.verified(LIMIT_S)
    await snapshots.sweep(index)
    kept = [snapshot.position for snapshot in index.state.snapshots()]
    left = await names(store)
    assert set(stays) < set(left)
    assert not set(litter) & set(left)
    positions = {parsed[0].position for name in left if (parsed := parsed_snapshot_name(name))}
    assert positions == {*kept, 9}


# -- loading ---------------------------------------------------------------------------------------


async def test_a_damaged_snapshot_is_passed_over(store, bucket, opened):
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    for _ in range(2):
        await put_many(bucket, 10)
        assert await snapshots.take(index)
    await snapshots._trim(index)
    old, new = index.state.snapshots()
    lost = SnapshotName(new.position, new.blob.session, new.blob.counter).part(0)
    await snapshots._domain.drop([lost], LIMIT_S)
    other = await opened()
    assert await first_left(store) == old.position
    await read_many(other, 10)
    lost = SnapshotName(old.position, old.blob.session, old.blob.counter).part("manifest")
    await snapshots._domain.drop([lost], LIMIT_S)
    with pytest.raises(ares.IndexStopped, match="no snapshot"):
        await opened("another")


async def test_a_process_that_is_behind_a_trim_goes_on_from_a_snapshot(
    store, bucket, opened, monkeypatch
):
    other = await opened()
    await put_many(bucket, 3)
    await read_many(other, 3)
    behind = await index_of(other)
    behind.fold.save()
    apply = BucketIndex._apply
    stopped = []

    def slow(self, position, entry):
        if self is behind:
            stopped.append(position)
            raise Trimmed(stopped[0] + 40)
        apply(self, position, entry)

    monkeypatch.setattr(BucketIndex, "_apply", slow)
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    await put_many(bucket, 60)
    for _ in range(2):
        await put_many(bucket, 5)
        assert await snapshots.take(index)
    await snapshots._trim(index)
    with pytest.raises(ares.IndexBehind) as told:
        behind.check()
    assert told.value.may_have_taken_effect
    await read_many(other, 60)
    again = await index_of(other)
    assert again.fold is not behind.fold
    assert again.state.digest == counted_digest(again.state.table)


async def test_a_client_without_rows_begins_at_a_snapshot_of_a_whole_log(
    store, bucket, opened, monkeypatch
):
    await put_many(bucket, 20)
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    assert await snapshots.take(index)
    loaded, load = [], BucketSnapshots._load

    async def load_seen(self, table, name, timeout_s):
        loaded.append(name.position)
        await load(self, table, name, timeout_s)

    monkeypatch.setattr(BucketSnapshots, "_load", load_seen)
    await read_many(await opened(), 20)
    assert loaded == [index.state.snapshots()[-1].position]


# -- the file --------------------------------------------------------------------------------------


async def test_a_closed_client_leaves_its_rows_in_the_file(cluster, store, bucket, opened):
    await put_many(bucket, 20)
    other = await opened()
    await read_many(other, 20)
    position = (await index_of(other)).state.position
    await cluster.managers[-1].close()
    table = open_index_table(other._buckets._open_table.args[0], b"log")
    assert table.saved().position >= position
    table.close()
    again = await opened()
    await read_many(again, 20)


async def test_rows_beyond_the_end_of_the_log_are_of_another_log(bucket, opened, tmp_path):
    table = SqliteTable(tmp_path / "index" / "index-0.sqlite", b"log")
    table.put(b"bphotos", b"rows of another life of the cluster")
    table.save(table.saved()._replace(position=10_000, digest=5))
    table.close()
    await put_many(bucket, 3)
    with pytest.raises(ares.IndexStopped, match="another"):
        await opened()
    await read_many(await opened(), 3)


async def test_a_disk_that_refuses_leaves_the_index_in_memory(bucket, opened):
    other = await opened()
    index = await index_of(other)
    index.state.table._execute("PRAGMA query_only = ON")
    await put_many(bucket, 3)

    async def failed():
        return index.failure is not None

    await asyncio.wait_for(until(failed), 30)
    assert isinstance(index.failure, RowTableFailed)
    await put_many(other, 3)
    await read_many(other, 3)
    assert type((await index_of(other)).state.table).__name__ == "MemoryTable"


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", "1/2/3/4", f"{1:019d}/2/3", f"{1:019d}/2/0/0", f"{1:019d}/02/3/0", f"{-1:019d}/2/3/0"],
)
def test_foreign_names_are_no_snapshots(name):
    assert parsed_snapshot_name(name) is None


def test_names_are_in_the_order_of_positions():
    assert SnapshotName(9, 1, 1).part(0) < SnapshotName(10, 1, 1).part("manifest")
    name = SnapshotName(2**63 - 1, 17, 3)
    assert parsed_snapshot_name(name.part("manifest")) == (name, "manifest")
    assert Blob(name.session, name.counter, 1).chunks == 1
    assert KeepSnapshot(1, bytes(16), Blob(17, 3, 1)).position == 1


async def test_a_caller_that_gives_up_leaves_no_locked_file(cluster, store, bucket, tmp_path):
    began, may_open, opened = threading.Event(), threading.Event(), []

    def slowly():
        began.set()
        may_open.wait(LIMIT_S)
        opened.append(open_index_table(tmp_path / "index", b"log"))
        return opened[0]

    async def has_begun():
        return began.is_set()

    async def is_free():
        if not opened:
            return False
        again = open_index_table(tmp_path / "index", b"log")
        again.close()
        return again._path == opened[0]._path

    manager = cluster.manager()
    manager._buckets = Buckets(manager, slowly)
    waiting = asyncio.ensure_future(manager.bucket("photos"))
    await asyncio.wait_for(until(has_begun), LIMIT_S)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    may_open.set()
    await asyncio.wait_for(until(is_free), LIMIT_S)


async def test_a_snapshot_left_behind_by_a_move_is_passed_over(store, bucket, opened, monkeypatch):
    await put_many(bucket, 5)
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    assert await snapshots.take(index)

    async def left_behind(self, name, timeout_s):
        raise LeftBehind(name, Tag(1, ClientId(1)))

    monkeypatch.setattr(BucketSnapshots, "_fetch", left_behind)
    await read_many(await opened(), 5)
