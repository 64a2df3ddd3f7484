"""Access keys as gateways look them up, on real servers in an event loop."""

import asyncio
import logging

import pytest

import ares
from ares.bucket.commands import SetBucket
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.bucket_objects import Bucket
from ares.gateway.access import access_keys
from ares.gateway.access.access_keys import AccessKeys
from ares.gateway.access.canned_acls import ACL_CONFIGURATION, CannedAcl
from ares.gateway.access.issued_keys import issue, open_seal, revoke
from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from ares.gateway.access.sealed_keys import GatewaySeal, KeyRole, new_access_key
from ares.gateway.s3.exchange import S3Operation
from ares.gateway.s3.s3_errors import S3Code, S3Error
from tests.gateway.access.test_grants import request

LIMIT_S = 20.0


@pytest.fixture
async def gateway(cluster, store, seal):
    """Return the keys as another process sees them."""
    other = cluster.manager()
    return AccessKeys(other._buckets, seal, LIMIT_S)


@pytest.fixture
async def key(keys, seal):
    made = new_access_key("backup", KeyRole.WRITE, ("photos",))
    await issue(keys, seal, made)
    return made


async def index_of(gateway) -> BucketIndex:
    return await gateway._buckets.index(LIMIT_S)


def passes(secret):
    """Verify a signature made with any secret."""
    return secret


def refuses(secret):
    raise S3Error(S3Code.SignatureDoesNotMatch)


async def test_a_key_is_found_as_soon_as_it_is_issued(keys, key, seal, gateway):
    assert await gateway.secret(key.id, gateway.look()) == key
    second = new_access_key("second", KeyRole.READ, ())
    await issue(keys, seal, second)
    assert await gateway.secret(second.id, gateway.look()) == second


@pytest.mark.parametrize("id", ["", "AKIAIOSFODNN7EXAMPLE", "ARES" + "A" * 16, "ARES\0", "ä" * 20])
async def test_an_unknown_id_is_no_key(gateway, key, id):
    assert await gateway.secret(id, gateway.look()) is None


async def test_without_a_key_there_is_no_bucket_of_keys(store, seal):
    keys = AccessKeys(store._buckets, seal, LIMIT_S)
    assert await keys.secret("ARES" + "A" * 16, keys.look()) is None


async def test_an_object_beside_the_keys_is_no_key(keys, gateway, tmp_path):
    await open_seal(keys, tmp_path / "cluster.toml", tmp_path / "gateway.key")
    assert await gateway.secret("fingerprint-of-gateway.key", gateway.look()) is None


async def test_a_gateway_with_another_seal_is_told_at_its_start(keys, gateway, tmp_path):
    path = tmp_path / "gateway.key"
    await gateway.check_seal(path)  # no key was issued yet
    seal = await open_seal(keys, tmp_path / "cluster.toml", path)
    with pytest.raises(ares.BadInput, match=r"gateway\.key is another key than"):
        await gateway.check_seal(path)
    await AccessKeys(gateway._buckets, seal, LIMIT_S).check_seal(path)


# -- revocation ------------------------------------------------------------------------------------


async def revoked_behind(gateway, keys, key, monkeypatch):
    """Revoke a key while the gateway's index stands still; return the entries it has not folded."""
    assert await gateway.secret(key.id, gateway.look()) == key
    index, held = await index_of(gateway), []
    apply = index._apply
    monkeypatch.setattr(index, "_apply", lambda *entry: held.append(entry))
    await revoke(keys, key.id)
    assert index.state.newest(KEYS_BUCKET, key.id) is not None

    def release():
        monkeypatch.undo()
        for entry in held:
            apply(*entry)

    return release


async def test_a_request_after_the_revocation_is_refused_at_a_gateway_behind(
    gateway, keys, key, monkeypatch
):
    release = await revoked_behind(gateway, keys, key, monkeypatch)
    asked = asyncio.ensure_future(gateway.authenticate(key.id, passes, gateway.look()))
    await asyncio.sleep(0.1)
    assert not asked.done()
    release()
    with pytest.raises(S3Error) as refused:
        await asked
    assert refused.value.code is S3Code.InvalidAccessKeyId


