"""Listings: seek, and behind a common prefix seek again. The work follows the results.

A page is exact at the state's position. Deletions and older versions are passed over; a page ends
early after many deletions, and the next page goes on from this place.
"""

from typing import NamedTuple

import msgspec

from ares.bucket.bucket_state import BucketState
from ares.bucket.index_records import ObjectEntry, PartEntry, UploadEntry, Version
from ares.bucket.port import RowTable
from ares.bucket.row_keys import (
    OBJECT_ROWS,
    ROW_TAIL_BYTES,
    UPLOAD_ROWS,
    VERSION_BYTES,
    after,
    behind_key,
    escaped,
    key_of_row,
    object_row,
    of_bucket,
    of_key,
    part_number_of_row,
    part_row,
    parts_of,
    unescaped,
    upload_row,
    version_of_row,
)

PAGE_RESULTS_MAX = 1000
PASSED_ROWS_MAX = 10_000
"""Rows without a result in a page."""

_ROWS_AT_ONCE = 512
_object = msgspec.msgpack.Decoder(ObjectEntry)
_upload = msgspec.msgpack.Decoder(UploadEntry)
_part = msgspec.msgpack.Decoder(PartEntry)


class ListRequest(NamedTuple):
    """A request for a page. ``after``: the key or the common prefix that ended the last page.

    ``version``: the version or upload of the key ``after`` that ended the page, if later
    versions or uploads of the key follow. ``behind``: ``after`` is a common prefix, and no key
    below ``after`` follows.
    """

    bucket: str
    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    behind: bool = False
    version: Version | None = None
    limit: int = PAGE_RESULTS_MAX


class ListedKey(NamedTuple):
    """A result: a version of an object, an upload, or a common prefix, which has neither."""

    key: str
    entry: ObjectEntry | None = None
    latest: bool = False
    upload: Version | None = None
    begun: UploadEntry | None = None

    @property
    def is_prefix(self) -> bool:
        return self.entry is None and self.begun is None


class ListedPage(NamedTuple):
    """A page. ``following``: the request for the next page; None after the last."""

    results: list[ListedKey]
    following: ListRequest | None


class _Walk:
    """A walk over rows in order, with jumps ahead.

    A portion of which half was taken is followed by a longer one, else by a single row: the walk
    over common prefixes is a seek for each, and the walk over keys has few statements.
    """

    def __init__(self, table: RowTable, start: bytes, end: bytes) -> None:
        self._table = table
        self._next = start
        self._end = end
        self._rows: list[tuple[bytes, bytes]] = []
        self._portion = self._taken = 1

    def take(self) -> tuple[bytes, bytes] | None:
        """Return the next row, and pass it."""
        rows, position = self._rows, self._next
        while rows and rows[-1][0] < position:
            rows.pop()
        if not rows:
            if position >= self._end:
                return None
            portion = self._portion
            portion = min(2 * portion, _ROWS_AT_ONCE) if 2 * self._taken >= portion else 1
            rows = list(self._table.scan(position, self._end, portion))
            rows.reverse()
            self._rows, self._portion, self._taken = rows, portion, 0
            if not rows:
                self._next = self._end
                return None
        self._taken += 1
        row = rows.pop()
        self._next = row[0] + b"\0"
        return row

    def jump(self, to: bytes) -> None:
        """Go on at a row ahead."""
        self._next = to


class _Prefixes:
    """The common prefixes of a page. The search stays in the bytes of rows, which are escaped."""

    def __init__(self, kind: bytes, request: ListRequest) -> None:
        self._rows = len(of_bucket(kind, request.bucket))
        self._first = self._rows + len(escaped(request.prefix))
        self._delimiter = escaped(request.delimiter)
        self._behind = after(self._delimiter) if self._delimiter else b""

    def end(self, row: bytes) -> int:
        """Return the end, in a row, of the key's common prefix; 0 without a common prefix."""
        if not self._delimiter:
            return 0
        at = row.find(self._delimiter, self._first, -ROW_TAIL_BYTES)
        return 0 if at < 0 else at + len(self._delimiter)

    def text(self, row: bytes, end: int) -> str:
        """Return the common prefix that ends in a row at ``end``."""
        return unescaped(row[self._rows : end])

    def behind(self, row: bytes, end: int) -> bytes:
        """Return the end of the rows with the common prefix."""
        return row[: end - len(self._delimiter)] + self._behind


