"""The autopilot: watches the servers from the leading consensus member, and replaces them.

ares/autopilot/judge.py decides. A single member leads at a time, hence a single autopilot works at
a time. Two may overlap when the leader changes; the overlap costs work and has no further effect. A
leader tells its counts to the members (ares/autopilot/handover.py), and a new leader continues the
counts.

A leader looks at the servers, asking each for its identity, and makes rounds. A round looks up
every domain and repairs the domains in need; some repairs run at once and share the bytes a second.
Looks and rounds run side by side, hence a long round is judged by the servers present now. Logs
have a patrol of their own (ares/autopilot/log_patrol.py), and mirrors, too
(ares/autopilot/mirror_patrol.py).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct

from ares.autopilot.follow_patrol import FollowPatrol, Placed
from ares.autopilot.handover import Member, Notebook, WatchCounts
from ares.autopilot.judge import (
    NO_COUNTS,
    Finish,
    NoAction,
    Replace,
    Roster,
    Stuck,
    Verdict,
    Watch,
    judge,
    loads_of,
    look_up,
    mend,
    urgency,
)
from ares.autopilot.log_patrol import LogPatrol
from ares.autopilot.lookout import Lookout, PatrolTools
from ares.autopilot.mirror_patrol import MirrorPatrol
from ares.client.domain_directory import DESCRIBE_S
from ares.client.shared_log import Log
from ares.cluster.tables import AutopilotSettings
from ares.consensus.port import NoNotes, Notes
from ares.metrics import AutopilotCounters
from ares.model.configuration import Configuration, Server
from ares.model.errors import AresError, ObjectsStuck
from ares.model.identity import DIRECTORY_PREFIX, ConfigurationId, DomainName, ServerId
from ares.model.messages import FollowReport
from ares.model.numbers import plural
from ares.platform import tasks
from ares.reconfig.mover import MoveOptions, Progress
from ares.reconfig.reconfigure import ReconfigurationResult
from ares.reconfig.throttle import Throttle

LEADS_S = 1.0
"""Longest time between two questions for the leader."""

LOOK_UP_S = 5.0
"""Seconds for a domain to tell the configurations."""

LOOK_UPS_AT_ONCE = 64
STUCK_S_MAX = 3600.0
"""Longest wait between two tries to move a domain with immovable objects.

The first wait is a round's time, and each wait is twice the last.
"""

ROUND_S = 60.0
"""Longest time between two rounds.

Another client may have made or moved domains, or left a domain in the middle of a move.
"""

DOMAINS_NAMED_MAX = 3
REPAIRS_AT_ONCE = 4
"""Domains repaired at once, so that a large domain or a repair at a standstill blocks no domain."""

CONFIRMING_LOOKS = 2
"""Least number of a leader's own looks before it acts, with any counts told by the last leader."""

log = logging.getLogger(__name__)


