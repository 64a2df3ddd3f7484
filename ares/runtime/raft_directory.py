"""The directory of one consensus member: its lock, the files that PySyncObj writes there, and making them survive a power failure.

PySyncObj maps its journal into memory and renames its other files into place, but never asks the disk to keep them. A Raft member must not say
that it has an entry, or gave a vote, before that is on disk: :class:`MemberDirectory` has the calls that ares/runtime/raft_consensus.py makes first.
"""

import fcntl
import hashlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.errors import BadInput
from ares.identity import ServerId
from ares.reconfig.decision import DecisionTable

Entry = tuple[bytes, int, int]
"""One entry of the Raft log: command, index, term."""

_DIGEST_BYTES = 16


class Dump(Struct, frozen=True, array_like=True):
    """The decision table after ``last`` was applied, and the two log entries that PySyncObj wants to find again, ``previous`` and ``last``."""

    table: DecisionTable[bytes]
    last: Entry
    previous: Entry


_dump_decoder = msgspec.msgpack.Decoder(Dump)


class MemberDirectory:
    """``lock``, ``journal``, ``journal.meta`` (term and vote) and ``dump`` of the member that holds the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.votes = path / "journal.meta"
        self.dump = path / "dump"
        self._lock: int | None = None

    def lock(self, member: ServerId) -> None:
        """Make this process the only one here. Raises :class:`BadInput` if another one is, or the directory is another member's."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadInput(f"consensus member {member} cannot use {self.path}: {error.strerror}; nothing was started") from error
        try:
            self._claim(lock, member)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _claim(self, lock: int, member: ServerId) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"{self.path} is in use by another process: consensus member {member} runs already; nothing was started") from error
        owner = os.pread(lock, 256, 0).decode(errors="replace")
        if owner not in ("", member):
            raise BadInput(f"{self.path} belongs to consensus member {owner}, not to {member}: votes are not transferable; nothing was started")
        os.pwrite(lock, member.encode(), 0)
        os.fsync(lock)

    def unlock(self) -> None:
        """Let another process in; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def sync_journal(self) -> None:
        """Return when the journal's entries are on disk."""
        _sync(self.journal)

    def sync_votes(self) -> None:
        """Return when term and vote are on disk."""
        _sync(self.votes)
        _sync(self.path)

    def sync_dump(self) -> None:
        """Return when the dump that was renamed into place is on disk under its name."""
        _sync(self.dump)
        _sync(self.path)

    def write_dump(self, path: Path, dump: Dump) -> None:
        """Write ``dump`` to ``path``, the file that is about to become the dump."""
        body = msgspec.msgpack.encode(dump)
        with path.open("wb") as file:
            file.write(_digest(body) + body)

    def read_dump(self) -> Dump:
        """The dump. Raises :class:`BadInput` if it is damaged."""
        content = self.dump.read_bytes()
        body = content[_DIGEST_BYTES:]
        if _digest(body) != content[:_DIGEST_BYTES]:
            raise self.damaged(self.dump, "its checksum does not fit")
        try:
            return _dump_decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise self.damaged(self.dump, str(error)) from error

    def damaged(self, file: Path, why: str) -> BadInput:
        """The error for a file that cannot be what the member wrote."""
        return BadInput(
            f"{file} is damaged ({why}), so the member may not vote. The other members keep every decision: while all of them run, move {self.path} "
            "away and start this member again; it copies what they have"
        )


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()


def _sync(path: Path) -> None:
    """fsync; on Linux that covers what others wrote to the file through a memory map."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
