"""A scenario as its file describes it (scenarios/NAME.toml), and its rounds.

Reading the files is the only I/O. In the tables ``fixed``, ``quick`` and ``paper`` a list varies,
and every other value is fixed; the table of the scale wins over ``fixed``. Every combination of
varying values is a point, and a point is a round for each protocol and iteration.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct, field, structs

from ares.model.configuration import DELTA_DEFAULT
from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.rounds.ares_protocols import TRANSCRIPTIONS, why_untranscribed
from experiments.testbeds.testbed_plan import TESTBED_HOSTS_MAX

SCENARIOS_DIRECTORY = Path(__file__).parent / "scenarios"

Scale = Literal["quick", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

Protocol = Literal[
    *("ABD", "ARES_ABD", "ARES_EC", "COARES_ABD", "COARES_EC", "COARES_ABD_F", "COARES_EC_F"),
    *("ARES_MIXED", "COARES_MIXED", "COARES_MIXED_F", "CASSANDRA", "REDIS", "REDIS_W", "ETCD"),
]
ROUND_PROTOCOLS: tuple[str, ...] = get_args(Protocol)
OF_ARES = ROUND_PROTOCOLS[: ROUND_PROTOCOLS.index("CASSANDRA")]
PROTOCOL_FAMILIES = {
    "ARES": OF_ARES[1:],
    "Cassandra": ("CASSANDRA",),
    "Redis": ("REDIS",),
    "RedisW": ("REDIS_W",),
    "etcd": ("ETCD",),
}
"""Words for `--protocol` beside the names above."""


OF_LOADS = ("ABD", "ARES_ABD", "ARES_EC", *ROUND_PROTOCOLS[len(OF_ARES) :])
"""Protocols that the generators of load can use."""

Bad = Literal["nobody", "killed replica", "slowed replica", "killed leader", "slowed leader"]
BAD_AT_SHARE = 1 / 3
"""Share of a load's measured time before the fault, for comparison with the rest."""


CRASHES_AT_SHARE = 0.5

BYTES_PER_S = 150e6
"""Assumed rate at which this machine moves values, for the expected time of a round."""


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """A fault of a round.

    ``event`` happens when ``at_share`` of the expected time of the work has passed, or after
    ``at_s`` seconds. The target is the ``server`` of this number, or the leader, or the link
    between the two ``sites`` of a placement.

    - crash: kill -9.
    - slow: the server keeps ``percent`` of a processor; 100 ends the slowing.
    - fill: ``free_bytes`` of the server's disk stay free; free: the whole disk is free again.
    - cut: the sites exchange no messages; join: the sites are connected again.
    """

    event: Literal["crash", "slow", "fill", "free", "cut", "join"]
    at_share: float | None = None
    at_s: float | None = None
    server: int | Literal["leader", "replica", "members"] = 0
    sites: tuple[str, str] = ("E", "U")
    percent: int = 20
    free_bytes: int = 0

    def __post_init__(self) -> None:
        if (self.at_share is None) == (self.at_s is None):
            raise ValueError("a fault has at_share or at_s, one of them")

    def after_s(self, expected_s: float) -> float:
        """Return the seconds after the beginning of the work, of expected length ``expected_s``."""
        return self.at_s if self.at_s is not None else (self.at_share or 0.0) * expected_s


