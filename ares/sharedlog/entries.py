"""Entries of a log as a node keeps them: records, and the rows of clients.

A record has the entries of a single append (ares/model/log_messages.py). The rows are a function of
the records (docs/log.md, Each append once).
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from ares.model.errors import BadInput
from ares.model.identity import ClientId
from ares.model.log_messages import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, RECORD_BYTES_MAX, LogRecord

TAKEN_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of records taken from a single message.

To verify and store more without a pause would take too long.
"""


def check_batch(entries: Sequence[bytes]) -> None:
    """Check ``entries`` for the limits of an append. Raises :class:`BadInput` beyond them."""
    if len(entries) == 1 and len(entries[0]) <= ENTRY_BYTES_MAX:
        return
    if not 1 <= len(entries) <= BATCH_ENTRIES_MAX:
        raise BadInput(
            f"an append has 1 to {BATCH_ENTRIES_MAX} entries, not {len(entries)}; nothing was sent"
        )
    longest, total = max(map(len, entries)), sum(map(len, entries))
    if longest > ENTRY_BYTES_MAX or total > RECORD_BYTES_MAX:
        raise BadInput(
            f"an entry of {longest} bytes, {total} bytes in one append: an entry has at most "
            f"{ENTRY_BYTES_MAX} bytes, an append at most {RECORD_BYTES_MAX}; nothing was sent"
        )


def first_piece(records: Sequence[LogRecord]) -> Sequence[LogRecord]:
    """Return the first of ``records``: TAKEN_BYTES_MAX, the most of a message, or one record."""
    size = 0
    for count, record in enumerate(records):
        size += record.bulk
        if count and size > TAKEN_BYTES_MAX:
            return records[:count]
    return records


def follow_on(first: int, records: Sequence[LogRecord]) -> bool:
    """Return whether the records are as a head made them, without gaps, from ``first`` on."""
    for record in records:
        if record.first != first or not record.is_sound:
            return False
        first = record.end
    return True


class Entries(Protocol):
    """Records in the order of their positions, without gaps except for dropped records.

    An implementation may keep the records elsewhere than in memory.
    """

    def put(self, record: LogRecord) -> None:
        """Add the next record."""

    def records(self, first: int, upto: int) -> Sequence[LogRecord]:
        """Return the records with entries in [first, upto).

        The caller bounds the segment, see :meth:`reach`.
        """

    def reach(self, first: int, upto: int, bytes_max: int) -> int:
        """Return the end of the first records from ``first`` on, with ``bytes_max`` bytes in all.

        The end is at most ``upto``. The first record is always included.
        """

    def record(self, position: int) -> LogRecord | None:
        """Return the record with this position, if a record has the position."""

    def cut(self, end: int) -> None:
        """Drop the records with a first position of ``end`` or more."""

    def drop(self, upto: int) -> None:
        """Drop the records with an end of at most ``upto``."""

    def adopt(self, later: "Entries", first: int, upto: int) -> None:
        """Take over the records of ``later`` in [first, upto)."""


_first = attrgetter("first")


def index_of(records: Sequence[LogRecord], position: int) -> int:
    """Return the index of the first record whose end is beyond ``position``."""
    at = position - records[0].first if records else 0
    if 0 <= at < len(records) and records[at].first == position:
        # as is usual where each record has one entry
        return at
    at = bisect_right(records, position, key=_first)
    return at - 1 if at and records[at - 1].end > position else at


