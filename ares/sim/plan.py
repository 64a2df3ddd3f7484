"""What a run is to be: who does what, which faults strike when. Drawn from a seed, and plain data, so that it can be printed and made smaller.

The network's own chances come from a second generator: leaving out a step of the plan does not reshuffle the rest.
"""

from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from ares.configuration import Configuration, Server
from ares.identity import DEFAULT_DOMAIN, ServerId
from ares.reconfig.view import Switches

IDENTITY = "{:08x}{:024x}"


def member(number: int, life: int = 0) -> Server:
    """Server ``number`` under the identity of its ``life``: a new one after every loss of its disk."""
    return Server(ServerId(f"s{number}"), f"s{number}:1", IDENTITY.format(life, number))


class Wish(Struct, frozen=True):
    """A configuration that a reconfigurer would like; identities are those of the moment it asks."""

    dap: Literal["abd", "ec"]
    servers: tuple[int, ...]
    k: int = 1
    delta: int = 0

    def configuration(self, lives: Callable[[int], int]) -> Configuration:
        members = [member(number, lives(number)) for number in self.servers]
        return Configuration.abd(members) if self.dap == "abd" else Configuration.ec(members, self.k, self.delta)


class Step(Struct, frozen=True):
    """One operation of a client, ``pause_s`` after the one before it."""

    pause_s: float
    operation: Literal["read", "write", "delete", "reconfigure"]
    key: str = ""
    wish: Wish | None = None


class ClientPlan(Struct, frozen=True):
    """``lanes``: how many of its steps a client has under way at once; they share its session and its configuration sequence."""

    name: str
    switches: Switches
    steps: tuple[Step, ...]
    dies_at: float | None = None
    lanes: int = 1


class Fault(Struct, frozen=True):
    """``kind`` strikes ``servers`` (or the consensus service) at ``at`` and lasts ``lasts_s``.

    crash: everything unsynced is lost, the rest is there after the restart. kill: the process dies, what it wrote may be synced or not.
    disk: a restart with a new identity, once in a run. cut: nothing passes between ``servers`` and everybody else; cut-in, cut-out: in one
    direction. slow: messages take 50 times as long. consensus: no leader.
    """

    kind: Literal["crash", "kill", "disk", "cut", "cut-in", "cut-out", "slow", "consensus"]
    at: float
    lasts_s: float
    servers: tuple[int, ...] = ()


class Chances(Struct, frozen=True):
    """The network: least one-way delay, how heavy its tail is (1: very; 3: light), what is lost and doubled, how long a sync takes.

    ``bad_links``: how many of the one-way links are bad for the whole run, and lose most of what they carry.
    """

    delay_s: float
    tail: float
    loss: float
    double: float
    sync_s: float
    bad_links: float = 0.0


