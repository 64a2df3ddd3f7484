"""The rows of the index at a position of the log, their digest, and the changes of single records.

The digest is the sum of a 128-bit hash over all rows: it changes with each row, in any order.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from blake3 import blake3
from msgspec import Struct
from msgspec.structs import replace

from ares.bucket.command_results import CommandResult, decode_result, encode_result
from ares.bucket.index_records import (
    LEFTOVERS_AT_ONCE,
    UPLOADED_PART_BYTES_MIN,
    Blob,
    BucketEntry,
    ContentPlace,
    EndedUpload,
    IndexTotals,
    ObjectEntry,
    PartEntry,
    Piece,
    SessionEntry,
    SnapshotEntry,
    UploadEntry,
    Version,
    piece_of,
)
from ares.bucket.port import RowTable, Saved
from ares.bucket.row_keys import (
    ENDED_UPLOAD_ROWS,
    GARBAGE_CONTENT_ROWS,
    GARBAGE_ROWS,
    INVOCATION_ORDER_ROWS,
    INVOCATION_ROWS,
    OBJECT_ROWS,
    ROWS_END,
    SESSION_ROWS,
    SNAPSHOT_ROWS,
    TOTALS_ROW,
    after,
    behind_key,
    blob_row,
    bucket_row,
    configuration_row,
    content_place_row,
    content_row,
    ended_upload_row,
    garbage_content_row,
    garbage_row,
    invocation_order_row,
    invocation_row,
    object_row,
    of_key,
    part_number_of_row,
    part_row,
    parts_of,
    position_of_row,
    result_row,
    session_row,
    snapshot_row,
    upload_row,
    version_of_row,
)
from ares.model.errors import AresError

_DIGESTS = 1 << 128
SCAN_ROWS = 1000
"""Rows read from the table at a time."""

_encode = msgspec.msgpack.Encoder().encode
_decoders: dict[type[Struct], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (
        BucketEntry,
        ContentPlace,
        EndedUpload,
        IndexTotals,
        ObjectEntry,
        PartEntry,
        SessionEntry,
        SnapshotEntry,
        UploadEntry,
    )
}
_blob = msgspec.msgpack.Decoder(Blob)
_pieces = msgspec.msgpack.Decoder(tuple[Piece, ...])
Record = TypeVar("Record", bound=Struct)


class ContentGone(AresError):
    """The content was collected, because the session of its reader has ended. Read again."""


def row_hash(key: bytes, value: bytes) -> int:
    """Return 128 bits for a row, which no client can choose."""
    return int.from_bytes(blake3(len(key).to_bytes(4) + key + value).digest(16))


def rows_between(table: RowTable, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows with keys in [first, end), in order; rows may be deleted during the walk."""
    while rows := table.scan(first, end, SCAN_ROWS):
        yield from rows
        first = rows[-1][0] + b"\0"


def counted_digest(table: RowTable) -> int:
    """Return the digest by a count over all rows."""
    return sum(row_hash(*row) for row in rows_between(table, b"", ROWS_END)) % _DIGESTS


def load_rows(table: RowTable, rows: Iterable[tuple[bytes, bytes]], point: Saved) -> bool:
    """Fill a table with the rows of a snapshot alone; return whether they have its digest."""
    digest = 0
    table.clear()
    for key, value in rows:
        table.put(key, value)
        digest = (digest + row_hash(key, value)) % _DIGESTS
    if digest != point.digest:
        table.clear()
        return False
    table.save(point)
    return True


