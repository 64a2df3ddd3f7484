"""Snapshots of the index in a domain of their own: taking, loading, and dropping the old.

The live session with the lowest number takes snapshots. The rows of a save go into pieces while
the fold goes on. The pieces, then the manifest, are stored at a quorum and read back; the command
in the log follows. A trim of the log ends at the older of two kept snapshots. A process without
rows, or behind a trim, loads the newest snapshot with a manifest, which was written last. A process
that finds different rows in a snapshot marks it: an unmarked snapshot is loaded first.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from typing import NamedTuple

from ares.bucket.commands import KeepSnapshot
from ares.bucket.fold import SNAPSHOTS_KEPT
from ares.bucket.garbage import may_drop
from ares.bucket.index_records import Blob
from ares.bucket.port import FrozenRows, RowTable, Saved
from ares.bucket.row_keys import ROWS_END
from ares.bucket.snapshots.snapshot_pieces import (
    PORTION_ROWS,
    SNAPSHOT_PIECE_BYTES,
    SnapshotDamaged,
    SnapshotManifest,
    SnapshotReader,
    SnapshotWriter,
    decode_manifest,
    encode_manifest,
    piece_summary,
)
from ares.client.buckets.blob_store import BlobStore, DataPart
from ares.client.buckets.bucket_index import BucketIndex
from ares.model.errors import AresError, LeftBehind, ObjectNotFound
from ares.model.identity import ObjectName, ServerId
from ares.model.units import MIB

SNAPSHOT_COMMANDS = 200_000
SNAPSHOT_LOG_BYTES = 64 * MIB
"""Entries of the log, and bytes of entries, after which a snapshot is due."""

SNAPSHOT_LOOK_S, SNAPSHOT_AGAIN_S = 5.0, 60.0
"""Seconds between looks for a due snapshot, and after a snapshot that was not taken."""

SNAPSHOT_STANDSTILL_S = 30.0
"""Longest standstill while an object of a snapshot is stored or dropped."""

PORTION_PAUSE_S = 0.002
"""Pause between portions of about a millisecond: other work has two thirds of the time."""

_MANIFEST_PART, _DOUBT_PART = "manifest", "doubt-"

log = logging.getLogger(__name__)


class SnapshotName(NamedTuple):
    """The common beginning of the names of a snapshot's objects, in the order of positions."""

    position: int
    session: int
    counter: int

    def part(self, part: int | str) -> ObjectName:
        return ObjectName(f"{self.position:019d}/{self.session}/{self.counter}/{part}")


def parsed_snapshot_name(name: str) -> tuple[SnapshotName, str] | None:
    """Return the snapshot and the part in a name; None for a foreign name."""
    *numbers, part = name.split("/")
    try:
        position, session, counter = map(int, numbers)
    except ValueError:
        return None
    snapshot = SnapshotName(position, session, counter)
    known = position >= 0 and session >= 0 and counter >= 1 and snapshot.part(part) == name
    return (snapshot, part) if known else None


