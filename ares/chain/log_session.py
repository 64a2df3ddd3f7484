"""A client's session for one log: appends (ares/chain/appending.py) and other operations, in one inbox and one outbox. No I/O: ``now`` is given."""

from collections.abc import Callable, Sequence
from typing import Any

from ares.chain.appending import APPEND_CALLS, Appender, Done
from ares.chain.log_operations import LogOperations
from ares.model.configuration import Configuration
from ares.model.identity import NO_CALL, ClientId, ServerId
from ares.model.log_messages import Appended
from ares.model.messages import AnyMessage, Introduce, Reason, Refused
from ares.operation.effects import Operation
from ares.operation.session import Session
from ares.reconfig.traversal import find_next_config, read_config
from ares.reconfig.view import Switches, View

REFRESH_S = 0.1
"""Between two looks for a newer chain."""

REFRESH_TIMEOUT_S = 30.0


class LogSession:
    """``first``: a finalized chain of the log. ``new_client``: gives a client id that nobody has. ``session``: what the shell sees to besides this
    one, its asks and hints; operations of ``operations`` are started there.
    """

    def __init__(self, first: Configuration, new_client: Callable[[], ClientId], turn: int = 0, reads_from_tail: bool = False) -> None:
        self.session = Session(turn, self._earlier)
        self.view = View(new_client(), first, Switches(), self.session.readiness)
        self.operations = LogOperations(self.view, turn, reads_from_tail)
        self.appender = Appender(self.view.client, first, new_client)
        self._introduced: list[ServerId] = []
        self._tried: dict[ServerId, tuple[bytes, float]] = {}
        self._refreshing = self._asking_tail = False
        self._refresh_at = 0.0

    def _earlier(self, chain: Configuration) -> tuple[Configuration, ...]:
        """What is introduced together with a chain: all from the last finalized one on."""
        return tuple(other for other in self.view.sequence.active if other.index < chain.index) if chain.dap == "chain" else ()

    @property
    def busy(self) -> bool:
        return self.session.busy or self.appender.busy

    def append(self, entries: Sequence[bytes], now: float, timeout_s: float, done: Done, at: int | None = None) -> None:
        """See :meth:`ares.chain.appending.Appender.submit`."""
        self.appender.submit(entries, at, now, timeout_s, done)
        self._see_to_appender(now)

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Replies from a server."""
        rest: list[Any] = []
        for message in messages:
            if isinstance(message, Appended):
                self.appender.receive(message, now)
            elif isinstance(message, Refused) and message.call >= APPEND_CALLS:
                if message.reason is not Reason.UNKNOWN_CONFIGURATION:
                    self.appender.trouble = f"{server} refused it: {message.detail}"
                else:
                    self._introduce_to(server, now)
            else:
                if isinstance(message, Refused) and message.call == NO_CALL:
                    self.appender.trouble = f"{server} refused it: {message.detail}"
                rest.append(message)
        if rest:
            self.session.receive(server, rest, now)
        if self._introduced:
            self.appender.send_all_again(now)
        self._see_to_appender(now)

    def _introduce_to(self, server: ServerId, now: float) -> None:
        """Again only after a while: a server whose disk is full refuses that, too."""
        chain, until = self._tried.get(server, (b"", 0.0))
        if server not in self._introduced and (chain != self.appender.chain.id or now >= until):
            self._tried[server] = (self.appender.chain.id, now + REFRESH_S)
            self._introduced.append(server)

    def take_outbox(self) -> dict[ServerId, list[AnyMessage]]:
        """What is to be posted, leaving nothing."""
        outbox: dict[ServerId, list[Any]] = dict(self.session.take_outbox())
        chain = self.appender.chain
        for server in self._introduced:
            outbox.setdefault(server, []).append(Introduce(NO_CALL, chain, self._earlier(chain)))
        self._introduced.clear()
        appends, self.appender.outbox = self.appender.outbox, []
        if appends:
            outbox.setdefault(chain.server_ids[0], []).extend(appends)
        return outbox

    def tick(self, now: float) -> None:
        """Let time pass."""
        self.session.tick(now)
        self.appender.tick(now)
        self._see_to_appender(now)

    def _see_to_appender(self, now: float) -> None:
        """Look for a newer chain where appends do not go on; ask for the tail for a conditional append."""
        appender, last = self.appender, self.view.sequence.last_known
        if last.index > appender.chain.index:
            appender.moved(last, now)
        if appender.stalled and not self._refreshing and now >= self._refresh_at:
            self._refreshing, self._refresh_at, appender.stalled = True, now + REFRESH_S, False
            self.session.start(self._refresh(), "look for the newest chain", now, REFRESH_TIMEOUT_S, self._refreshed)
        if appender.wants_tail and not self._asking_tail:
            self._asking_tail = True
            self.session.start(self.operations.tail(), "tail", now, REFRESH_TIMEOUT_S, lambda tail, error: self._tail_known(tail, error, now))

    def _refresh(self) -> Operation[None]:
        heard, chain = self.appender.heard, self.appender.chain
        if heard is not None:
            yield from find_next_config(self.view, chain, heard)
        yield from read_config(self.view)

    def _refreshed(self, result: Any, error: BaseException | None) -> None:
        self._refreshing = False
        self.appender.stalled |= error is not None

    def _tail_known(self, tail: int | None, error: BaseException | None, now: float) -> None:
        self._asking_tail = False
        if tail is not None:
            self.appender.tail_known(tail, now)