class Bulletin:
    """The autopilot's reports, in the log and in a sentence for `status`.

    Actions and troubles of successive rounds. A trouble is logged when new, and again when the
    trouble returns.
    """

    def __init__(self, counted: AutopilotCounters) -> None:
        self.counted = counted
        self._did = ""
        self._doing: dict[DomainName, str] = {}
        self._progress: dict[DomainName, Progress] = {}
        self._deeds: dict[str, list[DomainName]] = {}
        self._troubles: dict[str, list[DomainName]] = {}
        self._standing: dict[str, list[DomainName]] = {}
        self._gone: set[Member] = set()

    def sentence(self, absent: str) -> str:
        """Return the present actions, else the troubles or absent servers; and the last action."""
        if self._doing:
            shown = list(self._doing.values())[:DOMAINS_NAMED_MAX]
            more = len(self._doing) - len(shown)
            return "; ".join(shown + ([f"and {more} more"] if more else []))
        worries = [f"{why} ({_named(domains)})" for why, domains in self._standing.items()] or (
            [absent] if absent else []
        )
        return "; ".join([*worries, *([self._did] if self._did else [])])

    def log_gone(self, gone: set[Member], after_s: float) -> None:
        """Log the members that are newly gone."""
        for id, identity in sorted(gone - self._gone):
            log.warning(
                "%s is gone: for %g s it was silent, or without its memory",
                id,
                after_s,
                extra={"identity": identity},
            )
        self._gone = gone

    def begin(self, domain: DomainName, verdict: Verdict) -> None:
        """Note the start of a domain's repair."""
        match verdict:
            case Replace(wished, _, unfilled):
                action = f"replacing {verdict.describe()}" + (
                    f", without a spare for {', '.join(unfilled)}," if unfilled else ""
                )
            case Finish(wished):
                action = "completing a move that was left half done"
            case _:
                return
        self._doing[domain] = f"{_now()}: {action} in {domain}"
        log.warning(
            "%s in domain %s",
            action,
            domain,
            extra={"domain": domain, "servers": wished.server_ids},
        )

    def show(self, domain: DomainName, progress: Progress) -> None:
        """Note the progress of a domain's repair."""
        self._progress[domain] = progress
        self._count_progress()
        if (doing := self._doing.get(domain)) is not None:
            begun, _, _ = doing.partition("; ")
            self._doing[domain] = (
                f"{begun}; {progress.moved + progress.skipped} of {progress.total} objects seen "
                f"to, {progress.bytes} bytes moved"
            )

    def _count_progress(self) -> None:
        progress = self._progress.values()
        self.counted.seen = sum(each.moved + each.skipped for each in progress)
        self.counted.total = sum(each.total for each in progress)

    def _ended(self, domain: DomainName) -> None:
        """Forget the present action for a domain."""
        self._doing.pop(domain, None)

    def done(self, domain: DomainName, verdict: Verdict, result: ReconfigurationResult) -> None:
        """Note that a domain got its configuration."""
        self._ended(domain)
        own = (
            f"replaced {verdict.describe()}"
            if isinstance(verdict, Replace)
            else "completed a move that was left half done"
        )
        action = own if result.ours else "completed a move that another client decided"
        self.counted.done += 1
        self._deeds.setdefault(action, []).append(domain)
        deeds = [f"{action} in {_named(domains)}" for action, domains in self._deeds.items()]
        self._did = f"{_now()}: {', '.join(deeds)}"
        more = {
            "domain": domain,
            "index": result.configuration.index,
            "moved": result.moved,
            "bytes": result.bytes,
        }
        log.info(
            "done: %s in domain %s, %s moved",
            action,
            domain,
            plural(result.moved, "object"),
            extra=more,
        )

    def trouble(self, why: str, domain: DomainName) -> None:
        """Note that a domain needs an action which is impossible."""
        self._ended(domain)
        self._troubles.setdefault(why, []).append(domain)

    def end_round(self) -> None:
        """End a round: log new troubles and ended troubles."""
        for why, domains in self._troubles.items():
            if why not in self._standing:
                log.warning(
                    "nothing can be done for %s: %s",
                    _named(domains),
                    why,
                    extra={"domains": len(domains)},
                )
        for why in self._standing.keys() - self._troubles.keys():
            log.info("no longer true: %s", why)
        self._standing, self._troubles, self._deeds = self._troubles, {}, {}
        self._doing, self._progress = {}, {}
        self._count_progress()
        self.counted.troubled = sum(map(len, self._standing.values()))


def _named(domains: Sequence[DomainName]) -> str:
    shown = ", ".join(domains[:DOMAINS_NAMED_MAX])
    more = len(domains) - DOMAINS_NAMED_MAX
    return f"{shown} and {plural(more, 'more domain')}" if more > 0 else shown


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


class _Stuck(Struct, frozen=True):
    """A domain with immovable objects, and the time of the next try to move the rest."""

    why: str
    wait_s: float
    again_at: float


