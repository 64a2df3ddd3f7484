"""The journals of a server's logs: a directory for each, in the directory of the server's journal.

All journals are kept, or set aside, together. The file BEGUN_NAME in the server's journal lists the
directories that have files. A start therefore notices a log without any, even if its anchor is gone
with them, or if all logs are gone.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ares.model.errors import BadInput, StoreDamaged
from ares.model.identity import DomainName
from ares.platform.replacement import replace_durably
from ares.platform.trusted_files import sync
from ares.store.journal.disk import Disk, UnlessFull
from ares.store.journal.segment_journal import (
    SegmentJournal,
    open_journal,
    reserves_of_log,
)
from ares.store.journal.segments import (
    ANCHOR_SUFFIX,
    NOTE_PREFIX,
    SEGMENT_SUFFIX,
    Anchor,
    Owner,
    anchor_of,
)

LOGS_NAME = "logs"
BEGUN_NAME = "logs.begun"
"""Name of the list of logs that began: a line for each directory."""

LIFE_NAME = "logs.life"
"""Name of the file whose suffix is the number of the server's last start."""


class LogDirectories:
    """:class:`~ares.store.port.SharedLogJournals` in ``journal``, the server's journal directory.

    Places have ``place_bytes``.
    """

    def __init__(self, journal: Path, owner: Owner, disk: Disk, place_bytes: int) -> None:
        self._directory = journal / LOGS_NAME
        self._list = journal / BEGUN_NAME
        self._listed: frozenset[str] = frozenset()
        self._owner = owner
        self._disk = disk
        self._place_bytes = place_bytes

    def begin_life(self) -> int:
        """Count a start in the name of a file: a full disk has no room for a content."""
        try:
            found = self._list.parent.glob(f"{LIFE_NAME}.[0-9]*")
            known = [int(path.suffix[1:]) for path in found if path.suffix[1:].isdecimal()]
            life = max(known, default=0) + 1
            path = self._list.with_name(f"{LIFE_NAME}.{life}")
            if known:
                path.with_suffix(f".{life - 1}").rename(path)
            else:
                self._disk.make_directory(path.parent)
                path.touch()
            sync(path.parent)
        except OSError as error:
            why = f"{error.strerror} ({error.filename}); nothing was lost"
            raise BadInput(f"the start of the logs cannot be counted: {why}") from error
        return life

    def there(self) -> Iterable[Callable[[], SegmentJournal]]:
        try:
            names = {
                path.name.removesuffix(ANCHOR_SUFFIX)
                for path in self._directory.glob("*")
                if path.is_dir() or path.suffix == ANCHOR_SUFFIX
            }
            if self._list.exists():
                self._listed = frozenset(self._list.read_text("ascii", "replace").split())
            begun = {name for name in names if self._has_files(name)}
            if gone := self._listed - begun:
                why = f"the log had begun, says {self._list}, and nothing of it is there"
                raise StoreDamaged(self._directory / min(gone), why)
            with UnlessFull():  # lists logs of an earlier release
                self._begin(begun)
        except OSError as error:
            why = f"{error.strerror} ({error.filename}); nothing was lost"
            raise BadInput(f"the logs in {self._directory} cannot be opened: {why}") from error
        return [partial(self._open, self._directory / name) for name in sorted(names)]

    def open(self, name: DomainName) -> SegmentJournal:
        directory = self._directory / hashlib.sha256(name.encode()).hexdigest()[:32]
        self._disk.make_directory(directory)
        self._make_anchor(directory)
        self._begin({directory.name})
        return self._open(directory)

    def _has_files(self, name: str) -> bool:
        """Return whether the log has an anchor, a note of its anchor, or a segment."""
        directory = self._directory / name
        return anchor_of(directory).exists() or any(
            path.suffix == SEGMENT_SUFFIX or path.name.startswith(NOTE_PREFIX)
            for path in directory.iterdir()
        )

    def _make_anchor(self, directory: Path) -> None:
        """Make the anchor of a new log, before the log is listed. Raise OSError."""
        anchor = Anchor(self._disk, directory, self._owner.identity)
        try:
            anchor.read()
            if not anchor.hold():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(anchor.path))
        finally:
            anchor.close()

    def _begin(self, names: set[str]) -> None:
        """List durably the logs ``names``, which must have files. Raise OSError."""
        listed = self._listed | names
        if listed != self._listed:
            replace_durably(self._list, "".join(f"{each}\n" for each in sorted(listed)))
            self._listed = listed

    def _open(self, directory: Path) -> SegmentJournal:
        reserves = reserves_of_log(self._place_bytes)
        return open_journal(directory, self._owner, self._place_bytes, self._disk, reserves)
