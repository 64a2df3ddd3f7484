"""A scenario as its file says it (scenarios/NAME.toml), and the rounds that come of it. No I/O but reading the files.

In the tables ``fixed``, ``quick`` and ``paper`` a list varies, and everything else is fixed; the table of the scale wins over ``fixed``. Every
combination of what varies is a point, and a point is a round for each protocol and iteration.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from ares.model.errors import BadInput

DIRECTORY = Path(__file__).parent / "scenarios"

Scale = Literal["quick", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "paper")

Protocol = Literal[
    *("ABD", "ARES_ABD", "ARES_EC", "COARES_ABD", "COARES_EC", "COARES_ABD_F", "COARES_EC_F", "ARES_MIXED"),
    *("CASSANDRA", "REDIS", "REDIS_W", "ETCD"),
]  # type: ignore[valid-type]
PROTOCOLS: tuple[str, ...] = (
    *("ABD", "ARES_ABD", "ARES_EC", "COARES_ABD", "COARES_EC", "COARES_ABD_F", "COARES_EC_F", "ARES_MIXED"),
    *("CASSANDRA", "REDIS", "REDIS_W", "ETCD"),
)
OF_ARES = PROTOCOLS[:8]
FAMILIES = {"ARES": OF_ARES[1:], "Cassandra": ("CASSANDRA",), "Redis": ("REDIS",), "RedisW": ("REDIS_W",), "etcd": ("ETCD",)}
"""What `--protocol` takes beside the names above."""


OF_LOADS = ("ABD", "ARES_ABD", "ARES_EC", *PROTOCOLS[8:])
"""Protocols that the generators of load speak."""

Bad = Literal["nobody", "killed replica", "slowed replica", "killed leader", "slowed leader"]
BAD_AT_SHARE = 1 / 3
"""Of the measured time of a load. What was done before is what the rest is compared with."""


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """When ``at_share`` of the expected time of the work has passed, ``event`` befalls the server of this number, the leader, or one that is not.
    ``percent`` of a processor is left to a slow one.
    """

    at_share: float
    event: Literal["crash", "slow"]
    server: int | Literal["leader", "replica"] = 0
    percent: int = 20


class Load(Struct, frozen=True, forbid_unknown_fields=True):
    """Points of load at one store, one after the other: what a load round does instead of the work of readers and writers.

    A point ends with ``operations`` in all or after ``seconds``. The number of clients doubles from ``clients`` to ``clients_max`` while that adds
    more than ``growth`` to the throughput. Then, with the most clients, operations begin by a Poisson process (an open loop), so many times as many a
    second as the best point had, for each of ``offered``.

    ``keys``: operations choose evenly among them. ``written``: that many have a value from the beginning, and a read of another finds that there is
    none. ``processes`` make the load.
    """

    keys: int = 1000
    written: int = 1000
    operations: int = 100_000
    seconds: float = 60.0
    clients: int = 1
    clients_max: int = 256
    growth: float = 0.05
    offered: tuple[float, ...] = ()
    processes: int = 2

    def __post_init__(self) -> None:
        if min(self.keys, self.operations, self.clients, self.processes, self.seconds, *self.offered) <= 0:
            raise ValueError("numbers of a load are above 0")
        if not 0 <= self.written <= self.keys or self.clients_max < self.clients:
            raise ValueError("a load has no more written keys than keys, and no fewer clients_max than clients")

    @property
    def expected_s(self) -> float:
        """How long it takes, about."""
        points = (self.clients_max // self.clients).bit_length() + len(self.offered)
        return points * (min(self.seconds, self.operations / 4000) + 0.5)


class Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    """What one round is like. Sizes are bytes, intervals seconds.

    ``interval_s``: a reader or writer waits a random time up to it before each operation (the papers' stochastic invocation); 0: it does not.
    With ``arrivals`` "open" operations are due by a Poisson process of the same rate, and one that is due while its client is busy waits for it.
    ``check``: what clients saw is kept and judged (correctness.py). ``load``: it is a load round; ``read_share`` of its operations read, and ``bad``
    befalls a server in its midst.
    ``parity``: m = n - k of the erasure code. ``onto``: reconfigurers move to all servers, or to some that chance chooses. ``switches``: those of
    ares that are on. ``fresh_after_s``: readers begin so late, and each read is that of a new client, which knows the first configuration alone;
    reconfigurers take turns.
    """

    servers: int = 5
    writers: int = 1
    readers: int = 1
    reconfigurers: int = 0
    object_size: int = 1024
    parity: int = 2
    operations: int = 50
    interval_s: float = 3.0
    reconfigure_every_s: float = 15.0
    reconfigurations: int = 15
    onto: Literal["all", "some"] = "all"
    switches: tuple[str, ...] = ("piggyback", "gc", "batch", "fast_read", "optimised")
    block_min: int = 512 * 1024
    block_max: int = 1024 * 1024
    arrivals: Literal["closed", "open"] = "closed"
    check: bool = False
    load: Load | None = None
    read_share: float = 0.5
    bad: Bad = "nobody"
    durability: Literal["memory", "fsync"] = "memory"
    fresh_after_s: float = 0.0

    @property
    def k(self) -> int:
        return self.servers - self.parity

    @property
    def preparing_s(self) -> float:
        """How long it takes to write the keys of a load, about."""
        return 0.0 if self.load is None else self.load.written / 4000

    @property
    def expected_s(self) -> float:
        """How long the work takes, about."""
        if self.load is not None:
            return self.load.expected_s
        return max(
            self.fresh_after_s + self.operations * (self.interval_s / 2 + 0.02),
            self.reconfigurations * self.reconfigure_every_s if self.reconfigurers else 0.0,
        )


class Round(Struct, frozen=True):
    """``varied``: the parameters that tell this point from the others of its scenario."""

    scenario: str
    protocol: str
    parameters: Parameters
    varied: dict[str, Any]
    iteration: int
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        """Of its directory, under that of the scenario."""
        varied = "_".join(f"{name}-{'+'.join(value) if isinstance(value, tuple | list) else value}" for name, value in self.varied.items())
        return "_".join(filter(None, (self.protocol, varied.replace(" ", "-"), str(self.iteration))))

    @property
    def expected_s(self) -> float:
        return self.parameters.expected_s + self.parameters.preparing_s + 6.0


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """``seen_in``: the source. ``parity``: m by the number of servers, where that varies. ``note``: what a reader of its figures has to know."""

    title: str
    seen_in: str
    protocols: tuple[Protocol, ...]
    quick: dict[str, Any]
    paper: dict[str, Any]
    fixed: dict[str, Any] = {}
    parity: dict[str, int] = {}
    fault: tuple[Fault, ...] = ()
    note: str = ""
    name: str = field(default="", name="_")

    def varies(self, scale: Scale) -> dict[str, list[Any]]:
        """What varies at this scale, with the values."""
        table = self.fixed | getattr(self, scale)
        return {key: value for key, value in table.items() if isinstance(value, list)}

    def rounds(self, scale: Scale, protocols: Sequence[str] = ()) -> Iterator[Round]:
        """In order: all protocols at a point before the next point, so that what is compared was measured at one time."""
        table = self.fixed | getattr(self, scale)
        iterations = table.pop("iterations", 1)
        varying = {key: value for key, value in table.items() if isinstance(value, list)}
        fixed = {key: value for key, value in table.items() if key not in varying}
        chosen = [protocol for protocol in self.protocols if not protocols or protocol in protocols]
        for iteration, values in itertools.product(range(1, iterations + 1), itertools.product(*varying.values())):
            varied = dict(zip(varying, values, strict=True))
            parameters = self._parameters(fixed | varied)
            for protocol in chosen:
                if not (protocol in OF_ARES and parameters.bad.endswith("leader")):  # no server of ares leads
                    faults = (*(self.fault if protocol in OF_ARES else ()), *_faults_of(parameters.bad))
                    yield Round(self.name, protocol, parameters, varied, iteration, faults)

    def _parameters(self, given: dict[str, Any]) -> Parameters:
        servers = given.get("servers", Parameters().servers)
        if str(servers) in self.parity:
            given = {"parity": self.parity[str(servers)]} | given
        try:
            parameters = msgspec.convert(given, Parameters)
        except msgspec.ValidationError as error:
            raise BadInput(f"scenario {self.name}: {error}") from error
        if not 0 <= parameters.parity < parameters.servers:
            raise BadInput(f"scenario {self.name}: parity {parameters.parity} with {parameters.servers} servers")
        if not 0 <= parameters.read_share <= 1:
            raise BadInput(f"scenario {self.name}: read_share {parameters.read_share} is no part of all operations")
        if parameters.arrivals == "open" and parameters.interval_s <= 0:
            raise BadInput(f"scenario {self.name}: open arrivals need an interval_s: every client's operations are due after half of it, in the mean")
        if parameters.load is None and parameters.bad != "nobody":
            raise BadInput(f"scenario {self.name}: bad = {parameters.bad!r} is for a load; rounds of readers and writers have [[fault]]")
        if parameters.load is not None and (others := set(self.protocols) - set(OF_LOADS)):
            raise BadInput(f"scenario {self.name}: no load can be made for {', '.join(sorted(others))}; there is {', '.join(OF_LOADS)}")
        return parameters


def _faults_of(bad: Bad) -> tuple[Fault, ...]:
    if bad == "nobody":
        return ()
    return (Fault(BAD_AT_SHARE, "crash" if bad.startswith("killed") else "slow", "leader" if bad.endswith("leader") else "replica"),)


def scenarios(directory: Path = DIRECTORY) -> dict[str, Scenario]:
    """All, by name. Raises :class:`BadInput` for a file that is none."""
    found = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            scenario = msgspec.toml.decode(path.read_bytes(), type=Scenario)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise BadInput(f"{path}: {error}") from error
        found[path.stem] = msgspec.structs.replace(scenario, name=path.stem)
        for scale in SCALES:
            list(found[path.stem].rounds(scale))
    return found


def protocols_of(words: str | None) -> tuple[str, ...]:
    """The protocols of `--protocol A,B`; a family stands for its members. Raises :class:`BadInput` for unknown ones."""
    chosen: list[str] = []
    for word in filter(None, (words or "").split(",")):
        if word not in FAMILIES and word not in PROTOCOLS:
            raise BadInput(f"there is no protocol {word!r}; there are {', '.join((*FAMILIES, *PROTOCOLS))}")
        chosen += FAMILIES.get(word, (word,))
    return tuple(dict.fromkeys(chosen))
