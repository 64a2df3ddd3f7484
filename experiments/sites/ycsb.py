"""The core workloads A to F of YCSB (Cooper et al., SoCC 2010) as operations on objects.

A record of ten fields of 100 bytes is an object, so an update writes the whole object, and a scan
reads objects side by side, in the order of their numbers. Distributions are YCSB's: zipfian with
the constant 0.99, scrambled by FNV-1a; `latest` is zipfian from the newest on.
"""

import random
from collections import deque
from collections.abc import Iterator

from msgspec import Struct

from experiments.sites.fog_scene import FogScene, all_done, puts, together
from experiments.sites.orders import Operation, Order

RECORD_BYTES = 10 * 100
SCAN_MAX = 100
ZIPFIAN = 0.99
_LANES = 4
_APART = 8 * _LANES
"""Smallest number of operations between the start of an insertion and a read of the record.

By then the record exists.
"""

_SCRAMBLED_ITEMS = 10_000_000_000
_SCRAMBLED_ZETA = 26.46902820178302
"""Zeta of the scrambled item count, as YCSB has it written down."""


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


def operations(mix: Mix, site: str, records: int, count: int, seed: int) -> Iterator[Operation]:
    """Yield ``count`` operations on ``records`` objects of a site, and on inserted objects."""
    chance = random.Random(seed)
    latest, scrambled = Zipfian(records, chance), ScrambledZipfian(chance)
    there, room, inserting = records, records + round(2 * count * mix.insert), deque[int]()
    kinds, weights = (
        ("read", "update", "insert", "scan", "modify"),
        (mix.read, mix.update, mix.insert, mix.scan, mix.modify),
    )
    for number, kind in enumerate(chance.choices(kinds, weights, k=count)):
        while inserting and inserting[0] <= number - _APART:
            inserting.popleft()
            there += 1
        if kind == "insert":
            inserting.append(number)
            yield Operation("put", (record(site, there + len(inserting) - 1),), RECORD_BYTES)
            continue
        chosen = there - 1 - latest.below(there) if mix.latest else scrambled.below(room)
        while chosen >= there:
            chosen = scrambled.below(room)
        if kind == "scan":
            length = chance.randint(1, SCAN_MAX)
            yield Operation(
                "scan",
                tuple(record(site, each) for each in range(chosen, min(chosen + length, there))),
            )
        elif kind == "modify":
            yield Operation("modify", (record(site, chosen),), RECORD_BYTES)
        else:
            yield Operation(
                "get" if kind == "read" else "put",
                (record(site, chosen),),
                0 if kind == "read" else RECORD_BYTES,
            )


def record(site: str, number: int) -> str:
    return f"{site}/user{number}"


async def measure_ycsb(scene: FogScene) -> None:
    """Run each workload at each site, all sites at once, on the records of the user's own site."""
    extent = scene.extent
    async with scene.users(scene.bed.sites) as users:
        await together(
            users,
            lambda user: Order(
                puts([record(user.site, number) for number in range(extent.records)], RECORD_BYTES),
                _LANES,
            ),
        )
        for name, mix in YCSB_MIXES.items():
            orders = {
                site: Order(
                    tuple(operations(mix, site, extent.records, extent.operations, seed)), _LANES
                )
                for seed, site in enumerate(scene.bed.sites)
            }
            left = sum(scene.bed.left().values())
            answers = await together(users, lambda user, orders=orders: orders[user.site])  # type: ignore[misc]
            done = all_done(answers)
            figures = {
                "per_s": sum(len(answer.done) / answer.seconds for answer in answers),
                "between_bytes_per_op": (sum(scene.bed.left().values()) - left) / len(done),
            }
            scene.note("ycsb", figures, done, workload=name)
