"""The bench's clients of Cassandra: DataStax's driver with prepared statements at QUORUM.

A generator has a single session. The driver runs an event loop in a separate thread; answers are
passed to our loop.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from cassandra import ConsistencyLevel, DriverException, OperationTimedOut
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.connection import DefaultEndPoint
from cassandra.policies import RoundRobinPolicy

from experiments.bench.store_clients import CassandraStore, Coroutines
from experiments.blocking_calls import landing

CASSANDRA_TIMEOUT_S = 10.0
CASSANDRA_TOGETHER_S = 120.0


class Driver:
    """A session of a cluster."""

    def __init__(self, cluster: Cluster, session: Session) -> None:
        self._cluster, self._session = cluster, session
        self._read = session.prepare("select value from objects where key = ?")
        self._write = session.prepare("insert into objects (key, value) values (?, ?)")

    async def read(self, key: str) -> bytes | None:
        """Return the value, or `None` if the key has no value."""
        rows = await self._ask(self._read, (key,))
        return bytes(rows[0][0]) if rows else None

    async def write(self, key: str, value: bytes) -> None:
        """Insert the value, or replace the present value."""
        await self._ask(self._write, (key, value))

    async def close(self) -> None:
        """End the session."""
        await asyncio.to_thread(self._cluster.shutdown)

    async def _ask(self, statement: object, values: tuple[object, ...]) -> Any:
        answer, succeed, fail = landing()
        self._session.execute_async(statement, values).add_callbacks(succeed, fail)
        return await answer


def session_of(
    endpoints: Sequence[Any], patience_s: float, keyspace: str | None = None, **profile: Any
) -> tuple[Cluster, Session]:
    """Return a session; ``profile`` is for ExecutionProfile. Raises NoHostAvailable."""
    cluster = Cluster(
        endpoints,
        execution_profiles={EXEC_PROFILE_DEFAULT: ExecutionProfile(**profile)},
        protocol_version=5,
        connect_timeout=patience_s,
        control_connection_timeout=patience_s,
    )
    try:
        return cluster, cluster.connect(keyspace)
    except BaseException:
        cluster.shutdown()
        raise


def _connected(nodes: Sequence[tuple[str, int]], keyspace: str | None) -> tuple[Cluster, Session]:
    return session_of(
        [DefaultEndPoint(host, port) for host, port in nodes],
        CASSANDRA_TIMEOUT_S,
        keyspace,
        load_balancing_policy=RoundRobinPolicy(),
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=CASSANDRA_TIMEOUT_S,
        row_factory=lambda _names, rows: rows,
    )


def _connected_at_last(nodes: Sequence[tuple[str, int]], until: float) -> tuple[Cluster, Session]:
    """Connect, and retry until this time: a new node may refuse clients at first."""
    while True:
        try:
            return _connected(nodes, None)
        except NoHostAvailable:
            if time.monotonic() > until:
                raise


def make_table(nodes: Sequence[tuple[str, int]], keyspace: str, copies: int) -> None:
    """Make the absent parts of the keyspace and table, after ``copies`` nodes know each other.

    Raises OperationTimedOut.
    """
    deadline = time.monotonic() + CASSANDRA_TOGETHER_S
    cluster, session = _connected_at_last(nodes, deadline)
    try:
        while sum(bool(host.is_up) for host in cluster.metadata.all_hosts()) < copies:
            if time.monotonic() > deadline:
                what = f"{copies} nodes of Cassandra do not know each other"
                raise OperationTimedOut(f"{what} after {CASSANDRA_TOGETHER_S:g} s")
            time.sleep(0.2)
            cluster.refresh_nodes()
        replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
        columns = "(key text primary key, value blob) with compression = {'enabled': false}"
        for statement in (
            f"keyspace if not exists {keyspace} with replication = {replication}",
            f"table if not exists {keyspace}.objects {columns}",
        ):
            session.execute(f"create {statement}", timeout=60.0)
    finally:
        cluster.shutdown()


async def cassandra_clients(store: CassandraStore) -> Coroutines:
    """Return clients that share a session."""
    cluster, session = await asyncio.to_thread(_connected, store.nodes, store.keyspace)
    driver = Driver(cluster, session)
    return Coroutines(driver, (DriverException, OperationTimedOut, NoHostAvailable), driver.close)
