"""Other stores as logs beside the shared log: three servers and a client process each.

Entries have 256 B. All data is on the same disk. etcd: a key for every entry. Redis: a stream, and
WAIT for a replica; replicas acknowledge data in memory. NATS JetStream: a stream of three replicas,
synced for every message. Kafka: a topic of three replicas, flushed for every message.
"""

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ares.model.errors import AresError
from ares.platform.loop import run
from experiments.bench.etcd_client import etcd_clients
from experiments.bench.etcd_peer import Etcd
from experiments.bench.peers import Durability, Peer
from experiments.bench.redis_client import RedisStreamConnection, redis_clients
from experiments.bench.redis_peer import Redis
from experiments.bench.store_clients import Coroutines, StoreClients
from experiments.bench.store_processes import ProgramNotStarted
from experiments.histogram import counted, latency_of
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs import kafka, nats
from experiments.logs.log_figures import opened
from experiments.logs.log_work import LogWork, OurLog, go_through
from experiments.measuring import Repeats, Table, ratios

OURS = "shared log"
PEER_IN_FLIGHT = (1, 100)
PEER_REPEATS = {"quick": Repeats(3, 1.0, 0.3), "paper": Repeats(5, 5.0, 0.3)}
COUNT_MAX = 60_000
PEER_ENTRY = bytes(256)

LogServer = tuple[Any, dict[str, int]]
"""The address of a running store, and the pids of its servers."""


class LogPeer(NamedTuple):
    """A store as a log; ``clients`` takes the address, the work, and the number of operations."""

    missing: Callable[[], str | None]
    running: Callable[[Path], AbstractContextManager[LogServer]]
    clients: Callable[[Any, LogWork, int], Awaitable[StoreClients]]


def log_peers(durability: Durability) -> dict[str, LogPeer]:
    """Return the stores with this durability."""
    redis, etcd = Redis("redis-stream", wait=1, durability=durability, n=3), Etcd(n=3)
    found = {
        OURS: LogPeer(lambda: None, partial(_chain, durability), _our_clients),
        "redis-stream": LogPeer(
            redis.missing,
            partial(_of_bench, redis),
            lambda store, _, count: redis_clients(store, count, RedisStreamConnection),
        ),
    }
    if durability == "fsync":
        found |= {
            "etcd": LogPeer(
                etcd.missing, partial(_of_bench, etcd), lambda store, *_: etcd_clients(store)
            ),
            "nats": LogPeer(nats.missing, nats.running, lambda store, *_: nats.nats_clients(store)),
            "kafka": LogPeer(
                kafka.missing, kafka.running, lambda store, *_: kafka.kafka_clients(store)
            ),
        }
    return found


@contextmanager
def _chain(durability: Durability, _directory: Path) -> Iterator[LogServer]:
    with local_cluster(3, f"--durability {durability}") as file:
        yield file, server_pids(file)


async def _our_clients(file: Path, work: LogWork, _in_flight: int) -> StoreClients:
    closing = AsyncExitStack()
    log = await opened(closing, file, "events", ["s0", "s1", "s2"])
    return Coroutines(OurLog(log, work), (AresError,), closing.aclose)


@contextmanager
def _of_bench(peer: Peer, directory: Path) -> Iterator[LogServer]:
    with peer.running(directory) as running:
        yield running.store, running.servers


def measure_peers(table: Table, scale: str) -> None:
    """Measure by turns, round after round: a ratio is of a single round.

    A peer that is missing, or does not start, is left out with a notice.
    """
    durabilities: tuple[Durability, ...] = ("fsync", "memory")
    for durability in durabilities:
        table.section(f"Appends beside other stores, three servers each, {durability}")
        peers, servers = log_peers(durability), dict[str, LogServer]()
        with ExitStack() as closing:
            directory = Path(
                closing.enter_context(tempfile.TemporaryDirectory(prefix="ares-logs-"))
            )
            for name, peer in peers.items():
                try:
                    if why := peer.missing():
                        raise ProgramNotStarted(why)
                    (directory / name).mkdir()
                    servers[name] = closing.enter_context(peer.running(directory / name))
                except ProgramNotStarted as error:
                    table.note(f"without {name}: {error}")
            for in_flight in PEER_IN_FLIGHT:
                run(_measured(table, peers, servers, in_flight, PEER_REPEATS[scale]))


async def _measured(
    table: Table,
    peers: dict[str, LogPeer],
    servers: dict[str, LogServer],
    in_flight: int,
    repeats: Repeats,
) -> None:
    rates, delays = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    async with AsyncExitStack() as closing:
        for number in range(repeats.rounds + 1):
            seconds = repeats.seconds if number else repeats.warm_s
            for name, (store, pids) in servers.items():
                work = LogWork(PEER_ENTRY, COUNT_MAX, math.inf)
                clients = await peers[name].clients(store, work, in_flight)
                closing.push_async_callback(clients.close)
                work.end_s = time.perf_counter() + seconds
                spent = await go_through(clients, [work], in_flight, pids)
                if work.troubles:
                    table.note(f"{name}: {work.troubles.most_common(1)[0]}")
                if number and work.appends:
                    rates[name].append(spent.per_s)
                    delays[name] += work.appends
    for name, per_s in rates.items():
        table.line(f"{name}, {in_flight} in flight", per_s, "/s")
        table.latency(latency_of(counted(delays[name])))
    for name, per_s in rates.items():
        if name != OURS and len(per_s) == len(rates[OURS]):
            table.line(f"shared log : {name}, {in_flight} in flight", ratios(rates[OURS], per_s))