class _Patrol:
    """The work and the knowledge of the autopilot while its member leads."""

    def __init__(self, tools: PatrolTools) -> None:
        self._lookout, self._notebook, self._manner = tools.lookout, tools.notebook, tools.manner
        self._manager = manager = tools.lookout.manager
        self._book, self._sites = tools.lookout.book, tools.lookout.sites
        self._settings = settings = tools.settings
        self._inherited = NO_COUNTS
        self._loop = asyncio.get_running_loop()
        self._gap_s = settings.every_s + 3 * DESCRIBE_S
        self._confirm_s = CONFIRMING_LOOKS * settings.every_s
        self._watch = Watch(settings.after_s, self._gap_s, self._confirm_s)
        self._bulletin = Bulletin(tools.counted)
        self._domains: dict[DomainName, list[Configuration]] = {
            manager.name: [manager.configuration]
        }
        self._loads: Counter[ServerId] = Counter()
        self._pending_since: dict[ConfigurationId, float] = {}
        self._silent: dict[DomainName, str] = {}
        self._stuck: dict[DomainName, _Stuck] = {}
        self._situation: object = None
        self._round_at = 0.0
        self._turn = asyncio.Semaphore(REPAIRS_AT_ONCE)

    def sentence(self) -> str:
        """Return a sentence about the present action, else a trouble, else the last action."""
        absent = {
            server.id: self._watch.absent_s(server)
            for server in self._members()
            if not self._watch.is_here(server)
        }
        counted = ", ".join(f"{id} for {absent_s:.0f} s" for id, absent_s in sorted(absent.items()))
        waits = f"absent: {counted}; replaced after {self._settings.after_s:g} s" if counted else ""
        return self._bulletin.sentence(waits) or f"watches {len(self._book)} servers"

    async def run(self) -> None:
        """Look every few seconds, and make a round when something changed, until cancelled."""
        working: asyncio.Task[None] | None = None
        try:
            while True:
                await self._look()
                if working is not None and working.done():
                    working = None
                if self._is_due() and working is None:
                    working = tasks.begin(self._round(), "round of the autopilot")
                await asyncio.sleep(self._settings.every_s)
        finally:
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _look(self) -> None:
        members = self._members()
        known = {server.id: server for server in members} | dict(self._book)
        answers = await self._lookout.look(known.values(), known.values())
        self._inherited = self._notebook.counts(self._gap_s, self._settings.after_s)
        self._watch.look(self._loop.time(), answers, members, self._inherited)
        self._hand_over(members)
        self._bulletin.counted.absent = sum(not self._watch.is_here(server) for server in members)

    def _hand_over(self, members: Set[Server]) -> None:
        """Tell the members the counts, while a server is absent or a move pending."""
        counts, now = self._watch.counts(), self._loop.time()
        pending = {id: now - since for id, since in self._pending_since.items()}
        amiss = counts.absent or pending
        busy = {server.id for server in members}
        spares = {
            member: for_s for member, for_s in counts.present.items() if member[0] not in busy
        }
        handed = WatchCounts(counts.absent, spares, pending)
        self._notebook.hand_over(handed if amiss else NO_COUNTS)

    def _members(self) -> set[Server]:
        """Return every member of a configuration in use."""
        return {
            server
            for active in self._domains.values()
            for configuration in active
            for server in configuration.servers
        }

    def _is_due(self) -> bool:
        """Return whether a change calls for a round, or the last round is long ago."""
        gone = {
            (server.id, server.identity)
            for server in self._members()
            if self._watch.is_gone(server)
        }
        self._bulletin.log_gone(gone, self._settings.after_s)
        situation = (gone, self._watch.steady()) if gone else ()
        changed, self._situation = situation != self._situation, situation
        return changed or self._loop.time() - self._round_at >= min(self._settings.after_s, ROUND_S)

    async def _round(self) -> None:
        try:
            await self._look_up_all()
            self._loads = loads_of(self._domains.values())
            async with asyncio.TaskGroup() as repairs:
                for domain in self._todo():
                    await self._turn.acquire()
                    judged = asyncio.Event()
                    repair = repairs.create_task(self._see_to(domain, judged))
                    repair.add_done_callback(partial(self._next, judged))
                    await judged.wait()
        finally:
            self._bulletin.end_round()
            self._round_at = self._loop.time()

    def _next(self, judged: asyncio.Event, _: asyncio.Task[None]) -> None:
        """Let the next repair begin after a repair ended."""
        self._turn.release()
        judged.set()

    def _todo(self) -> list[DomainName]:
        """Return the domains that can be repaired, the most endangered first."""
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
            elif not isinstance(verdict, NoAction):
                todo.append(domain)
        return sorted(todo, key=lambda domain: urgency(self._domains[domain], self._watch))

    def _judged(self, active: list[Configuration]) -> Verdict:
        now = self._loop.time()
        lingering = {
            id for id, since in self._pending_since.items() if now - since >= self._settings.after_s
        }
        return judge(active, self._watch, Roster(self._book, self._loads, lingering, self._sites))

    async def _look_up_all(self) -> None:
        """Look up the configurations of every domain.

        A silent domain keeps the known configurations.
        """
        self._silent = {}
        names = set(self._domains)
        try:
            names |= {
                DomainName(name.removeprefix(DIRECTORY_PREFIX))
                async for name in self._manager.list_named(DIRECTORY_PREFIX, LOOK_UP_S)
            }
        except AresError as error:
            self._silent[self._manager.name] = f"the domains cannot be listed: {error}"
        turn = asyncio.Semaphore(LOOK_UPS_AT_ONCE)

        async def ask(domain: DomainName) -> None:
            async with turn:
                try:
                    store = await self._manager.domain_or_log(domain, timeout_s=LOOK_UP_S)
                    if isinstance(store, Log):  # the patrol of logs sees to logs
                        return
                    self._domains[domain], trouble = await store.run(
                        look_up, "read-config", timeout_s=LOOK_UP_S
                    )
                except AresError as error:
                    trouble = str(error)
            if trouble:
                self._silent[domain] = trouble

        await asyncio.gather(*map(ask, sorted(names)))
        now = self._loop.time()
        pending = [active[-1].id for active in self._domains.values() if len(active) > 1]
        inherited_s_max = max(self._settings.after_s - self._confirm_s, 0.0)
        inherited_s = {
            id: min(self._inherited.pending.get(id, 0.0), inherited_s_max) for id in pending
        }
        self._pending_since = {
            id: self._pending_since.get(id, now - inherited_s[id]) for id in pending
        }

    async def _see_to(self, domain: DomainName, decided: asyncio.Event) -> None:
        """Repair a domain; set ``decided`` as soon as its servers are chosen."""

        def judged(active: list[Configuration]) -> Verdict:
            self._domains[domain] = active
            verdict = self._judged(active)
            self._bulletin.begin(domain, verdict)
            if isinstance(verdict, Replace):
                self._loads.update(new.id for _, new in verdict.changes)
            decided.set()
            return verdict

        try:
            store = await self._manager.domain_or_log(domain)
            assert not isinstance(store, Log), "a domain that was looked up here holds objects"
            verdict, result = await store.run(
                lambda view: mend(view, judged, self._manner),
                "repair",
                progress=partial(self._bulletin.show, domain),
            )
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
            self._bulletin.done(domain, verdict, result)
        elif isinstance(verdict, Stuck):
            self._bulletin.trouble(verdict.why, domain)


