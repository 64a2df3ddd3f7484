"""The ports of a session: its fast path below, and its runner above."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ares.model.codec import Frame, decode_replies
from ares.model.errors import Uncertain
from ares.model.identity import CallId, DomainName, ObjectName, ServerId
from ares.model.messages import AnyMessage

if TYPE_CHECKING:
    from ares.engine.recording import Recording

Letter = list[AnyMessage] | Frame
"""The post for a server: messages, or the only frame of a batch of requests."""


class JobSession(Protocol):
    """A session as its fast path calls it."""

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Take replies of a server, of the fast path or of jobs."""

    def take(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Take replies to rounds of jobs."""


class FastPath(Protocol):
    """Small operations of a session that run outside its jobs.

    Calls, the order of servers, tags and the outbox are the session's. Before an unusual event
    takes effect, the operation goes to :meth:`ares.engine.session.Session.take_over`.
    """

    @property
    def under_way(self) -> int:
        """Number of operations begun and not ended."""

    def letter(
        self, outbox: dict[ServerId, list[AnyMessage]], server: ServerId, /
    ) -> list[AnyMessage]:
        """Return the list of messages for ``server``, with the messages of the fast path."""

    def take(self, outbox: dict[ServerId, Letter], sent: dict[ServerId, CallId], /) -> None:
        """Move the other messages into ``outbox``, and record the last call sent to each server."""

    def feed(
        self, session: JobSession, server: ServerId, frames: Sequence[Frame], now: float, /
    ) -> None:
        """Take a batch of replies; give the session the replies to its rounds.

        Raises :class:`ares.model.errors.BadMessage`; no part of a bad batch is used.
        """

    def calls(self) -> Sequence[int]:
        """Return the calls of the rounds under way, in order."""

    def age(self, session: JobSession, call: int, now: float, hedge_after_s: float, /) -> None:
        """Let time pass for the round of a call of the fast path."""

    def hand_over(self, session: JobSession, call: int, /) -> None:
        """Give the operation of a call to the session; do nothing for a call of the session."""

    def hand_over_writes(
        self, session: JobSession, domain: DomainName, object: ObjectName, /
    ) -> None:
        """Give the writes of an object to the session."""

    def hand_over_overdue(self, session: JobSession, now: float, /) -> None:
        """Give the operations past their deadline to the session."""

    def hand_over_for(self, session: JobSession, done: object, /) -> None:
        """Give the operation of ``done`` to the session."""

    def close(self) -> None:
        """Begin no operation from now on."""


class NoFastPath:
    """The fast path without operations: the session runs every operation."""

    under_way = 0

    def letter(
        self, outbox: dict[ServerId, list[AnyMessage]], server: ServerId, /
    ) -> list[AnyMessage]:
        return outbox[server]

    def take(self, outbox: dict[ServerId, Letter], sent: dict[ServerId, CallId], /) -> None: ...

    def feed(
        self, session: JobSession, server: ServerId, frames: Sequence[Frame], now: float, /
    ) -> None:
        session.receive(server, decode_replies(frames), now)

    def calls(self) -> Sequence[int]:
        return ()

    def age(self, session: JobSession, call: int, now: float, hedge_after_s: float, /) -> None: ...
    def hand_over(self, session: JobSession, call: int, /) -> None: ...
    def hand_over_writes(
        self, session: JobSession, domain: DomainName, object: ObjectName, /
    ) -> None: ...
    def hand_over_overdue(self, session: JobSession, now: float, /) -> None: ...
    def hand_over_for(self, session: JobSession, done: object, /) -> None: ...
    def close(self) -> None: ...


class ClientSession(Protocol):
    """A session as its runner drives it: the session of operations, or an outer session."""

    @property
    def busy(self) -> bool:
        """State of the session: True while the session needs ticks."""

    @property
    def has_orders(self) -> bool:
        """State of the outbox and the orders: True if the runner has any to take."""

    def began(self, recording: "Recording", what: str) -> None:
        """Record the beginning of the operation ``what``, which is no job."""

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Take the replies of a server."""

    def receive_frames(self, server: ServerId, frames: Sequence[Frame], now: float) -> None:
        """Take an undecoded batch of replies.

        Raises :class:`ares.model.errors.BadMessage`; no part of a bad batch is used.
        """

    def take_letters(self) -> Mapping[ServerId, Letter]:
        """Return the post for each server, and empty the outbox."""

    def tick(self, now: float) -> None:
        """Let time pass."""

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every operation with an error of its own."""
