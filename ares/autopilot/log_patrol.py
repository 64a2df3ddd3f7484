"""The autopilot's watch over logs, which looks more often than the watch over objects.

A single silent server stops the appends of its chain.

Every server of a chain is asked for its identity, four times in ``log_after_s``; a server at
another site less often (ares/autopilot/lookout.py). A server without an answer for ``log_after_s``,
in three looks or more, is gone (ares/autopilot/judge.py decides the action). A server that was slow
for a moment stays. A server that was left out comes back, if a spare is needed, after answering for
``after_s``, and for twice as long after each further time: a server which comes and goes does not
move logs.

Seals without a decision and unfinished moves are found by asking the nodes of each log, once a
second, or at a rate of a hundred logs a second. A new leader does not know the length of a chain
before a server was lost: a chain of two servers gets a third, unless the log began with this chain.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from ares.autopilot.judge import FinishMove, ObservedLog, Reform, Stuck, Watch, judge_log
from ares.autopilot.lookout import REMOTE_LIST_S, PatrolTools
from ares.client.shared_log import Log
from ares.model.configuration import Configuration, Server
from ares.model.errors import AresError, DomainNotFound
from ares.model.identity import (
    DIRECTORY_PREFIX,
    FILE_DOMAINS,
    ConfigurationId,
    DomainName,
    ServerId,
)
from ares.model.numbers import plural
from ares.platform import tasks

LOOKS = 4
"""Looks at the servers in ``log_after_s``."""

INSPECT_EVERY_S_MIN = 1.0
INSPECTED_A_SECOND = 100
IDLE_TIMES = 5
"""Factor by which members inspect chains less often while another member leads."""

LOGS_LIST_S = 10.0
"""Seconds between two look-ups of the names of logs."""

LOG_ASK_S = 2.0
ACT_S = 10.0
LOG_RETRY_S = 1.0
LOG_RETRY_S_MAX = 30.0
LENGTH_MIN = 3
LOGS_AT_ONCE = 16
LEFT_OUT_S = 6 * 3600.0
"""Age in seconds up to which a server's being left out counts."""

log = logging.getLogger(__name__)


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


class _WatchedLog(Struct):
    """A log under watch.

    ``length``: the wished number of servers in the chain, as decided for ``chain``. ``sealed_at``
    and ``pending_at``: since when the last chain is sealed or pending. ``task``: the present
    action. ``finishing``: the action is to finish a move. ``again_at``: the earliest time to repeat
    the action of a ``failure``.
    """

    store: Log
    active: list[Configuration]
    chain: ConfigurationId
    length: int
    sealed_at: float | None = None
    pending_at: float | None = None
    task: asyncio.Task[None] | None = None
    finishing: bool = False
    failure: type = type(None)
    again_at: float = 0.0
    wait_s: float = LOG_RETRY_S
    trouble: str = ""
    inspected_at: float = -math.inf


