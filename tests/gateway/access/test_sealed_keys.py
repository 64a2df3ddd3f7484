"""Access keys under the seal of the gateways, and the files of seals."""

import os
from pathlib import Path

import msgspec
import pytest
from nacl.secret import SecretBox

import ares
from ares.gateway.access.sealed_keys import (
    AccessKey,
    GatewaySeal,
    KeyRole,
    is_access_key_id,
    new_access_key,
    seal_path,
)

KEY = bytes(range(32))


@pytest.fixture
def seal():
    return GatewaySeal(KEY)


def test_a_new_key_looks_like_one_of_s3():
    made = [new_access_key("me", KeyRole.READ, ()) for _ in range(50)]
    assert len({key.id for key in made}) == len({key.secret for key in made}) == 50
    assert all(is_access_key_id(key.id) and len(key.id) == 20 for key in made)
    assert all(len(key.secret) == 40 and key.secret.isalnum() for key in made)
    with pytest.raises(ares.BadInput, match="unlike"):
        new_access_key("a name", KeyRole.READ, ())


@pytest.mark.parametrize(
    "text", ["", "ARES", "ARESKQ7V2M4XW3ZJH5TB\n", "ARES" + "1" * 16, "Ä" * 20]
)
def test_another_text_is_no_id(text):
    assert not is_access_key_id(text)


def test_a_sealed_key_is_opened_under_its_own_id_only(seal):
    key = new_access_key("backup", KeyRole.WRITE, ("photos", "films"))
    sealed = seal.seal(key)
    assert seal.unseal(key.id, sealed) == key
    assert seal.unseal(new_access_key("backup", KeyRole.WRITE, ()).id, sealed) is None
    assert key.secret.encode() not in sealed
    assert b"photos" not in sealed


def test_no_other_bytes_are_opened(seal):
    key = new_access_key("backup", KeyRole.ADMIN, ())
    sealed = seal.seal(key)
    assert GatewaySeal(bytes(32)).unseal(key.id, sealed) is None
    for length in (0, 1, 23, 24, 40, len(sealed) - 1):
        assert seal.unseal(key.id, sealed[:length]) is None
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        assert seal.unseal(key.id, bytes(changed)) is None


@pytest.mark.parametrize(
    "opened",
    [
        b"",
        b"\x02"
        + msgspec.msgpack.encode(AccessKey("ARES" + "A" * 16, "s" * 40, "me", KeyRole.READ)),
        b"\x01",
        b"\x01" + msgspec.msgpack.encode(("ARES" + "A" * 16, "s" * 40, "me", 9, ())),
        b"\x01" + msgspec.msgpack.encode(("ARES" + "A" * 16, "s" * 39, "me", 1, ())),
        b"\x01" + msgspec.msgpack.encode(("ARES" + "A" * 16, "s" * 40, "me", 1, (), "more")),
        b"\x01" + msgspec.msgpack.encode(("ARES" + "A" * 16, "s" * 40, "me", 1, ("No",))),
    ],
    ids=["empty", "later format", "cut", "unknown role", "short secret", "a field more", "bucket"],
)
def test_sealed_bytes_of_another_form_are_no_key(seal, opened):
    whole = b"\x01" + msgspec.msgpack.encode(("ARES" + "A" * 16, "s" * 40, "me", 1, ()))
    box = SecretBox(KEY)
    assert seal.unseal("ARES" + "A" * 16, bytes(box.encrypt(whole))) is not None
    assert seal.unseal("ARES" + "A" * 16, bytes(box.encrypt(opened))) is None


def test_a_key_never_shows_its_secret():
    key = new_access_key("backup", KeyRole.READ, ())
    assert key.secret not in f"{key} {key!r} {[key]}"


def test_a_key_for_too_many_buckets_is_refused(seal):
    many = tuple(f"{number:063}" for number in range(60))
    with pytest.raises(ares.BadInput, match="60 buckets are too many"):
        seal.seal(new_access_key("me", KeyRole.READ, many))
    few = new_access_key("me", KeyRole.READ, many[:40])
    assert seal.unseal(few.id, seal.seal(few)) == few


def test_the_seal_is_a_file_of_its_owner_alone(tmp_path: Path):
    cluster_file = tmp_path / "cluster.toml"
    path = seal_path(cluster_file, None)
    assert path == tmp_path / "gateway.key"
    assert seal_path(cluster_file, tmp_path / "other") == tmp_path / "other"
    with pytest.raises(ares.BadInput, match=r"is missing: .* bucket key new"):
        GatewaySeal.read(cluster_file, path)
    before = os.umask(0)
    try:
        GatewaySeal.make(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    fingerprint = GatewaySeal.read(cluster_file, path).fingerprint
    with pytest.raises(ares.BadInput, match="never overwritten"):
        GatewaySeal.make(path)
    assert GatewaySeal.read(cluster_file, path).fingerprint == fingerprint
    assert fingerprint not in path.read_text()
    path.chmod(0o644)
    with pytest.raises(ares.BadInput, match="mode 644: chmod 600"):
        GatewaySeal.read(cluster_file, path)


def test_a_file_without_a_key_is_told_without_its_content(tmp_path: Path):
    path = tmp_path / "gateway.key"
    path.write_text("not a key, and secret")
    path.chmod(0o600)
    with pytest.raises(ares.BadInput, match="holds another value") as refused:
        GatewaySeal.read(tmp_path / "cluster.toml", path)
    assert "and secret" not in str(refused.value)
