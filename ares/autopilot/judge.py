"""The judgement of servers and domains: the servers that are gone, and the action to take.

Time is an argument. A domain with servers that are gone gets new servers in their places. A member
of a configuration is a server *and* the identity in the configuration: a server that answers under
another identity has lost its data, and counts as gone like a silent server. Absence counts only
while the autopilot looks, and looks for the member: a watcher which stood still itself, or has only
just learnt of a member, must not take the member for gone.

ARES II leaves this question open (section 8). The answer of this module is plain: the choices for
the domain stay (algorithm, n, k, delta), healthy members keep their positions, and each member gone
for long is replaced: by itself, if present again without its memory, else by the spare with the
fewest domains. No action is begun which could get stuck: a quorum of every configuration from which
data is moved answers, and every new member answers, too.

An autopilot with such a decision need not be the only autopilot, nor be right: the consensus
service decides the successor of a configuration, and a wish is made for a single index. If another
decision was first, this decision is completed.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from ares.autopilot.handover import Member, WatchCounts
from ares.engine.effects import Operation
from ares.engine.phases import RECONFIGURE, phase
from ares.model.configuration import Configuration, Server
from ares.model.errors import Uncertain
from ares.model.identity import DEFAULT_DOMAIN, ConfigurationId, ServerId
from ares.reconfig.mover import MoveOptions
from ares.reconfig.reconfigure import ReconfigurationResult, advance, install
from ares.reconfig.traversal import read_config
from ares.reconfig.view import View

STEADY_S_MAX = 3600.0
NO_COUNTS = WatchCounts()


class Watch:
    """The memory of looks: absent members, and reliable servers.

    A member absent for ``after_s`` is gone. A server which answered without a break for ``after_s``
    is reliable. ``gap_s``: the longest time that counts between two looks. A member counts as
    absent since its last answer, or since the first of the uninterrupted looks that asked for the
    member, if later; a member not asked by the last look is not known to be absent.

    The count of another watcher, ``reported``, is continued for a member not heard yet by this
    watch. The reported count is at most ``after_s`` minus ``confirm_s``: this watch itself looks
    for ``confirm_s``, with any reported count.
    """

    def __init__(self, after_s: float, gap_s: float, confirm_s: float = math.inf) -> None:
        self._after_s = after_s
        self._gap_s = gap_s
        self._reported_s_max = max(after_s - confirm_s, 0.0)
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
        reported: WatchCounts = NO_COUNTS,
    ) -> None:
        """Note the servers that answered at ``now``, each with the identity in the answer.

        ``asked``: the members expected to answer. ``reported``: the counts of other watchers.
        """
        if self._looked_at is not None:
            self._watched_s += min(max(now - self._looked_at, 0.0), self._gap_s)
        self._looked_at = now
        self._answers = dict(answers)
        self._since_s = {
            member: min(
                self._since_s.get(member, self._watched_s),
                self._reported_since(reported.present, member),
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
                self._reported_since(reported.absent, (id, identity)),
            )
            for id, identity in members
        }

    def _reported_since(self, reported: Mapping[Member, float], member: Member) -> float:
        """Return the reported start of the absence or presence of a member not heard yet."""
        reported_s = reported.get(member, 0.0)
        counts = reported_s > 0 and member not in self._heard
        return self._watched_s - min(reported_s, self._reported_s_max) if counts else math.inf

    def counts(self) -> WatchCounts:
        """Return the counts of this watch, for the next watcher."""
        absent = {
            member: self._watched_s - since_s
            for member, since_s in self._absent_since_s.items()
            if self._answers.get(member[0]) != member[1]
        }
        present = {member: self._watched_s - since_s for member, since_s in self._since_s.items()}
        return WatchCounts(absent, present)

    def is_here(self, server: Server) -> bool:
        """Return whether the member answered the last look under the expected identity."""
        return self._answers.get(server.id) == server.identity

    def absent_s(self, server: Server) -> float:
        """Return the seconds since the member last answered under the expected identity.

        0 if the member answered the last look, or was not asked.
        """
        return (
            0.0
            if self.is_here(server)
            else self._watched_s
            - self._absent_since_s.get((server.id, server.identity), self._watched_s)
        )

    def is_gone(self, server: Server) -> bool:
        """Return whether the member is absent for too long."""
        return not self.is_here(server) and self.absent_s(server) >= self._after_s

    def is_returning(self, server: Server) -> bool:
        """Return whether the server answers under another identity, and may soon be reliable.

        The state is limited in time: a server which starts over and over is no help.
        """
        return (
            server.id in self._answers
            and not self.is_here(server)
            and self.absent_s(server) < 2 * self._after_s
        )

    def steady(self, doubled: Mapping[ServerId, int] = MappingProxyType({})) -> dict[ServerId, str]:
        """Return the servers to rely on, with their identities in the last look.

        ``doubled``: for a server, how often the required time is doubled; at most an hour.
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


