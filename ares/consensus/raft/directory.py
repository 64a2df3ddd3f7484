"""The directory of a consensus member: its lock, PySyncObj's files, and their durability.

PySyncObj maps its journal into memory and renames the remaining files into place, but never asks
the disk to keep them. A Raft member must not claim an entry, or a vote given, before the entry or
vote is on disk: ares/consensus/raft/replicated.py calls the methods of :class:`MemberDirectory`
first.
"""

import hashlib
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.cluster.home import end_newness, remember_start, require_first
from ares.model.decision import DecisionTable
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.platform.file_lock import take_lock
from ares.platform.replacement import replace_durably
from ares.platform.trusted_files import make_directory, opener, require_unshared, sync

Entry = tuple[bytes, int, int]
"""An entry of the Raft log: command, index, term."""

RAFT_FORMAT = 1
"""Format of the directory's files, and of the dump, which members also send to each other."""

_RAFT_MAGIC = b"ares-dump"
_DIGEST_BYTES = 16


class Dump(Struct, frozen=True, array_like=True):
    """The decision table after ``last`` was applied, and two log entries for PySyncObj.

    PySyncObj wants to find ``previous`` and ``last`` again.
    """

    table: DecisionTable[bytes]
    last: Entry
    previous: Entry


_dump_decoder = msgspec.msgpack.Decoder(Dump)


class MemberDirectory:
    """The files ``lock``, ``format``, ``journal``, ``journal.meta`` (term and vote) and ``dump``.

    They belong to the member that holds the lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal"
        self.votes = path / "journal.meta"
        self.dump = path / "dump"
        self.format = path / "format"
        self._member = ServerId("")
        self._lock: int | None = None

    def lock(self, member: ServerId) -> None:
        """Make this process the only user of the directory.

        Raises :class:`BadInput` if another process uses the directory, or it is another member's.
        """
        try:
            make_directory(self.path)
            require_unshared(self.path)
            lock = take_lock(self.path / "lock", make=True)
        except OSError as error:
            raise BadInput(
                f"consensus member {member} cannot use {self.path}: {error.strerror}; nothing "
                "was started"
            ) from error
        if lock is None:
            raise BadInput(
                f"{self.path} is in use by another process: consensus member {member} runs "
                "already; nothing was started"
            )
        try:
            self._claim(lock, member)
        except BaseException:
            os.close(lock)
            raise
        self._member = member
        self._lock = lock

    def _claim(self, lock: int, member: ServerId) -> None:
        owner = os.pread(lock, 256, 0).decode(errors="replace")
        if owner not in ("", member):
            raise BadInput(
                f"{self.path} belongs to consensus member {owner}, not to {member}: votes are "
                "not transferable; nothing was started"
            )
        self._check_format()
        os.pwrite(lock, member.encode(), 0)
        os.fsync(lock)

    def _check_format(self) -> None:
        """Check the format; a directory without the file is new, or of the first format."""
        found = (
            self.format.read_text(encoding="ascii", errors="replace").strip()
            if self.format.exists()
            else ""
        )
        if not found:
            replace_durably(self.format, f"{RAFT_FORMAT}\n")
        elif found != str(RAFT_FORMAT):
            why = (
                f"it has format {found!r}, and this release knows {RAFT_FORMAT}: use the release "
                "that wrote it, or a newer one"
            )
            raise BadInput(
                f"{self.path} cannot be used: {why}; nothing was started, and nothing in it was "
                "changed"
            )

    def require_new(self) -> None:
        """Raise :class:`ares.model.errors.DirectoryLost` unless no member ever ran there.

        A member that forgot its votes would vote again. The caller holds the lock.
        """
        require_first(self.path, self._member, votes=True)

    def begin(self) -> None:
        """Make the journal durable under its name, with the record of this first start.

        The caller holds the lock.
        """
        sync(self.journal)
        sync(self.path)
        remember_start(self.path, self._member)
        end_newness(self.path)

    def set_aside(self) -> Path | None:
        """Move the member's files into a new directory within this one.

        Returns the new directory, or None without files. The caller holds the lock.
        """
        kept = [file for file in (self.journal, self.votes, self.dump) if file.exists()]
        if not kept:
            return None
        aside = self.path / f"lost.{secrets.token_hex(4)}"
        aside.mkdir(mode=0o700)
        for file in kept:  # the journal first: without a journal no member starts
            file.rename(aside / file.name)
        sync(self.path)
        return aside

    def unlock(self) -> None:
        """Release the lock; idempotent."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def sync_journal(self) -> None:
        """Return when the journal's entries are on disk."""
        sync(self.journal)

    def sync_votes(self) -> None:
        """Return when term and vote are on disk."""
        sync(self.votes)
        sync(self.path)

    def sync_dump(self) -> None:
        """Return when the dump renamed into place is on disk under its name."""
        sync(self.dump)
        sync(self.path)

    def write_dump(self, path: Path, dump: Dump) -> None:
        """Write ``dump`` to ``path``, the file about to become the dump."""
        body = _RAFT_MAGIC + bytes([RAFT_FORMAT]) + msgspec.msgpack.encode(dump)
        with open(path, "wb", opener=opener) as file:
            file.write(_digest(body) + body)

    def read_dump(self) -> Dump:
        """Return the dump. Raises :class:`BadInput` for a damaged or unknown dump."""
        content = self.dump.read_bytes()
        body = content[_DIGEST_BYTES:]
        if _digest(body) != content[:_DIGEST_BYTES]:
            raise self.damaged(self.dump, "its checksum does not fit")
        head, content = body[: len(_RAFT_MAGIC) + 1], body[len(_RAFT_MAGIC) + 1 :]
        if head[:-1] != _RAFT_MAGIC:
            raise self.damaged(self.dump, "it is not a dump")
        if head[-1] != RAFT_FORMAT:
            raise BadInput(
                f"{self.dump} has format {head[-1]}, and this release knows {RAFT_FORMAT}: use the "
                "same release of ares at every member"
            )
        try:
            return _dump_decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise self.damaged(self.dump, str(error)) from error

    def damaged(self, file: Path, why: str) -> BadInput:
        """Return the error for a file that cannot be the member's own writing."""
        return BadInput(
            f"{file} is damaged ({why}), so the member may not vote. The other members keep "
            "every decision: while all of them run, `ares-cli prepare FILE ID --forget`, then "
            "start this member again; it copies their decisions"
        )


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
