"""A process's session with the index: numbers, blobs, open reads, and promises.

A session belongs to a single life of a process. The number of a session is the position of the
OpenSession; reads and checks begin after this command is folded. After opening the index again,
at an earlier position, a process begins a new session: the promises of the old session were about
later positions.
"""

from collections import OrderedDict

from msgspec import Struct

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandResult
from ares.bucket.commands import (
    COMMAND_LEVEL,
    REQUEST_PRINT_BYTES,
    UNSETTLED_MAX,
    Beat,
    Command,
    OpenSession,
    Operation,
    UpkeepOperation,
)
from ares.bucket.fold import BucketFold
from ares.bucket.index_records import OPEN_BLOBS_MAX, Blob
from ares.model.errors import AresError

OPEN_COMMAND = Command(0, 1, 1, 0, OpenSession(COMMAND_LEVEL))

UNANSWERED_MAX = UNSETTLED_MAX // 2
"""Numbers from the lowest unsettled one on, for requests; upkeep has the rest."""

CHECKED_RESULTS_MAX = 64
"""Results kept by a check; more than one if a client gives an id to several requests."""

READ_POSITIONS_MAX = 2**20
READ_STILL_S = 900.0
"""Positions since the begin of a read, and seconds without a step, that end the read."""


class SessionBusy(AresError):
    """Too many commands of this process have no answer yet. Nothing was done: try again later."""


class _Check(Struct):
    """A look for earlier attempts, at the position ``floor``; a later look moves ``floor``.

    ``request``: the print without the etag, which may not be known yet. ``results``: by print.
    """

    request: bytes
    floor: int
    results: dict[bytes, CommandResult]


class _Read(Struct):
    """An open read of the index at a position. ``since_s``: of the look that saw a last step."""

    position: int
    went_on: bool = True
    since_s: float = 0.0


