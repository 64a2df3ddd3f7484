"""A driver of the fold for tests: sessions that give commands, and the results."""

from typing import Any

from ares.bucket.command_results import CommandResult
from ares.bucket.commands import Command, OpenSession, encode_command
from ares.bucket.fold import BucketFold
from ares.bucket.index_records import Blob, ObjectEntry
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTable
from ares.model.units import MIB


class IndexDriver:
    """A fold with a log. ``log``: all entries so far."""

    def __init__(self, table: RowTable | None = None, **options: Any) -> None:
        self.fold = BucketFold(MemoryTable() if table is None else table, **options)
        self.log: list[bytes] = []

    @property
    def state(self) -> Any:
        return self.fold.state

    def apply(self, entry: bytes) -> Any:
        self.log.append(entry)
        return self.fold.apply(entry)

    def session(self, level: int = 1) -> "SessionDriver":
        applied = self.apply(encode_command(Command(0, 1, 1, 0, OpenSession(level))))
        return SessionDriver(self, applied.session)

    def entry(self, key: str, bucket: str = "photos") -> ObjectEntry | None:
        return self.state.newest(bucket, key)


class SessionDriver:
    """A session, which settles each number before the next unless a test says otherwise."""

    def __init__(self, index: IndexDriver, number: int) -> None:
        self.index = index
        self.number = number
        self.used = 0
        self.lowest: int | None = None

    def command(self, operation: Any, **fields: Any) -> Command:
        self.used += 1
        number = fields.pop("number", self.used)
        lowest = fields.pop("lowest", self.lowest or number)
        ms = fields.pop("ms", 1000 * self.used)
        return Command(self.number, number, lowest, ms, operation, **fields)

    def give(self, operation: Any, **fields: Any) -> CommandResult:
        """Append a command, and return its result."""
        return self.index.apply(encode_command(self.command(operation, **fields))).result

    def blob(self, length: int = MIB, ahead: int = 1) -> Blob:
        """Return a blob named by the number of the next command."""
        return Blob(self.number, self.used + ahead, length)
