"""A log, as users hold it: a domain whose configurations are chains (docs/log.md).

An append or a read costs a future, and no task, no timer and no operation, unless an answer makes
one necessary. Messages produced in one tick of the event loop are posted together.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Literal, TypeVar

from msgspec import Struct

from ares.client.domain import Domain, Identify
from ares.client.runner import Runner
from ares.engine.effects import Operation
from ares.engine.jobs import OperationLabel
from ares.engine.room import OPERATION_BYTES, UNKNOWN_REPLY_BYTES
from ares.model.configuration import Configuration
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    LogSealed,
    NotWritten,
    Trimmed,
    Unavailable,
)
from ares.model.log_messages import ENTRY_BYTES_MAX, LOG_PIECE_BYTES
from ares.reconfig.mover import Progress
from ares.reconfig.reconfigure import ReconfigurationResult
from ares.sharedlog.appending import Appender, Done, Flight
from ares.sharedlog.entries import check_batch
from ares.sharedlog.log_operations import FOLLOW_S, Follower, check_position
from ares.sharedlog.log_reconfiguration import LogReconfiguration
from ares.sharedlog.log_session import LogSession
from ares.sharedlog.quick_reads import ReadOptions

Reads = Literal["craq", "cr"]
"""The servers that answer a read: any server, or the tail alone."""

_FROM_TAIL: dict[str, bool] = {"craq": False, "cr": True}

TURNS_UNTIL_SENT = 3
"""Turns of the event loop: the task begins, the runner posts, the loop writes.

