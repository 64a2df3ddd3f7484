"""The only module that touches a journal's files, through the operating system.

A test puts a model of a disk in place of this module's class.
"""

import contextlib
import errno
import mmap
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from weakref import WeakSet

from ares.metrics import DISK_S_BUCKETS, Histogram
from ares.platform import trusted_files

BUFFERS_MAX = 512
"""Most buffers in a system call; Linux takes 1024."""

DISK_BLOCK_BYTES = 4096

LOOK_BYTES, LOOKED_AT_BYTES_MAX = 64 * 1024, 16 * 1024 * 1024
"""Bytes of a map that a look may bring into memory, and most bytes that stay there."""

NO_ROOM_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors with the meaning: no room, and no other fault."""


class UnlessFull:
    """A ``with`` block which ends without an error where the disk has no room."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        return isinstance(error, OSError) and error.errno in NO_ROOM_ERRORS


def share_of_file_system(directory: Path, share: int) -> int:
    """Return the size of the file system of ``directory`` divided by ``share``.

    ``directory`` may be made later. Raises OSError.
    """
    whole = os.statvfs(
        next(place for place in (directory, *directory.absolute().parents) if place.exists())
    )
    return whole.f_blocks * whole.f_frsize // share


class Disk:
    """Files by descriptor. Every method raises OSError."""

    def __init__(self) -> None:
        self._looked_at: WeakSet[mmap.mmap] = WeakSet()
        self._looked_at_bytes = 0

    def free_bytes(self, directory: Path) -> int:
        """Return the room on its file system for processes without root's rights; -1: unknown."""
        with contextlib.suppress(OSError):
            room = os.statvfs(directory)
            return room.f_bavail * room.f_frsize
        return -1

    def salt(self) -> int:
        """Return 64 unguessable bits."""
        return secrets.randbits(64)

    def create(self, path: Path, size: int) -> int:
        """Create a file that reads as ``size`` zeros and takes no room yet."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def creating(self, path: Path, size: int) -> Iterator[int]:
        """Run :meth:`create` for a ``with`` block; on OSError, close and remove the file."""
        try:
            descriptor = self.create(path, size)
            try:
                yield descriptor
            except OSError:
                self.close(descriptor)
                raise
        except OSError:
            self.unlink(path)
            raise

    def open(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(
                errno.EINVAL, "it is a pipe or a device, and a file was expected", str(path)
            )
        return descriptor

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def allocate(self, descriptor: int, start: int, end: int) -> None:
        """Take room for these bytes: a later write cannot fail for lack of room."""
        os.posix_fallocate(descriptor, start, end - start)

    def read(self, descriptor: int, size: int) -> bytes:
        """Return the first ``size`` bytes, unwritten room included.

        Unwritten room must not be read through a map: a full tmpfs has no page for it.
        """
        pieces: list[bytes] = []
        while (done := sum(map(len, pieces))) < size and (
            piece := os.pread(descriptor, size - done, done)
        ):
            pieces.append(piece)
        return b"".join(pieces)

    def open_past_cache(self, path: Path) -> int:
        """Open a file for :meth:`read_into`, past the page cache where possible."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset`` on; return the number of bytes read.

        Offset, memory and size are multiples of DISK_BLOCK_BYTES.
        """
        return os.preadv(descriptor, [buffer], offset)

    def map(self, descriptor: int, size: int) -> memoryview:
        """Map the file's first ``size`` bytes, read only; the map shows later writes."""
        return memoryview(mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ))

    def expect_scan(self, view: memoryview, scanning: bool) -> None:
        """Tell the system whether only scattered bytes of the map will be read (``scanning``).

        With ``scanning`` the system reads nothing ahead.
        """
        if isinstance(view.obj, mmap.mmap):
            view.obj.madvise(mmap.MADV_RANDOM if scanning else mmap.MADV_NORMAL)

    def read_ahead(self, view: memoryview, start: int, end: int) -> None:
        """Begin to read these bytes of the map, without waiting for them."""
        if isinstance(view.obj, mmap.mmap):
            start -= start % mmap.PAGESIZE
            view.obj.madvise(mmap.MADV_WILLNEED, start, end - start)

    def let_go(self, view: memoryview) -> None:
        """Release the map's pages from the process's memory; a later access reads them again."""
        if isinstance(view.obj, mmap.mmap):
            view.obj.madvise(mmap.MADV_DONTNEED)

    def looked_at(self, view: memoryview, bytes: int) -> None:
        """Release the pages of all maps after looks at LOOKED_AT_BYTES_MAX.

        To release the pages after each look takes as long as a short look.
        """
        if isinstance(view.obj, mmap.mmap):
            self._looked_at.add(view.obj)
            self._looked_at_bytes += max(bytes, LOOK_BYTES)
            if self._looked_at_bytes > LOOKED_AT_BYTES_MAX:
                for map in self._looked_at:
                    map.madvise(mmap.MADV_DONTNEED)
                self._looked_at.clear()
                self._looked_at_bytes = 0

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        if len(buffers) == 1 and os.pwrite(descriptor, buffers[0], offset) == len(buffers[0]):
            return
        waiting = [memoryview(buffer) for buffer in buffers if len(buffer)]
        first = 0
        while first < len(waiting):
            written = os.pwritev(descriptor, waiting[first : first + BUFFERS_MAX], offset)
            offset += written
            while first < len(waiting) and written >= len(waiting[first]):
                written -= len(waiting[first])
                first += 1
            if written:
                waiting[first] = waiting[first][written:]

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file; a missing file is no error."""
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        """Return the names in ``directory``; none if it is missing."""
        return os.listdir(directory) if directory.exists() else []

    def make_directory(self, directory: Path) -> None:
        """Make a directory with its missing parents, each entry synced."""
        trusted_files.make_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        trusted_files.sync(directory)


class TimedDisk(Disk):
    """A disk with a histogram, ``syncs``, of the time of each call to fdatasync."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = Histogram(DISK_S_BUCKETS)

    def sync(self, descriptor: int) -> None:
        begin_s = time.perf_counter()
        super().sync(descriptor)
        self.syncs.add(time.perf_counter() - begin_s)
