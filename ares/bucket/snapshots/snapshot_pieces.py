"""The pieces of a snapshot: rows in the order of their keys, and a manifest with their digests.

A piece is a sequence of portions. A portion is its length and some rows in MessagePack: a process
that writes or loads a snapshot has other work between two portions. Pieces come from the network:
every length has a bound before memory is taken, and rows out of order are refused.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from blake3 import blake3
from msgspec import Meta, Struct

from ares.bucket.bucket_state import row_hash
from ares.bucket.index_records import Digest
from ares.bucket.snapshots.frozen_rows import Row
from ares.model.errors import AresError
from ares.model.numbers import Count, Position
from ares.model.units import MIB

SNAPSHOT_FORMAT = 1
"""First byte of a manifest."""

SNAPSHOT_PIECE_BYTES = 8 * MIB
SNAPSHOT_PIECES_MAX = 65_536
PORTION_ROWS = 500
"""Most rows of a portion: about a millisecond of work."""

_PORTION_BYTES = 256 * 1024
"""Bytes after which a portion ends; a single row may have more."""

_LENGTH_BYTES = 4

_Rows = Annotated[list[tuple[bytes, bytes]], Meta(min_length=1, max_length=PORTION_ROWS)]
_encoder = msgspec.msgpack.Encoder()
_decode_rows = msgspec.msgpack.Decoder(_Rows).decode


class SnapshotDamaged(AresError):
    """Bytes are no piece or no manifest of the snapshot. Another snapshot, or the log, has all."""


class SnapshotPiece(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """The length of a piece in bytes, and the first 16 bytes of its BLAKE3."""

    length: Annotated[int, Meta(ge=1, le=SNAPSHOT_PIECE_BYTES)]
    digest: Digest


def piece_summary(piece: bytes) -> SnapshotPiece:
    return SnapshotPiece(len(piece), blake3(piece).digest(16))


class SnapshotManifest(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A snapshot: the position, the digest and the number of its rows, and its pieces in order."""

    position: Position
    digest: Digest
    rows: Count
    pieces: Annotated[tuple[SnapshotPiece, ...], Meta(max_length=SNAPSHOT_PIECES_MAX)]

    @property
    def length(self) -> int:
        """Return the bytes of all pieces."""
        return sum(piece.length for piece in self.pieces)


_decode_manifest = msgspec.msgpack.Decoder(SnapshotManifest).decode


def encode_manifest(manifest: SnapshotManifest) -> bytes:
    return bytes([SNAPSHOT_FORMAT]) + _encoder.encode(manifest)


def decode_manifest(data: bytes) -> SnapshotManifest:
    """Return the manifest in ``data``. Raises :class:`SnapshotDamaged`."""
    if data[:1] != bytes([SNAPSHOT_FORMAT]):
        raise SnapshotDamaged("a manifest of another format")
    try:
        return _decode_manifest(memoryview(data)[1:])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SnapshotDamaged(f"no manifest: {error}") from error


class SnapshotWriter:
    """The pieces of rows that are given in order."""

    def __init__(self) -> None:
        self._portions: list[bytes] = []
        self._length = 0
        self._hash = blake3()
        self._digest = 0
        self._rows = 0
        self._pieces: list[SnapshotPiece] = []

    def add(self, rows: Sequence[Row]) -> Iterator[bytes]:
        """Add at most PORTION_ROWS rows; yield the pieces that are full."""
        first, length = 0, 0
        for index, (key, value) in enumerate(rows):
            self._digest += row_hash(key, value)
            length += len(key) + len(value)
            if length >= _PORTION_BYTES or index + 1 == len(rows):
                yield from self._add_portion(rows[first : index + 1])
                first, length = index + 1, 0

    def _add_portion(self, rows: Sequence[Row]) -> Iterator[bytes]:
        data = _encoder.encode(rows)
        size = _LENGTH_BYTES + len(data)
        assert size <= SNAPSHOT_PIECE_BYTES, "the fold bounds its rows"
        if self._length + size > SNAPSHOT_PIECE_BYTES:
            yield self.end()
        for part in (len(data).to_bytes(_LENGTH_BYTES), data):
            self._portions.append(part)
            self._hash.update(part)
        self._length += size
        self._rows += len(rows)

    def end(self) -> bytes:
        """Return the last piece, empty if all pieces were full."""
        piece = b"".join(self._portions)
        if piece:
            self._pieces.append(SnapshotPiece(len(piece), self._hash.digest(16)))
        self._portions, self._length, self._hash = [], 0, blake3()
        return piece

    def manifest(self, position: int) -> SnapshotManifest:
        """Return the manifest of all pieces so far. ``position``: of the rows."""
        digest = (self._digest % 2**128).to_bytes(16)
        return SnapshotManifest(position, digest, self._rows, tuple(self._pieces))


class SnapshotReader:
    """The rows of a snapshot's pieces, which are given in order."""

    def __init__(self, manifest: SnapshotManifest) -> None:
        self.manifest = manifest
        self._taken = 0
        self._last = b""
        self._digest = 0
        self._rows = 0

    def take(self, piece: bytes) -> Iterator[list[Row]]:
        """Yield the rows of the next piece, in portions. Raises :class:`SnapshotDamaged`."""
        known = self.manifest.pieces[self._taken : self._taken + 1]
        self._taken += 1
        if not piece or known != (piece_summary(piece),):
            raise SnapshotDamaged(f"piece {self._taken - 1} has another digest or length")
        view, at = memoryview(piece), 0
        while at < len(piece):
            start = at + _LENGTH_BYTES
            at = start + int.from_bytes(view[at:start])
            if at > len(piece):
                raise SnapshotDamaged("a portion is longer than its piece")
            try:
                rows = _decode_rows(view[start:at])
            except (msgspec.MsgspecError, RecursionError) as error:
                raise SnapshotDamaged(f"no rows: {error}") from error
            self._count(rows)
            yield rows

    def _count(self, rows: list[Row]) -> None:
        for key, value in rows:
            if key <= self._last:
                raise SnapshotDamaged("rows in another order than that of their keys")
            self._last = key
            self._digest += row_hash(key, value)
        self._rows += len(rows)

    def end(self) -> None:
        """Raise :class:`SnapshotDamaged` unless all rows with the digest were taken."""
        found = (self._taken, self._rows, (self._digest % 2**128).to_bytes(16))
        manifest = self.manifest
        if found != (len(manifest.pieces), manifest.rows, manifest.digest):
            raise SnapshotDamaged("the pieces have other rows than the manifest says")
