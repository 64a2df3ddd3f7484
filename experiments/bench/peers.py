"""The stores that are measured. Each is started in a directory of its own, on free ports of loopback, and stopped by pid at the end."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from ares.cluster.settings import Settings
from experiments.bench.stores import AresStore, Store
from experiments.cluster import local_cluster

Durability = Literal["memory", "fsync"]
N = 5
K = 3


class Running(Struct, frozen=True):
    """A store that serves. ``servers``: pids by name. ``replica``: one that is not special; ``leader``: the one that is, if one is."""

    store: Store
    servers: dict[str, int]
    replica: str
    leader: str | None = None


class Peer(Protocol):
    """One store in one manner of running. ``durability``: what an acknowledgement outlasts; ``note``: what the figures must be read with."""

    @property
    def name(self) -> str: ...

    @property
    def durability(self) -> Durability: ...

    @property
    def note(self) -> str: ...

    @property
    def value_bytes_max(self) -> int | None:
        """Larger values are refused."""

    @property
    def fails_over(self) -> bool:
        """Whether it is to go on when its leader is gone."""

    @property
    def warm_up_s(self) -> float:
        """How long it needs to be under load, once, before it is as fast as it gets."""

    def missing(self) -> str | None:
        """What is not installed, and how to get it; None if it can be started."""

    def running(self, directory: Path) -> contextlib.AbstractContextManager[Running]:
        """Start it with an empty directory; stopped at the end."""


class Ares(Struct, frozen=True):
    """Ares with n=5 servers; ``dap`` "ec": k=3."""

    name: str
    dap: Literal["abd", "ec"] = "abd"
    durability: Durability = "memory"
    secured: bool = False
    fast_read: bool = True
    piggyback: bool = True
    note: str = ""
    n: int = N
    k: int = K
    consensus: int = 0
    value_bytes_max: int | None = None
    fails_over: bool = True
    warm_up_s: float = 0.0

    def missing(self) -> str | None:
        """Never: it is what this is about."""
        return None

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Running]:
        """``directory`` is not used: a cluster makes its own beside it."""
        security = "curve" if self.secured else "none"
        k = self.k if self.dap == "ec" else None
        with local_cluster(
            self.n, self.dap, k, self.consensus, security=security, durability=self.durability
        ) as file:
            servers = {
                str(id): int((file.parent / "run" / f"{id}.pid").read_text())
                for id in Settings.load(file).servers
            }
            yield Running(
                AresStore(str(file), self.fast_read, self.piggyback),
                servers,
                replica=f"s{self.n // 2}",
            )


STATIC_ABD = (
    "what ABD without reconfiguration sends, message for message: two rounds for every operation. Supporting reconfiguration adds no round and no "
    "message to a quiet cluster: a request names its configuration in 16 bytes, a reply says in one that there is no successor"
)
PUBLISHED = "as ARES was published: the configurations are asked for in rounds of their own, before and after, and every read writes back"

ARES: tuple[Ares, ...] = (
    Ares("ares-abd"),
    Ares("ares-ec", "ec"),
    Ares("ares-abd-fsync", durability="fsync"),
    Ares("ares-ec-fsync", "ec", "fsync"),
    Ares("ares-abd-curve", secured=True),
    Ares("ares-ec-curve", "ec", secured=True),
    Ares("ares-abd-fsync-curve", durability="fsync", secured=True),
    Ares("ares-ec-fsync-curve", "ec", "fsync", secured=True),
    Ares("static-abd", fast_read=False, note=STATIC_ABD),
    Ares("ares-abd-published", fast_read=False, piggyback=False, note=PUBLISHED),
)


QUICK = (
    "ares-abd",
    "ares-ec",
    "ares-abd-fsync",
    "ares-ec-fsync",
    "redis-wait",
    "redis-wait-aof",
    "etcd",
)
"""Those of the quick bench."""


def yardsticks(durability: Durability) -> dict[str, str]:
    """The two peers that one of this durability is compared with, by what the column is called."""
    suffix = "" if durability == "memory" else "-fsync"
    return {"ABD": f"ares-abd{suffix}", "EC": f"ares-ec{suffix}"}