class LoadSeries(Struct, frozen=True, forbid_unknown_fields=True):
    """Consecutive points of load at a single store: the work of a load round.

    A load round has no readers and writers. A point ends with ``operations`` in all or after
    ``seconds``. The number of clients doubles from ``clients`` to ``clients_max`` while this adds
    more than ``growth`` to the throughput. Open loops follow, with the most clients: operations
    begin by a Poisson process, at the best point's rate multiplied by each of ``offered``.

    Operations choose evenly among ``keys``. The first ``written`` keys have a value from the
    beginning; a read of any other key finds no value. ``processes`` make the load.
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
        numbers = (self.keys, self.operations, self.clients, self.processes, self.seconds)
        if min(*numbers, *self.offered) <= 0:
            raise ValueError("numbers of a load are above 0")
        if not 0 <= self.written <= self.keys or self.clients_max < self.clients:
            least = "no more written keys than keys, and no fewer clients_max than clients"
            raise ValueError(f"a load has {least}")

    @property
    def expected_s(self) -> float:
        """Return the approximate time of the load."""
        points = (self.clients_max // self.clients).bit_length() + len(self.offered)
        return points * (min(self.seconds, self.operations / 4000) + 0.5)


class Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a round. Sizes are in bytes, intervals in seconds.

    A reader or writer waits a random time up to ``interval_s`` before each operation (the papers'
    stochastic invocation); 0 means no wait. With ``arrivals`` "open", operations are due by a
    Poisson process of the same rate, and an operation that is due while its client is busy waits
    for the client. With ``check``, answers to clients are kept and judged (correctness.py).
    ``load`` makes a load round; ``read_share`` of its operations are reads, and ``bad`` is a fault
    of a server in the middle. A member of consensus has ``members_percent`` of a processor.
    ``parity`` is m = n - k of the erasure code. ``onto``: reconfigurers move to all servers, or to
    random servers. ``switches`` are ares's switches that are on. Readers
    begin after ``fresh_after_s``, and each read is by a new client that knows the first
    configuration alone; reconfigurers take turns.

    ``placement`` is the number of servers at each site, such as "1E+2U" (Europe and the United
    States); if empty, all are at a single site. ``client_site`` is the clients' site in a
    placement, and ``delay_ms`` the delay between sites, each way. ``rate_mbit`` is the rate of the
    link of each host, in millions of bits a second; 0: no limit. ``crashes`` servers are killed in
    the middle of the work, sequentially from the first. A client of ares gives an operation up
    after ``timeout_s``. With ``load_policy`` "growing", the size of written values grows evenly up
    to ``object_size``, the size of the last write.

    ``published`` names the algorithm as published that runs in place of today's ares: "ares" (of
    2022), "ares2" with the switches piggyback, gc and batch, or "abd". Its delta is the number of
    writers, or of a load's most clients. The first ``pending`` moves of its reconfigurers end
    between put-config and transfer.
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
    load: LoadSeries | None = None
    read_share: float = 0.5
    bad: Bad = "nobody"
    members_percent: int = 100
    durability: Literal["memory", "fsync"] = "memory"
    fresh_after_s: float = 0.0
    placement: str = ""
    client_site: str = ""
    delay_ms: float = 0.0
    rate_mbit: float = 0.0
    crashes: int = 0
    timeout_s: float = 30.0
    load_policy: Literal["fixedsize", "growing"] = "fixedsize"
    published: str = ""
    pending: int = 0

    @property
    def delta(self) -> int:
        writers = self.writers if self.load is None else self.load.clients_max
        return writers if self.published else DELTA_DEFAULT

    @property
    def sites(self) -> dict[str, int]:
        """Return the number of servers at each site of the placement. Raises ValueError."""
        parts = self.placement.split("+") if self.placement else []
        found = [re.fullmatch(r"(\d+)([A-Z]\w*)", part) for part in parts]
        if None in found:
            raise ValueError(f"placement {self.placement!r} is not like 1E+2U")
        return {part[2]: int(part[1]) for part in found if part}

    @property
    def k(self) -> int:
        return self.servers - self.parity

    @property
    def preparing_s(self) -> float:
        """Return the approximate time to write the keys of a load."""
        return 0.0 if self.load is None else self.load.written / 4000

    @property
    def expected_s(self) -> float:
        """Return the approximate time of the work."""
        if self.load is not None:
            return self.load.expected_s
        moved = (self.readers + self.writers) * self.object_size / BYTES_PER_S
        return max(
            self.fresh_after_s
            + self.operations * (self.interval_s / 2 + 0.02 + 0.004 * self.delay_ms + moved),
            self.reconfigurations * self.reconfigure_every_s if self.reconfigurers else 0.0,
        )

    @property
    def published_s(self) -> float:
        """Return the longest time of the algorithms as published to move their values over a link.

        An operation of ABD moves a value to or from each server, in two phases. A read of the
        erasure code gets a list of delta + 1 elements from each server, and puts an element back.
        """
        if not self.published or self.load is not None:
            return 0.0
        values = max(2 * self.servers, (self.delta + 2) * self.servers / self.k)
        operations = (self.readers + self.writers) * self.operations
        rate = self.rate_mbit * 1e6 / 8 or BYTES_PER_S
        return operations * values * self.object_size / rate

    @property
    def work_s(self) -> float:
        """Return the approximate time of the work, also as published."""
        return self.expected_s + self.published_s


SWITCHES = Parameters().switches

_RANGES: dict[str, tuple[float, float]] = {
    "servers": (1, TESTBED_HOSTS_MAX),
    **dict.fromkeys(("writers", "readers"), (1, 10_000)),
    **dict.fromkeys(("reconfigurers", "reconfigurations", "crashes", "pending"), (0, 10_000)),
    **dict.fromkeys(("object_size", "block_min", "block_max"), (1, 1 << 32)),
    "operations": (1, 1_000_000_000),
    **dict.fromkeys(("interval_s", "reconfigure_every_s"), (0, 86_400)),
    **dict.fromkeys(("fresh_after_s", "timeout_s"), (0, 86_400)),
    "delay_ms": (0, 60_000),
    "rate_mbit": (0, 1_000_000),
    "members_percent": (1, 100),
    "read_share": (0, 1),
}
"""Ranges of values.

