"""Opening a journal after its process ended, however that happened.

Segments but the last were durable before the last one began, so anything that is missing or broken there is damage. The last one is cut where its
unfinished batches break (ares/runtime/journal_format.py, kept_of_torn), and what is kept of it is durable before anybody is shown it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ares.errors import BadInput, StoreDamaged
from ares.runtime.journal_disk import FULL, Disk
from ares.runtime.journal_format import PREFIX_BYTES, Batch, Damage, decode_batch, encode_mark, kept_of_torn
from ares.runtime.journal_segments import NEW_SUFFIX, SUFFIX, Owner, Segment, open_segment
from ares.server.facts import Fact

_NAME = re.compile(r"[0-9]{8,}" + re.escape(SUFFIX))


class Recovery:
    """After :meth:`facts` ended: ``sealed`` segments by number, the ``last`` one, and the number of the ``next`` batch."""

    def __init__(self, disk: Disk, directory: Path, owner: Owner, segment_bytes: int) -> None:
        self.sealed: dict[int, Segment] = {}
        self.last: Segment | None = None
        self.next = 1
        self._disk = disk
        self._directory = directory
        self._owner = owner
        self._segment_bytes = segment_bytes
        self._discarded: set[int] = set()

    def facts(self) -> Iterator[tuple[int, Sequence[Fact]]]:
        """Everything, with the number of its segment. Raises :class:`StoreDamaged`, :class:`ares.errors.ForeignStore` or :class:`BadInput`."""
        try:
            yield from self._facts()
        except OSError as error:
            raise BadInput(f"the store {self._directory} cannot be opened: {error.strerror} ({error.filename}); nothing was lost") from error

    def _facts(self) -> Iterator[tuple[int, Sequence[Fact]]]:
        paths = self._paths()
        if not paths:
            return
        last = self.last = open_segment(self._disk, paths[max(paths)], self._owner, self._segment_bytes)
        ends = dict(last.head.earlier)
        for number in sorted(ends.keys() & paths.keys()):
            segment = self.sealed[number] = open_segment(self._disk, paths[number], self._owner)
            self._disk.close(segment.descriptor)
            segment.end = ends[number]
            for batch in segment.batches():
                yield number, self._noted(batch)
            self._disk.expect_scan(segment.view, False)
        for batch in self._torn(last):
            yield last.number, self._noted(batch)
        missing = ends.keys() - paths.keys() - self._discarded
        if missing:
            raise StoreDamaged(self._directory, f"segments {', '.join(map(str, sorted(missing)))} are missing")
        for number in sorted((paths.keys() - ends.keys() - {last.number}) | (paths.keys() & self._discarded)):
            self.sealed.pop(number, None)
            self._disk.unlink(paths[number])

    def _paths(self) -> dict[int, Path]:
        self._disk.make_directory(self._directory)
        names = self._disk.names(self._directory)
        for name in names:
            if name.endswith(NEW_SUFFIX):
                self._disk.unlink(self._directory / name)
        return {int(name.removesuffix(SUFFIX)): self._directory / name for name in names if _NAME.fullmatch(name)}

    def _torn(self, last: Segment) -> list[Batch]:
        try:
            written = memoryview(self._disk.read(last.descriptor, last.size))
            frames, sure, last.end = kept_of_torn(written, last.start, last.head.salt, last.head.first)
            batches = [decode_batch(frame, last.view) for frame in frames]
        except Damage as damage:
            raise StoreDamaged(last.path, str(damage)) from damage
        self._disk.expect_scan(last.view, False)
        self.next = last.head.first + len(frames)
        last.taken = last.allocated = last.end
        self._disk.truncate(last.descriptor, last.end)
        # Again, for it may be a failed sync after which the process ended: what is read then need not be on the disk, and no sync would put it there.
        self._disk.write(last.descriptor, [written[sure : last.end]], sure)
        self._disk.truncate(last.descriptor, last.size)  # zeros behind the end: what was cut must not be taken for batches another time
        self._disk.sync(last.descriptor)
        self._disk.sync_directory(self._directory)
        if frames:
            self._mark(last)
        return batches

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