def list_objects(state: BucketState, request: ListRequest) -> ListedPage:
    """Return the next objects and common prefixes, of newest versions that are no deletions."""
    results: list[ListedKey] = []
    walk, prefixes = _walk(state, OBJECT_ROWS, request), _Prefixes(OBJECT_ROWS, request)
    last, is_behind, passed = request.after, request.behind, 0
    while (
        len(results) < request.limit
        and passed < PASSED_ROWS_MAX
        and (row := walk.take()) is not None
    ):
        name, entry = row[0], _object.decode(row[1])
        end = 0 if entry.marker else prefixes.end(name)
        is_behind = end > 0
        if is_behind:
            last = prefixes.text(name, end)
            results.append(ListedKey(last))
            walk.jump(prefixes.behind(name, end))
            continue
        last = key_of_row(name, OBJECT_ROWS, request.bucket)
        walk.jump(behind_key(name[:-VERSION_BYTES]))
        if entry.marker:
            passed += 1
        else:
            results.append(ListedKey(last, entry, True))
    is_cut = passed == PASSED_ROWS_MAX or (request.limit > 0 and _has_more(walk))
    following = request._replace(after=last, behind=is_behind, version=None)
    return ListedPage(results, following if is_cut else None)


def list_versions(state: BucketState, request: ListRequest) -> ListedPage:
    """Return the next versions, deletions included, and common prefixes."""
    results: list[ListedKey] = []
    walk, prefixes = _walk(state, OBJECT_ROWS, request), _Prefixes(OBJECT_ROWS, request)
    last = request
    before = request.after if request.version is not None else None
    while len(results) < request.limit and (row := walk.take()) is not None:
        if end := prefixes.end(row[0]):
            common = prefixes.text(row[0], end)
            results.append(ListedKey(common))
            walk.jump(prefixes.behind(row[0], end))
            last = request._replace(after=common, behind=True, version=None)
        else:
            key = key_of_row(row[0], OBJECT_ROWS, request.bucket)
            entry = _object.decode(row[1])
            results.append(ListedKey(key, entry, key != before))
            last = request._replace(after=key, behind=False, version=entry.version)
            before = key
    return ListedPage(results, last if request.limit > 0 and _has_more(walk) else None)


def list_uploads(state: BucketState, request: ListRequest) -> ListedPage:
    """Return the next uploads under way, by key and then by their beginning."""
    results: list[ListedKey] = []
    walk, prefixes = _walk(state, UPLOAD_ROWS, request), _Prefixes(UPLOAD_ROWS, request)
    last = request
    while len(results) < request.limit and (row := walk.take()) is not None:
        if end := prefixes.end(row[0]):
            common = prefixes.text(row[0], end)
            results.append(ListedKey(common))
            walk.jump(prefixes.behind(row[0], end))
            last = request._replace(after=common, behind=True, version=None)
        else:
            key = key_of_row(row[0], UPLOAD_ROWS, request.bucket)
            upload = version_of_row(row[0])
            results.append(ListedKey(key, None, False, upload, _upload.decode(row[1])))
            last = request._replace(after=key, behind=False, version=upload)
    return ListedPage(results, last if request.limit > 0 and _has_more(walk) else None)


def list_parts(
    state: BucketState, upload: Version, after_part: int = 0, limit: int = PAGE_RESULTS_MAX
) -> list[tuple[int, PartEntry]]:
    """Return the next parts of an upload, by their numbers."""
    first = part_row(upload, after_part + 1)
    rows = state.table.scan(first, after(parts_of(upload)), limit)
    return [(part_number_of_row(row), _part.decode(value)) for row, value in rows]


def _walk(state: BucketState, kind: bytes, request: ListRequest) -> _Walk:
    """Return a walk behind the end of the last page, over the keys with the prefix."""
    rows = of_bucket(kind, request.bucket)
    start = rows + escaped(request.prefix)
    if request.behind:
        start = max(start, after(rows + escaped(request.after)))
    elif request.version is not None:
        row = object_row if kind == OBJECT_ROWS else upload_row
        start = max(start, row(request.bucket, request.after, request.version) + b"\0")
    elif request.after:
        start = max(start, behind_key(of_key(kind, request.bucket, request.after)))
    return _Walk(state.table, start, after(rows + escaped(request.prefix)))


def _has_more(walk: _Walk) -> bool:
    """Return whether a row follows. The row may be a deletion, and the next page may be empty."""
    return walk.take() is not None