async def test_control_without_the_look_at_the_tail_a_revoked_key_is_let_in(
    gateway, keys, key, monkeypatch
):
    await revoked_behind(gateway, keys, key, monkeypatch)

    async def local(index, timeout_s):
        return None

    monkeypatch.setattr(BucketIndex, "verified", local)
    assert (await gateway.authenticate(key.id, passes, gateway.look()))[0] == key


async def test_no_key_is_let_in_while_the_log_is_silent(cluster, gateway, keys, key, seal):
    """Without a tail nobody knows of a revocation."""
    assert await gateway.secret(key.id, gateway.look()) == key
    short = AccessKeys(gateway._buckets, seal, 0.2)
    cluster.stop("s0", "s1", "s2")
    with pytest.raises(ares.Unavailable):
        await short.authenticate(key.id, passes, short.look())
    cluster.restart("s0", "s1", "s2")


async def test_a_deletion_that_leaves_versions_revokes_as_well(store, gateway, keys, key):
    await store._buckets.give(SetBucket(KEYS_BUCKET, versioning=1), LIMIT_S)
    await revoke(keys, key.id)
    assert await gateway.secret(key.id, gateway.look()) is None


# -- seals -----------------------------------------------------------------------------------------


async def test_a_sealed_key_moved_to_another_id_is_refused(gateway, keys, key, caplog):
    moved = "ARES" + "2" * 16
    await keys.copy(key.id, moved)
    assert await gateway.secret(moved, gateway.look()) is None
    assert f"access key {moved} in bucket" in caplog.text
    assert key.secret not in caplog.text
    with pytest.raises(S3Error) as refused:
        await gateway.authenticate(moved, passes, gateway.look())
    assert refused.value.code is S3Code.InvalidAccessKeyId


async def test_keys_of_another_seal_are_refused_and_told_once(keys, key, store, caplog):
    stranger = AccessKeys(store._buckets, GatewaySeal(bytes(32)), LIMIT_S)
    with caplog.at_level(logging.ERROR):
        for _ in range(5):
            assert await stranger.secret(key.id, stranger.look()) is None
    assert caplog.text.count(key.id) == 1


async def test_a_large_object_is_no_key_and_is_not_fetched(keys, gateway, cluster):
    id = "ARES" + "3" * 16
    await keys.put(id, b"x" * 10_000)
    assert await gateway.secret(id, gateway.look()) is None


async def test_another_version_of_a_key_counts_at_once(keys, key, seal, gateway):
    assert (await gateway.secret(key.id, gateway.look())).role is KeyRole.WRITE
    narrower = type(key)(key.id, key.secret, key.name, KeyRole.READ, key.buckets)
    await keys.put(key.id, seal.seal(narrower))
    assert await gateway.secret(key.id, gateway.look()) == narrower


async def test_few_unsealed_keys_are_kept(keys, seal, store, monkeypatch):
    monkeypatch.setattr(access_keys, "UNSEALED_KEYS_MAX", 2)
    gateway = AccessKeys(store._buckets, seal, LIMIT_S)
    made = [new_access_key("me", KeyRole.READ, ()) for _ in range(4)]
    for each in made:
        await issue(keys, seal, each)
        assert await gateway.secret(each.id, gateway.look()) == each
    assert gateway._unseal.cache_info().currsize == 2
    assert [await gateway.secret(each.id, gateway.look()) for each in made] == made


# -- authentication --------------------------------------------------------------------------------


async def test_an_unknown_id_takes_the_work_of_a_wrong_secret(gateway, key, monkeypatch):
    work = []
    verified = BucketIndex.verified

    async def counted(index, timeout_s):
        work.append("tail")
        await verified(index, timeout_s)

    def verify(secret):
        work.append(len(secret))
        refuses(secret)

    monkeypatch.setattr(BucketIndex, "verified", counted)
    for id, code in (
        (key.id, S3Code.SignatureDoesNotMatch),
        ("ARES" + "A" * 16, S3Code.InvalidAccessKeyId),
    ):
        with pytest.raises(S3Error) as refused:
            await gateway.authenticate(id, verify, gateway.look())
        assert refused.value.code is code
    assert work == ["tail", 40] * 2


