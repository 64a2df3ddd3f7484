"""Opening a journal after its process ended, however that happened.

Segments but the last were durable before the last one began, so anything that is missing or broken there is damage. The last one is cut where its
unfinished batches break (ares/store/journal/format.py, kept_of_torn), and what is kept of it is durable before anybody is shown it. Which segment
was the last, its anchor says (ares/store/journal/anchor.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ares.model.errors import BadInput, StoreDamaged
from ares.replica.facts import Fact
from ares.store.journal.anchor import Anchor
from ares.store.journal.disk import FULL, Disk
from ares.store.journal.format import PREFIX_BYTES, Batch, Damage, decode_batch, encode_mark, kept_of_torn
from ares.store.journal.segments import NEW_SUFFIX, SUFFIX, Owner, Segment, open_segment

_NAME = re.compile(r"[0-9]{8,}" + re.escape(SUFFIX))


class Recovery:
    """After :meth:`facts` ended: ``sealed`` segments by number, the ``last`` one, and the number of the ``next`` batch."""

    def __init__(self, disk: Disk, directory: Path, owner: Owner, segment_bytes: int, anchor: Anchor) -> None:
        self.sealed: dict[int, Segment] = {}
        self.last: Segment | None = None
        self.next = 1
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self._segment_bytes = segment_bytes
        self._anchor = anchor
        self._discarded: set[int] = set()

    def facts(self) -> Iterator[tuple[int, Sequence[Fact]]]:
        """Everything, with the number of its segment. Raises :class:`StoreDamaged`, :class:`ares.model.errors.ForeignStore` or :class:`BadInput`."""
        try:
            yield from self._facts()
        except OSError as error:
            raise BadInput(f"the store {self._directory} cannot be opened: {error.strerror} ({error.filename}); nothing was lost") from error

    def _facts(self) -> Iterator[tuple[int, Sequence[Fact]]]:
        self._disk.make_directory(self._directory)
        names = self._disk.names(self._directory)
        paths = {int(name.removesuffix(SUFFIX)): self._directory / name for name in names if _NAME.fullmatch(name)}
        had = self._anchored_bytes(max(paths, default=0))
        if paths:
            yield from self._segments(paths, had)
        for name in names:
            if name.endswith(NEW_SUFFIX):
                self._disk.unlink(self._directory / name)
        if self._anchor.hold() and self.last is not None:
            # Also if that is what it says: a sync of it may have failed, after which it reads as it was written and is not on the disk.
            self._anchor.write(self.last.number, self.last.size)

    def _anchored_bytes(self, newest: int) -> int:
        """How long segment ``newest`` was for certain. Raises :class:`StoreDamaged` when there was a newer one."""
        anchored = self._anchor.read()
        if anchored is None or newest > anchored.number:
            return 0
        if newest < anchored.number:
            gone = f"segment {anchored.number}" if newest == anchored.number - 1 else f"segments up to {anchored.number}"
            left = f"{newest} is the newest that is there" if newest else "none is there"
            raise StoreDamaged(self._directory, f"{gone} had begun, says {self._anchor.path}, and {left}")
        return anchored.bytes

    def _segments(self, paths: Mapping[int, Path], had: int) -> Iterator[tuple[int, Sequence[Fact]]]:
        last = self.last = open_segment(self._disk, paths[max(paths)], self._owner, self._segment_bytes, had)
        ends = dict(last.head.earlier)
        for number in sorted(ends.keys() & paths.keys()):
            segment = self.sealed[number] = open_segment(self._disk, paths[number], self._owner)
            self._disk.close(segment.descriptor)
            segment.end = ends[number]
            for batch in segment.batches():
                yield number, self._noted(batch)
            self._disk.expect_scan(segment.view, False)
        written, sure, batches = self._torn(last)
        for batch in batches:
            yield last.number, self._noted(batch)
        missing = ends.keys() - paths.keys() - self._discarded
        if missing:
            are = f"segment {min(missing)} is" if len(missing) == 1 else f"segments {', '.join(map(str, sorted(missing)))} are"
            raise StoreDamaged(self._directory, f"{are} missing")
        self._settle(last, written, sure)
        for number in sorted((paths.keys() - ends.keys() - {last.number}) | (paths.keys() & self._discarded)):
            self.sealed.pop(number, None)
            self._disk.unlink(paths[number])

    def _torn(self, last: Segment) -> tuple[memoryview, int, list[Batch]]:
        """What is there, up to where it was durable for certain, and the batches to keep."""
        try:
            written = memoryview(self._disk.read(last.descriptor, last.size))
            frames, sure, last.end = kept_of_torn(written, last.start, last.head.salt, last.head.first)
            batches = [decode_batch(frame, last.view) for frame in frames]
        except Damage as damage:
            raise StoreDamaged(last.path, str(damage)) from damage
        self._disk.expect_scan(last.view, False)
        self.next = last.head.first + len(frames)
        last.taken = last.allocated = last.end
        return written, sure, batches

    def _settle(self, last: Segment, written: memoryview, sure: int) -> None:
        """Make durable what is kept, and that nothing follows it."""
        # Again, for it may be a failed sync after which the process ended: what is read then need not be on the disk, and no sync would put it there.
        # Zeros behind: what was cut must not be taken for batches another time. The file is never made shorter: its anchor tells how long it was.
        cut = bytes(len(bytes(written[last.end :]).rstrip(b"\0")))
        self._disk.write(last.descriptor, [written[sure : last.end], cut], sure)
        self._disk.sync(last.descriptor)
        self._disk.sync_directory(self._directory)
        if self.next > last.head.first:
            self._mark(last)

    def _mark(self, last: Segment) -> None:
        """Say again behind the last batch that it is durable: the mark was cut off, and without one damage there would pass for a torn write."""
        buffers = encode_mark(self.next - 1, last.head.salt)
        try:
            if last.end + PREFIX_BYTES <= last.size:
                self._disk.write(last.descriptor, buffers, last.end)
                self._disk.sync(last.descriptor)
        except OSError as error:
            if error.errno not in FULL:
                raise

    def _noted(self, batch: Batch) -> Sequence[Fact]:
        self._discarded.update(batch.discarded)
        return batch.facts
