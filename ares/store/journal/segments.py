"""The files of a journal: segments, each named by its number, and the work on them that waits for the disk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ares.model.codec import DETACHED_BYTES_MIN
from ares.model.errors import ForeignStore, StoreDamaged
from ares.model.messages import PutData
from ares.replica.facts import Fact
from ares.store.journal.anchor import Anchor
from ares.store.journal.disk import FULL, Disk
from ares.store.journal.format import (
    FORMAT,
    HEAD,
    PREFIX_BYTES,
    Batch,
    Buffer,
    Damage,
    Head,
    UnknownFormat,
    attach,
    decode_batch,
    decode_head,
    encode_head,
    encode_mark,
    parse_frame,
    walk,
)

SUFFIX = ".log"
NEW_SUFFIX = ".new"

SHORT_BYTES_MAX = 128 * 1024
"""What a commit may write to count as short."""


@dataclass(frozen=True)
class Owner:
    """Whose journal it is: the cluster (id of its c0), the server, and its identity."""

    cluster: bytes
    server: str
    identity: str


@dataclass
class Segment:
    """A mapped file.

    Its batches lie from ``start`` to ``end``; up to ``taken`` room is promised to facts, up to ``allocated`` the disk promised it to us.
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

    def batches(self) -> Iterator[Batch]:
        """Every batch of a segment whose ``end`` is known. Raises :class:`StoreDamaged`."""
        end = self.start
        try:
            for frame in walk(self.view[: self.end], self.start, self.head.salt, self.head.first):
                end = frame.end
                yield decode_batch(frame, self.view)
        except Damage as damage:
            raise StoreDamaged(self.path, str(damage)) from damage
        if end != self.end:
            raise StoreDamaged(self.path, f"it cannot be read beyond byte {end} and had {self.end}")


def open_segment(disk: Disk, path: Path, owner: Owner, size_min: int = 0, had: int = 0) -> Segment:
    """The segment at ``path``, its ``end`` not known yet, made ``size_min`` bytes long if it is shorter. ``had``: how long it was for certain.

    Raises :class:`StoreDamaged`, :class:`ForeignStore` or OSError.
    """
    descriptor = disk.open(path)
    size = disk.size(descriptor)
    if size < PREFIX_BYTES:
        disk.close(descriptor)
        raise StoreDamaged(path, f"it has {size} bytes")
    if size < had:
        disk.close(descriptor)
        raise StoreDamaged(path, f"it was cut: it has {size} bytes and had {had}")
    if size < size_min:
        disk.truncate(descriptor, size_min)
        size = size_min
    view = disk.map(descriptor, size)
    disk.expect_scan(view, True)
    number = int(path.name.removesuffix(SUFFIX))
    frame = parse_frame(view, 0, number)
    try:
        if frame is None or frame.magic != HEAD:
            raise Damage("its head is not readable")
        head = decode_head(frame)
        if Owner(head.cluster, head.server, head.identity) != owner or head.number != number:
            raise ForeignStore(path, _whose(head, owner))
    except UnknownFormat as error:
        raise ForeignStore(path, str(error)) from error
    except Damage as damage:
        raise StoreDamaged(path, str(damage)) from damage
    return Segment(path, descriptor, size, view, head, frame.end, frame.end, frame.end, frame.end)


def create_segment(
    disk: Disk, directory: Path, owner: Owner, first: int, earlier: Sequence[tuple[int, int]], number: int, room: int, size: int
) -> tuple[Segment, list[Buffer]]:
    """A segment that nothing was written to, with room for ``room`` bytes of batches, and the frame that must be written first.

    It has its name only after :class:`Work` gave it. Raises OSError; nothing is left then.
    """
    head = Head(FORMAT, owner.cluster, owner.server, owner.identity, number, disk.salt(), first, tuple(earlier))
    frame = encode_head(head)
    start = sum(map(len, frame))
    allocated = start + room
    path = directory / f"{number:08}{NEW_SUFFIX}"
    descriptor = disk.create(path, max(size, allocated))
    try:
        disk.allocate(descriptor, 0, allocated)
        view = disk.map(descriptor, max(size, allocated))
    except OSError:
        disk.close(descriptor)
        disk.unlink(path)
        raise
    named = directory / f"{number:08}{SUFFIX}"
    return Segment(named, descriptor, max(size, allocated), view, head, start, start, start, allocated), frame


class _Write(NamedTuple):
    segment: Segment
    offset: int
    buffers: list[Buffer]
    end: int


class _Begin(NamedTuple):
    old: Segment | None
    new: Segment
    head: list[Buffer]


