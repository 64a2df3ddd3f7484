"""Issue, listing and revocation of access keys on real servers in an event loop."""

import pytest

import ares
from ares.gateway.access.issued_keys import (
    FINGERPRINT_KEY,
    AccessKeyNotFound,
    issue,
    issued_keys,
    open_seal,
    revoke,
)
from ares.gateway.access.sealed_keys import GatewaySeal, KeyRole, new_access_key


async def content(bucket, key):
    return await (await bucket.get(key)).read()


async def test_issued_keys_are_listed_until_they_are_revoked(keys, seal):
    made = [new_access_key(f"me-{number}", KeyRole.READ, ("photos",)) for number in range(3)]
    for key in made:
        await issue(keys, seal, key)
    await keys.put("another-object", b"of an operator")
    issued = await issued_keys(keys, seal)
    assert [each.key for each in issued] == sorted(made, key=lambda key: key.id)
    assert [each.id for each in issued] == sorted(key.id for key in made)
    await revoke(keys, made[1].id)
    assert {each.id for each in await issued_keys(keys, seal)} == {made[0].id, made[2].id}
    with pytest.raises(AccessKeyNotFound, match=made[1].id):
        await revoke(keys, made[1].id)
    with pytest.raises(ares.BadInput) as refused:
        await revoke(keys, made[0].secret)
    assert made[0].secret not in str(refused.value)


async def test_secrets_of_the_bucket_are_sealed(keys, seal):
    key = new_access_key("me", KeyRole.ADMIN, ())
    await issue(keys, seal, key)
    assert key.secret.encode() not in await content(keys, key.id)


async def test_keys_of_another_seal_and_large_objects_are_listed_without_a_name(keys, seal):
    key = new_access_key("me", KeyRole.READ, ())
    await issue(keys, GatewaySeal(bytes(32)), key)
    await keys.put("ARES" + "2" * 16, b"x" * 10_000)
    assert [(each.id, each.key) for each in await issued_keys(keys, seal)] == [
        ("ARES" + "2" * 16, None), (key.id, None),
    ]  # fmt: skip


async def test_the_first_seal_of_a_cluster_is_the_only_one(keys, tmp_path):
    here, there = tmp_path / "gateway.key", tmp_path / "other.key"
    cluster_file = tmp_path / "cluster.toml"
    made = await open_seal(keys, cluster_file, here)
    assert (await content(keys, FINGERPRINT_KEY)).decode() == made.fingerprint
    assert (await open_seal(keys, cluster_file, here)).fingerprint == made.fingerprint
    with pytest.raises(ares.BadInput, match=r"other\.key is missing"):
        await open_seal(keys, cluster_file, there)
    assert not there.exists()
    GatewaySeal.make(there)
    with pytest.raises(ares.BadInput, match=r"other\.key is another key than"):
        await open_seal(keys, cluster_file, there)
    there.write_text(here.read_text())
    assert (await open_seal(keys, cluster_file, there)).fingerprint == made.fingerprint


async def test_of_two_first_seals_one_wins(keys, tmp_path, monkeypatch):
    """The rival's fingerprint comes between the look and the put."""
    rival, put = GatewaySeal(bytes(32)), keys.put

    async def late(key, data, **conditions):
        await put(key, rival.fingerprint.encode())
        return await put(key, data, **conditions)

    monkeypatch.setattr(keys, "put", late)
    with pytest.raises(ares.BadInput, match="is another key than"):
        await open_seal(keys, tmp_path / "cluster.toml", tmp_path / "gateway.key")
    assert (await content(keys, FINGERPRINT_KEY)).decode() == rival.fingerprint
