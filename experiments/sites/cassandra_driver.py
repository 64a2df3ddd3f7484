"""Clients of Cassandra at sites, by DataStax's driver, and their keyspaces.

    python -m experiments.sites.cassandra_driver ORDER      # run by cassandra.py

The command makes the keyspaces.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Sequence
from typing import Any

from cassandra import ConsistencyLevel, DriverException, OperationTimedOut
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.connection import ConnectionBusy
from cassandra.policies import DCAwareRoundRobinPolicy, WhiteListRoundRobinPolicy

from experiments.bench.cassandra_client import session_of
from experiments.blocking_calls import in_thread, landing
from experiments.sites.site_store import OperationFailed, Parameters, holders, site_of

ROW_BYTES = 1_000_000
SITE_CASSANDRA_TOGETHER_S = 100.0
_CASSANDRA_OPERATION_S = 120.0
_BUSY_S = 0.002
_INSERT = 'insert into "{}".objects (name, place, value, places, others) values (?, ?, ?, ?, ?)'
_SELECT = 'select value, places, others from "{}".objects where name = ? and place = ?'
_BLOCK_COLUMNS = (
    "name text, place int, value blob, places int, others text, primary key ((name, place))"
)
"""Columns of an object's rows.

The first row has the object's name, the number of rows, and the name of the other rows, which is
unique to this value.
"""


def rows_of(value: bytes) -> list[bytes]:
    """Divide a value into rows, at least a single row."""
    return [value[start : start + ROW_BYTES] for start in range(0, len(value), ROW_BYTES)] or [b""]


class CassandraUser:
    """A client of the node of its site. The driver answers from a separate thread."""

    def __init__(self, cluster: Cluster, session: Session, given: Parameters, site: str) -> None:
        self._cluster, self._session = cluster, session
        self._parameters, self._site = given, site
        self._statements: dict[str, Any] = {}
        self._preparing = asyncio.Lock()

    async def put(self, name: str, value: bytes) -> str:
        """Write into the keyspace of the name's site, in rows; the first row is last."""
        (first, *rest), keyspace, others = rows_of(value), site_of(name), uuid.uuid4().hex
        inserts = (
            self._ask(_INSERT, keyspace, others, place, row, None, None)
            for place, row in enumerate(rest, 1)
        )
        await asyncio.gather(*inserts)
        await self._ask(_INSERT, keyspace, name, 0, first, 1 + len(rest), others)
        return name

    async def get(self, name: str) -> bytes:
        """Read from the keyspace of the name's site."""
        keyspace = site_of(name)
        first = await self._ask(_SELECT, keyspace, name, 0)
        if not first:
            raise OperationFailed(f"Cassandra has no object {name}")
        places = range(1, first[0].places)
        selects = (self._ask(_SELECT, keyspace, first[0].others, place) for place in places)
        others = await asyncio.gather(*selects)
        if not all(others):
            raise OperationFailed(f"Cassandra has not all rows of the object {name}")
        return b"".join(rows[0].value for rows in (first, *others))

    async def close(self) -> None:
        """End the session."""
        await in_thread(self._cluster.shutdown)

    async def _ask(self, text: str, keyspace: str, *values: Any) -> Any:
        """Return the rows; a statement without a result has no rows.

        The driver refuses requests while the socket is full: such requests wait here.
        """
        try:
            bound = (await self._prepared(text.format(keyspace))).bind(values)
            bound.consistency_level = self._level(keyspace)
            while True:
                answer, succeed, fail = landing()
                self._session.execute_async(bound).add_callbacks(succeed, fail)
                try:
                    return await answer or []
                except NoHostAvailable as error:
                    if not _is_busy(error):
                        raise
                await asyncio.sleep(_BUSY_S)
        except (DriverException, NoHostAvailable) as error:
            raise OperationFailed(f"Cassandra: {error}") from error

    async def _prepared(self, text: str) -> Any:
        async with self._preparing:
            if text not in self._statements:
                self._statements[text] = await in_thread(self._session.prepare, text)
        return self._statements[text]

    def _level(self, keyspace: str) -> int:
        holding = holders(self._parameters["sites"], keyspace, self._parameters["copies"])
        level = ConsistencyLevel
        return int(level.LOCAL_QUORUM if self._site in holding else level.ONE)


def _is_busy(error: NoHostAvailable) -> bool:
    return bool(error.errors) and all(
        isinstance(each, ConnectionBusy) for each in error.errors.values()
    )


async def connected(parameters: Parameters, site: str) -> CassandraUser:
    """Return a client of the node of ``site``. Raises OperationFailed."""
    addresses, policy = [parameters["address"]], DCAwareRoundRobinPolicy(site)
    try:
        cluster, session = await in_thread(_session, addresses, policy)
    except (DriverException, NoHostAvailable) as error:
        raise OperationFailed(f"Cassandra: {error}") from error
    return CassandraUser(cluster, session, parameters, site)


def _session(addresses: Sequence[str], policy: Any) -> tuple[Cluster, Session]:
    """Return a session with the nodes that the policy chooses."""
    return session_of(
        addresses, 30.0, load_balancing_policy=policy, request_timeout=_CASSANDRA_OPERATION_S
    )


def make_keyspaces(addresses: Sequence[str], sites: Sequence[str], copies: int) -> None:
    """Make a keyspace for each site, once every node knows all nodes. Raises OperationTimedOut."""
    deadline_s = time.monotonic() + SITE_CASSANDRA_TOGETHER_S
    for address in addresses:
        cluster, session = _session([address], WhiteListRoundRobinPolicy([address]))
        try:
            peers = "select peer from system.peers_v2"
            while len(list(session.execute(peers))) < len(addresses) - 1:
                if time.monotonic() > deadline_s:
                    what = f"the node at {address} does not know the other nodes"
                    raise OperationTimedOut(f"{what} after {SITE_CASSANDRA_TOGETHER_S:g} s")
                time.sleep(0.2)
            for site in sites if address == addresses[-1] else []:
                centres = "".join(f", '{holder}': 1" for holder in holders(sites, site, copies))
                kind = f"{{'class': 'NetworkTopologyStrategy'{centres}}}"
                session.execute(f'create keyspace "{site}" with replication = {kind}')
                plain = "with compression = {'enabled': false}"
                session.execute(f'create table "{site}".objects ({_BLOCK_COLUMNS}) {plain}')
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    make_keyspaces(**json.loads(sys.argv[1]))