class Work:
    """What one commit has to do, in order; :meth:`run` it where waiting is allowed.

    A segment is durable as a whole before anything is in the next one.
    """

    def __init__(self, disk: Disk, anchor: Anchor) -> None:
        self._disk = disk
        self._anchor = anchor
        self._steps: list[_Write | _Begin] = []
        self._discarded: list[Path] = []
        self._ahead: tuple[Segment, int] | None = None
        self._last_sequence = 0

    @property
    def is_short(self) -> bool:
        """Whether it is no more than one write of SHORT_BYTES_MAX, and its sync."""
        if len(self._steps) != 1 or self._ahead is not None or self._discarded:
            return False
        step = self._steps[0]
        return isinstance(step, _Write) and step.end - step.offset <= SHORT_BYTES_MAX

    def write(self, segment: Segment, offset: int, buffers: list[Buffer], end: int, sequence: int) -> None:
        """Batch ``sequence``, from ``offset`` to ``end``."""
        self._steps.append(_Write(segment, offset, buffers, end))
        self._last_sequence = sequence

    def begin(self, old: Segment | None, new: Segment, head: list[Buffer]) -> None:
        """``new`` follows ``old``, which has its end."""
        self._steps.append(_Begin(old, new, head))

    def allocate(self, segment: Segment, end: int) -> None:
        """Room up to ``end`` of the segment that is the last one now, if there is any; without it, who needs it asks again and is told why."""
        self._ahead = (segment, end)

    def discard(self, path: Path) -> None:
        """Remove a file, once all else is durable."""
        self._discarded.append(path)

    def run(self) -> None:
        """Raises OSError; what is durable then is not known."""
        dirty: _Write | None = None
        for step in self._steps:
            if isinstance(step, _Write):
                self._disk.write(step.segment.descriptor, step.buffers, step.offset)
                dirty = step
                continue
            if dirty is not None:
                self._disk.sync(dirty.segment.descriptor)
                dirty = None
            self._begin(step)
        if dirty is not None:
            self._disk.sync(dirty.segment.descriptor)
        if self._ahead is not None:
            self._allocate(*self._ahead)
        for path in self._discarded:
            self._disk.unlink(path)
        if dirty is not None:
            self._mark(dirty)

    def _allocate(self, segment: Segment, end: int) -> None:
        start = segment.allocated  # may have grown since
        if start >= end:
            return
        try:
            self._disk.allocate(segment.descriptor, start, end)
        except OSError as error:
            if error.errno not in FULL:
                raise
            return
        segment.allocated = max(segment.allocated, end)

    def _begin(self, step: _Begin) -> None:
        disk, new = self._disk, step.new
        disk.write(new.descriptor, step.head, 0)
        disk.sync(new.descriptor)
        disk.rename(new.path.with_suffix(NEW_SUFFIX), new.path)
        disk.sync_directory(new.path.parent)
        self._anchor.write(new.number, new.size)
        if step.old is not None:
            disk.truncate(step.old.descriptor, step.old.end)
            disk.close(step.old.descriptor)

    def _mark(self, last: _Write) -> None:
        """Say behind the last batch that it is durable. Not synced: what a crash loses of this is a chance to notice damage, no data."""
        if last.end + PREFIX_BYTES <= last.segment.allocated:
            self._disk.write(last.segment.descriptor, encode_mark(self._last_sequence, last.segment.head.salt), last.end)


def mapped(facts: Sequence[Fact], view: memoryview, start: int) -> Iterator[PutData]:
    """The large elements among ``facts`` as the batch has them whose parts begin at ``start``."""
    for fact in facts:
        if type(fact) is PutData and fact.element.size >= DETACHED_BYTES_MIN:
            element, parts = fact.element, []
            for part in element.parts:
                parts.append(view[start : start + len(part)])
                start += len(part)
            yield attach(fact, parts)


def _whose(head: Head, owner: Owner) -> str:
    """Why a segment with this head is not one of ``owner``, and what there is to do about it, for who starts the server."""
    if head.cluster != owner.cluster:
        ids = f"({head.cluster.hex()}; that of this cluster file is {owner.cluster.hex()})"
        return f"it was made in another cluster {ids}: use the cluster file that it was made with, or another directory for `data`"
    if head.server != owner.server:
        return f"{head.server} made it, and this is {owner.server} (is the right disk mounted, and is `data` right in the cluster file?)"
    if head.identity != owner.identity:
        lives = f"as {head.identity}, and is {owner.identity} now"
        return f"{owner.server} made it {lives}: it is an old copy, or part of one, and may lack what came since. Bring the right one back"
    return f"it is segment {head.number}, under the name of another one: bring the directory back as it was"
