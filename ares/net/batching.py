"""The common part of all transports: batches of messages, and the turns of clients at a server.

The cost of a transport is per batch, not per message: a caller posts or replies with all its
messages for a peer at once, and they leave together, cut only where a batch would be unwieldy
(:func:`batches`). :class:`BatchConnections` and :class:`BatchListener` are the two ends without the
wire.

Clients take turns at a server. A request of thirty bytes may take a server milliseconds, and a
batch has room for thousands. All work is therefore counted in a single account
(:class:`ares.model.work.Meter`): by the listener for the contents of requests, and by the server
for reading and answering. A turn ends when TURN_WORK is spent, or TURN_S have passed. The rest of
the client's requests stands in line until other clients had their turns, and no more bytes are read
from this client by a transport able to stop reading. All turns within a round of the event loop
share TURN_WORK; a client not in line has FIRST_WORK in any case. Nearly always a turn is long
enough for all arrived requests, and no client stands in line.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence, Sized
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING

from ares.metrics import ListenerTraffic
from ares.model.codec import (
    BATCH_BYTES_MAX,
    DETACHED_BYTES_MIN,
    PORTION_BYTES,
    Frame,
    Outgoing,
    RequestPortions,
    decode_replies,
    decode_requests,
    encode,
)
from ares.model.codec import BATCH_MESSAGES_MAX as BATCH_MESSAGES_MAX
from ares.model.errors import BadMessage
from ares.model.identity import CallId, ServerId
from ares.model.log_messages import Append, Forward, GivenBack
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    AnyMessage,
    DataReply,
    GetAhead,
    GetData,
    GetTag,
    ListReply,
    PutAhead,
    PutData,
    QueryList,
    Reason,
    Refused,
)
from ares.model.work import REQUEST_WORK, TURN_WORK, Meter
from ares.net.port import Came, DeliverFrames, Handle, Sender
from ares.platform.json_logs import is_worth_a_line

if TYPE_CHECKING:
    from ares.compiled import ServedTurn

LARGE_BYTES_MAX = 256 * 1024
"""Large messages together in a batch while more wait: a small message waits behind no more."""

DIRECT_BYTES_MAX = 1024 * 1024
"""Data bytes sent at once, in order, to a server which is not slow."""

LARGE_TOGETHER_MAX = LARGE_BYTES_MAX // DETACHED_BYTES_MIN

PEER_WAITING_MESSAGES_MAX = 4096
PEER_WAITING_BYTES_MAX = 128 * 1024 * 1024
"""Messages and bytes of data kept for a peer which takes no messages."""

TURN_S = 0.005
"""Time after which a turn ends; the replies of the turn are sent afterwards."""

FIRST_WORK = TURN_WORK // 8
"""Least work of a turn, and the work after which a new round is requested."""

LOOK_WORK = TURN_WORK // 128
"""Work after which the clock is read."""

LEFT_MAX = 64
"""Clients gone with requests in line, which are still carried out."""

LINE_BATCHES_MAX = 256
"""Batches kept of a client in line."""

NO_MESSAGES: Sequence[AnyMessage] = ()
BATCH_FAILED = "a batch, or the part of it that is answered at once, failed and gets no reply"

_log = logging.getLogger(__name__)

Deliver = Callable[[ServerId, Sequence[AnyMessage]], None]


def batches(messages: Sequence[Outgoing]) -> Sequence[tuple[int, list[Frame]]]:
    """Return ``messages`` in order as batches: (number of messages, their frames).

    A single message of any size is a batch.
    """
    count = len(messages)
    if not 1 <= count <= BATCH_MESSAGES_MAX:
        starts = range(0, count, BATCH_MESSAGES_MAX)
        return [
            batch
            for start in starts
            for batch in batches(messages[start : start + BATCH_MESSAGES_MAX])
        ]
    frames = encode(messages)
    if (
        count == 1
        or (len(frames[0]) if len(frames) == 1 else sum(map(len, frames))) <= BATCH_BYTES_MAX
    ):
        return ((count, frames),)
    return [*batches(messages[: count // 2]), *batches(messages[count // 2 :])]


def data_bytes(message: AnyMessage) -> int:
    """Return the data bytes in a message; 0 unless the sender may exceed the receiver's pace.

    The bytes belong to an element, or to a log's entries.
    """
    match message:
        case PutData() | PutAhead() | DataReply():
            return message.element.size if message.element is not None else 0
        case ListReply():
            return message.size
        case Append() | Forward() | GivenBack():
            return message.bulk
    return 0


def is_large(message: AnyMessage) -> bool:
    """Return whether waiting small messages pass this message: a put of a large element."""
    if type(message) is PutData or type(message) is PutAhead:
        return message.element.size >= DETACHED_BYTES_MIN
    return False


class PeerQueue:
    """Messages for a peer which takes no messages now: small before large, oldest first.

    A copy of a request replaces the waiting request: a request is sent again while a link is slow,
    and a single copy waits. Messages beyond the bound are dropped. An empty queue takes a single
    message of any size.
    """

    def __init__(self) -> None:
        self.small: dict[Hashable, AnyMessage] = {}
        self.large: dict[Hashable, AnyMessage] = {}
        self._bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return len(self.small) + len(self.large)

    def admit(self, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            queue, key = self._place(message)
            size = data_bytes(message)
            if (replaced := queue.get(key)) is not None:
                size -= data_bytes(replaced)
            full = (
                len(self) >= PEER_WAITING_MESSAGES_MAX
                or self._bytes + size > PEER_WAITING_BYTES_MAX
            )
            if full and self and replaced is None:
                break
            queue[key] = message
            self._bytes += size

    def give_back(self, messages: Sequence[AnyMessage]) -> None:
        """Put unsent messages before the waiting messages."""
        waiting = self.take()
        self.admit(messages)
        self.admit(waiting)

    def take_next(self) -> list[AnyMessage]:
        """Return the messages to be sent next: all small ones, or large ones of LARGE_BYTES_MAX.

        A message beyond this size is returned alone.
        """
        if self.small:
            taken = list(self.small.values())
            self.small.clear()
            self._bytes -= sum(map(data_bytes, taken))
            return taken
        taken, size = [], 0
        for key, message in list(islice(self.large.items(), LARGE_TOGETHER_MAX)):
            size += data_bytes(message)
            if taken and size > LARGE_BYTES_MAX:
                break
            taken.append(self.large.pop(key))
            self._bytes -= data_bytes(message)
        return taken

    def take(self) -> list[AnyMessage]:
        """Return every message and leave the queue empty."""
        messages = [*self.small.values(), *self.large.values()]
        self.small, self.large, self._bytes = {}, {}, 0
        return messages

    def _place(self, message: AnyMessage) -> tuple[dict[Hashable, AnyMessage], Hashable]:
        """Return the queue of a message, and the message's key in the queue."""
        match message:
            case PutData() | PutAhead() | GetData() | GetAhead() | GetTag() | QueryList():
                key = type(message), message.call, message.configuration, message.object
                return self.large if is_large(message) else self.small, key
        self._count += 1
        return self.small, self._count


