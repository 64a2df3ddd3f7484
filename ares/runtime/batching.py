"""What every transport does alike: collecting messages into batches, and treating the batches that arrive.

A transport pays for a batch, not for a message: what one tick of the event loop has for one peer leaves together (:class:`TickQueues`), cut only
where a batch would be unwieldy (:func:`batches`). :class:`BatchConnections` and :class:`BatchListener` are the two ends without the wire.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from ares.codec import Frame, decode, encode
from ares.errors import BadMessage
from ares.identity import CallId, ServerId
from ares.messages import AnyMessage, DataReply, PutData, Reason, Refused
from ares.runtime.metering import counted
from ares.runtime.ports import Handle, Sender
from ares.server.metrics import Traffic

BATCH_MESSAGES_MAX = 4096
BATCH_BYTES_MAX = 16 * 1024 * 1024
"""A batch of several messages is no larger than this: its receiver sees none of it before it has all of it."""

WAITING_MESSAGES_MAX = 4096
WAITING_BYTES_MAX = 128 * 1024 * 1024
"""What is kept for a peer that takes nothing; bytes of element data."""

DETAIL_CHARACTERS_MAX = 300

_log = logging.getLogger(__name__)

Peer = TypeVar("Peer", bound=Hashable)
Deliver = Callable[[ServerId, Sequence[AnyMessage]], None]


def batches(messages: Sequence[AnyMessage]) -> Iterator[tuple[int, list[Frame]]]:
    """``messages`` in order as (how many, their frames); a message alone is a batch however large it is."""
    for start in range(0, len(messages), BATCH_MESSAGES_MAX):
        yield from _halved(messages[start : start + BATCH_MESSAGES_MAX])


def _halved(messages: Sequence[AnyMessage]) -> Iterator[tuple[int, list[Frame]]]:
    frames = encode(messages)
    if len(messages) == 1 or sum(map(len, frames)) <= BATCH_BYTES_MAX:
        yield len(messages), frames
    else:
        middle = len(messages) // 2
        yield from _halved(messages[:middle])
        yield from _halved(messages[middle:])


class TickQueues(Generic[Peer]):
    """Messages by peer. ``flush`` takes them all; it is called in the tick after something was posted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, flush: Callable[[], None]) -> None:
        self._loop = loop
        self._flush = flush
        self._queues: dict[Peer, list[AnyMessage]] = {}

    def post(self, peer: Peer, messages: Sequence[AnyMessage]) -> None:
        if messages:
            if not self._queues:
                self._loop.call_soon(self._flush)
            self.add(peer, messages)

    def add(self, peer: Peer, messages: Sequence[AnyMessage]) -> None:
        """``post``, by somebody who flushes before this tick is over."""
        if not messages:
            return
        queue = self._queues.get(peer)
        if queue is None:
            self._queues[peer] = list(messages)
        else:
            queue.extend(messages)

    def send_each(self, send: Callable[[Peer, list[AnyMessage]], None]) -> None:
        """Give everything to ``send``, peer by peer; what is posted meanwhile is for the next flush.

        Messages that cannot be sent (the codec does not know them) are logged, and cost other peers nothing.
        """
        queues, self._queues = self._queues, {}
        for peer, messages in queues.items():
            try:
                send(peer, messages)
            except Exception:
                _log.exception("%d messages could not be sent", len(messages))


