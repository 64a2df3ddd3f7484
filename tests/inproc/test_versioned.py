"""Versioned objects in a program's view, without sockets (ares/client/store.py)."""

import asyncio

import pytest

from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectNotFound, Unavailable
from ares.model.tag import TAG_ZERO, Tag
from ares.model.units import MIB
from ares.reconfig.view import Switches

EC = Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3)


@pytest.mark.parametrize("optimised", [True, False])
async def test_a_version_is_covered_once(cluster, optimised):
    one, other = (cluster.manager(switches=Switches(optimised=optimised)) for _ in range(2))
    made = await one.write_versioned("key", b"made", None)
    assert (made.changed, made.value) == (True, b"made")
    assert await other.read_versioned("key") == (made.version, b"made")
    changed = await other.write_versioned("key", bytearray(b"changed"), made.version)
    assert changed.changed
    assert changed.version > made.version
    refused = await one.write_versioned("key", b"late", made.version)
    assert (refused.changed, refused.version, refused.value) == (False, changed.version, b"changed")
    for store in (one, other):
        assert await store.read_versioned("key") == (changed.version, b"changed")
        assert await store.read("key") == b"changed"
        assert (await store.stat("key")).tag == changed.version
    assert (await one.write_versioned("key", b"after all", refused.version)).changed


async def test_absent_objects_have_no_version(cluster):
    store, other = cluster.manager(), cluster.manager()
    with pytest.raises(ObjectNotFound):
        await store.read_versioned("key")
    assert (await store.write_versioned("key", b"over t0", TAG_ZERO)).changed
    there = await store.write_versioned("key", b"again", None)
    assert (there.changed, there.value) == (False, b"over t0")
    gone = await other.delete("key")
    for reader in (store, other):
        with pytest.raises(ObjectNotFound):
            await reader.read_versioned("key")
    absent = await store.write_versioned("key", b"late", there.version)
    assert (absent.changed, absent.version, absent.value) == (False, gone, None)
    assert (await store.write_versioned("key", b"anew", None)).changed
    assert await other.read("key") == b"anew"


BAD_VERSIONS = [
    (1, 1),
    1,
    "1.1",
    b"",
    Tag(-1, 1),
    Tag(2**64, 1),
    Tag(1, 2**64),
    Tag("1", 1),
    Tag(1, None),
]


@pytest.mark.parametrize("version", BAD_VERSIONS, ids=repr)
async def test_what_is_no_version_is_refused_before_anything_is_sent(cluster, version):
    store = cluster.manager()
    with pytest.raises(BadInput, match="a version is a Tag"):
        await store.write_versioned("key", b"v", version)
    assert cluster.requests == 0


async def test_the_highest_version_that_can_be_sent(cluster):
    store = cluster.manager()
    made = await store.write_versioned("key", b"v", None)
    refused = await store.write_versioned("key", b"w", Tag(2**64 - 1, 2**64 - 1))
    assert (refused.changed, refused.version, refused.value) == (False, made.version, b"v")


async def test_bad_keys_and_values_are_refused_before_anything_is_sent(cluster):
    store = cluster.manager()
    for refused in (
        store.read_versioned(""),
        store.write_versioned("\0file/x", b"v", None),
        store.write_versioned("key", "text", None),
    ):
        with pytest.raises(BadInput):
            await refused
    assert cluster.requests == 0


async def test_counting_by_optimistic_retries(cluster):
    """Clients raise a counter, each until its write takes place.

    Weak coverability loses some steps; no value is torn or goes back.
    """
    stores = [
        cluster.manager(),
        cluster.manager(switches=Switches(optimised=False)),
        cluster.manager(switches=Switches(False, optimised=True)),
    ]
    start = await stores[0].write_versioned("counter", b"0", None)
    told = {start.version: b"0"}

    async def count(store):
        version, value = await store.read_versioned("counter")
        for _ in range(15):
            while True:
                result = await store.write_versioned("counter", b"%d" % (int(value) + 1), version)
                assert result.version > version
                version, value = result.version, result.value
                assert told.setdefault(version, value) == value
                if result.changed:
                    break

    await asyncio.gather(*map(count, stores))
    last = {await store.read_versioned("counter") for store in stores}
    assert len(last) == 1
    [(version, value)] = last
    assert 15 <= int(value) <= 45
    assert version == max(told)


async def test_versions_outlive_their_configuration(cluster):
    store, mover = cluster.manager(), cluster.manager()
    value = b"v" * MIB
    made = await store.write_versioned("key", value, None)
    await mover.reconfigure(EC)
    assert await store.read_versioned("key") == (made.version, value)
    changed = await store.write_versioned("key", b"changed", made.version)
    assert changed.changed
    assert await mover.read_versioned("key") == (changed.version, b"changed")


async def test_versioned_writes_in_another_domain(cluster):
    store, other = cluster.manager(), cluster.manager()
    domain, _ = await store.create_domain("versions")
    made = await domain.write_versioned("key", b"v", None)
    with pytest.raises(ObjectNotFound):
        await store.read_versioned("key")
    same = await other.domain("versions")
    assert await same.read_versioned("key") == (made.version, b"v")


async def test_writes_of_one_key_at_once_over_one_version(cluster):
    """A client has a single write of an object under way: the first takes place.

    The other writes learn of the first.
    """
    store = cluster.manager()
    results = await asyncio.gather(
        *(store.write_versioned("key", bytes([number]), None) for number in range(10))
    )
    assert [result.changed for result in results] == [True] + [False] * 9
    assert {(result.version, result.value) for result in results} == {(results[0].version, b"\0")}


async def test_versioned_calls_fail_with_too_few_servers(cluster):
    store = cluster.manager()
    made = await store.write_versioned("key", b"v", None)
    cluster.stop("s0", "s1")
    with pytest.raises(Unavailable) as caught:
        await store.write_versioned("key", b"w", made.version, timeout_s=0.3)
    assert not caught.value.may_have_taken_effect
    with pytest.raises(Unavailable):
        await store.read_versioned("key", timeout_s=0.3)
    cluster.restart("s0", "s1")
    assert (await store.write_versioned("key", b"w", made.version)).changed


async def test_a_write_of_unknown_outcome_and_another_try(cluster):
    store = cluster.manager()
    made = await store.write_versioned("key", b"v", None)
    cluster.put_taken.clear()
    writing = asyncio.create_task(store.write_versioned("key", b"w", made.version, timeout_s=1.0))
    await cluster.put_taken.wait()
    cluster.stop("s0", "s1", "s2")
    with pytest.raises(Unavailable, match="may have taken effect"):
        await writing
    cluster.restart("s0", "s1", "s2")
    again = await store.write_versioned("key", b"w again", made.version)
    assert again.value == (b"w again" if again.changed else b"w")
    assert await store.read_versioned("key") == (again.version, again.value)
