"""The patrol which lets domains follow their users (ares/autopilot/following.py).

The patrol asks servers for the use of domains, and moves domains, in the leading member. The list
of following domains is kept beside the directory, in `default`. Domains move one after the other. A
move starts from the configuration that was looked at, or does not take place: a change made by
another client is never undone.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence

from ares.autopilot.following import (
    FOLLOW_MOVES,
    FOLLOW_MOVING,
    FollowDecision,
    FollowPolicy,
    ObservedUsage,
    usual,
)
from ares.autopilot.lookout import PatrolTools
from ares.client.store import ObjectStore
from ares.engine.effects import Operation
from ares.engine.phases import RECONFIGURE, phase
from ares.model.configuration import SERVERS_MAX, Configuration, Server
from ares.model.errors import AresError
from ares.model.identity import DomainName, ServerId
from ares.model.messages import USAGES_MAX, Description, FollowReport, Usage
from ares.model.numbers import plural
from ares.platform import tasks
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import ReconfigurationResult, advance
from ares.reconfig.traversal import read_config
from ares.reconfig.view import View

FOLLOW_LOOK_S = 1.0
"""Seconds between two questions to the servers of following domains."""

FOLLOW_LIST_S = 5.0
"""Seconds between two look-ups of the following domains and their configurations."""

FOLLOW_ASK_S = 2.0
FOLLOWING_MAX = 1000
"""Largest number of following domains; further domains, by name, stay at their servers."""

FOLLOWED_OPENED_AT_ONCE = 16
WHY_CHARACTERS_MAX = 300

Placed = Callable[[str, str, Configuration], Configuration]
"""A function for the configuration of a domain at a site.

