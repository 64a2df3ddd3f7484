"""Messages of the shared log, between clients and nodes and among nodes, and their bytes (docs/log.md, Messages).

Configurations of a log are introduced, read, told and collected with the messages that every configuration has (ares/model/messages.py). Every
number that comes from a peer is bounded while it is decoded; nothing of a bad batch is used.
"""

import enum
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ares.chain.entries import ENTRIES_MAX, Batch, Entry, LogRecord, Number, Position
from ares.model.codec import BATCH_MESSAGES_MAX, HEADER_BYTES_MAX, VERSION
from ares.model.configuration import SERVERS_MAX, Configuration, Successor
from ares.model.errors import BadMessage
from ares.model.identity import ClientId, ConfigurationId, ServerId
from ares.model.messages import Ack, CollectConfig, Describe, Description, Introduce, Message, ReadConfig, Refused, WriteConfig

PIECE_BYTES = 1024 * 1024
"""Of the records in one message, unless a single one is larger."""

RECORDS_MAX = 4096
ROW_PLACES_MAX = 65_536
RANGE_MAX = 65_536
"""Positions in one read."""

FOLLOW_S_MAX = 60.0
"""How long a node holds a read that waits for entries, at most."""

Records = Annotated[tuple[LogRecord, ...], Meta(max_length=RECORDS_MAX)]
Servers = Annotated[tuple[ServerId, ...], Meta(max_length=2 * SERVERS_MAX)]
Length = Annotated[int, Meta(ge=0, le=RANGE_MAX)]


class OfChain(Message, frozen=True):
    """Base of what is said about one configuration of a log."""

    configuration: ConfigurationId


# -- from a client ------------------------------------------------------------------------------------------------------


class Append(OfChain, frozen=True, tag=96):
    """To the head. ``lowest``: the client's lowest number without an answer. ``since``: a position known to be committed before that was first sent.

    ``at``: take it only if its first entry gets exactly this position.
    """

    client: ClientId
    number: Number
    lowest: Number
    since: Position
    entries: Batch
    at: Position | None = None


class ReadLog(OfChain, frozen=True, tag=97):
    """Committed entries from ``first`` on, at most ``count`` and about ``bytes_max`` bytes; ``uncommitted``: whatever the node has.

    ``wait_s``: hold the request so long if there is nothing yet (follow).
    """

    first: Position
    count: Length = 1
    bytes_max: Annotated[int, Meta(ge=0, le=HEADER_BYTES_MAX)] = PIECE_BYTES
    uncommitted: bool = False
    wait_s: Annotated[float, Meta(ge=0, le=FOLLOW_S_MAX)] = 0.0


class Look(OfChain, frozen=True, tag=98):
    """How far are you? From a client, as evidence; from a node to the tail, for a dirty read."""


class Trim(OfChain, frozen=True, tag=99):
    """To the head of the last chain: positions below ``upto`` may go."""

    upto: Position


class Seal(OfChain, frozen=True, tag=100):
    """Take nothing any more, for ever, and say how far you are."""


class Stand(OfChain, frozen=True, tag=101):
    """Do you have everything below the start of this chain?"""


# -- from node to node; LookRow and Fetch carry the successor (R1) ------------------------------------------------------


class Forward(OfChain, frozen=True, tag=102):
    """To the next node of the chain: records from ``first`` on; none: tell me how far you are. ``trimmed``: what is trimmed durably here."""

    first: Position
    records: Records
    trimmed: Position


class Committed(OfChain, frozen=True, tag=103):
    """To the node before: ``committed`` at every node, durable here up to ``length``. ``missing``: send again from there.

    ``trimmed``: durably, here and at every node behind.
    """

    committed: Position
    length: Position
    trimmed: Position
    missing: bool = False


class LookRow(OfChain, frozen=True, tag=104):
    """To a node of an earlier chain: the row of a client there."""

    client: ClientId
    since: Position
    successor: Successor


class Fetch(OfChain, frozen=True, tag=105):
    """Records from position ``first`` on. ``configuration``: in whose stretch that is."""

    first: Position
    successor: Successor | None


# -- replies ------------------------------------------------------------------------------------------------------------


class AppendOutcome(enum.IntEnum):
    DONE = 1  # committed, the first entry at ``position``
    GAP = 2  # a lower number is missing: send from ``position`` on
    SEALED = 3  # this chain takes nothing any more
    UNCERTAIN = 4  # what would tell whether it was taken before is trimmed; ``position`` is committed
    TAKEN = 5  # a conditional append: the position is taken; the log is committed up to ``position``
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


class Fetched(Message, frozen=True, tag=119):
    """Records that cover ``first`` and what follows; none: below ``trimmed`` it is gone, otherwise not here."""

    first: Position
    records: Records
    trimmed: Position


ChainRequest = Append | ReadLog | Look | Trim | Seal | Stand | Forward | Committed | LookRow | Fetch
ChainReply = Appended | LogEntries | LookDone | TrimDone | SealDone | Stood | RowFound | Fetched
LogRequest = ChainRequest | Introduce | ReadConfig | WriteConfig | CollectConfig | Describe
LogReply = ChainReply | Ack | Refused | Description
LogMessage = LogRequest | LogReply

_PREFIX = bytes([VERSION])
_encoder = msgspec.msgpack.Encoder()
_bound = Meta(max_length=BATCH_MESSAGES_MAX)
_of_replies: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Annotated[list[LogReply], _bound])
_of_all: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Annotated[list[LogMessage], _bound])


def encode_log(messages: Sequence[LogMessage]) -> list[bytes]:
    """The frames of one batch."""
    return [_PREFIX + _encoder.encode(messages)]


def decode_log(frames: Sequence[bytes], *, replies_only: bool = False) -> list[LogMessage]:
    """The messages of one batch; to a node, requests and replies of other nodes; to a client, ``replies_only``. Raises :class:`BadMessage`."""
    if len(frames) != 1 or frames[0][:1] != _PREFIX or len(frames[0]) > HEADER_BYTES_MAX:
        raise BadMessage(f"a batch of a log is one frame of format {VERSION} and of at most {HEADER_BYTES_MAX} bytes")
    try:
        messages: list[LogMessage] = (_of_replies if replies_only else _of_all).decode(memoryview(frames[0])[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"not a batch of messages of a log: {str(error)[:1000]}") from error
    return messages


def introduction(configuration: Configuration, earlier: Sequence[Configuration]) -> Introduce:
    """A chain, told together with those before it."""
    return Introduce(0, configuration, tuple(earlier))  # type: ignore[arg-type]