A round has a client that makes the object, and a client that reads the object at the end.
"""


class ScenarioRound(Struct, frozen=True):
    """A round of a scenario.

    ``varied`` has the parameters that distinguish this point from other points of the scenario.
    """

    scenario: str
    protocol: str
    parameters: Parameters
    varied: dict[str, Any]
    iteration: int
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        """Return the name of the directory, under the scenario's directory."""
        varied = "_".join(
            f"{name}-{'+'.join(map(str, value)) if isinstance(value, tuple | list) else value}"
            for name, value in self.varied.items()
            if (name, value) != ("published", "")
        )
        words = (self.protocol, varied.replace(" ", "-"), str(self.iteration))
        return "_".join(filter(None, words))

    @property
    def expected_s(self) -> float:
        """Return the time with the steps around the work, which grows with the servers."""
        around_s = self.parameters.preparing_s + 4.0 + 0.6 * self.parameters.servers
        return self.parameters.work_s + around_s


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario.

    ``seen_in`` is the source. ``parity`` is m by the number of servers, if this number varies.
    ``note`` has caveats for the figures.

    The table of a scale may have fewer ``protocols``; other protocols run at that scale only on
    request. ``points`` wins over the table ``paper`` in rounds of a single point
    (experiments/verdicts/claimed_points.py).
    """

    title: str
    seen_in: str
    protocols: tuple[Protocol, ...]
    quick: dict[str, Any]
    paper: dict[str, Any]
    fixed: dict[str, Any] = {}
    points: dict[str, Any] = {}
    parity: dict[str, int] = {}
    fault: tuple[Fault, ...] = ()
    note: str = ""
    name: str = field(default="", name="_")

    def varies(self, scale: Scale) -> dict[str, list[Any]]:
        """Return the varying parameters at this scale, with the values."""
        table = self.fixed | getattr(self, scale)
        table.pop("protocols", None)
        return {key: value for key, value in table.items() if isinstance(value, list)}

    def changed(self, given: Sequence[str]) -> "Scenario":
        """Return the scenario with other values of parameters, NAME=VALUE. Raises BadInput.

        Switches of ares have names, too, and are true or false. A given value is in the names of
        the rounds, like the varying values.
        """
        tables = {name: dict(getattr(self, name)) for name in ("fixed", *SCALES)}
        known = [name for name in Parameters.__struct_fields__ if name != "switches"]
        for word in given:
            name, equals, text = word.partition("=")
            value = _value(text)
            if not equals or not (name in known or (name in SWITCHES and isinstance(value, bool))):
                raise BadInput(
                    f"{printable(word)!r} is not NAME=VALUE with a parameter, or with a switch "
                    f"that is true or false; there are {', '.join((*known, *SWITCHES))}"
                )
            for table in map(tables.__getitem__, SCALES):
                if name in known:
                    table[name] = [value]
                    continue
                switches = table.get("switches", tables["fixed"].get("switches", [SWITCHES]))
                table["switches"] = [
                    [*(switch for switch in each if switch != name), *([name] * value)]
                    for each in switches
                ]
        return structs.replace(self, **tables)

    def rounds(self, scale: Scale, protocols: Sequence[str] = ()) -> Iterator[ScenarioRound]:
        """Yield the rounds: all protocols at a point before the next point.

        Compared rounds are therefore measured close in time. Of several algorithms as published, a
        round is made for those that can run the protocol.
        """
        table = self.fixed | getattr(self, scale)
        iterations, mine = table.pop("iterations", 1), table.pop("protocols", self.protocols)
        varying = {key: value for key, value in table.items() if isinstance(value, list)}
        fixed = {key: value for key, value in table.items() if key not in varying}
        chosen = [protocol for protocol in self.protocols if protocol in (protocols or mine)]
        names = set[str]()
        for iteration, values in itertools.product(
            range(1, iterations + 1), itertools.product(*varying.values())
        ):
            varied = dict(zip(varying, values, strict=True))
            for protocol in chosen:
                round = self.round(protocol, fixed | varied, varied, iteration)
                own = round.parameters
                leaderless = protocol in OF_ARES and own.bad.endswith("leader")
                beside = len(varying.get("published", ())) > 1
                other = beside and why_untranscribed(protocol, own.published, own.switches)
                if round.name not in names and not leaderless and not other:
                    names.add(round.name)
                    yield round

    def round(
        self, protocol: str, given: dict[str, Any], varied: dict[str, Any], iteration: int
    ) -> ScenarioRound:
        """Return the round with the ``given`` parameters. Raises BadInput for invalid ones."""
        parameters = self._parameters(given)
        faults = (*(self.fault if protocol in OF_ARES else ()), *_faults_of(parameters))
        if protocol not in OF_ARES[1:]:  # other protocols have no reconfigurations
            parameters = structs.replace(parameters, reconfigurers=0)
        if protocol not in OF_ARES:
            parameters = structs.replace(parameters, published="")
        if parameters.published in ("ares", "abd"):  # they have no switches
            parameters = structs.replace(parameters, switches=())
        own = ("published", *(["switches"] if parameters.published else []))
        varied = varied | {name: getattr(parameters, name) for name in own if name in varied}
        return ScenarioRound(self.name, protocol, parameters, varied, iteration, faults)

    def one_point(self, named: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the parameters of the point with these ``named`` values, and the varied ones.

        ``switches`` are named by words like `+gc`. Raises BadInput if a varying parameter of the
        paper scale is not named.
        """
        table = self.fixed | self.paper | self.points
        table = {key: table[key] for key in table if key not in ("iterations", "protocols")}
        fixed = {key: value for key, value in table.items() if not isinstance(value, list)}
        varied = {key: value for key, value in named.items() if fixed.get(key) != value}
        if "switches" in named:
            words = str(named["switches"]).split()
            fitting = [
                switches
                for switches in table.get("switches", [list(SWITCHES)])
                if all((word[1:] in switches) == (word[0] == "+") for word in words)
            ]
            if len(fitting) != 1:
                fits = f"{named['switches']} fits {len(fitting)} of its switches"
                raise BadInput(f"scenario {self.name}: {fits}")
            varied["switches"] = fitting[0]
        if missing := sorted(table.keys() - fixed.keys() - varied.keys()):
            raise BadInput(f"scenario {self.name}: a point names {', '.join(missing)}")
        return fixed | varied, varied

    def _parameters(self, given: dict[str, Any]) -> Parameters:
        try:
            if "placement" in given:
                placed = Parameters(placement=given["placement"]).sites
                given = given | {"servers": sum(placed.values())}
            if (servers := str(given.get("servers", Parameters().servers))) in self.parity:
                given = {"parity": self.parity[servers]} | given
            parameters = msgspec.convert(given, Parameters)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise BadInput(f"scenario {self.name}: {error}") from error
        if (why := next(self._invalid(parameters), None)) is not None:
            raise BadInput(f"scenario {self.name}: {why}")
        return parameters

    def _invalid(self, own: Parameters) -> Iterator[str]:
        """Yield why a round cannot have these parameters."""
        for name, (least, most) in _RANGES.items():
            if not least <= (value := getattr(own, name)) <= most:
                yield f"{name} is from {least} to {most:,}, not {value}"
        if not 0 <= own.parity < own.servers:
            yield f"parity {own.parity} with {own.servers} servers"
        if own.published not in TRANSCRIPTIONS:
            known = ", ".join(repr(name) for name in TRANSCRIPTIONS if name)
            yield (
                f"published = {own.published!r} is no algorithm that was transcribed; there are "
                f"{known}, and '' is today's ares"
            )
        if own.arrivals == "open" and own.interval_s <= 0:
            yield (
                "open arrivals need an interval_s: every client's operations are due after half of "
                "it, in the mean"
            )
        if own.load is None and own.bad != "nobody":
            yield f"bad = {own.bad!r} is for a load; rounds of readers and writers have [[fault]]"
        if own.load is not None and (others := set(self.protocols) - set(OF_LOADS)):
            kinds = f"no load can be made for {', '.join(sorted(others))}"
            yield f"{kinds}; there is {', '.join(OF_LOADS)}"
        if own.placement and own.client_site not in own.sites:
            yield f"clients are at {own.client_site!r}, which is no site of {own.placement}"
        for fault in self.fault:
            if fault.event in ("cut", "join") and not set(fault.sites) <= set(own.sites):
                link = f"{fault.event} of {' and '.join(fault.sites)}"
                yield f"{link}, which {own.placement!r} does not have"


