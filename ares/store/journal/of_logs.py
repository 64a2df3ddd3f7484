"""The journals of a server's logs: a directory for each, in that of the server's own journal, so that they are kept, or set aside, together."""

import hashlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ares.model.identity import DomainName
from ares.store.journal.disk import Disk
from ares.store.journal.log import LogJournal, open_journal
from ares.store.journal.segments import Owner

LOGS_NAME = "logs"


class DirectoryOfLogs:
    """:class:`ares.store.port.LogJournals` in ``journal``, the directory of the server's own one; places have ``place_bytes``."""

    def __init__(self, journal: Path, owner: Owner, disk: Disk, place_bytes: int) -> None:
        self._directory = journal / LOGS_NAME
        self._owner = owner
        self._disk = disk
        self._place_bytes = place_bytes

    def there(self) -> Iterable[Callable[[], LogJournal]]:
        paths = sorted(path for path in self._directory.glob("*") if path.is_dir())
        return [partial(self._open, path) for path in paths]

    def open(self, name: DomainName) -> LogJournal:
        self._disk.make_directory(self._directory)
        return self._open(self._directory / hashlib.sha256(name.encode()).hexdigest()[:32])

    def _open(self, directory: Path) -> LogJournal:
        return open_journal(directory, self._owner, self._place_bytes, self._disk)
