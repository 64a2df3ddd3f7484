"""The rows of the index at a position of the log, their digest, and the changes of single records.

The digest is the sum of a 128-bit hash over all rows: it changes with each row, in any order.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from ares.bucket.command_results import CommandResult, decode_result, encode_result
from ares.bucket.index_records import (
    Blob,
    BlobPlace,
    BucketEntry,
    IndexTotals,
    ObjectEntry,
    PartEntry,
    Piece,
    SessionEntry,
    SnapshotEntry,
    UploadEntry,
    Version,
)
from ares.bucket.port import RowTable, Saved
from ares.bucket.row_keys import (
    GARBAGE_ROWS,
    INVOCATION_ORDER_ROWS,
    OBJECT_ROWS,
    ROWS_END,
    SESSION_ROWS,
    SNAPSHOT_ROWS,
    TOTALS_ROW,
    after,
    behind_key,
    blob_row,
    bucket_row,
    garbage_row,
    invocation_order_row,
    invocation_row,
    object_row,
    of_key,
    parts_of,
    position_of_row,
    result_row,
    session_row,
    snapshot_row,
    upload_row,
)

_DIGESTS = 1 << 128
SCAN_ROWS = 1000
"""Rows read from the table at a time."""

_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[type[Struct], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (
        BlobPlace,
        BucketEntry,
        IndexTotals,
        ObjectEntry,
        PartEntry,
        SessionEntry,
        SnapshotEntry,
        UploadEntry,
    )
}
Record = TypeVar("Record", bound=Struct)


def row_hash(key: bytes, value: bytes) -> int:
    """Return 128 bits for a row, which nobody can choose."""
    return int.from_bytes(blake3(len(key).to_bytes(4) + key + value).digest(16))


def rows_between(table: RowTable, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows with keys in [first, end), in order; they may be deleted meanwhile."""
    while rows := table.scan(first, end, SCAN_ROWS):
        yield from rows
        first = rows[-1][0] + b"\0"


def counted_digest(table: RowTable) -> int:
    """Return the digest by a count over all rows."""
    return sum(row_hash(*row) for row in rows_between(table, b"", ROWS_END)) % _DIGESTS


def load_rows(table: RowTable, rows: Iterable[tuple[bytes, bytes]], point: Saved) -> bool:
    """Fill an empty table with the rows of a snapshot; return whether they have its digest."""
    digest = 0
    for key, value in rows:
        table.put(key, value)
        digest = (digest + row_hash(key, value)) % _DIGESTS
    table.save(point)
    return digest == point.digest


