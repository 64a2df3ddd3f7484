"""Cost of keys: a cluster without keys, a cluster with CURVE, and a cluster with libzmq's CURVE.

    .venv/bin/python -m experiments.secure            # about five minutes
    .venv/bin/python -m experiments.secure --small    # or --large
    .venv/bin/python -m experiments.secure --rounds 3

Measured are small values at high rate, large values, and connecting. Rounds alternate between the
three clusters. All processes are on this machine, and the client and its servers share the
processors: quote ratios of the same run. Processor time is the time of the client and of all
servers together, for an operation; other work on the machine changes this figure less than the
rate.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.model.units import MIB
from ares.platform.loop import run
from experiments.local_cluster import ClusterOptions, local_cluster, processor_s
from experiments.measuring import Goal, Table, ratios, timed, warm_memory
from experiments.speed import SPEED_KEYS, SPEED_S, small

CONNECTIONS = 10
SECURE_LARGE_MIB = (1, 8, 64)
REPEATS = 4
COST_MAX = Goal(0.7, at_most=False)
"""Keys may cost 30 % of the throughput of small values."""

WITHOUT_KEYS, WITH_KEYS, LIBZMQ = "without keys", "with keys", "with keys, libzmq"


class KeyVariant(Struct, frozen=True):
    """A cluster of the comparison."""

    store: Manager
    file: Path

    def spent_s(self) -> float:
        """Return the processor time of this process and of the cluster."""
        return time.process_time() + processor_s(self.file)


def turns(sides: dict[str, KeyVariant], number: int) -> Iterable[tuple[str, KeyVariant]]:
    """Return the clusters in an order that alternates between rounds."""
    return sorted(sides.items(), reverse=bool(number % 2))


def compare(
    table: Table, what: str, values: dict[str, list[float]], unit: str, goal: Goal | None = None
) -> None:
    for name, series in values.items():
        table.line(f"{what}: {name}", series, unit)
    table.line(
        f"{what}: with keys / without", ratios(values[WITH_KEYS], values[WITHOUT_KEYS]), "x", goal
    )
    table.line(f"{what}: with keys, ours / libzmq", ratios(values[WITH_KEYS], values[LIBZMQ]), "x")


async def small_values(table: Table, sides: dict[str, KeyVariant], rounds: int) -> None:
    table.section(
        "10-byte values, n=5, half of the operations reads: throughput, and processor time of an "
        "operation"
    )
    for side in sides.values():
        await asyncio.gather(*(side.store.write(key, b"0123456789") for key in SPEED_KEYS))
    for concurrency, goal in ((1, None), (32, COST_MAX), (100, COST_MAX)):
        rates: dict[str, list[float]] = {name: [] for name in sides}
        spent_us: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(rounds):
            for name, side in turns(sides, number):
                spent_s = side.spent_s()
                rate, _, _ = await small(side.store, concurrency)
                rates[name].append(rate)
                spent_us[name].append((side.spent_s() - spent_s) / (rate * SPEED_S) * 1e6)
        compare(table, f"{concurrency:3} at once", rates, "op/s", goal)
        compare(table, f"{concurrency:3} at once, processor", spent_us, "us")


async def large_values(table: Table, sides: dict[str, KeyVariant], rounds: int) -> None:
    table.section(
        "large values, n=5, one at a time: throughput, and processor time for a MiB of the value"
    )
    warm_memory(2048 * MIB)
    for mib in SECURE_LARGE_MIB:
        value = os.urandom(mib * MIB)
        for what in ("write", "read"):
            rates: dict[str, list[float]] = {name: [] for name in sides}
            spent_us: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(rounds):
                for name, side in turns(sides, number):
                    taken, spent_s = 0.0, side.spent_s()
                    for _ in range(REPEATS):
                        spent, result = await timed(
                            side.store.write("large", value)
                            if what == "write"
                            else side.store.read("large")
                        )
                        taken += spent
                        assert what == "write" or result == value
                    rates[name].append(mib * REPEATS / taken)
                    spent_us[name].append((side.spent_s() - spent_s) / (mib * REPEATS) * 1e6)
            compare(table, f"{mib:3} MiB {what}", rates, "MiB/s")
            compare(table, f"{mib:3} MiB {what}, processor", spent_us, "us")


async def connecting(table: Table, sides: dict[str, KeyVariant]) -> None:
    table.section("a new connection and one read")
    for name, side in sides.items():
        taken = []
        for _ in range(CONNECTIONS):
            begin = time.perf_counter()
            async with connect(side.file) as store:
                await store.read(SPEED_KEYS[0])
                taken.append((time.perf_counter() - begin) * 1e3)
        table.line(name, taken, "ms")


async def measure(files: dict[str, Path], wanted: argparse.Namespace) -> None:
    table = Table()
    sides = {name: KeyVariant(await connect(file), file) for name, file in files.items()}
    if not wanted.large:
        await small_values(table, sides, wanted.rounds)
        await connecting(table, sides)
    if not wanted.small:
        await large_values(table, sides, wanted.rounds)
    for side in sides.values():
        await side.store.close()
    table.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="only small values")
    parser.add_argument("--large", action="store_true", help="only large values")
    parser.add_argument(
        "--rounds", type=int, default=5, help="repetitions, of which the medians are shown"
    )
    wanted = parser.parse_args()
    with (
        local_cluster(5, "abd") as without,
        local_cluster(5, "abd", options=ClusterOptions(security="curve")) as with_keys,
        local_cluster(
            5, "abd", options=ClusterOptions(security="curve", transport="libzmq")
        ) as with_libzmq,
    ):
        run(measure({WITHOUT_KEYS: without, WITH_KEYS: with_keys, LIBZMQ: with_libzmq}, wanted))


if __name__ == "__main__":
    main()
