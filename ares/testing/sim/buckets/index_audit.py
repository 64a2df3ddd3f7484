"""An audit of the index: its counters, places and digest are those of a count over all rows."""

from collections import Counter
from typing import Any

import msgspec

from ares.bucket.bucket_state import BucketState, counted_digest, rows_between
from ares.bucket.index_records import (
    Blob,
    BlobPlace,
    BucketEntry,
    ObjectEntry,
    PartEntry,
    SnapshotEntry,
)
from ares.bucket.row_keys import (
    BLOB_ROWS,
    BUCKET_ROWS,
    GARBAGE_ROWS,
    OBJECT_ROWS,
    PART_ROWS,
    RESULT_ROWS,
    SNAPSHOT_ROWS,
    UPLOAD_ROWS,
    VERSION_BYTES,
    after,
    blob_row,
    garbage_row,
    position_of_row,
)
from ares.testing.sim.invariants import PromiseBroken


class IndexCount:
    """Counts over all rows of an index. ``uses``: of blobs, by their rows."""

    def __init__(self, state: BucketState) -> None:
        self._table = state.table
        self.uses: Counter[bytes] = Counter()
        self.buckets: dict[bytes, list[int]] = {
            key[1:]: [0] * 5 for key, _ in self.rows(BUCKET_ROWS, BucketEntry)
        }
        self._count_objects()
        uploads = {}
        for key, _ in rows_between(self._table, UPLOAD_ROWS, after(UPLOAD_ROWS)):
            uploads[key[-VERSION_BYTES:]] = counts = self.buckets[key[1 : key.index(b"\0")]]
            counts[3] += 1
        for key, part in self.rows(PART_ROWS, PartEntry):
            uploads[key[1 : 1 + VERSION_BYTES]][4] += part.size
            self._use(part.pieces)
        for _, snapshot in self.rows(SNAPSHOT_ROWS, SnapshotEntry):
            self._use(snapshot.pieces)

    def rows(self, kind: bytes, record: type[Any]) -> list[tuple[bytes, Any]]:
        decode = msgspec.msgpack.Decoder(record).decode
        return [(key, decode(value)) for key, value in rows_between(self._table, kind, after(kind))]

    def _count_objects(self) -> None:
        last = b""
        for key, entry in self.rows(OBJECT_ROWS, ObjectEntry):
            counts = self.buckets[key[1 : key.index(b"\0")]]
            newest = key[:-VERSION_BYTES] != last
            last = key[:-VERSION_BYTES]
            counts[0] += newest and not entry.marker
            counts[1] += 1
            counts[2] += entry.size
            self._use(entry.pieces)

    def _use(self, pieces: Any) -> None:
        self.uses.update(blob_row(piece.blob) for piece in pieces if piece.blob is not None)


def audit_index(state: BucketState) -> None:
    """Raise :class:`PromiseBroken` if a counter, a place or the digest is not what a scan counts.

    Every blob has one place: uses or garbage. A blob without a row belongs to a live session, or
    the sweep may have it; by the session's row it is one of the two.
    """
    count = IndexCount(state)
    for key, bucket in count.rows(BUCKET_ROWS, BucketEntry):
        told = [bucket.objects, bucket.versions, bucket.bytes, bucket.uploads, bucket.part_bytes]
        _agree(f"bucket {key[1:]!r}", told, count.buckets[key[1:]])
    places = dict(count.rows(BLOB_ROWS, BlobPlace))
    uses = {key: place.uses for key, place in places.items() if place.garbage is None}
    _agree("the uses of blobs", uses, dict(count.uses))
    garbage = {key for key, place in places.items() if place.garbage is not None}
    rows = count.rows(GARBAGE_ROWS, Blob)
    _agree("the garbage", garbage, {blob_row(blob) for _, blob in rows})
    for key, blob in rows:
        _agree("a row of garbage", key, garbage_row(position_of_row(key), blob))
        _agree("uses of garbage", places[blob_row(blob)], BlobPlace(0, position_of_row(key)))
    for key, _ in rows_between(state.table, RESULT_ROWS, after(RESULT_ROWS)):
        session = state.sessions.get(position_of_row(key))
        number = int.from_bytes(key[-8:])
        if session is None or number < session.lowest:
            raise PromiseBroken(f"the result of command {number} is remembered for nobody")
    _agree("the digest", state.digest, counted_digest(state.table))


def _agree(what: str, told: object, counted: object) -> None:
    if told != counted:
        raise PromiseBroken(f"{what}: the index says {told}, and a scan counts {counted}")
