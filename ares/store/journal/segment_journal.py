"""A journal in files: an append log of segments, with group commit.

Space is given back by the segment. Reasons for a log, with figures: docs/store.md. Facts are
gathered on the event loop; a commit encodes them as a batch, which is written and synced once,
where waiting is allowed (ares/store/journal/writer.py). Segments are mapped: large elements are
views into them, never copied by a restart or by a running server.

A start, however the last process ended: all segments except the last were durable before the last
segment began, hence any missing or broken part of them is damage. The last segment is cut where its
unfinished batches break (ares/store/journal/format.py, kept_of_torn), and the kept part is durable
before any reader uses it. The anchor names the last segment (ares/store/journal/segments.py).

Room is promised before a server changes its state (:meth:`SegmentJournal.reserve`): the room is
allocated on the disk at this point, hence the following write cannot meet a full disk. Giving space
back takes some space first (:class:`Reserves`).
"""

import asyncio
import contextlib
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ares.model.codec import DETACHED_BYTES_MIN, Encoded
from ares.model.errors import BadInput, StoreDamaged
from ares.model.messages import PutData
from ares.platform.processor_waits import ProcessorWaits
from ares.sharedlog.log_facts import BatchPlace
from ares.store.journal.disk import Disk, UnlessFull, share_of_file_system
from ares.store.journal.examine import SegmentExamination
from ares.store.journal.format import (
    BATCH_FRAME_BYTES_MAX,
    BATCH_PREFIX_BYTES,
    JOURNAL_FORMAT,
    Damage,
    Head,
    decode_batch,
    decode_log_batch,
    discarded_by,
    encode_batch,
    encode_mark,
    kept_of_torn,
    mapped,
    walk,
)
from ares.store.journal.log_repair import PlaceFile, PlaceRepair
from ares.store.journal.segments import (
    NEW_SEGMENT_SUFFIX,
    SEGMENT_SUFFIX,
    Anchor,
    BegunSegment,
    CommitWork,
    Owner,
    Segment,
    SegmentScan,
    WrittenBatch,
    create_segment,
    open_segment,
)
from ares.store.journal.writer import Background, InlineWriter, WriterThread
from ares.store.port import PLACE_NUMBER_BYTES, Join, Stored, Use

SEGMENT_BYTES = 32 * 1024 * 1024
SEGMENT_BYTES_MIN = 512 * 1024
SEGMENTS_MIN = 16
"""Segments that fit into a small file system, until segments have SEGMENT_BYTES_MIN."""

LEFT_SHARE, SPARE_SHARE, AHEAD_SHARE = 8, 2, 16
"""Divisors of a segment: the parts of the reserves; the most room allocated at a time."""

AHEAD_GROWTH = 2
"""Divisor of a segment's facts: the room allocated at a time, between the least and the most."""

RUN_SHARE = 128
"""Divisor of a segment: a run of batches, after which the mean size of batches is checked."""

SMALL_BATCH_BYTES = 16 * 1024
"""Mean size of batches up to which zeros are written ahead of them.

A write to room that was only allocated costs more.
"""

UNLINKED_MAX = 32
"""Most files that a commit removes; later commits remove the rest."""

SWITCH_S = 0.0005

_LEFT_FOR_DISCARDING_BYTES = 1024

_SEGMENT_NAME = re.compile(r"[0-9]{8,}" + re.escape(SEGMENT_SUFFIX))

Done = Callable[[OSError | None, Sequence[PutData]], None]


class _NoJoin:
    """A :class:`ares.store.port.Join` which leaves every batch."""

    def restore_batch(self, body: memoryview, place: int) -> bool:
        return False

    def restore_run(
        self, frames: memoryview, salt: int, sequence: int, place: int
    ) -> tuple[int, int]:
        return 0, 0


