"""Workloads as plug-ins: a class says which operation comes next, and on which record.

`Even` chooses evenly; `Ycsb` has the core workloads A to F of YCSB (Cooper et al., SoCC 2010). A
record is an object: an update writes the whole object, and a scan reads objects one after another,
in the order of their numbers. Distributions are YCSB's: zipfian with the constant 0.99, scrambled
by FNV-1a; `latest` is zipfian from the newest on. Any other class is named FILE:CLASS.
"""

import random
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, cast

from msgspec import Struct

from ares.model.errors import BadInput

ZIPFIAN = 0.99
SCAN_MAX = 100
_SCRAMBLED_ITEMS = 10_000_000_000
_SCRAMBLED_ZETA = 26.46902820178302
"""Zeta of the scrambled item count, as YCSB has it written down."""

_EVEN_DRAWS = 1 << 14
Kind = Literal["read", "update", "insert", "scan", "modify"]
Draw = tuple[Kind, int, int]
"""An operation, its record, and the number of records of a scan."""


class Pattern(Protocol):
    """The operations of the clients of a process, made by ``PATTERN(chance, records, room)``.

    ``records`` is the number of records at the beginning, ``room`` the number that there may be at
    the end. ``modify`` reads a record and writes it. The caller numbers insertions.
    """

    def draw(self, there: int) -> Draw:
        """Return the next operation; ``there`` is the number of records now."""


PatternMaker = Callable[[random.Random, int, int], Pattern]


class Even:
    """Reads and updates of any record, also of records that are not there yet."""

    def __init__(self, read_share: float, chance: random.Random, room: int) -> None:
        kinds = chance.choices(("read", "update"), (read_share, 1 - read_share), k=_EVEN_DRAWS)
        self._draws = [(cast(Kind, kind), chance.randrange(room), 1) for kind in kinds]
        self._next = 0

    def draw(self, there: int) -> Draw:
        self._next = (self._next + 1) % _EVEN_DRAWS
        return self._draws[self._next]


class Mix(Struct, frozen=True):
    """Shares of the operations.

    With ``latest``, new records are read most, instead of a fixed set.
    """

    read: float = 0.0
    update: float = 0.0
    insert: float = 0.0
    scan: float = 0.0
    modify: float = 0.0
    latest: bool = False


YCSB_MIXES = {
    "A": Mix(read=0.5, update=0.5),
    "B": Mix(read=0.95, update=0.05),
    "C": Mix(read=1.0),
    "D": Mix(read=0.95, insert=0.05, latest=True),
    "E": Mix(scan=0.95, insert=0.05),
    "F": Mix(read=0.5, modify=0.5),
}


class Zipfian:
    """Numbers from 0 on below a count that may grow.

    Number r comes in proportion to 1 / (r + 1) ** 0.99 (Gray et al., SIGMOD 1994).
    """

    def __init__(self, count: int, chance: random.Random, zeta: float | None = None) -> None:
        self._chance = chance
        self._count, self._zeta = (0, 0.0) if zeta is None else (count, zeta)
        self._two = 1 + 0.5**ZIPFIAN

    def below(self, count: int) -> int:
        """Return the next number below ``count``, which never shrinks."""
        for number in range(self._count, count):
            self._zeta += (number + 1) ** -ZIPFIAN
        self._count = max(count, self._count)
        drawn = self._chance.random()
        if drawn * self._zeta < 1:
            return 0
        if drawn * self._zeta < self._two:
            return min(1, count - 1)
        eta = (1 - (2 / count) ** (1 - ZIPFIAN)) / (1 - self._two / self._zeta)
        return min(int(count * (eta * drawn - eta + 1) ** (1 / (1 - ZIPFIAN))), count - 1)


class ScrambledZipfian:
    """A zipfian source with the popular numbers spread over all numbers."""

    def __init__(self, chance: random.Random) -> None:
        self._zipfian = Zipfian(_SCRAMBLED_ITEMS, chance, _SCRAMBLED_ZETA)

    def below(self, count: int) -> int:
        return fnv(self._zipfian.below(_SCRAMBLED_ITEMS)) % count


def fnv(number: int) -> int:
    """Return FNV-1a of the number's eight bytes, as in YCSB: without a sign."""
    hashed = 0xCBF29CE484222325
    for byte in number.to_bytes(8, "little"):
        hashed = (hashed ^ byte) * 1099511628211 % 2**64
    return min(hashed, 2**64 - hashed)


class Ycsb:
    """A core workload of YCSB."""

    def __init__(self, mix: Mix, chance: random.Random, records: int, room: int) -> None:
        self._mix, self._chance, self._room = mix, chance, room
        self._kinds: tuple[Kind, ...] = ("read", "update", "insert", "scan", "modify")
        self._weights = [getattr(mix, kind) for kind in self._kinds]
        self._latest, self._scrambled = Zipfian(records, chance), ScrambledZipfian(chance)

    def draw(self, there: int) -> Draw:
        [kind] = self._chance.choices(self._kinds, self._weights)
        if kind == "insert":
            return kind, there, 1
        length = self._chance.randint(1, SCAN_MAX) if kind == "scan" else 1
        if self._mix.latest:
            return kind, there - 1 - self._latest.below(there), length
        while (record := self._scrambled.below(self._room)) >= there:
            pass
        return kind, record, length


def pattern_maker(name: str, read_share: float) -> PatternMaker:
    """Return the maker of a pattern: `even`, `YCSB A` to `YCSB F`, or FILE:CLASS.

    Raises BadInput for another name.
    """
    if name == "even":
        return lambda chance, _, room: Even(read_share, chance, room)
    if (mix := YCSB_MIXES.get(name.removeprefix("YCSB "))) is not None:
        return lambda chance, records, room: Ycsb(mix, chance, records, room)
    file, kind = Path(name).parent, Path(name).name.split(":")
    try:
        return cast(PatternMaker, runpy.run_path(str(file / kind[0]))[kind[-1]])
    except (OSError, ImportError, KeyError) as error:
        raise BadInput(
            f"{name!r} is no workload ({type(error).__name__}: {error}): expected even, YCSB A to "
            "YCSB F, or FILE:CLASS"
        ) from error
