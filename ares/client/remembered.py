"""What the local copies of files on this machine were made from, kept from one run of a program to the next.

A write of a file has a base: the file as *that copy* was made from, by the last put of it or the last get into it. What others changed since counts
as a conflict where the copy changes it, too, and is left alone where the copy does not; and a base that is known costs no look at the cluster. So the
base belongs to the copy, and is kept by the copy's path as well as by the cluster, the domain and the file: two people at one machine, each with a
copy of the same file, would otherwise take each other's base, and the one who puts second would wipe out what the first one put, as if it had been
seen and deleted.

What was in the copy then is remembered, too, by its digest: only so it can be known whether somebody has edited it since, and would lose that.

One small file for each copy, in MessagePack behind a format byte: lengths, versions and digests of blocks, no content and no secrets. All of it may
be lost at any time: a put without a base replaces what is there.
"""

import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
from blake3 import blake3
from msgspec import Struct

from ares.fragment.read import FileState

log = logging.getLogger(__name__)

VARIABLE = "ARES_CACHE"
"""A directory, or `off`."""

FORMAT = 1
"""First byte of every entry."""

ENTRIES_MAX = 1000
SUFFIX = ".base"
NAME_BYTES = 16


class LocalName(Struct, frozen=True, array_like=True):
    """A local copy: ``path`` (absolute, symbolic links followed) holds the file ``file`` of ``domain`` of the cluster with the id ``cluster``."""

    cluster: bytes
    domain: str
    file: str
    path: bytes


class _Entry(Struct, frozen=True, array_like=True):
    copy: LocalName
    state: FileState
    content: bytes = b""


_decoder = msgspec.msgpack.Decoder(_Entry)


def cache_directory(environment: Mapping[str, str]) -> Path | None:
    """Where entries are kept: $ARES_CACHE, else `ares` in $XDG_CACHE_HOME or ~/.cache. None: nowhere."""
    said = environment.get(VARIABLE)
    if said:
        return None if said == "off" else Path(said)
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # a relative one is to be ignored, says the specification
        base = os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "ares" if os.path.isabs(base) else None


class Remembered:
    """The entries in ``directory`` (None: there are none, and none are kept).

    Nothing here fails: what cannot be read or written is logged and passed over.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @property
    def keeps(self) -> bool:
        """Whether there is a directory."""
        return self._directory is not None

    def recall(self, copy: LocalName) -> FileState | None:
        """What the copy was made from, if that is known."""
        entry = self._entry(copy)
        return None if entry is None else entry.state

    def content(self, copy: LocalName) -> bytes:
        """The digest of the copy itself when it was last put or brought here; empty if that is not known."""
        entry = self._entry(copy)
        return b"" if entry is None else entry.content

    def _entry(self, copy: LocalName) -> _Entry | None:
        if self._directory is None:
            return None
        path = self._directory / _entry_name(copy)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("what %s is based on cannot be read, and is taken as unknown: %s", os.fsdecode(copy.path), error)
            return None
        try:
            entry = _decoder.decode(memoryview(data)[1:]) if data[:1] == bytes([FORMAT]) else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            entry = None
        if entry is None or entry.copy != copy:
            log.warning("%s is not an entry of this release and is ignored: what %s is based on is taken as unknown", path, os.fsdecode(copy.path))
            return None
        return entry

    def remember(self, copy: LocalName, state: FileState, content: bytes = b"") -> None:
        """Keep what the copy was made from, and the digest of its ``content``, wholly or not at all; the oldest entries go if there are too many."""
        if self._directory is None:
            return
        entry = _Entry(copy, msgspec.structs.replace(state, genesis=msgspec.structs.replace(state.genesis, parts=())), content)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(self._directory / _entry_name(copy), bytes([FORMAT]) + msgspec.msgpack.encode(entry))
            self._drop_oldest(self._directory)
        except OSError as error:
            log.warning("what %s is based on was not kept: %s", os.fsdecode(copy.path), error)

    def forget(self, cluster: bytes, domain: str, file: str) -> None:
        """Forget what every copy of that file was made from: whoever deletes a file begins anew."""
        if self._directory is None:
            return
        try:
            for path in self._directory.glob(f"{_file_digest(cluster, domain, file)}-*{SUFFIX}"):
                path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("what copies of %r are based on was not forgotten: %s", file, error)

    def _drop_oldest(self, directory: Path) -> None:
        with os.scandir(directory) as entries:
            names = [entry.path for entry in entries if entry.name.endswith(SUFFIX)]
        if len(names) <= ENTRIES_MAX:
            return
        for path in sorted(names, key=_changed_ns)[: len(names) - ENTRIES_MAX]:
            Path(path).unlink(missing_ok=True)


def _entry_name(copy: LocalName) -> str:
    return f"{_file_digest(copy.cluster, copy.domain, copy.file)}-{blake3(copy.path).hexdigest(NAME_BYTES)}{SUFFIX}"


def _file_digest(cluster: bytes, domain: str, file: str) -> str:
    return blake3(msgspec.msgpack.encode((cluster, domain, file))).hexdigest(NAME_BYTES)


def _changed_ns(path: str) -> int:
    """0 for one that is gone already."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


def _replace(path: Path, data: bytes) -> None:
    """Through a temporary file of the same directory, readable by its owner only."""
    file, temporary = tempfile.mkstemp(prefix=".ares-", dir=path.parent)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