class BucketSession:
    """A session. ``number``: None until the position of its OpenSession is known.

    ``fold``: the index of the process, which the process keeps up with the log.
    """

    def __init__(self, fold: BucketFold) -> None:
        self.fold = fold
        self.number: int | None = None
        self._next = self._next_blob = self._next_hold = 1
        self._unsettled: OrderedDict[int, None] = OrderedDict()
        self._open_blobs: set[int] = set()
        self._reads: dict[int, _Read] = {}
        self._checks: dict[int, _Check] = {}

    @property
    def state(self) -> BucketState:
        """Return the index. Raises BrokenIndex if the index has to be opened again."""
        return self.fold.state

    @property
    def is_live(self) -> bool:
        """Return whether this process folded the OpenSession, and no EndSession."""
        return self.number is not None and self.number in self.state.sessions

    @property
    def has_ended(self) -> bool:
        """Return whether this process folded the session's end, or a refused OpenSession."""
        passed = self.number is not None and self.number < self.state.position
        return passed and not self.is_live

    # -- numbers and blobs -------------------------------------------------------------------------

    def take_number(self) -> int:
        """Take the number of a command, at the append. Raises :class:`SessionBusy`."""
        if self._next - self.lowest >= UNANSWERED_MAX:
            raise SessionBusy(f"{len(self._unsettled)} commands have no answer: try again later")
        number = self._next
        self._next += 1
        self._unsettled[number] = None
        return number

    def settle(self, number: int) -> None:
        """Settle a number after the answer, or to let a command that is given up change no row."""
        self._unsettled.pop(number, None)

    @property
    def lowest(self) -> int:
        """Return the lowest number not settled: numbers are taken in ascending order."""
        return next(iter(self._unsettled), self._next)

    def take_blob(self) -> int:
        """Take a number for a new blob, before the first chunk is stored."""
        counter = self._next_blob
        self._next_blob += 1
        self._open_blobs.add(counter)
        return counter

    def blob(self, counter: int, length: int) -> Blob:
        """Return the name of a blob with a taken number."""
        assert self.number is not None, "no blob before the session's number is known"
        return Blob(self.number, counter, length)

    def close_blob(self, counter: int) -> None:
        """Close a blob after the answer, or to let no later command name the blob."""
        self._open_blobs.discard(counter)

    # -- reads and checks --------------------------------------------------------------------------

    def begin_read(self) -> int:
        """Begin a read of the index at the present position; return the read's name."""
        self._next_hold += 1
        self._reads[self._next_hold] = _Read(self.state.position)
        return self._next_hold

    def goes_on(self, read: int) -> bool:
        """Note a step of a read; return False after the end of the read."""
        known = self._reads.get(read)
        if known is None:
            return False
        known.went_on = True
        return True

    def end_old_reads(self, now_s: float) -> None:
        """End own reads that stand still, or that began far behind.

        No process forgets results or data behind an open read, and in the end no change has room.
        A look notes the steps since the last look. Blobs of an ended read may be dropped.
        """
        oldest = self.state.position - READ_POSITIONS_MAX
        for name, read in list(self._reads.items()):
            if read.went_on:
                read.went_on, read.since_s = False, now_s
            if read.position < oldest or now_s - read.since_s > READ_STILL_S:
                self.end_read(name)

    def end_read(self, read: int) -> None:
        self._reads.pop(read, None)

    def begin_check(self, fingerprint: bytes) -> int:
        """Look for earlier attempts at a request, until the answer; return the check's name.

        ``fingerprint``: the request's print, perhaps without the etag, which the data will tell.
        The results of attempts from this moment on are remembered until :meth:`end_check`.
        """
        self._next_hold += 1
        request = fingerprint[:REQUEST_PRINT_BYTES]
        if request:
            check = _Check(request, self.state.position, {})
            self._checks[self._next_hold] = check
            self._look(check)
        return self._next_hold

    def first_result(self, check: int, fingerprint: bytes) -> CommandResult | None:
        """Return the result of an earlier attempt with the same print, in any session."""
        known = self._checks.get(check)
        if known is None:
            return None
        return known.results.get(fingerprint) or self.state.invocation(fingerprint)

    def _look(self, check: _Check) -> None:
        """Keep the results of attempts at a request, and move the check's floor here.

        Requests that share an id have different etags, and a check keeps results of a few.
        """
        more = CHECKED_RESULTS_MAX - len(check.results)
        if more > 0:
            check.results |= self.state.invocations(check.request, more)
        check.floor = self.state.position

    def end_check(self, check: int) -> None:
        self._checks.pop(check, None)

    def _look_again(self) -> None:
        """Move the floors of long checks, as of large uploads.

        A result is remembered for twice as many positions as lie between two looks.
        """
        state, every = self.state, self.fold.kept // 2
        for check in self._checks.values():
            if state.position - check.floor >= every:
                self._look(check)

    @property
    def reading_from(self) -> int:
        """Return the oldest position of the open reads and checks."""
        floors = [check.floor for check in self._checks.values()]
        reads = [read.position for read in self._reads.values()]
        return min([self.state.position, *reads, *floors])

    # -- commands ----------------------------------------------------------------------------------

    def command(
        self, number: int, operation: Operation, ms: int, invocation: bytes = b""
    ) -> Command:
        """Return the command with a taken number, and the lowest number of this moment."""
        assert self.number is not None, "no command before the session's number is known"
        lowest = min(self.lowest, number)
        return Command(self.number, number, lowest, ms, operation, invocation=invocation)

    def upkeep(self, operation: UpkeepOperation, ms: int) -> Command:
        """Return a command without a waiting request, with a new number."""
        self._next += 1
        return self.command(self._next - 1, operation, ms)

    def beat(self, ms: int) -> Command:
        """Return a beat with the promises of this moment, all at once."""
        self._look_again()
        state, opened = self.state, sorted(self._open_blobs)
        listed = tuple(opened[:OPEN_BLOBS_MAX])
        blobs_from = min(opened[OPEN_BLOBS_MAX:], default=self._next_blob)
        digest = state.digest.to_bytes(16)
        return self.upkeep(Beat(state.position, digest, self.reading_from, blobs_from, listed), ms)