class BucketState:
    """The index at ``position``: all entries of the log below it were applied.

    ``sessions``: the live sessions, as their rows. ``ms``: the time of the command under way.
    """

    ms = 0
    part_bytes_min = UPLOADED_PART_BYTES_MIN
    leftovers_at_once = LEFTOVERS_AT_ONCE

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
        """Return the oldest position that a live session may need."""
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
            size = session.result_bytes - self._forget_results(number, session.lowest)
            session = replace(session, result_bytes=size)
        self.sessions[number] = session
        self.put_record(session_row(number), session)

    def end_session(self, number: int) -> None:
        self._forget_results(number, 2**64 - 1)
        del self.sessions[number]
        self.delete(session_row(number))

    def _forget_results(self, session: int, lowest: int) -> int:
        """Forget the results of a session's numbers below ``lowest``; return their bytes."""
        size = 0
        rows = rows_between(self.table, result_row(session, 0), result_row(session, lowest))
        for key, value in rows:
            size += len(value)
            self.delete(key)
        return size

    def result(self, session: int, number: int) -> CommandResult | None:
        """Return the remembered result of a command."""
        value = self.table.get(result_row(session, number))
        return None if value is None else decode_result(value)

    def remember(self, number: int, command: int, result: CommandResult) -> None:
        """Remember the result of a session's command."""
        value, session = encode_result(result), self.sessions[number]
        self.put(result_row(number, command), value)
        size = session.result_bytes + len(value)
        self.set_session(number, replace(session, result_bytes=size))

    def invocation(self, fingerprint: bytes) -> CommandResult | None:
        """Return the first result of a request that was sent again; None without a fingerprint."""
        value = self.table.get(invocation_row(fingerprint)) if fingerprint else None
        return None if value is None else decode_result(value)

    def invocations(self, request: bytes, limit: int) -> dict[bytes, CommandResult]:
        """Return the first results of a request by print, whatever the etags; at most ``limit``."""
        first = invocation_row(request)
        rows = self.table.scan(first, after(first), limit)
        return {row[len(INVOCATION_ROWS) :]: decode_result(value) for row, value in rows}

    def remember_invocation(self, fingerprint: bytes, result: CommandResult) -> None:
        value = encode_result(result)
        self.put(invocation_row(fingerprint), value)
        self.put(invocation_order_row(self.position), fingerprint)
        self._count_invocations(len(value))

    def forget_invocations(self, below: int, count_max: int) -> None:
        """Forget the oldest requests below a position, at most ``count_max`` of them."""
        if below <= 0:
            return
        end = invocation_order_row(below)
        for key, fingerprint in self.table.scan(INVOCATION_ORDER_ROWS, end, count_max):
            row = invocation_row(fingerprint)
            self._count_invocations(-len(self.table.get(row) or b""))
            self.delete(row)
            self.delete(key)

    def _count_invocations(self, growth: int) -> None:
        size = self.totals.invocation_bytes + growth
        self.set_totals(replace(self.totals, invocation_bytes=size))

    # -- buckets, objects, uploads -----------------------------------------------------------------

    def bucket(self, name: str) -> BucketEntry | None:
        return self.record(bucket_row(name), BucketEntry)

    def set_bucket(self, name: str, bucket: BucketEntry) -> None:
        self.put_record(bucket_row(name), bucket)

    def configuration(self, bucket: str, name: str) -> bytes:
        """Return a configuration of a bucket; no bytes without one."""
        return self.table.get(configuration_row(bucket, name)) or b""

    def newest(self, bucket: str, key: str) -> ObjectEntry | None:
        """Return the newest version of a key, a deletion included."""
        prefix = of_key(OBJECT_ROWS, bucket, key)
        rows = self.table.scan(prefix, behind_key(prefix), 1)
        entry: ObjectEntry | None = _decoders[ObjectEntry].decode(rows[0][1]) if rows else None
        return entry

    def entry(self, bucket: str, key: str, version: Version) -> ObjectEntry | None:
        return self.record(object_row(bucket, key, version), ObjectEntry)

    def null_entry(self, bucket: str, key: str, newest: ObjectEntry | None) -> ObjectEntry | None:
        """Return the null version of a key: the newest version knows its version."""
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
        newest = self.newest(bucket, key)
        return self.null_entry(bucket, key, newest) if null else newest

    def set_entry(self, bucket: str, key: str, entry: ObjectEntry) -> None:
        self.put_record(object_row(bucket, key, entry.version), entry)

    def remove_entry(self, bucket: str, key: str, entry: ObjectEntry) -> None:
        """Remove a version, and take back the use of the content."""
        self.delete(object_row(bucket, key, entry.version))
        self.give_up(entry.content)

    def upload(self, bucket: str, key: str, upload: Version) -> UploadEntry | None:
        return self.record(upload_row(bucket, key, upload), UploadEntry)

    def parts(self, upload: Version, numbers: Collection[int]) -> dict[int, PartEntry]:
        """Return the parts of an upload with the given numbers, if they are there."""
        first, end = part_row(upload, min(numbers)), part_row(upload, max(numbers)) + b"\0"
        wanted, decode = set(numbers), _decoders[PartEntry].decode
        return {
            number: decode(value)
            for key, value in rows_between(self.table, first, end)
            if (number := part_number_of_row(key)) in wanted
        }

    def end_parts(self, upload: Version, taken: Sequence[int]) -> None:
        """Drop the parts of an upload, and keep the rest of many for :meth:`drop_leftovers`.

        An object took over the contents of the parts ``taken``.
        """
        if self._drop_parts(upload, taken, self.leftovers_at_once) > self.leftovers_at_once:
            self.put_record(ended_upload_row(upload), EndedUpload(tuple(taken)))

    def _drop_parts(self, upload: Version, taken: Sequence[int], parts_max: int) -> int:
        """Drop parts of an ended upload, at most ``parts_max``.

        Return the number dropped, and 1 more if parts are left.
        """
        prefix, kept = parts_of(upload), set(taken)
        parts = self.table.scan(prefix, after(prefix), parts_max + 1)
        for key, value in parts[:parts_max]:
            if part_number_of_row(key) not in kept:
                self.give_up(_decoders[PartEntry].decode(value).content)
            self.delete(key)
        return len(parts)

    # -- contents ----------------------------------------------------------------------------------

    def place(self, blob: Blob) -> ContentPlace | None:
        return self.record(blob_row(blob), ContentPlace)

    def use(self, piece: Piece) -> None:
        """Count a further use of the blob or the shared content of a piece."""
        row = _place_row(piece)
        if row is not None:
            place = self.record(row, ContentPlace) or ContentPlace(0)
            self.put_record(row, replace(place, uses=place.uses + 1))

    def give_up(self, piece: Piece) -> None:
        """Take back a use; without any, the blob or content is garbage from this position on."""
        row = _place_row(piece)
        if row is None:
            return
        place = self.record(row, ContentPlace)
        assert place is not None, "a use that is taken back was counted"
        if place.uses > 1:
            self.put_record(row, replace(place, uses=place.uses - 1))
        elif piece.blob is not None:
            self._throw_away(piece.blob)
        elif piece.content is not None:
            self.put_record(row, replace(place, uses=0, garbage=self.position))
            self.put(garbage_content_row(self.position, piece.content), b"")

    def lose(self, blobs: Iterable[Blob]) -> None:
        """Make garbage of new blobs whose command had no success."""
        for blob in blobs:
            if self.place(blob) is None:
                self._throw_away(blob)

    def _throw_away(self, blob: Blob) -> None:
        self.put_record(blob_row(blob), ContentPlace(0, self.position))
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

    def share(self, content: Version, pieces: Sequence[Piece]) -> Piece:
        """Keep pieces, whose uses were counted, as a shared content, and count its first use."""
        depth = 1 + max(map(self.depth, pieces))
        self.put(content_row(content), _encode(pieces))
        self.put_record(content_place_row(content), ContentPlace(1, depth=depth))
        return Piece(sum(piece.length for piece in pieces), content=content)

    def depth(self, piece: Piece) -> int:
        """Return the levels of shared contents of a piece."""
        row = None if piece.content is None else content_place_row(piece.content)
        place = None if row is None else self.record(row, ContentPlace)
        return 0 if place is None else place.depth

    def has_leftovers(self) -> bool:
        """Return whether a part of an ended upload, or an unused shared content, can be dropped.

        No session may need the content any more.
        """
        return bool(self._ended_uploads(1) or self._due_contents(1))

    def drop_leftovers(self) -> None:
        """Drop parts of ended uploads, and take unused shared contents apart: a portion of each."""
        left = self.leftovers_at_once
        for row, value in self._ended_uploads(left):
            taken = _decoders[EndedUpload].decode(value).taken
            found = self._drop_parts(version_of_row(row), taken, left)
            if found <= left:
                self.delete(row)
            left -= found
            if left <= 0:
                break
        self._take_apart(self.leftovers_at_once)

    def _ended_uploads(self, limit: int) -> Sequence[tuple[bytes, bytes]]:
        return self.table.scan(ENDED_UPLOAD_ROWS, after(ENDED_UPLOAD_ROWS), limit)

    def _due_contents(self, limit: int) -> Sequence[tuple[bytes, bytes]]:
        end = garbage_content_row(self.lowest_reading, Version(0))
        return self.table.scan(GARBAGE_CONTENT_ROWS, end, limit)

    def _take_apart(self, pieces_max: int) -> None:
        """Take shared contents apart that no session may need, of at most ``pieces_max`` pieces.

        The pieces left are in the row of the garbage: a reader whose session has ended finds no
        content, in place of a part of it.
        """
        for row, value in self._due_contents(pieces_max):
            content = version_of_row(row)
            pieces = _pieces.decode(value) if value else self._shared(content)
            if not value:
                self.delete(content_row(content))
                self.delete(content_place_row(content))
            if left := pieces[pieces_max:]:
                self.put(row, _encode(left))
            else:
                self.delete(row)
            for piece in pieces[:pieces_max]:
                self.give_up(piece)
            pieces_max -= len(pieces)
            if pieces_max <= 0:
                return

    def part_sizes(self, entry: ObjectEntry) -> list[int]:
        """Return the sizes of the parts of a multipart upload that an object was made of.

        Raises :class:`ContentGone` as :meth:`leaves` does.
        """
        content = entry.content.content
        if entry.parts < 2 or content is None:
            return [entry.size] * entry.parts
        return [piece.length for piece in self._shared(content)]

    def _shared(self, content: Version) -> tuple[Piece, ...]:
        row = self.table.get(content_row(content))
        if row is None:
            raise ContentGone(f"the content {content} is gone: read the object again")
        pieces: tuple[Piece, ...] = _pieces.decode(row)
        return pieces

    def leaves(self, piece: Piece, first: int = 0, length: int | None = None) -> Iterator[Piece]:
        """Yield ``length`` bytes of a piece from ``first`` on, as pieces of blobs and data.

        Raises :class:`ContentGone` if the session of the reader has ended meanwhile.
        """
        end = piece.length if length is None else first + length
        if piece.content is None:
            if first < end:
                yield piece.cut(first, end - first)
            return
        at = -piece.start
        for part in self._shared(piece.content):
            begin, until = max(first - at, 0), min(end - at, part.length)
            if begin < until:
                yield from self.leaves(part, begin, until - begin)
            at += part.length

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshots(self) -> list[SnapshotEntry]:
        """Return the kept snapshots, the oldest first."""
        rows = rows_between(self.table, SNAPSHOT_ROWS, after(SNAPSHOT_ROWS))
        return [_decoders[SnapshotEntry].decode(value) for _, value in rows]

    def keep_snapshot(self, entry: SnapshotEntry, kept: int) -> None:
        """Keep a snapshot, and give up the oldest beyond ``kept``."""
        known = self.snapshots()
        self.use(piece_of(entry.blob))
        self.put_record(snapshot_row(entry.position), entry)
        for old in known[: len(known) + 1 - kept]:
            self.delete(snapshot_row(old.position))
            self.give_up(piece_of(old.blob))


def _place_row(piece: Piece) -> bytes | None:
    """Return the row that counts the uses of a piece's blob or content; None for data."""
    if piece.blob is not None:
        return blob_row(piece.blob)
    return None if piece.content is None else content_place_row(piece.content)
