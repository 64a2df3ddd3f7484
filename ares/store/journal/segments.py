"""The files of a journal: numbered segments and the anchor, and a commit's work on them.

The anchor, beside the journal, remembers the last segment and its length: a journal without its
newest segments reads like an older journal. The anchor is written, and durable, when a segment
begins: after the segment has its name, before any batch in the segment is acknowledged. The segment
named by the anchor therefore existed; if the segment is missing, acknowledged facts may be gone
with it. Earlier releases wrote no anchor; a journal without an anchor gets an anchor when it is
opened. An empty file in the journal, named NOTE_PREFIX and the owner, records the existence of the
anchor: without its anchor such a journal is damaged. The anchor is durable before this file, and
both are durable before a segment begins.

The anchor has two slots in blocks of their own, written by turns: a torn or rotten slot leaves the
second slot, which names the segment before. The anchor's room is allocated at its creation, hence a
write succeeds on a full disk, too.

    slot    magic (8 bytes) | turn u64 | owner (16 bytes) | number u64 | bytes u64 | check u64

All numbers are little-endian; ``owner`` is XXH3-128 of the server's identity, ``check`` XXH3-64
over the fields before it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from ares.model.errors import ForeignStore, StoreDamaged
from ares.store.journal.disk import DISK_BLOCK_BYTES, NO_ROOM_ERRORS, Disk, UnlessFull
from ares.store.journal.format import (
    BATCH_PREFIX_BYTES,
    SEGMENT_MAGIC,
    Batch,
    Buffer,
    Damage,
    Frame,
    Head,
    UnknownFormat,
    decode_batch,
    decode_head,
    encode_head,
    encode_mark,
    facts_of,
    parse_frame,
    walk,
)
from ares.store.port import Join, Stored

SEGMENT_SUFFIX = ".log"
NEW_SEGMENT_SUFFIX = ".new"

ANCHOR_SUFFIX = ".anchor"
NOTE_PREFIX = "anchored."
"""Prefix of the name of the file in a journal that has an anchor."""

_ANCHOR_MAGIC = b"ares-anc"
_slot = struct.Struct("<8sQ16sQQ")
_check = struct.Struct("<Q")
_SLOT_BYTES = _slot.size + _check.size
_ANCHOR_BYTES = 2 * DISK_BLOCK_BYTES
_NO_ANCHOR = "nothing else tells which segment of the journal was the last"

SHORT_BYTES_MAX = 128 * 1024
"""Bytes which a short commit may write."""

SCANNED_BYTES_MAX = 1024 * 1024
"""Most bytes that a start joins at once, and half of the bytes that it reads ahead at once."""


@dataclass(frozen=True)
class Owner:
    """The owner of a journal: the cluster (id of its c0), the server, and its identity."""

    cluster: bytes
    server: str
    identity: str


@dataclass
class Segment:
    """A mapped file.

    Its batches lie from ``start`` to ``end``; room is promised to facts up to ``taken``, and by the
    disk up to ``allocated``.
    """

    path: Path
    descriptor: int
    size: int
    view: memoryview
    head: Head
    start: int
    end: int
    taken: int
    allocated: int

    @property
    def number(self) -> int:
        return self.head.number

    def facts(self) -> Iterator[Stored]:
        """Yield the facts of a segment with known ``end``. Raises :class:`StoreDamaged`."""
        try:
            for frame in self.frames():
                yield from facts_of(frame, self.view)
        except Damage as damage:
            raise StoreDamaged(self.path, str(damage)) from damage

    def decoded(self, frame: Frame) -> Batch:
        """Return the batch in a frame. Raises :class:`StoreDamaged`."""
        try:
            return decode_batch(frame, self.view)
        except Damage as damage:
            raise StoreDamaged(self.path, str(damage)) from damage

    def frames(self) -> Iterator[Frame]:
        """Yield the frame of every batch of a segment with known ``end``.

        Raises :class:`StoreDamaged`.
        """
        end = self.start
        for frame in walk(self.view[: self.end], self.start, self.head.salt, self.head.first):
            end = frame.end
            yield frame
        if end != self.end:
            raise self.broken_at(end)

    def broken_at(self, at: int) -> StoreDamaged:
        return StoreDamaged(self.path, f"it cannot be read beyond byte {at} and had {self.end}")


class SegmentScan:
    """The scan of a segment with known end, at a start. ``at``: the end of the scanned batches.

    Batches without parts are read ahead, by as many bytes as the present row of them has: the scan
    waits for few pages by themselves, and the data of large elements stays unread. ``join`` gets
    windows which grow with the row of usual batches, so that an unusual batch costs no more than
    the row before.
    """

    def __init__(self, disk: Disk, segment: Segment, join: Join) -> None:
        self.at = segment.start
        self._disk = disk
        self._segment = segment
        self._join = join

    def batches(self) -> Iterator[Frame | None]:
        """Yield the frame of each batch that is not joined, and None for each joined window.

        Raises :class:`StoreDamaged`.
        """
        segment, view = self._segment, self._segment.view[: self._segment.end]
        salt, sequence = segment.head.salt, segment.head.first
        ahead = row = usual = self.at
        while self.at < segment.end:
            at, lead = self.at, min(self.at - row, SCANNED_BYTES_MAX)
            if lead and ahead < min(at + 2 * lead, segment.end):
                start, ahead = max(at, ahead), at + 3 * lead
                self._disk.read_ahead(segment.view, start, min(ahead, segment.end))
            # twice the row: the next batch may be larger than the batches before
            if window := min(2 * (at - usual), SCANNED_BYTES_MAX):
                frames = view[at : at + window]
                bytes, count = self._join.restore_run(frames, salt, sequence, segment.number)
                if count:
                    self.at, sequence = at + bytes, sequence + count
                    yield None
                    continue
            frame = next(walk(view, at, salt, sequence), None)
            if frame is None:
                raise segment.broken_at(at)
            self.at, sequence = frame.end, sequence + 1
            if window or frame.parts:
                usual = frame.end
            if frame.parts:
                row = frame.end
            yield frame


def open_segment(disk: Disk, path: Path, owner: Owner, size_min: int = 0, had: int = 0) -> Segment:
    """Open the segment at ``path``, its ``end`` unknown yet, lengthened to ``size_min`` bytes.

    ``had``: the certain length of the file. Raises :class:`StoreDamaged`, :class:`ForeignStore` or
    OSError.
    """
    descriptor = disk.open(path)
    try:
        return _opened(disk, descriptor, path, owner, size_min, had)
    except BaseException:
        disk.close(descriptor)
        raise


def _opened(
    disk: Disk, descriptor: int, path: Path, owner: Owner, size_min: int, had: int
) -> Segment:
    size = disk.size(descriptor)
    if size < max(BATCH_PREFIX_BYTES, had):
        raise StoreDamaged(
            path,
            f"it has {size} bytes"
            if size < BATCH_PREFIX_BYTES
            else f"it was cut: it has {size} bytes and had {had}",
        )
    if size < size_min:
        disk.truncate(descriptor, size_min)
        size = size_min
    view = disk.map(descriptor, size)
    disk.expect_scan(view, True)
    number = int(path.name.removesuffix(SEGMENT_SUFFIX))
    frame = parse_frame(view, 0, number)
    try:
        if frame is None or frame.magic != SEGMENT_MAGIC:
            raise Damage("its head is not readable")
        head = decode_head(frame)
        if Owner(head.cluster, head.server, head.identity) != owner or head.number != number:
            raise ForeignStore(path, _foreign_reason(head, owner))
    except UnknownFormat as error:
        raise ForeignStore(path, str(error)) from error
    except Damage as damage:
        raise StoreDamaged(path, str(damage)) from damage
    return Segment(path, descriptor, size, view, head, frame.end, frame.end, frame.end, frame.end)


def create_segment(
    disk: Disk, directory: Path, head: Head, room: int, size: int
) -> tuple[Segment, list[Buffer]]:
    """Create an unwritten segment with ``room`` bytes for batches, and its first frame, ``head``.

    The frame must be written first. The segment gets its name from :class:`CommitWork`. Raises
    OSError; no file is left in this case.
    """
    frame = encode_head(head)
    start = sum(map(len, frame))
    allocated = start + room
    path = directory / f"{head.number:08}{NEW_SEGMENT_SUFFIX}"
    size = max(size, allocated)
    with disk.creating(path, size) as descriptor:
        disk.allocate(descriptor, 0, allocated)
        view = disk.map(descriptor, size)
    return Segment(
        path.with_suffix(SEGMENT_SUFFIX),
        descriptor,
        size,
        view,
        head,
        start,
        start,
        start,
        allocated,
    ), frame


class AnchorRecord(NamedTuple):
    """The last segment's number and length; 0 and 0 before the first segment."""

    number: int
    bytes: int


