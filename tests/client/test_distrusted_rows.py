"""Wrong rows with a fitting digest are given up; snapshots of such rows are loaded last."""

import asyncio
from contextlib import suppress

import ares
from ares.bucket.commands import KeepSnapshot
from ares.bucket.index_records import Blob
from ares.client.buckets.blob_store import BlobStore
from ares.client.buckets.upkeep.bucket_snapshots import SnapshotName
from tests.client.test_bucket_snapshots import (
    LIMIT_S,
    index_of,
    names,
    put_many,
    snapshots_of,
    until,
)
from tests.client.test_bucket_snapshots import (
    opened as opened,
)
from tests.client.test_bucket_snapshots import (
    store as store,
)

WRONG_ROW = b"z a row that no command made"


async def test_two_processes_with_different_rows_go_on_after_a_fold_from_the_begin(
    store, bucket, opened
):
    """Fold again a process with wrong rows and a fitting digest, as after a mended fault."""
    other = await opened()
    await bucket.put("key", b"1")
    await other.stat("key")
    wrong = await index_of(other)
    wrong.state.put(WRONG_ROW, b"wrong")
    wrong.fold.save()

    async def mended():
        for each in (bucket, other):  # a call opens the next life
            with suppress(ares.IndexStopped, ares.SessionEnded):
                await each.stat("key")
        index, first = await index_of(other), await index_of(bucket)
        agree = first.session.number in index._agreed_s and None not in index._agreed_s.values()
        return agree and index.state.table.get(WRONG_ROW) is None

    await asyncio.wait_for(until(mended), 60)
    assert other._buckets.distrusted == 2
    assert await (await other.get("key")).read() == b"1"


async def test_a_snapshot_of_different_rows_is_marked_and_loaded_last(store, bucket, opened):
    index, snapshots = await index_of(bucket), await snapshots_of(store)
    for _ in range(2):
        await put_many(bucket, 5)
        assert await snapshots.take(index)
    old, new = index.state.snapshots()
    order = [name.position for name in await snapshots._whole(0, LIMIT_S)]
    assert order == [new.position, old.position]
    other = await opened()
    (await index_of(other))._compare(
        index.session.number, KeepSnapshot(new.position, bytes(16), new.blob)
    )
    await other.stat("key0001")
    marked = SnapshotName(new.position, new.blob.session, new.blob.counter).part("doubt-")
    assert any(name.startswith(marked) for name in await names(store))
    order = [name.position for name in await snapshots._whole(0, LIMIT_S)]
    assert order == [old.position, new.position]
    await snapshots.sweep(index)
    assert any(name.startswith(marked) for name in await names(store)), "with its snapshot"


async def test_rows_begin_anew_ever_more_rarely(bucket, opened):
    """Fold snapshots ever more rarely beside a process with rows that stay wrong."""
    other = await opened()
    index = await index_of(other)
    index.state.put(WRONG_ROW, b"wrong")
    index.fold.save()
    for distrusted, kept in ((2, True), (5, True), (7, False)):
        index = await index_of(other)
        other._buckets.distrusted = distrusted
        await asyncio.sleep(0)  # its tasks begin
        index.distrust("a test")
        table = (await index_of(other)).state.table
        assert (table.get(WRONG_ROW) is not None) is kept


async def test_a_snapshot_without_a_mark_stops_no_process(bucket, monkeypatch):
    async def refused(*_):
        raise ares.Unavailable(2, 1, {})

    await bucket.put("key", b"1")
    index = await index_of(bucket)
    blob = Blob(index.session.number, 1, 1)
    monkeypatch.setattr(BlobStore, "create", refused)
    index.distrust("a test", KeepSnapshot(index.state.position, bytes(16), blob))
    assert await (await bucket.get("key")).read() == b"1"
    assert bucket._buckets.distrusted == 1