async def _end(works: Sequence[asyncio.Task[None]]) -> None:
    for task in works:
        task.cancel()
    await asyncio.gather(*works, return_exceptions=True)


class Autopilot:
    """The autopilot of a member, which works while ``leads()`` is true.

    ``lookout``: its manager is used by the autopilot alone, which closes it. ``placed``: gives a
    domain's configuration at a site; None: no domain follows its users. ``notes``: the exchange of
    counts among members; None: this member is alone.
    """

    def __init__(
        self,
        lookout: Lookout,
        leads: Callable[[], bool],
        settings: AutopilotSettings,
        placed: Placed | None = None,
        notes: Notes | None = None,
    ) -> None:
        self._lookout, self._leads, self._settings = lookout, leads, settings
        self._patrol: _Patrol | None = None
        self._of_mirrors: MirrorPatrol | None = None
        self.counted = AutopilotCounters()
        self._tools = PatrolTools(
            lookout,
            leads,
            settings,
            MoveOptions(Throttle(settings.bytes_per_s), transfer=settings.transfer),
            self.counted,
            Notebook(notes or NoNotes()),
        )
        self._of_logs = LogPatrol(self._tools)
        self._follows = None if placed is None else FollowPatrol(self._tools, placed)

    def sentence(self) -> str:
        """Return a sentence about the present or the last action."""
        if self._patrol is None or self._of_mirrors is None:
            return "ready, for when this member leads"
        follows = self._follows.sentence() if self._follows is not None else ""
        return "; ".join(
            filter(
                None,
                [
                    self._patrol.sentence(),
                    self._of_logs.sentence(),
                    follows,
                    self._of_mirrors.sentence(),
                ],
            )
        )

    def followed(self) -> tuple[FollowReport, ...]:
        """Return the decisions about following domains; empty while another member leads."""
        return self._follows.followed() if self._follows is not None else ()

    async def run(self) -> None:
        """Work whenever this member leads, until cancelled."""
        works = [
            tasks.keep(self._work, "autopilot"),
            tasks.keep(self._of_logs.run, "autopilot of logs"),
        ]
        if self._follows is not None:
            works.append(tasks.keep(self._follows.run, "autopilot of domains that follow"))
        try:
            await asyncio.wait(works)
        finally:
            await _end(works)
            await self._lookout.manager.close()

    async def _work(self) -> None:
        while True:
            if self._leads():
                await self._lead()
            await asyncio.sleep(min(self._settings.every_s, LEADS_S))

    async def _lead(self) -> None:
        """Work until another member leads.

        A reconfiguration cut off by the change is pending; the next leader finishes it.
        """
        log.info(
            "this member leads: its autopilot watches %d servers",
            len(self._lookout.book),
            extra={"after_s": self._settings.after_s},
        )
        self._patrol = _Patrol(self._tools)
        self._of_mirrors = MirrorPatrol(self._lookout, self._settings)
        works = [
            tasks.keep(self._patrol.run, "patrol of domains"),
            tasks.keep(self._of_mirrors.run, "patrol of mirrors"),
        ]
        try:
            while self._leads():
                await asyncio.wait(works, timeout=min(self._settings.every_s, LEADS_S))
        finally:
            self._patrol = self._of_mirrors = None
            await _end(works)
            self.counted.absent = self.counted.troubled = self.counted.seen = self.counted.total = 0
        log.info("the autopilot here rests")
