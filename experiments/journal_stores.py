"""Comparison of stores under a server: LMDB, SQLite and an append log, on this disk.

    .venv/bin/python -m experiments.journal_stores [DIRECTORY]     # about five minutes

LMDB takes part only after `pip install lmdb`. Values are written as a server writes: keyed by
configuration, object and tag, in groups that are made durable together. "raw" appends the same
bytes to a file, with an fdatasync for each group. Quote ratios of the same run.
"""

import gc
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
from xxhash import xxh3_64_intdigest

from ares.model.units import MIB

try:
    import lmdb
except ImportError:
    lmdb = None

STORE_SMALL_BYTES = 100
STORE_S = 0.5
STORE_LARGE_MIB = 64
STORE_ROUNDS = 7
RESTART_MIB = 1024
ALLOCATED_BYTES = 32 * MIB
RESTART_SMALL = 1_000_000
Item = tuple[bytes, bytes]


class Store(Protocol):
    """The port of the compared stores."""

    def commit(self, items: list[Item]) -> None:
        """Make `items` durable before returning."""

    def load(self) -> int:
        """Load every key and every small value, as a restart does, and return their number.

        Large values stay in place.
        """

    def close(self) -> None: ...


class RawFile:
    """Bytes at the end of a file."""

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "raw", os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def commit(self, items: list[Item]) -> None:
        os.writev(self._file, [part for item in items for part in item][:1024])
        if len(items) > 512:
            os.writev(self._file, [part for item in items[512:] for part in item])
        os.fdatasync(self._file)

    def load(self) -> int:
        return 0

    def close(self) -> None:
        os.close(self._file)


class AppendLog:
    """An append log with a frame for each group; space is allocated ahead.

    A frame has bytes, checksum, MessagePack of keys, small values and lengths; large values follow.
    """

    def __init__(self, directory: Path) -> None:
        self._file = os.open(directory / "log", os.O_RDWR | os.O_CREAT)
        self._end, self._allocated = 0, os.fstat(self._file).st_size
        self.kept: dict[bytes, bytes | tuple[int, int]] = {}

    def commit(self, items: list[Item]) -> None:
        large = [value for _, value in items if len(value) >= 8192]
        body = msgspec.msgpack.encode(
            [(key, value if len(value) < 8192 else len(value)) for key, value in items]
        )
        head = len(body).to_bytes(8, "little") + xxh3_64_intdigest(body).to_bytes(8, "little")
        end = self._end + len(head) + len(body) + sum(map(len, large))
        if end > self._allocated:
            os.posix_fallocate(self._file, self._allocated, end + ALLOCATED_BYTES - self._allocated)
            self._allocated = end + ALLOCATED_BYTES
        os.pwritev(self._file, [head, body, *large], self._end)
        self._end = end
        os.fdatasync(self._file)

    def load(self) -> int:
        at = 0
        while any(head := os.pread(self._file, 16, at)):
            body = os.pread(self._file, int.from_bytes(head[:8], "little"), at + 16)
            assert xxh3_64_intdigest(body) == int.from_bytes(head[8:], "little")
            at += 16 + len(body)
            for key, value in msgspec.msgpack.decode(body):
                if isinstance(value, int):
                    self.kept[key] = (at, value)
                    at += value
                else:
                    self.kept[key] = value
        return len(self.kept)

    def close(self) -> None:
        os.close(self._file)


class Lmdb:
    """LMDB as a store."""

    def __init__(self, directory: Path) -> None:
        self._environment = lmdb.open(str(directory), map_size=8 << 30)
        self.kept: dict[bytes, object] = {}

    def commit(self, items: list[Item]) -> None:
        with self._environment.begin(write=True) as transaction:
            for key, value in items:
                transaction.put(key, value)

    def load(self) -> int:
        transaction = self._environment.begin(buffers=True)
        for key, value in transaction.cursor():
            self.kept[bytes(key)] = bytes(value) if len(value) < 8192 else value
        return len(self.kept)

    def close(self) -> None:
        self.kept.clear()
        self._environment.close()


class Sqlite:
    """SQLite as a store."""

    def __init__(self, directory: Path, synchronous: str = "FULL") -> None:
        self._database = sqlite3.connect(directory / "db", isolation_level=None)
        self._database.execute("pragma journal_mode = wal")
        self._database.execute(f"pragma synchronous = {synchronous}")
        self._database.execute(
            "create table if not exists kept (key blob primary key, size integer, value blob) "
            "without rowid"
        )
        self.kept: dict[bytes, bytes | None] = {}

    def commit(self, items: list[Item]) -> None:
        self._database.execute("begin")
        self._database.executemany(
            "insert or replace into kept values (?, ?, ?)",
            [(key, len(value), value) for key, value in items],
        )
        self._database.execute("commit")

    def load(self) -> int:
        for key, value in self._database.execute(
            "select key, case when size < 8192 then value end from kept"
        ):
            self.kept[key] = value
        return len(self.kept)

    def close(self) -> None:
        self._database.close()


