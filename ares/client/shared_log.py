"""A log, as users hold it: a domain whose configurations are chains (docs/log.md).

An append or a read costs one future, and no task, no timer and no operation, unless what it meets takes one. What is produced in one tick of the
event loop is posted together.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct

from ares.chain.appending import Appender, Done, Flight
from ares.chain.entries import check_batch
from ares.chain.log_operations import FOLLOW_S, Follower, LogOperations, check_position
from ares.chain.log_session import LogSession
from ares.chain.quick_reads import ReadManner
from ares.client.runner import Runner
from ares.client.store import Domain, Identify
from ares.model.configuration import Configuration
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    LogSealed,
    NotWritten,
    Trimmed,
    Unavailable,
)
from ares.model.log_messages import ENTRY_BYTES_MAX, PIECE_BYTES
from ares.operation.effects import Operation
from ares.operation.jobs import About
from ares.operation.room import OPERATION_BYTES, UNKNOWN_REPLY_BYTES
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import Reconfigured

Reads = Literal["craq", "cr"]
"""Who answers a read: any server, or the tail alone."""

_FROM_TAIL: dict[str, bool] = {"craq": False, "cr": True}

TURNS_UNTIL_SENT = 3
"""Of the event loop: the task begins, the runner posts, the loop writes. A follower that takes many entries without a pause lets it turn no more."""

Bytes = bytes | bytearray | memoryview
Result = TypeVar("Result")


class LogStat(Struct, frozen=True):
    """``first``: entries are there from this position on. ``tail``: the position that comes next. ``configuration``: the chain in use."""

    log: str
    first: int
    tail: int
    configuration: Configuration


class Log(Domain):
    """A totally ordered log; every method may be called any number of times at once, on the event loop of the connection.

    Appends of one connection stand in the order in which they were called, and each takes effect once. ``timeout_s`` (default: the cluster file's)
    bounds each call; for ``reconfigure`` it bounds a standstill, for ``follow`` how long no server says anything. All raise
    :class:`ares.Unavailable` when too few servers answer in time, and :class:`ares.BadInput` before anything is sent.
    """

    def __init__(
        self,
        runner: Runner,
        session: LogSession,
        timeout_s: float,
        identify: Identify,
        reads: Reads = "craq",
    ) -> None:
        super().__init__(runner, session.view, timeout_s, identify)
        self._session = session
        self._from_tail = _is_cr(reads)
        self._appending, self._reading = About("append", self.name), About("read", self.name)
        self._entry_bytes = UNKNOWN_REPLY_BYTES

    async def close(self) -> None:
        """End what is under way with :class:`ares.model.errors.ConnectionClosed`. The log stays as it is, and may be opened again."""
        await self._runner.stop()

    # -- append ---------------------------------------------------------------------------------------------------------

    def append(
        self, entry: Bytes, *, at: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[int]:
        """Append an entry (0 bytes to 1 MiB); its position. ``await`` it, or go on and await many of them.

        ``at``: only if it gets exactly this position; else :class:`ares.PositionTaken`. Raises :class:`ares.AppendUncertain` if it may be there or
        not. One that is cancelled while it waits for others to be answered is not sent; else it may be there.
        """
        return self._append((checked_entry(entry),), at, timeout_s)

    def append_many(
        self, entries: Iterable[Bytes], *, at: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[int]:
        """Append 1 to 4096 entries, 4 MiB together, wholly or not at all; the position of the first, behind which the others stand."""
        if isinstance(entries, str | bytes | bytearray | memoryview) or not isinstance(
            entries, Iterable
        ):
            raise BadInput(
                f"append_many takes a list of entries, not {type(entries).__name__}; nothing was sent"
            )
        return self._append(tuple([checked_entry(entry) for entry in entries]), at, timeout_s)

    def _append(
        self, entries: tuple[bytes, ...], at: int | None, timeout_s: float | None
    ) -> asyncio.Future[int]:
        check_batch(entries)
        if at is not None:
            check_position(at)
        timeout_s = self._timeout_s if timeout_s is None else self._timeout(timeout_s)
        size = OPERATION_BYTES + (len(entries[0]) if len(entries) == 1 else sum(map(len, entries)))
        return self._runner.begin(self._appending, size, timeout_s, self._start_append, entries, at)

    def _start_append(
        self,
        future: asyncio.Future[int],
        done: Done,
        now: float,
        timeout_s: float,
        entries: tuple[bytes, ...],
        at: int | None,
    ) -> None:
        appender = self._session.appender
        self._session.append(done, now, entries, at, timeout_s)
        if (waiting := appender.waiting) is not None:
            future.add_done_callback(partial(_forget_cancelled, appender, waiting))

    # -- read -----------------------------------------------------------------------------------------------------------

    def read(
        self,
        position: int,
        *,
        uncommitted: bool = False,
        reads: Reads | None = None,
        timeout_s: float | None = None,
    ) -> asyncio.Future[bytes]:
        """The entry at ``position``. Raises :class:`ares.NotWritten` or :class:`ares.Trimmed`.

        ``uncommitted``: what the server has that is asked, which a reconfiguration may take back. ``reads``: "craq" asks any server, "cr" the tail.
        """
        manner = ReadManner(self._from_tail if reads is None else _is_cr(reads), uncommitted)
        return self._begin_read(position, None, timeout_s, manner, self._entry_bytes)

    def read_range(
        self, first: int, upto: int, *, reads: Reads | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[list[tuple[int, bytes]]]:
        """Pairs of positions and committed entries, from ``first`` on, below ``upto``: one at least, and not all if there are no more yet, or more
        than 65,536 or 1 MiB. Raises what :meth:`read` does.
        """
        check_position(first)
        check_position(upto)
        manner = ReadManner(self._from_tail if reads is None else _is_cr(reads))
        return self._begin_read(first, upto, timeout_s, manner, PIECE_BYTES)

    def _begin_read(
        self,
        first: int,
        upto: int | None,
        timeout_s: float | None,
        manner: ReadManner,
        reply_bytes: int,
    ) -> asyncio.Future[Any]:
        check_position(first)
        return self._runner.begin(
            self._reading,
            OPERATION_BYTES + reply_bytes,
            self._timeout(timeout_s),
            self._start_read,
            first,
            upto,
            manner,
        )

    def _start_read(
        self,
        future: asyncio.Future[Any],
        done: Callable[[Any, BaseException | None], None],
        now: float,
        timeout_s: float,
        first: int,
        upto: int | None,
        manner: ReadManner,
    ) -> None:
        def told(result: Any, error: BaseException | None) -> None:
            if upto is None and error is None:
                self._entry_bytes = len(result)
            done(result, error)

        self._session.reads.ask(told, now, first, upto, timeout_s, manner)

    async def tail(self, *, timeout_s: float | None = None) -> int:
        """The position that comes next; linearizable. Raises :class:`ares.LogSealed` when nobody decided how to go on."""
        return await self._started(self._session.operations.tail(), "tail", timeout_s)

    async def follow(
        self, position: int = 0, *, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Pairs of positions and committed entries from ``position`` on, in order, for ever, across reconfigurations. None is skipped.

        One piece of 1 MiB, or one entry, is read ahead at most. Raises :class:`ares.Trimmed` when what comes next is gone.
        """
        follower, patience_s = (
            Follower(self._session.operations, position),
            max(self._timeout(timeout_s), 2 * FOLLOW_S),
        )
        piece = asyncio.ensure_future(self._piece(follower, patience_s))
        try:
            while True:
                first, entries = await piece
                piece = asyncio.ensure_future(self._piece(follower, patience_s))
                for _ in range(TURNS_UNTIL_SENT):
                    await asyncio.sleep(0)
                for pair in enumerate(entries, first):
                    yield pair
        finally:
            piece.cancel()

    async def _piece(self, follower: Follower, patience_s: float) -> tuple[int, tuple[bytes, ...]]:
        """The next entries, however long it takes until there are some, while servers say that there are none."""
        while True:
            heard = follower.heard
            try:
                return await self._started(follower.take(), "follow", patience_s)
            except (Unavailable, LogSealed):
                if follower.heard == heard:
                    raise

    # -- the rest -------------------------------------------------------------------------------------------------------

    async def trim(self, upto: int, *, timeout_s: float | None = None) -> None:
        """Give up the entries below ``upto``: durable at all servers of the chain when it returns. Raises :class:`BadInput` beyond the end."""
        check_position(upto)
        await self._started(self._session.operations.trim(upto), "trim", timeout_s)

    async def stat(self, *, timeout_s: float | None = None) -> LogStat:
        """How far the log goes, and where it is."""
        tail, first = await self.tail(timeout_s=timeout_s), 0
        try:
            await self.read(0, timeout_s=timeout_s)
        except Trimmed as trimmed:
            first = trimmed.upto
        except NotWritten:
            pass
        return LogStat(self.name, first, tail, self._view.sequence.last_known)

    async def reconfigure(
        self,
        configuration: Configuration,
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout_s: float | None = None,
    ) -> Reconfigured:
        """Go on with another chain. Appends wait for a moment, and go on when it is decided; what is older then moves from server to server.

        Raises :class:`ares.ConfigurationRefused` for what is no chain, or if one of its servers does not answer, and
        :class:`ares.ConsensusUnavailable`; in both cases nothing was changed.
        """
        if isinstance(configuration, Configuration) and configuration.dap != "chain":
            raise ConfigurationRefused(
                f"{self.name!r} is a log, and its configurations are chains (Configuration.chain): nothing was changed"
            )
        wished = await self._identify(configuration)
        chain = await self._run(
            self._session.operations.reconfigure(wished),
            f"reconfiguration of {self.name!r}",
            progress,
            timeout_s,
        )
        return Reconfigured(chain, True, 0, 0, 0, [])

    async def operate(
        self,
        make: Callable[[LogOperations], Operation[Result]],
        what: str,
        timeout_s: float | None = None,
    ) -> Result:
        """Run an operation on the log as this client knows it; ``timeout_s`` bounds a standstill."""
        return await self._run(
            make(self._session.operations), f"{what} of {self.name!r}", None, timeout_s
        )

    def _started(
        self, operation: Operation[Result], what: str, timeout_s: float | None
    ) -> Coroutine[Any, Any, Result]:
        self._runner.check_loop()
        return self._runner.run(operation, About(what, self.name), self._timeout(timeout_s))


def _forget_cancelled(appender: Appender, flight: Flight, ended: asyncio.Future[int]) -> None:
    if ended.cancelled():
        appender.forget(flight)


def checked_entry(entry: Bytes) -> bytes:
    """``entry``, if it can be one."""
    if type(entry) is bytes:
        size = len(entry)
    elif isinstance(entry, bytes | bytearray | memoryview):
        size = len(entry := bytes(entry))
    else:
        raise BadInput(f"an entry is bytes, not {type(entry).__name__}; nothing was sent")
    if size > ENTRY_BYTES_MAX:
        raise BadInput(
            f"an entry has at most {ENTRY_BYTES_MAX} bytes, not {size}; nothing was sent. Larger ones go into a file that an entry names"
        )
    return entry


def _is_cr(reads: str) -> bool:
    if reads not in _FROM_TAIL:
        raise BadInput(
            f"reads are answered by any server (craq) or by the tail (cr), not by {reads!r}; nothing was sent"
        )
    return _FROM_TAIL[reads]
