"""The measured stores.

Each is started in a separate directory, on free ports of loopback, and stopped by pid at the end.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from ares.cluster.settings import Settings
from ares.cluster.tables import TransportName
from experiments.bench.store_clients import AresStore, Store
from experiments.local_cluster import ClusterOptions, local_cluster

Durability = Literal["memory", "fsync"]
PEER_SERVERS = 5
PEER_K = 3


class RunningStore(Struct, frozen=True):
    """A running store. ``servers`` has pids by name.

    ``replica`` names an ordinary server; ``leader`` names the leader, if any.
    """

    store: Store
    servers: dict[str, int]
    replica: str
    leader: str | None = None


class Peer(Protocol):
    """A store with its settings.

    ``durability`` says which failures an acknowledgement outlasts; ``note`` has caveats for the
    figures.
    """

    @property
    def name(self) -> str: ...

    @property
    def durability(self) -> Durability: ...

    @property
    def note(self) -> str: ...

    @property
    def value_bytes_max(self) -> int | None:
        """Return the largest accepted value."""

    @property
    def fails_over(self) -> bool:
        """Return whether the store continues after its leader's death."""

    @property
    def warm_up_s(self) -> float:
        """Return the seconds under load after which the store is at full speed."""

    def missing(self) -> str | None:
        """Return the missing software and how to get it, or `None`."""

    def running(self, directory: Path) -> contextlib.AbstractContextManager[RunningStore]:
        """Start the store with an empty directory, and stop it at the end."""


class Ares(Struct, frozen=True):
    """Ares with n=5 servers; ``dap`` "ec": k=3."""

    name: str
    dap: Literal["abd", "ec"] = "abd"
    durability: Durability = "memory"
    secured: bool = False
    transport: TransportName = "native"
    local_sockets: bool = False
    fast_read: bool = True
    piggyback: bool = True
    note: str = ""
    n: int = PEER_SERVERS
    k: int = PEER_K
    consensus: int = 0
    value_bytes_max: int | None = None
    fails_over: bool = True
    warm_up_s: float = 0.0

    def missing(self) -> str | None:
        """Return no missing software: ares is always present."""
        return None

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[RunningStore]:
        """Start a cluster, which makes its own directory beside the unused ``directory``."""
        security = "curve" if self.secured else "none"
        k = self.k if self.dap == "ec" else None
        options = ClusterOptions(
            security, self.durability, self.transport, local_sockets=self.local_sockets
        )
        with local_cluster(self.n, self.dap, k, self.consensus, options) as file:
            servers = {
                str(id): int((file.parent / "run" / f"{id}.pid").read_text())
                for id in Settings.load(file).servers
            }
            yield RunningStore(
                AresStore(str(file), self.fast_read, self.piggyback),
                servers,
                replica=f"s{self.n // 2}",
            )


STATIC_ABD = (
    "the messages of ABD without reconfiguration: two rounds for every operation. Supporting "
    "reconfiguration adds no round and no message to a quiet cluster: a request names its "
    "configuration in 16 bytes, a reply says in one that there is no successor"
)
SOCKETS_NOTE = "over the Unix sockets of one host; all other stores and rows are over TCP"
PUBLISHED = (
    "as ARES was published: the configurations are asked for in rounds of their own, before and "
    "after, and every read writes back"
)

ARES_PEERS: tuple[Ares, ...] = (
    Ares("ares-abd"),
    Ares("ares-ec", "ec"),
    Ares("ares-abd-fsync", durability="fsync"),
    Ares("ares-ec-fsync", "ec", "fsync"),
    Ares("ares-abd-curve", secured=True),
    Ares("ares-ec-curve", "ec", secured=True),
    Ares("ares-abd-fsync-curve", durability="fsync", secured=True),
    Ares("ares-ec-fsync-curve", "ec", "fsync", secured=True),
    Ares("ares-abd-libzmq", transport="libzmq"),
    Ares("ares-abd-curve-libzmq", secured=True, transport="libzmq"),
    Ares("ares-abd-sockets", local_sockets=True, note=SOCKETS_NOTE),
    Ares("static-abd", fast_read=False, note=STATIC_ABD),
    Ares("ares-abd-published", fast_read=False, piggyback=False, note=PUBLISHED),
)


QUICK_PEERS = (
    "ares-abd",
    "ares-ec",
    "ares-abd-fsync",
    "ares-ec-fsync",
    "redis-wait",
    "redis-wait-aof",
    "etcd",
)
"""Peers of the quick bench."""


def yardsticks(durability: Durability) -> dict[str, str]:
    """Return the two peers for comparison with this durability, by the names of the columns."""
    suffix = "" if durability == "memory" else "-fsync"
    return {"ABD": f"ares-abd{suffix}", "EC": f"ares-ec{suffix}"}
