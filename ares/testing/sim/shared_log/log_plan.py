"""The plan of a run of the scenario `log`: plain data from a seed (docs/log.md, What must hold)."""

from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import DomainName
from ares.testing.sim.plan import Chances, PlannedFault, member

SIMULATED_LOG = DomainName("events")
STRANGE_EVERY, THEFTS_FIRST, UPGRADES_FIRST = 11, 5, 6
"""Distance between seeds of runs with a thief, and of runs with an upgrade of all servers."""

EARLIER_RULE_SHARE = 0.25
"""Share of runs with a first chain that follows the rule of earlier releases."""

CRASHES_SHARE, CRASHES_S = 0.4, 0.05
"""Share of runs with more crashes, and the mean time until a restart."""

ROT_SHARE = 0.5
"""Share of the runs on disks with rot."""

LogKind = Literal[
    "append",
    "append-at",
    "read",
    "read-range",
    "read-uncommitted",
    "tail",
    "follow",
    "trim",
    "reconfigure",
]


class LogStep(Struct, frozen=True):
    """An operation of a client.

    ``pause_s``: seconds after the start of the last operation if ``ahead``, else after the end.
    ``where``: a position, as a fraction of the client's known log. ``servers``: of a new chain,
    head first. ``entries``: in a single append; ``calls``: the number of calls made together,
    appends if ``ahead``.
    """

    pause_s: float
    operation: LogKind
    where: float = 1.0
    entries: int = 1
    ahead: bool = False
    servers: tuple[int, ...] = ()
    calls: int = 1


class LogClientPlan(Struct, frozen=True):
    """The plan of a client. ``from_tail``: reads by CR."""

    name: str
    steps: tuple[LogStep, ...]
    dies_at: float | None = None
    from_tail: bool = False