class MemoryEntries:
    """Records in a list."""

    def __init__(self, source: bytes = b"") -> None:
        self._records: list[LogRecord] = []

    @property
    def count(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def put(self, record: LogRecord) -> None:
        self._records.append(record)

    def records(self, first: int, upto: int) -> Sequence[LogRecord]:
        if first >= upto:
            return ()
        begin = index_of(self._records, first)
        end = index_of(self._records, upto)
        return self._records[
            begin : end + 1 if end < len(self._records) and self._records[end].first < upto else end
        ]

    def record(self, position: int) -> LogRecord | None:
        at = index_of(self._records, position)
        return self._records[at] if at < len(self._records) else None

    def reach(self, first: int, upto: int, bytes_max: int) -> int:
        reached, size = first, 0
        begin = index_of(self._records, first)
        if (
            begin < len(self._records)
            and self._records[begin].first < upto <= self._records[begin].end
        ):
            return upto
        for index in range(begin, len(self._records)):
            record = self._records[index]
            size += record.bulk
            if record.first >= upto or (size > bytes_max and reached > first):
                break
            reached = record.end
        return min(reached, upto)

    def cut(self, end: int) -> None:
        del self._records[bisect_left(self._records, end, key=_first) :]

    def drop(self, upto: int) -> None:
        del self._records[: index_of(self._records, upto)]

    def adopt(self, later: Entries, first: int, upto: int) -> None:
        self._records.extend(later.records(first, upto))


class ClientRow:
    """The state of a client at a node: the ``last`` number, and the places of entries.

    ``places`` has (first, end) for the numbers from ``lowest`` on. Numbers below ``lowest`` have
    been answered. ``lowest`` moves when the record which says so is committed: hence a cut takes no
    record whose place was dropped.
    """

    __slots__ = ("last", "lowest", "places")

    def __init__(self, last: int = 0, lowest: int = 1) -> None:
        self.last = last
        self.lowest = lowest
        self.places: dict[int, tuple[int, int]] = {}

    @property
    def end(self) -> int:
        """Return the end of the last record."""
        return self.places[self.last][1]

    def forget_below(self, lowest: int) -> None:
        """Forget the places of numbers below ``lowest``, which have been answered."""
        self.lowest = max(self.lowest, lowest)
        while self.places and (number := next(iter(self.places))) < lowest:
            del self.places[number]


class ClientRows:
    """The rows of a segment of records, by client, in the order of their last records.

    With this order a trim looks only at the rows to be removed.
    """

    def __init__(self) -> None:
        self._rows: OrderedDict[ClientId, ClientRow] = OrderedDict()

    def get(self, client: ClientId) -> ClientRow | None:
        return self._rows.get(client)

    def under(self, names: Iterable[ClientId]) -> ClientRow | None:
        """Return the row of the client with these ``names``, or None.

        A client has a single row, except for records stored under another name by a server of an
        earlier release. In this case the result is the last row, with the places of all rows.
        """
        rows = [row for name in names if (row := self._rows.get(name)) is not None]
        if len(rows) < 2:
            return rows[0] if rows else None
        last = max(rows, key=attrgetter("last"))
        joined = ClientRow(last.last, last.lowest)
        for row in rows:
            joined.places |= row.places
        return joined

    def take(self, record: LogRecord) -> None:
        """Count in the next record."""
        row = self._rows.get(record.client)
        if row is None:
            row = self._rows[record.client] = ClientRow(lowest=record.lowest)
        self._rows.move_to_end(record.client)
        number, first = record.number, record.first
        row.last = number
        row.places[number] = (first, first + len(record.entries))

    def commit(self, record: LogRecord) -> None:
        """Forget the answered numbers of the client: the committed record stays."""
        row = self._rows.get(record.client)
        if row is not None and record.lowest > row.lowest:
            row.forget_below(record.lowest)

    def cut(self, end: int) -> None:
        """Take back the records from ``end`` on, which were never committed."""
        for client, row in list(self._rows.items()):
            row.places = {number: place for number, place in row.places.items() if place[0] < end}
            if row.places:
                row.last = max(row.places)
            else:
                del self._rows[client]
        self._rows = OrderedDict(sorted(self._rows.items(), key=lambda item: item[1].end))

    def trim(self, upto: int) -> None:
        """Remove each row with a trimmed last record."""
        while self._rows and next(iter(self._rows.values())).end <= upto:
            self._rows.popitem(last=False)

    def adopt(self, later: "ClientRows") -> None:
        """Append the rows of the following records."""
        for client, row in later._rows.items():
            own = self._rows.setdefault(client, ClientRow(lowest=row.lowest))
            self._rows.move_to_end(client)
            own.last = row.last
            own.places |= row.places
            own.forget_below(row.lowest)
