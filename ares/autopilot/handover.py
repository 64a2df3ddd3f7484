"""Handovers: the counts of the leading member's autopilot, told to the other members.

A new leader continues these counts; otherwise a leader that changes every minute would never find a
server gone for longer. The new leader does not believe the counts: a handover counts for a server
that the new leader has not heard itself, never for as long as needed
(:class:`ares.autopilot.judge.Watch`), and an old handover is forgotten. A handover has durations
and no times: clocks of members need not agree.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from ares.consensus.port import Notes
from ares.model.identity import ConfigurationId, ServerId

Member = tuple[ServerId, str]
"""A server and its identity."""

HANDOVER_ROWS_MAX = 24
"""Rows of each kind in a handover; the longest durations are told."""

ALARM_S = 20.0
"""Seconds after which an alarm ends, unless the alarm is told again."""

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
    alarm: str = ""


_decoder = msgspec.msgpack.Decoder(_Handover)


class WatchCounts(Struct, frozen=True):
    """Counts in seconds: of absent members, of answering members, and of pending moves."""

    absent: Mapping[Member, float] = {}
    present: Mapping[Member, float] = {}
    pending: Mapping[ConfigurationId, float] = {}


def encode(counts: WatchCounts, alarm: str = "") -> bytes:
    """Return the note that hands ``counts`` over; ``alarm``: the site where a log is amiss."""
    return msgspec.msgpack.encode(
        _Handover(
            tuple(ServerFor(*member, for_s) for member, for_s in _longest(counts.absent)),
            tuple(ServerFor(*member, for_s) for member, for_s in _longest(counts.present)),
            tuple(PendingFor(id, for_s) for id, for_s in _longest(counts.pending)),
            alarm,
        )
    )


def merge(notes: Sequence[tuple[bytes, float]], gap_s: float, old_s: float) -> WatchCounts:
    """Return the rows of the newest note, each with the longest duration of any note.

    Args:
        notes: Each with the seconds since it came.
        gap_s: The most that counts of these seconds, during which no member looked.
        old_s: The age from which on a note is forgotten.
    """
    decoded = [(_decoded(note), age_s) for note, age_s in notes if 0 <= age_s <= old_s]
    ordered = [
        (handover, min(age_s, gap_s))
        for handover, age_s in sorted(decoded, key=lambda pair: pair[1])
        if handover is not None
        and not handover.alarm  # a note with an alarm is not from the leader
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


def alarms(notes: Sequence[tuple[bytes, float]], old_s: float) -> frozenset[str]:
    """Return the sites for which a note raises an alarm, unless it is as old as ``old_s``."""
    decoded = [_decoded(note) for note, age_s in notes if 0 <= age_s < old_s]
    return frozenset(note.alarm for note in decoded if note is not None and note.alarm)


class Notebook:
    """The note of a member, written by the member's autopilots."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._alarm = ""
        self._note = encode(WatchCounts())
        self._sent_at = 0.0
        self._loop = asyncio.get_running_loop()

    def hand_over(self, counts: WatchCounts) -> None:
        """Tell the counts of the leader."""
        self._send_note(encode(counts))

    def raise_alarm(self, site: str) -> None:
        """Tell that a log at ``site`` needs the leader; empty: the alarm is over.

        To be called repeatedly while the alarm lasts.
        """
        if site or self._alarm:
            self._alarm = site
            self._send_note(encode(WatchCounts(), site))

    def _send_note(self, note: bytes) -> None:
        now = self._loop.time()
        again = self._alarm and now - self._sent_at >= ALARM_S / 2
        if note != self._note or again:
            self._notes.send_note(note)
            self._note, self._sent_at = note, now

    def counts(self, gap_s: float, old_s: float) -> WatchCounts:
        """Return the counts handed over by the other members: see :func:`merge`."""
        return merge(self._notes.received_notes(), gap_s, old_s)

    def alarms(self) -> frozenset[str]:
        """Return the sites for which other members raise an alarm."""
        return alarms(self._notes.received_notes(), ALARM_S)


def _longest(durations: Mapping[Key, float]) -> list[tuple[Key, float]]:
    ranked = sorted(durations.items(), key=lambda pair: pair[1], reverse=True)
    return ranked[:HANDOVER_ROWS_MAX]


def _newest(decoded: Sequence[Mapping[Key, float]]) -> dict[Key, float]:
    return (
        {key: max(each.get(key, 0.0) for each in decoded) for key in decoded[0]} if decoded else {}
    )


def _decoded(note: bytes) -> _Handover | None:
    try:
        return _decoder.decode(note)
    except msgspec.MsgspecError:  # a note of another release
        return None
