"""Buckets on real servers in an event loop: objects, conditions, ranges, listings, copies."""

import asyncio

import pytest

import ares
from ares.bucket.index_records import BLOB_CHUNK_BYTES
from ares.model.configuration import Configuration

SERVERS = ["s0", "s1", "s2", "s3", "s4"]
LARGE = bytes(range(256)) * 40_000
"""An object of 10 MB: two chunks."""


class NotBlocking:
    """A file that does not block, with a pause in its data."""

    def __init__(self):
        self._parts = [b"first", None, b"last", b""]

    def read(self, size):
        return self._parts.pop(0)


@pytest.fixture
async def store(cluster):
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.ec(SERVERS, 3))
    return manager


async def read(bucket, key, **options):
    async with await bucket.get(key, **options) as found:
        return await found.read()


async def test_what_was_put_is_read(bucket):
    for key, data in (("empty", b""), ("small", b"x" * 3072), ("blob", b"y" * 3073)):
        stored = await bucket.put(key, data, content_type="text/plain", metadata={"by": "me"})
        found = await bucket.get(key)
        assert (await found.read(), found.size, found.version) == (data, len(data), stored.version)
        assert (await bucket.stat(key)).metadata == {"by": "me", "content-type": "text/plain"}


async def test_a_large_object_is_read_whole_and_in_ranges(bucket):
    await bucket.put("large", LARGE)
    assert await read(bucket, "large") == LARGE
    edge = BLOB_CHUNK_BYTES
    for start, length in ((0, 10), (edge - 3, 6), (edge, None), (-7, None), (len(LARGE), 5)):
        first = start if start >= 0 else len(LARGE) + start
        last = len(LARGE) if length is None else first + length
        assert await read(bucket, "large", start=start, length=length) == LARGE[first:last]
    chunks = [chunk async for chunk in await bucket.get("large")]
    assert [len(chunk) for chunk in chunks] == [edge, len(LARGE) - edge]


async def test_a_range_behind_the_end_is_refused(bucket):
    await bucket.put("ten", b"0123456789")
    assert await read(bucket, "ten", start=10) == b""
    for start in (11, 99):
        with pytest.raises(ares.BadInput, match="behind the 10 bytes"):
            await bucket.get("ten", start=start)


