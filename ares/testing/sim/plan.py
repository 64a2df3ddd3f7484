"""Plans of runs: clients' steps and the faults; and the scenarios for drawing plans.

A plan is drawn from a seed and is plain data, to be printed and made smaller. The network draws
from a second generator: leaving out a step of the plan does not reshuffle the rest.
"""

from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.reconfig.mover import Transfer
from ares.reconfig.view import Switches
from ares.replica.recent_changes import CHANGES_KEPT

ARES_2022, ARES_2 = "ares-2022", "ares-2"
"""The scenarios of the algorithms as published, and the names of the algorithms in a plan."""

VERSIONED = "v"
"""The prefix of keys for versioned operations."""

IDENTITY_FORMAT = "{:08x}{:024x}"


def member(number: int, life: int = 0) -> Server:
    """Return server ``number`` under the identity of its ``life``.

    Each loss of the disk begins a new life.
    """
    return Server(ServerId(f"s{number}"), f"s{number}:1", IDENTITY_FORMAT.format(life, number))


TOKENS_MAX = 24


class ContentChange(Struct, frozen=True):
    """The change of a put to the client's content: ``tokens`` tokens from the fraction ``at`` on.

    A truncation drops all later tokens.
    """

    kind: Literal["replace", "insert", "delete", "truncate", "append", "rewrite"]
    at: float
    tokens: int


def draw_change(rng: Random) -> ContentChange:
    """Draw a change; edits in the middle are the most common."""
    kind = rng.choice(
        [
            "replace",
            "replace",
            "replace",
            "insert",
            "insert",
            "delete",
            "delete",
            "append",
            "truncate",
            "rewrite",
        ]
    )
    return msgspec.convert(
        {"kind": kind, "at": round(rng.random(), 3), "tokens": rng.randint(1, TOKENS_MAX)},
        ContentChange,
    )


class SimWish(Struct, frozen=True):
    """A configuration that a reconfigurer proposes, with the identities of that moment."""

    dap: Literal["abd", "ec"]
    servers: tuple[int, ...]
    k: int = 1
    delta: int = 0
    write_once: bool = False

    def configuration(self, lives: Callable[[int], int]) -> Configuration:
        members = [member(number, lives(number)) for number in self.servers]
        return (
            Configuration.abd(members, write_once=self.write_once)
            if self.dap == "abd"
            else Configuration.ec(members, self.k, self.delta, write_once=self.write_once)
        )


class SimStep(Struct, frozen=True):
    """An operation of a client, ``pause_s`` after the last.

    A versioned write is over the client's last view of the key. A key is for versioned operations,
    for files or for plain operations, throughout a plan. A put of a file makes ``change`` in the
    client's copy; ``mine``: even over changes of other clients. ``value_bytes``: the least size of
    a written value. A listing is judged by its statement about the key. With ``locate`` a new
    client takes over: it knows the domain only from the answers of the servers ``asked``. In a
    write-once domain list-names finds the names that the index lacks, and drop-names drops
    ``names``.
    """

    pause_s: float
    operation: Literal[
        "read", "write", "delete", "list", "read-versioned", "write-versioned", "delete-versioned",
        "reconfigure",
        "get-file", "put-file", "remove-file", "collect-files", "locate",
        "create", "fetch", "drop", "list-names", "drop-names",
    ]  # fmt: skip
    key: str = ""
    wish: SimWish | None = None
    change: ContentChange | None = None
    mine: bool = False
    value_bytes: int = 0
    asked: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


class SimClientPlan(Struct, frozen=True):
    """The plan of a client.

    ``lanes``: steps under way at once; they share the session and the configuration sequence.
    """

    name: str
    switches: Switches
    steps: tuple[SimStep, ...]
    dies_at: float | None = None
    lanes: int = 1


class SimWatcherPlan(Struct, frozen=True):
    """The plan of a watcher: the ends of its lives; each next life goes on at the last point."""

    name: str
    switches: Switches
    restarts: tuple[float, ...] = ()


