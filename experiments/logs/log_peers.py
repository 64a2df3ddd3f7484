"""Other stores as logs beside the shared log: three servers and a client process each.

Entries have 256 B. All data is on the same disk. etcd: a key for every entry. Redis: a stream, and
WAIT for a replica; replicas acknowledge data in memory. NATS JetStream: a stream of three replicas,
synced for every message. Kafka: a topic of three replicas, flushed for every message.
"""

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from ares.model.errors import AresError
from ares.platform.loop import run
from experiments.bench.etcd_client import etcd_clients
from experiments.bench.etcd_peer import Etcd
from experiments.bench.peers import Durability
from experiments.bench.redis_client import RedisStreamConnection, redis_clients
from experiments.bench.redis_peer import Redis
from experiments.bench.store_clients import Coroutines, EtcdStore, RedisStore, StoreClients
from experiments.bench.store_processes import ProgramNotStarted
from experiments.histogram import counted, latency_of
from experiments.local_cluster import ClusterOptions, local_cluster
from experiments.logs import kafka, nats
from experiments.logs.kafka import kafka_clients
from experiments.logs.log_figures import opened, pids_of
from experiments.logs.log_work import LogWork, OurLog, go_through
from experiments.logs.nats_client import nats_clients
from experiments.measuring import Repeats, Table, ratios

OURS = "shared log"
PEERS: dict[Durability, tuple[str, ...]] = {
    "fsync": (OURS, "etcd", "redis-stream", "nats", "kafka"),
    "memory": (OURS, "redis-stream"),
}
PEER_IN_FLIGHT = (1, 100)
PEER_REPEATS = {"quick": Repeats(3, 1.0, 0.3), "paper": Repeats(5, 5.0, 0.3)}
COUNT_MAX = 60_000
PEER_ENTRY = bytes(256)
_PEER_PROGRAMS = {"nats": nats, "kafka": kafka}
_PEER_CLIENTS = {"nats": nats_clients, "kafka": kafka_clients}
Server = tuple[object, dict[str, int]]


def measure_peers(table: Table, scale: str) -> None:
    """Measure by turns, round after round: a ratio is of a single round.

    A peer that is missing, or does not start, is left out with a notice.
    """
    for durability, names in PEERS.items():
        table.section(f"Appends beside other stores, three servers each, {durability}")
        with ExitStack() as closing:
            directory = Path(
                closing.enter_context(tempfile.TemporaryDirectory(prefix="ares-logs-"))
            )
            stores: dict[str, Server] = {}
            for name in names:
                try:
                    if why := _missing(name, durability):
                        raise ProgramNotStarted(why)
                    (directory / name).mkdir()
                    stores[name] = closing.enter_context(
                        _running(name, directory / name, durability)
                    )
                except ProgramNotStarted as error:
                    table.note(f"without {name}: {error}")
            for in_flight in PEER_IN_FLIGHT:
                run(_measured(table, stores, in_flight, PEER_REPEATS[scale]))


async def _measured(
    table: Table, stores: dict[str, Server], in_flight: int, repeats: Repeats
) -> None:
    rates, delays = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    async with AsyncExitStack() as closing:
        for number in range(repeats.rounds + 1):
            seconds = repeats.seconds if number else repeats.warm_s
            for name, (store, servers) in stores.items():
                work = LogWork(PEER_ENTRY, COUNT_MAX, math.inf)
                clients = await closing.enter_async_context(
                    _connected(name, store, work, in_flight)
                )
                work.end_s = time.perf_counter() + seconds
                spent = await go_through(clients, [work], in_flight, servers)
                if work.troubles:
                    table.note(f"{name}: {work.troubles.most_common(1)[0]}")
                if number and work.appends:
                    rates[name].append(spent.per_s)
                    delays[name] += work.appends
    for name, per_s in rates.items():
        table.line(f"{name}, {in_flight} in flight", per_s, "/s")
        if (found := latency_of(counted(delays[name]))) is not None:
            table.note(f"    p50 {1e3 * found.p50_s:.3g} ms, p99 {1e3 * found.p99_s:.3g} ms")
    for name, per_s in rates.items():
        if name != OURS and len(per_s) == len(rates[OURS]):
            table.line(f"shared log : {name}, {in_flight} in flight", ratios(rates[OURS], per_s))


def _missing(name: str, durability: Durability) -> str | None:
    if name in _PEER_PROGRAMS:
        return _PEER_PROGRAMS[name].missing()
    return (
        None
        if name == OURS
        else (Etcd(n=3).missing() if name == "etcd" else _redis(durability).missing())
    )


def _redis(durability: Durability) -> Redis:
    return Redis("redis-stream", wait=1, durability=durability, n=3)


@contextmanager
def _running(name: str, directory: Path, durability: Durability) -> Iterator[Server]:
    if name == OURS:
        with local_cluster(
            3, "abd", consensus=1, options=ClusterOptions(durability=durability)
        ) as file:
            yield file, pids_of(file)
    elif name in _PEER_PROGRAMS:
        with _PEER_PROGRAMS[name].running(directory) as server:
            yield server
    else:
        with (Etcd(n=3) if name == "etcd" else _redis(durability)).running(directory) as peer:
            yield peer.store, peer.servers


@asynccontextmanager
async def _connected(
    name: str, store: object, work: LogWork, count: int
) -> AsyncIterator[StoreClients]:
    async with AsyncExitStack() as closing:
        if isinstance(store, Path):
            log = await opened(closing, store, "events", ["s0", "s1", "s2"])
            yield Coroutines(OurLog(log, work), (AresError,), log.close)
            return
        if isinstance(store, EtcdStore):
            clients: StoreClients = await etcd_clients(store)
        elif isinstance(store, RedisStore):
            clients = await redis_clients(store, count, RedisStreamConnection)
        else:
            clients = await _PEER_CLIENTS[name](str(store))
        closing.push_async_callback(clients.close)
        yield clients