A follower that takes many entries without a pause gives the loop no further turn.
"""

Bytes = bytes | bytearray | memoryview
Result = TypeVar("Result")


class LogStat(Struct, frozen=True):
    """The state of a log. ``first``: the position of the first entry left.

    ``tail``: the next position. ``configuration``: the chain in use.
    """

    log: str
    first: int
    tail: int
    configuration: Configuration


class Log(Domain):
    """A totally ordered log. Any number of calls may run at once, on the connection's event loop.

    Appends of a connection stand in the order of the calls, and each takes effect once.
    ``timeout_s`` (default: the cluster file's) bounds each call; for ``reconfigure`` it bounds a
    standstill, for ``follow`` the time without any answer. All methods raise
    :class:`ares.Unavailable` when too few servers answer in time, and :class:`ares.BadInput` before
    a message is sent.
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
        self._appending, self._reading = (
            OperationLabel("append", self.name),
            OperationLabel("read", self.name),
        )
        self._entry_bytes = UNKNOWN_REPLY_BYTES

    async def close(self) -> None:
        """End all calls with :class:`ares.model.errors.ConnectionClosed`.

        The log stays as it is, and may be opened again.
        """
        await self._runner.stop()

    # -- append ------------------------------------------------------------------------------------

    def append(
        self, entry: Bytes, *, at: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[int]:
        """Append an entry (0 bytes to 1 MiB) and return its position, as a future.

        A caller may await the future, or continue and await many futures. ``at``: append only at
        exactly this position, else raise :class:`ares.PositionTaken`. Raises
        :class:`ares.AppendUncertain` if the entry may or may not be in the log. An append cancelled
        while it waits for earlier answers is not sent; any other cancelled append may be in the
        log.
        """
        return self._append((checked_entry(entry),), at, timeout_s)

    def append_many(
        self, entries: Iterable[Bytes], *, at: int | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[int]:
        """Append 1 to 4096 entries, 4 MiB together, wholly or not at all.

        Returns the position of the first entry; the remaining entries follow at consecutive
        positions.
        """
        if isinstance(entries, str | bytes | bytearray | memoryview) or not isinstance(
            entries, Iterable
        ):
            raise BadInput(
                f"append_many takes a list of entries, not {type(entries).__name__}; nothing was "
                "sent"
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

    # -- read --------------------------------------------------------------------------------------

    def read(
        self,
        position: int,
        *,
        uncommitted: bool = False,
        reads: Reads | None = None,
        timeout_s: float | None = None,
    ) -> asyncio.Future[bytes]:
        """Return the entry at ``position``.

        ``uncommitted``: return the entry of the asked server, which a reconfiguration may take
        back. ``reads``: "craq" asks any server, "cr" the tail. Raises :class:`ares.NotWritten` or
        :class:`ares.Trimmed`.
        """
        manner = ReadOptions(self._from_tail if reads is None else _is_cr(reads), uncommitted)
        return self._begin_read(position, None, timeout_s, manner, self._entry_bytes)

    def read_range(
        self, first: int, upto: int, *, reads: Reads | None = None, timeout_s: float | None = None
    ) -> asyncio.Future[list[tuple[int, bytes]]]:
        """Return pairs of positions and committed entries, from ``first`` on, below ``upto``.

        At least one pair is returned. Fewer than all are returned if the log ends, or beyond 65,536
        entries or 1 MiB. Raises the errors of :meth:`read`.
        """
        check_position(first)
        check_position(upto)
        manner = ReadOptions(self._from_tail if reads is None else _is_cr(reads))
        return self._begin_read(first, upto, timeout_s, manner, LOG_PIECE_BYTES)

    def _begin_read(
        self,
        first: int,
        upto: int | None,
        timeout_s: float | None,
        manner: ReadOptions,
        reply_bytes: int,
    ) -> asyncio.Future[Any]:
        check_position(first)
        return self._runner.begin(
            self._reading,
            OPERATION_BYTES + reply_bytes,
            self._timeout(timeout_s),
            self._start_read,
            (first, upto),
            manner,
        )

    def _start_read(
        self,
        future: asyncio.Future[Any],
        done: Callable[[Any, BaseException | None], None],
        now: float,
        timeout_s: float,
        positions: tuple[int, int | None],
        manner: ReadOptions,
    ) -> None:
        first, upto = positions

        def finish(result: Any, error: BaseException | None) -> None:
            if upto is None and error is None:
                self._entry_bytes = len(result)
            done(result, error)

        self._session.reads.ask(finish, now, first, upto, timeout_s, manner)

    async def tail(self, *, timeout_s: float | None = None) -> int:
        """Return the next position; linearizable.

        Raises :class:`ares.LogSealed` when the chain is sealed and no next chain is decided.
        """
        return await self._started(self._session.operations.tail(), "tail", timeout_s)

    async def follow(
        self, position: int = 0, *, timeout_s: float | None = None
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield positions and committed entries from ``position`` on, in order, without end.

        The iterator continues across reconfigurations and skips no entry. At most one piece of 1
        MiB, or one entry, is read ahead. Raises :class:`ares.Trimmed` when the next entry is gone.
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
        """Return the next entries.

        The wait has no limit while servers answer that the log has no more entries.
        """
        while True:
            heard = follower.heard
            try:
                return await self._started(follower.take(), "follow", patience_s)
            except (Unavailable, LogSealed):
                if follower.heard == heard:
                    raise

    # -- the remaining methods ---------------------------------------------------------------------

    async def trim(self, upto: int, *, timeout_s: float | None = None) -> None:
        """Give up the entries below ``upto``, durably at all servers of the chain.

        Raises :class:`BadInput` beyond the end.
        """
        check_position(upto)
        await self._started(self._session.operations.trim(upto), "trim", timeout_s)

    async def stat(self, *, timeout_s: float | None = None) -> LogStat:
        """Return the first position, the tail and the chain of the log."""
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
    ) -> ReconfigurationResult:
        """Continue the log with another chain.

        Appends wait for a moment, and continue when the chain is decided; older entries move from
        server to server afterwards. Raises :class:`ares.ConfigurationRefused` for any configuration
        but a chain, or if a server of the chain does not answer, and
        :class:`ares.ConsensusUnavailable`; in both cases the log stays unchanged.
        """
        if isinstance(configuration, Configuration) and configuration.dap != "chain":
            raise ConfigurationRefused(
                f"{self.name!r} is a log, and its configurations are chains "
                "(Configuration.chain): nothing was changed"
            )
        wished = await self._identify(configuration)
        chain = await self._run(
            self._session.reconfiguration.reconfigure(wished),
            f"reconfiguration of {self.name!r}",
            progress,
            timeout_s,
        )
        return ReconfigurationResult(chain, True, 0, 0, 0, [])

    async def run_step(
        self,
        make: Callable[[LogReconfiguration], Operation[Result]],
        what: str,
        timeout_s: float | None = None,
    ) -> Result:
        """Run a step of a reconfiguration by this client; ``timeout_s`` bounds a standstill."""
        return await self._run(
            make(self._session.reconfiguration), f"{what} of {self.name!r}", None, timeout_s
        )

    def _started(
        self, operation: Operation[Result], what: str, timeout_s: float | None
    ) -> Coroutine[Any, Any, Result]:
        self._runner.check_loop()
        return self._runner.run(
            operation, OperationLabel(what, self.name), self._timeout(timeout_s)
        )


def _forget_cancelled(appender: Appender, flight: Flight, ended: asyncio.Future[int]) -> None:
    if ended.cancelled():
        appender.forget(flight)


def checked_entry(entry: Bytes) -> bytes:
    """Return ``entry`` as bytes. Raises :class:`BadInput` if an append cannot take it."""
    if type(entry) is bytes:
        size = len(entry)
    elif isinstance(entry, bytes | bytearray | memoryview):
        size = len(entry := bytes(entry))
    else:
        raise BadInput(f"an entry is bytes, not {type(entry).__name__}; nothing was sent")
    if size > ENTRY_BYTES_MAX:
        raise BadInput(
            f"an entry has at most {ENTRY_BYTES_MAX} bytes, not {size}; nothing was sent. Put "
            "larger data into a file, and append the file's name"
        )
    return entry


def _is_cr(reads: str) -> bool:
    if reads not in _FROM_TAIL:
        raise BadInput(
            f"reads are answered by any server (craq) or by the tail (cr), not by {reads!r}; "
            "nothing was sent"
        )
    return _FROM_TAIL[reads]
