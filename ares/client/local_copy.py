"""The local end of a transfer, bytes or a local file; and the remembered bases of local copies.

A base is the state of a file from which a local copy was made, kept from one run to the next.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from itertools import accumulate
from pathlib import Path

import msgspec
from blake3 import blake3
from msgspec import Struct

from ares.fragment.block import KnownBlock
from ares.fragment.divide import (
    FASTCDC,
    Chunk,
    Content,
    Cuts,
    Sizes,
    digest,
    divide,
    fastcdc_cuts,
)
from ares.fragment.read import FileState, Sink
from ares.model.errors import BadInput
from ares.platform.environment import CACHE_VARIABLE
from ares.platform.replacement import COPY_BYTES, Replacement, replace_file

log = logging.getLogger(__name__)

Replacing = Callable[[int], object]


def content_of_bytes(
    data: bytes | bytearray | memoryview, sizes: Sizes, cuts: Cuts = fastcdc_cuts
) -> Content:
    """Return ``data`` cut into chunks; ``data`` must not change before the write."""
    view = memoryview(data).cast("B")
    chunks = list(divide(lambda offset, count: bytes(view[offset : offset + count]), sizes, cuts))
    return Content(chunks, lambda chunk: view[chunk.offset : chunk.offset + chunk.length])


def content_of_file(file: int, name: str, sizes: Sizes, cuts: Cuts = fastcdc_cuts) -> Content:
    """Return the content of an open file (a descriptor), cut into chunks.

    Loading a chunk which has changed since raises :class:`BadInput`.
    """

    def load(chunk: Chunk) -> bytes:
        data = _read_at(file, chunk.offset, chunk.length)
        if len(data) != chunk.length or digest(data) != chunk.digest:
            raise BadInput(
                f"{name} changed while it was being put; put it again when no program writes to it"
            )
        return data

    chunks = list(divide(lambda offset, count: _read_at(file, offset, count), sizes, cuts))
    return Content(chunks, load)


def _read_at(file: int, offset: int, count: int) -> bytes:
    """Return ``count`` bytes from ``offset``, fewer only at the end."""
    data = os.pread(file, count, offset)
    while 0 < len(data) < count and (more := os.pread(file, count - len(data), offset + len(data))):
        data += more
    return data


def digest_of_file(file: int) -> bytes:
    """Return the digest of the whole content of an open file (a descriptor)."""
    whole, offset = blake3(), 0
    while data := _read_at(file, offset, COPY_BYTES):
        whole.update(data)
        offset += len(data)
    return whole.digest()


class AssemblySink(Sink):
    """A sink that assembles a file in memory from an earlier read and from the changed parts."""

    def __init__(self, before: "AssemblySink | None" = None) -> None:
        self.data = b""
        self._places: dict[KnownBlock, int] = {}
        self._old = before
        self._parts: list[KnownBlock] = []
        self._expected_bytes = self._offset = 0
        self._new: BytesIO | None = None

    def begin(self, expected_bytes: int) -> None:
        self._parts.clear()
        self._expected_bytes, self._offset, self._new = expected_bytes, 0, None

    def wanted(self, part: KnownBlock) -> bool:
        return self._old is None or part not in self._old._places

    def take(self, part: KnownBlock, data: memoryview | None) -> None:
        old, position = self._old, len(self._parts)
        as_before = (
            data is None and old is not None and old._parts[position : position + 1] == [part]
        )
        if self._new is None and not as_before:
            self._start()
        if self._new is not None:
            if data is None:
                assert old is not None, "only a part that is there can be unwanted"
                data = memoryview(old.data)[old._places[part] :][: part.length]
            self._new.write(data)
        self._parts.append(part)
        self._offset += part.length

    def _start(self) -> None:
        """Begin the new content at the first difference: make room for all of the file at once.

        The operating system fills the room with memory only as the sink writes.
        """
        try:
            self._new = BytesIO(bytes(self._expected_bytes))
        except MemoryError:  # the expected size comes from a hint, which may be out of date
            self._new = BytesIO()
        if self._old is not None:
            self._new.write(memoryview(self._old.data)[: self._offset])

    def finish(self) -> bytes:
        """Return the file: the very object of the earlier read if the file is unchanged."""
        if self._new is None and (self._old is None or self._offset < len(self._old.data)):
            self._start()
        if self._new is None:
            assert self._old is not None
            self.data, self._places = self._old.data, self._old._places
        else:
            self._new.truncate(self._offset)
            self.data = self._new.getvalue()
            self._places = dict(
                zip(
                    self._parts,
                    accumulate((part.length for part in self._parts), initial=0),
                    strict=False,
                )
            )
        self._old = self._new = None
        return self.data


class LocalCopy(Sink):
    """A sink that brings the file at ``path`` up to date, wholly or not at all.

    Parts in the present file are not wanted again. While the present file agrees, no byte is
    written. From the first difference on, the sink writes a new file in the same directory, which
    finally takes the place of the present file. Every method raises :class:`BadInput` if a file
    cannot be read or written; the present file then stays as it was. ``replacing`` is called with
    the descriptor of a present file before a different file replaces it; after an error of
    ``replacing`` the present file stays, too.
    """

    def __init__(
        self,
        path: Path,
        sizes: Sizes,
        replacing: Replacing | None = None,
        cuts: Cuts = fastcdc_cuts,
    ) -> None:
        self._path = Path(os.path.realpath(path))  # a symbolic link stays a link
        self._sizes = sizes
        self._cuts = cuts
        self._replacing = replacing
        self._old: int | None = None
        self._found: os.stat_result | None = None
        self._chunks: list[Chunk] = []
        self._places: dict[bytes, Chunk] = {}
        self._new: Replacement | None = None
        self._same = self._offset = 0

    def open(self) -> None:
        """Look at the present file."""
        with self._as_bad_input("read"):
            try:
                self._old = old = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
            except FileNotFoundError:
                return
            self._found = os.fstat(old)
            if not stat.S_ISREG(self._found.st_mode):
                raise BadInput(f"{self._path} is not a regular file; it is as it was")
            self._chunks = list(
                divide(lambda offset, count: _read_at(old, offset, count), self._sizes, self._cuts)
            )
        self._places = {chunk.digest: chunk for chunk in self._chunks}

    def begin(self, expected_bytes: int) -> None:
        self._discard()
        self._same = self._offset = 0

    def wanted(self, part: KnownBlock) -> bool:
        return part.length > 0 and part.digest not in self._places

    def take(self, part: KnownBlock, data: memoryview | None) -> None:
        if not part.length:
            return
        if (
            self._new is None
            and self._same < len(self._chunks)
            and self._chunks[self._same].digest == part.digest
        ):
            self._same += 1
            self._offset += part.length
            return
        with self._as_bad_input("written"):
            if self._new is None:
                self._start()
            assert self._new is not None
            if data is None:
                self._copy(self._new, self._places[part.digest].offset, part.length)
            else:
                self._new.write(data)

    def finish(self) -> bool:
        """Put the new file in place; return whether the file changed."""
        with self._as_bad_input("written"):
            # The parts taken from the file must be unchanged, and the replaced file must be the
            # file that was looked at.
            if _identity(_status(self._path)) != _identity(self._found):
                raise BadInput(
                    f"{self._path} was changed by another program while it was being brought up "
                    "to date, and keeps that change; try again"
                )
            if self._new is None and (
                self._old is None or self._offset < sum(chunk.length for chunk in self._chunks)
            ):
                self._start()
            if self._new is None:
                return False
            self._new.finish()
        return True

    @contextmanager
    def _as_bad_input(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BadInput(
                f"{self._path} cannot be {what}: {error.strerror}; it is as it was"
            ) from error

    def close(self) -> None:
        """Close the files and remove the temporary file; idempotent."""
        self._discard()
        if self._old is not None:
            os.close(self._old)
            self._old = None

    def _start(self) -> None:
        """Begin the new file, at the first difference, with the common beginning of both files."""
        if self._old is not None and self._replacing is not None:
            self._replacing(self._old)
        self._new = Replacement(self._path)
        self._copy(self._new, 0, self._offset)

    def _copy(self, new: Replacement, offset: int, count: int) -> None:
        while count:
            assert self._old is not None, "the unwanted part is there"
            copied = os.sendfile(new.descriptor, self._old, offset, min(count, COPY_BYTES))
            if not copied:
                raise BadInput(
                    f"{self._path} became shorter while it was being brought up to date; try "
                    "again when no program writes to it"
                )
            offset, count = offset + copied, count - copied

    def _discard(self) -> None:
        if self._new is not None:
            self._new.discard()
            self._new = None


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file, or None for an absent file."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result | None) -> tuple[int, int, int, int] | None:
    return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


REMEMBERED_FORMAT = 1
"""First byte of an entry of a file by FastCDC."""

CHUNKED_REMEMBERED_FORMAT = 2
"""First byte of an entry that names another chunking.

