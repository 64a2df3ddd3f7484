"""The nemesis: hurts servers and consensus members at random, and reconfigures all the time, within what the ledger allows.

All chance comes from one seeded generator, so a seed gives the same intentions; real processes answer when they answer, so it does not give the
same run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Protocol

from ares.model.identity import ServerId
from ares.testing.torture.events import Chronicle
from ares.testing.torture.ledger import Ledger, Trouble
from ares.testing.torture.partition import Direction
from ares.testing.torture.records import Done, Failed, Killed, Outcome, Refused, TortureFailed, Wish
from ares.testing.torture.wishes import SERVERS_MIN, random_wish

BETWEEN_FAULTS_S = (0.1, 1.2)
AILING_S = (0.3, 5.0)
BETWEEN_RECONFIGURATIONS_S = (0.0, 0.6)
REIGN_S = (2.0, 8.0)
"""Now and then a configuration stays for so long: each new one brings everything to a quorum, and would hide what had gone missing in the last.

Half of these reigns are deadly: one server after the other is killed and started again at once. Of a configuration only ``crashes_survived`` may
lose their memory, so this is soon over, unless servers come back as what they were: because they have a store, or because they are taken for it.
"""

QUICKLY_S = (0.0, 0.2)
DIES_WITHIN_S = 0.15
FINISH_ATTEMPTS = 8
FINISH_PAUSE_S = 1.0


class Victims(Protocol):
    """What can be done to the processes. ``network`` tells whether they can be cut off."""

    @property
    def has_network(self) -> bool: ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Where clients are."""

    def kill(self, id: ServerId) -> None: ...

    def freeze(self, id: ServerId) -> None: ...

    def thaw(self, id: ServerId) -> None: ...

    def cut(self, id: ServerId, peers: list[str], direction: Direction) -> None: ...

    def mend(self, id: ServerId) -> None: ...

    async def launch(self, id: ServerId) -> None: ...

    def identity(self, server: ServerId) -> str: ...

    def ended(self) -> list[ServerId]: ...

    async def reconfigure(self, wish: Wish, kill_after_s: float | None) -> Outcome: ...


