"""Cost for a server of clients that only connect, or that ask and do not read.

    .venv/bin/python -m experiments.limits            # two minutes; needs `ulimit -n` of 12,000

Memory and time are measured with the bounds of docs/limits.md and without. The server is a separate
process. Memory is the resident memory that the kernel reports; time is the server's processor time.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from ares.client.connect import connect
from ares.client.manager import Manager
from ares.cluster.addresses import split_address
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.model.codec import encode
from ares.model.identity import CallId, ObjectName
from ares.model.messages import GetData
from ares.model.units import MIB
from ares.platform.loop import run
from ares.testing.fuzz.fuzz_attacks import FUZZ_READY, framed, greeting
from ares.testing.torture.torture_cluster import TortureCluster
from experiments import TICKS_PER_S

GIB = 1024 * MIB
IDLE_CONNECTIONS = 10_000
SLOW = 1_000
ASKED = 20
AT_A_TIME = 128
LIMITS_VALUE_BYTES = 8_000
"""Size of a value. Each slow client asks for 20 MiB: 20 times for 128 values.

Each value is too small to be sent from its place of storage.
"""

LIMITS_AT_ONCE = 200
HELD_S = 8.0
"""Seconds that clients stay: longer than a handshake may take."""

LIMITS_READS = 50
_OPENING = greeting() + FUZZ_READY


class ServerProbe:
    """A running storage server, seen from outside."""

    def __init__(self, settings: Settings, pid: int) -> None:
        self.settings = settings
        self.host, self.port = split_address(next(iter(settings.servers.values())).address)
        self._pid = pid

    def memory_mib(self) -> float:
        """Return the resident memory."""
        return (
            int(Path(f"/proc/{self._pid}/statm").read_text(encoding="ascii").split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            / MIB
        )

    def peak_mib(self) -> float:
        """Return the largest resident memory so far."""
        [line] = [
            line
            for line in Path(f"/proc/{self._pid}/status").read_text(encoding="ascii").splitlines()
            if line.startswith("VmHWM")
        ]
        return int(line.split()[1]) / 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self._pid}/fd"))

    def processor_s(self) -> float:
        fields = (
            Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _limited(directory: Path, limits: str) -> Settings:
    path = create(
        directory, InitPlan(1, 0, base_port=0, durability="memory", allow_no_faults=True)
    ).path
    path.write_text(f"{path.read_text(encoding='utf-8')}\n[limits]\n{limits}\n", encoding="utf-8")
    return Settings.load(path)


@contextlib.asynccontextmanager
async def serving(limits: str) -> AsyncIterator[tuple[ServerProbe, Manager]]:
    """Run a cluster with a single server in memory, and a client.

    ``limits`` are lines for the server's table of limits.
    """
    with tempfile.TemporaryDirectory(prefix="ares-experiment-") as directory:
        settings = _limited(Path(directory) / "c", limits)
        cluster = TortureCluster(settings, None)
        try:
            await cluster.start()
            async with connect(settings) as store:
                await store.write("value", os.urandom(LIMITS_VALUE_BYTES))
                await store.write("small", b"0123456789")
                yield ServerProbe(settings, cluster.pid(next(iter(settings.servers)))), store
        finally:
            cluster.stop()


async def clients(server: ServerProbe, many: int, sent: bytes) -> list[socket.socket]:
    """Open ``many`` connections, send ``sent`` on each, and read no answers."""
    loop = asyncio.get_running_loop()

    async def one() -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with contextlib.suppress(ConnectionError):  # the server may close the connection earlier
            await loop.sock_connect(client, (server.host, server.port))
            await loop.sock_sendall(client, _OPENING)
            heard = 0
            while heard < len(_OPENING) and (
                data := await loop.sock_recv(client, len(_OPENING) - heard)
            ):
                heard += len(data)
            await loop.sock_sendall(client, sent)
        return client

    made: list[socket.socket] = []
    for begun in range(0, many, LIMITS_AT_ONCE):
        made += await asyncio.gather(*(one() for _ in range(min(LIMITS_AT_ONCE, many - begun))))
    return made


async def read_ms(store: Manager) -> float:
    """Return the median time of an honest client's read."""
    taken = []
    for _ in range(LIMITS_READS):
        begin_s = time.perf_counter()
        await store.read("small")
        taken.append(1e3 * (time.perf_counter() - begin_s))
    return statistics.median(taken)


async def visit(label: str, limits: str, many: int, asked: int) -> None:
    """Print a line of the table: figures before the clients come, with them, and after them."""
    async with serving(limits) as (server, store):
        configuration, object = store.configuration.id, ObjectName("value")
        requests = [
            GetData(CallId(call), configuration, object, True) for call in range(1, AT_A_TIME + 1)
        ]
        sent = framed(encode(requests)[0], False) * asked
        before, usual_ms = server.memory_mib(), await read_ms(store)
        spent = server.processor_s()
        begin_s = time.perf_counter()
        there = await clients(server, many, sent)
        took_s = time.perf_counter() - begin_s
        await asyncio.sleep(HELD_S)
        spent = server.processor_s() - spent
        during, descriptors, busy_ms = (
            server.memory_mib(),
            server.descriptors(),
            await read_ms(store),
        )
        for client in there:
            client.close()
        await asyncio.sleep(HELD_S)
        print(
            f"{label:44} {before:6.0f} MiB before, {during:6.0f} with them "
            f"({server.peak_mib():.0f} at most), {server.memory_mib():6.0f} after; "
            f"{descriptors:5} descriptors, {server.descriptors()} after; came in {took_s:.1f} s, "
            f"cost {spent:.1f} s of processor; a read {usual_ms:.1f} ms before, {busy_ms:.1f} "
            "with them",
            flush=True,
        )


async def measure() -> None:
    await visit(
        f"{IDLE_CONNECTIONS} connections, all allowed",
        f"connections = {IDLE_CONNECTIONS + 1000}",
        IDLE_CONNECTIONS,
        0,
    )
    await visit(
        f"{IDLE_CONNECTIONS} connections, 4000 allowed", "connections = 4000", IDLE_CONNECTIONS, 0
    )
    await visit(f"{SLOW} that do not read, 512 MiB", f"unread_bytes = {512 * MIB}", SLOW, ASKED)
    await visit(f"{SLOW} that do not read, 4 GiB", f"unread_bytes = {4 * GIB}", SLOW, ASKED)


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    run(measure())


if __name__ == "__main__":
    main()