def anchor_of(directory: Path) -> Path:
    """Return the path of the anchor of the journal in ``directory``."""
    return directory.with_name(f"{directory.name}{ANCHOR_SUFFIX}")


class Anchor:
    """The anchor of the journal in ``directory`` of a server with this identity.

    Methods raise OSError.
    """

    def __init__(self, disk: Disk, directory: Path, identity: str) -> None:
        self.path = anchor_of(directory)
        self._disk = disk
        self._owner = xxh3_128_digest(identity.encode())
        self._turn = 0
        self._descriptor: int | None = None
        self._note = directory / f"{NOTE_PREFIX}{self._owner.hex()}"
        self._noted = False

    def read(self) -> AnchorRecord | None:
        """Return the anchor's content.

        None if no anchor ever existed, or the anchor is of an earlier life under another identity.
        Raises :class:`StoreDamaged`.
        """
        self._noted = self._note.name in self._disk.names(self._note.parent)
        try:
            descriptor = self._disk.open(self.path)
        except FileNotFoundError:
            if self._noted:
                raise StoreDamaged(self.path, f"it is missing, and {_NO_ANCHOR}") from None
            return None
        content = self._disk.read(descriptor, _ANCHOR_BYTES)
        slots = [
            slot
            for at in range(0, _ANCHOR_BYTES, DISK_BLOCK_BYTES)
            if (slot := _parsed(content[at : at + _SLOT_BYTES])) is not None
        ]
        newest = max(slots, default=None)
        if newest is None or newest[1] != self._owner:
            self._disk.close(descriptor)
            if newest is None:
                raise StoreDamaged(self.path, f"it cannot be read, and {_NO_ANCHOR}")
            if self._noted:
                raise StoreDamaged(
                    self.path, f"it is that of another life of the server, and {_NO_ANCHOR}"
                )
            return None
        self._turn, _, number, size = newest
        self._descriptor = descriptor
        return AnchorRecord(number, size)

    def hold(self) -> bool:
        """Make the anchor and its note if missing; return False when the disk has no room for them.

        Call :meth:`read` before.
        """
        if self._descriptor is None and not self._make():
            return False
        if self._noted:
            return True
        # even if the anchor existed: a crash may have come before this sync
        self._disk.sync_directory(self.path.parent)
        try:
            self._disk.close(self._disk.create(self._note, 0))
        except OSError as error:  # on a full disk only the next segment records the anchor
            if error.errno not in NO_ROOM_ERRORS:
                raise
        else:
            self._disk.sync_directory(self._note.parent)
            self._noted = True
        return True

    def _make(self) -> bool:
        new = self.path.with_name(f"{self.path.name}{NEW_SEGMENT_SUFFIX}")
        with UnlessFull(), self._disk.creating(new, _ANCHOR_BYTES) as descriptor:
            self._disk.allocate(descriptor, 0, _ANCHOR_BYTES)
            self._descriptor = descriptor
        if self._descriptor is not None:
            self.write(0, 0)
            self._disk.rename(new, self.path)
        return self._descriptor is not None

    def write(self, number: int, size: int) -> None:
        """Write the anchor's content, durably. Call :meth:`hold` before."""
        assert self._descriptor is not None, "an anchor is held before it is written"
        self._turn += 1
        slot = _slot.pack(_ANCHOR_MAGIC, self._turn, self._owner, number, size)
        self._disk.write(
            self._descriptor,
            [slot + _check.pack(xxh3_64_intdigest(slot))],
            self._turn % 2 * DISK_BLOCK_BYTES,
        )
        self._disk.sync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None


