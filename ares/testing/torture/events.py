"""What happened during a run, and when: faults, the states of processes, configurations. Times are seconds since the run began."""

import time
from collections import Counter
from typing import Literal

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import ServerId

State = Literal["up", "dead", "stopped", "partitioned"]


class Mark(Struct, frozen=True):
    """Something that happened at a moment. ``fault``: it was done to hurt."""

    at: float
    kind: str
    target: str
    detail: str = ""
    fault: bool = False


class Spell(Struct, frozen=True):
    """How long a process was in a state; ``life`` counts its starts from 1."""

    target: str
    state: State
    life: int
    begin: float
    end: float


class Reign(Struct, frozen=True):
    """A configuration: ``wished`` when its attempt began (None: not seen), ``finalized`` when it was told to be."""

    index: int
    text: str
    wished: float | None
    finalized: float


class Chronicle:
    """Append-only; the run begins when it is made: ``origin``, on CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        self.origin = time.monotonic()
        self.end = 0.0
        self.marks: list[Mark] = []
        self.reigns: list[Reign] = []
        self._spells: list[Spell] = []
        self._now: dict[str, tuple[State, int, float]] = {}

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.origin

    def mark(self, kind: str, target: str, detail: str = "", *, fault: bool = False) -> None:
        """Remember a moment."""
        self.marks.append(Mark(self.now(), kind, target, detail, fault))

    def state(self, target: ServerId, state: State, *, new_life: bool = False) -> None:
        """A process is in this state from now on."""
        now = self.now()
        _, life, _ = self._now.get(target, (state, 0, now))
        self._close(target, now)
        self._now[target] = (state, life + new_life, now)

    def reigns_now(self, configuration: Configuration, wished: float | None) -> None:
        """A configuration was finalized."""
        if not self.reigns or configuration.index > self.reigns[-1].index:
            self.reigns.append(Reign(configuration.index, configuration.describe(), wished, self.now()))

    def close(self) -> None:
        """Nothing follows."""
        self.end = self.now()
        for target in list(self._now):
            self._close(target, self.end)

    @property
    def spells(self) -> list[Spell]:
        """In the order in which they ended."""
        return self._spells

    @property
    def faults(self) -> Counter[str]:
        """How many there were of each kind."""
        return Counter(mark.kind for mark in self.marks if mark.fault)

    def troubled(self) -> list[tuple[float, float]]:
        """When at least one process was not up: intervals in order, apart from each other."""
        merged: list[tuple[float, float]] = []
        for begin, end in sorted((spell.begin, spell.end) for spell in self._spells if spell.state != "up"):
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        return merged

    def _close(self, target: str, now: float) -> None:
        if target in self._now:
            state, life, since = self._now.pop(target)
            self._spells.append(Spell(target, state, life, since, now))
