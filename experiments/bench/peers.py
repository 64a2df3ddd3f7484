"""The measured stores.

Each is started in a separate directory, on free ports of loopback, and stopped by pid at the end.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ares.cluster.tables import TransportName
from experiments.bench.store_clients import AresStore, Store
from experiments.local_cluster import local_cluster, server_pids

Durability = Literal["memory", "fsync"]
PEER_SERVERS = 5
PEER_K = 3


class RunningStore(Struct, frozen=True):
    """A running store. ``servers`` has pids by name."""

    store: Store
    servers: dict[str, int]


class Peer(Struct, frozen=True):
    """A store with ``n`` servers and its settings.

    ``durability`` says which failures an acknowledgement outlasts; ``note`` has caveats for the
    figures. ``value_bytes_max`` is the largest accepted value. ``fails_over`` says whether the
    store continues after its leader's death. After ``warm_up_s`` under load the store is at full
    speed.
    """

    name: str
    durability: Durability = "memory"
    note: str = ""
    value_bytes_max: int | None = None
    fails_over: bool = True
    warm_up_s: float = 0.0
    n: int = PEER_SERVERS

    def missing(self) -> str | None:
        """Return the missing software and how to get it, or `None`."""
        return None

    def running(self, directory: Path) -> contextlib.AbstractContextManager[RunningStore]:
        """Start the store with an empty directory, and stop it at the end."""
        raise NotImplementedError


class Ares(Peer, frozen=True):
    """Ares, which is always present; ``dap`` "ec": k=3."""

    dap: Literal["abd", "ec"] = "abd"
    secured: bool = False
    transport: TransportName = "native"
    local_sockets: bool = False
    fast_read: bool = True
    piggyback: bool = True
    k: int = PEER_K
    consensus: int = 0

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[RunningStore]:
        """Start a cluster, which makes its own directory beside the unused ``directory``."""
        words = f"--consensus {self.consensus} --dap {self.dap} --durability {self.durability}"
        words += f" --transport {self.transport} --security {'curve' if self.secured else 'none'}"
        words += f" --k {self.k}" if self.dap == "ec" else ""
        with local_cluster(self.n, words, self.local_sockets) as file:
            store = AresStore(str(file), self.fast_read, self.piggyback)
            yield RunningStore(store, server_pids(file))


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
    Ares("ares-ec", dap="ec"),
    Ares("ares-abd-fsync", "fsync"),
    Ares("ares-ec-fsync", "fsync", dap="ec"),
    Ares("ares-abd-curve", secured=True),
    Ares("ares-ec-curve", dap="ec", secured=True),
    Ares("ares-abd-fsync-curve", "fsync", secured=True),
    Ares("ares-ec-fsync-curve", "fsync", dap="ec", secured=True),
    Ares("ares-abd-libzmq", transport="libzmq"),
    Ares("ares-abd-curve-libzmq", secured=True, transport="libzmq"),
    Ares("ares-abd-sockets", local_sockets=True, note=SOCKETS_NOTE),
    Ares("static-abd", fast_read=False, note=STATIC_ABD),
    Ares("ares-abd-published", fast_read=False, piggyback=False, note=PUBLISHED),
)


QUICK_PEERS = (
    *("ares-abd", "ares-ec", "ares-abd-fsync", "ares-ec-fsync"),
    *("redis-wait", "redis-wait-aof", "etcd"),
)
"""Peers of the quick bench."""


def yardsticks(durability: Durability) -> dict[str, str]:
    """Return the two peers for comparison with this durability, by the names of the columns."""
    suffix = "" if durability == "memory" else "-fsync"
    return {"ABD": f"ares-abd{suffix}", "EC": f"ares-ec{suffix}"}
