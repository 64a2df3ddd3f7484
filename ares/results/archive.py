"""Runs in one file: an archive (tar, gzip) of the files which an import reads.

Equal directories give equal archives: members are sorted, and have neither times nor owners. An
archive comes from a stranger: it is unpacked with bounds into a temporary directory, and files of
runs only. A link, a path outside, or damage refuses the whole archive.
"""

import errno
import gzip
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from ares.model.errors import BadInput
from ares.platform.replacement import Replacement
from ares.results.importing import Flaws, Progress, find_runs, is_of_a_run, with_logs
from ares.results.log_file import open_log
from ares.results.run_description import PathNames, shown_path

ARCHIVE_FILES_MAX = 100_000
ARCHIVE_BYTES_MAX = 16 << 30
"""Bytes of an archive's files together, unpacked."""

ARCHIVE_NAME_BYTES_MAX = 1024
ARCHIVE_HEADER_BYTES_MAX = 1 << 20
"""Most bytes that tarfile may read at once: it takes a whole header into memory."""

_GZIP_LEVEL = 6
_SKIPPED_PIECE_BYTES = 1 << 16
_BLOCK_BYTES = tarfile.BLOCKSIZE
_BAD_PLACE = (
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL),
    errno.ENOENT,
)
"""Errors of a member's name, and not of the machine."""


class ArchiveReport(Struct):
    """The content of a new archive: its runs, files and their bytes, and the archive's size."""

    runs: int
    files: int
    bytes: int
    size: int


# -- packing ---------------------------------------------------------------------------------------


def pack_runs(directory: Path, archive: Path, progress: Progress) -> ArchiveReport:
    """Write a new archive of the runs in ``directory``, wholly or not at all.

    Raises :class:`BadInput` if the file exists, a file of a run cannot be read, or the archive
    would be refused by :func:`unpacked`.
    """
    [top] = with_logs([directory])
    runs, files = _files_of_runs(top)
    total = sum(size for _, _, size in files)
    if os.path.lexists(archive):
        raise _exists(archive)
    new, done = Replacement(archive), 0
    try:
        with (
            open(new.descriptor, "wb", closefd=False) as raw,
            gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0) as stream,
            tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for name, path, _ in files:
                done += _pack(tar, name, path)
                progress(done, total, shown_path(path.parent.name))
        size = os.fstat(new.descriptor).st_size
        try:
            new.finish(only_new=True)
        except FileExistsError:
            raise _exists(archive) from None
    finally:
        new.discard()
    return ArchiveReport(runs, len(files), done, size)


def _exists(archive: Path) -> BadInput:
    return BadInput(
        f"{shown_path(archive)} exists, and was not changed: name a new file, or remove it"
    )


def _files_of_runs(top: Path) -> tuple[int, list[tuple[str, Path, int]]]:
    """Return the number of runs, and name, path and size of each file, in order of names."""
    flaws = Flaws()
    runs = list(find_runs([top], flaws))
    if flaws.first:
        path, _, why = flaws.first[0]
        raise BadInput(f"{path} cannot be packed: {why}; nothing was written")
    files = sorted(
        (os.path.join(top.name, (run.path / name).relative_to(top)), run.path / name, size)
        for run in runs
        for name, size in run.sizes.items()
    )
    if why := _too_much(len(files), sum(size for _, _, size in files)):
        raise BadInput(f"{shown_path(top)} has {why}: pack its directories apart")
    if name := next((name for name, _, _ in files if _is_bad_name(name)), ""):
        raise BadInput(f"{shown_path(name)} is no name for a file of an archive: rename it")
    return len(runs), files


def _pack(tar: tarfile.TarFile, name: str, path: Path) -> int:
    """Add the present content of a file, and return its size; a log may grow meanwhile."""
    with open_log(path) as opened:
        member = tarfile.TarInfo(name)
        member.size = os.fstat(opened.fileno()).st_size
        try:
            tar.addfile(member, opened)
        except OSError as error:
            if error.errno is not None:  # of the disk
                raise
            raise BadInput(
                f"{shown_path(path)} became shorter while it was packed; nothing was written: try "
                "again when the run has ended"
            ) from error
    return member.size


# -- unpacking -------------------------------------------------------------------------------------


@contextmanager
def unpacked(paths: Iterable[Path], progress: Progress) -> Iterator[tuple[list[Path], PathNames]]:
    """Unpack the archives among ``paths`` for a while.

    Yields directories to import, and their names. Raises :class:`BadInput` for an unusable archive.
    """
    directories: list[Path] = []
    names = PathNames()
    with tempfile.TemporaryDirectory(prefix="ares-results-") as top:
        for number, path in enumerate(paths):
            if not path.is_file():
                directories.append(path)
                continue
            into = Path(top).resolve() / str(number) / path.name.removesuffix(".tar.gz")
            into.mkdir(parents=True)
            unpack_runs(path, into, progress)
            names.unpacked[shown_path(into)] = shown_path(path.resolve())
            directories.append(into)
        yield directories, names