class Reserves(NamedTuple):
    """The room that a journal keeps for facts that free space, in bytes.

    ``left``: in each segment, not for data. ``spare``: of a file that compaction may replace by
    facts. ``ahead``: the least room allocated at a time.
    """

    left: int
    spare: int
    ahead: int


LOG_RESERVES = Reserves(192 * 1024, 320 * 1024, 128 * 1024)
"""Most reserves of a log: trims free closed segments, and no fact is copied but the known state."""


def reserves_of(segment_bytes: int) -> Reserves:
    """Return the reserves of a journal of objects.

    The spare file is large enough for the live facts of any segment worth compacting
    (ares/replica/compaction.py).
    """
    left = segment_bytes // LEFT_SHARE
    return Reserves(left, segment_bytes // SPARE_SHARE + left, segment_bytes // AHEAD_SHARE)


def reserves_of_log(segment_bytes: int) -> Reserves:
    """Return the reserves of a log's journal: with these a new log takes less than 1 MiB."""
    return Reserves(*map(min, LOG_RESERVES, reserves_of(segment_bytes)))


class SegmentJournal:
    """:class:`ares.store.port.Journal` in ``directory``. A place is a segment's number."""

    keeps = True

    def __init__(
        self,
        directory: Path,
        owner: Owner,
        background: Background,
        disk: Disk | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        reserves: Reserves | None = None,
    ) -> None:
        self._directory = directory
        self._owner = owner
        self._background = background
        self._disk = disk or Disk()
        self._segment_bytes = segment_bytes
        self._reserves = reserves or reserves_of(segment_bytes)
        left = self._reserves.left
        self._left = (left, left // 2, _LEFT_FOR_DISCARDING_BYTES)  # by Use
        self._spare = directory / f"spare{NEW_SEGMENT_SUFFIX}"
        self._spare_bytes = 0
        self._sealed: dict[int, Segment] = {}
        self._settling: list[Segment] = []
        self._settled: dict[int, int] = {}
        self._head: Segment | None = None
        self._durable = (0, 0)
        self._next = 1
        self._synced = 0
        self._gathered: list[Any] = []
        self._gathered_large = False
        self._discards: list[int] = []
        self._discarded: list[Path] = []
        self._moved: list[PutData] = []
        self._anchor = Anchor(self._disk, directory, owner.identity)
        self._work = CommitWork(self._disk, self._anchor)
        self._run_end = self._run_batches = 0
        self._run_bytes = (
            segment_bytes  # as if batches had been large: the first commit waits for no zeros
        )
        self.mark = BatchPlace(0, 0, 0)
        self.read_bytes = self.to_read_bytes = 0
        self._closed = False

    # -- opening -----------------------------------------------------------------------------------

    def recover(self, join: Join | None = None) -> Iterator[tuple[int, Sequence[Any]]]:
        try:
            names = self._disk.names(self._directory)
            paths = {
                int(name.removesuffix(SEGMENT_SUFFIX)): self._directory / name
                for name in names
                if _SEGMENT_NAME.fullmatch(name)
            }
            had = self._anchored_bytes(max(paths, default=0))
            self._disk.make_directory(self._directory)
            if paths:
                self._head = open_segment(
                    self._disk, paths[max(paths)], self._owner, self._segment_bytes, had
                )
                yield from self._segments(self._head, paths, join or _NoJoin())
            for name in names:
                if name.endswith(NEW_SEGMENT_SUFFIX):
                    self._disk.unlink(self._directory / name)
            if self._anchor.hold() and self._head is not None:
                # Even if the anchor says this already: a sync of the anchor may have failed, and an
                # anchor that reads as written need not be on the disk.
                self._anchor.write(self._head.number, self._head.size)
        except OSError as error:
            raise BadInput(
                f"the store {self._directory} cannot be opened: {error.strerror} "
                f"({error.filename}); nothing was lost"
            ) from error
        self._settled = {number: segment.end for number, segment in self._sealed.items()}
        self._synced = self._next - 1
        if self._head is not None:
            self._durable = (self._head.number, self._head.end)
            self._allocate(self._head, min(self._head.size, self._head.end + self._left[Use.DATA]))

    def _anchored_bytes(self, newest: int) -> int:
        """Return the certain length of segment ``newest``.

        Raises :class:`StoreDamaged` when a newer segment existed.
        """
        anchored = self._anchor.read()
        if anchored is None or newest > anchored.number:
            return 0
        if newest < anchored.number:
            gone = (
                f"segment {anchored.number}"
                if newest == anchored.number - 1
                else f"segments up to {anchored.number}"
            )
            left = f"{newest} is the newest that is there" if newest else "none is there"
            raise StoreDamaged(
                self._directory, f"{gone} had begun, says {self._anchor.path}, and {left}"
            )
        return anchored.bytes

    def _segments(
        self, last: Segment, paths: Mapping[int, Path], join: Join
    ) -> Iterator[tuple[int, Sequence[Any]]]:
        try:
            written = memoryview(self._disk.read(last.descriptor, last.size))
            frames, sure, last.end = kept_of_torn(
                written, last.start, last.head.salt, last.head.first
            )
            discarded = {number for frame in frames for number in discarded_by(frame)}
        except Damage as damage:
            raise StoreDamaged(last.path, str(damage)) from damage
        self._disk.expect_scan(last.view, False)
        # Segments discarded before the last one began are not among the earlier ones; the last one
        # names the further discarded ones. Discarded segments are not read, though they may exist.
        ends = dict(last.head.earlier)
        missing = ends.keys() - paths.keys() - discarded
        if missing:
            are = (
                f"segment {min(missing)} is"
                if len(missing) == 1
                else f"segments {', '.join(map(str, sorted(missing)))} are"
            )
            raise StoreDamaged(self._directory, f"{are} missing")
        kept, done = sorted((ends.keys() & paths.keys()) - discarded), 0
        self.to_read_bytes = sum(ends[number] for number in kept) + last.end
        for number in kept:
            segment = self._sealed[number] = open_segment(self._disk, paths[number], self._owner)
            self._disk.close(segment.descriptor)
            segment.end = ends[number]
            scan = SegmentScan(self._disk, segment, join)
            for batch in scan.batches():
                self.read_bytes = done + scan.at
                if batch is not None:
                    self.mark = BatchPlace(number, batch.start, batch.sequence)
                    if not join.restore_batch(batch.body, number):
                        yield number, segment.decoded(batch).facts
            self._disk.expect_scan(segment.view, False)
            self._disk.let_go(segment.view)
            done += segment.end
        self._next = last.head.first + len(frames)
        last.taken = last.allocated = last.end
        for frame in frames:
            self.mark = BatchPlace(last.number, frame.start, frame.sequence)
            self.read_bytes = done + frame.end
            if not join.restore_batch(frame.body, last.number):
                yield last.number, last.decoded(frame).facts
        self._settle(last, written, sure)
        for number in sorted(
            (paths.keys() - ends.keys() - {last.number}) | (paths.keys() & discarded)
        ):
            self._disk.unlink(paths[number])

    def _settle(self, last: Segment, written: memoryview, sure: int) -> None:
        """Make the kept part durable, with zeros after it."""
        # The kept part is written again, because a failed sync may have ended the process: the
        # bytes read need not be on the disk, and no sync would put them there. The zeros keep the
        # cut part from being taken for batches later. The file is never made shorter: its anchor
        # tells its length.
        cut = bytes(len(bytes(written[last.end :]).rstrip(b"\0")))
        self._disk.write(last.descriptor, [written[sure : last.end], cut], sure)
        self._disk.sync(last.descriptor)
        self._disk.sync_directory(self._directory)
        if self._next > last.head.first and last.end + BATCH_PREFIX_BYTES <= last.size:
            # Repeat behind the last batch that it is durable: the mark was cut off, and without a
            # mark, damage there would pass for a torn write.
            with UnlessFull():
                self._disk.write(
                    last.descriptor, encode_mark(self._next - 1, last.head.salt), last.end
                )
                self._disk.sync(last.descriptor)

    # -- room --------------------------------------------------------------------------------------

    def reserve(self, bytes: int, use: Use) -> int | None:
        if use is Use.DATA and not self._spare_bytes and not self._hold_spare():
            return None
        place = self._room(bytes, use)
        if place is None and use is Use.COMPACTION and self._give_spare():
            place = self._room(bytes, use)
        return place

    def _give_spare(self) -> bool:
        if not self._spare_bytes:
            return False
        self._disk.unlink(self._spare)
        self._spare_bytes = 0
        return True

    def _hold_spare(self) -> bool:
        bytes = self._reserves.spare
        with UnlessFull():
            with self._disk.creating(self._spare, bytes) as descriptor:
                self._disk.allocate(descriptor, 0, bytes)
            self._disk.close(descriptor)
            self._spare_bytes = bytes
        return bool(self._spare_bytes)

    def _room(self, bytes: int, use: Use) -> int | None:
        needed = bytes + self._discards_bytes + BATCH_FRAME_BYTES_MAX + self._left[use]
        head = self._head
        if head is None or head.taken + needed > head.size:
            return self._begin(needed)
        if head.taken + needed > head.allocated and not self._allocate(head, head.taken + needed):
            return None
        return head.number

    def _allocate(self, head: Segment, end: int) -> bool:
        start = head.allocated  # read once: a commit in another thread may enlarge it at any moment
        if end <= start:
            return True
        for wanted in (min(head.size, end + self._ahead(end)), end):
            with UnlessFull():
                self._disk.allocate(head.descriptor, start, wanted)
                head.allocated = wanted
                return True
        return False

    def _ahead(self, taken: int) -> int:
        """Return the room to allocate at a time: a segment with few facts takes little."""
        most = self._segment_bytes // AHEAD_SHARE
        return max(self._reserves.ahead, min(most, taken // AHEAD_GROWTH))

    def _begin(self, room: int) -> int | None:
        """Begin a new segment with this room; return its number, or None on a full disk."""
        if not self._anchor.hold():
            return None
        old = self._head
        self._encode()
        head = Head(
            JOURNAL_FORMAT,
            self._owner.cluster,
            self._owner.server,
            self._owner.identity,
            number=old.number + 1 if old is not None else 1,
            salt=self._disk.salt(),
            first=self._next,
            earlier=tuple(
                (segment.number, segment.end)
                for segment in (*self._sealed.values(), old)
                if segment is not None
            ),
        )
        with UnlessFull():
            new, frame = create_segment(
                self._disk, self._directory, head, room, self._segment_bytes
            )
            if old is not None:
                self._sealed[old.number] = old
                self._settling.append(old)
            self._work.steps.append(BegunSegment(old, new, frame))
            self._head = new
            self._run_end = 0
            return head.number
        return None

    # -- facts -------------------------------------------------------------------------------------

    def append(self, fact: Stored, bytes: int) -> None:
        self._gather(fact, bytes)
        if bytes >= DETACHED_BYTES_MIN:
            self._gathered_large = True

    def at_hand(self, bytes: int) -> int | None:
        head = self._head
        needed = bytes + 2 * BATCH_FRAME_BYTES_MAX + self._left[Use.DATA]
        return (
            head.number
            if head is not None and self._spare_bytes and head.taken + needed <= head.allocated
            else None
        )

    def extend(self, facts: Encoded, bytes: int) -> None:
        self._gather(facts, bytes)

    def _gather(self, facts: Stored | Encoded, bytes: int) -> None:
        head = self._head
        assert head is not None, "room is reserved before a fact is appended"
        if not self._gathered:
            head.taken += BATCH_FRAME_BYTES_MAX
        head.taken += bytes
        self._gathered.append(facts)

    def commit(self, done: Done) -> None:
        self._encode()
        work, self._work = self._work, CommitWork(self._disk, self._anchor)
        work.discarded = self._discarded[:UNLINKED_MAX]
        del self._discarded[:UNLINKED_MAX]
        moved, self._moved = self._moved, []
        settling, self._settling = self._settling, []
        head = self._head
        if head is not None:
            step = self._ahead(head.taken)
            # in the commit, where waiting is allowed: `reserve` seldom has to allocate
            wanted = min(head.size, head.taken + self._left[Use.DATA] + 2 * step)
            if wanted - head.allocated >= step:
                work.ahead = (head, wanted)
        end = (head.number, head.end) if head is not None else self._durable
        self._background.submit(
            work.run,
            partial(self._committed, self._next - 1, end, moved, settling, done),
            work.is_short,
        )

    def _committed(
        self,
        sequence: int,
        end: tuple[int, int],
        moved: list[PutData],
        settling: list[Segment],
        done: Done,
        error: OSError | None,
    ) -> None:
        if error is None:
            self._synced, self._durable = sequence, end
            self._settled.update((segment.number, segment.end) for segment in settling)
        done(error, moved)

    def _encode(self) -> None:
        """Encode the gathered facts as a batch."""
        head = self._head
        if head is None or not (self._gathered or self._discards):
            return
        least = max(_LEFT_FOR_DISCARDING_BYTES, self._discards_bytes + BATCH_FRAME_BYTES_MAX)
        if not self._gathered and head.end + least > min(head.allocated, head.size):
            return  # the discards are told with the next facts
        sequence, facts = self._next, self._gathered
        buffers = encode_batch(
            sequence, self._synced, head.head.salt, facts, self._discards, self._gathered_large
        )
        end = head.end + sum(map(len, buffers))
        assert end <= max(head.taken + self._discards_bytes, head.end + least), (
            "a batch is larger than the room that was reserved for it"
        )
        if self._gathered_large:
            self._moved.extend(mapped(facts, head.view, head.end + len(buffers[0])))
            self._gathered_large = False
        self.mark = BatchPlace(head.number, head.end, sequence)
        self._work.steps.append(
            WrittenBatch(head, head.end, buffers, end, sequence, self._zeros(head, end))
        )
        for number in self._discards:
            self._discarded.append(self._directory / f"{number:08}{SEGMENT_SUFFIX}")
        self._next, self._gathered, self._discards = sequence + 1, [], []
        head.end = head.taken = end

    def _zeros(self, head: Segment, end: int) -> int:
        """Return the number of zeros to write behind the batch that ends at ``end``.

        A run of zeros follows a full run of small batches.
        """
        self._run_bytes += end - head.end
        self._run_batches += 1
        if end < self._run_end:
            return 0
        run = self._segment_bytes // RUN_SHARE
        are_small = self._run_bytes <= SMALL_BATCH_BYTES * self._run_batches
        self._run_end = end + run
        self._run_bytes = self._run_batches = 0
        return max(0, min(run, head.allocated - end)) if are_small else 0

    # -- space -------------------------------------------------------------------------------------

    def places(self) -> Mapping[int, int]:
        return self._settled

    def read(self, place: int) -> Iterator[Any]:
        return self._sealed[place].facts()

    def durable(self) -> Mapping[int, int]:
        number, end = self._durable
        is_there = number in self._sealed or (
            self._head is not None and self._head.number == number
        )
        return (
            self._settled
            if number in self._settled or not is_there
            else {**self._settled, number: end}
        )

    def scan(self, mark: BatchPlace, encoded: bool = False) -> Iterator[Sequence[Any]]:
        segment = self._sealed.get(mark.place)
        if segment is None:  # given back: its reader finds no facts, and treats this as damage
            return
        end = mark.offset
        try:
            for frame in walk(
                segment.view[: segment.end], mark.offset, segment.head.salt, mark.sequence
            ):
                end = frame.end
                yield (
                    decode_log_batch(frame) if encoded else decode_batch(frame, segment.view).facts
                )
            end = segment.end
        finally:
            self._disk.looked_at(segment.view, end - mark.offset)

    def examination(self, place: int) -> SegmentExamination | None:
        end = self.durable().get(place)
        segment = self._sealed.get(place, self._head)
        return (
            None
            if end is None or segment is None
            else SegmentExamination(self._disk, segment.path, segment.head, end)
        )

    def repair(self, place: int, stands: bool) -> PlaceRepair | None:
        ends = self.durable()
        if place not in ends:
            return None
        segments = {**self._sealed, **({self._head.number: self._head} if self._head else {})}
        places = [
            PlaceFile(number, segments[number].path, segments[number].head, ends[number])
            for number in sorted(ends)
        ]
        index = sorted(ends).index(place)
        return PlaceRepair(self._disk, self._owner, places, index, stands)

    @property
    def has_discarded(self) -> bool:
        return bool(self._discarded)

    def renew(self, place: int) -> None:
        segment = self._sealed.get(place)
        if segment is None:
            return
        descriptor = self._disk.open(segment.path)
        try:
            segment.view = self._disk.map(descriptor, segment.end)
        finally:
            self._disk.close(descriptor)

    def seal(self, place: int, room: int = 0) -> bool:
        if self._head is None or self._head.number != place:
            return True
        least = room + self._discards_bytes + BATCH_FRAME_BYTES_MAX + _LEFT_FOR_DISCARDING_BYTES
        whole = least + (self._left[Use.DATA] if room else 0)
        return bool(
            self._begin(whole)
            or (
                least <= self._spare_bytes
                and self._give_spare()
                and (self._begin(whole) or self._begin(least))
            )
        )

    def discard(self, place: int) -> None:
        del self._sealed[place], self._settled[place]
        self._discards.append(place)

    @property
    def _discards_bytes(self) -> int:
        """Return the most bytes of the numbers of places that the next batch discards."""
        return PLACE_NUMBER_BYTES * len(self._discards)

    @property
    def bytes_on_disk(self) -> int:
        return (
            self._spare_bytes
            + sum(segment.end for segment in self._sealed.values())
            + (self._head.allocated if self._head is not None else 0)
        )

    @property
    def free_bytes(self) -> int:
        return self._disk.free_bytes(self._directory)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._background.close()
            if self._head is not None:
                self._disk.close(self._head.descriptor)
            else:
                with contextlib.suppress(OSError):
                    self._give_spare()  # a journal without room to begin takes none
            self._anchor.close()


def open_journal(
    directory: Path,
    owner: Owner,
    segment_bytes: int | None = None,
    disk: Disk | None = None,
    reserves: Reserves | None = None,
) -> SegmentJournal:
    """Return the journal of a server, to be recovered.

    Call this on the server's event loop, with the directory held (ares/cluster/home.py).
    ``segment_bytes``: SEGMENT_BYTES unless the file system is too small: the room kept free would
    be most of it. ``reserves``: :func:`reserves_of` the segments, by default.

    The switch interval is set for the thread: it gets the interpreter between two waits for the
    disk sooner than after Python's 5 ms. The limit of descriptors is raised because every mapped
    segment takes a descriptor.
    """
    sys.setswitchinterval(SWITCH_S)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    fitting = max(
        SEGMENT_BYTES_MIN, min(SEGMENT_BYTES, share_of_file_system(directory, SEGMENTS_MIN))
    )
    background = InlineWriter(
        WriterThread(),
        asyncio.get_running_loop().call_soon,
        time.perf_counter,
        ProcessorWaits(),
        ProcessorWaits(),
    )
    return SegmentJournal(directory, owner, background, disk, segment_bytes or fitting, reserves)
