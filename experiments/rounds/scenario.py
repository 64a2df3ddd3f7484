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


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """When ``at_share`` of the expected time of the work has passed, ``event`` befalls the server of this number, or the leader. ``percent`` of a
    processor is left to a slow one.
    """

    at_share: float
    event: Literal["crash", "slow"]
    server: int | Literal["leader"] = 0
    percent: int = 20


class Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    """What one round is like. Sizes are bytes, intervals seconds.

    ``interval_s``: a reader or writer waits a random time up to it before each operation (the papers' stochastic invocation); 0: it does not.
    ``parity``: m = n - k of the erasure code. ``onto``: reconfigurers move to all servers, or to some that chance chooses. ``switches``: those of
    ares that are on. ``fresh_after_s``: readers begin so late, and each read is that of a new client, which knows the first configuration alone.
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
    durability: Literal["memory", "fsync"] = "memory"
    fresh_after_s: float = 0.0

    @property
    def k(self) -> int:
        return self.servers - self.parity

    @property
    def expected_s(self) -> float:
        """How long the work takes, about."""
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
        return "_".join(filter(None, (self.protocol, varied, str(self.iteration))))

    @property
    def expected_s(self) -> float:
        return self.parameters.expected_s + 6.0


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
                yield Round(self.name, protocol, parameters, varied, iteration, self.fault if protocol in OF_ARES else ())

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
        return parameters


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
