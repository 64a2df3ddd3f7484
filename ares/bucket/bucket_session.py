"""A process's session with the index: its numbers, its open reads, and the promises of its beats.

A session belongs to one life of one process. Its number is the position of its OpenSession, and
nothing is read or checked before this command is folded.
"""

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandResult
from ares.bucket.commands import (
    COMMAND_LEVEL,
    Beat,
    ChangingOperation,
    Command,
    OpenSession,
    UpkeepOperation,
)
from ares.bucket.fold import BucketFold, request_print
from ares.bucket.index_records import Blob

OPEN_COMMAND = Command(0, 1, 1, 0, OpenSession(COMMAND_LEVEL))


class BucketSession:
    """A session. ``number``: None until the position of its OpenSession is known.

    ``fold``: the index of the process, which the process keeps up with the log.
    """

    def __init__(self, fold: BucketFold) -> None:
        self.fold = fold
        self.number: int | None = None
        self._next = 1
        self._unsettled: dict[int, int] = {}
        self._reads: dict[int, int] = {}
        self._read_count = 0

    @property
    def state(self) -> BucketState:
        return self.fold.state

    @property
    def is_live(self) -> bool:
        """Return whether the OpenSession was folded here, and no EndSession."""
        return self.number is not None and self.number in self.state.sessions

    @property
    def has_ended(self) -> bool:
        """Return whether the session's end was folded here, or its OpenSession was not taken."""
        passed = self.number is not None and self.number < self.state.position
        return passed and not self.is_live

    # -- numbers -----------------------------------------------------------------------------------

    def take_number(self) -> int:
        """Take the number of a command and its blob; the command is checked from here on."""
        number = self._next
        self._next += 1
        self._unsettled[number] = self.state.position
        return number

    def checked_at(self, number: int) -> int | None:
        """Return the position at which a command that is not settled was checked."""
        return self._unsettled.get(number)

    def settle(self, number: int) -> None:
        """Settle a number: its command was answered, or is given up and must do nothing now."""
        self._unsettled.pop(number, None)

    @property
    def lowest(self) -> int:
        """Return the lowest number that is not settled."""
        return min(self._unsettled, default=self._next)

    def blob(self, number: int, length: int) -> Blob:
        """Return the name of new data, which bears a taken number."""
        assert self.number is not None, "no blob before the session's number is known"
        return Blob(self.number, number, 1, length)

    # -- reads -------------------------------------------------------------------------------------

    def begin_read(self) -> int:
        """Begin a read of the index as it is now; return the read's name."""
        self._read_count += 1
        self._reads[self._read_count] = self.state.position
        return self._read_count

    def end_read(self, read: int) -> None:
        self._reads.pop(read, None)

    @property
    def reading_from(self) -> int:
        """Return the oldest position that a read or the check of a command may need."""
        return min([self.state.position, *self._reads.values(), *self._unsettled.values()])

    # -- commands ----------------------------------------------------------------------------------

    def command(
        self, number: int, operation: ChangingOperation, ms: int, invocation: bytes = b""
    ) -> Command:
        """Return the command with a taken number."""
        return self._made(number, operation, ms, invocation)

    def upkeep(self, operation: UpkeepOperation, ms: int, number: int = 0) -> Command:
        """Return a command whose repetition changes nothing, with a number of its own."""
        if not number:
            number = self._next
            self._next += 1
        return self._made(number, operation, ms, b"")

    def beat(self, ms: int) -> Command:
        """Return a beat with the promises as they are in this moment, all at once."""
        state = self.state
        digest = state.digest.to_bytes(16)
        return self.upkeep(Beat(state.position, digest, self.reading_from), ms)

    def _made(
        self,
        number: int,
        operation: ChangingOperation | UpkeepOperation,
        ms: int,
        invocation: bytes,
    ) -> Command:
        assert self.number is not None, "no command before the session's number is known"
        lowest = min(self.lowest, number)
        return Command(self.number, number, lowest, ms, operation, invocation=invocation)

    def first_result(self, command: Command) -> CommandResult | None:
        """Return the result of an earlier attempt at the same request, in any session."""
        return self.state.invocation(request_print(command)) if command.invocation else None
