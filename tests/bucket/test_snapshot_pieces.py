"""The pieces of a snapshot: rows there and back, and bytes of strangers."""

import random
from contextlib import suppress
from itertools import pairwise
from unittest.mock import patch

import msgspec
import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.bucket.bucket_state import BucketState, counted_digest
from ares.bucket.memory_table import MemoryTable
from ares.bucket.snapshots import snapshot_pieces
from ares.bucket.snapshots.snapshot_pieces import (
    PORTION_ROWS,
    SnapshotDamaged,
    SnapshotManifest,
    SnapshotPiece,
    SnapshotReader,
    SnapshotWriter,
    decode_manifest,
    encode_manifest,
)

PIECE_BYTES = 4000


@pytest.fixture(autouse=True)
def small_pieces():
    with (
        patch.object(snapshot_pieces, "SNAPSHOT_PIECE_BYTES", PIECE_BYTES),
        patch.object(snapshot_pieces, "_PORTION_BYTES", 600),
    ):
        yield


def cut(rows, portion=PORTION_ROWS):
    """Return the pieces and the manifest of rows."""
    writer, pieces = SnapshotWriter(), []
    for first in range(0, len(rows), portion):
        pieces += writer.add(rows[first : first + portion])
    pieces += [piece for piece in (writer.end(),) if piece]
    return pieces, writer.manifest(7)


def read(pieces, manifest):
    reader, rows = SnapshotReader(manifest), []
    for piece in pieces:
        for portion in reader.take(piece):
            rows += portion
    reader.end()
    return rows


def some_rows(seed=1, count=300):
    rng = random.Random(seed)
    return sorted(
        {rng.randbytes(8): rng.randbytes(rng.randrange(90)) for _ in range(count)}.items()
    )


_rows = st.dictionaries(
    st.binary(max_size=40).map(lambda key: b"k" + key), st.binary(max_size=700), max_size=60
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(_rows.map(lambda rows: sorted(rows.items())), st.integers(1, 60))
def test_rows_come_back(rows, portion):
    table = MemoryTable()
    state = BucketState(table)
    for key, value in rows:
        state.put(key, value)
    pieces, manifest = cut(rows, portion)
    assert read(pieces, manifest) == rows
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert int.from_bytes(manifest.digest) == counted_digest(table)
    assert (manifest.rows, manifest.length) == (len(rows), sum(map(len, pieces)))
    assert all(len(piece) <= PIECE_BYTES for piece in pieces)
    assert all(len(one) + len(two) > PIECE_BYTES - 1400 for one, two in pairwise(pieces))


@pytest.mark.parametrize("damage", ["flip", "cut", "longer", "order", "fewer", "more", "swap"])
def test_other_bytes_than_those_of_the_manifest_are_refused(damage):
    pieces, manifest = cut(some_rows())
    assert len(pieces) > 3
    if damage == "flip":
        pieces[1] = pieces[1][:-1] + bytes([pieces[1][-1] ^ 1])
    if damage == "cut":
        pieces[1] = pieces[1][:-1]
    if damage == "longer":
        pieces[1] += b"\0"
    if damage == "order":
        pieces.reverse()
    if damage == "fewer":
        pieces.pop()
    if damage == "more":
        pieces.append(pieces[-1])
    if damage == "swap":
        pieces[0], pieces[1] = pieces[1], pieces[0]
    with pytest.raises(SnapshotDamaged):
        read(pieces, manifest)


def bound(piece, rows=1, digest=bytes(16)):
    """Return a manifest that a stranger wrote for a piece."""
    return SnapshotManifest(7, digest, rows, (SnapshotPiece(len(piece), blake3(piece).digest(16)),))


def portion(data):
    return len(data).to_bytes(4) + data


_encode = msgspec.msgpack.encode


@pytest.mark.parametrize(
    "piece",
    [
        b"\0",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x09\x90",
        portion(b"\xdd\xff\xff\xff\xff"),
        portion(b"\x91\x92\xc6\xff\xff\xff\xff"),
        portion(_encode([(b"k", b"v")]) + b"\0"),
        portion(_encode([(b"k", b"v", b"w")])),
        portion(_encode([(b"k", 1)])),
        portion(_encode([("k", "v")])),
        portion(_encode([(b"", b"v")])),
        portion(_encode([(b"l", b""), (b"k", b"")])),
        portion(_encode([(b"k", b""), (b"k", b"")])),
        portion(_encode([(b"l", b"")])) + portion(_encode([(b"k", b"")])),
        portion(_encode([])),
        portion(_encode([(b"%04d" % n, b"") for n in range(PORTION_ROWS + 1)])),
        portion(b"\x91" * 100_000),
    ],
    ids=str,
)
def test_bytes_of_strangers_are_no_piece(piece):
    with pytest.raises(SnapshotDamaged):
        read([piece], bound(piece, rows=2))


def test_rows_of_another_digest_are_refused_at_the_end():
    piece = portion(_encode([(b"k", b"v")]))
    with pytest.raises(SnapshotDamaged, match="other rows"):
        read([piece], bound(piece))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x02" + _encode((7, bytes(16), 0, ())),
        b"\x01" + _encode((-1, bytes(16), 0, ())),
        b"\x01" + _encode((2**63, bytes(16), 0, ())),
        b"\x01" + _encode((7, bytes(15), 0, ())),
        b"\x01" + _encode((7, bytes(16), -1, ())),
        b"\x01" + _encode((7, bytes(16), 0, ((0, bytes(16)),))),
        b"\x01" + _encode((7, bytes(16), 0, ((8 * 2**20 + 1, bytes(16)),))),
        b"\x01" + _encode((7, bytes(16), 0, (), 1)),
        b"\x01\x94\x07\xc4\x10" + bytes(16) + b"\x00\xdd\xff\xff\xff\xff",
        b"\x01" + b"\x91" * 100_000,
    ],
    ids=lambda data: data[:40].hex(),
)
def test_bytes_of_strangers_are_no_manifest(data):
    with pytest.raises(SnapshotDamaged):
        decode_manifest(data)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200), st.randoms())
def test_any_bytes_end_in_a_refusal_or_in_rows(data, chance):
    pieces, manifest = cut(some_rows(3, 20))
    changed = bytearray(pieces[0])
    for byte in data[:3]:
        changed[chance.randrange(len(changed))] = byte
    for piece in (data, bytes(changed)):
        if piece:
            manifest = bound(piece, 20, manifest.digest)
            try:
                read([piece], manifest)
            except SnapshotDamaged:
                continue
            assert piece == pieces[0]
    with suppress(SnapshotDamaged):
        decode_manifest(b"\x01" + data)
