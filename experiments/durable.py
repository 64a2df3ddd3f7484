"""Cost of durable acknowledgements: servers with a journal on the disk beside servers in memory.

    .venv/bin/python -m experiments.durable              # throughput and a restart
    .venv/bin/python -m experiments.durable --sync-ms 5  # every sync takes 5 ms longer

Throughput is measured with n=5, 100 operations at once and 10-byte values; the restart has 1 GiB.
With `--sync-ms` the disk acts as a slower disk than this machine's. All processes are on this
machine, and all five journals on the same disk. Quote ratios of the same run.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ares.client.connect import connect
from ares.cluster.settings import Settings
from ares.model.configuration import Configuration, Server
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ObjectName, ServerId
from ares.model.messages import PutData
from ares.model.tag import Tag
from ares.model.units import MIB
from ares.net.transports import listener_at
from ares.platform.interpreter import python
from ares.platform.loop import run
from ares.platform.memory import SERVER_BYTES, keep_freed_memory
from ares.replica.facts import fact_bytes_max
from ares.server.storage_process import ServingParts, restored, run_server
from ares.server.storage_server import StorageServer
from ares.store.journal.disk import Disk
from ares.store.journal.segment_journal import open_journal
from ares.store.journal.segments import Owner
from ares.store.port import Use
from experiments import ENVIRONMENT
from experiments.speed import SPEED_KEYS, small

MEMBERS = [
    Server(ServerId(f"s{number}"), f"127.0.0.1:{number + 1}", f"{number:032x}")
    for number in range(3)
]
INITIAL = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
OWNER = Owner(INITIAL.id, MEMBERS[0].id, MEMBERS[0].identity)
DURABLE_AT_ONCE = 100
DURABLE_ROUNDS = 3


class SlowDisk(Disk):
    """A disk whose syncs take longer."""

    def __init__(self, more_s: float) -> None:
        self._more_s = more_s

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        time.sleep(self._more_s)


async def serve(file: Path, id: str, durability: str, sync_ms: float) -> None:
    settings = Settings.load(file)
    server = next(server for server in settings.servers.values() if server.id == id)
    keep_freed_memory(SERVER_BYTES)
    listener, stop = listener_at(server.address), asyncio.Event()
    if durability == "memory":
        await run_server(
            ServingParts(
                server.id, server.identity, settings.initial, listener, stop, serving=print_ready
            )
        )
    owner = Owner(settings.initial.id, server.id, server.identity)
    journal = open_journal(server.data, owner, disk=SlowDisk(sync_ms / 1000) if sync_ms else None)
    await run_server(
        ServingParts(
            server.id,
            server.identity,
            settings.initial,
            listener,
            stop,
            journal,
            serving=print_ready,
        )
    )


def print_ready(_: StorageServer) -> None:
    print("READY", flush=True)


@contextmanager
def cluster(servers: int, durability: str, sync_ms: float, dap: list[str]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ares-durable-", dir=".") as directory:
        shape = ["--servers", str(servers), "--consensus", "0", "--base-port", "0", *dap]
        subprocess.run(
            python("-m", "ares", "init", f"{directory}/c", *shape),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        file = Path(directory) / "c" / "cluster.toml"
        start = python(
            "-m", "experiments.durable", "--sync-ms", str(sync_ms), "--serve", str(file), durability
        )
        processes = [
            subprocess.Popen([*start, id], stdout=subprocess.PIPE, env=ENVIRONMENT)
            for id in Settings.load(file).servers
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()
            yield file
        finally:
            for process in processes:
                process.kill()
                process.wait()


async def rate(file: Path) -> tuple[float, float, float]:
    async with connect(file) as store:
        await asyncio.gather(*(store.write(key, b"0123456789") for key in SPEED_KEYS))
        return await small(store, DURABLE_AT_ONCE)


def throughput(sync_ms: float) -> None:
    for label, dap in (("ABD n=5", ["--dap", "abd"]), ("EC n=5 k=3", ["--dap", "ec", "--k", "3"])):
        rates: dict[str, list[float]] = {"memory": [], "fsync": []}
        for _ in range(DURABLE_ROUNDS):
            for durability, found in rates.items():
                with cluster(5, durability, sync_ms, dap) as file:
                    per_s, p50, p99 = run(rate(file))
                found.append(per_s)
                print(
                    f"{label:11} {durability:6} {per_s:9,.0f} op/s   p50 {p50:6.2f} ms   p99 "
                    f"{p99:6.2f} ms",
                    flush=True,
                )
        share = statistics.median(rates["fsync"]) / statistics.median(rates["memory"])
        print(f"{label:11} durable: {share:.0%} of the throughput in memory", flush=True)


async def fill(directory: Path, count: int, bytes: int) -> None:
    """Fill a journal with ``count`` elements of ``bytes`` bytes, a MiB or 1000 in a commit."""
    journal = open_journal(directory, OWNER)
    list(journal.recover())
    group = min(1000, 1 + MIB // bytes)
    for start in range(0, count, group):
        for number in range(start, min(count, start + group)):
            name, tag, data = (
                ObjectName(f"key-{number:020d}"),
                Tag(1, ClientId(1)),
                os.urandom(bytes),
            )
            put = PutData(
                CallId(0), INITIAL.id, name, tag, sealed(INITIAL.id, name, tag, 0, bytes, (data,))
            )
            assert journal.reserve(fact_bytes_max(put), Use.DATA) is not None
            journal.append(put, fact_bytes_max(put))
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        journal.commit(lambda error, moved, done=done: done.set_result(error))
        assert await done is None
    journal.close()


def restart(count: int, bytes: int) -> None:
    with tempfile.TemporaryDirectory(prefix="ares-durable-", dir=".") as directory:
        began = time.perf_counter()
        run(fill(Path(directory) / "data", count, bytes))
        filled = time.perf_counter() - began
        again = python("-m", "experiments.durable", "--restore", f"{directory}/data")
        warm = subprocess.run(
            again, check=True, capture_output=True, text=True, env=ENVIRONMENT
        ).stdout.strip()
        drop_page_cache()
        cold = subprocess.run(
            again, check=True, capture_output=True, text=True, env=ENVIRONMENT
        ).stdout.strip()
    print(
        f"{count:9,} elements of {bytes:9,} bytes: written in {filled:6.2f} s; {warm}; nothing "
        f"cached: {cold}",
        flush=True,
    )


def drop_page_cache() -> None:
    """Drop the kernel's page cache. Works for root only."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


async def restore(directory: Path) -> None:
    began = time.perf_counter()
    journal = open_journal(directory, OWNER)
    replica = restored(OWNER.server, OWNER.identity, INITIAL, journal)
    objects = sum(len(hosting.objects) for hosting in replica.hosted.values())
    print(f"restored in {time.perf_counter() - began:.2f} s ({objects:,} objects)")
    journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sync-ms", type=float, default=0.0, help="add so much to every sync")
    parser.add_argument("--throughput", action="store_true", help="only that")
    parser.add_argument("--restart", action="store_true", help="only that")
    parser.add_argument(
        "--serve", nargs=3, metavar=("FILE", "DURABILITY", "ID"), help=argparse.SUPPRESS
    )
    parser.add_argument("--restore", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        file, durability, id = arguments.serve
        run(serve(Path(file), id, durability, arguments.sync_ms))
    elif arguments.restore:
        run(restore(arguments.restore))
    else:
        if not arguments.restart:
            throughput(arguments.sync_ms)
        if not arguments.throughput:
            restart(1024, MIB)
            restart(1_000_000, 10)


if __name__ == "__main__":
    main()
