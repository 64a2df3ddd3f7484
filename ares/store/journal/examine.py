"""The verification of a segment on the disk: every frame, and every element's seal.

A restart reads the metadata of all segments and refuses a store with broken metadata; a running
server reads no metadata and, unless asked, no data, hence rot would stay unnoticed. This module
reads all bytes, past the page cache where the file system allows that, into memory of its own: a
view of a mapped file ends the process where the disk cannot read.
"""

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from xxhash import xxh3_64

from ares.model.element import intact, is_hollow, seal_seed
from ares.model.messages import PutData
from ares.store.journal.disk import DISK_BLOCK_BYTES, Disk
from ares.store.journal.format import (
    ALIGNMENT,
    BATCH_MAGIC,
    BATCH_PREFIX_BYTES,
    LOOKED_AT_SHARE,
    Damage,
    Frame,
    Head,
    decode_body,
    detached,
    encode_head,
    metadata_bytes,
    parse_frame,
)
from ares.store.port import ExaminationResult, Key

EXAMINE_WINDOW_BYTES = 1024 * 1024
"""Bytes read at a time."""

Pace = Callable[[int], None]


class Windows:
    """A file's first ``end`` bytes, a window at a time.

    ``failed``: the disk could not read some block. ``read_bytes``: bytes read so far.
    """

    def __init__(self, disk: Disk, descriptor: int, end: int, pace: Pace) -> None:
        self.failed = False
        self.read_bytes = 0
        self._disk = disk
        self._descriptor = descriptor
        self._end = end
        self._pace = pace
        # aligned, as reads past the cache require
        self._memory = memoryview(mmap.mmap(-1, EXAMINE_WINDOW_BYTES))
        self._start = -1
        self._filled = 0
        self._bad: set[int] = set()

    def view(self, at: int, size: int) -> memoryview:
        """Return some of the bytes at ``at``, valid until the next call; empty at the file's end.

        Raises OSError where the disk cannot read.
        """
        start = at - at % EXAMINE_WINDOW_BYTES
        if start != self._start:
            self._fill(start)
        begin, end = at - start, min(at - start + size, self._filled)
        for block in sorted(self._bad):
            if block * DISK_BLOCK_BYTES <= begin < (block + 1) * DISK_BLOCK_BYTES:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if block * DISK_BLOCK_BYTES > begin:
                end = min(end, block * DISK_BLOCK_BYTES)
                break
        return self._memory[begin : max(begin, end)]

    def read(self, at: int, size: int) -> bytes:
        """Return all of the bytes, or fewer at the end of the file.

        Raises OSError where the disk cannot read.
        """
        pieces: list[bytes] = []
        while size and (piece := bytes(self.view(at, size))):
            pieces.append(piece)
            at, size = at + len(piece), size - len(piece)
        return b"".join(pieces)

    def _fill(self, start: int) -> None:
        needed = min(EXAMINE_WINDOW_BYTES, self._end - start)
        self._pace(needed)
        self.read_bytes += needed
        self._start, self._filled, self._bad = start, 0, set()
        size = -(-needed // DISK_BLOCK_BYTES) * DISK_BLOCK_BYTES
        try:
            self._filled = self._disk.read_into(self._descriptor, self._memory[:size], start)
        except OSError:
            self.failed = True
            for offset in range(0, size, DISK_BLOCK_BYTES):
                try:
                    read = self._disk.read_into(
                        self._descriptor,
                        self._memory[offset : offset + DISK_BLOCK_BYTES],
                        start + offset,
                    )
                except OSError:
                    self._bad.add(offset // DISK_BLOCK_BYTES)
                    read = DISK_BLOCK_BYTES
                if read:
                    self._filled = offset + read


class IntactBatches:
    """The intact batches of a segment that began with ``head``, up to byte ``end``.

    The search goes from frame to frame, and after a broken frame on to the next intact frame.
    ``gave_up``: the search ended early, and may have passed over intact batches.
    """

    def __init__(self, windows: Windows, head: Head, end: int) -> None:
        self._windows = windows
        self._head = head
        self._end = end
        self._looked_at = 0
        self.gave_up = False

    def __iter__(self) -> Iterator[tuple[int, Frame]]:
        """Yield the position of each batch, and the batch as if the segment began with it."""
        at = sum(map(len, encode_head(self._head)))
        while at < self._end:
            frame = self._frame(at)
            if frame is None or frame.magic != BATCH_MAGIC:
                at = self._search(at + ALIGNMENT)
            else:
                yield at, frame
                at += frame.end

    def _frame(self, at: int) -> Frame | None:
        """Return the frame at ``at``, as if the segment began with it."""
        try:
            prefix = self._windows.read(at, BATCH_PREFIX_BYTES)
            size = metadata_bytes(prefix) if len(prefix) == BATCH_PREFIX_BYTES else self._end
            if at + size > self._end:
                return None
            self._looked_at += size
            return parse_frame(
                memoryview(self._windows.read(at, size)), 0, self._head.salt, self._end - at
            )
        except OSError:
            return None

    def _search(self, at: int) -> int:
        """Return the position of the next batch, or the end without a further batch.

        The search also ends when a client's data looks like more frames than can exist.
        """
        while at < self._end and self._may_search():
            try:
                piece = bytes(self._windows.view(at, self._end - at))
            except OSError:
                at = (at // DISK_BLOCK_BYTES + 1) * DISK_BLOCK_BYTES
                continue
            found = piece.find(BATCH_MAGIC)
            while found != -1 and self._may_search():
                if (at + found) % ALIGNMENT == 0 and self._frame(at + found) is not None:
                    return at + found
                found = piece.find(BATCH_MAGIC, found + 1)
            at += len(piece) or self._end
        self.gave_up = not self._may_search()
        return self._end

    def _may_search(self) -> bool:
        return self._looked_at + self._windows.read_bytes < LOOKED_AT_SHARE * self._end


class SegmentExamination:
    """:class:`ares.store.port.Examination` of the segment at ``path``, up to byte ``end``.

    The segment began with ``head``. The examination goes on after a broken frame: the verdict must
    cover as many elements as possible.
    """

    def __init__(self, disk: Disk, path: Path, head: Head, end: int) -> None:
        self._disk = disk
        self._path = path
        self._head = head
        self._end = end
        self._whole = False
        self._damaged: dict[Key, None] = {}
        self._readable: set[Key] = set()

    def run(self, pace: Pace) -> ExaminationResult:
        try:
            descriptor = self._disk.open_past_cache(self._path)
        except FileNotFoundError:
            return ExaminationResult(False)
        try:
            self._windows = Windows(self._disk, descriptor, self._end, pace)
            return self._verdict()
        finally:
            self._disk.close(descriptor)

    def _verdict(self) -> ExaminationResult:
        head = b"".join(encode_head(self._head))
        end, sequence = len(head), self._head.first
        with contextlib.suppress(OSError):
            self._whole = self._windows.read(0, end) == head
        for at, frame in IntactBatches(self._windows, self._head, self._end):
            self._whole = self._whole and (at, frame.sequence) == (end, sequence)
            self._look(frame, at)
            end, sequence = at + frame.end, frame.sequence + 1
        self._whole = self._whole and end == self._end
        readable = frozenset(self._readable) if self._windows.failed else None
        return ExaminationResult(self._whole and not self._damaged, tuple(self._damaged), readable)

    def _look(self, frame: Frame, at: int) -> None:
        try:
            for fact in decode_body(frame).facts:
                if isinstance(fact, PutData) and not self._is_intact(fact, frame, at):
                    self._damaged[fact.configuration, fact.object, fact.tag] = None
        except Damage:
            self._whole = False

    def _is_intact(self, put: PutData, frame: Frame, at: int) -> bool:
        """Return whether the element is as sealed; an element hollow when written is as written."""
        element, key = put.element, (put.configuration, put.object, put.tag)
        if element.frame == -1:
            return is_hollow(element) or intact(*key, element)
        digest = xxh3_64(seed=seal_seed(*key, element.index, element.length))
        try:
            for begin, end in detached(frame, put):
                while begin < end:
                    piece = self._windows.view(at + begin, end - begin)
                    if not piece:
                        return False
                    digest.update(piece)
                    begin += len(piece)
        except OSError:
            self._readable.discard(key)
            return False
        self._readable.add(key)
        return digest.intdigest() == element.checksum
