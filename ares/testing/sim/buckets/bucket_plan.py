"""The plan of a run of the scenario `bucket`: plain data from a seed."""

from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN
from ares.testing.sim.plan import Chances, PlannedFault, SimPlan, SimWish
from ares.testing.sim.shared_log.log_plan import LogPlan

BLOB_SERVERS = 5
BUCKET_LOG_SERVERS = (10, 11, 12, 13)
"""Numbers of the servers with the log; the servers with blobs are numbered from 0 on."""

BUCKET_CHAOS_S = 6.0
SIMULATED_BUCKET = "photos"
BUCKET_STEP_KINDS = (
    *("put", "put", "put-new", "put-new", "put-new", "put-if", "put-if", "get", "get", "get"),
    *("delete", "delete-if", "copy", "copy-new", "multipart", "multipart-copy"),
    *("batch", "rename", "tags"),
)
RARE_STEP_KINDS = (*("quota",) * 4, *("versioning", "delete-null", "drop") * 2)
"""Kinds of some plans: they change the whole bucket."""

BucketKind = Literal[
    "create",
    "put",
    "put-new",
    "put-if",
    "get",
    "delete",
    "delete-if",
    "copy",
    "copy-new",
    "multipart",
    "multipart-copy",
    "batch",
    "rename",
    "tags",
    "versioning",
    "quota",
    "delete-null",
    "drop",
]


class BucketStep(Struct, frozen=True):
    """A request of a user, ``pause_s`` after the last; ``gateway`` is asked first.

    ``other``: the source of a copy. ``patience_s``: until the request is sent again.
    """

    pause_s: float
    kind: BucketKind
    key: str
    gateway: int
    other: str = ""
    patience_s: float = 2.0


class BucketUserPlan(Struct, frozen=True):
    """The plan of a user. ``ids``: the invocation ids that its library gives.

    Each request its own; none, and then one attempt; or one id for all puts, which are told apart
    by their etags.
    """

    name: str
    steps: tuple[BucketStep, ...]
    dies_at: float | None = None
    ids: Literal["own", "none", "one"] = "own"


class GatewayFault(Struct, frozen=True):
    """A gateway is killed, stopped as by SIGSTOP, or has a full disk, for ``lasts_s``."""

    kind: Literal["kill", "stop", "full"]
    gateway: int
    at: float
    lasts_s: float


class BucketMove(Struct, frozen=True):
    """A move of the log to the ``servers`` of a chain, or of the blobs to ``wish``."""

    at: float
    servers: tuple[int, ...] = ()
    wish: SimWish | None = None