class PlannedFault(Struct, frozen=True):
    """A fault: ``kind`` strikes ``servers`` (or the consensus service) at ``at`` for ``lasts_s``.

    crash: all unsynced data is lost, the rest is back after the restart. kill: the process dies,
    written data may be synced or not. disk: a restart with a new identity, once in a run. cut: no
    message passes between ``servers`` and the rest; cut-in, cut-out: in a single direction. slow:
    messages take 50 times as long. consensus: no leader. For servers with journals: full: no room
    on the disk; broken: a sync fails, and the process ends; rot: bits flip; gone: a crash, and
    files of the journal are gone, or the last is cut.
    """

    kind: Literal[
        "crash",
        "kill",
        "disk",
        "cut",
        "cut-in",
        "cut-out",
        "slow",
        "consensus",
        "full",
        "broken",
        "rot",
        "gone",
    ]
    at: float
    lasts_s: float
    servers: tuple[int, ...] = ()


class Chances(Struct, frozen=True):
    """The network: least one-way delay, weight of the tail, loss, doubling, and sync time.

    ``tail``: 1 is very heavy; 3 is light. ``bad_links``: the number of one-way links that lose most
    messages for the whole run.
    """

    delay_s: float
    tail: float
    loss: float
    double: float
    sync_s: float
    bad_links: float = 0.0


