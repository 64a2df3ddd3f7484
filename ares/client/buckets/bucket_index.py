"""The index of the buckets in this process: a session, and a fold which follows the log.

A :class:`BucketIndex` is a life of both. The life ends when the session was ended, when the fold or
a background task failed, or when the client is closed. Every waiting call and every later call
raises the reason, and the client opens another life.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from itertools import count
from time import time
from typing import Any, TypeVar

from ares.bucket.bucket_requests import SessionEnded
from ares.bucket.bucket_session import OPEN_COMMAND, BucketSession
from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandResult
from ares.bucket.commands import (
    COMMAND_LEVEL,
    Beat,
    ChangingOperation,
    Command,
    EndSession,
    KeepSnapshot,
    OpenSession,
    UpkeepOperation,
    decode_command,
    encode_command,
)
from ares.bucket.fold import AppliedCommand, BucketFold
from ares.bucket.port import Saved
from ares.client.buckets.bucket_errors import (
    ChangeUncertain,
    IndexBehind,
    IndexStopped,
    RowsDistrusted,
    is_uncertain,
)
from ares.client.shared_log import Log
from ares.model.errors import (
    AppendUncertain,
    AresError,
    BadInput,
    LogSealed,
    Trimmed,
    Unavailable,
)
from ares.model.identity import ObjectName
from ares.platform import tasks

FOLLOW_AGAIN_S = 0.2
"""Pause before the log is followed again after too few servers answered."""

APPEND_AGAIN_S = 0.05
"""Pause before a command with an uncertain append is appended again."""

FOLDED_AT_ONCE = 256
FOLD_TURN_S = 0.02
"""Entries, and seconds after an entry, that end a turn of the event loop."""

AGREEMENT_S = 6.0
"""Seconds, of three beats, for which a beat with the same rows speaks for these."""

END_SESSION_S = 1.0
"""Longest wait for the end of the own session when the client is closed."""

log = logging.getLogger(__name__)

Result = TypeVar("Result")
CommandName = tuple[int, int]
"""The session and the number of a command."""


def now_ms() -> int:
    """Return the time of this machine's clock, which the index shows to people."""
    return int(time() * 1000)