class BucketPlan(Struct, frozen=True):
    """A whole run.

    ``skews_ms``: of the gateways' clocks. ``lags_s``: from an entry's arrival at a gateway to its
    application. ``kept``: positions for which invocations are remembered.
    ``snapshot_every``: positions between snapshots. ``answer_loss``: of answers to users.
    """

    scenario: str
    seed: int
    chances: Chances
    chain: tuple[int, ...]
    initial: SimWish
    clients: tuple[BucketUserPlan, ...]
    skews_ms: tuple[int, ...]
    lags_s: tuple[float, ...]
    faults: tuple[PlannedFault, ...]
    gateway_faults: tuple[GatewayFault, ...]
    moves: tuple[BucketMove, ...]
    kept: int
    snapshot_every: int
    answer_loss: float
    chaos_s: float = BUCKET_CHAOS_S

    def describe(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode()

    @property
    def first_blobs(self) -> Configuration:
        return self.initial.configuration(lambda _: 0).at(DEFAULT_DOMAIN, 0)

    @property
    def of_log(self) -> LogPlan:
        """Return the plan of the log's servers, without clients of their own."""
        return LogPlan(
            *("bucket", self.seed, len(BUCKET_LOG_SERVERS), self.chain, self.chances, (), (), None),
            timeout_s=1.0,
        )

    @property
    def of_blobs(self) -> SimPlan:
        """Return the plan of the servers of blobs, without clients of their own."""
        return SimPlan(
            *("bucket", self.seed, BLOB_SERVERS, self.initial, self.chances, (), ()),
            chaos_s=self.chaos_s,
            ahead=self.seed % 3 == 0,
        )


def draw_bucket(seed: int) -> BucketPlan:
    """Draw the plan of a seed."""
    rng = Random(f"plan bucket {seed}")
    calm = seed % 4 == 0
    gateways = rng.choice([1, 2, 2, 3, 3])
    chances = Chances(
        rng.choice([0.0005, 0.002, 0.01]),
        rng.uniform(1.2, 3.0),
        0.0 if calm else rng.choice([0.0, 0.025, 0.1]),
        rng.choice([0, 0.1]),
        rng.choice([0.001, 0.01]),
        0.0 if calm else rng.choice([0.0, 0.0, 0.1]),
    )
    keys = [f"k{number}" for number in range(rng.choice([1, 1, 2, 3]))]
    pause_s = rng.choice([0.01, 0.05, 0.3])
    kinds = BUCKET_STEP_KINDS + (RARE_STEP_KINDS if rng.random() < 0.5 else ())
    users = tuple(
        _user(rng, f"u{number}", keys, gateways, pause_s, kinds)
        for number in range(rng.randint(2, 5))
    )
    faults = () if calm else tuple(_fault(rng) for _ in range(rng.choice([0, 1, 2, 4])))
    struck = [] if calm and rng.random() < 0.5 else range(rng.choice([0, 1, 2, 4]))
    return BucketPlan(
        "bucket",
        seed,
        chances,
        tuple(rng.sample(BUCKET_LOG_SERVERS, 3)),
        _wish(rng),
        users,
        tuple(rng.choice([0, 0, 500, 86_400_000]) for _ in range(gateways)),
        tuple(rng.choice([0.0, 0.0, 0.1, 0.5]) for _ in range(gateways)),
        faults,
        tuple(_gateway_fault(rng, gateways) for _ in struck),
        () if calm else tuple(_move(rng) for _ in range(rng.choice([0, 1, 2]))),
        rng.choice([3, 10, 1000]),
        rng.choice([15, 40, 100_000]),
        rng.choice([0.0, 0.1, 0.3]),
    )


def _user(
    rng: Random,
    name: str,
    keys: list[str],
    gateways: int,
    pause_s: float,
    kinds: tuple[str, ...],
) -> BucketUserPlan:
    steps = tuple(
        BucketStep(
            rng.expovariate(1 / pause_s),
            msgspec.convert(rng.choice(kinds), BucketKind),
            rng.choice(keys),
            rng.randrange(gateways),
            rng.choice(keys),
            rng.choice([0.2, 1.0, 2.0]),
        )
        for _ in range(rng.randint(3, 10))
    )
    dies_at = rng.uniform(0, 2) if rng.random() < 0.1 else None
    ids: Literal["own", "none", "one"] = (
        "own" if rng.random() < 0.6 else "none" if rng.random() < 0.6 else "one"
    )
    return BucketUserPlan(name, steps, dies_at, ids)


def _wish(rng: Random) -> SimWish:
    if rng.random() < 0.5:
        servers = tuple(rng.sample(range(BLOB_SERVERS), rng.choice([3, 5])))
        return SimWish("abd", servers, write_once=True)
    return SimWish("ec", tuple(range(BLOB_SERVERS)), 3, 4, write_once=True)


def _fault(rng: Random) -> PlannedFault:
    kind = rng.choice(["crash", "crash", "kill", "cut", "cut-in", "slow", "consensus"])
    servers = [*range(BLOB_SERVERS), *BUCKET_LOG_SERVERS]
    struck = () if kind == "consensus" else (rng.choice(servers),)
    return msgspec.convert(
        {
            "kind": kind,
            "at": rng.uniform(0, 3.0),
            "lasts_s": rng.expovariate(1 / 0.5),
            "servers": struck,
        },
        PlannedFault,
    )


def _gateway_fault(rng: Random, gateways: int) -> GatewayFault:
    kinds: tuple[Literal["kill", "stop", "full"], ...] = ("kill", "stop", "full")
    kind = rng.choice(kinds)
    lasts_s = rng.choice([0.05, 0.5, 2.0, 3.0])
    return GatewayFault(kind, rng.randrange(gateways), rng.uniform(0, 3.0), lasts_s)


def _move(rng: Random) -> BucketMove:
    if rng.random() < 0.5:
        return BucketMove(rng.uniform(0.1, 3.0), tuple(rng.sample(BUCKET_LOG_SERVERS, 3)))
    return BucketMove(rng.uniform(0.1, 3.0), wish=_wish(rng))