class BatchConnections(ABC):
    """The part of :class:`ares.net.port.Connections` common to all wires.

    A subclass sends and closes. Messages unknown to the codec cannot be sent; they are logged,
    without harm to other peers.
    """

    def __init__(self) -> None:
        self.troubles: dict[ServerId, str] = {}
        self.connected_s: dict[ServerId, float] = {}
        self.over_sockets: set[ServerId] = set()
        self.deliver_frames: DeliverFrames | None = None
        self._addresses: dict[ServerId, str] = {}
        self._bad_batches = 0
        self._opened = False

    def open(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._opened = True

    def learn(self, server: ServerId, address: str) -> None:
        self._addresses.setdefault(server, address)

    def receiving(self, server: ServerId) -> bool:
        return False

    def sending(self, server: ServerId, call: CallId) -> bool:
        return False

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        if messages and self._opened and server in self._addresses:
            try:
                self._send(server, messages)
            except Exception:
                _log.exception("%d messages could not be sent", len(messages))

    def post_frame(self, server: ServerId, frame: Frame) -> None:
        self.post(server, decode_requests([frame]))

    @abstractmethod
    def _send(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Send messages to this server, of known address."""

    def _receive(self, server: ServerId, frames: Sequence[Frame]) -> None:
        try:
            if self.deliver_frames is not None:
                self.deliver_frames(server, frames)
            else:
                self._deliver(server, decode_replies(frames))
        except BadMessage as error:
            self._bad_batches += 1
            if is_worth_a_line(self._bad_batches):
                _log.warning(
                    "server %s sent a bad batch, dropped (%d so far): %.300s",
                    server,
                    self._bad_batches,
                    error,
                )
        except Exception:
            _log.exception("replies of server %s were not taken", server)


class UnansweredRequests:
    """The unanswered requests of a client, in order.

    ``messages`` are decoded, ``portions`` are the undecoded rest of the same batch, and ``came``
    are later batches. ``bytes``: the size of all batches put into the line. ``decoded``: the
    messages of an already decoded batch.
    """

    __slots__ = ("bytes", "came", "messages", "portions")

    def __init__(
        self, came: Sequence[Sequence[Frame]], decoded: Iterator[AnyMessage] | None = None
    ) -> None:
        self.messages = iter(()) if decoded is None else decoded
        self.portions: RequestPortions | None = None
        self.came = deque(came if decoded is None else ())
        self.bytes = bytes_of(came)

    def __bool__(self) -> bool:
        """Return whether requests are left."""
        return bool(self.came or self.portions) or length_hint(self.messages) > 0

    def drop_batch(self) -> None:
        """Forget the batch under way."""
        self.messages, self.portions = iter(()), None


class BatchListener(ABC):
    """The part of :class:`ares.net.port.Listener` common to all wires.

    A subclass binds, takes, sends and closes. ``address``: the address bound. ``traffic``: the
    counters; None: no counting, at no cost. ``meter``: the account of the work of a round, to which
    the server of the requests adds work.
    """

    connections: Sized = ()
    """The connections of present clients."""

    def __init__(self, traffic: ListenerTraffic | None = None) -> None:
        self.bad_batches = 0
        self.seen: Callable[[Sender, Sequence[AnyMessage]], None] = lambda sender, messages: None
        self.core: Callable[[Sender, Came], ServedTurn | None] | None = None
        self.address = ""
        self._traffic = traffic or ListenerTraffic()
        self._serving = False
        self._paused = False
        self._lines: dict[Sender, UnansweredRequests] = {}
        self._left: dict[Sender, None] = {}
        self._standing_bytes = 0
        self._going_on = False
        self.meter = Meter()

    def _start(self, handle: Handle, address: str) -> None:
        self.address = address
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._serving = True

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._serving:
                self._loop.call_soon(self._drain)
                self._go_on_soon()

    def reply(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        self._traffic.count_replies(messages)
        self._respond(sender, messages)

    @abstractmethod
    def _drain(self) -> None:
        """Take the arrived batches, unless paused."""

    @abstractmethod
    def _send_batch(self, sender: Sender, frames: Sequence[Frame]) -> None:
        """Send a batch of replies to this sender, if the connection still exists."""

    def _send(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        for _, frames in batches(messages):
            self._send_batch(sender, frames)

    def _respond(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        """Send replies; unsendable replies are logged, without harm to other clients."""
        if messages and self._serving:
            try:
                self._send(sender, messages)
            except Exception:
                _log.exception("%d messages could not be sent", len(messages))

    def _served(self, sender: Sender, came: Came) -> bool:
        """Return whether the compiled core did all the work."""
        core = self.core
        if core is None or (self._lines and sender in self._lines):
            return False
        begin_s = time.perf_counter()
        try:
            served = core(sender, came)
            if served is None:
                return False
            self._traffic.count_served(served, time.perf_counter() - begin_s)
            if self.meter.spent > FIRST_WORK:
                self._go_on_soon()
            if served.reply is not None and self._serving:
                self._send_batch(sender, [served.reply])
        except Exception:
            _log.exception("a client's message failed and gets no reply")
        return True

    def _receive(self, sender: Sender, came: Sequence[Sequence[Frame]]) -> None:
        """Answer a client's batches in a batch of replies, up to the end of the client's turn."""
        if self._lines and (line := self._lines.get(sender)) is not None:
            self._join(sender, line, came)
        elif len(came) == 1 and came[0] and len(came[0][0]) <= PORTION_BYTES:
            begin_s = time.perf_counter()
            messages = self._decoded(sender, came[0])
            if len(messages) == 1:
                self._answer_alone(sender, came, messages, begin_s)
            elif messages:
                self._take_turn(sender, UnansweredRequests(came, iter(messages)))
            else:
                self._finish(sender, NO_MESSAGES, begin_s)
        else:
            self._take_turn(sender, UnansweredRequests(came))

    # -- turns -------------------------------------------------------------------------------------

    def _answer_alone(
        self,
        sender: Sender,
        came: Sequence[Sequence[Frame]],
        messages: Sequence[AnyMessage],
        begin_s: float,
    ) -> None:
        """Answer the only request that ``came``, which no limit of a turn stops.

        Every turn has at least a request.
        """
        meter, rest = self.meter, iter(messages)
        meter.spent += REQUEST_WORK + messages[0].bulk
        replies: Sequence[AnyMessage] = NO_MESSAGES
        try:
            replies = self._handle(sender, rest)
        except Exception:
            _log.exception(BATCH_FAILED)
        if length_hint(rest):
            self._line_up(sender, UnansweredRequests(came, rest))
        self._finish(sender, replies, begin_s)

    def _take_turn(self, sender: Sender, line: UnansweredRequests) -> None:
        """Answer the requests in ``line`` until the turn ends."""
        begin_s = time.perf_counter()
        end = max(TURN_WORK, self.meter.spent + FIRST_WORK)
        replies: Sequence[AnyMessage] = NO_MESSAGES
        try:
            if self._fill(sender, line, end):
                replies = self._handle(sender, self._turn(sender, line, end, begin_s + TURN_S))
        except Exception:
            _log.exception(BATCH_FAILED)
            line.drop_batch()
        self._line_up(sender, line)
        self._finish(sender, replies, begin_s)

    def _finish(self, sender: Sender, replies: Sequence[AnyMessage], begin_s: float) -> None:
        """Send the replies of a turn, and ensure a new round."""
        if self.meter.spent > FIRST_WORK:
            self._go_on_soon()
        self._traffic.count_turn(replies, time.perf_counter() - begin_s)
        self._respond(sender, replies)

    def _turn(
        self, sender: Sender, line: UnansweredRequests, end: int, until_s: float
    ) -> Iterator[AnyMessage]:
        """Yield the requests of ``line`` in this turn, at least one request.

        Each request is answered when the next is taken.
        """
        meter = self.meter
        look = meter.spent + LOOK_WORK
        while self._fill(sender, line, end):
            for message in line.messages:
                meter.spent += REQUEST_WORK + message.bulk
                yield message
                if meter.spent >= look:
                    look = meter.spent + LOOK_WORK
                    if meter.spent >= end or time.perf_counter() >= until_s:
                        return

    def _fill(self, sender: Sender, line: UnansweredRequests, end: int) -> bool:
        """Decode the next requests, not beyond ``end``, if no decoded request is left.

        Returns whether any request is decoded.
        """
        while not length_hint(line.messages):
            if not line or self.meter.spent >= end:
                return False
            line.messages = iter(self._read(sender, line))
        return True

    def _read(self, sender: Sender, line: UnansweredRequests) -> Sequence[AnyMessage]:
        """Decode the next requests in ``line``: a small batch, or a portion of a large batch."""
        frames: Sequence[Frame] = ()
        if not line.portions:
            frames = line.came.popleft()
            if not frames or len(frames[0]) <= PORTION_BYTES:
                return self._decoded(sender, frames)
        messages: Sequence[AnyMessage] = NO_MESSAGES
        try:
            if frames:
                self.meter.spent += len(frames[0])
                line.portions = RequestPortions(frames)
            assert line.portions is not None, "it has a large batch, or the rest of one"
            messages = line.portions.take()
        except BadMessage as error:
            line.drop_batch()
            self._refuse(sender, True, error)
        self._note(sender, messages, frames)
        return messages

    def _decoded(self, sender: Sender, frames: Sequence[Frame]) -> Sequence[AnyMessage]:
        """Decode a small batch."""
        messages = NO_MESSAGES
        try:
            messages = decode_requests(frames)
        except BadMessage as error:
            self._refuse(sender, bool(frames and frames[0]), error)
        self._note(sender, messages, frames)
        return messages

    def _note(
        self, sender: Sender, messages: Sequence[AnyMessage], frames: Sequence[Frame]
    ) -> None:
        self._traffic.count_batch(messages, frames)
        self.seen(sender, messages)

    def _line_up(self, sender: Sender, line: UnansweredRequests) -> None:
        """Put the client behind the other clients, if requests are left in ``line``."""
        stood = self._lines.pop(sender, None) is not None
        if line and (stood or self._may_stand(line.bytes)):
            self._lines[sender] = line
            self._go_on_soon()
            if not stood:
                self._stands(sender, line.bytes)
        elif stood:
            self._stands(sender, -line.bytes)

    def _go_on_soon(self) -> None:
        if not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Begin a round, with the turn of the first client in line.

        Batches from other clients are read before the next round.
        """
        self._going_on = False
        self.meter.spent = 0
        if self._lines and self._serving and not self._paused:
            try:
                self._take_turn(*next(iter(self._lines.items())))
            finally:
                if self._lines:
                    self._go_on_soon()

    def _join(
        self, sender: Sender, line: UnansweredRequests, came: Sequence[Sequence[Frame]]
    ) -> None:
        """Add batches to the client's line; drop batches beyond the bound.

        The client asks again after a drop.
        """
        bytes = bytes_of(came)
        if len(line.came) < LINE_BATCHES_MAX and self._may_stand(bytes):
            line.came.extend(came)
            line.bytes += bytes
            self._stands(sender, bytes)

    def _leave(self, sender: Sender) -> None:
        """Note that a client has left, and carry out the requests in line nevertheless.

        A write counts on these requests: the write may have ended with a quorum, and the client
        with the write, before the turn of the last server.
        """
        if sender in self._lines:
            self._left[sender] = None
            if len(self._left) > LEFT_MAX:
                self._give_up(next(iter(self._left)))

    def _give_up(self, sender: Sender) -> None:
        """Drop the line of a client."""
        line = self._lines.pop(sender, None)
        if line is not None:
            self._stands(sender, -line.bytes)

    def _may_stand(self, bytes: int) -> bool:
        """Return whether the line has room for ``bytes`` more bytes."""
        return True

    def _stands(self, sender: Sender, more_bytes: int) -> None:
        """Count more bytes of this client in line; below 0: the client has left the line."""
        self._standing_bytes += more_bytes
        if more_bytes < 0:
            self._left.pop(sender, None)

    def _refuse(self, sender: Sender, speaks: bool, error: BadMessage) -> None:
        """Count a bad batch.

        ``speaks``: the batch has a version byte: the sender knows some release of the format, and
        can read a refusal.
        """
        why = str(error)[:DETAIL_CHARACTERS_MAX]
        self.meter.spent += REQUEST_WORK
        self.bad_batches += 1
        if is_worth_a_line(self.bad_batches):
            _log.warning("bad batch refused (%d so far): %s", self.bad_batches, why)
        if speaks:
            self.reply(sender, [Refused(CallId(0), Reason.BAD_REQUEST, why)])


def bytes_of(came: Sequence[Sequence[Frame]]) -> int:
    """Return the bytes of all frames of these batches."""
    return sum([len(frames[0]) if len(frames) == 1 else sum(map(len, frames)) for frames in came])