class NoAction(Struct, frozen=True):
    """A verdict: no action, or no action yet."""


class Finish(Struct, frozen=True):
    """A verdict: complete ``target``, which was decided and left."""

    target: Configuration


class Replace(Struct, frozen=True):
    """A verdict: ``wished`` takes the place of the last configuration.

    ``changes``: pairs of the old and the new server. ``unfilled``: members that are gone, without a
    spare.
    """

    wished: Configuration
    changes: tuple[tuple[Server, Server], ...]
    unfilled: tuple[ServerId, ...]

    def describe(self) -> str:
        """Describe the changes for a person: ``s3 by s5``."""
        return ", ".join(
            f"{gone.id} by {'itself, which lost its memory' if gone.id == new.id else new.id}"
            for gone, new in self.changes
        )


class Stuck(Struct, frozen=True):
    """A verdict: an action is needed, and impossible."""

    why: str


Verdict = NoAction | Finish | Replace | Stuck


class Roster(Struct, frozen=True):
    """The servers and their loads.

    ``book``: the servers of the cluster file. ``loads``: the number of domains of each server.
    ``lingering``: configurations pending for long. ``sites``: the sites of servers, if known.
    """

    book: Mapping[ServerId, Server]
    loads: Mapping[ServerId, int]
    lingering: Set[ConfigurationId]
    sites: Mapping[ServerId, str] = {}

    def site_of(self, server: Server, configuration: Configuration) -> str | None:
        """Return the site for a spare of ``server``.

        The server's own site, or, if the cluster file has the server no longer, the site of most
        members.
        """
        others = [
            self.sites.get(member.id) for member in configuration.servers if member.id in self.book
        ]
        return (
            self.sites.get(server.id)
            if server.id in self.book or not others
            else Counter(others).most_common(1)[0][0]
        )


def one_of(names: Sequence[str]) -> str:
    """Return the name of a server, or a phrase for one of several."""
    return names[0] if len(names) == 1 else f"one of {', '.join(names)}"


def judge(active: list[Configuration], watch: Watch, roster: Roster) -> Verdict:
    """Return the verdict on a domain.

    ``active``: the last finalized configuration, followed by the pending configurations.
    """
    target = active[-1]
    gone = [server for server in target.servers if watch.is_gone(server)]
    pending = len(active) > 1
    if not gone and not (pending and target.id in roster.lingering):
        return NoAction()
    for configuration in active:
        absent = [server.id for server in configuration.servers if not watch.is_here(server)]
        if configuration.n - len(absent) < configuration.quorum_size:
            present = (
                f"only {configuration.n - len(absent)} of {configuration.n} servers answer, and "
                f"{configuration.quorum_size} make a quorum"
            )
            return Stuck(f"{present}: {one_of(absent)} must come back")
    if pending and target.id not in roster.lingering:
        return NoAction()  # another client is at work
    if not gone:
        return Finish(target)
    changes = _changes(target, gone, watch, roster)
    if not changes and all(map(watch.is_returning, gone)):
        return NoAction()
    if not changes:
        names = ", ".join(server.id for server in gone)
        there = " at its site" if any(roster.site_of(server, target) for server in gone) else ""
        return Stuck(
            f"no spare for {names}: every other server of the cluster file{there} is down, or a "
            "member already"
        )
    unfilled = tuple(server.id for server in gone if server not in changes)
    servers = tuple(changes.get(server, server) for server in target.servers)
    return Replace(
        replace(target, servers=servers, certificate=b""), tuple(changes.items()), unfilled
    )


def _changes(
    target: Configuration, gone: list[Server], watch: Watch, roster: Roster
) -> dict[Server, Server]:
    """Return the new server for each server in ``gone``.

    A server that lost its memory replaces itself. Spares of the same site come next, the spares
    with the fewest domains first.
    """
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
    """A verdict: finalize ``target``, a decided chain."""

    target: Configuration