class Plan(Struct, frozen=True):
    """A whole run. ``chaos_s``: when faults end and everything must complete. ``live``: whether reads must complete too (delta suffices)."""

    scenario: str
    seed: int
    servers: int
    initial: Wish
    chances: Chances
    clients: tuple[ClientPlan, ...]
    faults: tuple[Fault, ...]
    chaos_s: float
    live: bool = True

    def describe(self) -> str:
        """The parameters, for a person."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @property
    def c0(self) -> Configuration:
        return self.initial.configuration(lambda _: 0).at(DEFAULT_DOMAIN, 0)


class Shape(Struct, frozen=True):
    """A scenario: bounds from which plans are drawn."""

    servers: tuple[int, int] = (5, 5)
    writers: tuple[int, int] = (1, 3)
    readers: tuple[int, int] = (1, 3)
    reconfigurers: tuple[int, int] = (1, 2)
    steps: tuple[int, int] = (3, 5)
    reconfigurations: tuple[int, int] = (1, 2)
    keys: tuple[int, int] = (1, 2)
    faults: tuple[int, int] = (0, 4)
    kinds: tuple[str, ...] = ("crash", "kill", "disk", "cut", "cut-in", "cut-out", "slow", "consensus")
    daps: tuple[str, ...] = ("abd", "ec")
    deaths: float = 0.15
    dies_s: tuple[float, float] = (0.0, 0.5)
    loss: tuple[float, ...] = (0.0, 0.025, 0.1)
    tail: tuple[float, float] = (1.1, 3.0)
    bad_links: tuple[float, ...] = (0.0, 0.0, 0.1)
    chaos_s: float = 2.0
    pause_s: float = 0.02
    plain: float = 0.25
    delta: int = 8
    k: tuple[int, int] = (2, 3)
    lanes: tuple[int, ...] = (1, 1, 2)


SCENARIOS: dict[str, Shape] = {
    "general": Shape(),
    "calm": Shape(faults=(0, 0), deaths=0.0, loss=(0.0,), bad_links=(0.0,)),
    "crash": Shape(faults=(2, 6), kinds=("crash", "kill", "disk")),
    "partition": Shape(faults=(2, 5), kinds=("cut", "cut-in", "cut-out", "slow")),
    "reconfigure": Shape(reconfigurers=(2, 3), reconfigurations=(1, 3), faults=(0, 2)),
    "consensus": Shape(reconfigurers=(2, 3), kinds=("consensus", "crash"), faults=(1, 4)),
    "wide": Shape(servers=(7, 9), k=(2, 5), faults=(1, 5), writers=(2, 4)),
    "duel": Shape(
        servers=(3, 3), writers=(2, 2), readers=(0, 0), reconfigurers=(1, 1), steps=(3, 3), reconfigurations=(1, 1), keys=(12, 12), daps=("abd",),
        faults=(0, 0), deaths=0.0, loss=(0.05,), bad_links=(0.25,), plain=0.0, tail=(1.2, 3.0), pause_s=0.01, lanes=(1,),
    ),
    "deaths": Shape(writers=(3, 5), readers=(2, 3), reconfigurers=(2, 3), deaths=0.6, dies_s=(0.0, 0.1), keys=(1, 1), loss=(0.1, 0.3), faults=(0, 2)),
    "graves": Shape(
        daps=("ec",), k=(3, 3), writers=(4, 6), readers=(1, 1), reconfigurers=(0, 0), steps=(1, 2), keys=(1, 1), faults=(0, 1),
        deaths=0.9, dies_s=(0.0, 0.03), loss=(0.3,), pause_s=0.005, lanes=(1,),
    ),
    "overload": Shape(daps=("ec",), writers=(4, 5), delta=1, reconfigurers=(0, 1), keys=(1, 1)),
}  # fmt: skip


def draw(seed: int, scenario: str) -> Plan:
    """The plan of a seed."""
    rng, shape = Random(f"plan {scenario} {seed}"), SCENARIOS[scenario]
    servers = rng.randint(*shape.servers)
    keys = [f"k{number}" for number in range(rng.randint(*shape.keys))]
    tail = rng.uniform(*shape.tail)
    chances = Chances(rng.choice([0.0005, 0.002, 0.01]), tail, rng.choice(shape.loss), rng.choice([0, 0.1]), 0.001, rng.choice(shape.bad_links))
    clients = [_client(rng, shape, f"w{number}", ("write",), keys, servers) for number in range(rng.randint(*shape.writers))]
    clients += [_client(rng, shape, f"r{number}", ("read",), keys, servers) for number in range(rng.randint(*shape.readers))]
    clients += [_client(rng, shape, f"g{number}", ("reconfigure",), keys, servers) for number in range(rng.randint(*shape.reconfigurers))]
    faults = tuple(_fault(rng, shape, servers) for _ in range(rng.randint(*shape.faults)))
    disks = [fault for fault in faults if fault.kind == "disk"]
    faults = tuple(fault for fault in faults if fault.kind != "disk" or fault is disks[0])
    live = shape.delta >= sum(client.lanes for client in clients if client.name[0] == "w")
    return Plan(scenario, seed, servers, _wish(rng, shape, servers), chances, tuple(clients), faults, shape.chaos_s, live)


def _client(rng: Random, shape: Shape, name: str, operations: tuple[str, ...], keys: list[str], servers: int) -> ClientPlan:
    switches = Switches(rng.random() >= shape.plain, rng.random() < 0.7, rng.random() < 0.7, rng.random() < 0.7)
    count = rng.randint(*(shape.reconfigurations if operations == ("reconfigure",) else shape.steps))
    steps = tuple(_step(rng, shape, rng.choice(operations), keys, servers) for _ in range(count))
    dies = rng.uniform(*shape.dies_s) if rng.random() < shape.deaths else None
    return ClientPlan(name, switches, steps, dies, rng.choice(shape.lanes))


def _step(rng: Random, shape: Shape, operation: str, keys: list[str], servers: int) -> Step:
    pause_s = rng.expovariate(1 / shape.pause_s)
    if operation == "reconfigure":
        return Step(pause_s, "reconfigure", wish=_wish(rng, shape, servers))
    if operation == "write":
        return Step(pause_s, "delete" if rng.random() < 0.1 else "write", rng.choice(keys))
    return Step(pause_s, "write" if rng.random() < 0.1 else "read", rng.choice(keys))


def _wish(rng: Random, shape: Shape, servers: int) -> Wish:
    while True:
        chosen = tuple(sorted(rng.sample(range(servers), rng.randint(3, servers))))
        if rng.choice(shape.daps) == "abd":
            return Wish("abd", chosen)
        k = rng.randint(*shape.k)
        if len(chosen) - k >= 2:
            return Wish("ec", chosen, k, shape.delta)


def _fault(rng: Random, shape: Shape, servers: int) -> Fault:
    kind = rng.choice(shape.kinds)
    at, lasts_s = rng.uniform(0, shape.chaos_s / 3), rng.expovariate(1 / 0.3)
    struck = () if kind == "consensus" else tuple(rng.sample(range(servers), rng.choice([1, 1, 1, 2])))
    if kind == "disk":
        struck = struck[:1]
    return msgspec.convert({"kind": kind, "at": at, "lasts_s": lasts_s, "servers": struck}, Fault)
