"""Versions, tags, settings and quotas of buckets, on real servers in an event loop."""

import pytest

import ares
from ares.bucket.index_records import Versioning
from ares.model.configuration import Configuration
from tests.client.test_buckets import read


@pytest.fixture
async def bucket(cluster):
    manager = cluster.manager()
    await manager.create_bucket_domains(Configuration.abd(["s0", "s1", "s2"]))
    return await manager.bucket("photos", create=True)


async def shown(bucket, *given, **options):
    return [
        (each.key, each.version, each.latest, each.deletion)
        async for each in bucket.versions(*given, **options)
    ]


async def test_versions_stay_and_are_read_listed_and_removed(bucket):
    first = await bucket.put("key", b"before versions")
    settings = await bucket.set(versioning=True)
    assert (settings.versioning, settings.quota) == ("on", 0)
    second = await bucket.put("key", b"2")
    await bucket.delete("key")
    with pytest.raises(ares.ObjectNotFound):
        await bucket.stat("key")
    (_, mark, latest, deletion), *older = await shown(bucket)
    assert (latest, deletion) == (True, True)
    assert older == [("key", second.version, False, False), ("key", first.version, False, False)]
    assert await read(bucket, "key", version=first.version) == b"before versions"
    assert await read(bucket, "key", version="null") == b"before versions"
    assert (await bucket.stat("key", version=second.version)).size == 1
    await bucket.delete("key", version=mark)
    assert await read(bucket, "key") == b"2"
    restored = await bucket.copy("key", "key", version="null")
    assert await read(bucket, "key") == b"before versions"
    await bucket.delete("key", version="null")
    await bucket.delete("key", version=second.version)
    with pytest.raises(ares.ObjectNotFound):
        await bucket.delete("key", version=second.version)
    assert await shown(bucket) == [("key", restored.version, True, False)]
    assert (await bucket.set(versioning=False)).versioning == "suspended"


async def test_a_list_of_versions_has_a_prefix_a_limit_and_pages(bucket, monkeypatch):
    monkeypatch.setattr("ares.client.buckets.bucket_objects.PAGE_RESULTS_MAX", 2)
    await bucket.set(versioning=True)
    made = {key: [await bucket.put(key, b"%d" % each) for each in range(3)] for key in ("a", "b")}
    newest_first = [
        (key, each.version, each is made[key][-1], False)
        for key in ("a", "b")
        for each in reversed(made[key])
    ]
    assert await shown(bucket) == newest_first
    assert await shown(bucket, "b") == newest_first[3:]
    assert await shown(bucket, limit=4) == newest_first[:4]


async def test_tags_are_kept_copied_and_set(bucket):
    stored = await bucket.put("key", b"1", tags={"colour": "red"})
    assert stored.tags == (await bucket.stat("key")).tags == {"colour": "red"}
    assert (await bucket.copy("key", "copy")).tags == {"colour": "red"}
    await bucket.set_tags("key", {"size": "small"}, version=stored.version)
    changed = await bucket.stat("key")
    assert (changed.tags, changed.version) == ({"size": "small"}, stored.version)
    await bucket.set_tags("key", {})
    assert (await bucket.stat("key")).tags == {}
    for wrong in ({"": "x"}, {1: "x"}, {"x": 1}, {"x" * 129: ""}):
        with pytest.raises(ares.BadInput, match="no such tags"):
            await bucket.set_tags("key", wrong)
    for version in (None, "null", "7"):
        with pytest.raises(ares.ObjectNotFound):
            await bucket.set_tags("absent", {"x": "y"}, version=version)


async def test_a_quota_bounds_all_versions_and_parts(bucket):
    assert (await bucket.set(quota=10, versioning=True)).quota == 10
    await bucket.put("key", b"12345")
    await bucket.put("key", b"67890")
    upload = await bucket.begin_upload("other")
    for refused in (bucket.put("key", b"x"), upload.put(1, b"x"), bucket.copy("key", "copy")):
        with pytest.raises(ares.ChangeRefused, match="quota"):
            await refused
    assert (await bucket.set(quota=0)).versioning == "on"
    await upload.put(1, b"x")


async def test_settings_are_given_together_and_checked(bucket):
    rules = (ares.LifecycleRule("logs", prefix="logs/", expire_days=30),)
    settings = await bucket.set(lifecycle=rules, quota=2**40)
    assert settings == await bucket.settings()
    assert (settings.versioning, settings.quota, settings.lifecycle) == ("off", 2**40, rules)
    assert (await bucket.set(lifecycle=())).lifecycle == ()
    for wrong in (
        {"quota": -1}, {"quota": 2**64}, {"quota": "10G"}, {"versioning": Versioning.ON},
        {"versioning": "on"}, {"lifecycle": 7}, {"lifecycle": [ares.LifecycleRule("nothing")]},
        {"lifecycle": [None]},
    ):  # fmt: skip
        with pytest.raises(ares.BadInput):
            await bucket.set(**wrong)
    absent = await bucket._buckets.index(10.0)
    assert absent.state.configuration("photos", "lifecycle") == b""
    await bucket._buckets.delete("photos", 10.0)
    for late in (bucket.settings(), bucket.set(quota=1), bucket.set_tags("key", {})):
        with pytest.raises(ares.BucketNotFound):
            await late
