"""What a run of the scenario `log` is to be: plain data, drawn from a seed (docs/log.md, What must hold)."""

from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import DomainName
from ares.testing.sim.plan import Chances, Fault, member

LOG = DomainName("events")

LogKind = Literal["append", "append-at", "read", "read-range", "read-uncommitted", "tail", "follow", "trim", "reconfigure"]


class LogStep(Struct, frozen=True):
    """One operation of a client, ``pause_s`` after the one before began, or ended if that is not ``ahead``.

    ``where``: a position, as a fraction of what the client knows of the log. ``servers``: of a new chain, head first. ``entries``: in one append.
    """

    pause_s: float
    operation: LogKind
    where: float = 1.0
    entries: int = 1
    ahead: bool = False
    servers: tuple[int, ...] = ()


class LogClientPlan(Struct, frozen=True):
    """``from_tail``: reads by CR."""

    name: str
    steps: tuple[LogStep, ...]
    dies_at: float | None = None
    from_tail: bool = False


class LogPlan(Struct, frozen=True):
    """A whole run. ``dead``: a server that crashes for good, and when. ``timeout_s``: of appends, so that some end uncertain.

    ``fetch_pause_s``: how long nodes wait before each piece that they fetch.
    """

    scenario: str
    seed: int
    servers: int
    initial: tuple[int, ...]
    chances: Chances
    clients: tuple[LogClientPlan, ...]
    faults: tuple[Fault, ...]
    dead: tuple[int, float] | None
    timeout_s: float
    fetch_pause_s: float = 0.0
    chaos_s: float = 3.0

    def describe(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @property
    def first_chain(self) -> Configuration:
        return chain_of(self.initial).at(LOG, 0, b"cluster")


def chain_of(servers: tuple[int, ...]) -> Configuration:
    return Configuration.chain([member(number) for number in servers], allow_no_faults=True)


class Flavour(Struct, frozen=True):
    """What plans are drawn from. ``loss`` and ``bad_links``: of the network; ``deaths``: of reconfigurers; ``pause_s``: between steps."""

    writing: tuple[LogKind, ...] = ("append", "append", "append", "append", "append", "append-at", "tail", "read", "trim")
    reading: tuple[LogKind, ...] = ("tail", "tail", "tail", "read", "read", "read-range", "read-uncommitted", "follow", "follow", "append")
    reconfigurers: tuple[int, int] = (1, 3)
    moves: tuple[int, int] = (1, 3)
    loss: tuple[float, ...] = (0.0, 0.0, 0.025, 0.1)
    bad_links: tuple[float, ...] = (0.0, 0.0, 0.15)
    deaths: float = 0.4
    pause_s: tuple[float, ...] = (0.005, 0.02, 0.06)
    faults: tuple[int, ...] = (0, 0, 1, 2, 4)
    servers: tuple[int, int] = (3, 6)
    kinds: tuple[str, ...] = ("crash", "crash", "crash", "kill", "cut", "cut-in", "cut-out", "slow", "consensus")
    lasts_s: float = 0.3


FLAVOURS = (
    Flavour(),
    Flavour(
        writing=("append", "append", "append", "append-at"), reading=("tail", "tail", "read", "follow"), reconfigurers=(2, 3), moves=(1, 3),
        loss=(0.05, 0.1, 0.2), bad_links=(0.0, 0.2, 0.3), deaths=0.3, pause_s=(0.005, 0.02), faults=(0, 0, 1, 2), servers=(4, 6),
    ),
    Flavour(
        writing=("append", "append", "append", "trim", "tail"), reading=("append", "tail", "trim"), loss=(0.05, 0.1, 0.2), bad_links=(0.0, 0.2),
        pause_s=(0.02, 0.06), faults=(0, 1), servers=(3, 5),
    ),
    Flavour(
        writing=("append", "append-at", "append-at", "tail"), reading=("append-at", "tail", "read"), loss=(0.05, 0.15), bad_links=(0.0, 0.2),
        deaths=0.2, pause_s=(0.005, 0.02), faults=(0, 1, 2), servers=(3, 5),
    ),
    Flavour(
        writing=("append", "append", "append", "tail"), reading=("tail", "tail", "tail", "read", "follow"), reconfigurers=(1, 2), loss=(0.05, 0.2),
        bad_links=(0.2, 0.5), deaths=0.6, pause_s=(0.02, 0.06), faults=(0, 0, 2, 3), servers=(3, 4), lasts_s=0.6,
        kinds=("consensus", "consensus", "slow", "cut-in"),
    ),
    Flavour(
        writing=("append", "append", "append", "tail"), reading=("tail", "follow", "append"), reconfigurers=(2, 3), moves=(1, 2), loss=(0.0, 0.1),
        bad_links=(0.0, 0.2), deaths=0.1, pause_s=(0.01, 0.03), faults=(1, 2), servers=(4, 6), kinds=("cut", "cut", "cut-out", "crash", "crash"),
        lasts_s=2.0,
    ),
)  # fmt: skip
"""General; moves one after the other while messages are lost; trims; conditional appends; sealed chains that wait; nodes left behind."""


def draw_log(seed: int) -> LogPlan:
    """The plan of a seed."""
    rng, flavour = Random(f"plan log {seed}"), FLAVOURS[seed % len(FLAVOURS)]
    servers = rng.randint(*flavour.servers)
    dead = (rng.randrange(servers), rng.uniform(0.0, 1.0)) if rng.random() < 0.25 else None
    smallest = 2 if dead is None and rng.random() < 0.3 else 3
    delay_s, tail = rng.choice([0.0005, 0.002, 0.01]), rng.uniform(1.1, 3.0)
    chances = Chances(delay_s, tail, rng.choice(flavour.loss), rng.choice([0, 0.1]), rng.choice([0.001, 0.02]), rng.choice(flavour.bad_links))
    pause_s = rng.choice(flavour.pause_s)
    clients = [_client(rng, f"w{number}", flavour.writing, rng.randint(3, 10), pause_s) for number in range(rng.randint(1, 3))]
    clients += [_client(rng, f"r{number}", flavour.reading, rng.randint(2, 8), pause_s) for number in range(rng.randint(1, 2))]
    for number in range(rng.randint(*flavour.reconfigurers)):
        mover = _client(rng, f"g{number}", ("reconfigure",), rng.randint(*flavour.moves), 4 * pause_s, servers, smallest)
        clients.append(msgspec.structs.replace(mover, dies_at=rng.uniform(0.0, 0.6) if rng.random() < flavour.deaths else None))
    faults = tuple(_fault(rng, flavour, servers) for _ in range(rng.choice(flavour.faults)))
    initial = tuple(rng.sample(range(servers), rng.randint(smallest, min(servers, 5))))
    timeout_s, fetch_pause_s = rng.choice([100_000.0, 100_000.0, 0.7]), rng.choice([0.0, 0.0, 0.5, 2.0])
    return LogPlan("log", seed, servers, initial, chances, tuple(clients), faults, dead, timeout_s, fetch_pause_s)


def _client(rng: Random, name: str, kinds: tuple[LogKind, ...], count: int, pause_s: float, servers: int = 0, smallest: int = 0) -> LogClientPlan:
    steps = []
    for _ in range(count):
        kind = rng.choice(kinds)
        chain = tuple(rng.sample(range(servers), rng.randint(smallest, min(servers, 5)))) if kind == "reconfigure" else ()
        where = rng.choice([0.0, round(rng.random(), 3), 1.0, 1.0])
        entries = rng.choice([1, 1, 1, 2, 3])
        steps.append(LogStep(rng.expovariate(1 / pause_s), kind, where, entries, kind == "append" and rng.random() < 0.6, chain))
    dies = rng.uniform(0.0, 0.6) if rng.random() < 0.1 else None
    return LogClientPlan(name, tuple(steps), dies, rng.random() < 0.3)


def _fault(rng: Random, flavour: Flavour, servers: int) -> Fault:
    kind = rng.choice(flavour.kinds)
    struck = () if kind == "consensus" else tuple(rng.sample(range(servers), rng.choice([1, 1, 1, 2])))
    return msgspec.convert({"kind": kind, "at": rng.uniform(0, 1.0), "lasts_s": rng.expovariate(1 / flavour.lasts_s), "servers": struck}, Fault)
