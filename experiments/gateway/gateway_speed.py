"""Speed of a gateway: small and large objects, and listings, beside a peer."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from ares.platform.loop import run
from experiments.gateway.s3_stores import s3_stores
from experiments.gateway.signed_connection import S3Endpoint, SignedConnection
from experiments.histogram import counted, latency_of
from experiments.measuring import Repeats, Table

GATEWAY_CLIENTS = 32
LARGE_CLIENTS = 4
SMALL_OBJECT = bytes(1024)
LARGE_OBJECT = bytes(64 << 20)
LISTED_KEYS = 1_000
GATEWAY_REPEATS = {"quick": Repeats(1, 4.0, 1.0), "paper": Repeats(3, 15.0, 3.0)}

Request = Callable[[SignedConnection, int], Awaitable[int]]
"""A request with a connection and a number; returns the status."""


def measure_gateway_speed(table: Table, scale: str) -> None:
    """Measure each store alone, one gateway process each."""
    for name, running in s3_stores().items():
        table.section(f"{name}: one gateway process, 1 KiB with {GATEWAY_CLIENTS} clients")
        with running(1) as (endpoint,):
            run(_measure(table, name, endpoint, GATEWAY_REPEATS[scale]))


async def _measure(table: Table, name: str, endpoint: S3Endpoint, repeats: Repeats) -> None:
    filling = SignedConnection(endpoint)
    await filling.request("PUT", "/bench")
    for number in range(LISTED_KEYS):
        await _put_small(filling, number)
    filling.close()
    for label, clients, request, unit, amount in (
        ("PUT 1 KiB", GATEWAY_CLIENTS, _put_small, "/s", 1.0),
        ("GET 1 KiB", GATEWAY_CLIENTS, _get_small, "/s", 1.0),
        ("LIST, pages of 1,000 keys", 1, _list, "/s", 1.0),
        ("PUT 64 MiB", LARGE_CLIENTS, _put_large, "MB/s", len(LARGE_OBJECT) / 1e6),
        ("GET 64 MiB", LARGE_CLIENTS, _get_large, "MB/s", len(LARGE_OBJECT) / 1e6),
    ):
        rates, times = [], []
        for _ in range(repeats.rounds):
            rate, latencies = await _load(endpoint, clients, request, repeats)
            rates.append(rate * amount)
            times += latencies
        table.line(label, rates, unit, f"{name} {label}")
        table.latency(latency_of(counted(times)))


async def _load(
    endpoint: S3Endpoint, clients: int, request: Request, repeats: Repeats
) -> tuple[float, list[float]]:
    """Return the requests a second, and the seconds of each, after the warm-up."""
    begin = time.perf_counter() + repeats.warm_s
    end = begin + repeats.seconds
    done: list[tuple[float, float]] = []
    numbers = iter(range(1 << 62))

    async def client() -> None:
        connection = SignedConnection(endpoint)
        while (asked := time.perf_counter()) < end:
            status = await request(connection, next(numbers))
            if status != 200:
                raise RuntimeError(f"the answer has status {status}")
            done.append((asked, time.perf_counter()))
        connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client())
    inside = [answered - asked for asked, answered in done if begin <= answered]
    return len(inside) / (max(answered for _, answered in done) - begin), inside


def _small(number: int) -> str:
    return f"/bench/small/{number % LISTED_KEYS:05}"


async def _put_small(connection: SignedConnection, number: int) -> int:
    return (await connection.request("PUT", _small(number), SMALL_OBJECT)).status


async def _get_small(connection: SignedConnection, number: int) -> int:
    return (await connection.request("GET", _small(number))).status


async def _list(connection: SignedConnection, number: int) -> int:
    query = "list-type=2&prefix=small%2F"
    return (await connection.request("GET", "/bench", query=query)).status


async def _put_large(connection: SignedConnection, number: int) -> int:
    path = f"/bench/large/{number % LARGE_CLIENTS}"
    return (await connection.request("PUT", path, LARGE_OBJECT)).status


async def _get_large(connection: SignedConnection, number: int) -> int:
    return (await connection.request("GET", f"/bench/large/{number % LARGE_CLIENTS}")).status