Arguments: the site, the name, and the present configuration. Raises an :class:`AresError` if no
such configuration is possible.
"""

log = logging.getLogger(__name__)


class FollowPatrol:
    """The patrol of following domains, which acts only while ``leads()`` is true.

    ``manager`` stays open. ``sites``: the sites of servers. ``placed``: see :data:`Placed`.
    ``manner``: the way of moving data, shared with other movers.
    """

    def __init__(self, tools: PatrolTools, placed: Placed) -> None:
        self._lookout, self._manner = tools.lookout, tools.manner
        self._leads, self._counted = tools.leads, tools.counted
        self._manager, self._sites = tools.lookout.manager, tools.lookout.sites
        self._placed = placed
        self._loop = asyncio.get_running_loop()
        self._policy = FollowPolicy(
            tools.settings.follow_rest_s,
            tools.settings.follow_bytes_per_hour,
            gap_s=2 * FOLLOW_LOOK_S,
        )
        self._stores: dict[DomainName, ObjectStore] = {}
        self._beyond = 0
        self._listed_at = -math.inf
        self._decisions: dict[DomainName, tuple[str, FollowDecision]] = {}
        self._within_reach: dict[tuple[DomainName, str], str] = {}
        """Reason why a domain's servers at the users' site would not serve the domain; empty if
        none.
        """
        self._move: asyncio.Task[None] | None = None
        self._moving: DomainName | None = None

    def followed(self) -> tuple[FollowReport, ...]:
        """Return the decision about each domain, for a description."""
        shown = sorted(self._decisions.items())[:USAGES_MAX]
        return tuple(
            FollowReport(domain, site, decision.word, decision.why)
            for domain, (site, decision) in shown
        )

    def sentence(self) -> str:
        """Return a sentence about the present work; empty without following domains."""
        if not self._stores:
            return ""
        many = (
            f"{len(self._stores)} "
            f"domain{'s follow their' if len(self._stores) > 1 else ' follows its'} users"
        )
        beyond = f"{self._beyond} more do not: {FOLLOWING_MAX} at most can" if self._beyond else ""
        moving = f"{self._moving} moves to its users" if self._moving is not None else ""
        return "; ".join(filter(None, [moving, many, beyond]))

    async def run(self) -> None:
        """Look and move until cancelled."""
        try:
            while True:
                if self._leads():
                    await self._look()
                elif self._decisions:
                    self._stores, self._decisions, self._listed_at = {}, {}, -math.inf
                    self._policy.stand_down()
                if self._move is not None and (self._move.done() or not self._leads()):
                    await self._ended(self._move)
                await asyncio.sleep(FOLLOW_LOOK_S)
        finally:
            if self._move is not None:
                await self._ended(self._move)

    async def _ended(self, move: asyncio.Task[None]) -> None:
        """End a move.

        A cancelled move stays pending, and the leading member's autopilot finishes the move.
        """
        domain, self._move, self._moving = self._moving, None, None
        move.cancel()
        [outcome] = await asyncio.gather(move, return_exceptions=True)
        if domain is not None and isinstance(outcome, Exception):
            self._policy.failed(domain, tasks.MISTAKE)

    async def _look(self) -> None:
        now = self._loop.time()
        if now - self._listed_at >= self._lookout.list_every_s(FOLLOW_LIST_S):
            await self._list()
            self._listed_at = now
        self._policy.look(now, self._stores.keys())
        self._decisions = {
            domain: decision
            for domain, decision in self._decisions.items()
            if domain in self._stores
        }
        names, self._within_reach = sorted(self._stores), {}
        for first in range(0, len(names), USAGES_MAX):
            some = names[first : first + USAGES_MAX]
            usage, reached = await asyncio.gather(self._asked(some), self._reached(some))
            self._within_reach |= reached
            for domain in some:
                self._judge(domain, usage)

    async def _list(self) -> None:
        """Look up the following domains and their configurations.

        Unknown answers leave the last known state.
        """
        try:
            names = await self._manager.following(timeout_s=FOLLOW_ASK_S)
        except AresError as error:
            log.debug("the domains that follow their users cannot be listed: %s", error)
            return
        self._beyond = max(len(names) - FOLLOWING_MAX, 0)
        turn, found = asyncio.Semaphore(FOLLOWED_OPENED_AT_ONCE), dict[DomainName, ObjectStore]()

        async def look_up(name: str) -> None:
            async with turn:
                try:
                    store = await self._manager.domain(name, timeout_s=FOLLOW_ASK_S)
                    found[store.name] = store
                    await store.current(timeout_s=FOLLOW_ASK_S)
                except AresError as error:
                    log.debug("domain %s is not looked up: %s", name, error)

        await asyncio.gather(*map(look_up, names[:FOLLOWING_MAX]))
        self._stores = found

    async def _asked(self, names: Sequence[DomainName]) -> dict[DomainName, dict[ServerId, Usage]]:
        """Return the use of these domains as reported by their servers."""
        servers = {
            server.id: server
            for name in names
            for server in self._stores[name].configuration.servers
        }
        usage: dict[DomainName, dict[ServerId, Usage]] = {name: {} for name in names}
        for id, description in (await self._describe(servers, tuple(names))).items():
            for each in description.usage:
                if each.domain in usage:
                    usage[each.domain][id] = each
        return usage

    async def _reached(self, names: Sequence[DomainName]) -> dict[tuple[DomainName, str], str]:
        """Ask the servers to which these domains may move soon whether they answer."""
        wished: dict[tuple[DomainName, str], Configuration] = {}
        for name in names:
            _, decision = self._decisions.get(name, ("", None))
            if decision is not None and decision.to:
                with contextlib.suppress(AresError):
                    # `room` says why a site has no room for the domain
                    configuration = self._stores[name].configuration
                    wished[name, decision.to] = self._placed(decision.to, name, configuration)
        servers = {server.id: server for each in wished.values() for server in each.servers}
        answering = (await self._describe(servers, ())).keys()
        reached = {}
        for place, configuration in wished.items():
            here = len(answering & set(configuration.server_ids))
            few = f"only {here} of its {configuration.n} servers there answer, and "
            few += (
                f"{configuration.quorum_size} make a quorum: it does not move where it would stop"
            )
            reached[place] = few if here < configuration.quorum_size else ""
        return reached

    async def _describe(
        self, servers: Mapping[ServerId, Server], names: tuple[DomainName, ...]
    ) -> dict[ServerId, Description]:
        """Ask servers for their identity, and for the users of the domains ``names``."""
        known, found = list(servers.values()), dict[ServerId, Description]()
        groups = [known[first : first + SERVERS_MAX] for first in range(0, len(known), SERVERS_MAX)]

        async def ask(group: list[Server]) -> None:
            with contextlib.suppress(AresError):
                found.update(await self._manager.describe(group, brief=True, usage_of=names))

        await asyncio.gather(*map(ask, groups))
        return found

    def _judge(
        self, domain: DomainName, usage: Mapping[DomainName, Mapping[ServerId, Usage]]
    ) -> None:
        store = self._stores[domain]
        configuration = store.configuration
        reports = [usage[domain][id] for id in configuration.server_ids if id in usage[domain]]
        sites = {self._sites.get(id, "") for id in configuration.server_ids}
        site = sites.pop() if len(sites) == 1 else ""
        if domain == self._moving or store.pending:
            why = (
                "it moves there now"
                if domain == self._moving
                else "a move is under way or was left: the autopilot completes it"
            )
            self._decisions[domain] = site, FollowDecision(FOLLOW_MOVING, why)
            return
        per_s = usual(
            [{asked.site: asked.per_s for asked in each.asked} for each in reports], configuration.n
        )
        size = max((max(each.bytes, 0) for each in reports), default=0) * (
            configuration.k if configuration.dap == "ec" else 1
        )
        seen = ObservedUsage(site, per_s, size, answering=2 * len(reports) > configuration.n)
        decision = self._policy.judge(
            domain,
            seen,
            lambda to: self._no_room(to, configuration),
            lambda to: self._within_reach.get((domain, to), ""),
        )
        if decision.word == FOLLOW_MOVES and self._move is not None:
            decision = FollowDecision(FOLLOW_MOVING, f"{self._moving} moves first", decision.to)
        elif decision.word == FOLLOW_MOVES:
            self._moving = domain
            self._policy.begun(size)
            move = self._moved(store, configuration, decision, size)
            self._move = tasks.begin(move, "move of a domain to its users")
        self._decisions[domain] = site, decision

    def _no_room(self, site: str, configuration: Configuration) -> str:
        """Return why a site cannot hold the configuration; empty if possible.

        Redundancy is not given up for being near.
        """
        have = sum(there == site for there in self._sites.values())
        if have < configuration.n:
            return f"{site} has {have} servers, and it has {configuration.n} here"
        return ""

    async def _moved(
        self, store: ObjectStore, last: Configuration, decision: FollowDecision, size: int
    ) -> None:
        domain = store.name
        log.info(
            "domain %s moves to %s: %s",
            domain,
            decision.to,
            decision.why,
            extra={"domain": domain, "bytes": size},
        )
        try:
            wished = await self._manager.identified(self._placed(decision.to, domain, last))
            result = await store.run(lambda view: follow(view, last, wished, self._manner), "move")
        except AresError as error:
            log.warning(
                "domain %s does not move to %s: %s",
                domain,
                decision.to,
                error,
                extra={"domain": domain},
            )
            self._policy.failed(
                domain, f"the move to {decision.to} failed: {error}"[:WHY_CHARACTERS_MAX]
            )
            return
        if result is None:
            self._policy.failed(domain, "another client changed the configuration meanwhile")
            return
        self._policy.moved(domain, size, result.bytes)
        self._counted.follows += result.ours
        more = {
            "domain": domain,
            "index": result.configuration.index,
            "moved": result.moved,
            "bytes": result.bytes,
        }
        log.info(
            "domain %s is at %s, %s moved",
            domain,
            decision.to,
            plural(result.moved, "object"),
            extra=more,
        )


@phase(RECONFIGURE)
def follow(
    view: View, last: Configuration, wished: Configuration, manner: MoveOptions
) -> Operation[ReconfigurationResult | None]:
    """Move to ``wished`` if ``last`` is the only active configuration; else return None."""
    yield from read_config(view)
    if view.sequence.active != [last]:
        return None
    return (yield from advance(view, wished, manner))