class SimPlan(Struct, frozen=True):
    """A whole run.

    ``chaos_s``: the end of faults; afterwards every operation must complete. ``live``: whether
    reads must complete too (delta suffices). ``segment_bytes``: of the servers' journals; 0: syncs
    are simulated, too (ares/testing/sim/simulated_server.py). ``scrubs``: servers verify their
    disks all the time. ``transfer``: how reconfigurers move large values. ``ahead``: reconfigurers
    copy ahead of the decision. ``earlier``: servers of a release without copies ahead.
    ``changes_kept``: changes that a server keeps for watches.
    """

    scenario: str
    seed: int
    servers: int
    initial: SimWish
    chances: Chances
    clients: tuple[SimClientPlan, ...]
    faults: tuple[PlannedFault, ...]
    chaos_s: float
    live: bool = True
    segment_bytes: int = 0
    scrubs: bool = False
    transfer: Transfer = "client"
    published: str = ""
    ahead: bool = False
    earlier: tuple[int, ...] = ()
    watchers: tuple[SimWatcherPlan, ...] = ()
    changes_kept: int = CHANGES_KEPT

    def describe(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @property
    def c0(self) -> Configuration:
        return self.initial.configuration(lambda _: 0).at(DEFAULT_DOMAIN, 0)

    @property
    def keys(self) -> list[str]:
        """Return the keys of all steps, in order."""
        return sorted({step.key for client in self.clients for step in client.steps if step.key})


SIM_CHANGES_KEPT = (2, 20, CHANGES_KEPT)
"""Changes that servers keep for watches, to draw from."""

SHARED_FILE, ATOMIC_FILE = "f", "a"
"""The prefix of keys that are names of files."""


class PlanBounds(Struct, frozen=True):
    """A scenario: bounds for drawing plans.

    ``frail``: the number of servers that faults strike; ``None``: all. ``listings``,
    ``collections``: the share of listings in the steps of readers, and of collections in the steps
    of clients that put files. ``by_servers``: the share of plans in which values travel from server
    to server. ``ahead``: the share of plans with copies ahead. ``earlier``: the share of servers of
    a release without copies ahead. ``lookups``: the share of steps that ask servers for the
    domain's place. ``published``: the algorithm as published that all clients run. ``write_once``:
    the domain is write-once. ``watchers``: number of watchers.
    """

    servers: tuple[int, int] = (5, 5)
    writers: tuple[int, int] = (1, 3)
    readers: tuple[int, int] = (1, 3)
    reconfigurers: tuple[int, int] = (1, 2)
    steps: tuple[int, int] = (3, 5)
    reconfigurations: tuple[int, int] = (1, 2)
    keys: tuple[int, int] = (1, 2)
    faults: tuple[int, int] = (0, 4)
    kinds: tuple[str, ...] = (
        "crash",
        "kill",
        "disk",
        "cut",
        "cut-in",
        "cut-out",
        "slow",
        "consensus",
    )
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
    versioned_keys: tuple[int, int] | None = None
    files: tuple[str, ...] = ()
    removals: float = 0.0
    listings: float = 0.0
    collectors: tuple[int, int] = (0, 0)
    collections: float = 0.0
    segment_bytes: tuple[int, ...] = ()
    value_bytes: tuple[int, ...] = ()
    sync_s: tuple[float, ...] = ()
    frail: int | None = None
    by_servers: float = 0.0
    ahead: float = 0.0
    earlier: float = 0.0
    lookups: float = 0.0
    published: str = ""
    write_once: bool = False
    watchers: tuple[int, int] = (0, 0)


_DUEL = PlanBounds(
    servers=(3, 3), writers=(2, 2), readers=(0, 0), reconfigurers=(1, 1), steps=(3, 3),
    reconfigurations=(1, 1), keys=(12, 12), daps=("abd",),
    faults=(0, 0), deaths=0.0, loss=(0.05,), bad_links=(0.25,), plain=0.0, tail=(1.2, 3.0),
    pause_s=0.01, lanes=(1,),
)  # fmt: skip
_PUBLISHED = PlanBounds(
    lanes=(1,), kinds=("crash", "kill", "cut", "cut-in", "cut-out", "slow", "consensus"),
    writers=(1, 3), readers=(1, 2), reconfigurers=(1, 3), reconfigurations=(1, 3), keys=(1, 1),
    bad_links=(0.0, 0.25), pause_s=0.01,
)  # fmt: skip
_FILES = PlanBounds(
    files=(SHARED_FILE,), keys=(0, 0), writers=(2, 3), readers=(1, 1), reconfigurers=(0, 1),
    reconfigurations=(1, 1), steps=(2, 4), deaths=0.3,
    faults=(0, 3), lanes=(1, 1, 1, 2), pause_s=0.05, collectors=(1, 2), collections=0.1,
)  # fmt: skip
_ROT = PlanBounds(
    segment_bytes=(4096, 16_384), value_bytes=(100, 2000, 30_000), sync_s=(0.001, 0.01), frail=1,
    faults=(4, 9),
    kinds=("rot", "rot", "rot", "crash", "kill"), deaths=0.0, writers=(2, 3), reconfigurers=(0, 1),
    steps=(4, 8), keys=(2, 5), delta=6,
    by_servers=0.5,
)  # fmt: skip

_NAMES = PlanBounds(
    write_once=True, value_bytes=(0, 100, 9000), writers=(2, 3), readers=(1, 3),
    reconfigurers=(1, 2), reconfigurations=(1, 3), steps=(4, 8), ahead=0.3, by_servers=0.3,
    faults=(0, 3), kinds=("slow", "cut", "cut-in", "cut-out", "crash", "kill"), deaths=0.15,
    loss=(0.0, 0.0, 0.05), pause_s=0.02, chaos_s=3.0, delta=2, tail=(1.1, 2.0),
)  # fmt: skip

_WATCH = PlanBounds(
    watchers=(1, 2), writers=(2, 4), readers=(1, 1), reconfigurers=(0, 2), reconfigurations=(1, 3),
    steps=(4, 8), keys=(1, 4), faults=(0, 4), loss=(0.0, 0.0, 0.1), tail=(1.05, 1.6), deaths=0.5,
    bad_links=(0.0, 0.0, 0.25), kinds=("crash", "kill", "disk", "slow", "cut", "cut-in", "cut-out"),
    dies_s=(0.0, 0.3), chaos_s=2.0, pause_s=0.02, plain=0.1, ahead=0.3, by_servers=0.2,
)  # fmt: skip

OBJECT_SCENARIOS: dict[str, PlanBounds] = {
    "general": PlanBounds(),
    "calm": PlanBounds(faults=(0, 0), deaths=0.0, loss=(0.0,), bad_links=(0.0,)),
    "crash": PlanBounds(faults=(2, 6), kinds=("crash", "kill", "disk")),
    "partition": PlanBounds(faults=(2, 5), kinds=("cut", "cut-in", "cut-out", "slow")),
    "reconfigure": PlanBounds(
        ahead=0.3, reconfigurers=(2, 3), reconfigurations=(1, 3), faults=(0, 2)
    ),
    "consensus": PlanBounds(reconfigurers=(2, 3), kinds=("consensus", "crash"), faults=(1, 4)),
    "wide": PlanBounds(servers=(7, 9), k=(2, 5), faults=(1, 5), writers=(2, 4)),
    "moving": PlanBounds(
        writers=(2, 3), readers=(2, 3), steps=(6, 10), reconfigurations=(2, 4), keys=(1, 3),
        lanes=(1, 2, 3), plain=0.1,
        faults=(0, 2), kinds=("slow", "slow", "cut", "cut-in", "cut-out", "crash"), deaths=0.1,
        tail=(1.05, 1.6), loss=(0.0, 0.0, 0.025),
        pause_s=0.01, chaos_s=3.0, ahead=0.3,
    ),
    "listing": PlanBounds(
        servers=(3, 5), writers=(2, 4), readers=(2, 3), steps=(3, 6), reconfigurations=(1, 3),
        listings=0.6,
        daps=("abd",), deaths=0.5, dies_s=(0.0, 0.1), faults=(0, 1),
        kinds=("slow", "cut-in", "cut-out"), loss=(0.0, 0.1), tail=(1.05, 1.6),
        bad_links=(0.0, 0.25), plain=0.1, pause_s=0.01,
    ),
    "duel": _DUEL,
    "deaths": PlanBounds(writers=(3, 5), readers=(2, 3), reconfigurers=(2, 3), deaths=0.6,
        dies_s=(0.0, 0.1), keys=(1, 1), loss=(0.1, 0.3), faults=(0, 2)),
    "graves": PlanBounds(
        daps=("ec",), k=(3, 3), writers=(4, 6), readers=(1, 1), reconfigurers=(0, 0), steps=(1, 2),
        keys=(1, 1), faults=(0, 1),
        deaths=0.9, dies_s=(0.02, 0.12), loss=(0.1,), pause_s=0.005, lanes=(1,),
    ),
    "coverable": PlanBounds(
        versioned_keys=(1, 2), keys=(0, 1), writers=(2, 4), readers=(1, 2), steps=(4, 7),
        deaths=0.3, dies_s=(0.0, 0.3), loss=(0.0, 0.1, 0.3),
        faults=(0, 3), lanes=(1, 1, 2, 3),
    ),
    "files": _FILES,
    "atomic": replace(_FILES, files=(ATOMIC_FILE,), readers=(1, 2), steps=(2, 5)),
    "removals": replace(_FILES, files=(SHARED_FILE, ATOMIC_FILE), removals=0.2, deaths=0.2,
        faults=(0, 2), lanes=(1, 1, 2)),
    "fences": PlanBounds(
        files=(ATOMIC_FILE,), removals=0.05, keys=(0, 0), servers=(3, 3), daps=("abd",),
        writers=(2, 3), readers=(0, 1), reconfigurers=(0, 0),
        collectors=(2, 3), steps=(3, 6), deaths=0.7, dies_s=(0.02, 0.3), faults=(0, 0),
        loss=(0.0, 0.1), tail=(1.05, 1.3), bad_links=(0.0, 0.25),
        pause_s=0.01,
    ),
    "journal": PlanBounds(
        segment_bytes=(4096, 16_384, 131_072), value_bytes=(0, 100, 2000, 30_000), faults=(4, 10),
        frail=2,
        kinds=("crash", "crash", "crash", "kill", "kill", "full", "broken", "disk"),
        sync_s=(0.001, 0.01, 0.05),
        writers=(2, 3), readers=(1, 2), reconfigurers=(0, 1), steps=(4, 8), keys=(1, 3), delta=6,
        by_servers=0.5, ahead=0.4,
    ),
    "transfer": PlanBounds(
        value_bytes=(100, 30_000), by_servers=1.0, ahead=0.3, writers=(2, 3), reconfigurers=(1, 3),
        reconfigurations=(1, 3), keys=(1, 3), steps=(4, 8),
        faults=(0, 4), delta=6,
    ),
    "ahead": PlanBounds(
        ahead=1.0, earlier=0.1, value_bytes=(0, 100, 30_000), by_servers=0.3,
        writers=(2, 4), readers=(1, 3), reconfigurers=(1, 3), reconfigurations=(1, 3),
        keys=(2, 4), steps=(6, 10), plain=0.1,
        faults=(0, 2), kinds=("slow", "cut", "cut-in", "cut-out", "crash", "kill", "disk"),
        deaths=0.2, loss=(0.0, 0.0, 0.025), pause_s=0.01, chaos_s=3.0, delta=6, lanes=(1, 1, 2),
    ),
    "sites": PlanBounds(
        lookups=0.4, writers=(2, 3), readers=(2, 3), reconfigurers=(2, 3), reconfigurations=(2, 4),
        steps=(5, 9), keys=(1, 2), servers=(6, 7),
        kinds=("cut", "cut-in", "cut-out", "slow", "crash", "consensus"), faults=(0, 3), deaths=0.3,
        loss=(0.0, 0.1), pause_s=0.01, chaos_s=3.0,
        lanes=(1,),
    ),
    "names": _NAMES,
    "names-journal": replace(
        _NAMES, segment_bytes=(4096, 16_384), sync_s=(0.001, 0.01), frail=2,
        kinds=("crash", "crash", "kill", "kill", "broken", "full"), faults=(2, 6),
    ),
    "watch": _WATCH,
    "watch-journal": replace(
        _WATCH, segment_bytes=(4096, 16_384), sync_s=(0.001, 0.01, 0.05), frail=2,
        value_bytes=(0, 100, 9000), kinds=("crash", "crash", "kill", "broken", "full"),
    ),
    "rot": _ROT,
    "gone": replace(_ROT, faults=(3, 7), kinds=("gone", "gone", "crash", "kill")),
    ARES_2022: replace(_PUBLISHED, published=ARES_2022),
    ARES_2: replace(_PUBLISHED, published=ARES_2, keys=(1, 3)),
    "ares-2-duel": replace(_DUEL, published=ARES_2),
    "overload": PlanBounds(daps=("ec",), writers=(4, 5), delta=1, reconfigurers=(0, 1),
        keys=(1, 1)),
}  # fmt: skip


def draw(seed: int, scenario: str) -> SimPlan:
    """Draw the plan of a seed."""
    rng, shape = Random(f"plan {scenario} {seed}"), OBJECT_SCENARIOS[scenario]
    servers = rng.randint(*shape.servers)
    keys = [f"k{number}" for number in range(rng.randint(*shape.keys))]
    if shape.versioned_keys is not None:
        keys += [f"{VERSIONED}{number}" for number in range(rng.randint(*shape.versioned_keys))]
    keys += [f"{kind}0" for kind in shape.files]
    tail = rng.uniform(*shape.tail)
    chances = Chances(
        rng.choice([0.0005, 0.002, 0.01]),
        tail,
        rng.choice(shape.loss),
        rng.choice([0, 0.1]),
        0.001,
        rng.choice(shape.bad_links),
    )
    clients: list[SimClientPlan] = []
    for letter, operation, bounds in (
        ("w", "write", shape.writers),
        ("r", "read", shape.readers),
        ("g", "reconfigure", shape.reconfigurers),
    ):
        clients += [
            _client(rng, shape, f"{letter}{number}", (operation,), keys, servers)
            for number in range(rng.randint(*bounds))
        ]
    faults = tuple(_fault(rng, shape, servers) for _ in range(rng.randint(*shape.faults)))
    disks = [fault for fault in faults if fault.kind == "disk"][1:]
    faults = tuple(fault for fault in faults if fault not in disks)
    if shape.collectors != (0, 0):
        clients += [
            _collector(rng, shape, f"c{number}") for number in range(rng.randint(*shape.collectors))
        ]
    live = shape.delta >= sum(client.lanes for client in clients if client.name[0] == "w")
    plan = SimPlan(
        scenario,
        seed,
        servers,
        _wish(rng, shape, servers),
        chances,
        tuple(clients),
        faults,
        shape.chaos_s,
        live,
        transfer="servers" if _is_in(shape.by_servers, "transfer", scenario, seed) else "client",
        published=shape.published,
        ahead=_is_in(shape.ahead, "ahead", scenario, seed),
        earlier=_earlier(shape.earlier, scenario, seed, servers),
        watchers=_watchers(shape, scenario, seed),
        changes_kept=Random(f"kept {scenario} {seed}").choice(SIM_CHANGES_KEPT),
    )
    if not shape.segment_bytes:
        return plan
    chances = replace(chances, sync_s=rng.choice(shape.sync_s))
    return replace(
        plan,
        segment_bytes=rng.choice(shape.segment_bytes),
        chances=chances,
        scrubs="rot" in shape.kinds,
    )


def _is_in(share: float, *name: object) -> bool:
    """Return whether a plan is in a share of all plans, by a generator of its own."""
    return Random(" ".join(map(str, name))).random() < share


def _earlier(share: float, scenario: str, seed: int, servers: int) -> tuple[int, ...]:
    """Draw the servers of an earlier release."""
    numbers = range(servers)
    return tuple(number for number in numbers if _is_in(share, "earlier", scenario, seed, number))


def _watchers(shape: PlanBounds, scenario: str, seed: int) -> tuple[SimWatcherPlan, ...]:
    """Draw the watchers and the ends of their lives, by a generator of their own."""
    rng = Random(f"watchers {scenario} {seed}")
    return tuple(
        SimWatcherPlan(
            f"o{number}",
            Switches(rng.random() >= shape.plain),
            tuple(rng.uniform(0, shape.chaos_s / 3) for _ in range(rng.randint(0, 3))),
        )
        for number in range(rng.randint(*shape.watchers))
    )


def _client(
    rng: Random,
    shape: PlanBounds,
    name: str,
    operations: tuple[str, ...],
    keys: list[str],
    servers: int,
) -> SimClientPlan:
    switches = Switches(
        rng.random() >= shape.plain, rng.random() < 0.7, rng.random() < 0.7, rng.random() < 0.7
    )
    if shape.versioned_keys is not None:
        switches = replace(switches, optimised=rng.random() < 0.7)
    count = rng.randint(
        *(shape.reconfigurations if operations == ("reconfigure",) else shape.steps)
    )
    if shape.write_once and operations != ("reconfigure",):
        return _name_client(rng, shape, name, count)
    steps = tuple(_step(rng, shape, rng.choice(operations), keys, servers) for _ in range(count))
    dies = rng.uniform(*shape.dies_s) if rng.random() < shape.deaths else None
    return SimClientPlan(name, switches, steps, dies, rng.choice(shape.lanes))


def _name_client(rng: Random, shape: PlanBounds, name: str, count: int) -> SimClientPlan:
    """Draw a client of a write-once domain: a writer of own names, or a reader of all names.

    Writers drop names of their own; now and then any client drops any name.
    """
    own = [f"{name}n{number}" for number in range(count if name[0] == "w" else 0)]
    every = [
        f"w{writer}n{number}"
        for writer in range(shape.writers[1])
        for number in range(shape.steps[1])
    ]
    steps: list[tuple[str, str]] = [("fetch", rng.choice(every)) for _ in range(count - len(own))]
    for created in own:
        steps.append(("create", created))
        if rng.random() < 0.4:
            steps.append(("fetch", rng.choice(every)))
        if rng.random() < 0.5:
            steps.append(("drop", rng.choice(own[: own.index(created) + 1])))
    steps = [("drop", rng.choice(every)) if rng.random() < 0.05 else step for step in steps]
    planned = tuple(
        msgspec.convert(
            {
                "pause_s": rng.expovariate(1 / shape.pause_s),
                "operation": operation,
                "key": key,
                "value_bytes": rng.choice(shape.value_bytes),
            },
            SimStep,
        )
        for operation, key in steps
    )
    switches = Switches(rng.random() >= shape.plain, rng.random() < 0.7, rng.random() < 0.7)
    dies = rng.uniform(*shape.dies_s) if rng.random() < shape.deaths else None
    return SimClientPlan(name, switches, planned, dies, 1)


def _collector(rng: Random, shape: PlanBounds, name: str) -> SimClientPlan:
    """Draw a client that only collects; its id is above all further ids."""
    pauses_s = [rng.expovariate(1 / (4 * shape.pause_s)) for _ in range(rng.randint(*shape.steps))]
    return SimClientPlan(
        name, Switches(), tuple(SimStep(pause_s, "collect-files") for pause_s in pauses_s)
    )


def _step(rng: Random, shape: PlanBounds, operation: str, keys: list[str], servers: int) -> SimStep:
    pause_s = rng.expovariate(1 / shape.pause_s)
    if shape.lookups and rng.random() < shape.lookups:
        return SimStep(
            pause_s, "locate", asked=tuple(rng.sample(range(servers), rng.randint(1, 2)))
        )
    if operation == "reconfigure":
        return SimStep(pause_s, "reconfigure", wish=_wish(rng, shape, servers))
    if shape.files:
        return _file_step(rng, shape, pause_s, operation, rng.choice(keys))
    seldom_written = "read" if shape.published else "delete"
    often, seldom = ("write", seldom_written) if operation == "write" else ("read", "write")
    kind, key = seldom if rng.random() < 0.1 else often, rng.choice(keys)
    if key.startswith(VERSIONED):
        kind = "read" if operation == "write" and rng.random() < 0.25 else kind
        kind = f"{kind}-versioned"
    elif kind == "read" and shape.listings and rng.random() < shape.listings:
        kind = "list"
    value_bytes = rng.choice(shape.value_bytes) if shape.value_bytes else 0
    return msgspec.convert(
        {"pause_s": pause_s, "operation": kind, "key": key, "value_bytes": value_bytes}, SimStep
    )


def _file_step(rng: Random, shape: PlanBounds, pause_s: float, operation: str, key: str) -> SimStep:
    if operation == "read" or rng.random() < 0.25:
        return SimStep(pause_s, "get-file", key)
    if shape.collections and rng.random() < shape.collections:
        return SimStep(pause_s, "collect-files")
    if rng.random() < shape.removals:
        return SimStep(pause_s, "remove-file", key)
    return SimStep(pause_s, "put-file", key, change=draw_change(rng), mine=rng.random() < 0.15)


def _wish(rng: Random, shape: PlanBounds, servers: int) -> SimWish:
    while True:
        chosen = tuple(sorted(rng.sample(range(servers), rng.randint(3, servers))))
        if rng.choice(shape.daps) == "abd":
            return SimWish("abd", chosen, write_once=shape.write_once)
        k = rng.randint(*shape.k)
        if len(chosen) - k >= 2:
            return SimWish("ec", chosen, k, shape.delta, shape.write_once)


def _fault(rng: Random, shape: PlanBounds, servers: int) -> PlannedFault:
    kind = rng.choice(shape.kinds)
    at, lasts_s = rng.uniform(0, shape.chaos_s / 3), rng.expovariate(1 / 0.3)
    struck = (
        ()
        if kind == "consensus"
        else tuple(
            rng.sample(
                range(shape.frail or servers), 1 if shape.frail == 1 else rng.choice([1, 1, 1, 2])
            )
        )
    )
    if kind == "disk":
        struck = struck[:1]
    return msgspec.convert(
        {"kind": kind, "at": at, "lasts_s": lasts_s, "servers": struck}, PlannedFault
    )
