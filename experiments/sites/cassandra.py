"""Cassandra: a node at each site, in a separate data centre.

The programs and the role are the bench's (experiments/bench/cassandra_peer.py). A site has a
keyspace for its objects (NetworkTopologyStrategy): a copy at the site, and further copies at the
next sites in the list. Users ask the node of their own site. If it has a copy, users ask at
LOCAL_QUORUM, which waits for this copy alone, so other sites get a write later; without a copy,
users ask at ONE. An object is in rows of 1 MB. The first row is written last and names the other
rows, so values are not mixed; rows of replaced values stay. The commit log is synced every ten
seconds.
"""

import json
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ares.platform.interpreter import python
from experiments.bench.ansible_roles import described
from experiments.bench.cassandra_peer import Cassandra, jars
from experiments.bench.store_processes import ProgramNotStarted, await_that
from experiments.blocking_calls import in_thread
from experiments.sites.site_store import (
    Parameters,
    SiteClient,
    SiteNetwork,
    answers,
)

_HEAP = "256m"
_NATIVE_PORT, _STORAGE_PORT, _JMX_PORT = 9042, 7000, 7199
_SITE_CASSANDRA_START_S = 240.0
_TIMEOUTS = "".join(
    f"{of}_timeout: 120s\n" for of in ("read_request", "write_request", "native_transport")
)
"""Timeouts of requests; Cassandra's defaults are for small rows on idle processors."""


def missing() -> str | None:
    """Check Java, jars, driver and memory."""
    return Cassandra(n=1, heap=_HEAP).missing()


class CassandraDeployment:
    """A node at each site."""

    def __init__(self) -> None:
        self._servers: dict[str, subprocess.Popen[bytes]] = {}

    async def start(self, bed: SiteNetwork, replicas: int) -> None:
        """Do the work of :class:`experiments.sites.site_store.Deployment`."""
        self._bed, self._copies = bed, replicas
        if (why := Cassandra(n=len(bed.sites), heap=_HEAP).missing()) is not None:
            raise ProgramNotStarted(why)
        await in_thread(self._start)

    async def stop(self) -> None:
        """End the nodes."""
        for server in self._servers.values():
            server.terminate()
        for server in self._servers.values():
            await in_thread(self._bed.stop, server)

    def parameters(self, site: str) -> Parameters:
        """Return the site's own node, and the sites of the copies."""
        return {
            "address": self._bed.address(site),
            "sites": list(self._bed.sites),
            "copies": self._copies,
        }

    def _start(self) -> None:
        bed, places = (
            self._bed,
            {site: self._bed.directory / f"cassandra-{site}" for site in self._bed.sites},
        )
        for number, (site, place) in enumerate(places.items()):
            node = described("cassandra", site, self._given(site, number, place))
            for path, content in node.files.items():
                (place / path).parent.mkdir(parents=True, exist_ok=True)
                (place / path).write_text(
                    content + (_TIMEOUTS if path.endswith("cassandra.yaml") else "")
                )
            self._servers[place.name] = bed.start(site, place.name, *node.command)
        for site in places:
            opens = f"</dev/tcp/{bed.address(site)}/{_NATIVE_PORT} && echo open"
            log = bed.directory / f"{places[site].name}.log"
            await_that(
                partial(answers, bed, site, "bash", "-c", opens),
                f"the node at {site} serves",
                _SITE_CASSANDRA_START_S,
                log,
                self._servers,
            )
        order = {
            "addresses": [bed.address(site) for site in places],
            "sites": list(places),
            "copies": self._copies,
        }
        bed.run(
            bed.sites[0], *python("-m", "experiments.sites.cassandra_driver", json.dumps(order))
        )

    def _given(self, site: str, number: int, place: Path) -> dict[str, Any]:
        given = {
            "address": self._bed.address(site),
            "storage_port": _STORAGE_PORT,
            "native_port": _NATIVE_PORT,
            "jmx_port": _JMX_PORT + number,
        }
        given |= {
            "seeds": ",".join(
                f"{self._bed.address(each)}:{_STORAGE_PORT}" for each in self._bed.sites
            ),
            "hosts": list(self._bed.sites),
        }
        given |= {
            "user": "",
            "site": site,
            "directory": str(place),
            "jars": str(jars()),
            "heap": _HEAP,
            "durability": "memory",
        }
        return {f"cassandra_{name}": value for name, value in given.items()}


def deployment(options: Mapping[str, Any]) -> CassandraDeployment:
    """Return the deployment; Cassandra has no options."""
    return CassandraDeployment()


async def connect(parameters: Parameters, site: str) -> SiteClient:
    """Return a client of the node of ``site``. Raises OperationFailed."""
    from experiments.sites.cassandra_driver import connected

    return await connected(parameters, site)
