"""A program's view of a cluster: objects, without sockets.

See ares/client/{manager,store,runner}.py.
"""

import asyncio

import pytest

from ares.model.errors import BadInput, ConnectionClosed, ObjectNotFound, Unavailable
from ares.model.identity import KEY_BYTES_MAX, VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX
from ares.model.tag import Tag
from ares.model.units import MIB


async def listed(store, prefix=""):
    return [name async for name in store.list(prefix)]


@pytest.mark.parametrize(
    "value",
    [b"", b"x", bytes(range(256)) * (MIB // 256), bytearray(b"mutable"), memoryview(b"a view")],
    ids=len,
)
async def test_a_written_value_is_read_with_its_tag_and_size(cluster, value):
    writer, reader = cluster.manager(), cluster.manager()
    tag = await writer.write("key", value)
    assert tag == Tag(1, 1)
    back = await reader.read("key")
    assert back == bytes(value)
    assert type(back) is bytes
    found = await reader.stat("key")
    assert (found.key, found.domain, found.tag, found.size_bytes) == (
        "key",
        "default",
        tag,
        len(value),
    )


async def test_a_mutable_value_is_taken_as_it_was(cluster):
    store, value = cluster.manager(), bytearray(b"before")
    writing = asyncio.create_task(store.write("key", value))
    await asyncio.sleep(0)
    value[:] = b"behind"
    await writing
    assert await store.read("key") == b"before"


async def test_a_deleted_object_is_absent_until_written_again(cluster):
    store, other = cluster.manager(), cluster.manager()
    first = await store.write("key", b"v")
    gone = await other.delete("key")
    assert gone > first
    for refused in (store.read("key"), store.stat("key"), store.delete("key"), other.read("never")):
        with pytest.raises(ObjectNotFound):
            await refused
    assert (await store.write("key", b"again")) > gone
    assert await other.read("key") == b"again"


async def test_list_names_present_objects_by_prefix(cluster):
    store, names = (
        cluster.manager(),
        [f"a/{number:03}" for number in range(30)] + ["b", "\N{SNOWMAN}"],
    )
    await asyncio.gather(*(store.write(name, b"v") for name in names))
    await store.delete("a/007")
    other = cluster.manager()
    assert await listed(other) == [name for name in names if name != "a/007"]
    assert await listed(other, "a/01") == [f"a/01{digit}" for digit in range(10)]
    assert await listed(other, "nothing") == []


async def test_a_listing_of_several_pages(cluster, monkeypatch):
    monkeypatch.setattr("ares.reconfig.listing.PAGE_OBJECTS", 3)
    store, names = cluster.manager(), [f"{number:02}" for number in range(11)]
    await asyncio.gather(*(store.write(name, b"v") for name in names))
    assert await listed(store) == names


@pytest.mark.parametrize(
    "key",
    [
        "",
        "k" * (KEY_BYTES_MAX + 1),
        "\N{SNOWMAN}" * (KEY_BYTES_MAX // 3 + 1),
        "\0domain/x",
        "\ud800",
    ],
)
async def test_bad_keys_are_refused_before_anything_is_sent(cluster, key):
    store = cluster.manager()
    for refused in (store.write(key, b"v"), store.read(key), store.delete(key), store.stat(key)):
        with pytest.raises(BadInput, match="key"):
            await refused
    assert cluster.requests == 0


async def test_the_longest_key_is_written_read_and_listed(cluster):
    store, key = cluster.manager(), "k" * KEY_BYTES_MAX
    await store.write(key, b"v")
    assert await store.read(key) == b"v"
    assert await listed(store) == [key]


async def test_a_value_that_is_too_large_is_refused_before_anything_is_sent(cluster):
    store = cluster.manager(value_bytes=1000)
    with pytest.raises(
        BadInput, match=r"at most 1000 bytes \(value_bytes under \[limits\] .*\); nothing was sent"
    ):
        await store.write("key", b"x" * 1001)
    with pytest.raises(BadInput):
        await store.write("key", memoryview(b"x" * 2002).cast("H"))
    assert cluster.requests == 0
    await store.write("key", b"x" * 1000)
    with pytest.raises(BadInput, match="at most 1000 bytes"):
        await store.write_versioned("key", b"x" * 1001, None)
    assert (VALUE_BYTES_DEFAULT, VALUE_BYTES_MAX) == (256 * MIB, 1024 * MIB)


async def test_a_bad_prefix_is_refused_before_anything_is_sent(cluster):
    store = cluster.manager(timeout_s=0.3)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    with pytest.raises(BadInput):
        await listed(store, "\ud800")


async def test_writes_of_one_key_at_once_get_a_tag_each_in_order(cluster):
    store = cluster.manager()
    tags = await asyncio.gather(*(store.write("key", bytes([number])) for number in range(20)))
    assert [tag.number for tag in tags] == list(range(1, 21))
    assert await store.read("key") == bytes([19])


async def test_a_read_names_the_missing_servers(cluster):
    store = cluster.manager()
    await store.write("key", b"v")
    cluster.stop("s0")
    assert await store.read("key") == b"v"
    cluster.stop("s1")
    with pytest.raises(Unavailable) as caught:
        await store.read("key", timeout_s=0.5)
    assert set(caught.value.missing) == {"s0", "s1"}
    assert "read of 'key'" in str(caught.value)
    with pytest.raises(Unavailable) as caught:
        await store.write("key", b"w", timeout_s=0.1)
    assert not caught.value.may_have_taken_effect
    cluster.restart("s0", "s1")
    assert await store.read("key") == b"v"


async def test_a_write_that_failed_half_way_says_so(cluster):
    store = cluster.manager()
    await store.write("key", b"v")
    cluster.put_taken.clear()
    writing = asyncio.create_task(store.write("key", b"w", timeout_s=1.0))
    await cluster.put_taken.wait()
    cluster.stop("s0", "s1", "s2")
    with pytest.raises(Unavailable, match="may have taken effect") as caught:
        await writing
    assert caught.value.may_have_taken_effect


async def test_a_cancelled_write_leaves_the_store_usable(cluster):
    store = cluster.manager()
    cluster.stop("s0", "s1", "s2")
    first = asyncio.create_task(store.write("key", b"cancelled"))
    second = asyncio.create_task(store.write("key", b"queued"))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    cluster.restart("s0", "s1", "s2")
    tag = await second
    assert await store.read("key") == b"queued"
    assert (await store.stat("key")).tag == tag


async def test_closing_while_operations_run(cluster):
    store = cluster.manager(timeout_s=0.3)
    cluster.stop("s0", "s1")
    running = [asyncio.create_task(store.write(f"key{number}", b"v")) for number in range(5)]
    await asyncio.sleep(0)
    await store.close()
    await store.close()
    async with asyncio.timeout(60):
        ends = await asyncio.gather(*running, return_exceptions=True)
    assert {type(end) for end in ends} == {ConnectionClosed}


async def test_closing_ends_what_is_under_way(cluster):
    store = cluster.manager(timeout_s=3600)
    cluster.stop("s0", "s1")
    running = asyncio.create_task(store.read("key"))
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionClosed):
            await running


async def test_a_manager_closes_at_the_end_of_its_context(cluster):
    async with cluster.manager() as store:
        await store.write("key", b"v")
    with pytest.raises(ConnectionClosed):
        await store.read("key")
    assert store.name == "default"
    assert store.configuration == cluster.initial