def _value(text: str) -> Any:
    """Return a number, true, false, or the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _faults_of(parameters: Parameters) -> tuple[Fault, ...]:
    """Return the faults in the parameters."""
    bad, percent = parameters.bad, parameters.members_percent
    if bad == "nobody":
        slow = [Fault("slow", at_s=0.0, server="members", percent=percent)] * (percent < 100)
        crash, numbers = partial(Fault, "crash", CRASHES_AT_SHARE), range(parameters.crashes)
        return (*slow, *(crash(server=number) for number in numbers))
    server: Literal["leader", "replica"] = "leader" if bad.endswith("leader") else "replica"
    return (Fault("crash" if bad.startswith("killed") else "slow", BAD_AT_SHARE, server=server),)


def scenarios(directory: Path = SCENARIOS_DIRECTORY) -> dict[str, Scenario]:
    """Return all scenarios by name. Raises :class:`BadInput` for an invalid file."""
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
    """Return the protocols of `--protocol A,B`; a family stands for its members.

    Raises :class:`BadInput` for unknown protocols.
    """
    chosen: list[str] = []
    for word in filter(None, (words or "").split(",")):
        if word not in PROTOCOL_FAMILIES and word not in ROUND_PROTOCOLS:
            raise BadInput(
                f"there is no protocol {word!r}; there are "
                f"{', '.join((*PROTOCOL_FAMILIES, *ROUND_PROTOCOLS))}"
            )
        chosen += PROTOCOL_FAMILIES.get(word, (word,))
    return tuple(dict.fromkeys(chosen))
