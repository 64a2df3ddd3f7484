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
    UPLOAD_ROWS,
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
        while self._rows and self._rows[-1][0] < self._next:
            self._rows.pop()
        if not self._rows:
            if self._next >= self._end:
                return None
            longer = min(2 * self._portion, _ROWS_AT_ONCE)
            self._portion = longer if 2 * self._taken >= self._portion else 1
            found = self._table.scan(self._next, self._end, self._portion)
            self._rows, self._taken = list(reversed(found)), 0
            if not found:
                self._next = self._end
                return None
        self._taken += 1
        row = self._rows.pop()
        self._next = row[0] + b"\0"
        return row

    def jump(self, to: bytes) -> None:
        """Go on at a row ahead."""
        self._next = to


def list_objects(state: BucketState, request: ListRequest) -> ListedPage:
    """Return the next objects and common prefixes, of newest versions that are no deletions."""
    results: list[ListedKey] = []
    walk, rows = _walk(state, OBJECT_ROWS, request), of_bucket(OBJECT_ROWS, request.bucket)
    last, is_behind, passed = request.after, request.behind, 0
    while (
        len(results) < request.limit
        and passed < PASSED_ROWS_MAX
        and (row := walk.take()) is not None
    ):
        key, entry = key_of_row(row[0], OBJECT_ROWS, request.bucket), _object.decode(row[1])
        common = "" if entry.marker else _common_prefix(request, key)
        last, is_behind = common or key, bool(common)
        if common:
            results.append(ListedKey(common))
            walk.jump(after(rows + escaped(common)))
            continue
        walk.jump(behind_key(of_key(OBJECT_ROWS, request.bucket, key)))
        if entry.marker:
            passed += 1
        else:
            results.append(ListedKey(key, entry, True))
    is_cut = passed == PASSED_ROWS_MAX or (request.limit > 0 and _has_more(walk))
    following = request._replace(after=last, behind=is_behind, version=None)
    return ListedPage(results, following if is_cut else None)


def list_versions(state: BucketState, request: ListRequest) -> ListedPage:
    """Return the next versions, deletions included, and common prefixes."""
    results: list[ListedKey] = []
    walk, last = _walk(state, OBJECT_ROWS, request), request
    before = request.after if request.version is not None else None
    while len(results) < request.limit and (row := walk.take()) is not None:
        key = key_of_row(row[0], OBJECT_ROWS, request.bucket)
        if common := _common_prefix(request, key):
            results.append(ListedKey(common))
            walk.jump(after(of_bucket(OBJECT_ROWS, request.bucket) + escaped(common)))
            last = request._replace(after=common, behind=True, version=None)
        else:
            entry = _object.decode(row[1])
            results.append(ListedKey(key, entry, key != before))
            last = request._replace(after=key, behind=False, version=entry.version)
            before = key
    return ListedPage(results, last if request.limit > 0 and _has_more(walk) else None)


def list_uploads(state: BucketState, request: ListRequest) -> ListedPage:
    """Return the next uploads under way, by key and then by their beginning."""
    results: list[ListedKey] = []
    walk, last = _walk(state, UPLOAD_ROWS, request), request
    while len(results) < request.limit and (row := walk.take()) is not None:
        key = key_of_row(row[0], UPLOAD_ROWS, request.bucket)
        if common := _common_prefix(request, key):
            results.append(ListedKey(common))
            walk.jump(after(of_bucket(UPLOAD_ROWS, request.bucket) + escaped(common)))
            last = request._replace(after=common, behind=True, version=None)
        else:
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


def _common_prefix(request: ListRequest, key: str) -> str:
    """Return the key up to the first delimiter behind the prefix, or an empty string."""
    at = key.find(request.delimiter, len(request.prefix)) if request.delimiter else -1
    return "" if at < 0 else key[: at + len(request.delimiter)]


def _has_more(walk: _Walk) -> bool:
    """Return whether a row follows. The row may be a deletion, and the next page may be empty."""
    return walk.take() is not None