class Waiting:
    """Messages for a peer that takes none at the moment, oldest first.

    Bounded; what comes beyond the bound is dropped. When nothing waits, one message is taken however large.
    """

    def __init__(self) -> None:
        self._messages: list[AnyMessage] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def admit(self, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            size = message.element.size if isinstance(message, PutData | DataReply) and message.element is not None else 0
            full = len(self._messages) >= WAITING_MESSAGES_MAX or self._bytes + size > WAITING_BYTES_MAX
            if full and self._messages:
                break
            self._messages.append(message)
            self._bytes += size

    def take(self) -> list[AnyMessage]:
        """Everything, leaving nothing."""
        messages, self._messages, self._bytes = self._messages, [], 0
        return messages


class BatchConnections(ABC):
    """The part of :class:`ares.runtime.ports.Connections` that is the same over every wire; a subclass sends and closes."""

    def __init__(self) -> None:
        self._addresses: dict[ServerId, str] = {}
        self._bad_batches = 0
        self._opened = False

    def open(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._outgoing = TickQueues[ServerId](self._loop, self._flush)
        self._opened = True

    def learn(self, server: ServerId, address: str) -> None:
        self._addresses.setdefault(server, address)

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        if self._opened and server in self._addresses:
            self._outgoing.post(server, messages)

    def _flush(self) -> None:
        """Send what the tick's queues hold."""
        if self._opened:
            self._outgoing.send_each(self._send)

    @abstractmethod
    def _send(self, server: ServerId, messages: list[AnyMessage]) -> None:
        """Send them to this server, whose address was learned."""

    def _receive(self, server: ServerId, frames: Sequence[Frame]) -> None:
        try:
            messages = decode(frames)
        except BadMessage as error:
            self._bad_batches += 1
            if _worth_a_line(self._bad_batches):
                _log.warning("server %s sent a bad batch, dropped (%d so far): %.300s", server, self._bad_batches, error)
            return
        try:
            self._deliver(server, messages)
        except Exception:
            _log.exception("replies of server %s were not taken", server)


class BatchListener(ABC):
    """The part of :class:`ares.runtime.ports.Listener` that is the same over every wire; a subclass binds, takes, sends and closes.

    ``address``: what was bound. ``traffic``: where to count; None: nothing is counted, which costs nothing.
    """

    def __init__(self, traffic: Traffic | None = None) -> None:
        self.bad_batches = 0
        self.address = ""
        self._traffic = traffic
        self._serving = False
        self._paused = False

    def _start(self, handle: Handle, address: str) -> None:
        self.address = address
        self._handle = handle if self._traffic is None else counted(handle, self._traffic)
        self._loop = asyncio.get_running_loop()
        self._outgoing = TickQueues[Sender](self._loop, self._flush)
        self._serving = True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._serving:
                self._loop.call_soon(self._drain)

    def reply(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        if self._traffic is not None:
            self._traffic.count_replies(messages)
        if self._serving:
            self._outgoing.post(sender, messages)

    @abstractmethod
    def _drain(self) -> None:
        """Take what came, unless paused."""

    def _flush(self) -> None:
        """Send what the tick's queues hold."""
        if self._serving:
            self._outgoing.send_each(self._send)

    @abstractmethod
    def _send(self, sender: Sender, messages: list[AnyMessage]) -> None:
        """Send replies to this sender, if it is still there."""

    def _receive(self, sender: Sender, frames: Sequence[Frame]) -> int:
        """Treat one batch; returns how many messages it held. Flush after the last of those that are here."""
        traffic = self._traffic
        if traffic is None:
            return self._treat(sender, frames)
        begin_s = time.perf_counter()
        messages = self._treat(sender, frames)
        traffic.batches.add(time.perf_counter() - begin_s)
        traffic.received_bytes += sum(map(len, frames))
        return messages

    def _leaves(self, frames: Sequence[Frame]) -> None:
        """A batch of replies goes out."""
        if self._traffic is not None:
            self._traffic.sent_bytes += sum(map(len, frames))

    def _treat(self, sender: Sender, frames: Sequence[Frame]) -> int:
        try:
            messages = decode(frames)
        except BadMessage as error:
            self._refuse(sender, frames, str(error)[:DETAIL_CHARACTERS_MAX])
            return 0
        try:
            self._outgoing.add(sender, self._handle(sender, messages))
        except Exception:
            _log.exception("a batch of %d requests failed and gets no reply", len(messages))
        return len(messages)

    def _refuse(self, sender: Sender, frames: Sequence[Frame], why: str) -> None:
        self.bad_batches += 1
        if _worth_a_line(self.bad_batches):
            _log.warning("bad batch refused (%d so far): %s", self.bad_batches, why)
        if frames and frames[0]:  # a version byte: somebody who speaks some release of the format, and can be told
            self.reply(sender, [Refused(CallId(0), Reason.BAD_REQUEST, why)])


def _worth_a_line(count: int) -> bool:
    """The 1st, 2nd, 4th, 8th, ...: a hose of garbage must not fill the log."""
    return count.bit_count() == 1
