"""Handovers: the counts of the leading member's autopilot, told to the other members.

A new leader continues these counts; otherwise a leader that changes every minute would never find a
server gone for longer. The new leader does not believe the counts: a handover counts for a server
that the new leader has not heard itself, never for as long as needed
(:class:`ares.autopilot.judge.Watch`), and an old handover is forgotten. A handover has durations
and no times: clocks of members need not agree.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from ares.model.identity import ConfigurationId, ServerId

Member = tuple[ServerId, str]
"""A server and its identity."""

HANDOVER_ROWS_MAX = 24
"""Rows of each kind in a handover; the longest durations are told."""

Key = TypeVar("Key")


class ServerFor(Struct, frozen=True, array_like=True):
    """A server, and the seconds of its absence or presence under this identity."""

    server: ServerId
    identity: str
    for_s: float


class PendingFor(Struct, frozen=True, array_like=True):
    """A decided configuration, and the seconds for which it has not been finalized."""

    configuration: ConfigurationId
    for_s: float


class _Handover(Struct, frozen=True, array_like=True):
    absent: Annotated[tuple[ServerFor, ...], Meta(max_length=HANDOVER_ROWS_MAX)] = ()
    present: Annotated[tuple[ServerFor, ...], Meta(max_length=HANDOVER_ROWS_MAX)] = ()
    pending: Annotated[tuple[PendingFor, ...], Meta(max_length=HANDOVER_ROWS_MAX)] = ()


_decoder = msgspec.msgpack.Decoder(_Handover)


class WatchCounts(Struct, frozen=True):
    """Counts in seconds: of absent members, of answering members, and of pending moves."""

    absent: Mapping[Member, float] = {}
    present: Mapping[Member, float] = {}
    pending: Mapping[ConfigurationId, float] = {}


def encode(counts: WatchCounts) -> bytes:
    """Return the note with the ``counts`` to hand over."""
    return msgspec.msgpack.encode(
        _Handover(
            tuple(ServerFor(*member, for_s) for member, for_s in _longest(counts.absent)),
            tuple(ServerFor(*member, for_s) for member, for_s in _longest(counts.present)),
            tuple(PendingFor(id, for_s) for id, for_s in _longest(counts.pending)),
        )
    )


def merge(notes: Sequence[tuple[bytes, float]], gap_s: float, old_s: float) -> WatchCounts:
    """Return the rows of the newest note, each with the longest duration of any note.

    Args:
        notes: Each with the seconds since it came.
        gap_s: The most that counts of these seconds, during which no member looked.
        old_s: The age from which on a note is forgotten.
    """
    told = [(_decoded(note), age_s) for note, age_s in notes if 0 <= age_s <= old_s]
    ordered = [
        (handover, min(age_s, gap_s))
        for handover, age_s in sorted(told, key=lambda pair: pair[1])
        if handover is not None
    ]
    absent = [
        {(row.server, row.identity): row.for_s + more_s for row in handover.absent}
        for handover, more_s in ordered
    ]
    present = [
        {(row.server, row.identity): row.for_s + more_s for row in handover.present}
        for handover, more_s in ordered
    ]
    pending = [
        {row.configuration: row.for_s + more_s for row in handover.pending}
        for handover, more_s in ordered
    ]
    return WatchCounts(_newest(absent), _newest(present), _newest(pending))


def _longest(durations: Mapping[Key, float]) -> list[tuple[Key, float]]:
    ranked = sorted(durations.items(), key=lambda pair: pair[1], reverse=True)
    return ranked[:HANDOVER_ROWS_MAX]


def _newest(told: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    return {key: max(each.get(key, 0.0) for each in told) for key in told[0]} if told else {}


def _decoded(note: bytes) -> _Handover | None:
    try:
        return _decoder.decode(note)
    except msgspec.MsgspecError:  # a note of another release
        return None