class Reform(Struct, frozen=True):
    """A verdict: another chain takes the place of ``last``.

    The appends of ``last`` stand still, or ``last`` is shorter than the chain was. ``gone``: the
    leaving servers. ``new``: the joining servers.
    """

    last: Configuration
    wished: Configuration
    gone: tuple[ServerId, ...]
    new: tuple[ServerId, ...]

    def describe(self) -> str:
        """Describe the change for a person: ``chain s0 s1 s2 becomes s0 s2: s1 is gone``."""
        changes = [f"{id} is gone" for id in self.gone] + [f"{id} comes in" for id in self.new]
        chains = [" ".join(chain.server_ids) for chain in (self.last, self.wished)]
        return (
            f"chain {chains[0]} becomes {chains[1]}: "
            f"{', '.join(changes) or 'the chain was sealed, and the next chain is not decided'}"
        )


class ObservedLog(Struct, frozen=True):
    """The state of a log. ``active``: the last finalized chain, and later chains.

    ``length``: the wished number of servers in the chain. ``sealed_s``: for how long the last chain
    has been seen sealed without a decided successor. ``pending_s``: for how long the last chain has
    not been finalized.
    """

    active: Sequence[Configuration]
    length: int
    sealed_s: float = 0.0
    pending_s: float = 0.0


def judge_log(
    seen: ObservedLog, watch: Watch, after_s: float, spares: Sequence[Server]
) -> NoAction | Stuck | FinishMove | Reform:
    """Return the verdict on a log.

    A single node that is gone stops the appends of its chain: the node is left out, or the first of
    the ``spares`` takes its place. A silent node which is not yet gone is waited for: such a node
    is neither left out nor relied on. A node is sealed only if a majority of nodes and every node
    of the next chain answer. A chain gets longer only when no move is under way. New nodes stand
    before the last node: heads know the clients, and tails the entries.
    """
    last = seen.active[-1]
    gone = [server for server in last.servers if watch.is_gone(server)]
    kept = [server for server in last.servers if server not in gone]
    silent = [server.id for server in last.servers if not watch.is_here(server)]
    stopped = bool(gone) or seen.sealed_s >= after_s
    if stopped and last.n - len(silent) < last.quorum_size:
        why = (
            f"only {last.n - len(silent)} of {last.n} servers of the chain answer, and "
            f"{last.quorum_size} must, for the chain to go on without the silent servers"
        )
        return Stuck(f"{why}: {one_of(silent)} must come back")
    if not stopped and len(seen.active) > 1:
        return FinishMove(last) if seen.pending_s >= after_s else NoAction()
    new = [server for server in spares if all(server.id != member.id for member in kept)][
        : max(seen.length - len(kept), 0)
    ]
    if any(not watch.is_here(server) for server in kept) or not (stopped or new):
        return NoAction()
    wished = Configuration("chain", (*kept[:-1], *new, *kept[-1:]))
    return Reform(
        last, wished, tuple(server.id for server in gone), tuple(server.id for server in new)
    )


def loads_of(domains: Iterable[list[Configuration]]) -> Counter[ServerId]:
    """Return the number of domains of each server, present or planned."""
    return Counter(id for active in domains for id in active[-1].server_ids)


def urgency(active: list[Configuration], watch: Watch) -> tuple[int, bool, str]:
    """Return the sort key of a domain's urgency; a smaller key comes sooner.

    First come the domains which can lose the fewest servers. Of equal domains `default` comes
    first: it holds the places of all domains.
    """
    margin = min(
        sum(map(watch.is_here, configuration.servers)) - configuration.quorum_size
        for configuration in active
    )
    return margin, active[0].domain != DEFAULT_DOMAIN, active[0].domain


def look_up(view: View) -> Operation[tuple[list[Configuration], str]]:
    """Return the active configurations, asked of the servers, and an error.

    If the servers do not answer, the known configurations and the error's text.
    """
    try:
        yield from read_config(view)
    except Uncertain as error:
        return view.sequence.active, str(error)
    return view.sequence.active, ""


@phase(RECONFIGURE)
def mend(
    view: View, judged: Callable[[list[Configuration]], Verdict], manner: MoveOptions
) -> Operation[tuple[Verdict, ReconfigurationResult | None]]:
    """Look, judge and act.

    A wish follows the judged configurations, or does not take place: a change made by another
    client is never undone.
    """
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
