"""Facts: the state of a node which must outlast the process.

The state of a node is the result of the node's facts, applied in order (docs/log.md, Crash and
restart).
"""

from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from ares.model.configuration import Configuration, Successor
from ares.model.identity import ConfigurationId
from ares.model.log_messages import LogRecord, Records


class ChainsKnown(Struct, frozen=True, array_like=True, tag=144):
    """Configurations of the log introduced to this server.

    ``finalized``: the index of a configuration which this server was told is finalized (rule R21).
    """

    chains: tuple[Configuration, ...]
    finalized: int = 0


class RecordsTaken(Struct, frozen=True, array_like=True, tag=145):
    """Records at the end of a segment.

    Not more than a message has, except for records stored by earlier releases. ``committed``: the
    position known to be committed by then.
    """

    configuration: ConfigurationId
    records: tuple[LogRecord, ...]
    committed: int = 0


class ChainSealed(Struct, frozen=True, array_like=True, tag=146):
    """The seal of a segment, which takes no more records."""

    configuration: ConfigurationId


class ChainPointed(Struct, frozen=True, array_like=True, tag=147):
    """The successor of a segment, and whether the segment was collected."""

    configuration: ConfigurationId
    successor: Successor
    collected: bool


class LogTrimmed(Struct, frozen=True, array_like=True, tag=148):
    """A trim: positions below ``upto`` are gone."""

    upto: int


class PieceFetched(Struct, frozen=True, array_like=True, tag=149):
    """Old records, fetched from another node."""

    records: Records


class ChainSegmentState(Struct, frozen=True, array_like=True):
    """The known facts of a segment without the records.

    ``length``: the end of the records. ``merged``: the records belong to the old part now. ``end``:
    kept when a later successor is known. ``committed``: kept because a start otherwise had to
    remember all appends of earlier clients.
    """

    configuration: ConfigurationId
    sealed: bool
    successor: Successor | None
    end: int | None
    collected: bool
    merged: bool
    length: int
    committed: int


class LogSnapshot(Struct, frozen=True, array_like=True, tag=150):
    """The result of all earlier facts, without the records.

    With a standing, a server can forget the facts without readable records. ``finalized``: the
    highest index of a chain known to be finalized.
    """

    chains: tuple[Configuration, ...]
    segments: tuple[ChainSegmentState, ...]
    trimmed: int
    old_upto: int
    finalized: int = 0


class BatchPlace(NamedTuple):
    """The beginning of a batch of facts in a journal: place, byte and number."""

    place: int
    offset: int
    sequence: int


PIECES = b""
"""Name of the source of old records, among the ids of chains."""


class LostRecords(NamedTuple):
    """The records of ``source`` in [first, upto), lost by damage to a journal.

    They had at most ``size`` bytes.
    """

    source: bytes
    first: int
    upto: int
    size: int


class FilledGap(NamedTuple):
    """A ``span`` of damaged bytes of a place, which a repair fills with other batches.

    ``marks``: source, first position and batch of each fact with records.
    """

    place: int
    span: range
    marks: list[tuple[bytes, int, BatchPlace]]


class EncodedTaken(Struct, frozen=True, array_like=True, tag=145):
    """A stored :class:`RecordsTaken` with undecoded records."""

    source: ConfigurationId
    records: list[Raw]


class EncodedPiece(Struct, frozen=True, array_like=True, tag=149):
    """A stored :class:`PieceFetched` with undecoded records."""

    records: list[Raw]

    @property
    def source(self) -> bytes:
        return PIECES


class _RecordBegin(Struct, frozen=True, array_like=True):
    first: int


decode_record = msgspec.msgpack.Decoder(LogRecord).decode
_decode_begin = msgspec.msgpack.Decoder(_RecordBegin).decode


def first_of_encoded(record: Raw) -> int:
    """Return the first position of an undecoded record."""
    return _decode_begin(record).first


EncodedFact = (
    ChainsKnown
    | EncodedTaken
    | ChainSealed
    | ChainPointed
    | LogTrimmed
    | EncodedPiece
    | LogSnapshot
)

LogFact = ChainsKnown | RecordsTaken | ChainSealed | ChainPointed | LogTrimmed | PieceFetched
