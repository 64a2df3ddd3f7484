"""What do keys cost? A cluster without and one with CURVE, side by side: small values at high rate, large ones one at a time, connecting.

    .venv/bin/python -m experiments.secure            # about three minutes
    .venv/bin/python -m experiments.secure --small    # or --large

Rounds alternate between the two, all processes are on this machine, and the client and its servers share its processors: quote ratios of one run.
"""

import argparse
import asyncio
import os
import time
from pathlib import Path

from ares.api import connect
from ares.client.manager import Manager
from ares.runtime.loop import run
from experiments.cluster import local_cluster
from experiments.measuring import Goal, Table, ratios, timed, warm_memory
from experiments.speed import KEYS, small

ROUNDS = 5
CONNECTIONS = 10
LARGE_MIB = (1, 16, 64)
REPEATS = 4
MIB = 1024 * 1024
COST_MAX = Goal(0.7, at_most=False)
"""Keys may cost 30 % of the throughput of small values."""


async def small_values(table: Table, plain: Manager, secure: Manager) -> None:
    table.section("10-byte values, n=5, half of the operations reads: throughput")
    for store in (plain, secure):
        await asyncio.gather(*(store.write(key, b"0123456789") for key in KEYS))
    for concurrency, goal in ((1, None), (32, None), (100, COST_MAX), (256, COST_MAX)):
        rates: dict[Manager, list[float]] = {plain: [], secure: []}
        for number in range(ROUNDS):
            for store in (plain, secure) if number % 2 else (secure, plain):
                rate, _, _ = await small(store, concurrency)
                rates[store].append(rate)
        table.line(f"{concurrency:3} at once: without keys", rates[plain], "op/s")
        table.line(f"{concurrency:3} at once: with keys", rates[secure], "op/s")
        table.line(f"{concurrency:3} at once: with keys / without", ratios(rates[secure], rates[plain]), "x", goal)


async def large_values(table: Table, plain: Manager, secure: Manager) -> None:
    table.section("large values, n=5, one at a time")
    warm_memory(2048 * MIB)
    for mib in LARGE_MIB:
        value = os.urandom(mib * MIB)
        seconds: dict[tuple[str, Manager], list[float]] = {(what, store): [] for what in ("write", "read") for store in (plain, secure)}
        for number in range(ROUNDS):
            for store in (plain, secure) if number % 2 else (secure, plain):
                for what in ("write", "read"):
                    taken = 0.0
                    for _ in range(REPEATS):
                        spent, result = await timed(store.write("large", value) if what == "write" else store.read("large"))
                        taken += spent
                        assert what == "write" or result == value
                    seconds[what, store].append(taken / REPEATS)
        for what in ("write", "read"):
            table.line(f"{mib:3} MiB {what}: without keys", [mib / each for each in seconds[what, plain]], "MiB/s")
            table.line(f"{mib:3} MiB {what}: with keys", [mib / each for each in seconds[what, secure]], "MiB/s")
            table.line(f"{mib:3} MiB {what}: with keys / without", ratios(seconds[what, plain], seconds[what, secure]))


async def connecting(table: Table, files: tuple[Path, Path]) -> None:
    table.section("a new connection and one read")
    for label, file in zip(("without keys", "with keys"), files, strict=True):
        taken = []
        for _ in range(CONNECTIONS):
            begin = time.perf_counter()
            async with connect(file) as store:
                await store.read(KEYS[0])
                taken.append((time.perf_counter() - begin) * 1e3)
        table.line(label, taken, "ms")


async def measure(files: tuple[Path, Path], wanted: argparse.Namespace) -> None:
    table = Table()
    async with connect(files[0]) as plain, connect(files[1]) as secure:
        if not wanted.large:
            await small_values(table, plain, secure)
            await connecting(table, files)
        if not wanted.small:
            await large_values(table, plain, secure)
    table.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="only small values")
    parser.add_argument("--large", action="store_true", help="only large values")
    wanted = parser.parse_args()
    with local_cluster(5, "abd") as without, local_cluster(5, "abd", security="curve") as with_keys:
        run(measure((without, with_keys), wanted))


if __name__ == "__main__":
    main()
