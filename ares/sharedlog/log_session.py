"""A client's session for a log: appends and operations, with a single inbox and outbox.

Appends: ares/sharedlog/appending.py. No I/O: the caller gives the time as ``now``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from ares.engine.effects import Operation
from ares.engine.recording import Recording
from ares.engine.session import Session
from ares.model.codec import Frame, decode_replies
from ares.model.configuration import Configuration
from ares.model.errors import NotAuthorized, Unavailable, Uncertain
from ares.model.identity import CallId, ClientId, ServerId
from ares.model.log_messages import Appended, EachRead, LogEntries
from ares.model.messages import AnyMessage, Introduce, Reason, Refused
from ares.reconfig.traversal import find_next_config, read_config
from ares.reconfig.view import Switches, View
from ares.sharedlog.appending import APPEND_CALLS, AWAIT_CALLS, Appender, Done
from ares.sharedlog.log_operations import LogOperations
from ares.sharedlog.log_reconfiguration import LogReconfiguration
from ares.sharedlog.quick_reads import READ_CALLS, QuickReads

CHAIN_REFRESH_S = 0.1
"""Seconds between two looks for a newer chain."""

CHAIN_REFRESH_TIMEOUT_S = 30.0


class LogSession:
    """The session of a client with a log. ``first``: a finalized chain of the log.

    ``new_client`` gives a client id that no client has. ``session``: the asks and hints that the
    shell handles in addition to this session; operations of ``operations`` and steps of
    ``reconfiguration`` are started in ``session``. ``secret``: see
    :class:`ares.sharedlog.appending.Appender`.
    """

    def __init__(
        self,
        first: Configuration,
        new_client: Callable[[], ClientId],
        turn: int = 0,
        reads_from_tail: bool = False,
        trust_s: float = inf,
        secret: bytes = b"",
    ) -> None:
        self.session = Session(turn, self._earlier)
        self.view = View(new_client(), first, Switches(), self.session.readiness)
        self.operations = LogOperations(self.view, turn, reads_from_tail)
        self.reconfiguration = LogReconfiguration(self.operations)
        self.appender = Appender(self.view.client, first, new_client, trust_s, secret)
        self.reads = QuickReads(self.operations, self.session)
        self._full: dict[ServerId, str] = {}
        self._introduced: list[ServerId] = []
        self._introduced_at = 0
        self._refreshing = self._asking_tail = False
        self._refresh_at = 0.0

    def _earlier(self, chain: Configuration) -> tuple[Configuration, ...]:
        """Return the chains introduced with ``chain``: from the last finalized chain on."""
        return (
            tuple(other for other in self.view.sequence.active if other.index < chain.index)
            if chain.dap == "chain"
            else ()
        )

    @property
    def busy(self) -> bool:
        return self.session.busy or self.appender.busy or self.reads.busy

    @property
    def has_orders(self) -> bool:
        """Return whether the outbox has messages.

        As :attr:`ares.engine.session.Session.has_orders`.
        """
        return bool(self.appender.has_orders or self._introduced or self.session.has_orders)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every operation and append with an error of its own."""
        self.session.close(error)
        self.appender.close(error)
        self.reads.close(error)

    def append(
        self, done: Done, now: float, entries: Sequence[bytes], at: int | None, timeout_s: float
    ) -> None:
        """See :meth:`ares.sharedlog.appending.Appender.submit`."""
        self.appender.submit(done, now, entries, at, timeout_s)
        if self.appender.wants_tail:
            self._see_to_appender(now)

    def began(self, recording: Recording, what: str) -> None:
        """Record the beginning of an append or a quick read, which is for the chain."""
        recording.waits_for_chain(what, self.appender.chain)

    def receive_frames(self, server: ServerId, frames: Sequence[Frame], now: float) -> None:
        """Take an undecoded batch of replies.

        Raises :class:`ares.model.errors.BadMessage`; no part of a bad batch is used.
        """
        self.receive(server, decode_replies(frames), now)

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Take the replies of a server."""
        rest: list[Any] = []
        for message in messages:
            if isinstance(message, Appended):
                self.appender.receive(message, now)
            elif message.call < READ_CALLS:
                rest.append(message)
            elif isinstance(message, LogEntries | EachRead):
                self.reads.receive(server, message, now)
            elif isinstance(message, Refused):
                self._refused(server, message, now)
        if rest:
            self.session.receive(server, rest, now)
        self._see_to_appender(now)

    def _refused(self, server: ServerId, refusal: Refused, now: float) -> None:
        """Handle the refusal of an append or of a quick read."""
        if refusal.call >= AWAIT_CALLS:  # the head answers every append
            return
        if refusal.call < APPEND_CALLS:
            self.reads.refused(refusal.call, now)
            return
        match refusal.reason:
            case Reason.UNKNOWN_CONFIGURATION if refusal.call > self._introduced_at:
                # refusals of copies sent before say nothing new
                self._introduced_at = self.appender.calls
                self._introduced.append(server)
                self.appender.send_all_again(now)
            case Reason.NOT_AUTHORIZED:
                story = f"append to log {self.view.domain!r}"
                self.appender.refused(
                    refusal.call,
                    partial(NotAuthorized, f"{server}: {refusal.detail}", story, True),
                    now,
                )
            case Reason.STORAGE | Reason.BAD_REQUEST:
                story = f"append to log {self.view.domain!r}"
                self.appender.refused(
                    refusal.call, partial(Unavailable, 1, 0, {server: refusal.detail}, story), now
                )
            case _:  # the server changed: a newer chain may exist
                self.appender.stalled = True

    def take_letters(self) -> dict[ServerId, list[AnyMessage]]:
        """Return the messages to be sent, by server, and empty the outbox."""
        outbox: dict[ServerId, list[Any]] = dict(self.session.take_outbox())
        chain = self.appender.chain
        for server in self._introduced:
            # a server which cannot keep the log refuses the newest append with this call
            call = CallId(self.appender.calls)
            outbox.setdefault(server, []).append(Introduce(call, chain, self._earlier(chain)))
        self._introduced.clear()
        for server, asked in self.reads.take_outbox().items():
            outbox.setdefault(server, []).extend(asked)
        if appends := self.appender.take_outbox():
            outbox.setdefault(chain.server_ids[0], []).extend(appends)
        if awaits := self.appender.take_awaits():
            outbox.setdefault(chain.server_ids[-1], []).extend(awaits)
        return outbox

    def tick(self, now: float) -> None:
        """Let time pass."""
        self.session.tick(now)
        self.appender.tick(now, {**self.session.troubles, **self._full})
        self.reads.tick(now)
        self._see_to_appender(now)

    def _see_to_appender(self, now: float) -> None:
        """Look for a newer chain if appends stand still.

        Ask for the tail if a conditional append waits for the tail.
        """
        appender, last = self.appender, self.view.sequence.last_known
        if last.index > appender.chain.index:
            self.session.contacts.extend(last.servers)
            appender.moved(last, now)
        if appender.stalled and not self._refreshing and now >= self._refresh_at:
            self._refreshing, self._refresh_at, appender.stalled = (
                True,
                now + CHAIN_REFRESH_S,
                False,
            )
            self.session.start(
                self._refresh(),
                "look for the newest chain",
                now,
                CHAIN_REFRESH_TIMEOUT_S,
                self._refreshed,
            )
        if appender.wants_tail and not self._asking_tail:
            self._asking_tail = True
            self.session.start(
                self.operations.tail(),
                "tail",
                now,
                CHAIN_REFRESH_TIMEOUT_S,
                lambda tail, error: self._tail_known(tail, error, now),
            )

    def _refresh(self) -> Operation[None]:
        heard, chain = self.appender.heard, self.appender.chain
        if heard is not None:
            yield from find_next_config(self.view, chain, heard)
        yield from read_config(self.view)
        self._full = yield from self.reconfiguration.full_servers()

    def _refreshed(self, result: Any, error: BaseException | None) -> None:
        self._refreshing = False
        self.appender.stalled |= error is not None

    def _tail_known(self, tail: int | None, error: BaseException | None, now: float) -> None:
        self._asking_tail = False
        if tail is not None:
            self.appender.tail_known(tail, now)