LOCAL_STORES: dict[str, Callable[[Path], Store]] = {
    "raw": RawFile,
    "log": AppendLog,
    "SQLite WAL, FULL": Sqlite,
    "SQLite WAL, NORMAL": lambda directory: Sqlite(
        directory, "NORMAL"
    ),  # not durable: committed values may be lost with the power
} | ({"LMDB": Lmdb} if lmdb is not None else {})


def items(size: int) -> Iterator[Item]:
    number = 0
    while True:
        number += 1
        yield os.urandom(16) + b"/object/%020d/" % number + os.urandom(16), os.urandom(size)


def rate(store: Store, group: int, size: int, total: float) -> float:
    """Return the values a second, ``group`` made durable at a time.

    The run ends after ``total`` seconds or, from 1 MiB on, after ``total`` MiB.
    """
    source, done, began, waiting = items(size), 0, time.perf_counter(), 0.0
    while (time.perf_counter() - began if size < MIB else done) < total:
        batch = [next(source) for _ in range(group)]
        start = time.perf_counter()
        store.commit(batch)
        waiting += time.perf_counter() - start
        done += group
    return done / waiting


def fill(store: Store, count: int, size: int) -> None:
    source = items(size)
    group = 10_000 if size < MIB else 8
    for start in range(0, count, group):
        store.commit([next(source) for _ in range(min(group, count - start))])


def restart_s(make: Callable[[Path], Store], directory: Path, count: int) -> float:
    os.sync()
    if os.geteuid() == 0:
        Path("/proc/sys/vm/drop_caches").write_text("1")
    gc.disable()
    began = time.perf_counter()
    store = make(directory)
    assert store.load() == count
    seconds = time.perf_counter() - began
    gc.enable()
    store.close()
    return seconds


def rates(base: Path, group: int, size: int, total: float) -> dict[str, list[float]]:
    """Return the rates of each store, by round.

    The stores take turns because a disk's speed varies with time.
    """
    found: dict[str, list[float]] = {name: [] for name in LOCAL_STORES}
    for _ in range(STORE_ROUNDS):
        for name, make in LOCAL_STORES.items():
            where = Path(tempfile.mkdtemp(prefix="ares-store-", dir=base))
            store = make(where)
            found[name].append(rate(store, group, size, total))
            store.close()
            shutil.rmtree(where)
    return found


def write_table(base: Path) -> None:
    print(
        f"values a second, median of {STORE_ROUNDS} rounds (slowest to fastest), and the median of "
        "each round's ratio to the log"
    )
    for group, size, total in (
        (1, STORE_SMALL_BYTES, STORE_S),
        (32, STORE_SMALL_BYTES, STORE_S),
        (256, STORE_SMALL_BYTES, STORE_S),
        (1, MIB, STORE_LARGE_MIB),
    ):
        found = rates(base, group, size, total)
        for name, per_s in found.items():
            share = statistics.median(
                one / log for one, log in zip(per_s, found["log"], strict=True)
            )
            middle = statistics.median(per_s)
            print(
                f"{size:9,} B in groups of {group:3}  {name:19} {middle:9,.0f} "
                f"({min(per_s):,.0f} to {max(per_s):,.0f}), {share:.2f} x the log",
                flush=True,
            )


def restart_table(base: Path) -> None:
    print("restart, nothing cached where this runs as root")
    for count, size in ((RESTART_MIB, MIB), (RESTART_SMALL, STORE_SMALL_BYTES)):
        for name, make in LOCAL_STORES.items():
            if name == "raw":
                continue
            where = Path(tempfile.mkdtemp(prefix="ares-store-", dir=base))
            store = make(where)
            fill(store, count, size)
            store.close()
            on_disk = sum(path.stat().st_blocks * 512 for path in where.iterdir()) / MIB
            print(
                f"{count:9,} of {size:9,} B  {name:19} {restart_s(make, where, count):6.2f} s, "
                f"{on_disk:,.0f} MiB on disk",
                flush=True,
            )
            shutil.rmtree(where)


def main() -> None:
    base = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    if lmdb is None:
        print("LMDB is not installed here and is left out")
    write_table(base)
    restart_table(base)


if __name__ == "__main__":
    main()
