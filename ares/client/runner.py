"""The runner of a session on the asyncio event loop: clock, connections, consensus service.

Everything that operations produce within one tick of the loop is posted together. An operation has
no task and no timer: it has a future, and one tick serves all operations.

The session's time is the time of the machine's monotonic clock, like the loop's; but uvloop's time
goes in steps of a millisecond, longer than a round takes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence, Set
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from ares.consensus.port import Consensus
from ares.engine.effects import Agree, Announce, Operation
from ares.engine.jobs import Key, OperationLabel, Task
from ares.engine.port import ClientSession
from ares.engine.room import Room, Waiter
from ares.engine.session import SESSION_TICK_S, Session
from ares.model.codec import Frame
from ares.model.configuration import Configuration, Server
from ares.model.errors import (
    AresError,
    BadInput,
    ConnectionClosed,
    ConsensusUnavailable,
    NotAuthorized,
)
from ares.model.identity import NO_DOMAIN, VALUE_BYTES_DEFAULT, ClientId, DomainName, ServerId
from ares.model.messages import AnyMessage
from ares.net.port import Connections, FramedConnections
from ares.platform import tasks
from ares.tracing.tracer import Tracer

MANY_OPERATIONS = 8
"""Number of operations under way beyond which replies arrive while further operations begin."""

HINT_TIMEOUT_S = 2.0
HINT_ATTEMPTS = 3
"""Attempts of a hint. An operation without answers ends when the attempts bring no hint.

