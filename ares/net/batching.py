"""What every transport does alike: messages into batches, and treating the batches that arrive.

A transport pays for a batch, not for a message: whoever posts or replies gives it all that it has for one peer, and that leaves together, cut only
where a batch would be unwieldy (:func:`batches`). :class:`BatchConnections` and :class:`BatchListener` are the two ends without the wire.

Clients take turns at a server: what one of them asked is answered for TURN_S at a stretch, and its rest stands in line until others had theirs. A
request of thirty bytes may take a server milliseconds, and a batch has room for thousands. Nothing more is read from a client that stands in line,
where the transport can see to that. Nearly always a turn is long enough for all that came, and nobody stands in line.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING

from ares.machine.metrics import Traffic
from ares.model.codec import BATCH_MESSAGES_MAX as BATCH_MESSAGES_MAX
from ares.model.codec import Frame, Outgoing, decode_replies, decode_requests, encode
from ares.model.errors import BadMessage
from ares.model.identity import CallId, ServerId
from ares.model.log_messages import Append, Forward, ReadEach
from ares.model.messages import (
    DETAIL_CHARACTERS_MAX,
    QUICK,
    AnyMessage,
    DataReply,
    Describe,
    PutData,
    Reason,
    Refused,
)
from ares.net.port import Came, DeliverFrames, Handle, Sender

if TYPE_CHECKING:
    from ares._core import Served

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""A batch of several messages is no larger than this: its receiver sees none of it before it has all of it."""

WAITING_MESSAGES_MAX = 4096
WAITING_BYTES_MAX = 128 * 1024 * 1024
"""What is kept for a peer that takes nothing; bytes of data."""

TURN_S = 0.005
TURN_MESSAGES_MAX = 512
"""A turn ends at either, and then its replies are sent: those with small values are 8 KiB each."""

GROUP_MESSAGES = 4
"""The clock is looked at before so many messages."""

LINE_BATCHES_MAX = 256
"""Of a client that stands in line and from which more comes."""

NOTHING: Sequence[AnyMessage] = ()

_log = logging.getLogger(__name__)

Deliver = Callable[[ServerId, Sequence[AnyMessage]], None]


def batches(messages: Sequence[Outgoing]) -> Sequence[tuple[int, list[Frame]]]:
    """``messages`` in order as (how many, their frames); a message alone is a batch however large it is."""
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
    """Of an element, or of a log's entries, in a message that somebody sends who may send more than its receiver takes."""
    match message:
        case PutData() | DataReply():
            return message.element.size if message.element is not None else 0
        case Append():
            return sum(map(len, message.entries))
        case Forward():
            return sum([record.size for record in message.records])
    return 0


