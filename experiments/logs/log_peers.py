"""Other stores as logs beside the shared log: three servers and a client process each.

Entries have 256 B. All data is on the same disk. etcd: a key for every entry. Redis: a stream, and
WAIT for a replica; replicas acknowledge data in memory. NATS JetStream: a stream of three replicas,
synced for every message. Kafka: a topic of three replicas, flushed for every message.
"""

import asyncio
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
from experiments.bench.points import FAILURES
from experiments.bench.redis_client import RedisStreamConnection, redis_clients
from experiments.bench.redis_peer import Redis
from experiments.bench.store_clients import Coroutines, StoreClients
from experiments.bench.store_processes import BenchError, ProgramNotStarted
from experiments.histogram import counted, latency_of
from experiments.local_cluster import local_cluster, server_pids
from experiments.logs import kafka, nats
from experiments.logs.log_figures import opened
from experiments.logs.log_work import LogWork, OurLog, TimeSpent, go_through
from experiments.measuring import Repeats, Table, ratios

OURS = "shared log"
PEER_IN_FLIGHT = (1, 100)
PEER_REPEATS = {"quick": Repeats(3, 1.0, 0.3), "paper": Repeats(5, 5.0, 0.3)}
COUNT_MAX = 60_000
PEER_ENTRY = bytes(256)
PEER_PATIENCE_S = 60.0
"""Seconds without an answer after which a peer has failed."""

LogServer = tuple[Any, dict[str, int]]
"""The address of a running store, and the pids of its servers."""


class LogPeer(NamedTuple):
    """A store as a log; ``clients`` takes the address, the work, and the number of operations."""

    missing: Callable[[], str | None]
    running: Callable[[Path], AbstractContextManager[LogServer]]
    clients: Callable[[Any, LogWork, int], Awaitable[StoreClients]]


class RunningPeer(NamedTuple):
    """A running store: the maker of its clients, its address, and the pids of its servers.

    ``stop``: the end of the servers.
    """

    clients: Callable[[Any, LogWork, int], Awaitable[StoreClients]]
    store: Any
    pids: dict[str, int]
    stop: ExitStack


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

    A peer that is missing, or does not start, is left out with a notice. A peer that fails later
    is named with the reason, stopped, and measured no more.
    """
    durabilities: tuple[Durability, ...] = ("fsync", "memory")
    for durability in durabilities:
        table.section(f"Appends beside other stores, three servers each, {durability}")
        peers, running = log_peers(durability), dict[str, RunningPeer]()
        with ExitStack() as closing:
            directory = Path(
                closing.enter_context(tempfile.TemporaryDirectory(prefix="ares-logs-"))
            )
            for name, peer in peers.items():
                try:
                    if why := peer.missing():
                        raise ProgramNotStarted(why)
                    (directory / name).mkdir()
                    stop = closing.enter_context(ExitStack())
                    store, pids = stop.enter_context(peer.running(directory / name))
                    running[name] = RunningPeer(peer.clients, store, pids, stop)
                except FAILURES as error:
                    table.note(f"without {name}: {error}")
            for in_flight in PEER_IN_FLIGHT:
                what = f"log {durability}, {in_flight} in flight"
                run(_measured(table, what, running, in_flight, PEER_REPEATS[scale]))
            for name, each in running.items():
                _stop(table, name, each)


async def _measured(
    table: Table, what: str, running: dict[str, RunningPeer], in_flight: int, repeats: Repeats
) -> None:
    """Add the lines of all peers, and drop the failed peers from ``running``.

    A peer that makes no append in a counted turn has failed, too.
    """
    rates, delays = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for number in range(repeats.rounds + 1):
        seconds = repeats.seconds if number else repeats.warm_s
        for name, peer in list(running.items()):
            work = LogWork(PEER_ENTRY, COUNT_MAX, math.inf)
            try:
                spent = await _turn(peer, work, in_flight, seconds)
                if number and not work.appends:
                    raise BenchError(", ".join(dict(work.troubles.most_common(1))))
            except Exception as error:  # of any library
                table.note(f"{name} FAILED, and is left out: {_reason(error)}")
                _stop(table, name, running.pop(name))
                continue
            if work.troubles:
                table.note(f"{name}: {work.troubles.most_common(1)[0]}")
            if number and work.appends:
                rates[name].append(spent.per_s)
                delays[name] += work.appends
    for name in running:
        if rates[name]:
            table.line(f"{name}, {in_flight} in flight", rates[name], "/s")
            table.latency(latency_of(counted(delays[name])))
    ours = rates[OURS] if OURS in running else []
    for name in running:
        if name != OURS and ours and len(rates[name]) == len(ours):
            both = ratios(ours, rates[name])
            title = f"shared log : {name}, {in_flight} in flight"
            table.line(title, both, name=f"{what} : {name}")


async def _turn(peer: RunningPeer, work: LogWork, in_flight: int, seconds: float) -> TimeSpent:
    """Measure a peer for ``seconds``. Raises an error of the peer, which may be of any type."""
    async with asyncio.timeout(PEER_PATIENCE_S):
        clients = await peer.clients(peer.store, work, in_flight)
    try:
        work.end_s = time.perf_counter() + seconds
        async with asyncio.timeout(seconds + PEER_PATIENCE_S):
            return await go_through(clients, [work], in_flight, peer.pids)
    finally:
        async with asyncio.timeout(PEER_PATIENCE_S):
            await clients.close()


def _stop(table: Table, name: str, peer: RunningPeer) -> None:
    """Stop the servers of a peer; a failure is named, and ends no other measurement."""
    try:
        peer.stop.close()
    except FAILURES as error:
        table.note(f"{name} did not stop as it should: {error}")


def _reason(error: Exception) -> str:
    """Return the first cause of an error, for a person."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer in {PEER_PATIENCE_S:g} s"
    name = "" if isinstance(error, BenchError) else f"{type(error).__name__}: "
    return " ".join(f"{name}{error}".split())[:300]