The consensus service may be electing a leader at that moment.
"""

ASKING = "asking the consensus service"

Result = TypeVar("Result")

log = logging.getLogger(__name__)


def unreported(progress: object) -> None:
    """Take a report of progress, and tell no caller."""


class Runner:
    """The runner of a client's operations. Callers need only ``run``.

    ``client``: the proposer in decisions. ``tracer``: selects the traced operations; None: no
    tracing. ``session``: runs the operations. ``around``: a session around ``session``, with the
    messages of both. ``look_near`` finds a finalized configuration of a domain without the
    consensus service, which may be far away. ``value_bytes``: bytes of the largest value that the
    cluster takes.
    """

    def __init__(
        self,
        client: ClientId,
        connections: Connections,
        consensus: Consensus,
        tracer: Tracer | None = None,
        session: Session | None = None,
        around: ClientSession | None = None,
    ) -> None:
        self._tracer = tracer
        self.session = session or Session(int(client))
        self._whole: ClientSession = around or self.session
        self.room = Room(lambda: self.session.under_way)
        self._client = client
        self._connections = connections
        self._framed = connections if isinstance(connections, FramedConnections) else None
        self._consensus = consensus
        self._loop = asyncio.get_running_loop()
        self.create_future = self._loop.create_future
        self.look_near: Callable[[DomainName], Awaitable[Configuration | None]] | None = None
        self.value_bytes = VALUE_BYTES_DEFAULT
        self._closed = False
        self._pumping = False
        self._ticking = False
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = 0.0
        self._helpers: set[asyncio.Task[None]] = set()
        if self._framed is not None:
            self._framed.deliver_frames = self._deliver_frames
        connections.open(self._deliver)
        self.session.troubles = connections.troubles
        self.session.connected_s = connections.connected_s
        self.session.receiving = connections.receiving
        self.session.sending = connections.sending

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def traces(self) -> bool:
        """Return whether operations may be traced."""
        return self._tracer is not None

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        """Return the known reasons why servers cannot be reached."""
        return self._connections.troubles

    @property
    def over_sockets(self) -> Set[ServerId]:
        """Return the servers reached over Unix sockets of this host."""
        return self._connections.over_sockets

    def learn(self, servers: Sequence[Server]) -> None:
        """Learn addresses of the cluster file, which overrule addresses in configurations."""
        for server in servers:
            self._connections.learn(server.id, server.address)

    async def run(
        self,
        operation: Operation[Result],
        label: object,
        timeout_s: float,
        *,
        key: Key | None = None,
        progress: Callable[[Any], None] | None = None,
        size: int = 0,
    ) -> Result:
        """Return the operation's result, or raise its error.

        Cancelling ends the operation; a write may have taken effect or not. With ``progress``,
        which is called with the operation's reports, ``timeout_s`` bounds a standstill, not the
        whole. ``size``: bytes of room for which the operation waits; 0: no wait, because the
        operation may free a cluster. Raises :class:`BadInput` on an event loop other than the
        connection's.
        """
        self.check_loop()
        if self._closed:
            raise ConnectionClosed(begun=False)
        if size:
            timeout_s = await self.enter(size, label, timeout_s)
            try:
                return await self.run(operation, label, timeout_s, key=key, progress=progress)
            finally:
                self.room.leave(size)
        tracer = self._tracer
        traced = None if tracer is None else tracer.begin(label)
        future: asyncio.Future[Result] = self._loop.create_future()
        job = self.session.start(
            operation,
            label,
            monotonic(),
            timeout_s,
            partial(_settle, future),
            idle=progress is not None,
            key=key,
            progress=progress,
            recording=None if traced is None else traced.recording,
        )
        self.schedule()
        try:
            result = await future
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self.session.cancel(job)
            if tracer is not None and traced is not None:
                tracer.end(traced, None, error)
            raise
        if tracer is not None and traced is not None:
            tracer.end(traced, result, None)
        return result

    async def enter(self, size: int, label: object, timeout_s: float) -> float:
        """Take room for ``size`` bytes, which the caller gives back. Return the time left.

        Raises :class:`Unavailable` without room in time.
        """
        self.check_loop()
        if self._closed:
            raise ConnectionClosed(begun=False)
        room = self.room
        if room.enter(size):
            return timeout_s
        deadline = monotonic() + timeout_s
        future: asyncio.Future[None] = self._loop.create_future()
        waiter = room.wait(size, deadline, label, _let_in, future)
        self.schedule()
        try:
            await future
        except BaseException:
            room.give_up(waiter)
            raise
        return max(deadline - monotonic(), SESSION_TICK_S)

    def begin(
        self,
        label: OperationLabel,
        size: int,
        timeout_s: float,
        start: Callable[..., object],
        *arguments: Any,
    ) -> asyncio.Future[Any]:
        """Return a future for the result of ``start(future, done, now, timeout_s, *arguments)``.

        The operation costs no task, and starts when ``size`` bytes have room. ``label`` names the
        operation in a trace. Raises :class:`BadInput` on an event loop other than the connection's.
        """
        self.check_loop()
        if self._closed:
            raise ConnectionClosed(begun=False)
        future: asyncio.Future[Any] = self._loop.create_future()
        room, now = self.room, monotonic()
        if room.waiting or (room.taken and room.taken + size > room.limit):
            deadline = now + timeout_s
            waiter = room.wait(size, deadline, label, self._entered, future, start, arguments)
            future.add_done_callback(waiter.give_up)
            self.schedule()
            return future
        room.taken += size
        done: Callable[[Any, BaseException | None], None]
        done = partial(_settle_and_leave, room, size, future)
        if self._tracer is not None:
            done = self._done(label, size, future)
        try:
            start(future, done, now, timeout_s, *arguments)
        except BaseException:
            room.leave(size)
            raise
        self.schedule()
        return future

    def _done(
        self, label: OperationLabel, size: int, future: asyncio.Future[Any]
    ) -> Callable[[Any, BaseException | None], None]:
        """Return the function to be called once, at the end of the operation."""
        if self._tracer is not None and (traced := self._tracer.begin(label)) is not None:
            self._whole.began(traced.recording, label.what)
            end = partial(self._tracer.end, traced)
            return partial(_settle_traced, self.room, size, future, end)
        return partial(_settle_and_leave, self.room, size, future)

    def _entered(self, waiter: Waiter, error: BaseException | None) -> None:
        """Continue an operation of :meth:`begin` that waited, with its room or with an error."""
        future, start, label = waiter.future, waiter.start, waiter.label
        assert start is not None, "an operation of begin"
        assert isinstance(label, OperationLabel), "an operation of begin"
        if error is not None:
            return _settle(future, None, error)
        now = monotonic()
        done = self._done(label, waiter.size, future)
        try:
            start(future, done, now, max(waiter.deadline - now, SESSION_TICK_S), *waiter.arguments)
        except AresError as failure:
            done(None, failure)
        self.schedule()
        return None

    def check_loop(self) -> None:
        """Check the event loop. Raises :class:`BadInput` if the runner was made on another loop."""
        if asyncio._get_running_loop() is not self._loop:
            raise BadInput(
                "a connection is used on the event loop where it was made: connect there, or use "
                "ares.connect_blocking; nothing was sent"
            )

    async def close(self) -> None:
        """Stop as :meth:`stop` does, and release the consensus service and the tracer."""
        await self.stop()
        await self._consensus.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)

    async def stop(self) -> None:
        """End all operations with :class:`ConnectionClosed`; close every connection; idempotent."""
        self._closed = True
        self.room.close(partial(ConnectionClosed, begun=False))
        self._whole.close(ConnectionClosed)
        if self._alarm is not None:
            self._alarm.cancel()
        for helper in self._helpers:
            helper.cancel()
        await asyncio.gather(*self._helpers, return_exceptions=True)
        await self._connections.close()

    def _deliver(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        self._whole.receive(server, messages, monotonic())
        if not self._pumping and self._whole.has_orders:
            self.schedule()

    def _deliver_frames(self, server: ServerId, frames: Sequence[Frame]) -> None:
        self._whole.receive_frames(server, frames, monotonic())
        if self.room.waiting:
            self.room.admit()
        if not self._pumping and self._whole.has_orders:
            self.schedule()

    def schedule(self) -> None:
        """Handle the session's wishes soon.

        If many operations are under way, two turns of the loop later, so that more messages leave
        together.
        """
        if not self._pumping:
            self._pumping = True
            if self.session.under_way < MANY_OPERATIONS:
                self._loop.call_soon(self._pump)
            else:
                self._loop.call_soon(self._loop.call_soon, self._loop.call_soon, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        session = self.session
        if session.contacts:
            contacts, session.contacts = session.contacts, []
            self.learn(contacts)
        for server, letter in self._whole.take_letters().items():
            if isinstance(letter, list):
                self._connections.post(server, letter)
            elif self._framed is not None:
                self._framed.post_frame(server, letter)
        if session.asks:
            asks, session.asks = session.asks, []
            for what, task in asks:
                self._help(self._consult(what, task))
        if session.hints:
            hints, session.hints = session.hints, []
            for domain in hints:
                self._help(self._hint(domain))
        if not self._ticking and (self._whole.busy or self.room.waiting):
            self._ticking = True
            self._loop.call_later(SESSION_TICK_S, self._tick)
        if (at := session.wakes_at) is not None:
            self._set_alarm(at)

    def _set_alarm(self, at: float) -> None:
        """Set the alarm for the next pause.

        With the alarm an operation continues when its pause ends, and not some steps at every tick.
        """
        if self._alarm is None or at < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = at
            self._alarm = self._loop.call_at(at, self._wake, at)

    def _wake(self, due: float) -> None:
        self._alarm = None
        # uvloop counts milliseconds, and may call a part of a millisecond too early
        self.session.wake(max(due, monotonic()))
        self.schedule()

    def _tick(self) -> None:
        self._ticking = False
        with tasks.supervised("timer of operations"):
            now = monotonic()
            self.room.tick(now)
            self._whole.tick(now)
        self.schedule()

    def _help(self, work: Coroutine[Any, Any, None]) -> None:
        helper = tasks.begin(work, ASKING)
        self._helpers.add(helper)
        helper.add_done_callback(self._helpers.discard)

    async def _hint(self, domain: DomainName) -> None:
        newer = None
        with tasks.supervised(ASKING):
            newer = await self._newer(domain)
        self.session.hinted(domain, newer, monotonic())
        self.schedule()

    async def _newer(self, domain: DomainName) -> Configuration | None:
        """Return a finalized configuration of the domain, or None without an answer."""
        newer = None
        if self.look_near is not None and domain != NO_DOMAIN:
            newer = await self.look_near(domain)
            if newer is not None:
                self.session.redirect(domain, newer, monotonic())
                self.schedule()
        for _ in range(HINT_ATTEMPTS):
            try:
                return await self._consensus.hint(domain, HINT_TIMEOUT_S)
            except (ConsensusUnavailable, NotAuthorized) as error:
                log.debug("no hint for %s: %s", domain, error)
                if isinstance(error, NotAuthorized):
                    break
        return newer

    async def _consult(self, what: Agree | Announce, task: Task) -> None:
        timeout_s = task.job.timeout_s
        try:
            if isinstance(what, Agree):
                decided = await self._consensus.propose(what.configuration, self._client, timeout_s)
                self.session.resume(task, decided, monotonic())
            else:
                known = await self._consensus.tell_finalized(
                    what.configuration, min(timeout_s, HINT_TIMEOUT_S)
                )
                self.session.resume(task, known or not what.must, monotonic())
        except AresError as error:
            if (
                isinstance(what, Announce)
                and not what.must
                and isinstance(error, ConsensusUnavailable | NotAuthorized)
            ):
                log.warning(
                    "the consensus service did not hear that index %d is finalized: %s",
                    what.configuration.index,
                    error,
                )
                self.session.resume(task, False, monotonic())
            else:
                self.session.fail(task, error, monotonic())
        except Exception as error:
            tasks.failures.report(ASKING, error)
            self.session.fail(task, ConsensusUnavailable(tasks.MISTAKE), monotonic())
        self.schedule()


def _settle(future: asyncio.Future[Result], result: Result, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _settle_and_leave(
    room: Room, size: int, future: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    if not future.done():
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
    room.taken -= size
    if room.waiting:
        room.admit()


def _settle_traced(
    room: Room,
    size: int,
    future: asyncio.Future[Any],
    end: Callable[[Any, BaseException | None], None],
    result: Any,
    error: BaseException | None,
) -> None:
    end(result, error)
    _settle_and_leave(room, size, future, result, error)


def _let_in(waiter: Waiter, error: BaseException | None) -> None:
    """End the wait of :meth:`Runner.enter`."""
    _settle(waiter.future, None, error)