Releases that would ignore the name ignore such an entry.
"""

REMEMBERED_COPIES_MAX = 1000
REMEMBERED_SUFFIX = ".base"
REMEMBERED_NAME_BYTES = 16


class LocalName(Struct, frozen=True, array_like=True):
    """A local copy: ``path`` holds ``file`` of ``domain`` of the cluster with the id ``cluster``.

    ``path`` is absolute, with symbolic links followed.
    """

    cluster: bytes
    domain: str
    file: str
    path: bytes


class _Entry(Struct, frozen=True, array_like=True):
    copy: LocalName
    state: FileState
    content: bytes = b""

    @property
    def format(self) -> int:
        usual = self.state.genesis.chunking == FASTCDC
        return REMEMBERED_FORMAT if usual else CHUNKED_REMEMBERED_FORMAT


_decoder = msgspec.msgpack.Decoder(_Entry)


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """Return the directory of entries, or None if entries are not kept.

    $ARES_CACHE, else `ares` in $XDG_CACHE_HOME or ~/.cache.
    """
    named = environment.get(CACHE_VARIABLE)
    if named:
        return None if named == "off" else Path(named)
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the specification says that a relative path is ignored
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ares" if os.path.isabs(base) else None


class RememberedBases:
    """The bases of local copies: a small file for each copy in ``directory``.

    Without a directory no base is known and no base is kept.

    A write of a file has a base: the file from which *this copy* was made, by the last put of the
    copy or the last get into the copy. A change of another client since then is a conflict if the
    copy changes the same part, and is left alone if the copy does not; and a known base costs no
    look at the cluster. The base therefore belongs to the copy, and is kept by the copy's path as
    well as by the cluster, the domain and the file. Otherwise two people at the same machine, each
    with a copy of the same file, would take each other's base, and the second put would wipe out
    the first put, as if the second person had seen and deleted the first person's content. The
    content of the copy at that time is remembered by digest: only with a digest can a program know
    whether the copy was edited since.

    An entry is MessagePack behind a format byte: lengths, versions and digests of blocks, no
    content and no secrets. Every entry may be lost at any time: a put without a base replaces the
    present file. No method of this class fails: an entry that cannot be read or written is logged
    and passed over.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @property
    def keeps(self) -> bool:
        """Return whether a directory is given."""
        return self._directory is not None

    def recall(self, copy: LocalName) -> FileState | None:
        """Return the base of the copy, or None if the base is unknown."""
        entry = self._entry(copy)
        return None if entry is None else entry.state

    def content(self, copy: LocalName) -> bytes:
        """Return the digest of the copy at its last put or get; empty if unknown."""
        entry = self._entry(copy)
        return b"" if entry is None else entry.content

    def _entry(self, copy: LocalName) -> _Entry | None:
        if self._directory is None:
            return None
        path = _entry_path(self._directory, copy)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning(
                "the base of %s cannot be read, and counts as unknown: %s",
                os.fsdecode(copy.path),
                error,
            )
            return None
        try:
            entry = _decoder.decode(memoryview(data)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            entry = None
        if entry is None or entry.copy != copy or data[0] != entry.format:
            log.warning(
                "%s is not an entry of this release and is ignored: the base of %s counts as "
                "unknown",
                path,
                os.fsdecode(copy.path),
            )
            return None
        return entry

    def remember(self, copy: LocalName, state: FileState, content: bytes = b"") -> None:
        """Keep the base of the copy and the digest of ``content``, wholly or not at all.

        If entries are too many, the oldest entries go.
        """
        if self._directory is None:
            return
        entry = _Entry(
            copy,
            msgspec.structs.replace(
                state, genesis=msgspec.structs.replace(state.genesis, parts=())
            ),
            content,
        )
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(
                _entry_path(self._directory, copy),
                bytes([entry.format]) + msgspec.msgpack.encode(entry),
                0o600,
            )
            paths = list(self._directory.glob(f"*{REMEMBERED_SUFFIX}"))
            if len(paths) > REMEMBERED_COPIES_MAX:
                for path in sorted(paths, key=_changed_ns)[:-REMEMBERED_COPIES_MAX]:
                    path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the base of %s was not kept: %s", os.fsdecode(copy.path), error)

    def forget(self, cluster: bytes, domain: str, file: str) -> None:
        """Forget the bases of every copy of a file: a deleted file begins again."""
        if self._directory is None:
            return
        try:
            for path in self._directory.glob(
                f"{_file_digest(cluster, domain, file)}-*{REMEMBERED_SUFFIX}"
            ):
                path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the bases of copies of %r were not forgotten: %s", file, error)


def _entry_path(directory: Path, copy: LocalName) -> Path:
    file = _file_digest(copy.cluster, copy.domain, copy.file)
    name = blake3(copy.path).hexdigest(REMEMBERED_NAME_BYTES)
    return directory / f"{file}-{name}{REMEMBERED_SUFFIX}"


def _file_digest(cluster: bytes, domain: str, file: str) -> str:
    return blake3(msgspec.msgpack.encode((cluster, domain, file))).hexdigest(REMEMBERED_NAME_BYTES)


def _changed_ns(path: Path) -> int:
    """Return the time of the last change in nanoseconds, or 0 for an absent file."""
    found = _status(path)
    return found.st_mtime_ns if found is not None else 0
