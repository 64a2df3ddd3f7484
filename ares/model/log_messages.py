"""Messages of the shared log, between clients and nodes and among nodes (docs/log.md, Messages), and the records that they carry.

A record is what one append brought: it is stored, forwarded, fetched, cut and trimmed as a whole, so `end` never falls inside an append. Every number
that comes from a peer is bounded while it is decoded.
"""

import enum
from struct import Struct as Layout
from struct import pack
from typing import Annotated

from msgspec import Meta, Struct
from xxhash import xxh3_64_intdigest

from ares.model.configuration import POSITION_MAX, SERVERS_MAX, Successor
from ares.model.identity import ClientId, ConfigurationId, ServerId
from ares.model.message import Message
from ares.model.work import CONFIGURATION_WORK, LISTED_WORK, entries_bulk

ENTRY_BYTES_MAX = 1024 * 1024
ENTRIES_MAX = 4096
RECORD_BYTES_MAX = 4 * 1024 * 1024
"""Of the entries of one append; with ENTRIES_MAX, what one append may bring."""

SECRET_BYTES = 16
"""Random bytes that a client keeps to itself, besides its id."""

Position = Annotated[int, Meta(ge=0, le=POSITION_MAX)]
Number = Annotated[int, Meta(ge=1, le=POSITION_MAX)]
Entry = Annotated[bytes, Meta(max_length=ENTRY_BYTES_MAX)]
Batch = Annotated[tuple[Entry, ...], Meta(min_length=1, max_length=ENTRIES_MAX)]


class LogRecord(Struct, frozen=True, array_like=True, gc=False):
    """One append in its place: ``entries`` from position ``first`` on, the client's ``number`` for it, and its ``lowest`` number without an answer.

    ``seal``: a checksum over all of it, made by the head; every node that takes the record verifies it.
    """

    first: Position
    client: ClientId
    number: Number
    lowest: Number
    entries: Batch
    seal: int = 0

    @property
    def end(self) -> int:
        """The position after its last entry."""
        return self.first + len(self.entries)

    @property
    def size(self) -> int:
        """Bytes of data."""
        return sum(map(len, self.entries))

    @property
    def bulk(self) -> int:
        """Bytes that the record counts where work and memory are bounded."""
        return entries_bulk(self.entries)

    @property
    def is_sound(self) -> bool:
        """Whether the head made it so."""
        return self.seal == seal_of(self.first, self.client, self.number, self.lowest, self.entries)


_names = Layout("<QQQQQ").pack


def seal_of(first: int, client: int, number: int, lowest: int, entries: tuple[bytes, ...]) -> int:
    """64 bits (XXH3) of the fields of a record, the lengths of its entries included."""
    if len(entries) == 1:
        return xxh3_64_intdigest(
            entries[0], xxh3_64_intdigest(_names(first, client, number, lowest, len(entries[0])))
        )
    lengths = pack(f"<{len(entries)}Q", *map(len, entries))
    return xxh3_64_intdigest(
        b"".join(entries), xxh3_64_intdigest(_names(first, client, number, lowest, 0) + lengths)
    )


PIECE_BYTES = 1024 * 1024
"""Of the records in one message, unless a single one is larger."""

RECORDS_MAX = 4096
READ_BYTES_MAX = 16 * 1024 * 1024
"""Of the entries in one answer."""

