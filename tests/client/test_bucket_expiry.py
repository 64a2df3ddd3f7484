"""The expiry of objects by a client, on real servers in an event loop."""

import asyncio

import pytest

import ares
from ares.bucket.commands import SetBucket
from ares.bucket.lifecycle import expiry_walk
from ares.bucket.lifecycle.lifecycle_rules import DAY_MS
from ares.client.buckets import bucket_index
from ares.client.buckets.upkeep import bucket_expiry
from ares.client.buckets.upkeep.bucket_expiry import BucketExpiry
from ares.model.configuration import Configuration
from tests.client.test_bucket_sessions import index_of, until

RULES = (ares.LifecycleRule(prefix="logs/", expire_days=1, abort_days=1),)


@pytest.fixture
async def store(cluster, monkeypatch):
    monkeypatch.setattr(bucket_expiry, "EXPIRY_PAUSE_S", 0)
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.abd(["s0", "s1", "s2"]))
    return manager


async def keys(bucket):
    return [each.key async for each in bucket.list()]


async def fill(bucket):
    for key in ("logs/a", "logs/b", "kept"):
        await bucket.put(key, b"1")
    await bucket.begin_upload("logs/c")
    await bucket.set(lifecycle=RULES)


def days_later(monkeypatch):
    monkeypatch.setattr(bucket_expiry, "now_ms", lambda: bucket_index.now_ms() + 3 * DAY_MS)


async def test_objects_and_uploads_expire_after_their_days(store, bucket, monkeypatch):
    other = await store.bucket("other", create=True)
    await other.put("logs/a", b"1")
    await fill(bucket)
    expiry = BucketExpiry(await index_of(bucket))
    await expiry.pass_over()
    assert len(await keys(bucket)) == 3
    changes = bucket.watch()
    await anext(changes)
    days_later(monkeypatch)
    await expiry.pass_over()
    assert await keys(bucket) == ["kept"]
    assert [each async for each in bucket.uploads()] == []
    assert await keys(other) == ["logs/a"]
    told = await anext(changes)
    deleted = [("delete", "logs/a"), ("delete", "logs/b")]
    assert [(event.kind, event.key) for event in told.events] == deleted
    await changes.aclose()


async def test_the_oldest_session_alone_lets_objects_expire(cluster, bucket, monkeypatch):
    await fill(bucket)
    days_later(monkeypatch)
    rival = await cluster.manager().bucket("photos")
    await BucketExpiry(await index_of(rival)).pass_over()
    assert len(await keys(rival)) == 3


async def test_rules_that_cannot_be_read_delete_nothing(store, bucket, monkeypatch, caplog):
    await fill(bucket)
    other = await store.bucket("readable", create=True)
    await fill(other)
    odd = SetBucket("photos", name="lifecycle", configuration=b"<xml>")
    await bucket._buckets.give(odd, 10.0)
    days_later(monkeypatch)
    await BucketExpiry(await index_of(bucket)).pass_over()
    assert len(await keys(bucket)) == 3
    assert await keys(other) == ["kept"]
    assert "photos cannot be read" in caplog.text


async def test_a_life_of_the_index_passes_over_the_buckets(cluster, bucket, monkeypatch):
    monkeypatch.setattr(bucket_expiry, "EXPIRY_FIRST_S", 0)
    monkeypatch.setattr(bucket_expiry, "EXPIRY_PASS_S", 0.02)
    await fill(bucket)
    days_later(monkeypatch)
    await (await index_of(bucket)).close()  # the session; the next one is the oldest

    async def has_expired():
        return await keys(bucket) == ["kept"]

    await asyncio.wait_for(until(has_expired), 60)


async def test_rules_that_were_removed_delete_nothing_more(store, bucket, monkeypatch):
    monkeypatch.setattr(expiry_walk, "EXPIRY_ROWS_MAX", 1)
    await fill(bucket)
    days_later(monkeypatch)
    change = BucketExpiry._change

    async def then_without_rules(self, changes):
        await change(self, changes)
        await bucket.set(lifecycle=())

    monkeypatch.setattr(BucketExpiry, "_change", then_without_rules)
    await BucketExpiry(await index_of(bucket)).pass_over()
    assert await keys(bucket) == ["kept", "logs/a", "logs/b"]


async def test_a_clock_ahead_deletes_nothing_beside_a_session_with_another_time(
    cluster, bucket, monkeypatch
):
    await fill(bucket)
    days_later(monkeypatch)
    rival = await cluster.manager().bucket("photos")
    index, number = await index_of(bucket), (await index_of(rival)).session.number

    async def heard():
        return number in index._told_ms

    await asyncio.wait_for(until(heard), 30)
    expiry = BucketExpiry(index)
    await expiry.pass_over()
    assert len(await keys(bucket)) == 3
    await (await index_of(rival)).close()
    await index.verified(10.0)
    assert number not in index._told_ms
    await expiry.pass_over()
    assert await keys(bucket) == ["kept"]
