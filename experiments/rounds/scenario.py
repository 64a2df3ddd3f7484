"""A scenario as its file says it (scenarios/NAME.toml), and the rounds that come of it. No I/O but reading the files.

In the tables ``fixed``, ``quick`` and ``paper`` a list varies, and everything else is fixed; the table of the scale wins over ``fixed``. Every
combination of what varies is a point, and a point is a round for each protocol and iteration.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, structs

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.testbeds.plan import HOSTS_MAX

DIRECTORY = Path(__file__).parent / "scenarios"

Scale = Literal["quick", "paper"]
SCALES: tuple[Scale, ...] = ("quick", "paper")

Protocol = Literal[
    *(
        "ABD",
        "ARES_ABD",
        "ARES_EC",
        "COARES_ABD",
        "COARES_EC",
        "COARES_ABD_F",
        "COARES_EC_F",
        "ARES_MIXED",
    ),
    *("CASSANDRA", "REDIS", "REDIS_W", "ETCD"),
]  # type: ignore[valid-type]
PROTOCOLS: tuple[str, ...] = (
    *(
        "ABD",
        "ARES_ABD",
        "ARES_EC",
        "COARES_ABD",
        "COARES_EC",
        "COARES_ABD_F",
        "COARES_EC_F",
        "ARES_MIXED",
    ),
    *("CASSANDRA", "REDIS", "REDIS_W", "ETCD"),
)
OF_ARES = PROTOCOLS[:8]
FAMILIES = {
    "ARES": OF_ARES[1:],
    "Cassandra": ("CASSANDRA",),
    "Redis": ("REDIS",),
    "RedisW": ("REDIS_W",),
    "etcd": ("ETCD",),
}
"""What `--protocol` takes beside the names above."""


OF_LOADS = ("ABD", "ARES_ABD", "ARES_EC", *PROTOCOLS[8:])
"""Protocols that the generators of load speak."""

Bad = Literal["nobody", "killed replica", "slowed replica", "killed leader", "slowed leader"]
BAD_AT_SHARE = 1 / 3
"""Of the measured time of a load. What was done before is what the rest is compared with."""


CRASHES_AT_SHARE = 0.5


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """When ``at_share`` of the expected time of the work has passed, or ``at_s`` seconds, ``event`` befalls the ``server`` of this number, or the
    leader, or the link between the two ``sites`` of a placement.

    crash: kill -9. slow: ``percent`` of a processor is left to it; 100 ends that. fill: ``free_bytes`` of its disk stay free; free: they are all free
    again. cut: nothing goes from one site to the other; join: it does again.
    """

    event: Literal["crash", "slow", "fill", "free", "cut", "join"]
    at_share: float | None = None
    at_s: float | None = None
    server: int | Literal["leader", "replica"] = 0
    sites: tuple[str, str] = ("E", "U")
    percent: int = 20
    free_bytes: int = 0

    def __post_init__(self) -> None:
        if (self.at_share is None) == (self.at_s is None):
            raise ValueError("a fault has at_share or at_s, one of them")

    def after_s(self, expected_s: float) -> float:
        """How long after the beginning of the work, which is expected to last ``expected_s``."""
        return self.at_s if self.at_s is not None else (self.at_share or 0.0) * expected_s


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
        if (
            min(
                self.keys,
                self.operations,
                self.clients,
                self.processes,
                self.seconds,
                *self.offered,
            )
            <= 0
        ):
            raise ValueError("numbers of a load are above 0")
        if not 0 <= self.written <= self.keys or self.clients_max < self.clients:
            raise ValueError(
                "a load has no more written keys than keys, and no fewer clients_max than clients"
            )

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

    ``placement``: how many servers are at each site, such as "1E+2U" (Europe and the United States); empty: all are at one. ``client_site``: where
    the clients are then, and ``delay_ms`` what goes from site to site takes, one way. ``crashes``: so many servers, one after the
    other from the first on, are killed in the midst of the work. ``timeout_s``: a client of ares gives an operation up after it.
    ``load_policy`` "growing": what a writer writes grows evenly up to ``object_size``, which its last write has.
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
    placement: str = ""
    client_site: str = ""
    delay_ms: float = 0.0
    crashes: int = 0
    timeout_s: float = 30.0
    load_policy: Literal["fixedsize", "growing"] = "fixedsize"

    @property
    def sites(self) -> dict[str, int]:
        """How many servers are at each site of the placement. Raises ValueError for what is none."""
        parts = (
            [re.fullmatch(r"(\d+)([A-Z]\w*)", part) for part in self.placement.split("+")]
            if self.placement
            else []
        )
        if None in parts:
            raise ValueError(f"placement {self.placement!r} is not like 1E+2U")
        return {part[2]: int(part[1]) for part in parts if part}

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
            self.fresh_after_s
            + self.operations * (self.interval_s / 2 + 0.02 + 0.004 * self.delay_ms),
            self.reconfigurations * self.reconfigure_every_s if self.reconfigurers else 0.0,
        )


SWITCHES = Parameters().switches

_RANGES: dict[str, tuple[float, float]] = {
    "servers": (1, HOSTS_MAX),
    **dict.fromkeys(("writers", "readers"), (1, 10_000)),
    **dict.fromkeys(("reconfigurers", "reconfigurations", "crashes"), (0, 10_000)),
    **dict.fromkeys(("object_size", "block_min", "block_max"), (1, 1 << 32)),
    "operations": (1, 1_000_000_000),
    **dict.fromkeys(
        ("interval_s", "reconfigure_every_s", "fresh_after_s", "timeout_s"), (0, 86_400)
    ),
    "delay_ms": (0, 60_000),
}
"""From where to where values can be: a round has somebody who makes the object, and somebody who reads it in the end."""


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
        varied = "_".join(
            f"{name}-{'+'.join(map(str, value)) if isinstance(value, tuple | list) else value}"
            for name, value in self.varied.items()
        )
        return "_".join(
            filter(None, (self.protocol, varied.replace(" ", "-"), str(self.iteration)))
        )

    @property
    def expected_s(self) -> float:
        """With the steps around the work, which take longer with more servers."""
        return (
            self.parameters.expected_s
            + self.parameters.preparing_s
            + 4.0
            + 0.6 * self.parameters.servers
        )


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """``seen_in``: the source. ``parity``: m by the number of servers, where that varies. ``note``: what a reader of its figures has to know.

    The table of a scale may have fewer ``protocols``; the others are carried out there when they are asked for.
    """

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
        table.pop("protocols", None)
        return {key: value for key, value in table.items() if isinstance(value, list)}

    def changed(self, given: Sequence[str]) -> "Scenario":
        """With other values of parameters, NAME=VALUE; switches of ares have names, too, and are true or false. Raises BadInput.

        A value that is given is in the names of the rounds, as those that vary are.
        """
        tables = {name: dict(getattr(self, name)) for name in ("fixed", *SCALES)}
        for word in given:
            name, equals, text = word.partition("=")
            value = _value(text)
            if name in SWITCHES and isinstance(value, bool):
                for scale in SCALES:
                    switches = tables[scale].get(
                        "switches", tables["fixed"].get("switches", [SWITCHES])
                    )
                    tables[scale]["switches"] = [
                        [*(switch for switch in each if switch != name), *([name] * value)]
                        for each in switches
                    ]
            elif equals and name in Parameters.__struct_fields__ and name != "switches":
                for scale in SCALES:
                    tables[scale][name] = [value]
            else:
                known = ", ".join(
                    (
                        *(field for field in Parameters.__struct_fields__ if field != "switches"),
                        *SWITCHES,
                    )
                )
                raise BadInput(
                    f"{printable(word)!r} is not NAME=VALUE with a parameter, or with a switch that is true or false; there are {known}"
                )
        return msgspec.structs.replace(self, **tables)

    def rounds(self, scale: Scale, protocols: Sequence[str] = ()) -> Iterator[Round]:
        """In order: all protocols at a point before the next point, so that what is compared was measured at one time."""
        table = self.fixed | getattr(self, scale)
        iterations, mine = table.pop("iterations", 1), table.pop("protocols", self.protocols)
        varying = {key: value for key, value in table.items() if isinstance(value, list)}
        fixed = {key: value for key, value in table.items() if key not in varying}
        chosen = [protocol for protocol in self.protocols if protocol in (protocols or mine)]
        for iteration, values in itertools.product(
            range(1, iterations + 1), itertools.product(*varying.values())
        ):
            varied = dict(zip(varying, values, strict=True))
            parameters = self._parameters(fixed | varied)
            for protocol in chosen:
                if not (
                    protocol in OF_ARES and parameters.bad.endswith("leader")
                ):  # no server of ares leads
                    faults = (*(self.fault if protocol in OF_ARES else ()), *_faults_of(parameters))
                    own = (
                        parameters
                        if protocol in OF_ARES[1:]
                        else structs.replace(parameters, reconfigurers=0)
                    )  # others have no reconfigurations
                    yield Round(self.name, protocol, own, varied, iteration, faults)

    def _parameters(self, given: dict[str, Any]) -> Parameters:
        if "placement" in given:
            given = given | {"servers": self._placed(given["placement"])}
        servers = given.get("servers", Parameters().servers)
        if str(servers) in self.parity:
            given = {"parity": self.parity[str(servers)]} | given
        try:
            parameters = msgspec.convert(given, Parameters)
        except msgspec.ValidationError as error:
            raise BadInput(f"scenario {self.name}: {error}") from error
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(parameters, name) <= most:
                raise BadInput(
                    f"scenario {self.name}: {name} is from {least} to {most:,}, not {getattr(parameters, name)}"
                )
        if not 0 <= parameters.parity < parameters.servers:
            raise BadInput(
                f"scenario {self.name}: parity {parameters.parity} with {parameters.servers} servers"
            )
        if not 0 <= parameters.read_share <= 1:
            raise BadInput(
                f"scenario {self.name}: read_share {parameters.read_share} is no part of all operations"
            )
        if parameters.arrivals == "open" and parameters.interval_s <= 0:
            raise BadInput(
                f"scenario {self.name}: open arrivals need an interval_s: every client's operations are due after half of it, in the mean"
            )
        if parameters.load is None and parameters.bad != "nobody":
            raise BadInput(
                f"scenario {self.name}: bad = {parameters.bad!r} is for a load; rounds of readers and writers have [[fault]]"
            )
        if parameters.load is not None and (others := set(self.protocols) - set(OF_LOADS)):
            raise BadInput(
                f"scenario {self.name}: no load can be made for {', '.join(sorted(others))}; there is {', '.join(OF_LOADS)}"
            )
        if parameters.placement and parameters.client_site not in parameters.sites:
            raise BadInput(
                f"scenario {self.name}: clients are at {parameters.client_site!r}, which is no site of {parameters.placement}"
            )
        for fault in self.fault:
            if fault.event in ("cut", "join") and not set(fault.sites) <= set(parameters.sites):
                raise BadInput(
                    f"scenario {self.name}: {fault.event} of {' and '.join(fault.sites)}, which {parameters.placement!r} does not have"
                )
        return parameters

    def _placed(self, placement: str) -> int:
        try:
            return sum(Parameters(placement=placement).sites.values())
        except (ValueError, TypeError) as error:
            raise BadInput(f"scenario {self.name}: {error}") from error


def _value(text: str) -> Any:
    """A number, true, false, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _faults_of(parameters: Parameters) -> tuple[Fault, ...]:
    """Those that the parameters say."""
    bad = parameters.bad
    if bad == "nobody":
        return tuple(
            Fault("crash", at_share=CRASHES_AT_SHARE, server=number)
            for number in range(parameters.crashes)
        )
    event: Literal["crash", "slow"] = "crash" if bad.startswith("killed") else "slow"
    return (
        Fault(
            event, at_share=BAD_AT_SHARE, server="leader" if bad.endswith("leader") else "replica"
        ),
    )


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
            raise BadInput(
                f"there is no protocol {word!r}; there are {', '.join((*FAMILIES, *PROTOCOLS))}"
            )
        chosen += FAMILIES.get(word, (word,))
    return tuple(dict.fromkeys(chosen))