def unpack_runs(archive: Path, into: Path, progress: Progress) -> None:
    """Unpack the files of runs into an empty directory.

    Raises :class:`BadInput` for anything but regular files and directories below ``into``, for
    more than the bounds, and for damage anywhere in the archive.
    """
    name = shown_path(archive)
    try:
        with archive.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unzipped:
            size = os.fstat(raw.fileno()).st_size
            stream = _BoundedStream(unzipped)
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                for member in _members(tar):
                    _unpack(tar, member, into)
                    progress(raw.tell(), size, shown_path(archive.name))
            stream.end()
    except _Refused as error:
        raise BadInput(f"{name} is refused: {error}; nothing was imported") from error
    except tarfile.FilterError as error:
        raise BadInput(f"{name} is refused: {shown_path(str(error))}; nothing was imported") from (
            error
        )
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(name, error) from error
    except (ValueError, IndexError, OverflowError, RecursionError) as error:  # of odd headers
        raise _damaged(name, error) from error
    except OSError as error:
        if error.filename is None or Path(error.filename) == archive:
            raise BadInput(f"{name} cannot be read: {error.strerror or error}") from error
        if error.errno in _BAD_PLACE:
            raise BadInput(
                f"{name} is refused: a member's name cannot be a file's: {error.strerror}; nothing "
                "was imported"
            ) from error
        raise BadInput(
            f"{name} could not be unpacked in {tempfile.gettempdir()}: {error.strerror}; nothing "
            "was imported. TMPDIR names another directory"
        ) from error


def _damaged(name: str, error: Exception) -> BadInput:
    return BadInput(
        f"{name} is no archive of runs, or is damaged: {shown_path(str(error))}; nothing was "
        "imported. `ares-cli results pack` makes archives"
    )


class _Refused(Exception):
    """A refusal of an archive; the message says why."""


class _BoundedStream(io.RawIOBase):
    """Reads forward only, no more at once than a header may have, and no more in all than bounds.

    A small archive can unpack to any size, and tarfile reads a header of any size as a whole.
    """

    def __init__(self, source: BinaryIO | gzip.GzipFile) -> None:
        self._source = source
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= ARCHIVE_HEADER_BYTES_MAX:
            raise _Refused(f"a header of {size} bytes")
        piece = self._source.read(size)
        self._position += len(piece)
        if self._position > ARCHIVE_BYTES_MAX + ARCHIVE_FILES_MAX * _BLOCK_BYTES:
            raise _Refused(f"it has more than {ARCHIVE_BYTES_MAX >> 30} GiB")
        return piece

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = 0, /) -> int:
        while self._position < position and self.read(
            min(position - self._position, _SKIPPED_PIECE_BYTES)
        ):
            pass
        if whence or self._position != position:
            raise tarfile.ReadError("unexpected end of data")
        return position

    def end(self) -> None:
        """Read to the end: the checksum is there. Content behind the last member is refused.

        tarfile takes a damaged header for the end of the archive.
        """
        while piece := self.read(_SKIPPED_PIECE_BYTES):
            if piece.strip(b"\0"):
                raise tarfile.ReadError("there is content behind the end")


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the files of runs; check every member, and keep none in memory."""
    count = total = 0
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]
        if not (member.isreg() or member.isdir()) or member.issparse():
            raise _Refused(f"{shown_path(member.name)!r} is neither a plain file nor a directory")
        if _is_bad_name(member.name):
            raise _Refused(f"{shown_path(member.name)!r} is no name below a directory")
        count, total = count + 1, total + member.size
        if why := _too_much(count, total):
            raise _Refused(f"it has {why}")
        if member.isreg() and is_of_a_run(os.path.basename(member.name)):
            yield member


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    """Write a file under the rules of the `data` filter, with today's time and the usual mode.

    An import takes a file of the same inode, time and size for the file that it read before.
    """
    if os.path.lexists(into / member.name):
        raise _Refused(f"{shown_path(member.name)!r} is there twice")
    tar.extract(member, into, set_attrs=False, filter="data")


def _too_much(files: int, size: int) -> str:
    if files > ARCHIVE_FILES_MAX:
        return f"more than {ARCHIVE_FILES_MAX} files"
    if size > ARCHIVE_BYTES_MAX:
        return f"more than {ARCHIVE_BYTES_MAX >> 30} GiB"
    return ""


def _is_bad_name(name: str) -> bool:
    parts = name.split("/")
    return (
        not name
        or "\0" in name
        or parts[0] == ""
        or ".." in parts
        or len(os.fsencode(name)) > ARCHIVE_NAME_BYTES_MAX
    )