class Nemesis:
    """``problems`` are findings, in words: what went wrong although the ledger says that it should not."""

    def __init__(self, victims: Victims, ledger: Ledger, chronicle: Chronicle, chance: Random) -> None:
        self.problems: list[str] = []
        self.reconfigurations = {"done": 0, "refused": 0, "killed": 0, "failed": 0}
        self._victims = victims
        self._ledger = ledger
        self._chronicle = chronicle
        self._chance = chance
        self._peace = asyncio.Event()
        self._recoveries: set[asyncio.Task[None]] = set()
        self._wishes = 0
        self._deadly = False

    async def rage(self, seconds: float) -> None:
        """Hurt and reconfigure for so long; then heal everything, and install one more configuration, which finishes what may be left."""
        end = self._now() + seconds
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_hurting(end))
                group.create_task(self._keep_reconfiguring(end))
        except* TortureFailed as failed:
            raise failed.exceptions[0] from None
        await self.heal()
        await self._finish()

    async def heal(self) -> None:
        """Everything is well when this returns."""
        self._peace.set()
        while self._recoveries:
            await asyncio.gather(*self._recoveries)

    async def _finish(self) -> None:
        """A server that was cut off takes a moment to be heard again, as long as TCP waits before it sends anew, and is refused until then."""
        outcome: Outcome | None = None
        for _ in range(FINISH_ATTEMPTS):
            outcome = await self._reconfigure()
            if not isinstance(outcome, Refused):
                break
            await asyncio.sleep(FINISH_PAUSE_S)
        if not isinstance(outcome, Done):
            self.problems.append(f"when everything was healed, a reconfiguration did not succeed: {outcome}")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- faults ---------------------------------------------------------------------------------------------------------

    async def _keep_hurting(self, end: float) -> None:
        while self._now() < end:
            pause = QUICKLY_S if self._deadly else BETWEEN_FAULTS_S
            await asyncio.sleep(min(self._chance.uniform(*pause), max(0.0, end - self._now())))
            self._notice_ended()
            self.strike()

    def strike(self) -> None:
        """One fault, if there is anybody who may be hurt."""
        server = self._deadly or self._chance.random() < 0.8
        candidates = self._ledger.well if server else self._ledger.members_well
        allowed = [id for id in candidates if self._ledger.may_hurt(id)]
        if not allowed:
            return
        who = self._chance.choice(allowed)
        faults = [self._kill, self._freeze, *([self._cut] * 2 if self._victims.has_network else [])]
        fault = self._kill if self._deadly else self._chance.choice(faults)
        fault(who)

    def _kill(self, who: ServerId) -> None:
        self._hurt(who, "dead", "kill")
        self._victims.kill(who)
        self._recover(partial(self._relaunch, who))

    def _freeze(self, who: ServerId) -> None:
        self._hurt(who, "stopped", "stop")
        self._victims.freeze(who)
        dies = self._chance.random() < 0.2
        self._recover(partial(self._die_frozen if dies else self._thaw, who))

    def _cut(self, who: ServerId) -> None:
        others = [*self._victims.hosts, *self._ledger.members_well]
        direction: Direction = self._chance.choice(("in", "out", "both"))
        peers = [other for other in others if other != who and self._chance.random() < 0.7] or [self._victims.hosts[0]]
        self._hurt(who, "partitioned", f"partition {direction}", f"from {', '.join(peers)}")
        self._victims.cut(who, peers, direction)
        self._recover(partial(self._mend, who))

    def _hurt(self, who: ServerId, trouble: Trouble, kind: str, detail: str = "") -> None:
        self._ledger.hurt(who, trouble)
        what = kind if who in self._ledger.identities else f"{kind} consensus"
        self._chronicle.mark(what, who, detail, fault=True)
        self._chronicle.state(who, trouble)

    def _notice_ended(self) -> None:
        for who in self._victims.ended():
            self.problems.append(f"{who} ended by itself; see its log")
            recovering = who in self._ledger.trouble
            self._hurt(who, "dead", "ended by itself")
            if not recovering:
                self._recover(partial(self._relaunch, who))

    # -- recoveries -----------------------------------------------------------------------------------------------------

    def _recover(self, how: Callable[[], Awaitable[None]]) -> None:
        recovery = asyncio.get_running_loop().create_task(self._later(self._chance.uniform(*(QUICKLY_S if self._deadly else AILING_S)), how))
        self._recoveries.add(recovery)
        recovery.add_done_callback(self._recoveries.discard)

    async def _later(self, delay_s: float, how: Callable[[], Awaitable[None]]) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._peace.wait(), delay_s)
        try:
            await how()
        except TortureFailed as error:
            self.problems.append(str(error))

    async def _relaunch(self, who: ServerId) -> None:
        await self._victims.launch(who)
        identity = self._victims.identity(who) if who in self._ledger.identities else None
        forgot = identity is not None and identity != self._ledger.identities[who]
        self._ledger.recovered(who, identity)
        self._chronicle.mark("new life" if forgot else "restarted", who)
        self._chronicle.state(who, "up", new_life=True)

    async def _thaw(self, who: ServerId) -> None:
        if self._ledger.trouble[who] == "stopped":
            self._victims.thaw(who)
        await self._well_again(who, "continued")

    async def _die_frozen(self, who: ServerId) -> None:
        if self._ledger.trouble[who] == "stopped":
            self._hurt(who, "dead", "kill")
            self._victims.kill(who)
        await self._relaunch(who)

    async def _mend(self, who: ServerId) -> None:
        self._victims.mend(who)
        await self._well_again(who, "connected")

    async def _well_again(self, who: ServerId, kind: str) -> None:
        """Unless it ended by itself in the meantime."""
        if self._ledger.trouble[who] == "dead":
            await self._relaunch(who)
        else:
            self._ledger.recovered(who)
            self._chronicle.mark(kind, who)
            self._chronicle.state(who, "up")

    # -- reconfigurations -----------------------------------------------------------------------------------------------

    async def _keep_reconfiguring(self, end: float) -> None:
        while self._now() < end:
            rivals = 2 if self._chance.random() < 0.15 else 1
            await asyncio.gather(*(self._reconfigure(dangerous=True) for _ in range(rivals)))
            reign = self._chance.random() < 0.1
            self._deadly = reign and self._chance.random() < 0.5
            await asyncio.sleep(min(self._chance.uniform(*(REIGN_S if reign else BETWEEN_RECONFIGURATIONS_S)), max(0.0, end - self._now())))
            self._deadly = False

    async def _reconfigure(self, dangerous: bool = False) -> Outcome | None:
        wish = self.wish(dangerous)
        if wish is None:
            return None
        configuration = wish.configuration()
        kill_after_s = self._chance.uniform(0, DIES_WITHIN_S) if dangerous and wish.dies_in is None and self._chance.random() < 0.15 else None
        begin = self._chronicle.now()
        self._ledger.wished(wish.number, configuration)
        outcome = await self._victims.reconfigure(wish, kill_after_s)
        self._settle(wish, outcome, begin)
        return outcome

    def wish(self, dangerous: bool = False) -> Wish | None:
        """Any configuration of servers that are well, which survives a crash; None if too few are well."""
        well = self._ledger.well
        if len(well) < SERVERS_MIN:
            return None
        self._wishes += 1
        return random_wish(self._wishes, well, dangerous, self._chance)

    def _settle(self, wish: Wish, outcome: Outcome, begin: float) -> None:
        text = wish.configuration().describe()
        match outcome:
            case Done(configuration, ours):
                self._count("done", text if ours else f"{text}; somebody else's was decided: {configuration.describe()}")
                self._chronicle.reigns_now(configuration, begin)
                self._ledger.done(wish.number, outcome)
            case Refused(error):
                self._count("refused", f"{text}: {error}")
                self._ledger.refused(wish.number)
            case Killed(begun):
                self._count("killed", text, fault=True)
                if begun:
                    self._ledger.left(wish.number)
                else:
                    self._ledger.refused(wish.number)
            case Failed(error):
                self._count("failed", f"{text}: {error}")
                self.problems.append(f"a reconfiguration to {text} failed: {error}")
                self._ledger.left(wish.number)

    def _count(self, what: str, detail: str, *, fault: bool = False) -> None:
        self.reconfigurations[what] += 1
        self._chronicle.mark("kill reconfigurer" if what == "killed" else f"reconfiguration {what}", "", detail, fault=fault)
