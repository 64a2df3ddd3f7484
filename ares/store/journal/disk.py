"""What a journal asks of the operating system; the only place where its files are touched. A test puts a model of a disk in its place."""

import contextlib
import errno
import mmap
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ares.machine import trusted_files
from ares.machine.metrics import DISK_S, Histogram

BUFFERS_MAX = 512
"""Given to one system call; Linux takes 1024."""

BLOCK_BYTES = 4096

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that say: no room, and nothing else is wrong."""


class UnlessFull:
    """A ``with`` block of this ends, without an error, where the disk has no room."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        return isinstance(error, OSError) and error.errno in FULL


def share_of_file_system(directory: Path, share: int) -> int:
    """The size of the file system that ``directory`` is on, or will be made on, divided by ``share``. Raises OSError."""
    whole = os.statvfs(
        next(place for place in (directory, *directory.absolute().parents) if place.exists())
    )
    return whole.f_blocks * whole.f_frsize // share


class Disk:
    """Files by descriptor. Every method raises OSError."""

    def free_bytes(self, directory: Path) -> int:
        """Room on its file system for who is not root; -1: it does not say."""
        with contextlib.suppress(OSError):
            room = os.statvfs(directory)
            return room.f_bavail * room.f_frsize
        return -1

    def salt(self) -> int:
        """64 bits that nobody could guess."""
        return secrets.randbits(64)

    def create(self, path: Path, size: int) -> int:
        """A new file that reads as ``size`` zeros and takes no room yet."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    @contextlib.contextmanager
    def creating(self, path: Path, size: int) -> Iterator[int]:
        """As :meth:`create`, for a ``with`` block; if that raises OSError, the file is closed and removed."""
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
        """Take room for these bytes, so that writing them cannot fail for lack of it."""
        os.posix_fallocate(descriptor, start, end - start)

    def read(self, descriptor: int, size: int) -> bytes:
        """The first ``size`` bytes; also of room never written to, which must not be read through a map: a full tmpfs has no page for it."""
        pieces: list[bytes] = []
        while (done := sum(map(len, pieces))) < size and (
            piece := os.pread(descriptor, size - done, done)
        ):
            pieces.append(piece)
        return b"".join(pieces)

    def open_past_cache(self, path: Path) -> int:
        """Open a file for :meth:`read_into`, which reads the disk and not the page cache, where the file system allows that."""
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset`` on; returns how many bytes there were. Offset, memory and size are multiples of BLOCK_BYTES."""
        return os.preadv(descriptor, [buffer], offset)

    def map(self, descriptor: int, size: int) -> memoryview:
        """The file's first ``size`` bytes, read only; sees what is written."""
        return memoryview(mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ))

    def expect_scan(self, view: memoryview, scanning: bool) -> None:
        """``scanning``: only some bytes here and there of the map will be read, so the system should read nothing ahead."""
        if isinstance(view.obj, mmap.mmap):
            view.obj.madvise(mmap.MADV_RANDOM if scanning else mmap.MADV_NORMAL)

    def let_go(self, view: memoryview) -> None:
        """What was read of the map counts as memory of the process no longer; it is read again when it is looked at."""
        if isinstance(view.obj, mmap.mmap):
            view.obj.madvise(mmap.MADV_DONTNEED)

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
        """Remove a file; one that is gone already is no error."""
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        """Return the names in ``directory``; none if it is missing."""
        return os.listdir(directory) if directory.exists() else []

    def make_directory(self, directory: Path) -> None:
        """With its missing parents, each entry synced."""
        trusted_files.make_directory(directory)

    def sync_directory(self, directory: Path) -> None:
        trusted_files.sync(directory)


class TimedDisk(Disk):
    """A disk that counts, for those who watch the process, how long each call to fdatasync took: ``syncs``."""

    def __init__(self) -> None:
        self.syncs = Histogram(DISK_S)

    def sync(self, descriptor: int) -> None:
        begin_s = time.perf_counter()
        super().sync(descriptor)
        self.syncs.add(time.perf_counter() - begin_s)
