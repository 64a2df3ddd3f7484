"""What it costs to be seen: small operations without traces, with 1 % and with all of them traced, and with a log of operations, in turns.

    python -m experiments.seeing_costs [--rounds 9] [--window 1.5] [--at-once 1 32]

Clients and servers export to files. A ratio is of two windows of one round, one after the other; what is not traced at all (`off`) is compared with
itself, which shows the noise.
"""

import argparse
import asyncio
import os
import time
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec import structs

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.cluster.tables import TracingSettings
from experiments.cluster import local_cluster
from experiments.measuring import Goal, Table, ratios

SERVERS = 5
VALUE = b"0123456789"
KEYS = 64

GOALS = {"off again": None, "1 % traced": Goal(1.05), "all traced": Goal(1.35), "all logged": None}


def variants(settings: Settings, directory: Path) -> dict[str, Settings]:
    def traced(share: float) -> Settings:
        return structs.replace(settings, tracing=TracingSettings(exporter=f"file:{directory}/client.spans", share=share))

    logged = structs.replace(settings, client=structs.replace(settings.client, operation_log=f"{directory}/operations.log"))
    return {"off": settings, "off again": settings, "1 % traced": traced(0.01), "all traced": traced(1.0), "all logged": logged}


async def seconds_an_operation(store: Manager, at_once: int, window_s: float) -> float:
    """Half of them reads."""
    count, until = 0, time.perf_counter() + window_s

    async def work(number: int) -> None:
        nonlocal count
        while time.perf_counter() < until:
            key = f"k{number % KEYS}"
            await store.write(key, VALUE)
            await store.read(key)
            count += 2

    begin = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(at_once)))
    return (time.perf_counter() - begin) / count


async def measure(table: Table, file: Path, at_once: int, rounds: int, window_s: float) -> None:
    taken: defaultdict[str, list[float]] = defaultdict(list)
    async with AsyncExitStack() as closing:
        stores = {name: await closing.enter_async_context(connect(settings)) for name, settings in variants(Settings.load(file), file.parent).items()}
        for number in range(rounds + 1):
            order = list(stores) if number % 2 else list(reversed(stores))
            for name in order:
                took = await seconds_an_operation(stores[name], at_once, window_s)
                if number:  # the first one warms up
                    taken[name].append(took)
    table.section(f"{SERVERS} servers in memory, ABD, {len(VALUE)} bytes, {at_once} at once")
    table.line("off", [1e6 * took for took in taken["off"]], "us")
    for name, goal in GOALS.items():
        table.line(f"{name}: time an operation, off = 1", ratios(taken[name], taken["off"]), goal=goal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--window", type=float, default=1.5, metavar="S")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 32])
    given = parser.parse_args()
    table = Table()
    os.environ["OTEL_TRACES_EXPORTER"] = "file:/dev/null"  # the servers'
    with local_cluster(SERVERS, "abd") as file:
        del os.environ["OTEL_TRACES_EXPORTER"]
        for at_once in given.at_once:
            asyncio.run(measure(table, file, at_once, given.rounds, given.window))
    table.close()


if __name__ == "__main__":
    main()
