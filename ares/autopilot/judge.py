"""Which servers are gone, when to reconfigure, and into what: a domain whose servers are gone gets others in their places. Time is an argument.

A member of a configuration is a server *and* the identity that the configuration names: one that answers under another identity has lost what it
held, and is as gone as one that is silent. Absence counts only while the autopilot looks, and looks for that member: a watcher that stood still
itself, or has only just learnt of a member, must not take it for gone.

ARES II leaves this open (section 8). The answer here is a plain one: whatever was chosen for the domain stays (algorithm, n, k, delta), members that
are well keep their positions, and each one that is gone for long is replaced: by itself, if it is back and has lost its memory, else by the spare
that serves the fewest domains. Nothing is begun that could get stuck: a quorum of every configuration that data is moved from answers, and so does
every new member.

An autopilot that decides so need not be the only one, nor right: what follows a configuration is for the consensus service to decide, and a wish is
made for one place only. If another decision was first, that one is completed.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from ares.autopilot.handover import Member, WatchCounts
from ares.model.configuration import Configuration, Server
from ares.model.errors import Uncertain
from ares.model.identity import DEFAULT_DOMAIN, ConfigurationId, ServerId
from ares.operation.effects import Operation
from ares.reconfig.mover import Manner
from ares.reconfig.reconfigure import Reconfigured, advance, install
from ares.reconfig.traversal import read_config
from ares.reconfig.view import View

STEADY_S_MAX = 3600.0
NOTHING_TOLD = WatchCounts()


class Watch:
    """A member that was absent for ``after_s`` is gone; a server that answered without a break for so long may be relied on.

    ``gap_s``: how much of the time between two looks counts at most. A member counts as absent since it last answered, or since it is
    asked for without a break, if that is later; one that the last look did not ask for is not absent, as far as is known.

    What another watcher has ``told`` is continued for a member that this watch has not heard yet.
    It counts for ``confirm_s`` less than ``after_s`` at most: this watch looks for so long itself,
    whatever is told.
    """

    def __init__(self, after_s: float, gap_s: float, confirm_s: float = math.inf) -> None:
        self._after_s = after_s
        self._gap_s = gap_s
        self._told_s_max = max(after_s - confirm_s, 0.0)
        self._heard: set[Member] = set()
        self._looked_at: float | None = None
        self._watched_s = 0.0
        self._answers: Mapping[ServerId, str] = {}
        self._since_s: dict[Member, float] = {}
        self._absent_since_s: dict[Member, float] = {}

    def look(
        self,
        now: float,
        answers: Mapping[ServerId, str],
        asked: Iterable[Server],
        told: WatchCounts = NOTHING_TOLD,
    ) -> None:
        """Note which servers answered at ``now``, each under its identity, and no others.

        ``asked``: the members that were to answer. ``told``: what other watchers counted.
        """
        if self._looked_at is not None:
            self._watched_s += min(max(now - self._looked_at, 0.0), self._gap_s)
        self._looked_at = now
        self._answers = dict(answers)
        self._since_s = {
            member: min(
                self._since_s.get(member, self._watched_s), self._told_since(told.present, member)
            )
            for member in answers.items()
        }
        self._heard.update(answers.items())
        members = ((server.id, server.identity) for server in asked)
        self._absent_since_s = {
            (id, identity): self._watched_s
            if answers.get(id) == identity
            else min(
                self._absent_since_s.get((id, identity), self._watched_s),
                self._told_since(told.absent, (id, identity)),
            )
            for id, identity in members
        }

    def _told_since(self, told: Mapping[Member, float], member: Member) -> float:
        """Return since when something is so of a member that was not heard here, as it is told."""
        told_s = told.get(member, 0.0)
        counts = told_s > 0 and member not in self._heard
        return self._watched_s - min(told_s, self._told_s_max) if counts else math.inf

    def counts(self) -> WatchCounts:
        """Return what this watch counted, for the next watcher."""
        absent = {
            member: self._watched_s - since_s
            for member, since_s in self._absent_since_s.items()
            if self._answers.get(member[0]) != member[1]
        }
        present = {member: self._watched_s - since_s for member, since_s in self._since_s.items()}
        return WatchCounts(absent, present)

    def is_here(self, server: Server) -> bool:
        """Whether it answered the last look, as the one that is meant."""
        return self._answers.get(server.id) == server.identity

    def absent_s(self, server: Server) -> float:
        """For how long it has not answered as the one that is meant, although it was asked for; 0 if it did, or was not."""
        return (
            0.0
            if self.is_here(server)
            else self._watched_s
            - self._absent_since_s.get((server.id, server.identity), self._watched_s)
        )

    def is_gone(self, server: Server) -> bool:
        """Whether that is too long."""
        return not self.is_here(server) and self.absent_s(server) >= self._after_s

    def is_returning(self, server: Server) -> bool:
        """Whether it answers under another identity, and may soon be relied on. Not for ever: one that starts over and over is no help."""
        return (
            server.id in self._answers
            and not self.is_here(server)
            and self.absent_s(server) < 2 * self._after_s
        )

    def steady(self, doubled: Mapping[ServerId, int] = MappingProxyType({})) -> dict[ServerId, str]:
        """The servers that may be relied on, and the identities under which they answered the last look.

        ``doubled``: those that must have answered for twice as long, as often as this says; an hour at most.
        """
        needed_s = {
            id: max(self._after_s, min(self._after_s * 2**times, STEADY_S_MAX))
            for id, times in doubled.items()
        }
        return {
            id: identity
            for (id, identity), since_s in self._since_s.items()
            if self._watched_s - since_s >= needed_s.get(id, self._after_s)
        }


class Sound(Struct, frozen=True):
    """Nothing to do, or nothing yet."""


class Finish(Struct, frozen=True):
    """``target`` was decided and left: complete it."""

    target: Configuration


class Replace(Struct, frozen=True):
    """``wished`` in place of the last configuration. ``changes``: pairs of who goes and who comes. ``unfilled``: gone, with no spare left."""

    wished: Configuration
    changes: tuple[tuple[Server, Server], ...]
    unfilled: tuple[ServerId, ...]

    def describe(self) -> str:
        """For a person: ``s3 by s5``."""
        return ", ".join(
            f"{gone.id} by {'itself, which lost its memory' if gone.id == new.id else new.id}"
            for gone, new in self.changes
        )


class Stuck(Struct, frozen=True):
    """Something should be done and cannot be."""

    why: str


Verdict = Sound | Finish | Replace | Stuck


class Roster(Struct, frozen=True):
    """``book``: the servers of the cluster file. ``loads``: how many domains each server serves.

    ``lingering``: configurations that have been pending for long. ``sites``: where servers are, of those that say it.
    """

    book: Mapping[ServerId, Server]
    loads: Mapping[ServerId, int]
    lingering: Set[ConfigurationId]
    sites: Mapping[ServerId, str] = {}

    def site_of(self, server: Server, configuration: Configuration) -> str | None:
        """Where a spare for it has to be: at its site, or, if the cluster file does not have it any more, at that of most other members."""
        others = [
            self.sites.get(member.id) for member in configuration.servers if member.id in self.book
        ]
        return (
            self.sites.get(server.id)
            if server.id in self.book or not others
            else Counter(others).most_common(1)[0][0]
        )


def one_of(names: Sequence[str]) -> str:
    """Name the server, or say that it is one of several."""
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def judge(active: list[Configuration], watch: Watch, roster: Roster) -> Verdict:
    """What to do for a domain with these active configurations: the last finalized one, and what is to follow it."""
    target = active[-1]
    gone = [server for server in target.servers if watch.is_gone(server)]
    pending = len(active) > 1
    if not gone and not (pending and target.id in roster.lingering):
        return Sound()
    for configuration in active:
        absent = [server.id for server in configuration.servers if not watch.is_here(server)]
        if configuration.n - len(absent) < configuration.quorum_size:
            present = f"only {configuration.n - len(absent)} of {configuration.n} servers answer, and {configuration.quorum_size} make a quorum"
            return Stuck(f"{present}: {one_of(absent)} must come back")
    if pending and target.id not in roster.lingering:
        return Sound()  # somebody is at it
    if not gone:
        return Finish(target)
    changes = _changes(target, gone, watch, roster)
    if not changes and all(map(watch.is_returning, gone)):
        return Sound()
    if not changes:
        names = ", ".join(server.id for server in gone)
        there = " at its site" if any(roster.site_of(server, target) for server in gone) else ""
        return Stuck(
            f"no spare for {names}: every other server of the cluster file{there} is down, or a member already"
        )
    unfilled = tuple(server.id for server in gone if server not in changes)
    servers = tuple(changes.get(server, server) for server in target.servers)
    return Replace(
        replace(target, servers=servers, certificate=b""), tuple(changes.items()), unfilled
    )


def _changes(
    target: Configuration, gone: list[Server], watch: Watch, roster: Roster
) -> dict[Server, Server]:
    """Who comes for whom: those that lost their memory for themselves, then spares of the same site, those with the fewest domains first."""
    steady = watch.steady()
    changes = {
        server: replace(roster.book.get(server.id, server), identity=steady[server.id])
        for server in gone
        if server.id in steady
    }
    members = set(target.server_ids)
    spares = sorted(
        (id for id in roster.book if id in steady and id not in members),
        key=lambda id: (roster.loads.get(id, 0), id),
    )
    for server in gone:
        spare = next(
            (id for id in spares if roster.sites.get(id) == roster.site_of(server, target)), None
        )
        if spare is not None and server not in changes and not watch.is_returning(server):
            spares.remove(spare)
            changes[server] = replace(roster.book[spare], identity=steady[spare])
    return changes


class FinishMove(Struct, frozen=True):
    """``target``, a chain, was decided to follow, and is not finalized: see to that."""

    target: Configuration


class Reform(Struct, frozen=True):
    """Another chain in place of ``last``, whose appends stand still or which is shorter than it was. ``gone``, ``new``: who goes, and who comes."""

    last: Configuration
    wished: Configuration
    gone: tuple[ServerId, ...]
    new: tuple[ServerId, ...]

    def describe(self) -> str:
        """For a person: ``chain s0 s1 s2 becomes s0 s2: s1 is gone``."""
        told = [f"{id} is gone" for id in self.gone] + [f"{id} comes in" for id in self.new]
        chains = [" ".join(chain.server_ids) for chain in (self.last, self.wished)]
        return f"chain {chains[0]} becomes {chains[1]}: {', '.join(told) or 'it was sealed, and nobody decided what comes next'}"


class LogSeen(Struct, frozen=True):
    """A log. ``active``: its last finalized chain and what follows. ``length``: how many servers its chain is to have.

    ``sealed_s``: for how long the last chain has been seen sealed with nothing decided; ``pending_s``: for how long it has not been finalized.
    """

    active: Sequence[Configuration]
    length: int
    sealed_s: float = 0.0
    pending_s: float = 0.0


def judge_log(
    seen: LogSeen, watch: Watch, after_s: float, spares: Sequence[Server]
) -> Sound | Stuck | FinishMove | Reform:
    """What to do for a log. One node that is gone stops the appends of its chain: it is left out, or the first of the ``spares`` is in its place.

    A node that is silent, and not yet gone, is waited for: it is neither left out nor relied on. Nothing is sealed unless a majority is there to seal
    it, and everybody who is to go on. A chain gets longer only when nothing else moves. Newcomers stand before the last node: heads know the
    clients, and tails the entries.
    """
    last = seen.active[-1]
    gone = [server for server in last.servers if watch.is_gone(server)]
    kept = [server for server in last.servers if server not in gone]
    silent = [server.id for server in last.servers if not watch.is_here(server)]
    stopped = bool(gone) or seen.sealed_s >= after_s
    if stopped and last.n - len(silent) < last.quorum_size:
        why = f"only {last.n - len(silent)} of {last.n} servers of the chain answer, and {last.quorum_size} must, to go on without the others"
        return Stuck(f"{why}: {one_of(silent)} must come back")
    if not stopped and len(seen.active) > 1:
        return FinishMove(last) if seen.pending_s >= after_s else Sound()
    new = [server for server in spares if all(server.id != member.id for member in kept)][
        : max(seen.length - len(kept), 0)
    ]
    if any(not watch.is_here(server) for server in kept) or not (stopped or new):
        return Sound()
    wished = Configuration("chain", (*kept[:-1], *new, *kept[-1:]))
    return Reform(
        last, wished, tuple(server.id for server in gone), tuple(server.id for server in new)
    )


def loads_of(domains: Iterable[list[Configuration]]) -> Counter[ServerId]:
    """How many domains each server serves, or is to serve."""
    return Counter(id for active in domains for id in active[-1].server_ids)


def urgency(active: list[Configuration], watch: Watch) -> tuple[int, bool, str]:
    """The smaller, the sooner its turn: the domains that can lose the fewest servers, `default` first, for it says where the others are."""
    margin = min(
        sum(map(watch.is_here, configuration.servers)) - configuration.quorum_size
        for configuration in active
    )
    return margin, active[0].domain != DEFAULT_DOMAIN, active[0].domain


def look_up(view: View) -> Operation[tuple[list[Configuration], str]]:
    """The active configurations, asked of the servers; if those do not answer, what is known of them, and what was said."""
    try:
        yield from read_config(view)
    except Uncertain as error:
        return view.sequence.active, str(error)
    return view.sequence.active, ""


def mend(
    view: View, judged: Callable[[list[Configuration]], Verdict], manner: Manner
) -> Operation[tuple[Verdict, Reconfigured | None]]:
    """Look, judge and act. What is wished follows the configurations that were judged, or does not come about: a change that somebody else made
    meanwhile is never undone."""
    yield from read_config(view)
    verdict = judged(view.sequence.active)
    match verdict:
        case Replace(wished):
            result = yield from advance(view, wished, manner)
            return verdict, result
        case Finish(target):
            result = yield from install(view, target, target, manner)
            return verdict, result
    return verdict, None
