"""One time of an autopilot's leading: looks at the servers, and rounds in which domains are seen to.

A look asks every server who it is. A round looks every domain up and then sees to those that need it, one after the other. The two run side by side,
so that what a long round does is judged by who is there now.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from ares.autopilot.bulletin import Bulletin
from ares.autopilot.judge import Replace, Roster, Sound, Stuck, Verdict, judge, loads_of, look_up, mend, urgency
from ares.autopilot.watch import Watch
from ares.client.manager import DESCRIBE_S, Manager
from ares.model.configuration import Configuration, Server
from ares.model.errors import AresError, ObjectsStuck
from ares.model.identity import DIRECTORY, ConfigurationId, DomainName, ServerId
from ares.reconfig.throttle import Throttle

LOOK_UP_S = 5.0
"""How long a domain may take to say which configurations it has."""

LOOK_UPS_AT_ONCE = 64
STUCK_S_MAX = 3600.0
"""A domain with objects that cannot be moved is tried again after a round's time, then after twice as long, and so on, at most after so long."""

ROUND_S = 60.0
"""Domains are looked up at least so often: somebody may have made or moved some, or left one in the middle of a move."""


class Duty(Struct, frozen=True):
    """A server absent for ``after_s`` is replaced; servers are looked at every ``every_s``; data moves at ``bytes_per_s``."""

    after_s: float
    every_s: float
    bytes_per_s: float


class _Stuck(Struct, frozen=True):
    """A domain with objects that could not be moved, and when the rest of its move is tried again."""

    why: str
    wait_s: float
    again_at: float


