"""Gain of moving large values directly between servers instead of through the mover.

Measured are time, bytes and processor time of the mover. Both ways run in turn, in each round,
between the same configurations: replication, an erasure code, the same once more, and back.

    python -m experiments.moving_values [--rounds N] [--objects N] [--mib N]

takes a minute and a half.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import socket
import struct
import time
from collections import defaultdict
from pathlib import Path

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.model.configuration import Configuration
from ares.model.units import MIB
from ares.reconfig.mover import Transfer
from experiments.local_cluster import local_cluster, processor_s
from experiments.measuring import Table, ratios

MOVING_VALUE_SERVERS = [f"s{number}" for number in range(5)]
ABD, EC = Configuration.abd(MOVING_VALUE_SERVERS), Configuration.ec(MOVING_VALUE_SERVERS, k=3)
VALUE_MOVES = {"ABD to EC": EC, "EC to the same EC": EC, "EC to ABD": ABD, "ABD to ABD": ABD}
WAYS: tuple[Transfer, Transfer] = ("servers", "client")
WHAT = (
    "seconds",
    "bytes through the mover",
    "processor time of the mover",
    "processor time of the servers",
)
_TCP_INFO_COUNTERS, _TCP_INFO_COUNTERS_AT = struct.Struct("=QQ"), 120
"""Two counters in struct tcp_info of linux/tcp.h.

The first counts bytes acknowledged by the other side, the second bytes received.
"""


def _passed_bytes() -> int:
    """Return the bytes that this process has sent and received over its open TCP connections."""
    passed = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(descriptor).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(descriptor.name))) as one:
                    info = one.getsockopt(
                        socket.IPPROTO_TCP,
                        socket.TCP_INFO,
                        _TCP_INFO_COUNTERS_AT + _TCP_INFO_COUNTERS.size,
                    )
                passed += sum(_TCP_INFO_COUNTERS.unpack_from(info, _TCP_INFO_COUNTERS_AT))
    return passed


async def _move(
    store: Manager, cluster: Path, target: Configuration, way: Transfer
) -> tuple[float, ...]:
    before = time.perf_counter(), _passed_bytes(), time.process_time(), processor_s(cluster)
    await store.reconfigure(target, transfer=way)
    after = time.perf_counter(), _passed_bytes(), time.process_time(), processor_s(cluster)
    return tuple(later - earlier for earlier, later in zip(before, after, strict=True))


async def measure(table: Table, cluster: Path, rounds: int, objects: int, size: int) -> None:
    """Print a line for each move and quantity: servers : client, a ratio for each round."""
    measured: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    async with connect(cluster) as store:
        for number in range(objects):
            await store.write(f"value {number}", os.urandom(size))
        for number in range(rounds + 1):
            for way, (name, target) in itertools.product(
                WAYS if number % 2 else WAYS[::-1], VALUE_MOVES.items()
            ):
                figures = await _move(store, cluster, target, way)
                if number:  # the first warms up
                    measured[name, way].append(figures)
    for name in VALUE_MOVES:
        table.section(
            f"{name}, {objects} values of {size / MIB:g} MiB, five servers: from server to "
            "server : through the mover"
        )
        for what, ours, theirs in zip(
            WHAT,
            zip(*measured[name, "servers"], strict=True),
            zip(*measured[name, "client"], strict=True),
            strict=True,
        ):
            table.line(what, ratios(ours, theirs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--objects", type=int, default=20)
    parser.add_argument("--mib", type=float, default=4)
    asked = parser.parse_args()
    with local_cluster(5, "abd", consensus=3) as cluster:
        asyncio.run(measure(Table(), cluster, asked.rounds, asked.objects, round(asked.mib * MIB)))


if __name__ == "__main__":
    main()