async def test_a_stranger_learns_nothing_from_another_error(gateway, key):
    def late(secret):
        raise S3Error(S3Code.RequestTimeTooSkewed)

    for id in (key.id, "ARES" + "A" * 16):
        with pytest.raises(S3Error) as refused:
            await gateway.authenticate(id, late, gateway.look())
        assert refused.value.code is S3Code.RequestTimeTooSkewed


async def test_no_secret_opens_an_unknown_id(gateway, key):
    with pytest.raises(S3Error) as refused:
        await gateway.authenticate("ARES" + "A" * 16, passes, gateway.look())
    assert refused.value.code is S3Code.InvalidAccessKeyId
    assert refused.value.fields == {"AWSAccessKeyId": "ARES" + "A" * 16}
    assert await gateway.authenticate(key.id, passes, gateway.look()) == (key, key.secret)


# -- admission -------------------------------------------------------------------------------------


async def public(store, name, acl=CannedAcl.PUBLIC_READ):
    await store.bucket(name, create=True)
    change = SetBucket(name, name=ACL_CONFIGURATION, configuration=acl.configuration)
    await store._buckets.give(change, LIMIT_S)


async def test_a_stranger_is_admitted_to_a_public_bucket_until_it_is_private(
    store, gateway, monkeypatch
):
    asked = request(S3Operation.GET_OBJECT)
    with pytest.raises(S3Error):
        await gateway.admit(None, asked, gateway.look())
    await public(store, "photos")
    assert (await gateway.admit(None, asked, gateway.look())).anonymous
    index, held = await index_of(gateway), []
    apply = index._apply
    monkeypatch.setattr(index, "_apply", lambda *entry: held.append(entry))
    await public(store, "photos", CannedAcl.PRIVATE)
    again = asyncio.ensure_future(gateway.admit(None, asked, gateway.look()))
    await asyncio.sleep(0.1)
    assert not again.done()
    monkeypatch.undo()
    for entry in held:
        apply(*entry)
    with pytest.raises(S3Error) as refused:
        await again
    assert refused.value.code is S3Code.AccessDenied


async def test_a_stranger_who_may_not_causes_no_look_at_the_log(store, gateway, monkeypatch):
    await index_of(gateway)

    async def never(index, timeout_s):
        raise AssertionError("a look at the tail")

    monkeypatch.setattr(BucketIndex, "verified", never)
    for operation in (S3Operation.PUT_OBJECT, S3Operation.LIST_BUCKETS, S3Operation.CREATE_BUCKET):
        with pytest.raises(S3Error):
            await gateway.admit(None, request(operation), gateway.look())
    with pytest.raises(S3Error):
        await gateway.authenticate("not an id", passes, gateway.look())


async def test_the_caller_has_no_secret(gateway, key):
    caller = await gateway.admit(key, request(S3Operation.PUT_OBJECT), gateway.look())
    assert (caller.access_key, caller.name, caller.anonymous) == (key.id, "backup", False)
    assert caller.sees("photos")
    assert not caller.sees("films")
    assert key.secret not in repr(caller)


# -- long answers ----------------------------------------------------------------------------------


async def test_a_watch_ends_with_the_key(store, keys, key, gateway):
    """A change behind the revocation is not told, even if it is folded in the same moment."""
    photos = await store.bucket("photos", create=True)
    asked = request(S3Operation.WATCH)
    caller = await gateway.admit(key, asked, gateway.look())
    seen = Bucket("photos", gateway._buckets, LIMIT_S)

    async def told():
        async for change in seen.watch():
            for event in change.events:
                yield event.key.encode()

    body = gateway.while_admitted(caller, asked, told())
    first = asyncio.ensure_future(anext(body))
    await asyncio.sleep(0.05)
    await photos.put("before", b"1")
    assert await first == b"before"
    await revoke(keys, key.id)
    await photos.put("behind", b"2")
    with pytest.raises(S3Error):
        await anext(body)
    with pytest.raises(StopAsyncIteration):
        await anext(body)
