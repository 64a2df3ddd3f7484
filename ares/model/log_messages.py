"""Messages of the shared log, among clients and nodes, and their records.

See docs/log.md, Messages. A record holds the entries of a single append: the record is stored,
forwarded, fetched, cut and trimmed as a whole, hence `end` never falls inside an append. Every
number from a peer is bounded while decoding.
"""

import enum
from struct import Struct as Layout
from struct import pack
from typing import Annotated

from msgspec import Meta, Struct
from xxhash import xxh3_64_intdigest

from ares.model.configuration import SERVERS_MAX, Successor
from ares.model.identity import ClientId, ConfigurationId, ServerId
from ares.model.message import Message
from ares.model.numbers import Number, Position, Word
from ares.model.work import CONFIGURATION_WORK, LISTED_WORK, entries_bulk

ENTRY_BYTES_MAX = 1024 * 1024
BATCH_ENTRIES_MAX = 4096
RECORD_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the entries of an append; the number of entries is bounded by BATCH_ENTRIES_MAX."""

SECRET_BYTES = 16
"""Random bytes that a client keeps to itself, besides its id."""

Entry = Annotated[bytes, Meta(max_length=ENTRY_BYTES_MAX)]
Batch = Annotated[tuple[Entry, ...], Meta(min_length=1, max_length=BATCH_ENTRIES_MAX)]


class LogRecord(Struct, frozen=True, array_like=True, gc=False):
    """An append in its place: ``entries`` from position ``first`` on.

    ``number``: the client's number of the append. ``lowest``: the client's lowest number without an
    answer. ``seal``: a checksum over all fields, made by the head; every node verifies the seal
    before it takes the record.
    """

    first: Position
    client: ClientId
    number: Number
    lowest: Number
    entries: Batch
    seal: Word = 0

    @property
    def end(self) -> int:
        """Return the position after the last entry."""
        return self.first + len(self.entries)

    @property
    def size(self) -> int:
        """Return the bytes of data."""
        return sum(map(len, self.entries))

    @property
    def bulk(self) -> int:
        """Return the bytes that the record counts where work and memory are bounded."""
        return entries_bulk(self.entries)

    @property
    def is_sound(self) -> bool:
        """Return whether the record is as made by the head."""
        return self.seal == seal_of(self.first, self.client, self.number, self.lowest, self.entries)


_names = Layout("<QQQQQ").pack


def seal_of(first: int, client: int, number: int, lowest: int, entries: tuple[bytes, ...]) -> int:
    """Return the seal, 64 bits (XXH3), of a record's fields and of the lengths of its entries."""
    if len(entries) == 1:
        return xxh3_64_intdigest(
            entries[0], xxh3_64_intdigest(_names(first, client, number, lowest, len(entries[0])))
        )
    lengths = pack(f"<{len(entries)}Q", *map(len, entries))
    return xxh3_64_intdigest(
        b"".join(entries), xxh3_64_intdigest(_names(first, client, number, lowest, 0) + lengths)
    )


LOG_PIECE_BYTES = 1024 * 1024
"""Bytes of the records in a message, unless a single record is larger."""

RECORDS_MAX = 4096
READ_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of the entries in an answer."""

ROW_PLACES_MAX = 65_536
ANSWER_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of the records read by a node for an answer, unless a single record is larger.

Making an answer takes milliseconds.
"""

RANGE_MAX = 65_536
"""Positions in a read."""

FOLLOW_S_MAX = 60.0
"""Longest time that a node holds a read which waits for entries."""

EACH_MAX = 64
"""Positions that a request reads individually."""

Records = Annotated[tuple[LogRecord, ...], Meta(max_length=RECORDS_MAX)]
Servers = Annotated[tuple[ServerId, ...], Meta(max_length=2 * SERVERS_MAX)]
Length = Annotated[int, Meta(ge=0, le=RANGE_MAX)]


class OfChain(Message, frozen=True):
    """Base of messages about a configuration of a log."""

    configuration: ConfigurationId


# -- from a client ---------------------------------------------------------------------------------