class LogPlan(Struct, frozen=True):
    """A whole run.

    ``dead``: a server that crashes for good, and the time. ``timeout_s``: of appends, to leave some
    uncertain. ``fetch_pause_s``: the pause of nodes before each fetched piece. ``place_bytes``: of
    the journals of the servers; 0: facts in a list, and no pause otherwise.
    """

    scenario: str
    seed: int
    servers: int
    initial: tuple[int, ...]
    chances: Chances
    clients: tuple[LogClientPlan, ...]
    faults: tuple[PlannedFault, ...]
    dead: tuple[int, float] | None
    timeout_s: float
    fetch_pause_s: float = 0.0
    chaos_s: float = 3.0
    place_bytes: int = 0
    thefts: tuple[float, ...] = ()
    """Times at which a thief appends under the id and the next number of another client."""

    keyless: bool = False
    """True if clients prove no key; a thief in such a run does not know the secret."""

    upgraded_at: float = 0.0
    """Time until which servers keep client ids as an earlier release did."""

    earlier_rule: bool = False
    """The first chain follows the rule of earlier releases, as the chains of an old log."""

    def describe(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @property
    def first_chain(self) -> Configuration:
        first = chain_of(self.initial)
        if self.earlier_rule:
            first = msgspec.structs.replace(first, backend="")
        return first.at(SIMULATED_LOG, 0, b"cluster")


def chain_of(servers: tuple[int, ...]) -> Configuration:
    return Configuration.chain([member(number) for number in servers], allow_no_faults=True)


class LogPlanBounds(Struct, frozen=True):
    """Bounds for drawing plans.

    ``steps``: of writers, and of readers. ``loss``, ``bad_links``: of the network; ``deaths``: of
    reconfigurers; ``pause_s``: between steps. ``apart``: a new chain in most cases shares no server
    with another chain. ``ahead``: the number of appends under way without waiting.
    """

    writing: tuple[LogKind, ...] = (
        "append",
        "append",
        "append",
        "append",
        "append",
        "append-at",
        "tail",
        "read",
        "trim",
    )
    reading: tuple[LogKind, ...] = (
        "tail",
        "tail",
        "tail",
        "read",
        "read",
        "read-range",
        "read-uncommitted",
        "follow",
        "follow",
        "append",
    )
    reconfigurers: tuple[int, int] = (1, 3)
    moves: tuple[int, int] = (1, 3)
    loss: tuple[float, ...] = (0.0, 0.0, 0.025, 0.1)
    bad_links: tuple[float, ...] = (0.0, 0.0, 0.15)
    deaths: float = 0.4
    pause_s: tuple[float, ...] = (0.005, 0.02, 0.06)
    faults: tuple[int, ...] = (0, 0, 1, 2, 4)
    servers: tuple[int, int] = (3, 6)
    steps: tuple[tuple[int, int], tuple[int, int]] = ((3, 10), (2, 8))
    kinds: tuple[str, ...] = (
        "crash",
        "crash",
        "crash",
        "kill",
        "cut",
        "cut-in",
        "cut-out",
        "slow",
        "consensus",
    )
    lasts_s: float = 0.3
    apart: bool = False
    ahead: float = 0.6


FLAVOURS = (
    LogPlanBounds(),
    LogPlanBounds(
        writing=("append", "append", "append", "append-at"),
        reading=("tail", "tail", "read", "follow"), reconfigurers=(2, 3), moves=(1, 3),
        loss=(0.05, 0.1, 0.2), bad_links=(0.0, 0.2, 0.3), deaths=0.3, pause_s=(0.005, 0.02),
        faults=(0, 0, 1, 2), servers=(4, 6),
    ),
    LogPlanBounds(
        writing=("append", "append", "append", "trim", "tail"), reading=("append", "tail", "trim"),
        loss=(0.05, 0.1, 0.2), bad_links=(0.0, 0.2),
        pause_s=(0.02, 0.06), faults=(0, 1), servers=(3, 5),
    ),
    LogPlanBounds(
        writing=("append", "append-at", "append-at", "tail"), reading=("append-at", "tail", "read"),
        loss=(0.05, 0.15), bad_links=(0.0, 0.2),
        deaths=0.2, pause_s=(0.005, 0.02), faults=(0, 1, 2), servers=(3, 5),
    ),
    LogPlanBounds(
        writing=("append", "append", "append", "tail"), reading=("tail", "tail", "tail", "read",
            "follow"), reconfigurers=(1, 2), loss=(0.05, 0.2),
        bad_links=(0.3, 0.5), deaths=0.3, pause_s=(0.02, 0.06), faults=(0, 0, 0, 2), servers=(3, 4),
        lasts_s=0.6, steps=((5, 12), (10, 25)),
        kinds=("consensus", "consensus", "slow", "cut-in"),
    ),
    LogPlanBounds(
        writing=("append", "append", "append", "tail"), reading=("tail", "follow", "append"),
        reconfigurers=(2, 3), moves=(1, 2), loss=(0.0, 0.1),
        bad_links=(0.0, 0.2), deaths=0.1, pause_s=(0.01, 0.03), faults=(1, 2), servers=(4, 6),
        kinds=("cut", "cut", "cut-out", "crash", "crash"),
        lasts_s=2.0,
    ),
    LogPlanBounds(
        writing=("append", "append", "append", "append", "tail"),
        reading=("append", "tail", "tail", "trim"), reconfigurers=(2, 3), moves=(1, 3),
        loss=(0.05, 0.15), bad_links=(0.15, 0.3), deaths=0.2, pause_s=(0.005, 0.02),
        faults=(0, 1, 2), servers=(6, 6), lasts_s=1.0,
        kinds=("crash", "cut", "cut-out", "slow"), steps=((6, 14), (4, 10)), apart=True, ahead=0.9,
    ),
)  # fmt: skip
"""The flavours of runs.

General; moves in quick succession while messages are lost; trims; conditional appends; sealed
chains that wait; nodes left behind; chains that share no servers.
"""


def draw_log(seed: int) -> LogPlan:
    """Draw the plan of a seed."""
    rng, flavour = Random(f"plan log {seed}"), FLAVOURS[seed % len(FLAVOURS)]
    servers = rng.randint(*flavour.servers)
    dead = (rng.randrange(servers), rng.uniform(0.0, 1.0)) if rng.random() < 0.25 else None
    smallest = 2 if dead is None and rng.random() < 0.3 else 3
    delay_s, tail = rng.choice([0.0005, 0.002, 0.01]), rng.uniform(1.1, 3.0)
    chances = Chances(
        delay_s,
        tail,
        rng.choice(flavour.loss),
        rng.choice([0, 0.1]),
        rng.choice([0.001, 0.02]),
        rng.choice(flavour.bad_links),
    )
    pause_s = rng.choice(flavour.pause_s)
    chain = _Chains(rng, flavour, servers, smallest)
    clients = [
        _client(rng, flavour, f"w{number}", flavour.writing, flavour.steps[0], pause_s)
        for number in range(rng.randint(1, 3))
    ]
    clients += [
        _client(rng, flavour, f"r{number}", flavour.reading, flavour.steps[1], pause_s)
        for number in range(rng.randint(1, 2))
    ]
    for number in range(rng.randint(*flavour.reconfigurers)):
        moves = [
            LogStep(rng.expovariate(1 / (4 * pause_s)), "reconfigure", servers=chain.draw())
            for _ in range(rng.randint(*flavour.moves))
        ]
        dies_at = rng.uniform(0.0, 0.6) if rng.random() < flavour.deaths else None
        clients.append(LogClientPlan(f"g{number}", tuple(moves), dies_at))
    faults = tuple(_fault(rng, flavour, servers) for _ in range(rng.choice(flavour.faults)))
    timeout_s, fetch_pause_s = (
        rng.choice([100_000.0, 100_000.0, 0.7]),
        rng.choice([0.0, 0.0, 0.5, 2.0]),
    )
    plan = _with_strangers(
        _with_calls(
            LogPlan(
                "log",
                seed,
                servers,
                chain.draw(),
                chances,
                tuple(clients),
                faults,
                dead,
                timeout_s,
                fetch_pause_s,
                earlier_rule=Random(f"rule of plan log {seed}").random() < EARLIER_RULE_SHARE,
            )
        )
    )
    plan = _with_crashes(plan)
    return _with_rot(_with_disks(plan)) if seed // len(FLAVOURS) % 2 else plan


READ_APART: tuple[LogKind, ...] = ("read", "read-uncommitted")


def _with_calls(plan: LogPlan) -> LogPlan:
    """Join some appends that are not waited for with more calls, and some reads."""
    rng, replace = Random(f"calls of plan log {plan.seed}"), msgspec.structs.replace
    clients = [
        replace(
            client,
            steps=tuple(
                replace(step, calls=rng.choice([1, 1, 2, 3]))
                if step.ahead or step.operation in READ_APART
                else step
                for step in client.steps
            ),
        )
        for client in plan.clients
    ]
    return replace(plan, clients=tuple(clients))


def _with_strangers(plan: LogPlan) -> LogPlan:
    """Add a thief to 1 run in STRANGE_EVERY, and an upgrade to another run."""
    rng, replace = Random(f"thefts of plan log {plan.seed}"), msgspec.structs.replace
    times = tuple(rng.uniform(0.0, 0.4) for _ in range(rng.choice([2, 5])))
    turn, kind = divmod(plan.seed, STRANGE_EVERY)
    if kind == THEFTS_FIRST:
        return replace(plan, thefts=times, keyless=turn % 2 == 1)
    if kind == UPGRADES_FIRST and plan.seed // len(FLAVOURS) % 2 == 0:
        return replace(plan, upgraded_at=times[0])
    return plan


def _with_crashes(plan: LogPlan) -> LogPlan:
    """Add crashes to some runs, in part of all servers at once, and slower disks."""
    rng, replace = Random(f"crashes of plan log {plan.seed}"), msgspec.structs.replace
    if rng.random() >= CRASHES_SHARE:
        return plan
    faults = [
        PlannedFault(
            "crash",
            rng.uniform(0.0, 0.6),
            rng.expovariate(1 / CRASHES_S),
            tuple(rng.sample(range(plan.servers), rng.choice([1, 1, 2, plan.servers]))),
        )
        for _ in range(rng.choice([2, 4, 8]))
    ]
    chances = replace(plan.chances, sync_s=rng.choice([0.005, 0.02, 0.1]))
    return replace(plan, faults=(*plan.faults, *faults), chances=chances)


def _with_disks(plan: LogPlan) -> LogPlan:
    """Give the servers journals in small places; some disks fill for a while, with more crashes."""
    rng = Random(f"disks of plan log {plan.seed}")
    flavour = LogPlanBounds(kinds=("crash", "crash", "kill", "full"))
    faults = tuple(_fault(rng, flavour, plan.servers) for _ in range(rng.choice([0, 1, 2, 4])))
    return msgspec.structs.replace(
        plan, faults=plan.faults + faults, place_bytes=rng.choice([4096, 8192])
    )


def _with_rot(plan: LogPlan) -> LogPlan:
    """Let closed places of some servers rot in part of the runs."""
    rng = Random(f"rot of plan log {plan.seed}")
    if rng.random() >= ROT_SHARE:
        return plan
    faults = tuple(
        PlannedFault("rot", rng.uniform(0.05, 0.8), rng.expovariate(1 / CRASHES_S), (server,))
        for server in rng.choices(range(plan.servers), k=rng.choice([2, 4, 8]))
    )
    return msgspec.structs.replace(plan, faults=plan.faults + faults)


class _Chains:
    """A source of chains, of at least ``smallest`` of ``servers``."""

    def __init__(self, rng: Random, flavour: LogPlanBounds, servers: int, smallest: int) -> None:
        self._rng = rng
        self._apart = flavour.apart
        self._servers = servers
        self._smallest = smallest

    def draw(self) -> tuple[int, ...]:
        rng, servers = self._rng, self._servers
        if self._apart:
            half = list(range(3) if rng.random() < 0.5 else range(3, 6))
            rng.shuffle(half)
            return (
                (*half, rng.choice([number for number in range(6) if number not in half]))
                if rng.random() < 0.1
                else tuple(half)
            )
        return tuple(rng.sample(range(servers), rng.randint(self._smallest, min(servers, 5))))


def _client(
    rng: Random,
    flavour: LogPlanBounds,
    name: str,
    kinds: tuple[LogKind, ...],
    counts: tuple[int, int],
    pause_s: float,
) -> LogClientPlan:
    steps = []
    for _ in range(rng.randint(*counts)):
        kind = rng.choice(kinds)
        where = rng.choice([0.0, round(rng.random(), 3), 1.0, 1.0])
        ahead = kind == "append" and rng.random() < flavour.ahead
        steps.append(
            LogStep(rng.expovariate(1 / pause_s), kind, where, rng.choice([1, 1, 1, 2, 3]), ahead)
        )
    dies = rng.uniform(0.0, 0.6) if rng.random() < 0.1 else None
    return LogClientPlan(name, tuple(steps), dies, rng.random() < 0.3)


def _fault(rng: Random, flavour: LogPlanBounds, servers: int) -> PlannedFault:
    kind = rng.choice(flavour.kinds)
    struck = (
        () if kind == "consensus" else tuple(rng.sample(range(servers), rng.choice([1, 1, 1, 2])))
    )
    return msgspec.convert(
        {
            "kind": kind,
            "at": rng.uniform(0, 1.0),
            "lasts_s": rng.expovariate(1 / flavour.lasts_s),
            "servers": struck,
        },
        PlannedFault,
    )
