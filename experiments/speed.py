"""Speed of a client process: quorum operations a second, and MB/s beside raw ZeroMQ.

    .venv/bin/python -m experiments.speed            # small and large, about two minutes
    .venv/bin/python -m experiments.speed --small    # or --large

Operations a second are for small values, MB/s for large values. Every line is measured in the same
run on a single machine with all processes on it; quote ratios rather than absolute numbers.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from pathlib import Path

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.dap.coding import coding_for
from ares.model.units import MIB
from ares.platform.loop import run
from experiments.local_cluster import local_cluster
from experiments.raw_zmq import raw_peers

SPEED_S = 3.0
SPEED_KEYS = [f"key-{number:020d}" for number in range(1000)]
BYTES_PER_SIZE = 384 * MIB


async def small(store: Manager, concurrency: int) -> tuple[float, float, float]:
    """Return the operations a second with ``concurrency`` in flight, and p50 and p99 in ms.

    Half of the operations are reads.
    """
    latencies: list[float] = []
    rng = random.Random(1)

    async def worker(end: float) -> None:
        while (begin := time.perf_counter()) < end:
            key = rng.choice(SPEED_KEYS)
            if rng.random() < 0.5:
                assert len(await store.read(key)) == 10
            else:
                await store.write(key, b"0123456789")
            latencies.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    await asyncio.gather(*(worker(begin + SPEED_S) for _ in range(concurrency)))
    rate = len(latencies) / (time.perf_counter() - begin)
    cuts = statistics.quantiles(latencies, n=100)
    return rate, cuts[49] * 1e3, cuts[98] * 1e3


async def small_table(dap: str, n: int, file: Path) -> None:
    async with connect(file) as store:
        await asyncio.gather(*(store.write(key, b"0123456789") for key in SPEED_KEYS))
        for concurrency in (1, 32, 256):
            rate, p50, p99 = await small(store, concurrency)
            print(
                f"{dap.upper():4} n={n} {concurrency:4} at once: {rate:9,.0f} op/s   p50 "
                f"{p50:6.2f} ms   p99 {p99:6.2f} ms",
                flush=True,
            )


async def large_table(label: str, file: Path) -> None:
    async with connect(file) as store:
        configuration = store.configuration
        coding = coding_for(configuration)
        for mib in (1, 8, 64):
            value = os.urandom(mib * MIB)
            part = b"".join(coding.encode(value)[0])
            rounds = max(BYTES_PER_SIZE // len(value) // 6, 3)
            with raw_peers(configuration.n) as raw:
                raw.write(part)
                times: dict[str, list[float]] = {
                    "write": [],
                    "read": [],
                    "raw write": [],
                    "raw read": [],
                }
                for number in range(rounds + 1):
                    begin = time.perf_counter()
                    await store.write("large", value)
                    written = time.perf_counter()
                    got = await store.read("large")
                    read = time.perf_counter()
                    assert got == value
                    if number:
                        times["write"].append(written - begin)
                        times["read"].append(read - written)
                        times["raw write"].append(raw.write(part))
                        times["raw read"].append(raw.read(coding.k))
            medians = {name: statistics.median(seconds) for name, seconds in times.items()}
            print(
                f"{label:12} {mib:3} MiB: write {mib / medians['write']:6,.0f} MiB/s "
                f"({medians['write'] / medians['raw write']:.2f} x raw)   read "
                f"{mib / medians['read']:6,.0f} MiB/s "
                f"({medians['read'] / medians['raw read']:.2f} x raw)",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--small", action="store_true", help="only small values")
    parser.add_argument("--large", action="store_true", help="only large values")
    arguments = parser.parse_args()
    if not arguments.large:
        print("10-byte values, 24-byte keys, 1000 keys, half reads, one client process")
        for dap, n, k in (("abd", 3, None), ("abd", 5, None), ("ec", 5, 3)):
            with local_cluster(n, dap, k) as file:
                run(small_table(dap, n, file))
    if not arguments.small:
        print(
            "one operation at a time; x raw: against raw ZeroMQ moving the same bytes, medians of "
            "one run"
        )
        for label, n, dap, k in (
            ("ABD n=3", 3, "abd", None),
            ("EC n=5 k=3", 5, "ec", 3),
            ("EC n=11 k=6", 11, "ec", 6),
        ):
            with local_cluster(n, dap, k) as file:
                run(large_table(label, file))


if __name__ == "__main__":
    main()