class LogPatrol:
    """The patrol of logs, which watches in every member and acts while ``leads()`` is true.

    Hence the next leader knows at once which near servers are gone. ``manager`` stays open.
    ``book``: the servers of the cluster file. ``sites``: the sites of servers.
    """

    def __init__(self, tools: PatrolTools) -> None:
        self._lookout, self._notebook = tools.lookout, tools.notebook
        self._leads, self._counted = tools.leads, tools.counted
        self._manager = tools.lookout.manager
        self._book, self._sites = tools.lookout.book, tools.lookout.sites
        self._settings = settings = tools.settings
        self._loop = asyncio.get_running_loop()
        self._pace_s = settings.log_after_s / LOOKS
        self._watch = Watch(settings.log_after_s, gap_s=2 * self._pace_s)
        self._steady = Watch(settings.after_s, gap_s=2 * self._pace_s)
        self._logs: dict[DomainName, _WatchedLog] = {}
        self._others: set[DomainName] = set()
        self._left_out: list[tuple[float, ServerId]] = []
        self._turn = asyncio.Semaphore(LOGS_AT_ONCE)
        self._reformed = self._moved = ""

    def sentence(self) -> str:
        """Return sentences about troubles, present actions and last actions; empty without logs."""
        if not self._logs:
            return ""
        troubles = Counter(each.trouble for each in self._logs.values() if each.trouble)
        troubled = [
            f"{why} ({self._named(lambda each, why=why: each.trouble == why)})"  # type: ignore[misc]
            for why in troubles
        ]
        if finishing := self._named(lambda each: each.task is not None and each.finishing):
            troubled.append(f"older entries move to the new chain ({finishing})")
        absent = {
            server.id for server in self._members() if self._watch.absent_s(server) > self._pace_s
        }
        if absent and not troubled:
            troubled.append(
                f"absent from chains: {', '.join(sorted(absent))}; left out after "
                f"{self._settings.log_after_s:g} s"
            )
        if short := self._named(lambda each: each.active[-1].n < each.length):
            troubled.append(
                "a chain is shorter than it was, until a spare has answered for "
                f"{self._settings.after_s:g} s or more ({short})"
            )
        return (
            "; ".join(filter(None, [*troubled, self._reformed, self._moved]))
            or f"watches {plural(len(self._logs), 'log')}"
        )

    def _named(self, chosen: Callable[[_WatchedLog], bool]) -> str:
        names = [name for name, each in self._logs.items() if chosen(each)]
        return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

    async def run(self) -> None:
        """Look, and act while this member leads, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._inspect_for_ever())
                while True:
                    begun = self._loop.time()
                    self._lookout.alarms = self._notebook.alarms()
                    await self._look()
                    leads = self._leads()
                    for name, each in self._logs.items():
                        if leads:
                            self._see_to(name, each)
                        elif each.task is not None:  # the next leader finishes pending moves
                            each.task.cancel()
                    self._notebook.raise_alarm("" if leads else self._alarm())
                    if not leads:
                        await self._forget_remote()
                    self._counted.troubled_logs = (
                        sum(bool(each.trouble) for each in self._logs.values()) if leads else 0
                    )
                    await asyncio.sleep(max(begun + self._pace_s - self._loop.time(), 0.01))
        finally:
            self._counted.troubled_logs = 0
            working = [each.task for each in self._logs.values() if each.task is not None]
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    # -- looks -------------------------------------------------------------------------------------

    def _members(self) -> set[Server]:
        """Return the servers of chains; in a member that does not lead, the near servers."""
        return {
            server
            for each in self._logs.values()
            for chain in each.active
            for server in chain.servers
            if self._leads() or self._lookout.is_near(server.id)
        }

    def _alarm(self) -> str:
        """Return the member's site, if a log at this site needs the leader; else an empty text."""
        amiss = any(self._watch.absent_s(server) > 0 for server in self._members()) or any(
            each.sealed_at is not None or each.pending_at is not None
            for each in self._logs.values()
        )
        return self._lookout.site if amiss else ""

    async def _forget_remote(self) -> None:
        """Close the logs without a near server, which the leader watches."""
        for name, each in list(self._logs.items()):
            if each.task is not None and each.task.done():
                each.task = None
            near = any(map(self._lookout.is_near, each.active[-1].server_ids))
            if not near and each.task is None:
                del self._logs[name]
                await each.store.close()

    async def _look(self) -> None:
        if not self._logs:
            return
        members = self._members()
        known = {server.id: server for server in members}
        known |= {
            id: server
            for id, server in self._book.items()
            if self._leads() or self._lookout.is_near(id)
        }
        answers = await self._lookout.look(known.values(), members, self._pace_s)
        for watch in (self._watch, self._steady):
            watch.look(self._loop.time(), answers, members)

    async def _inspect_for_ever(self) -> None:
        listed_at = float("-inf")
        led = False
        while True:
            begun, leads = self._loop.time(), self._leads()
            every_s = self._lookout.list_every_s(LOGS_LIST_S) if leads else LOGS_LIST_S
            if begun - listed_at >= every_s or leads > led:
                listed_at = begun
                await self._list()
            led = leads
            due = [each for each in self._logs.values() if self._is_due(each, begun)]
            await asyncio.gather(*map(self._inspect, due))
            every_s = max(INSPECT_EVERY_S_MIN, len(self._logs) / INSPECTED_A_SECOND) * (
                1 if leads else IDLE_TIMES
            )
            await asyncio.sleep(max(begun + every_s - self._loop.time(), 0.05))

    def _is_due(self, each: _WatchedLog, now: float) -> bool:
        """Return whether a log's nodes are asked now.

        Nodes at other sites are asked seldom, if all is well.
        """
        chain = each.active[-1]
        amiss = each.sealed_at is not None or each.pending_at is not None
        often = amiss or self._lookout.has_near(chain) or self._lookout.has_alarm(chain)
        return often or now - each.inspected_at >= REMOTE_LIST_S

    async def _list(self) -> None:
        """Find new logs: all logs in the leader, the logs of the member's site elsewhere."""
        try:
            if self._leads() or not self._lookout.site:
                names = [
                    DomainName(name.removeprefix(DIRECTORY_PREFIX))
                    async for name in self._manager.list_named(DIRECTORY_PREFIX, LOG_ASK_S)
                ]
            else:
                names = await self._lookout.logs_near()
        except AresError:  # the other patrol reports this error
            return
        for name in names:
            if name in self._logs or name in self._others or name.startswith(FILE_DOMAINS):
                continue
            try:
                store = await self._manager.domain_or_log(name, timeout_s=LOG_ASK_S)
            except (AresError, DomainNotFound) as error:
                log.debug("domain %s is not opened: %s", name, error)
                continue
            if isinstance(store, Log):
                first = store.configuration
                self._logs[name] = _WatchedLog(store, [first], first.id, first.n)
            else:
                self._others.add(name)

    async def _inspect(self, each: _WatchedLog) -> None:
        """Take the answers of a log's nodes. With too few answers the known state stays."""
        if each.task is not None and not each.finishing:
            return
        each.inspected_at = self._loop.time()
        async with self._turn:
            try:
                sealed = await each.store.run_step(
                    lambda reconfiguration: reconfiguration.inspect(), "inspection", LOG_ASK_S
                )
            except AresError:
                return
        self._note(each, sealed)

    def _note(self, each: _WatchedLog, sealed: bool) -> None:
        now, before = self._loop.time(), each.active[-1]
        each.active = [each.store.configuration, *each.store.pending]
        last = each.active[-1]
        same = last == before
        each.sealed_at = (
            (each.sealed_at if same and each.sealed_at is not None else now) if sealed else None
        )
        each.pending_at = (
            (each.pending_at if same and each.pending_at is not None else now)
            if len(each.active) > 1
            else None
        )
        if last.id != each.chain:  # a chain decided by another client
            each.chain, each.length = last.id, max(last.n, LENGTH_MIN if last.index else 0)

    # -- actions -----------------------------------------------------------------------------------

    def _see_to(self, name: DomainName, each: _WatchedLog) -> None:
        now = self._loop.time()
        if each.task is not None and each.task.done():
            ended, each.task = each.task, None
            if not ended.cancelled() and ended.exception() is not None:
                failed = FinishMove if each.finishing else Reform
                self._failed(name, each, AresError(tasks.MISTAKE), failed)
        if each.task is not None and not each.finishing:
            return
        since = [now - at if at is not None else 0.0 for at in (each.sealed_at, each.pending_at)]
        seen = ObservedLog(each.active, each.length, *since)
        verdict = judge_log(
            seen, self._watch, self._settings.log_after_s, self._spares(each.active[-1])
        )
        if isinstance(verdict, each.failure) and now < each.again_at:
            return
        match verdict:
            case Reform():
                if each.task is not None:
                    each.task.cancel()
                each.finishing, each.task = (
                    False,
                    tasks.begin(self._reform(name, each, verdict), "repair of a log"),
                )
            case FinishMove(target):
                if each.task is None:
                    each.finishing, each.task = (
                        True,
                        tasks.begin(self._finish(name, each, target), "end of a log's move"),
                    )
            case Stuck(why):
                self._log_trouble(name, each, why)
            case _ if each.task is None:
                each.trouble = ""

    def _spares(self, chain: Configuration) -> list[Server]:
        """Return reliable servers under their present identities, the least loaded first.

        The servers are at the sites of the servers of ``chain`` that are gone; if no server is
        gone, at the sites of all servers of ``chain``.
        """
        now = self._loop.time()
        self._left_out = [(at, id) for at, id in self._left_out if now - at < LEFT_OUT_S]
        steady = self._steady.steady(Counter(id for _, id in self._left_out))
        loads = Counter(id for each in self._logs.values() for id in each.active[-1].server_ids)
        gone = [
            server.id
            for server in chain.servers
            if self._watch.is_gone(server) and server.id in self._book
        ]
        sites = {self._sites.get(id) for id in gone or chain.server_ids}
        there = [id for id in steady if id in self._book and self._sites.get(id) in sites]
        return [
            replace(self._book[id], identity=steady[id])
            for id in sorted(there, key=lambda id: (loads[id], id))
        ]

    async def _reform(self, name: DomainName, each: _WatchedLog, verdict: Reform) -> None:
        log.warning(
            "log %s: %s",
            name,
            verdict.describe(),
            extra={"domain": name, "servers": verdict.wished.server_ids},
        )
        try:
            async with self._turn:
                replaced = each.store.run_step(
                    lambda reconfiguration: reconfiguration.replace_chain(
                        verdict.last, verdict.wished
                    ),
                    "repair",
                    ACT_S,
                )
                chain = await replaced
        except AresError as error:
            self._failed(name, each, error, Reform)
            return
        each.trouble, each.wait_s = "", LOG_RETRY_S
        length = each.length
        self._note(each, False)
        if chain is None or chain.servers != verdict.wished.servers:
            log.info("log %s: another client's chain was decided first", name)
            return
        each.chain, each.length = chain.id, length
        # this patrol has to finish the move
        each.pending_at = self._loop.time() - self._settings.log_after_s
        now = self._loop.time()
        self._left_out += [(now, id) for id in verdict.gone]
        self._counted.done += 1
        self._reformed = f"{_now()}: log {name}: {verdict.describe()}"
        more = {
            "domain": name,
            "index": chain.index,
            "start": chain.start,
            "servers": chain.server_ids,
        }
        log.info("log %s takes appends again, from position %d on", name, chain.start, extra=more)

    async def _finish(self, name: DomainName, each: _WatchedLog, target: Configuration) -> None:
        try:
            await each.store.run_step(
                lambda reconfiguration: reconfiguration.finish_move(target), "repair", ACT_S
            )
        except AresError as error:
            self._failed(name, each, error, FinishMove)
            return
        each.trouble, each.wait_s = "", LOG_RETRY_S
        self._note(each, False)
        self._moved = f"{_now()}: log {name}: chain {target.index} has all older entries"
        log.info(
            "log %s: chain %d has all older entries, and the chains before it are collected",
            name,
            target.index,
            extra={"domain": name},
        )

    def _failed(self, name: DomainName, each: _WatchedLog, error: AresError, what: type) -> None:
        each.failure = what
        each.again_at = self._loop.time() + each.wait_s
        each.wait_s = min(2 * each.wait_s, LOG_RETRY_S_MAX)
        self._log_trouble(name, each, f"{error}; it is tried again")

    def _log_trouble(self, name: DomainName, each: _WatchedLog, why: str) -> None:
        if why != each.trouble:
            log.warning("nothing can be done for log %s: %s", name, why, extra={"domain": name})
        each.trouble = why