async def test_data_comes_from_files_and_streams(bucket, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(LARGE)

    async def slowly():
        for start in range(0, len(LARGE), 999_983):
            await asyncio.sleep(0)
            yield LARGE[start : start + 999_983]

    with path.open("rb") as file:
        sources = {
            "path": path,
            "text": str(path),
            "file": file,
            "list": [LARGE[:5], LARGE[5:]],
            "stream": slowly(),
            "view": memoryview(LARGE),
        }
        seen = []
        for key, source in sources.items():
            await bucket.put(key, source, progress=seen.append)
    assert seen == [BLOB_CHUNK_BYTES, len(LARGE)] * len(sources)
    await bucket.put("of another object", await bucket.get("path"))
    assert len({entry.etag async for entry in bucket.list()}) == 1
    assert await read(bucket, "stream") == LARGE


async def test_data_that_cannot_be_read_is_refused(bucket, tmp_path):
    for source, why in (
        (tmp_path / "absent", "cannot be read"),
        (tmp_path, "cannot be read"),
        (17, "not int"),
        (["text"], "bytes, not str"),
        ([b"first", None, b"last"], "bytes, not NoneType"),
        (NotBlocking(), "bytes, not NoneType"),
    ):
        with pytest.raises(ares.BadInput, match=why):
            await bucket.put("key", source)
    assert [entry async for entry in bucket.list()] == []


# -- conditions ------------------------------------------------------------------------------------


async def test_conditions_are_judged_at_the_change(bucket):
    first = await bucket.put("key", b"1", if_absent=True)
    with pytest.raises(ares.PreconditionFailed) as failed:
        await bucket.put("key", LARGE, if_absent=True)
    assert failed.value.current.version == first.version
    second = await bucket.put("key", b"2", if_version=first.version)
    with pytest.raises(ares.PreconditionFailed):
        await bucket.put("key", b"3", if_version=first.version)
    await bucket.put("key", b"1", if_etag=second.etag)
    with pytest.raises(ares.PreconditionFailed):
        await bucket.delete("key", if_version=first.version)  # equal bytes, another version
    await bucket.delete("key", if_etag=first.etag)
    for change in (
        bucket.put("key", b"4", if_version=first.version),
        bucket.delete("key", if_etag=first.etag),
    ):
        with pytest.raises(ares.PreconditionFailed) as failed:
            await change
        assert failed.value.current is None
    with pytest.raises(ares.BadInput, match="no version and no etag"):
        await bucket.put("key", b"", if_absent=True, if_version="1")
    with pytest.raises(ares.BadInput, match="a version is"):
        await bucket.put("key", b"", if_version="newest")


async def test_of_rivals_through_two_clients_one_wins_each_key(cluster, store):
    buckets = [await each.bucket("race", create=True) for each in (store, cluster.manager())]
    sizes = (1, 5000)

    async def rival(number, key):
        try:
            data = b"%d" % number * sizes[number % 2]
            return (await buckets[number % 2].put(key, data, if_absent=True)).version
        except ares.PreconditionFailed:
            return None

    async def race(key):
        won = await asyncio.gather(*(rival(number, key) for number in range(8)))
        winners = [number for number, version in enumerate(won) if version]
        assert len(winners) == 1, key
        data = b"%d" % winners[0] * sizes[winners[0] % 2]
        assert await read(buckets[0], key) == await read(buckets[1], key) == data

    await asyncio.gather(*(race(f"key{number}") for number in range(50)))
    assert (await buckets[1].info()).objects == 50


# -- copies, deletions, listings -------------------------------------------------------------------


async def test_copies_and_moves_have_no_bytes_of_their_own(store, bucket):
    other = await store.create_bucket("other")
    stored = await bucket.put("large", LARGE, content_type="image/png")
    copied = await bucket.copy("large", "again", bucket="other")
    assert (copied.etag, copied.content_type) == (stored.etag, "image/png")
    with pytest.raises(ares.PreconditionFailed):
        await bucket.copy("large", "again", bucket=other, if_absent=True)
    moved = await bucket.move("large", "moved", if_absent=True)
    assert moved.size == len(LARGE)
    assert [entry.key async for entry in bucket.list()] == ["moved"]
    await bucket.delete("moved")
    assert await read(other, "again") == LARGE
    names = [name async for name in (await store.domain("s3/blobs")).list()]
    assert len(names) == 2, "the chunks of one put"


async def test_an_absent_object_is_told(store, bucket):
    await bucket.put("there", b"")
    for absent in (
        bucket.get("key"), bucket.stat("key"), bucket.delete("key"), bucket.copy("key", "to"),
        bucket.move("key", "to"), bucket.get("there", version="1"),
    ):  # fmt: skip
        with pytest.raises(ares.ObjectNotFound, match="in bucket 'photos'"):
            await absent
    with pytest.raises(ares.PreconditionFailed):
        await bucket.move("key", "there", if_absent=True)
    with pytest.raises(ares.BadInput, match="onto itself"):
        await bucket.move("key", "key")
    for key in ("", "x" * 1025, 3, "\udc80"):
        with pytest.raises(ares.BadInput, match="a key"):
            await bucket.put(key, b"")
    with pytest.raises(ares.BadInput, match="no room for such a DeleteObject"):
        await bucket.delete("there", if_etag="x" * 65)
    with pytest.raises(ares.BadInput, match="a bucket's name"):
        await bucket.copy("there", "key", bucket="No")


async def test_keys_are_listed_in_order_and_by_their_beginnings(bucket):
    keys = ["a", "b/1", "b/2", "b2", "c/", "c/x/y", "é", "😀"]
    for key in reversed(keys):
        await bucket.put(key, key.encode())

    async def listed(*arguments, **options):
        return [entry.key async for entry in bucket.list(*arguments, **options)]

    assert await listed() == keys
    assert await listed("b") == ["b/1", "b/2", "b2"]
    assert await listed(delimiter="/") == ["a", "b/", "b2", "c/", "é", "😀"]
    assert await listed("c/", delimiter="/") == ["c/", "c/x/"]
    assert await listed("c/", delimiter="/", after="c/") == ["c/x/"]
    assert await listed(delimiter="/", after="b/") == ["b2", "c/", "é", "😀"]
    assert await listed(after="b/1", limit=2) == ["b/2", "b2"]
    prefixes = [entry.key async for entry in bucket.list(delimiter="/") if entry.is_prefix]
    assert prefixes == ["b/", "c/"]


async def test_buckets_come_and_go(store, bucket):
    with pytest.raises(ares.BucketsExist, match="s3/blobs"):
        await store.create_bucket_domains()
    with pytest.raises(ares.BucketExists):
        await store.create_bucket("photos")
    await bucket.put("key", b"value")
    assert (await bucket.info()).bytes == 5
    with pytest.raises(ares.BucketNotEmpty):
        await store.delete_bucket("photos")
    await bucket.delete("key")
    await store.delete_bucket("photos")
    assert await store.buckets() == []
    for use in (
        store.bucket("photos"), store.delete_bucket("photos"), bucket.put("key", LARGE),
        bucket.get("key"), bucket.stat("key"), bucket.delete("key"), anext(bucket.list()),
    ):  # fmt: skip
        with pytest.raises(ares.BucketNotFound, match="'photos'"):
            await use
    with pytest.raises(ares.BadInput, match="a bucket's name"):
        await store.create_bucket("Photos")


async def test_a_cluster_without_buckets_says_how_to_make_them(cluster):
    with pytest.raises(ares.BucketsMissing, match="ares-cli bucket init"):
        await cluster.manager().bucket("photos", create=True)
