"""Facts: what of a node must outlast its process (docs/log.md, Crash and restart). The state of a node is what its facts, in their order, come to."""

from typing import NamedTuple

from msgspec import Struct

from ares.model.configuration import Configuration, Successor
from ares.model.identity import ConfigurationId
from ares.model.log_messages import LogRecord, Records


class ChainsKnown(Struct, frozen=True, array_like=True, tag=144):
    """Configurations of the log that were introduced. ``finalized``: the index of one that this server was told is finalized (rule R21)."""

    chains: tuple[Configuration, ...]
    finalized: int = 0


class RecordsTaken(Struct, frozen=True, array_like=True, tag=145):
    """Records at the end of a stretch; no more than a message has, but for those that earlier releases stored."""

    configuration: ConfigurationId
    records: tuple[LogRecord, ...]


class ChainSealed(Struct, frozen=True, array_like=True, tag=146):
    """The stretch takes nothing any more."""

    configuration: ConfigurationId


class ChainPointed(Struct, frozen=True, array_like=True, tag=147):
    """The successor of a stretch, and whether it was collected."""

    configuration: ConfigurationId
    successor: Successor
    collected: bool


class LogTrimmed(Struct, frozen=True, array_like=True, tag=148):
    """Positions below ``upto`` are gone."""

    upto: int


class PieceFetched(Struct, frozen=True, array_like=True, tag=149):
    """Old records, from another node."""

    records: Records


class StretchStanding(Struct, frozen=True, array_like=True):
    """What is known of a stretch besides its records. ``length``: how far it had them; ``merged``: they are old records now.

    ``end``: also where the successor is a later one by now. ``committed``: so a start need not remember all that clients appended before.
    """

    configuration: ConfigurationId
    sealed: bool
    successor: Successor | None
    end: int | None
    collected: bool
    merged: bool
    length: int
    committed: int


class LogStanding(Struct, frozen=True, array_like=True, tag=150):
    """Everything that the facts before come to, but the records: with it, those in which nothing is left that anybody may read can be forgotten.

    ``finalized``: the highest index of a chain that is known to be.
    """

    chains: tuple[Configuration, ...]
    stretches: tuple[StretchStanding, ...]
    trimmed: int
    old_upto: int
    finalized: int = 0


class BatchPlace(NamedTuple):
    """Where a batch of facts begins in a journal: its place, byte and number."""

    place: int
    offset: int
    sequence: int


PIECES = b""
"""Names the source of old records, among the ids of chains."""

LogFact = ChainsKnown | RecordsTaken | ChainSealed | ChainPointed | LogTrimmed | PieceFetched