class Waiting:
    """Messages for a peer that takes none at the moment, oldest first.

    Bounded; what comes beyond the bound is dropped. When nothing waits, one message is taken however large.
    """

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self.messages)

    def admit(self, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            size = data_bytes(message)
            full = (
                len(self.messages) >= WAITING_MESSAGES_MAX or self._bytes + size > WAITING_BYTES_MAX
            )
            if full and self.messages:
                break
            self.messages.append(message)
            self._bytes += size

    def take(self) -> list[AnyMessage]:
        """Everything, leaving nothing."""
        messages, self.messages, self._bytes = self.messages, [], 0
        return messages


class BatchConnections(ABC):
    """The part of :class:`ares.net.port.Connections` that is the same over every wire; a subclass sends and closes.

    Messages that cannot be sent (the codec does not know them) are logged, and cost other peers nothing.
    """

    def __init__(self) -> None:
        self.troubles: dict[ServerId, str] = {}
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
        """Send them to this server, whose address was learned."""

    def _receive(self, server: ServerId, frames: Sequence[Frame]) -> None:
        try:
            if self.deliver_frames is not None:
                self.deliver_frames(server, frames)
            else:
                self._deliver(server, decode_replies(frames))
        except BadMessage as error:
            self._bad_batches += 1
            if _worth_a_line(self._bad_batches):
                _log.warning(
                    "server %s sent a bad batch, dropped (%d so far): %.300s",
                    server,
                    self._bad_batches,
                    error,
                )
        except Exception:
            _log.exception("replies of server %s were not taken", server)


class Pending:
    """What came from one client and is not answered: the ``rest`` of what was read, and batches that ``came`` later. ``bytes``: what all of it was.

    ``began``: the batches that were read.
    """

    __slots__ = ("bytes", "came", "rest")

    def __init__(self, rest: Iterator[AnyMessage], began: Sequence[Sequence[Frame]]) -> None:
        self.rest = rest
        self.came: deque[Sequence[Frame]] = deque()
        self.bytes = bytes_of(began)

    def __bool__(self) -> bool:
        """Whether there is more."""
        return bool(self.came) or length_hint(self.rest) > 0


class Turn:
    """One that begins at ``begin_s``, of the clock time.perf_counter."""

    __slots__ = ("_ended", "_until_s")

    def __init__(self, begin_s: float) -> None:
        self._until_s = begin_s + TURN_S
        self._ended = False

    @property
    def over(self) -> bool:
        """Whether it has ended: by the clock, with what may have a large reply (it leaves before another is made), or by a handler that stopped."""
        return self._ended or time.perf_counter() >= self._until_s

    def of(self, messages: Iterator[AnyMessage]) -> Iterator[AnyMessage]:
        """Those of ``messages`` whose turn it is, at least one; the others stay there."""
        self._ended = True
        for _ in range(TURN_MESSAGES_MAX // GROUP_MESSAGES):
            for message in islice(messages, GROUP_MESSAGES):
                yield message
                if type(message) is Describe and (not message.brief or message.usage_of):
                    return
                if (
                    type(message) is ReadEach and time.perf_counter() >= self._until_s
                ):  # it may have been as long as a group of others
                    return
            if not length_hint(messages):
                self._ended = False
                return
            if time.perf_counter() >= self._until_s:
                return


class BatchListener(ABC):
    """The part of :class:`ares.net.port.Listener` that is the same over every wire; a subclass binds, takes, sends and closes.

    ``address``: what was bound. ``traffic``: where to count; None: nothing is counted, which costs nothing.
    """

    connections: Sized = ()
    """Those of clients that are there."""

    def __init__(self, traffic: Traffic | None = None) -> None:
        self.bad_batches = 0
        self.seen: Callable[[Sender, Sequence[AnyMessage]], None] = lambda sender, messages: None
        self.core: Callable[[Sender, Came], Served | None] | None = None
        self.address = ""
        self._traffic = traffic or Traffic()
        self._serving = False
        self._paused = False
        self._lines: dict[Sender, Pending] = {}
        self._standing_bytes = 0
        self._going_on = False

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
        """Take what came, unless paused."""

    @abstractmethod
    def _send(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        """Send replies to this sender, if it is still there."""

    def _respond(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        """Send replies; those that cannot be sent are logged, and cost others nothing."""
        if messages and self._serving:
            try:
                self._send(sender, messages)
            except Exception:
                _log.exception("%d messages could not be sent", len(messages))

    def _receive(self, sender: Sender, came: Sequence[Sequence[Frame]]) -> None:
        """What came from one client at a time is answered in one batch, as far as its turn reaches."""
        if self._lines and (line := self._lines.get(sender)) is not None:
            self._join(sender, line, came)
            return
        messages = (
            self._read(sender, came[0])
            if len(came) == 1
            else [message for frames in came for message in self._read(sender, frames)]
        )
        if len(messages) > 1 and not (
            len(messages) <= TURN_MESSAGES_MAX and QUICK.issuperset(map(type, messages))
        ):
            self._take_turn(sender, Pending(iter(messages), came))
        else:
            begin_s = time.perf_counter()
            rest = iter(messages)
            replies = self._answered(sender, rest) if messages else NOTHING
            if length_hint(rest):
                self._line_up(sender, Pending(rest, came))
            self._traffic.count_turn(replies, time.perf_counter() - begin_s)
            self._respond(sender, replies)

    def _read(self, sender: Sender, frames: Sequence[Frame]) -> Sequence[AnyMessage]:
        messages = NOTHING
        try:
            messages = decode_requests(frames)
        except BadMessage as error:
            self._refuse(sender, frames, str(error)[:DETAIL_CHARACTERS_MAX])
        self._traffic.count_batch(messages, frames)
        self.seen(sender, messages)
        return messages

    def _answered(
        self, sender: Sender, rest: Iterator[AnyMessage], turn: Turn | None = None
    ) -> Sequence[AnyMessage]:
        """The replies that can be given at once. ``turn``: how far it reaches; None: to the end. What the handler has not taken stays in ``rest``."""
        try:
            return self._handle(sender, rest if turn is None else turn.of(rest))
        except Exception:
            _log.exception(
                "a batch, or what of it was answered at a stretch, failed and gets no reply"
            )
            deque(rest, 0)
            return NOTHING

    # -- those whose turn was too short ---------------------------------------------------------------------------------

    def _take_turn(self, sender: Sender, line: Pending) -> None:
        """Answer what is in ``line`` for as long as a turn is."""
        begin_s = time.perf_counter()
        turn = Turn(begin_s)
        replies: list[AnyMessage] = []
        while line and not turn.over:
            if not length_hint(line.rest):
                line.rest = iter(self._read(sender, line.came.popleft()))
            replies += self._answered(sender, line.rest, turn)
        self._line_up(sender, line)
        self._traffic.count_turn(replies, time.perf_counter() - begin_s)
        self._respond(sender, replies)

    def _line_up(self, sender: Sender, line: Pending) -> None:
        """Behind the others, if there is more in ``line``."""
        stood = self._lines.pop(sender, None) is not None
        if line and (stood or self._may_stand(line.bytes)):
            self._lines[sender] = line
            self._go_on_soon()
            if not stood:
                self._stands(sender, line.bytes)
        elif stood:
            self._stands(sender, -line.bytes)

    def _go_on_soon(self) -> None:
        if self._lines and not self._going_on:
            self._going_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """The turn of whoever stands in front; what came from others meanwhile is read before the next one's."""
        self._going_on = False
        if self._lines and self._serving and not self._paused:
            self._take_turn(*next(iter(self._lines.items())))
            self._go_on_soon()

    def _join(self, sender: Sender, line: Pending, came: Sequence[Sequence[Frame]]) -> None:
        """What is too much is dropped, the client asks again."""
        bytes = bytes_of(came)
        if len(line.came) < LINE_BATCHES_MAX and self._may_stand(bytes):
            line.came.extend(came)
            line.bytes += bytes
            self._stands(sender, bytes)

    def _give_up(self, sender: Sender) -> None:
        """The client has left: nobody waits for what it asked."""
        line = self._lines.pop(sender, None)
        if line is not None:
            self._stands(sender, -line.bytes)

    def _may_stand(self, bytes: int) -> bool:
        """Whether there is room for so many bytes more in line."""
        return True

    def _stands(self, sender: Sender, more_bytes: int) -> None:
        """This client stands in line with so many bytes more; fewer: it stands there no more."""
        self._standing_bytes += more_bytes

    def _refuse(self, sender: Sender, frames: Sequence[Frame], why: str) -> None:
        self.bad_batches += 1
        if _worth_a_line(self.bad_batches):
            _log.warning("bad batch refused (%d so far): %s", self.bad_batches, why)
        if (
            frames and frames[0]
        ):  # a version byte: somebody who speaks some release of the format, and can be told
            self.reply(sender, [Refused(CallId(0), Reason.BAD_REQUEST, why)])


def _worth_a_line(count: int) -> bool:
    """The 1st, 2nd, 4th, 8th, ...: a hose of garbage must not fill the log."""
    return count.bit_count() == 1


def bytes_of(came: Sequence[Sequence[Frame]]) -> int:
    """Of all frames of these batches."""
    return sum([len(frames[0]) if len(frames) == 1 else sum(map(len, frames)) for frames in came])