def _parsed(data: bytes) -> tuple[int, bytes, int, int] | None:
    """Return turn, owner, number and bytes of a slot, or None for a broken slot."""
    if len(data) < _SLOT_BYTES or _check.unpack_from(data, _slot.size)[0] != xxh3_64_intdigest(
        data[: _slot.size]
    ):
        return None
    magic, turn, owner, number, size = _slot.unpack_from(data)
    return (turn, owner, number, size) if magic == _ANCHOR_MAGIC else None


class WrittenBatch(NamedTuple):
    """A step: write batch ``sequence``, from ``offset`` to ``end`` of the segment, and ``zeros``.

    The zeros follow the batch, in room already allocated.
    """

    segment: Segment
    offset: int
    buffers: list[Buffer]
    end: int
    sequence: int
    zeros: int = 0


class BegunSegment(NamedTuple):
    """A step: ``new`` follows ``old``, which has its final end."""

    old: Segment | None
    new: Segment
    head: list[Buffer]


class CommitWork:
    """The work of a commit: ``steps``, in order; :meth:`run` it where waiting is allowed.

    ``discarded``: files to remove once the commit is durable, some of earlier commits. ``ahead``:
    take room up to this end in the segment which is last now, if the disk has any; without it a
    later reservation is refused. A segment is durable as a whole before the next segment has any
    byte.
    """

    def __init__(self, disk: Disk, anchor: Anchor) -> None:
        self.steps: list[WrittenBatch | BegunSegment] = []
        self.ahead: tuple[Segment, int] | None = None
        self.discarded: list[Path] = []
        self._disk = disk
        self._anchor = anchor

    @property
    def is_short(self) -> bool:
        """Return whether the work is at most a single short write and its sync.

        Short: at most SHORT_BYTES_MAX, without zeros ahead.
        """
        if len(self.steps) != 1 or self.ahead is not None or self.discarded:
            return False
        step = self.steps[0]
        return (
            isinstance(step, WrittenBatch)
            and not step.zeros
            and step.end - step.offset <= SHORT_BYTES_MAX
        )

    def run(self) -> None:
        """Run the steps. Raises OSError; the durable part is unknown in this case."""
        dirty: WrittenBatch | None = None
        for step in self.steps:
            if isinstance(step, WrittenBatch):
                self._disk.write(step.segment.descriptor, step.buffers, step.offset)
                if step.zeros:
                    with UnlessFull():
                        self._disk.write(step.segment.descriptor, [bytes(step.zeros)], step.end)
                dirty = step
                continue
            if dirty is not None:
                self._disk.sync(dirty.segment.descriptor)
                dirty = None
            self._begin(step)
        if dirty is not None:
            self._disk.sync(dirty.segment.descriptor)
        if self.ahead is not None:
            self._allocate(*self.ahead)
        for path in self.discarded:
            self._disk.unlink(path)
        if dirty is not None and dirty.end + BATCH_PREFIX_BYTES <= dirty.segment.allocated:
            # Record behind the last batch that it is durable. The mark is not synced: a crash that
            # loses the mark loses a chance to notice damage, no data.
            self._disk.write(
                dirty.segment.descriptor,
                encode_mark(dirty.sequence, dirty.segment.head.salt),
                dirty.end,
            )

    def _allocate(self, segment: Segment, end: int) -> None:
        start = segment.allocated  # may have grown since
        if start >= end:
            return
        with UnlessFull():
            self._disk.allocate(segment.descriptor, start, end)
            segment.allocated = max(segment.allocated, end)

    def _begin(self, step: BegunSegment) -> None:
        disk, new = self._disk, step.new
        disk.write(new.descriptor, step.head, 0)
        disk.sync(new.descriptor)
        disk.rename(new.path.with_suffix(NEW_SEGMENT_SUFFIX), new.path)
        disk.sync_directory(new.path.parent)
        self._anchor.write(new.number, new.size)
        if step.old is not None:
            disk.truncate(step.old.descriptor, step.old.end)
            disk.close(step.old.descriptor)


def _foreign_reason(head: Head, owner: Owner) -> str:
    """Describe for a person why a segment with this head does not belong to ``owner``.

    The text includes the remedy, for the person who starts the server.
    """
    if head.cluster != owner.cluster:
        ids = f"({head.cluster.hex()}; that of this cluster file is {owner.cluster.hex()})"
        return (
            f"it was made in another cluster {ids}: use the cluster file that it was made with, "
            "or another directory for `data`"
        )
    if head.server != owner.server:
        return (
            f"{head.server} made it, and this is {owner.server} (is the right disk mounted, and "
            "is `data` right in the cluster file?)"
        )
    if head.identity != owner.identity:
        lives = f"as {head.identity}, and is {owner.identity} now"
        return (
            f"{owner.server} made it {lives}: it is an old copy, or part of one, and may lack "
            "later data. Bring the right one back"
        )
    return (
        f"it is segment {head.number}, under the name of another one: bring the directory back "
        "as it was"
    )
