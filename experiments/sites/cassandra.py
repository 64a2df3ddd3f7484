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
from functools import partial

from ares.platform.interpreter import python
from experiments.bench.ansible_roles import described
from experiments.bench.cassandra_peer import Cassandra, cassandra_variables
from experiments.bench.store_processes import ProgramNotStarted
from experiments.sites.site_store import Deployment, Parameters, SiteClient

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


class CassandraDeployment(Deployment):
    """A node at each site."""

    async def stop(self) -> None:
        """End the nodes, all at once: a node takes seconds."""
        for server in self.servers.values():
            server.terminate()
        await super().stop()

    def parameters(self, site: str) -> Parameters:
        """Return the site's own node, and the sites of the copies."""
        sites, copies = list(self.bed.sites), self.replicas
        return {"address": self.bed.address(site), "sites": sites, "copies": copies}

    def deploy(self) -> None:
        bed = self.bed
        if (why := Cassandra(n=len(bed.sites), heap=_HEAP).missing()) is not None:
            raise ProgramNotStarted(why)
        addresses = [bed.address(site) for site in bed.sites]
        seeds = ",".join(f"{address}:{_STORAGE_PORT}" for address in addresses)
        for number, site in enumerate(bed.sites):
            name = f"cassandra-{site}"
            given = cassandra_variables(
                bed.directory / name,
                (_STORAGE_PORT, _STORAGE_PORT + 1, _NATIVE_PORT, _JMX_PORT + number),
                address=addresses[number],
                seeds=seeds,
                hosts=list(bed.sites),
                heap=_HEAP,
                site=site,
            )
            node = described("cassandra", site, given)
            for path, content in node.files.items():
                file = bed.directory / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content + (_TIMEOUTS if path.endswith("cassandra.yaml") else ""))
            self.serve(site, name, *node.command)
        for site, address in zip(bed.sites, addresses, strict=True):
            opens = f"</dev/tcp/{address}/{_NATIVE_PORT} && echo open"
            serves = partial(self.answer, site, "bash", "-c", opens)
            what = f"the node at {site} serves"
            self.await_server(f"cassandra-{site}", serves, what, _SITE_CASSANDRA_START_S)
        order = {"addresses": addresses, "sites": list(bed.sites), "copies": self.replicas}
        driver = python("-m", "experiments.sites.cassandra_driver", json.dumps(order))
        bed.run(bed.sites[0], *driver)


deployment = CassandraDeployment


async def connect(parameters: Parameters, site: str) -> SiteClient:
    """Return a client of the node of ``site``. Raises OperationFailed."""
    from experiments.sites.cassandra_driver import connected

    return await connected(parameters, site)