class BucketIndex:
    """A life of the index. ``failure``: the reason of the end, or None during the life.

    ``fold`` may be an earlier life's. ``unnamed``: own chunks which no command in the log names or
    will name. ``log_bytes``: bytes of the entries applied in this life since the last snapshot.
    ``timeout_s`` of the methods bounds a standstill.
    """

    def __init__(self, log: Log, fold: BucketFold) -> None:
        self.fold = fold
        self.log_bytes = 0
        self.session = BucketSession(fold)
        self.failure: AresError | None = None
        self.unnamed: deque[list[ObjectName]] = deque()
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._results: dict[CommandName, asyncio.Future[CommandResult]] = {}
        self._awaited: list[tuple[int, int, asyncio.Future[None]]] = []
        self._turns = count()
        self._looks: list[asyncio.Future[int]] = []
        self._asked: list[asyncio.Future[int]] = []
        self._looking = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._agreed_s: dict[int, float | None] = {}
        """By other session, the time of its last beat in this life; None for different rows."""

        self._told_ms: dict[int, int] = {}
        """By session, the time of its last beat by its own clock."""

    @property
    def state(self) -> BucketState:
        return self.fold.state

    async def open(self, timeout_s: float) -> None:
        """Open the session, after the log up to its tail: the beats begin soon after it.

        Reads and checks begin after the OpenSession is folded. Raises :class:`ares.Unavailable`.
        """
        before = self.state.position
        self.begin(self._follow(), "follower of the index of buckets")
        tail = await self._log.tail(timeout_s=timeout_s)
        if tail < before:
            self._forget_rows("the log ends before the rows of this process: they are of another")
        await self.reach(tail, timeout_s)
        self.session.number = await self._opened(timeout_s)
        await self.reach(self.session.number + 1, timeout_s)
        if self.state.totals.level > COMMAND_LEVEL:
            self.fail(IndexStopped(f"it needs a release with level {self.state.totals.level}"))
        self.check_live()

    async def _opened(self, timeout_s: float) -> int:
        """Return the position of an OpenSession; a session that nobody uses is ended."""
        opening, deadline = encode_command(OPEN_COMMAND), self._loop.time() + timeout_s
        while True:
            self.check()
            left_s = max(deadline - self._loop.time(), 0.001)
            try:
                return await self._log.append(opening, timeout_s=left_s)
            except AppendUncertain as late:
                if self._loop.time() >= deadline:
                    raise Unavailable(
                        0, 0, {}, f"the buckets' log took no session for {timeout_s:g} s"
                    ) from late
            await asyncio.sleep(APPEND_AGAIN_S)

    async def close(self) -> None:
        """End the session: processes need not wait for the end of its silence."""
        session = self.session
        if self.failure is None and session.is_live:
            with suppress(AresError):  # without this command silence ends it
                ending = encode_command(self._ending())
                await self._log.append(ending, timeout_s=END_SESSION_S)
        with suppress(AresError):
            self.fold.save()
        self.fail(IndexStopped("the client was closed"))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ending(self) -> Command:
        """Return the command that ends the own session, which is live."""
        number = self.session.number
        assert number is not None, "a live session has a number"
        last = self.state.sessions[number].last
        return self.session.upkeep(EndSession(number, last), now_ms())

    # -- the end of this life ----------------------------------------------------------------------

    def fail(self, failure: AresError) -> None:
        """End this life: every waiting call raises ``failure``."""
        if self.failure is not None:
            return
        self.failure = failure
        waiting: list[asyncio.Future[Any]] = [
            *self._results.values(), *(each[2] for each in self._awaited),
            *self._looks, *self._asked,
        ]  # fmt: skip
        self._results, self._awaited, self._looks, self._asked = {}, [], [], []
        for future in waiting:
            if not future.done():
                future.set_exception(failure)
                future.exception()  # a waiter may be gone
        for task in self._tasks:
            task.cancel()

    def distrust(self, why: str, snapshot: KeepSnapshot | None = None) -> None:
        """End this life and its session, whose rows are judged by other processes.

        A file of rows is opened again only if they have their digest. ``snapshot``: a snapshot of
        different rows, if that is the reason.
        """
        if self.session.is_live:
            self.give(self._ending())
        self.fail(RowsDistrusted(why, snapshot))
        with suppress(AresError):
            self.state.table.doubt()

    def _forget_rows(self, why: str) -> None:
        """End this life; the next one begins without rows."""
        self.fail(IndexStopped(why))
        with suppress(AresError):
            self.state.table.clear()
            self.state.table.save(Saved(0, 0))

    def check(self) -> None:
        """Raise the reason if this life has ended."""
        if self.failure is not None:
            raise self.failure

    def check_live(self) -> None:
        """Raise the reason, or :class:`SessionEnded`, unless the session is live."""
        self.check()
        if not self.session.is_live:
            self.fail(SessionEnded(_ENDED))
            self.check()

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin background work. An exception or a cancellation of the work ends this life."""

        async def kept() -> None:
            try:
                await work
            except AresError as error:
                self.fail(error)

        task = tasks.begin(kept(), name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.fail(IndexStopped(f"the {task.get_name()} was cancelled"))
        elif (error := task.exception()) is not None:
            self.fail(IndexStopped(f"the {task.get_name()} failed ({error!r})"))

    @property
    def is_oldest(self) -> bool:
        """Return whether the upkeep that one process does is this process's business.

        No process drops data, takes snapshots or deletes while its rows are in doubt.
        """
        is_first = self.session.number == min(self.state.sessions, default=None)
        return is_first and not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Return whether a live session has different rows.

        The wrong rows may be these, for most sessions may not have told of theirs yet.
        """
        sessions = self.state.sessions
        return any(told is None and each in sessions for each, told in self._agreed_s.items())

    def earliest_ms(self, own_ms: int) -> int:
        """Return the earliest of ``own_ms`` and of the times in the last beats of other sessions.

        A single clock that is ahead does not make the result later than the time.
        """
        others = self.state.sessions.keys() - {self.session.number}
        return min([own_ms, *(self._told_ms.get(each, own_ms) for each in others)])

    # -- the log -----------------------------------------------------------------------------------

    async def _follow(self) -> None:
        begun_s = self._loop.time()
        while True:
            try:
                async for position, entry in self._log.follow(self.state.position):
                    self._apply(position, entry)
                    is_last = position % FOLDED_AT_ONCE == 0
                    if is_last:
                        self.fold.save()
                    if is_last or self._loop.time() - begun_s >= FOLD_TURN_S:
                        await asyncio.sleep(0)
                        begun_s = self._loop.time()
            except Trimmed as trimmed:
                raise IndexBehind(trimmed.upto) from trimmed
            except (Unavailable, LogSealed):
                await asyncio.sleep(FOLLOW_AGAIN_S)

    def _apply(self, position: int, entry: bytes) -> None:
        assert position == self.state.position, "a follower skips no entry"
        try:
            applied = self.fold.apply(entry)
        except Exception as error:
            unforeseen = IndexStopped(f"an entry failed ({error!r})")
            self.fail(error if isinstance(error, AresError) else unforeseen)
            raise
        self.log_bytes += len(entry)
        if applied is not None:
            waiting = self._results.pop((applied.session, applied.number), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(applied.result)
            self._judge(applied)
        while self._awaited and self._awaited[0][0] <= position + 1:
            reached = heapq.heappop(self._awaited)[2]
            if not reached.done():
                reached.set_result(None)

    def _judge(self, applied: AppliedCommand) -> None:
        """End this life if the session was ended, or if other processes have different rows."""
        operation, session = applied.operation, self.session
        if isinstance(operation, EndSession | OpenSession) and session.has_ended:
            self.fail(SessionEnded(_ENDED))
        elif isinstance(operation, EndSession):
            if operation.of not in self.state.sessions:
                self._told_ms.pop(operation.of, None)
        elif isinstance(operation, Beat | KeepSnapshot) and applied.result.done:
            if isinstance(operation, KeepSnapshot):
                self.log_bytes = 0
            self._told_ms[applied.session] = self.state.ms
            self._compare(applied.session, operation)

    def _compare(self, other: int, told: Beat | KeepSnapshot) -> None:
        """End this life if a session has different rows, unless most sessions have these rows.

        At least one of two processes with different rows is wrong. If more than half of the
        sessions have the same rows, their processes go on; the others fold the log again, which are
        both of two. An old agreement does not count: these rows may have become wrong later. A
        snapshot of different rows ends this life in any case, and the next life marks it: processes
        would begin with it.
        Beats from before this life do not count, because a wrong beat would stay in the log.
        """
        digest, sessions = self.fold.digest_at(told.position), self.state.sessions
        if digest is None or not self.session.is_live or other == self.session.number:
            return
        agrees, now_s = digest == int.from_bytes(told.digest), self._loop.time()
        before = self._agreed_s.get(other, now_s)
        self._agreed_s[other] = now_s if agrees else None
        if agrees and len(self._agreed_s) <= 2 * len(sessions):
            return
        self._agreed_s = {each: at_s for each, at_s in self._agreed_s.items() if each in sessions}
        if agrees:
            return
        told_s = [
            at_s for at_s in self._agreed_s.values() if now_s - (at_s or now_s) <= AGREEMENT_S
        ]
        differ = f"rows at position {told.position} differ from those of session {other}"
        same = 1 + sum(at_s is not None for at_s in told_s)
        snapshot = told if isinstance(told, KeepSnapshot) else None
        if snapshot is not None or 2 * same <= 1 + len(told_s):
            self.distrust(f"its {differ}", snapshot)
        elif before is not None:
            log.error("the %s: the process of that session is wrong, for most have these", differ)

    async def reach(self, position: int, timeout_s: float) -> None:
        """Wait until the index has all entries below ``position``."""
        self.check()
        if self.state.position >= position:
            return
        reached: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self._awaited, (position, next(self._turns), reached))
        while not reached.done():
            before = self.state.position
            await asyncio.wait((reached,), timeout=timeout_s)
            if not reached.done() and self.state.position == before:
                reached.cancel()
                raise Unavailable(
                    *(0, 0, {}),
                    f"the index of the buckets has the log up to {before}, and waited for "
                    f"{timeout_s:g} s for the entry before {position}",
                )
        await reached

    async def verified(self, timeout_s: float) -> None:
        """Wait until the index is at a tail of the log, asked for after the begin of this call.

        Waiting calls share a look at the tail.
        """
        self.check_live()
        look: asyncio.Future[int] = self._loop.create_future()
        self._looks.append(look)
        if not self._looking:
            self._looking = True
            self.begin(self._look(), "look at the tail of the buckets' log")
        await asyncio.wait((look,), timeout=timeout_s)
        if not look.done():
            look.cancel()
            raise Unavailable(0, 0, {}, f"the buckets' log told no tail for {timeout_s:g} s")
        await self.reach(await look, timeout_s)
        self.check_live()

    async def _look(self) -> None:
        """Ask for the tail as long as calls wait."""
        try:
            while self._looks:
                self._asked, self._looks = self._looks, []
                try:
                    tail, error = await self._log.tail(), None
                except AresError as failed:
                    tail, error = 0, failed
                for look in self._asked:
                    if look.done():
                        continue
                    if error is None:
                        look.set_result(tail)
                    else:
                        look.set_exception(error)
        finally:
            self._looking = False

    async def trim(self, upto: int, timeout_s: float) -> None:
        """Trim the log below a position."""
        await self._log.trim(upto, timeout_s=timeout_s)

    # -- commands ----------------------------------------------------------------------------------

    async def commit(
        self, operation: ChangingOperation, invocation: bytes, timeout_s: float
    ) -> CommandResult:
        """Return the fold's result of a new command, at the command's position.

        Raises :class:`ChangeUncertain` if the command is in the log, or may come into the log
        before this session's next beat, which settles the command.
        """
        session = self.session
        number = session.take_number()
        try:
            command = session.command(number, operation, now_ms(), invocation)
            return await self._result(command, timeout_s)
        finally:
            session.settle(number)

    async def keep_up(self, operation: UpkeepOperation, timeout_s: float) -> CommandResult:
        """Return the result of a command whose repetition changes nothing."""
        return await self._result(self.session.upkeep(operation, now_ms()), timeout_s)

    def give(self, command: Command) -> None:
        """Append a command, and await no result."""
        appended = self._log.append(encode_command(command))
        appended.add_done_callback(_take_error)

    async def _result(self, command: Command, timeout_s: float) -> CommandResult:
        """Append a command, repeatedly if need be, until the fold shows the result.

        Raises :class:`IndexStopped` if this life ends first, unless the command is fenced by the
        end of the session: then :class:`SessionEnded`.
        """
        name, entry = (command.session, command.number), encode_command(command)
        if decode_command(entry) is None:
            raise BadInput(f"the index has no room for such a {type(command.operation).__name__}")
        self.check_live()
        result: asyncio.Future[CommandResult] = self._loop.create_future()
        self._results[name] = result
        deadline, uncertain = self._loop.time() + timeout_s, False
        try:
            while not result.done():
                left_s = max(deadline - self._loop.time(), 0.001)
                append = self._log.append(entry, timeout_s=left_s)
                append.add_done_callback(_take_error)
                await asyncio.wait((append, result), return_when=asyncio.FIRST_COMPLETED)
                if result.done():  # whatever became of the append
                    break
                if (error := append.exception()) is None:
                    await self._folded(append.result(), result, timeout_s)
                elif not isinstance(error, AppendUncertain):
                    if not uncertain:
                        raise error
                else:
                    uncertain = True
                if not result.done():
                    if self._loop.time() >= deadline:
                        raise ChangeUncertain("the log did not answer in time")
                    await asyncio.sleep(APPEND_AGAIN_S)
            return result.result()
        except AresError as error:
            if result.done() and not isinstance(error, SessionEnded) and not is_uncertain(error):
                raise IndexStopped(str(error)) from error
            raise
        finally:
            self._results.pop(name, None)

    async def _folded(
        self, position: int, result: asyncio.Future[CommandResult], timeout_s: float
    ) -> None:
        """Wait until an appended command is folded, or until this life ends."""
        try:
            await self.reach(position + 1, timeout_s)
        except AresError as error:
            if isinstance(error, Unavailable) and not result.done():
                raise ChangeUncertain(error.story) from error
        assert result.done(), "the fold tells the result of each command"


def _take_error(appended: "asyncio.Future[int]") -> None:
    """Retrieve the error of an append without a waiter."""
    if not appended.cancelled():
        appended.exception()


_ENDED = (
    "the session of this process with the buckets was ended, for other processes heard nothing of "
    "it for 15 seconds. A change under way was not made, and nothing acknowledged is lost: try "
    "again, which opens another session"
)