class Flight:
    """Over ``manager``, which stays open. ``book``: the servers of the cluster file."""

    def __init__(self, manager: Manager, book: Mapping[ServerId, Server], duty: Duty) -> None:
        self._manager = manager
        self._book = book
        self._duty = duty
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(duty.after_s, gap_s=duty.every_s + 3 * DESCRIBE_S)
        self._throttle = Throttle(duty.bytes_per_s)
        self._bulletin = Bulletin()
        self._domains: dict[DomainName, list[Configuration]] = {manager.name: [manager.configuration]}
        self._loads: Counter[ServerId] = Counter()
        self._pending_since: dict[ConfigurationId, float] = {}
        self._silent: dict[DomainName, str] = {}
        self._stuck: dict[DomainName, _Stuck] = {}
        self._situation: object = None
        self._round_at = 0.0

    def sentence(self) -> str:
        """What it does now, else what is wrong, else what it did last."""
        absent = {server.id: self._watch.absent_s(server) for server in self._members() if not self._watch.is_here(server)}
        counted = ", ".join(f"{id} for {absent_s:.0f} s" for id, absent_s in sorted(absent.items()))
        waits = f"absent: {counted}; replaced after {self._duty.after_s:g} s" if counted else ""
        return self._bulletin.sentence(waits) or f"watches {len(self._book)} servers"

    async def fly(self) -> None:
        """Look every few seconds, and go round whenever something changed, until cancelled."""
        working: asyncio.Task[None] | None = None
        try:
            while True:
                await self._look()
                if working is not None and working.done():
                    working.result()
                    working = None
                if self._is_due() and working is None:
                    working = asyncio.create_task(self._round())
                await asyncio.sleep(self._duty.every_s)
        finally:
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _look(self) -> None:
        members = self._members()
        known = {server.id: server for server in members} | dict(self._book)
        described = await self._manager.describe(list(known.values()), brief=True)
        cluster = self._manager.configuration.cluster_id
        answers = {id: says.identity for id, says in described.items() if says.server == id and says.cluster == cluster}
        self._watch.look(self._loop.time(), answers, members)

    def _members(self) -> set[Server]:
        """Every member of a configuration in use."""
        return {server for active in self._domains.values() for configuration in active for server in configuration.servers}

    def _is_due(self) -> bool:
        """Whether something changed that a round might do something about, or the last one is long ago."""
        gone = {(server.id, server.identity) for server in self._members() if self._watch.is_gone(server)}
        self._bulletin.tell_gone(gone, self._duty.after_s)
        situation = (gone, self._watch.steady()) if gone else ()
        changed, self._situation = situation != self._situation, situation
        return changed or self._loop.time() - self._round_at >= min(self._duty.after_s, ROUND_S)

    async def _round(self) -> None:
        try:
            await self._look_up_all()
            self._loads = loads_of(self._domains.values())
            for domain in self._todo():
                await self._see_to(domain)
        finally:
            self._bulletin.end_round()
            self._round_at = self._loop.time()

    def _todo(self) -> list[DomainName]:
        """The domains for which something can be done, the most endangered first."""
        todo = []
        for domain, active in self._domains.items():
            verdict = self._judged(active)
            if len(active) == 1:
                self._stuck.pop(domain, None)
            if isinstance(verdict, Stuck):
                self._bulletin.trouble(verdict.why, domain)
            elif domain in self._silent:
                self._bulletin.trouble(self._silent[domain], domain)
            elif domain in self._stuck and self._loop.time() < self._stuck[domain].again_at:
                self._bulletin.trouble(self._stuck[domain].why, domain)
            elif not isinstance(verdict, Sound):
                todo.append(domain)
        return sorted(todo, key=lambda domain: urgency(self._domains[domain], self._watch))

    def _judged(self, active: list[Configuration]) -> Verdict:
        now = self._loop.time()
        lingering = {id for id, since in self._pending_since.items() if now - since >= self._duty.after_s}
        return judge(active, self._watch, Roster(self._book, self._loads, lingering))

    async def _look_up_all(self) -> None:
        """Which configurations every domain has. One that does not say keeps those that are known."""
        self._silent = {}
        names = set(self._domains)
        try:
            names |= {DomainName(name.removeprefix(DIRECTORY)) async for name in self._manager.list_named(DIRECTORY, LOOK_UP_S)}
        except AresError as error:
            self._silent[self._manager.name] = f"the domains cannot be listed: {error}"
        turn = asyncio.Semaphore(LOOK_UPS_AT_ONCE)

        async def ask(domain: DomainName) -> None:
            async with turn:
                trouble = await self._look_up(domain)
                if trouble:
                    self._silent[domain] = trouble

        await asyncio.gather(*map(ask, sorted(names)))
        now = self._loop.time()
        pending = [active[-1].id for active in self._domains.values() if len(active) > 1]
        self._pending_since = {id: self._pending_since.get(id, now) for id in pending}

    async def _look_up(self, domain: DomainName) -> str:
        """Why nothing new is known of it; empty: it is."""
        try:
            store = await self._manager.domain(domain, timeout_s=LOOK_UP_S)
            self._domains[domain], trouble = await store.run(look_up, "read-config", timeout_s=LOOK_UP_S)
        except AresError as error:
            return str(error)
        return trouble

    async def _see_to(self, domain: DomainName) -> None:
        def judged(active: list[Configuration]) -> Verdict:
            self._domains[domain] = active
            verdict = self._judged(active)
            self._bulletin.begin(domain, verdict)
            return verdict

        try:
            store = await self._manager.domain(domain)
            verdict, result = await store.run(lambda view: mend(view, judged, self._throttle), "repair", progress=self._bulletin.show)
        except ObjectsStuck as error:
            before = self._stuck.get(domain)
            wait_s = ROUND_S if before is None else min(2 * before.wait_s, STUCK_S_MAX)
            self._stuck[domain] = _Stuck(str(error), wait_s, self._loop.time() + wait_s)
            self._bulletin.trouble(str(error), domain)
            return
        except AresError as error:
            self._bulletin.trouble(f"{error}; it is tried again", domain)
            return
        self._stuck.pop(domain, None)
        if result is not None:
            self._domains[domain] = [result.configuration]
            if isinstance(verdict, Replace):
                self._loads.update(new.id for _, new in verdict.changes)
            self._bulletin.done(domain, verdict, result)
        elif isinstance(verdict, Stuck):
            self._bulletin.trouble(verdict.why, domain)