class Append(OfChain, frozen=True, tag=96):
    """An append, to the head.

    ``lowest``: the client's lowest number without an answer. ``since``: a position known to be
    committed before the append with that number was first sent. ``at``: take the append only if its
    first entry gets exactly this position. ``secret``: random bytes, the same in all appends under
    one id; no server stores or shows them.
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


class AwaitAppend(OfChain, frozen=True, tag=109):
    """A request to the tail: tell the client when its append of this number is committed.

    The answer is :class:`Appended` with DONE, or none: the head answers every append. ``client``
    and ``secret``: as in the append.
    """

    client: ClientId
    number: Number
    secret: Annotated[bytes, Meta(max_length=SECRET_BYTES)] = b""


class ReadLog(OfChain, frozen=True, tag=97):
    """A request for at most ``count`` committed entries from ``first`` on.

    ``bytes_max``: about the size of the answer. ``uncommitted``: read uncommitted entries of the
    node, too. ``wait_s``: seconds to hold the request while no entry is present (follow).
    """

    first: Position
    count: Length = 1
    bytes_max: Annotated[int, Meta(ge=0, le=READ_BYTES_MAX)] = LOG_PIECE_BYTES
    uncommitted: bool = False
    wait_s: Annotated[float, Meta(ge=0, le=FOLLOW_S_MAX)] = 0.0


class ReadEach(OfChain, frozen=True, tag=106):
    """A request for the committed entry at each of the positions.

    ``uncommitted``: read uncommitted entries of the node, too.
    """

    positions: Annotated[tuple[Position, ...], Meta(min_length=1, max_length=EACH_MAX)]
    uncommitted: bool = False

    @property
    def bulk(self) -> int:
        return LISTED_WORK * len(self.positions)


class Look(OfChain, frozen=True, tag=98):
    """A request for a node's state.

    A client takes the answer as evidence; a node asks the tail for a dirty read.
    """


class Trim(OfChain, frozen=True, tag=99):
    """A request to the head of the last chain: drop positions below ``upto``."""

    upto: Position


class Seal(OfChain, frozen=True, tag=100):
    """A request to take no record any more, for ever, and to report the state."""


class Stand(OfChain, frozen=True, tag=101):
    """A question: does the node have every entry below the start of this chain?"""


# -- from node to node; ``server`` is the sender; LookRow and Fetch carry the successor (R1)
# ------------


class Forward(OfChain, frozen=True, tag=102):
    """Records from ``first`` on, to the next node of the chain.

    Without records, a request for the next node's state. ``trimmed``: the position trimmed durably
    at the sender. In a chain that commits side by side: records are durable up to ``ahead`` at the
    sender and at every node before the sender; ``informed``: the tail never committed more;
    ``life``: of the sender; ``to_life``: of the receiver, as known to the sender.
    """

    server: ServerId
    first: Position
    records: Records
    trimmed: Position
    ahead: Position = 0
    informed: bool = False
    life: Position = 0
    to_life: Position = 0

    @property
    def bulk(self) -> int:
        return sum([record.bulk for record in self.records])


class Committed(OfChain, frozen=True, tag=103):
    """A report to the previous node: ``committed`` at every node, present here up to ``length``.

    ``missing``: send again from ``length`` on. ``trimmed``: trimmed durably, here and at every node
    behind. ``life``: of the sender. Records below ``length`` are durable, except in a chain that
    commits side by side.
    """

    server: ServerId
    committed: Position
    length: Position
    trimmed: Position
    missing: bool = False
    life: Position = 0


class TakeBack(OfChain, frozen=True, tag=107):
    """A request of a restarted node to the next node: give back the records from ``first`` on.

    ``life``: of the sender.
    """

    server: ServerId
    life: Position
    first: Position


class GivenBack(OfChain, frozen=True, tag=108):
    """Records for a restarted node: some of the records of the next node, which end at ``length``.

    ``to_life``: the life of the receiver that asked; ``life``: of the sender. A ``sealed`` sender
    gives no records.
    """

    server: ServerId
    to_life: Position
    life: Position
    records: Records
    length: Position
    sealed: bool = False

    @property
    def bulk(self) -> int:
        return sum([record.bulk for record in self.records])


class LookRow(OfChain, frozen=True, tag=104):
    """A request to a node of an earlier chain: the row of a client in that chain."""

    client: ClientId
    since: Position
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


class Fetch(OfChain, frozen=True, tag=105):
    """A request for records from position ``first`` on, in the segment of ``configuration``."""

    first: Position
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return 0 if self.successor is None else CONFIGURATION_WORK


# -- replies ---------------------------------------------------------------------------------------


class AppendOutcome(enum.IntEnum):
    """The result of an append at the head."""

    DONE = 1  # committed, the first entry at ``position``
    GAP = 2  # a lower number is missing: send from ``position`` on
    SEALED = 3  # this chain takes no appends any more
    UNCERTAIN = 4  # the evidence of an earlier append is trimmed; ``position`` is committed
    TAKEN = (
        5  # a conditional append: the position is taken; the log is committed up to ``position``
    )
    BEHIND = (
        6  # a conditional append: this chain is shorter than the position, look for a newer chain
    )


class Appended(Message, frozen=True, tag=112):
    """The answer to :class:`Append`."""

    number: Number
    outcome: AppendOutcome
    position: Position
    successor: Successor | None


class LogEntries(Message, frozen=True, tag=113):
    """``entries`` from ``first`` on, or the reason why the node has no entries.

    Without entries: entries below ``trimmed`` are gone; entries held by the servers ``elsewhere``
    are not here; otherwise the node knows no entry. ``committed``: the node's knowledge of this
    chain's commit, a hint. At the end of a chain ``successor`` leads on.
    """

    first: Position
    entries: Annotated[tuple[Entry, ...], Meta(max_length=max(RANGE_MAX, BATCH_ENTRIES_MAX))]
    committed: Position
    trimmed: Position
    elsewhere: Servers
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return entries_bulk(self.entries)


class EachRead(Message, frozen=True, tag=120):
    """The entry at each position asked for, or None, which is no statement about the position."""

    entries: Annotated[tuple[Entry | None, ...], Meta(max_length=EACH_MAX)]
    successor: Successor | None

    @property
    def bulk(self) -> int:
        return entries_bulk([entry for entry in self.entries if entry])


class LookDone(Message, frozen=True, tag=114):
    """A node's state, evidence only if the node is not ``sealed`` and knows no successor.

    ``length``: no entry at or beyond this position was committed when the node answered.
    """

    sealed: bool
    length: Position
    committed: Position
    successor: Successor | None


class TrimDone(Message, frozen=True, tag=115):
    """The answer to :class:`Trim`.

    ``done``: every node has trimmed up to the position. Otherwise the head's known commit is below.
    """

    done: bool
    committed: Position
    successor: Successor | None


class SealDone(Message, frozen=True, tag=116):
    """The answer to :class:`Seal`: the node is sealed, and has the segment up to ``length``."""

    length: Position
    successor: Successor | None


class Stood(Message, frozen=True, tag=117):
    """The answer to :class:`Stand`.

    ``complete``: every entry below the chain's start is here, durably. ``upto``: the end of the
    entries present without a gap.
    """

    complete: bool
    upto: Position
    successor: Successor | None


class ChainReport(Struct, frozen=True, array_like=True):
    """A server's state of a chain.

    The chain ends at ``length``, and is committed up to ``committed``, by the server's knowledge.
    ``sealed``: the chain takes no appends. Of the whole log: entries below ``trimmed`` are gone;
    entries below ``fetched`` are here. ``returning``: the server restarted, and waits for the next
    server of the chain to give back lost records.
    """

    sealed: bool
    length: Position
    committed: Position
    trimmed: Position
    fetched: Position
    returning: bool = False


class RowPlace(Struct, frozen=True, array_like=True, gc=False):
    """The positions of a client's append."""

    number: Number
    first: Position
    end: Position