class BucketState:
    """The index at ``position``: all entries of the log below it were applied.

    ``sessions``: the live sessions, as their rows. ``lowest_reading``: the oldest position that a
    live session may need.
    """

    def __init__(self, table: RowTable) -> None:
        self.table = table
        self.position, self.digest = table.saved()
        self.totals = self.record(TOTALS_ROW, IndexTotals) or IndexTotals()
        self.sessions: dict[int, SessionEntry] = {
            position_of_row(key): _decoders[SessionEntry].decode(value)
            for key, value in rows_between(self.table, SESSION_ROWS, after(SESSION_ROWS))
        }

    @property
    def lowest_reading(self) -> int:
        return min(
            (session.reading_from for session in self.sessions.values()), default=self.position
        )

    # -- rows --------------------------------------------------------------------------------------

    def put(self, key: bytes, value: bytes) -> None:
        self._count_out(key)
        self.table.put(key, value)
        self.digest = (self.digest + row_hash(key, value)) % _DIGESTS

    def delete(self, key: bytes) -> None:
        if self._count_out(key):
            self.table.delete(key)

    def _count_out(self, key: bytes) -> bool:
        value = self.table.get(key)
        if value is not None:
            self.digest = (self.digest - row_hash(key, value)) % _DIGESTS
        return value is not None

    def save(self, position: int) -> None:
        """Keep the rows as those at ``position``."""
        self.position = position
        self.table.save(Saved(position, self.digest))

    def record(self, key: bytes, kind: type[Record]) -> Record | None:
        value = self.table.get(key)
        return None if value is None else _decoders[kind].decode(value)

    def put_record(self, key: bytes, record: Struct) -> None:
        self.put(key, _encode(record))

    # -- totals, sessions, results -----------------------------------------------------------------

    def set_totals(self, totals: IndexTotals) -> None:
        if totals != self.totals:
            self.totals = totals
            self.put_record(TOTALS_ROW, totals)

    def set_session(self, number: int, session: SessionEntry) -> None:
        """Change a session, and forget its results below the lowest number."""
        known = self.sessions.get(number)
        if known is not None and session.lowest > known.lowest:
            self._forget_results(number, session.lowest)
        self.sessions[number] = session
        self.put_record(session_row(number), session)

    def end_session(self, number: int) -> None:
        self._forget_results(number, 2**64 - 1)
        del self.sessions[number]
        self.delete(session_row(number))

    def _forget_results(self, session: int, lowest: int) -> None:
        for key, _ in rows_between(self.table, result_row(session, 0), result_row(session, lowest)):
            self.delete(key)

    def result(self, session: int, number: int) -> CommandResult | None:
        """Return the remembered result of a command."""
        value = self.table.get(result_row(session, number))
        return None if value is None else decode_result(value)

    def remember(self, session: int, number: int, result: CommandResult) -> None:
        self.put(result_row(session, number), encode_result(result))

    def invocation(self, fingerprint: bytes) -> CommandResult | None:
        """Return the first result of a request that was sent again."""
        value = self.table.get(invocation_row(fingerprint))
        return None if value is None else decode_result(value)

    def remember_invocation(self, fingerprint: bytes, result: CommandResult) -> None:
        self.put(invocation_row(fingerprint), encode_result(result))
        self.put(invocation_order_row(self.position), fingerprint)

    def forget_invocations(self, below: int, count_max: int) -> None:
        """Forget the oldest requests below a position, at most ``count_max`` of them."""
        if below <= 0:
            return
        end = invocation_order_row(below)
        for key, fingerprint in self.table.scan(INVOCATION_ORDER_ROWS, end, count_max):
            self.delete(key)
            self.delete(invocation_row(fingerprint))

    # -- buckets, objects, uploads -----------------------------------------------------------------

    def bucket(self, name: str) -> BucketEntry | None:
        return self.record(bucket_row(name), BucketEntry)

    def set_bucket(self, name: str, bucket: BucketEntry) -> None:
        self.put_record(bucket_row(name), bucket)

    def newest(self, bucket: str, key: str) -> ObjectEntry | None:
        """Return the newest version of a key, a deletion included."""
        prefix = of_key(OBJECT_ROWS, bucket, key)
        rows = self.table.scan(prefix, behind_key(prefix), 1)
        entry: ObjectEntry | None = _decoders[ObjectEntry].decode(rows[0][1]) if rows else None
        return entry

    def entry(self, bucket: str, key: str, version: Version) -> ObjectEntry | None:
        return self.record(object_row(bucket, key, version), ObjectEntry)

    def null_entry(self, bucket: str, key: str) -> ObjectEntry | None:
        """Return the null version of a key: the newest knows its version."""
        newest = self.newest(bucket, key)
        if newest is None or newest.null:
            return newest
        older = newest.null_version
        return None if older is None else self.entry(bucket, key, older)

    def chosen(
        self, bucket: str, key: str, version: Version | None, null: bool
    ) -> ObjectEntry | None:
        """Return the named version, the null version, or the newest."""
        if version is not None:
            return self.entry(bucket, key, version)
        return self.null_entry(bucket, key) if null else self.newest(bucket, key)

    def set_entry(self, bucket: str, key: str, entry: ObjectEntry) -> None:
        self.put_record(object_row(bucket, key, entry.version), entry)

    def remove_entry(self, bucket: str, key: str, entry: ObjectEntry) -> None:
        """Remove a version, and take back its uses of blobs."""
        self.delete(object_row(bucket, key, entry.version))
        self.give_up(entry.pieces)

    def upload(self, bucket: str, key: str, upload: Version) -> UploadEntry | None:
        return self.record(upload_row(bucket, key, upload), UploadEntry)

    def parts(self, upload: Version) -> Iterator[tuple[bytes, PartEntry]]:
        """Yield the rows of the parts of an upload, by their numbers."""
        prefix = parts_of(upload)
        for key, value in rows_between(self.table, prefix, after(prefix)):
            yield key, _decoders[PartEntry].decode(value)

    # -- blobs -------------------------------------------------------------------------------------

    def place(self, blob: Blob) -> BlobPlace | None:
        return self.record(blob_row(blob), BlobPlace)

    def use(self, pieces: Iterable[Piece]) -> None:
        """Count a further use of each blob of the pieces."""
        for piece in pieces:
            if piece.blob is not None:
                place = self.place(piece.blob) or BlobPlace(0)
                self.put_record(blob_row(piece.blob), replace(place, uses=place.uses + 1))

    def give_up(self, pieces: Iterable[Piece]) -> None:
        """Take back a use; a blob without a use is garbage from this position on."""
        for piece in pieces:
            if piece.blob is not None:
                place = self.place(piece.blob)
                assert place is not None, "a use that is taken back was counted"
                if place.uses > 1:
                    self.put_record(blob_row(piece.blob), replace(place, uses=place.uses - 1))
                else:
                    self._throw_away(piece.blob)

    def lose(self, blobs: Iterable[Blob]) -> None:
        """Make garbage of new blobs whose command had no success."""
        for blob in blobs:
            if self.place(blob) is None:
                self._throw_away(blob)

    def _throw_away(self, blob: Blob) -> None:
        self.put_record(blob_row(blob), BlobPlace(0, self.position))
        self.put_record(garbage_row(self.position, blob), blob)

    def forget_garbage(self, blob: Blob) -> None:
        place = self.place(blob)
        if place is not None and place.garbage is not None:
            self.delete(blob_row(blob))
            self.delete(garbage_row(place.garbage, blob))

    def garbage(self, limit: int) -> list[tuple[int, Blob]]:
        """Return the oldest garbage: the position of the command, and the blob."""
        rows = self.table.scan(GARBAGE_ROWS, after(GARBAGE_ROWS), limit)
        return [(position_of_row(key), _blob.decode(value)) for key, value in rows]

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshots(self) -> list[SnapshotEntry]:
        """Return the kept snapshots, the oldest first."""
        rows = rows_between(self.table, SNAPSHOT_ROWS, after(SNAPSHOT_ROWS))
        return [_decoders[SnapshotEntry].decode(value) for _, value in rows]

    def keep_snapshot(self, entry: SnapshotEntry, kept: int) -> None:
        """Keep a snapshot, and give up the oldest beyond ``kept``."""
        known = self.snapshots()
        self.use(entry.pieces)
        self.put_record(snapshot_row(entry.position), entry)
        for old in known[: len(known) + 1 - kept]:
            self.delete(snapshot_row(old.position))
            self.give_up(old.pieces)


_blob = msgspec.msgpack.Decoder(Blob)
