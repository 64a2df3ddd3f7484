"""A journal in memory, for tests.

Committed facts outlive the object that wrote them, but not the process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.msgpack import Decoder

from ares.model.codec import Encoded, encode_array
from ares.model.element import intact, is_hollow
from ares.model.messages import PutData
from ares.replica.facts import Fact, TagsTrimmed, fact_bytes_max
from ares.store.port import ExaminationResult, Join, Use

_decode = Decoder(list[PutData | TagsTrimmed]).decode

Done = Callable[[OSError | None, Sequence[PutData]], None]


class Kept:
    """The surviving facts by place. ``room`` is the capacity in bytes, spare included."""

    def __init__(self, room: int = 1 << 62) -> None:
        self.facts: dict[int, list[Fact]] = {}
        self.room = room


class MemoryJournal:
    """The :class:`ares.store.port.Journal` over ``kept``.

    ``later(step)`` calls `step` after the present step of the owner.
    """

    keeps = True

    def __init__(
        self, kept: Kept, later: Callable[[Callable[[], None]], object], place_bytes: int = 1 << 20
    ) -> None:
        self._kept = kept
        self._later = later
        self._place_bytes = place_bytes
        self._left = {
            Use.DATA: place_bytes // 8,
            Use.POINTERS: place_bytes // 16,
            Use.COMPACTION: 0,
        }
        self._place = max(kept.facts, default=0)
        self._sizes = {place: _size(facts) for place, facts in kept.facts.items()}
        self._appended: list[tuple[int, Fact]] = []
        self._discarded: list[int] = []

    read_bytes = to_read_bytes = 0

    def recover(self, join: Join | None = None) -> Iterator[tuple[int, Sequence[Fact]]]:
        for place, facts in self._kept.facts.items():
            yield place, list(facts)

    def reserve(self, bytes: int, use: Use) -> int | None:
        if self.bytes_on_disk + bytes + self._left[use] > self._kept.room:
            return None
        if self._place == 0 or self._sizes[self._place] + bytes > self._place_bytes:
            self._place += 1
            self._sizes[self._place] = 0
        return self._place

    def append(self, fact: Fact, bytes: int) -> None:
        self._sizes[self._place] += bytes
        self._appended.append((self._place, fact))

    def at_hand(self, bytes: int) -> int | None:
        fits = self._place != 0 and self._sizes[self._place] + bytes <= self._place_bytes
        return (
            self._place
            if fits and self.bytes_on_disk + bytes + self._left[Use.DATA] <= self._kept.room
            else None
        )

    def extend(self, facts: Encoded, bytes: int) -> None:
        self._sizes[self._place] += bytes
        self._appended.extend((self._place, fact) for fact in _decode(encode_array([facts])))

    def commit(self, done: Done) -> None:
        appended, self._appended = self._appended, []
        discarded, self._discarded = self._discarded, []

        def finish() -> None:
            for place, fact in appended:
                self._kept.facts.setdefault(place, []).append(fact)
            for place in discarded:
                self._kept.facts.pop(place, None)
            done(None, ())

        self._later(finish)

    def places(self) -> Mapping[int, int]:
        return {
            place: size
            for place, size in self._sizes.items()
            if place != self._place and place in self._kept.facts
        }

    def read(self, place: int) -> Iterator[Fact]:
        yield from list(self._kept.facts[place])

    def durable(self) -> Mapping[int, int]:
        return {place: size for place, size in self._sizes.items() if place in self._kept.facts}

    def examination(self, place: int) -> "_KeptExamination | None":
        return _KeptExamination(list(self._kept.facts[place])) if place in self.durable() else None

    def seal(self, place: int, room: int = 0) -> bool:
        if place == self._place:
            self._place += 1
            self._sizes[self._place] = 0
        return True

    def discard(self, place: int) -> None:
        del self._sizes[place]
        self._discarded.append(place)

    @property
    def free_bytes(self) -> int:
        return self._kept.room - self.bytes_on_disk

    @property
    def bytes_on_disk(self) -> int:
        return sum(self._sizes.values())

    def close(self) -> None:
        pass


class _KeptExamination:
    def __init__(self, facts: Sequence[Fact]) -> None:
        self._facts = facts

    def run(self, pace: Callable[[int], None]) -> ExaminationResult:
        pace(_size(self._facts))
        puts = [
            fact
            for fact in self._facts
            if isinstance(fact, PutData) and not is_hollow(fact.element)
        ]
        damaged = tuple(
            key
            for put in puts
            if not intact(*(key := (put.configuration, put.object, put.tag)), put.element)
        )
        return ExaminationResult(not damaged, damaged)


def _size(facts: Sequence[Fact]) -> int:
    return sum(map(fact_bytes_max, facts))
