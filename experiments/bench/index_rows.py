"""The index of buckets with many keys: the file, the snapshot, listings and memory.

Each part runs in a process of its own (alone.py), in this order, and without servers: the bytes of
a snapshot are in the directory.
"""

import gc
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from ares.bucket.bucket_listing import ListRequest, list_objects
from ares.bucket.bucket_state import BucketState
from ares.bucket.commands import Command, CreateBucket, OpenSession, PutObject, encode_command
from ares.bucket.fold import BucketFold
from ares.bucket.index_records import ObjectEntry, Piece, Version
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTable, Saved
from ares.bucket.row_keys import ROWS_END
from ares.bucket.snapshots.snapshot_pieces import (
    PORTION_ROWS,
    SnapshotReader,
    SnapshotWriter,
    decode_manifest,
    encode_manifest,
)
from ares.store import sqlite_table
from ares.store.sqlite_table import SqliteTable
from experiments.bench.alone import Figures, Measure

LOG = b"the log of a bench"
BUCKET = "photos"
FOLDED = 20_000
"""Commands of the part that folds."""


def key_of(number: int) -> str:
    """Return a key in one of a thousand folders."""
    return f"{number % 1000:03d}/{number:09d}.jpg"


def build(directory: Path, keys: int) -> Figures:
    """Make the file of an index with a bucket and its keys."""
    table = SqliteTable(directory / "index", LOG)
    fold = BucketFold(table)
    fold.apply(encode_command(Command(0, 1, 1, 0, OpenSession(1))))
    fold.apply(encode_command(Command(0, 1, 1, 0, CreateBucket(BUCKET))))
    begun = time.perf_counter()
    for number in range(keys):
        entry = ObjectEntry(
            Version(2 + number),
            100,
            f"{number:032x}",
            0,
            Piece(100, data=bytes(100)),
            null=True,
        )
        fold.state.set_entry(BUCKET, key_of(number), entry)
    bucket = fold.state.bucket(BUCKET)
    assert bucket is not None, "it was created"
    counted = {"objects": keys, "versions": keys, "bytes": 100 * keys}
    fold.state.set_bucket(BUCKET, type(bucket)(bucket.ms, **counted))
    table.save(Saved(2 + keys, fold.state.digest))
    table.close()
    size = (directory / "index").stat().st_size / 2**20
    return {"rows written, s": time.perf_counter() - begun, "file, MiB": size}


def open_again(directory: Path, keys: int) -> Figures:
    """Open the file in the same run of the kernel, and list a page."""
    begun = time.perf_counter()
    state = BucketState(SqliteTable(directory / "index", LOG))
    list_objects(state, ListRequest(BUCKET))
    return {"start with file, s": time.perf_counter() - begun}


def open_counted(directory: Path, keys: int) -> Figures:
    """Open the file as after a restart of the machine: all rows are counted."""
    sqlite_table.boot_id = lambda: f"another run {time.time()}"  # type: ignore[attr-defined]
    begun = time.perf_counter()
    table = SqliteTable(directory / "index", LOG)
    assert table.saved().position == 2 + keys, "the file is whole"
    return {"start with file, counted, s": time.perf_counter() - begun}


def take(directory: Path, keys: int) -> Figures:
    """Cut the rows of the file into the pieces of a snapshot."""
    table = SqliteTable(directory / "index", LOG)
    frozen, writer, first = table.frozen(), SnapshotWriter(), b""
    longest, begun, count, rows = 0.0, time.perf_counter(), 0, [(b"", b"")]
    gc.collect()
    while rows:
        portion = time.perf_counter()
        rows = list(frozen.scan(first, ROWS_END, PORTION_ROWS))
        pieces = list(writer.add(rows)) if rows else [writer.end()]
        longest = max(longest, time.perf_counter() - portion)
        for piece in pieces:
            (directory / f"piece-{count}").write_bytes(piece)
            count += 1
        first = rows[-1][0] + b"\0" if rows else first
    manifest = writer.manifest(frozen.point.position)
    (directory / "manifest").write_bytes(encode_manifest(manifest))
    return {
        "snapshot taken, s": time.perf_counter() - begun,
        "longest portion, ms": 1000 * longest,
        "snapshot, MiB": manifest.length / 2**20,
    }


def _loaded(directory: Path, table: RowTable) -> float:
    begun = time.perf_counter()
    manifest = decode_manifest((directory / "manifest").read_bytes())
    reader = SnapshotReader(manifest)
    for number in range(len(manifest.pieces)):
        for rows in reader.take((directory / f"piece-{number}").read_bytes()):
            for key, value in rows:
                table.put(key, value)
    reader.end()
    table.save(Saved(manifest.position, int.from_bytes(manifest.digest)))
    list_objects(BucketState(table), ListRequest(BUCKET))
    return time.perf_counter() - begun


def load(directory: Path, keys: int) -> Figures:
    """Fill a new file by the snapshot."""
    return {"snapshot loaded, s": _loaded(directory, SqliteTable(directory / "loaded", LOG))}


def load_in_memory(directory: Path, keys: int) -> Figures:
    """Fill a table in memory by the snapshot."""
    return {"snapshot loaded in memory, s": _loaded(directory, MemoryTable())}


def list_pages(directory: Path, keys: int) -> Figures:
    """List pages of 1,000 results, without and with a delimiter."""
    state = BucketState(SqliteTable(directory / "index", LOG))

    def times(pages: int, **fields: str) -> Iterator[float]:
        request: ListRequest | None = ListRequest(BUCKET, **fields)
        for _ in range(pages):
            if request is None:
                request = ListRequest(BUCKET, **fields)
            begun = time.perf_counter()
            page = list_objects(state, request)
            yield 1000 * (time.perf_counter() - begun)
            assert len(page.results) == min(keys, 1000), "a whole page"
            request = page.following

    return {
        "LIST of 1,000 keys, ms": statistics.median(times(100)),
        "LIST of 1,000 prefixes, ms": statistics.median(times(30, delimiter="/")),
    }


def fold_more(directory: Path, keys: int) -> Figures:
    """Fold commands of a session with half of the keys new."""
    table = SqliteTable(directory / "index", LOG)
    fold = BucketFold(table)
    session = fold.state.position
    fold.apply(encode_command(Command(0, 1, 1, 0, OpenSession(1))))
    entries = [
        encode_command(
            Command(
                *(session, number, max(1, number - 32), 0),
                PutObject(BUCKET, key_of(number * 7919 % (2 * keys)), bytes(100), f"{number:032x}"),
            )
        )
        for number in range(1, 1 + FOLDED)
    ]
    begun = time.perf_counter()
    for number, entry in enumerate(entries):
        applied = fold.apply(entry)
        assert applied is not None, "it is a command"
        assert applied.result.done, "without a condition"
        if number % 256 == 0:
            fold.save()
    fold.save()
    return {"commands folded, 1/s": FOLDED / (time.perf_counter() - begun)}


INDEX_PARTS: tuple[Measure, ...] = (
    *(build, open_again, open_counted, list_pages, take, load, load_in_memory, fold_more),
)