class BucketSnapshots:
    """The domain of snapshots."""

    def __init__(self, domain: BlobStore) -> None:
        self._domain = domain
        self._trimmed = 0

    async def keep_up(self, index: BucketIndex) -> None:
        """Take snapshots and trim the log, while this session is the oldest."""
        while True:
            await asyncio.sleep(SNAPSHOT_LOOK_S)
            if index.is_oldest:
                try:
                    await self.take_due(index)
                except AresError as error:
                    index.check()
                    log.warning("a snapshot of the buckets' index was not taken: %s", error)
                    await asyncio.sleep(SNAPSHOT_AGAIN_S)

    async def take_due(self, index: BucketIndex) -> bool:
        """Trim the log, and take a snapshot if due; return whether the index keeps a new one.

        Raises :class:`AresError` without a new snapshot: the log has all entries still.
        """
        await self._trim(index)
        kept = index.state.snapshots()
        commands = index.state.position - (kept[-1].position if kept else 0)
        if commands < SNAPSHOT_COMMANDS and index.log_bytes < SNAPSHOT_LOG_BYTES:
            return False
        await self.sweep(index)
        taken = await self.take(index)
        await self._trim(index)
        return taken

    async def _trim(self, index: BucketIndex) -> None:
        """Trim the log to the older of two kept snapshots: both are at a quorum."""
        kept = index.state.snapshots()
        if len(kept) >= SNAPSHOTS_KEPT and kept[0].position > self._trimmed:
            await index.trim(kept[0].position, SNAPSHOT_STANDSTILL_S)
            self._trimmed = kept[0].position

    # -- taking ------------------------------------------------------------------------------------

    async def take(self, index: BucketIndex) -> bool:
        """Take a snapshot of the rows as they are now; return whether the index keeps it."""
        index.check_live()
        session = index.session
        assert session.number is not None, "a live session has a number"
        index.fold.save()
        frozen = index.state.table.frozen()
        counter = session.take_blob()
        try:
            name = SnapshotName(frozen.point.position, session.number, counter)
            manifest = await self._store(index, frozen, name)
            blob = Blob(session.number, counter, max(manifest.length, 1))
            index.check_live()
            if index.is_in_doubt:
                raise SnapshotDamaged("a session has different rows, and one of both is wrong")
            keep = KeepSnapshot(manifest.position, manifest.digest, blob)
            return (await index.keep_up(keep, SNAPSHOT_STANDSTILL_S)).done
        finally:
            session.close_blob(counter)
            frozen.close()

    async def _store(
        self, index: BucketIndex, frozen: FrozenRows, name: SnapshotName
    ) -> SnapshotManifest:
        """Store the pieces and then the manifest, each at a quorum, and read all of them back."""
        writer, first, number = SnapshotWriter(), b"", 0
        while rows := frozen.scan(first, ROWS_END, PORTION_ROWS):
            first = rows[-1][0] + b"\0"
            for piece in writer.add(rows):
                await self._put(name.part(number), piece)
                number += 1
            await asyncio.sleep(PORTION_PAUSE_S)
        if last := writer.end():
            await self._put(name.part(number), last)
        manifest = writer.manifest(frozen.point.position)
        if int.from_bytes(manifest.digest) != frozen.point.digest:
            index.distrust("its rows have not the digest of their changes")
            index.check()
        for number, known in enumerate(manifest.pieces):
            found = await self._fetch(name.part(number), SNAPSHOT_STANDSTILL_S)
            if piece_summary(found) != known:
                raise SnapshotDamaged(f"{name.part(number)} was read back with other bytes")
        data = encode_manifest(manifest)
        await self._put(name.part(_MANIFEST_PART), data)
        if await self._fetch(name.part(_MANIFEST_PART), SNAPSHOT_STANDSTILL_S) != data:
            raise SnapshotDamaged(f"{name.part(_MANIFEST_PART)} was read back with other bytes")
        return manifest

    async def _put(self, name: ObjectName, data: bytes) -> None:
        await self._domain.create(name, data, SNAPSHOT_STANDSTILL_S)

    async def _fetch(self, name: ObjectName, timeout_s: float | None) -> bytes:
        return await self._domain.fetch(DataPart(name, b"", 0, SNAPSHOT_PIECE_BYTES), timeout_s)

    # -- loading -----------------------------------------------------------------------------------

    async def load(self, table: RowTable, first: int, timeout_s: float | None) -> bool:
        """Fill the table with the newest whole snapshot at position ``first`` or above.

        Returns False without a snapshot, with an empty table. An error leaves a useless table.
        """
        for name in await self._whole(first, timeout_s):
            try:
                await self._load(table, name, timeout_s)
            except (ObjectNotFound, LeftBehind, SnapshotDamaged) as error:
                log.warning("the snapshot of position %d is passed over: %s", name.position, error)
            else:
                return True
        table.clear()
        table.save(Saved(0, 0))
        return False

    async def doubt(self, snapshot: KeepSnapshot, timeout_s: float | None) -> None:
        """Mark a snapshot whose rows differ from those of this process: others are loaded first.

        A mark by a process with wrong rows costs the fold of more of the log, once. A domain that
        takes no mark is no reason not to serve.
        """
        blob = snapshot.blob
        name = SnapshotName(snapshot.position, blob.session, blob.counter)
        mark = name.part(f"{_DOUBT_PART}{secrets.token_hex(8)}")  # names are used once
        try:
            await self._domain.create(mark, b"", timeout_s)
        except AresError as error:
            log.warning(
                "the snapshot of different rows at %d has no mark: %s", name.position, error
            )

    async def _whole(self, first: int, timeout_s: float | None) -> list[SnapshotName]:
        """Return the snapshots with a manifest, as far as servers answer, the best first.

        The newest is the best, but marked snapshots come last.
        """
        found: set[SnapshotName] = set()
        doubted: set[SnapshotName] = set()
        failed: AresError | None = None
        for server in await self._domain.servers(timeout_s):
            try:
                async for name, part in self._names(server, timeout_s):
                    if part == _MANIFEST_PART and name.position >= first:
                        found.add(name)
                    elif part.startswith(_DOUBT_PART):
                        doubted.add(name)
            except AresError as error:
                failed = error
        if failed is not None and not found:
            raise failed
        return sorted(found, key=lambda name: (name not in doubted, name), reverse=True)

    async def _names(
        self, server: ServerId, timeout_s: float | None
    ) -> AsyncIterator[tuple[SnapshotName, str]]:
        after: str | None = ""
        while after is not None:
            page = await self._domain.names(server, after, timeout_s)
            for each in page.names:
                if (parsed := parsed_snapshot_name(each)) is not None:
                    yield parsed
            after = page.after

    async def _load(self, table: RowTable, name: SnapshotName, timeout_s: float | None) -> None:
        manifest = decode_manifest(await self._fetch(name.part(_MANIFEST_PART), timeout_s))
        if manifest.position != name.position:
            raise SnapshotDamaged("a manifest of another position")
        reader = SnapshotReader(manifest)
        table.clear()
        for number in range(len(manifest.pieces)):
            for rows in reader.take(await self._fetch(name.part(number), timeout_s)):
                for key, value in rows:
                    table.put(key, value)
                await asyncio.sleep(0)
        reader.end()
        table.save(Saved(manifest.position, int.from_bytes(manifest.digest)))

    # -- dropping ----------------------------------------------------------------------------------

    async def sweep(self, index: BucketIndex) -> None:
        """Drop the names of snapshots that are not kept, at each server by itself."""
        for server in await self._domain.servers(SNAPSHOT_STANDSTILL_S):
            try:
                names = [
                    name.part(part)
                    async for name, part in self._names(server, SNAPSHOT_STANDSTILL_S)
                    if may_drop(index.state, Blob(name.session, name.counter, 1))
                ]
                await self._domain.drop(names, SNAPSHOT_STANDSTILL_S)
            except AresError as error:
                index.check()
                log.info("the sweep of snapshots passes over %s: %s", server, error)
