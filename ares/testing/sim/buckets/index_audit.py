"""An audit of the index: counters, places and digest beside a count over all rows."""

from collections import Counter
from typing import Any

import msgspec

from ares.bucket.bucket_state import BucketState, counted_digest, rows_between
from ares.bucket.index_records import (
    Blob,
    BucketEntry,
    ContentPlace,
    EndedUpload,
    ObjectEntry,
    PartEntry,
    Piece,
    SnapshotEntry,
    UploadEntry,
    piece_of,
)
from ares.bucket.row_keys import (
    BLOB_ROWS,
    BUCKET_ROWS,
    CONTENT_PLACE_ROWS,
    CONTENT_ROWS,
    ENDED_UPLOAD_ROWS,
    GARBAGE_CONTENT_ROWS,
    GARBAGE_ROWS,
    INVOCATION_ROWS,
    OBJECT_ROWS,
    PART_ROWS,
    RESULT_ROWS,
    SNAPSHOT_ROWS,
    UPLOAD_ROWS,
    VERSION_BYTES,
    after,
    blob_row,
    content_place_row,
    garbage_content_row,
    garbage_row,
    part_number_of_row,
    position_of_row,
    version_of_row,
)
from ares.testing.sim.invariants import PromiseBroken

_decode_pieces = msgspec.msgpack.Decoder(tuple[Piece, ...]).decode


class IndexCount:
    """Counts over all rows of an index. ``uses``: of blobs and shared contents, by their rows."""

    def __init__(self, state: BucketState) -> None:
        self._table = state.table
        self.uses: Counter[bytes] = Counter()
        self.buckets: dict[bytes, list[int]] = {
            key[1:]: [0] * 5 for key, _ in self.rows(BUCKET_ROWS, BucketEntry)
        }
        self._count_objects()
        self._count_parts()
        for _, snapshot in self.rows(SNAPSHOT_ROWS, SnapshotEntry):
            self._use(piece_of(snapshot.blob))
        for kind in (CONTENT_ROWS, GARBAGE_CONTENT_ROWS):
            for _, value in rows_between(self._table, kind, after(kind)):
                for piece in _decode_pieces(value) if value else ():
                    self._use(piece)

    def rows(self, kind: bytes, record: Any) -> list[tuple[bytes, Any]]:
        decode = msgspec.msgpack.Decoder(record).decode
        return [(key, decode(value)) for key, value in rows_between(self._table, kind, after(kind))]

    def _count_parts(self) -> None:
        """Count uploads and their parts, also the parts left of uploads that ended."""
        taken = {key[1:]: ended.taken for key, ended in self.rows(ENDED_UPLOAD_ROWS, EndedUpload)}
        counts, told = {}, {}
        for key, upload in self.rows(UPLOAD_ROWS, UploadEntry):
            name = key[-VERSION_BYTES:]
            counts[name], told[name] = self.buckets[key[1 : key.index(b"\0")]], upload.part_bytes
            counts[name][3] += 1
        sizes = dict.fromkeys(told, 0)
        for key, part in self.rows(PART_ROWS, PartEntry):
            name, number = key[1 : 1 + VERSION_BYTES], part_number_of_row(key)
            if name in counts:
                counts[name][4] += part.size
                sizes[name] += part.size
            elif name not in taken:
                raise PromiseBroken(f"part {number} has no upload")
            if number not in taken.get(name, ()):
                self._use(part.content)
        _agree("the bytes of parts", told, sizes)

    def _count_objects(self) -> None:
        last = b""
        for key, entry in self.rows(OBJECT_ROWS, ObjectEntry):
            counts = self.buckets[key[1 : key.index(b"\0")]]
            newest = key[:-VERSION_BYTES] != last
            last = key[:-VERSION_BYTES]
            counts[0] += newest and not entry.marker
            counts[1] += 1
            counts[2] += entry.size
            self._use(entry.content)

    def _use(self, piece: Piece) -> None:
        if piece.blob is not None:
            self.uses[blob_row(piece.blob)] += 1
        elif piece.content is not None:
            self.uses[content_place_row(piece.content)] += 1


def audit_index(state: BucketState) -> None:
    """Raise :class:`PromiseBroken` if a counter, a place or the digest differs from a scan.

    Every blob has a single place: uses or garbage. A blob without a row belongs to a live session
    or to the sweep, by the session's row.
    """
    count = IndexCount(state)
    for key, bucket in count.rows(BUCKET_ROWS, BucketEntry):
        told = [bucket.objects, bucket.versions, bucket.bytes, bucket.uploads, bucket.part_bytes]
        _agree(f"bucket {key[1:]!r}", told, count.buckets[key[1:]])
    _audit_contents(state, count)
    _audit_results(state)
    _agree("the digest", state.digest, counted_digest(state.table))


def _audit_contents(state: BucketState, count: IndexCount) -> None:
    """Check the places of blobs and shared contents, and the rows of garbage."""
    blobs = dict(count.rows(BLOB_ROWS, ContentPlace))
    contents = dict(count.rows(CONTENT_PLACE_ROWS, ContentPlace))
    places = blobs | contents
    uses = {key: place.uses for key, place in places.items() if place.garbage is None}
    _agree("the uses of contents", uses, dict(count.uses))
    shared = [
        content_place_row(version_of_row(row))
        for row, _ in rows_between(state.table, CONTENT_ROWS, after(CONTENT_ROWS))
    ]
    _agree("the shared contents", sorted(contents), shared)
    garbage = {key for key, place in places.items() if place.garbage is not None}
    listed = set()
    for key, blob in count.rows(GARBAGE_ROWS, Blob):
        position = position_of_row(key)
        _agree("a row of garbage", key, garbage_row(position, blob))
        _agree("uses of garbage", places[blob_row(blob)], ContentPlace(0, position))
        listed.add(blob_row(blob))
    for key, left in rows_between(state.table, GARBAGE_CONTENT_ROWS, after(GARBAGE_CONTENT_ROWS)):
        position, content = position_of_row(key), version_of_row(key)
        _agree("a row of garbage", key, garbage_content_row(position, content))
        if left:  # the content is taken apart, and has no place
            continue
        place = places[content_place_row(content)]
        _agree("uses of garbage", (place.uses, place.garbage), (0, position))
        listed.add(content_place_row(content))
    _agree("the garbage", garbage, listed)


def _audit_results(state: BucketState) -> None:
    """Check that results are remembered for live sessions alone, and their bytes."""
    sizes: Counter[int] = Counter()
    for key, value in rows_between(state.table, RESULT_ROWS, after(RESULT_ROWS)):
        number, session = position_of_row(key), state.sessions.get(position_of_row(key))
        command = int.from_bytes(key[-8:])
        if session is None or command < session.lowest:
            raise PromiseBroken(f"the result of command {command} is remembered for nobody")
        sizes[number] += len(value)
    told = {number: session.result_bytes for number, session in state.sessions.items()}
    _agree("the bytes of results", told, {number: sizes[number] for number in told})
    rows = rows_between(state.table, INVOCATION_ROWS, after(INVOCATION_ROWS))
    size = sum(len(value) for _, value in rows)
    _agree("the bytes of invocations", state.totals.invocation_bytes, size)


def _agree(what: str, told: object, counted: object) -> None:
    if told != counted:
        raise PromiseBroken(f"{what}: the index says {told}, and a scan counts {counted}")