ROW_PLACES_MAX = 65_536
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Of the records that a node looks at for one answer, unless a single one is larger: making one takes milliseconds."""

RANGE_MAX = 65_536
"""Positions in one read."""

FOLLOW_S_MAX = 60.0
"""How long a node holds a read that waits for entries, at most."""

EACH_MAX = 64
"""Positions that are read one by one with one request."""

Records = Annotated[tuple[LogRecord, ...], Meta(max_length=RECORDS_MAX)]
Servers = Annotated[tuple[ServerId, ...], Meta(max_length=2 * SERVERS_MAX)]
Length = Annotated[int, Meta(ge=0, le=RANGE_MAX)]


class OfChain(Message, frozen=True):
    """Base of what is said about one configuration of a log."""

    configuration: ConfigurationId


# -- from a client ------------------------------------------------------------------------------------------------------


class Append(OfChain, frozen=True, tag=96):
    """To the head. ``lowest``: the client's lowest number without an answer. ``since``: a position known to be committed before that was first sent.

    ``at``: take it only if its first entry gets exactly this position. ``secret``: random bytes,
    the same in all appends under one id, which no server stores or shows.
    """

    client: ClientId
    number: Number
    lowest: Number
    since: Position
    entries: Batch
    at: Position | None = None
    secret: Annotated[bytes, Meta(max_length=SECRET_BYTES)] = b""

    @property
    def bulk(self) -> int:
        return entries_bulk(self.entries)


class ReadLog(OfChain, frozen=True, tag=97):
    """Committed entries from ``first`` on, at most ``count`` and about ``bytes_max`` bytes; ``uncommitted``: whatever the node has.

    ``wait_s``: hold the request so long if there is nothing yet (follow).
    """

    first: Position
    count: Length = 1
    bytes_max: Annotated[int, Meta(ge=0, le=READ_BYTES_MAX)] = PIECE_BYTES
    uncommitted: bool = False
    wait_s: Annotated[float, Meta(ge=0, le=FOLLOW_S_MAX)] = 0.0


class ReadEach(OfChain, frozen=True, tag=106):
    """The committed entry at each of the positions; ``uncommitted``: whatever the node has."""

    positions: Annotated[tuple[Position, ...], Meta(min_length=1, max_length=EACH_MAX)]
    uncommitted: bool = False

    @property
    def bulk(self) -> int:
        return LISTED_WORK * len(self.positions)


class Look(OfChain, frozen=True, tag=98):
    """How far are you? From a client, as evidence; from a node to the tail, for a dirty read."""


class Trim(OfChain, frozen=True, tag=99):
    """To the head of the last chain: positions below ``upto`` may go."""

    upto: Position


class Seal(OfChain, frozen=True, tag=100):
    """Take nothing any more, for ever, and say how far you are."""


class Stand(OfChain, frozen=True, tag=101):
    """Do you have everything below the start of this chain?"""


# -- from node to node; ``server`` is the one that sends it; LookRow and Fetch carry the successor (R1) -----------------


class Forward(OfChain, frozen=True, tag=102):
    """To the next node of the chain: records from ``first`` on; none: tell me how far you are. ``trimmed``: what is trimmed durably here."""

    server: ServerId
    first: Position
    records: Records
    trimmed: Position

    @property
    def bulk(self) -> int:
        return sum([record.bulk for record in self.records])


class Committed(OfChain, frozen=True, tag=103):
    """To the node before: ``committed`` at every node, durable here up to ``length``. ``missing``: send again from there.

    ``trimmed``: durably, here and at every node behind.
    """

    server: ServerId
    committed: Position
    length: Position
    trimmed: Position
    missing: bool = False


class LookRow(OfChain, frozen=True, tag=104):
    """To a node of an earlier chain: the row of a client there."""

    client: ClientId
    since: Position
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


class Fetch(OfChain, frozen=True, tag=105):
    """Records from position ``first`` on. ``configuration``: in whose stretch that is."""

    first: Position
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


# -- replies ------------------------------------------------------------------------------------------------------------


class AppendOutcome(enum.IntEnum):
    DONE = 1  # committed, the first entry at ``position``
    GAP = 2  # a lower number is missing: send from ``position`` on
    SEALED = 3  # this chain takes nothing any more
    UNCERTAIN = (
        4  # what would tell whether it was taken before is trimmed; ``position`` is committed
    )
    TAKEN = (
        5  # a conditional append: the position is taken; the log is committed up to ``position``
    )
    BEHIND = 6  # a conditional append: this chain is shorter than that, look for a newer one


class Appended(Message, frozen=True, tag=112):
    number: Number
    outcome: AppendOutcome
    position: Position
    successor: Successor | None


class LogEntries(Message, frozen=True, tag=113):
    """``entries`` from ``first`` on. Without any: what is below ``trimmed`` is gone; what is at ``elsewhere`` is not here; else nothing is known.

    ``committed``: how far the node knows this chain to be, a hint. At the end of a chain ``successor`` says where to go on.
    """

    first: Position
    entries: Annotated[tuple[Entry, ...], Meta(max_length=max(RANGE_MAX, ENTRIES_MAX))]
    committed: Position
    trimmed: Position
    elsewhere: Servers
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return entries_bulk(self.entries)


class EachRead(Message, frozen=True, tag=120):
    """The entry at each position that was asked for, or None, which says nothing about the position."""

    entries: Annotated[tuple[Entry | None, ...], Meta(max_length=EACH_MAX)]
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return entries_bulk([entry for entry in self.entries if entry])


class LookDone(Message, frozen=True, tag=114):
    """One look at a node's state. It is evidence only if the node is neither ``sealed`` nor knows a successor."""

    sealed: bool
    length: Position
    committed: Position
    successor: Successor | None


class TrimDone(Message, frozen=True, tag=115):
    """``done``: every node has trimmed up to there. Otherwise the head does not know so much to be committed."""

    done: bool
    committed: Position
    successor: Successor | None


class SealDone(Message, frozen=True, tag=116):
    length: Position
    successor: Successor | None


class Stood(Message, frozen=True, tag=117):
    """``complete``: everything below the chain's start is here, durably. ``upto``: how far it is here without a gap."""

    complete: bool
    upto: Position
    successor: Successor | None


class RowPlace(Struct, frozen=True, array_like=True, gc=False):
    """Where a number of a client is."""

    number: Number
    first: Position
    end: Position


class RowFound(Message, frozen=True, tag=118):
    """``holds``: the node knows the successor and has all of the stretch, so this answers. ``last``: 0 without a row.

    ``whole``: it answers for everything below, too. ``uncertain``: the row may have been trimmed.
    """

    holds: bool
    last: Annotated[int, Meta(ge=0)]
    places: Annotated[tuple[RowPlace, ...], Meta(max_length=ROW_PLACES_MAX)]
    whole: bool
    uncertain: bool
    trimmed: Position

    @property
    def bulk(self) -> int:
        return LISTED_WORK * len(self.places)


class Fetched(Message, frozen=True, tag=119):
    """Records that cover ``first`` and what follows; none: below ``trimmed`` it is gone, otherwise not here."""

    first: Position
    records: Records
    trimmed: Position

    @property
    def bulk(self) -> int:
        return sum([record.bulk for record in self.records])


ChainRequest = (
    Append | ReadLog | ReadEach | Look | Trim | Seal | Stand | Forward | Committed | LookRow | Fetch
)
ChainReply = (
    Appended | LogEntries | EachRead | LookDone | TrimDone | SealDone | Stood | RowFound | Fetched
)
