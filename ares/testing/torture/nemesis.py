"""The nemesis: random faults and steady reconfiguration, within the limits of a ledger.

All choices come from a single seeded generator, therefore a seed gives the same intentions; real
processes answer in their own time, therefore a seed does not give the same run.

The ledger knows which process may be hurt without breaking the promises of the configurations in
use. A server with all data in memory loses the data when killed. Such a server returns with a new
identity and stays lost, for ever, to every configuration that names the old identity; a server with
a store returns with the old identity. Configurations in use are the last finalized configuration
and all decided or possibly later decided ones. For each, the ledger counts the members in trouble
*or* with a new identity, and never allows more than ``crashes_survived`` of them at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Literal, NamedTuple, get_args

from msgspec import Struct, structs
from msgspec.structs import replace

from ares.model.configuration import Configuration, Server
from ares.model.identity import ServerId
from ares.reconfig.mover import Transfer
from ares.testing.torture.partition import Direction
from ares.testing.torture.records import (
    Outcome,
    Stage,
    Timeline,
    TortureFailed,
    Wish,
    WishDeclined,
    WishFailed,
    WishInstalled,
    WishKilled,
)
from ares.testing.torture.torture_cluster import TortureCluster

BETWEEN_FAULTS_S = (0.1, 1.2)
BETWEEN_FAULTS_OF_LOG_S = (0.5, 4.0)
AILING_S = (0.3, 5.0)
RECONFIGURATIONS_EVERY_S = (0.0, 0.6)
REIGN_S = (2.0, 8.0)
"""Seconds of a long reign.

Sometimes a configuration stays this long: each new configuration brings all data to a quorum, and
would hide losses of the last. Half of these reigns are deadly: servers are killed in turn and
started again at once. Only ``crashes_survived`` of a configuration may lose their memory, therefore
a deadly reign ends soon, unless servers return with the old identity: because they have a store, or
because a server is wrongly taken for the old server.
"""

QUICKLY_S = (0.0, 0.2)
DIES_WITHIN_S = 0.15
FINISH_ATTEMPTS = 8
FINISH_PAUSE_S = 1.0


Trouble = Literal["dead", "stopped", "partitioned"]


class _Pending(Struct):
    """A configuration that an attempt proposes or proposed.

    ``begun`` and ``ended`` count beginnings and ends of attempts (``None``: under way).
    """

    configuration: Configuration
    begun: int
    ended: int | None = None


class NemesisLedger:
    """The state of servers, members and configurations. ``initial``: c0, first identities."""

    def __init__(
        self,
        initial: Configuration,
        identities: Mapping[ServerId, str],
        members: Iterable[ServerId],
    ) -> None:
        self.identities = dict(identities)
        self.trouble: dict[ServerId, Trouble] = {}
        self._members = tuple(members)
        self._finalized = {initial.index: initial}  # from the last announced configuration on
        self._pending: dict[int, _Pending] = {}
        self._clock = 0

    # -- servers and members -----------------------------------------------------------------------

    @property
    def well(self) -> list[ServerId]:
        """Servers that a new configuration may name."""
        return [server for server in self.identities if server not in self.trouble]

    @property
    def members_well(self) -> list[ServerId]:
        """Consensus members that run and are connected."""
        return [member for member in self._members if member not in self.trouble]

    def lost(self, configuration: Configuration) -> set[ServerId]:
        """Return the members of ``configuration`` that cannot answer in it now."""
        return {
            server.id
            for server in configuration.servers
            if server.id in self.trouble or server.identity != self.identities[server.id]
        }

    def may_hurt(self, target: ServerId) -> bool:
        """Return whether a healthy process may be killed, stopped or cut off now.

        The process is a server or a consensus member.
        """
        if target in self.trouble:
            return False
        if target in self._members:
            return len(self._members) - len(self.members_well) < (len(self._members) - 1) // 2
        return all(
            len(self.lost(configuration) | {target}) <= configuration.crashes_survived
            for configuration in self._naming(target)
        )

    def hurt(self, target: ServerId, how: Trouble) -> None:
        """Note the start of trouble. Ask :meth:`may_hurt` first.

        A process in trouble may get into worse trouble: death costs no more than silence.
        """
        self.trouble[target] = how

    def recovered(self, target: ServerId, identity: str | None = None) -> None:
        """Note the end of trouble; ``identity``: of a server's new life."""
        del self.trouble[target]
        if identity is not None:
            self.identities[target] = identity

    # -- configurations ----------------------------------------------------------------------------

    @property
    def in_use(self) -> list[Configuration]:
        """Configurations that clients may have to work with."""
        return [
            *self._finalized.values(),
            *(pending.configuration for pending in self._pending.values()),
        ]

    def wished(self, number: int, configuration: Configuration) -> None:
        """Note the begin of attempt ``number`` to install ``configuration``."""
        servers = tuple(Server(id, identity=self.identities[id]) for id in configuration.server_ids)
        self._pending[number] = _Pending(
            structs.replace(configuration, servers=servers), self._tick()
        )

    def refused(self, number: int) -> None:
        """Note an attempt ended before any proposal."""
        del self._pending[number]

    def left(self, number: int) -> None:
        """Note an attempt of unknown end.

        The configuration may be decided, and a later attempt must finish.
        """
        self._pending[number].ended = self._tick()

    def done(self, number: int, result: WishInstalled) -> None:
        """Note an attempt that ended with ``result``.

        If the result was announced, all earlier configurations are out of use: a client left behind
        finds the way. The configurations of all attempts that had ended before this attempt began
        are out of use too, since this attempt found and finished them. An attempt under way, or
        with a later end, may yet have its configuration decided after this attempt.
        """
        begun = self._pending.pop(number).begun
        index = result.configuration.index
        if index >= min(self._finalized):
            self._finalized[index] = result.configuration
        if result.announced:
            self._finalized = {
                other: configuration
                for other, configuration in self._finalized.items()
                if other >= index
            }
            over = [
                other
                for other, pending in self._pending.items()
                if pending.ended is not None and pending.ended < begun
            ]
            for other in over:
                del self._pending[other]

    def _naming(self, target: ServerId) -> list[Configuration]:
        return [
            configuration
            for configuration in self.in_use
            if target in configuration.server_ids and target not in self.lost(configuration)
        ]

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


