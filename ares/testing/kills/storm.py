"""kill -9 at random instants, again and again: one process, some or all at once, and some again while they start."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from msgspec import Struct

from ares.model.identity import ServerId
from ares.testing.kills.nursery import Nursery

STARTING_S = (0.0, 0.15)
"""How long after its start a process is killed that shall not come to serve, or hardly."""

DIES_AGAIN = 0.3
VICTIMS = (("one", 60), ("some", 25), ("all", 15))


class Limits(Struct, frozen=True):
    """A storm ends at either."""

    kills: int
    seconds: float = math.inf


class Toll(Struct):
    """``starting``: those of ``kills`` that hit a process while it started. ``all_at_once``: those of ``rounds`` that left nobody running."""

    kills: int = 0
    starting: int = 0
    rounds: int = 0
    all_at_once: int = 0


class Storm:
    """Over the processes ``ids`` of ``nursery``, which run.

    ``rest`` is awaited before each round: how long they are left alone. ``audit(id)`` is awaited when a process was started again, and returns what
    is wrong with it, in words; it must end early if the process did.
    """

    def __init__(
        self,
        nursery: Nursery,
        ids: Sequence[ServerId],
        chance: Random,
        rest: Callable[[], Awaitable[None]],
        audit: Callable[[ServerId], Awaitable[list[str]]],
    ) -> None:
        self.toll = Toll()
        self.findings: list[str] = []
        self._nursery = nursery
        self._ids = list(ids)
        self._chance = chance
        self._rest = rest
        self._audit = audit

    async def rage(self, limits: Limits) -> None:
        """Until a limit is reached, or something is wrong; all run then."""
        end_s = time.monotonic() + limits.seconds
        while self.toll.kills < limits.kills and time.monotonic() < end_s and not self.findings:
            await self._rest()
            await self._round()

    async def _round(self) -> None:
        victims = self._victims()
        for id in (id for id in victims if self._nursery.ended(id)):
            self.findings.append(f"{id} ended by itself: {self._nursery.last_words(id)}")
        await self._nursery.kill(*victims)
        self.toll.kills += len(victims)
        self.toll.rounds += 1
        self.toll.all_at_once += len(victims) == len(self._ids)
        await asyncio.gather(*(self._revive(id) for id in victims))

    def _victims(self) -> list[ServerId]:
        match self._chance.choices([kind for kind, _ in VICTIMS], [weight for _, weight in VICTIMS])[0]:
            case "one":
                return [self._chance.choice(self._ids)]
            case "some":
                return self._chance.sample(self._ids, self._chance.randint(1, len(self._ids)))
            case _:
                return list(self._ids)

    async def _revive(self, id: ServerId) -> None:
        self._nursery.start(id)
        while self._chance.random() < DIES_AGAIN:
            await asyncio.sleep(self._chance.uniform(*STARTING_S))
            if self._nursery.ended(id):
                break
            await self._nursery.kill(id)
            self.toll.kills += 1
            self.toll.starting += 1
            self._nursery.start(id)
        self.findings.extend(f"{id}: {finding}" for finding in await self._audit(id))
