"""Clients that each have keys to themselves, and so know exactly what every one of them must hold, whatever was killed in the meantime."""

import asyncio
from random import Random

from msgspec import Struct

from ares.client.manager import Manager
from ares.model.errors import AresError, ObjectNotFound
from ares.testing.torture.records import name_of, value_of

SMALL_KEYS = 12
LARGE_KEYS = 1
SMALL_BYTES = (1, 3000)
LARGE_BYTES = 2**20
LARGE = 0.04
READS = 0.25
DELETES = 0.05
TIMEOUT_S = 30.0

Name = str | None
"""What a value is called (ares/testing/torture/records.py); None: there is no object."""


class Known:
    """What one key may hold: what was acknowledged or read last, or what was written since and has an unknown outcome."""

    def __init__(self) -> None:
        self.sure: Name = None
        self.possible: set[Name] = set()

    def acknowledged(self, name: Name) -> None:
        """It holds this. A write that failed before has a lower tag, and is never seen again."""
        self.sure = name
        self.possible.clear()

    def unknown(self, name: Name) -> None:
        """It may hold this, now or later."""
        self.possible.add(name)

    def read(self, name: Name) -> bool:
        """A read returned this; whether it may."""
        if name not in {self.sure, *self.possible}:
            return False
        self.sure = name
        return True


class KeeperTally(Struct):
    """Of all keepers together. ``unanswered``: operations that were given up; each may be done or not."""

    writes: int = 0
    deletes: int = 0
    reads: int = 0
    large: int = 0
    unanswered: int = 0


class Keeper:
    """``name`` is unique in the run; ``findings``: reads that returned what they may not."""

    def __init__(self, name: str, store: Manager, chance: Random, tally: KeeperTally) -> None:
        self.findings: list[str] = []
        self._name = name
        self._store = store
        self._chance = chance
        self._tally = tally
        self._written = 0
        self._keys = {f"{name}/{number}": Known() for number in range(SMALL_KEYS)}
        self._large = {f"{name}/large/{number}": Known() for number in range(LARGE_KEYS)}

    async def work(self) -> None:
        """An operation after the other, until cancelled."""
        while True:
            large = self._chance.random() < LARGE
            key, known = self._chance.choice(list((self._large if large else self._keys).items()))
            roll = self._chance.random()
            if roll < READS:
                await self.read(self._store, key, known)
            elif roll < READS + DELETES:
                await self._delete(key, known)
            else:
                await self._write(key, known, large)

    async def read_everything(self, store: Manager) -> None:
        """With another client, one that knows nothing."""
        for key, known in (self._keys | self._large).items():
            await self.read(store, key, known)

    async def read(self, store: Manager, key: str, known: Known) -> None:
        try:
            name: Name = name_of(await store.read(key, timeout_s=TIMEOUT_S))
        except ObjectNotFound:
            name = None
        except AresError:
            self._tally.unanswered += 1
            return
        self._tally.reads += 1
        expected = (known.sure, set(known.possible))
        if not known.read(name):
            self.findings.append(f"{key!r} holds {name}, acknowledged or read was {expected[0]}, possible {expected[1]}")

    async def _write(self, key: str, known: Known, large: bool) -> None:
        self._written += 1
        name = f"{self._name}-{self._written}"
        known.unknown(name)  # also if this ends with the run
        try:
            await self._store.write(key, value_of(name, LARGE_BYTES if large else self._chance.randint(*SMALL_BYTES)), timeout_s=TIMEOUT_S)
        except AresError:
            self._tally.unanswered += 1
            return
        known.acknowledged(name)
        self._tally.writes += 1
        self._tally.large += large

    async def _delete(self, key: str, known: Known) -> None:
        may_be_absent = None in {known.sure, *known.possible}
        known.unknown(None)
        try:
            await self._store.delete(key, timeout_s=TIMEOUT_S)
        except ObjectNotFound:
            self.findings.extend([] if may_be_absent else [f"{key!r} was found absent, acknowledged or read was {known.sure}"])
            return
        except AresError:
            self._tally.unanswered += 1
            return
        known.acknowledged(None)
        self._tally.deletes += 1


async def end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel what never ends by itself. Raises what any of it raised before."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