Reconfigure = Callable[[Wish, float | None], Awaitable[Outcome]]
"""Tries a wish; with a number of seconds, the process is killed this long after the request.

A process that has finished is not killed.
"""


class TorturedLog(NamedTuple):
    """A log that is reconfigured, instead of the objects."""

    name: str
    spared: Sequence[ServerId]
    """Servers never hurt, and in no proposed configuration."""


class Nemesis:
    """A source of faults and reconfigurations.

    ``problems``: findings, in words: failures excluded by the ledger. ``log``: None: the objects
    are reconfigured.
    """

    def __init__(
        self,
        cluster: TortureCluster,
        reconfigure: Reconfigure,
        ledger: NemesisLedger,
        timeline: Timeline,
        chance: Random,
        log: TorturedLog | None = None,
    ) -> None:
        self.problems: list[str] = []
        self.reconfigurations = {"done": 0, "refused": 0, "killed": 0, "failed": 0}
        self._cluster = cluster
        self._try = reconfigure
        self._ledger = ledger
        self._timeline = timeline
        self._chance = chance
        self._peace = asyncio.Event()
        self._recoveries: set[asyncio.Task[None]] = set()
        self._wishes = 0
        self._deadly = False
        self._log = log
        self._spared = frozenset(log.spared if log is not None else ())

    async def rage(self, seconds: float) -> None:
        """Hurt and reconfigure for ``seconds``; heal all; install a last configuration.

        The last configuration finishes any attempt left behind.
        """
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
        """Heal all processes, and return when all are well."""
        self._peace.set()
        while self._recoveries:
            await asyncio.gather(*self._recoveries)

    async def _finish(self) -> None:
        """Install a last configuration, with more attempts for formerly cut-off servers.

        A cut-off server is unheard for a moment more, the wait of TCP before a retransmission, and
        is refused during this moment.
        """
        outcome: Outcome | None = None
        for _ in range(FINISH_ATTEMPTS):
            outcome = await self._reconfigure()
            if not isinstance(outcome, WishDeclined | WishFailed if self._log else WishDeclined):
                break
            await asyncio.sleep(FINISH_PAUSE_S)
        if not isinstance(outcome, WishInstalled):
            self.problems.append(
                f"after all faults were healed, a reconfiguration did not succeed: {outcome}"
            )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- faults ------------------------------------------------------------------------------------

    async def _keep_hurting(self, end: float) -> None:
        while self._now() < end:
            pause = (
                QUICKLY_S
                if self._deadly
                else BETWEEN_FAULTS_OF_LOG_S
                if self._log
                else BETWEEN_FAULTS_S
            )
            await asyncio.sleep(min(self._chance.uniform(*pause), max(0.0, end - self._now())))
            self._notice_ended()
            self.strike()

    def strike(self) -> None:
        """Cause a fault, if any process may be hurt."""
        server = self._deadly or self._chance.random() < 0.8
        candidates = self._well() if server else self._ledger.members_well
        allowed = [id for id in candidates if self._ledger.may_hurt(id)]
        if not allowed:
            return
        target = self._chance.choice(allowed)
        faults = [self._kill, self._freeze, *([self._cut] * 2 if self._cluster.has_network else [])]
        fault = self._kill if self._deadly else self._chance.choice(faults)
        fault(target)

    def _kill(self, target: ServerId) -> None:
        self._hurt(target, "dead", "kill")
        self._cluster.kill(target)
        self._recover(partial(self._relaunch, target))

    def _freeze(self, target: ServerId) -> None:
        self._hurt(target, "stopped", "stop")
        self._cluster.freeze(target)
        dies = self._chance.random() < 0.2
        self._recover(partial(self._die_frozen if dies else self._thaw, target))

    def _cut(self, target: ServerId) -> None:
        others = [
            *self._cluster.hosts,
            *self._ledger.members_well,
            *(self._well() if self._log else ()),
        ]
        direction: Direction = self._chance.choice(("in", "out", "both"))
        peers = [other for other in others if other != target and self._chance.random() < 0.7] or [
            self._cluster.hosts[0]
        ]
        self._hurt(target, "partitioned", f"partition {direction}", f"from {', '.join(peers)}")
        self._cluster.cut(target, peers, direction)
        self._recover(partial(self._mend, target))

    def _hurt(self, target: ServerId, trouble: Trouble, kind: str, detail: str = "") -> None:
        self._ledger.hurt(target, trouble)
        what = kind if target in self._ledger.identities else f"{kind} consensus"
        self._timeline.mark(what, target, detail, fault=True)
        self._timeline.state(target, trouble)

    def _notice_ended(self) -> None:
        for target in self._cluster.ended():
            self.problems.append(f"{target} ended by itself; see its log")
            recovering = target in self._ledger.trouble
            self._hurt(target, "dead", "ended by itself")
            if not recovering:
                self._recover(partial(self._relaunch, target))

    # -- recoveries --------------------------------------------------------------------------------

    def _recover(self, how: Callable[[], Awaitable[None]]) -> None:
        recovery = asyncio.get_running_loop().create_task(
            self._later(self._chance.uniform(*(QUICKLY_S if self._deadly else AILING_S)), how)
        )
        self._recoveries.add(recovery)
        recovery.add_done_callback(self._recoveries.discard)

    async def _later(self, delay_s: float, how: Callable[[], Awaitable[None]]) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._peace.wait(), delay_s)
        try:
            await how()
        except TortureFailed as error:
            self.problems.append(str(error))
        except Exception as error:
            self.problems.append(f"a recovery failed: {error!r}")

    async def _relaunch(self, target: ServerId) -> None:
        slow = (
            bool(self._log)
            and target in self._ledger.identities
            and self._chance.random() < SLOW_SHARE
        )
        await self._cluster.launch(target, slow)
        identity = self._cluster.identity(target) if target in self._ledger.identities else None
        forgot = identity is not None and identity != self._ledger.identities[target]
        self._ledger.recovered(target, identity)
        self._timeline.mark(
            "slow disk" if slow else "new life" if forgot else "restarted", target, fault=slow
        )
        self._timeline.state(target, "up", new_life=True)

    async def _thaw(self, target: ServerId) -> None:
        if self._ledger.trouble[target] == "stopped":
            self._cluster.thaw(target)
        await self._well_again(target, "continued")

    async def _die_frozen(self, target: ServerId) -> None:
        if self._ledger.trouble[target] == "stopped":
            self._hurt(target, "dead", "kill")
            self._cluster.kill(target)
        await self._relaunch(target)

    async def _mend(self, target: ServerId) -> None:
        self._cluster.mend(target)
        await self._well_again(target, "connected")

    async def _well_again(self, target: ServerId, kind: str) -> None:
        """Note the recovery, unless the process ended by itself meanwhile."""
        if self._ledger.trouble[target] == "dead":
            await self._relaunch(target)
        else:
            self._ledger.recovered(target)
            self._timeline.mark(kind, target)
            self._timeline.state(target, "up")

    # -- reconfigurations --------------------------------------------------------------------------

    async def _keep_reconfiguring(self, end: float) -> None:
        while self._now() < end:
            rivals = 2 if self._chance.random() < 0.15 else 1
            await asyncio.gather(*(self._reconfigure(dangerous=True) for _ in range(rivals)))
            reign = self._chance.random() < 0.1
            self._deadly = reign and self._chance.random() < 0.5
            await asyncio.sleep(
                min(
                    self._chance.uniform(*(REIGN_S if reign else RECONFIGURATIONS_EVERY_S)),
                    max(0.0, end - self._now()),
                )
            )
            self._deadly = False

    async def _reconfigure(self, dangerous: bool = False) -> Outcome | None:
        wish = self.wish(dangerous)
        if wish is None:
            return None
        configuration = wish.configuration()
        kill_after_s = (
            self._chance.uniform(0, DIES_WITHIN_S)
            if dangerous and wish.dies_in is None and self._chance.random() < 0.15
            else None
        )
        begin = self._timeline.now()
        self._ledger.wished(wish.number, configuration)
        outcome = await self._try(wish, kill_after_s)
        self._settle(wish, outcome, begin)
        return outcome

    def wish(self, dangerous: bool = False) -> Wish | None:
        """Return a configuration of healthy servers that survives a crash.

        Returns ``None`` with too few servers.
        """
        well = self._well()
        if len(well) < SERVERS_MIN:
            return None
        self._wishes += 1
        if self._log:
            return random_chain(self._wishes, well, dangerous, self._chance, self._log.name)
        return random_wish(self._wishes, well, dangerous, self._chance)

    def _well(self) -> list[ServerId]:
        return [server for server in self._ledger.well if server not in self._spared]

    def _settle(self, wish: Wish, outcome: Outcome, begin: float) -> None:
        text = wish.configuration().describe()
        match outcome:
            case WishInstalled(configuration, ours):
                self._count(
                    "done",
                    text
                    if ours
                    else f"{text}; another client's was decided: {configuration.describe()}",
                )
                self._timeline.reigns_now(configuration, begin)
                self._ledger.done(wish.number, outcome)
            case WishDeclined(error):
                self._count("refused", f"{text}: {error}")
                self._ledger.refused(wish.number)
            case WishKilled(begun):
                self._count("killed", text, fault=True)
                if begun:
                    self._ledger.left(wish.number)
                else:
                    self._ledger.refused(wish.number)
            case WishFailed(error):
                self._count("failed", f"{text}: {error}")
                # A chain is finalized only with all servers, and a server may have died for good.
                if not self._log:
                    self.problems.append(f"a reconfiguration to {text} failed: {error}")
                self._ledger.left(wish.number)

    def _count(self, what: str, detail: str, *, fault: bool = False) -> None:
        self.reconfigurations[what] += 1
        self._timeline.mark(
            "kill reconfigurer" if what == "killed" else f"reconfiguration {what}",
            "",
            detail,
            fault=fault,
        )


