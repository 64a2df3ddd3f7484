"""etcd: five members, with etcd's defaults.

A majority syncs every write before the acknowledgement, and reads are linearizable.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.bench.ansible_roles import described, lacking, started
from experiments.bench.etcd_leader import leader
from experiments.bench.peers import Durability, Peer, RunningStore
from experiments.bench.store_clients import EtcdStore
from experiments.bench.store_processes import await_that, free_ports

ETCD_START_S = 30.0
ETCD_REQUEST_BYTES_MAX = 1_572_864
"""Default of etcd. The documentation of etcd advises against more."""


class Etcd(Peer, frozen=True):
    """A cluster of etcd.

    Clients talk to the leader, which saves a hop; after the leader's death, clients try the other
    members in turn.
    """

    name: str = "etcd"
    durability: Durability = "fsync"
    note: str = "clients are gRPC's C core under asyncio, and talk to the leader"
    value_bytes_max: int | None = ETCD_REQUEST_BYTES_MAX - 4096

    def missing(self) -> str | None:
        """Say how to install etcd.

        Debian's package starts a service on port 2379, which the bench neither needs nor touches.
        """
        if importlib.util.find_spec("aetcd") is None:
            return "etcd needs a Python client: pip install 'ares-storage[bench]'"
        return lacking("etcd", _given(Path(), 0, 0, ""))

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[RunningStore]:
        """Start the members, and yield once every member knows the same leader."""
        ports, names = free_ports(2 * self.n), [f"m{number}" for number in range(self.n)]
        members = list(zip(names, ports[: self.n], ports[self.n :], strict=True))
        cluster = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, _, peer in members)
        hosts = {
            name: described("etcd", name, _given(directory / name, client, peer, cluster))
            for name, client, peer in members
        }
        addresses = [f"127.0.0.1:{client}" for _, client, _ in members]
        with started(directory, hosts, ETCD_START_S) as servers:
            log = directory / "m0.log"
            await_that(
                lambda: leader(addresses) is not None, "etcd has a leader", ETCD_START_S, log
            )
            first = leader(addresses)
            assert first is not None
            order = (addresses[first], *addresses[:first], *addresses[first + 1 :])
            yield RunningStore(EtcdStore(order), servers)


def _given(directory: Path, client: int, peer: int, cluster: str) -> dict[str, Any]:
    return {
        "address": "127.0.0.1",
        "client_port": client,
        "peer_port": peer,
        "hosts": [],
        "initial_cluster": cluster,
        "user": "",
        "directory": str(directory),
        "token": directory.parent.name,
        "request_bytes_max": ETCD_REQUEST_BYTES_MAX,
    }
