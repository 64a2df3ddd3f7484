"""Watches of buckets: order, batches, positions, lives of the index, gaps, deleted buckets."""

import asyncio
from contextlib import aclosing

import pytest

import ares
from ares.client.buckets import bucket_watch
from ares.client.buckets.blob_store import BlobStore
from ares.client.buckets.bucket_domains import SNAPSHOT_DOMAIN
from ares.client.buckets.upkeep.bucket_snapshots import BucketSnapshots
from tests.client.test_bucket_sessions import end_session, index_of


async def taken(changes, count):
    """Return the next changes that have events."""
    found = []
    while len(found) < count:
        change = await asyncio.wait_for(anext(changes), 60)
        if change.events:
            found.append(change)
    return found


def shown(change):
    return [(event.kind, event.key) for event in change.events]


async def change_much(bucket, rival):
    """Change objects by two clients; return the number of changes."""
    await asyncio.gather(*(each.put(f"2026/{n}", b"x") for n, each in enumerate((bucket, rival))))
    await bucket.move("2026/0", "2026/moved")
    await rival.put("2026/1", bytes(5000))
    with pytest.raises(ares.PreconditionFailed):
        await bucket.put("2026/1", b"", if_absent=True)
    await bucket.copy("2026/1", "elsewhere")
    await rival.delete("2026/1")
    return 6


async def test_changes_are_told_in_order_and_a_move_at_once(bucket, rival):
    async with aclosing(bucket.watch("2026/")) as changes:
        start = await anext(changes)
        assert start.events == ()
        count = await change_much(bucket, rival) - 1  # one is elsewhere
        found = await taken(changes, count)
    assert sorted(map(shown, found[:2])) == [[("put", "2026/0")], [("put", "2026/1")]]
    assert [shown(change) for change in found[2:]] == [
        [("put", "2026/moved"), ("delete", "2026/0")],
        [("put", "2026/1")],
        [("delete", "2026/1")],
    ]
    positions = [start.position, *(change.position for change in found)]
    assert positions == sorted(set(positions))
    put, deleted = found[3].events[0], found[4].events[0]
    assert (put.version, put.size, put.etag) == (deleted.version, 5000, deleted.etag)
    moved = await rival.stat("2026/moved")
    assert (found[2].events[0].version, found[2].events[0].etag) == (moved.version, moved.etag)


async def test_any_process_goes_on_at_any_position(cluster, bucket, rival):
    """The index of a later process begins after the changes."""
    async with aclosing(bucket.watch()) as changes:
        start = await anext(changes)
        count = await change_much(bucket, rival)
        found = await taken(changes, count)
    later = await cluster.manager().bucket("photos")
    for number, change in enumerate([start, *found]):
        async with aclosing(later.watch(since=change.position)) as changes:
            assert (await anext(changes)).position == change.position
            assert await taken(changes, count - number) == found[number:]


async def test_a_listing_after_the_first_mark_and_the_changes_leave_nothing_out(bucket, rival):
    await bucket.put("before", b"1")
    async with aclosing(rival.watch()) as changes:
        await anext(changes)
        await bucket.put("between", b"2")
        listed = [entry.key async for entry in rival.list()]
        await bucket.put("after", b"3")
        found = await taken(changes, 2)
    assert listed == ["before", "between"]
    assert [event.key for change in found for event in change.events] == ["between", "after"]


async def test_a_watch_goes_on_over_the_ends_of_its_index(bucket, rival):
    async with aclosing(bucket.watch()) as changes:
        await anext(changes)
        await rival.put("1", b"")
        found = await taken(changes, 1)
        first = await end_session(bucket, rival)
        await rival.put("2", b"")
        found += await taken(changes, 1)
        second = await index_of(bucket)
        second.fail(ares.IndexStopped("a test"))  # the rows in memory are lost with it
        await rival.put("3", b"")
        found += await taken(changes, 1)
        third = await index_of(bucket)
    assert [shown(change) for change in found] == [[("put", key)] for key in "123"]
    assert first.fold is second.fold is not third.fold


async def test_an_index_that_begins_at_a_snapshot_tells_the_changes_before(
    store, bucket, rival, monkeypatch
):
    async with aclosing(bucket.watch()) as changes:
        await anext(changes)
        for key in "12":
            await rival.put(key, b"")
        index = await index_of(bucket)
        await index.verified(10.0)
        assert await BucketSnapshots(BlobStore(await store.domain(SNAPSHOT_DOMAIN))).take(index)
        found = await taken(changes, 1)
        monkeypatch.setattr(index, "_apply", lambda *entry: None)  # it stands still
        await rival.put("3", b"")
        waiting = asyncio.ensure_future(taken(changes, 2))
        while not index._awaited:  # noqa: ASYNC110  # the watch waits for the index
            await asyncio.sleep(0.01)
        index.fail(ares.IndexBehind(index.state.snapshots()[-1].position))
        found += await waiting
    assert [shown(change) for change in found] == [[("put", key)] for key in "123"]
    assert (await index_of(bucket)).fold is not index.fold


async def test_marks_move_the_position_on_without_changes(bucket, rival, monkeypatch):
    monkeypatch.setattr(bucket_watch, "WATCH_MARK_S", 0.0)
    async with aclosing(bucket.watch("2026/")) as changes:
        marks = [await anext(changes)]
        await rival.put("elsewhere", b"")
        while len(marks) < 20:
            marks.append(await asyncio.wait_for(anext(changes), 60))
    assert {mark.events for mark in marks} == {()}
    assert [mark.position for mark in marks] == list(
        range(marks[0].position, marks[0].position + 20)
    )


async def test_a_watcher_that_is_too_slow_gets_a_gap(store, bucket, rival):
    """A slow watcher holds no changes: the log has them until the trim."""
    async with aclosing(rival.watch()) as changes:
        start = await anext(changes)
        for number in range(20):
            await bucket.put(f"{number}", b"")
        tail = (await index_of(bucket)).state.position
        await (await index_of(rival)).reach(tail, 10.0)
        await (await store.log("s3/meta/0")).trim(tail)
        with pytest.raises(ares.WatchGap) as gap:
            await taken(changes, 1)
    assert (gap.value.since, gap.value.first) == (start.position, tail)
    async with aclosing(rival.watch(since=gap.value.first)) as changes:
        await anext(changes)
        await bucket.put("later", b"")
        assert shown((await taken(changes, 1))[0]) == [("put", "later")]


async def test_a_deleted_bucket_ends_the_watch_after_its_last_change(store, bucket, rival):
    await bucket.put("key", b"")
    async with aclosing(rival.watch()) as changes:
        start = await anext(changes)
        await bucket.delete("key")
        await store.delete_bucket("photos")
        assert shown((await taken(changes, 1))[0]) == [("delete", "key")]
        with pytest.raises(ares.BucketNotFound):
            await taken(changes, 1)
    for since in (None, start.position):
        with pytest.raises(ares.BucketNotFound):
            await anext(bucket.watch(since=since))


async def test_positions_that_are_none_are_refused(bucket):
    for since, why in ((-1, "a position is"), ("1", "a position is"), (2**40, "behind the log")):
        with pytest.raises(ares.BadInput, match=why):
            await anext(bucket.watch(since=since))
    with pytest.raises(ares.BadInput, match="is text"):
        await anext(bucket.watch(17))