class RowFound(Message, frozen=True, tag=118):
    """The answer to :class:`LookRow`.

    ``holds``: the node knows the successor and has the whole segment; only such an answer counts.
    ``last``: 0 without a row. ``whole``: the answer covers every earlier chain, too. ``uncertain``:
    the row may have been trimmed.
    """

    holds: bool
    last: Position
    places: Annotated[tuple[RowPlace, ...], Meta(max_length=ROW_PLACES_MAX)]
    whole: bool
    uncertain: bool
    trimmed: Position

    @property
    def bulk(self) -> int:
        return LISTED_WORK * len(self.places)


class Fetched(Message, frozen=True, tag=119):
    """Records that cover ``first`` and following positions.

    Without records: below ``trimmed`` they are gone, otherwise not here.
    """

    first: Position
    records: Records
    trimmed: Position

    @property
    def bulk(self) -> int:
        return sum([record.bulk for record in self.records])


NeighbourMessage = Forward | Committed | TakeBack | GivenBack
"""Messages between neighbours in a chain; each names its sender."""

ClientRequest = Append | AwaitAppend | ReadLog | ReadEach | Look | Trim | Seal | Stand
ChainRequest = ClientRequest | NeighbourMessage | LookRow | Fetch
ChainReply = (
    Appended | LogEntries | EachRead | LookDone | TrimDone | SealDone | Stood | RowFound | Fetched
)