SERVERS_MIN = 3
"""Servers of a configuration, at least; fewer survive no crash."""

DELTAS = (8, 12, 16)
"""Values of delta: at least the number of clients that write an object at once."""

COPIED_AHEAD_SHARE = 0.5
"""The share of moves with copies ahead."""

OBJECTS_BEFORE_DEATH_MAX = 20
CHAIN_MAX = 5
SLOW_SHARE = 0.25
"""The share of a log's restarted servers with slow disks in the new life."""

_STAGES: tuple[Stage, ...] = (
    "read-config",
    "copy-ahead",
    "update-config",
    "update-config",
    "finalize-config",
    "gc-config",
)


def random_wish(number: int, well: Sequence[ServerId], dangerous: bool, chance: Random) -> Wish:
    """Choose at least SERVERS_MIN servers, an algorithm and parameters that survive a crash.

    ``dangerous``: the reconfigurer may die.
    """
    servers = tuple(chance.sample(well, chance.randint(SERVERS_MIN, len(well))))
    wish = Wish(
        number,
        "abd",
        servers,
        fresh=chance.random() < 0.3,
        transfer=chance.choice(get_args(Transfer)),
        ahead=chance.random() < COPIED_AHEAD_SHARE,
    )
    if chance.random() < 0.6:
        k_max = len(servers) - 2
        wish = replace(
            wish, dap="ec", k=chance.randint(min(2, k_max), k_max), delta=chance.choice(DELTAS)
        )
    if dangerous and chance.random() < 0.2:
        stage = chance.choice([stage for stage in _STAGES if wish.ahead or stage != "copy-ahead"])
        wish = replace(
            wish,
            dies_in=stage,
            dies_after=chance.randint(1, OBJECTS_BEFORE_DEATH_MAX)
            if stage in ("copy-ahead", "update-config")
            else 1,
        )
    return wish


_CHAIN_STAGES: tuple[Stage, ...] = ("seal", "fetch", "finalize-config", "gc-config")


def random_chain(
    number: int, well: Sequence[ServerId], dangerous: bool, chance: Random, log: str
) -> Wish:
    """Choose servers in any order.

    The reconfigurer may die after each step: when it has sealed, decided, pointed, finalized.
    """
    servers = tuple(chance.sample(well, chance.randint(SERVERS_MIN, min(CHAIN_MAX, len(well)))))
    dies_in = chance.choice(_CHAIN_STAGES) if dangerous and chance.random() < 0.2 else None
    return Wish(number, "chain", servers, fresh=chance.random() < 0.3, dies_in=dies_in, domain=log)
