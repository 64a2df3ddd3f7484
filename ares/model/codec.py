"""Encoding of messages to frames and decoding; the only module with knowledge of bytes on the wire.

A *batch* holds all messages one side has for the peer at a time. Its first frame, the header, is
``version byte | MessagePack array of messages``; the parts of elements of DETACHED_BYTES_MIN bytes
and more follow as frames of their own, never copied into the header.
"""

from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from ares.model.errors import BadMessage
from ares.model.identity import VALUE_BYTES_MAX as VALUE_BYTES_MAX
from ares.model.log_messages import ChainReply, ChainRequest
from ares.model.messages import (
    AnyMessage,
    ConsensusReply,
    ConsensusRequest,
    DataReply,
    Element,
    GetData,
    GetTag,
    ListReply,
    PullElement,
    PutAhead,
    PutData,
    Reply,
    Request,
    Upkeep,
)

WIRE_VERSION = 1
DETACHED_BYTES_MIN = 8 * 1024

HEADER_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of the first frame; more would be gigabytes of small messages once decoded."""

PORTION_BYTES = 64 * 1024
"""Bytes of a header decoded at a time, unless a single message has more."""

REQUEST_BYTES_MAX = 5 * 1024 * 1024
"""Bytes of a request in a header: an append or a forward of a log, with 1 MiB for lengths and
names.
"""

FRAMES_MAX = 65_536

BATCH_MESSAGES_MAX = 4096
"""Messages of a batch, in sending and in reading."""

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""Most bytes of a batch of several messages: the receiver sees no message before the last."""

WIRE_PREFIX = bytes([WIRE_VERSION])
_encoder = msgspec.msgpack.Encoder()
_WHY_CHARACTERS_MAX = 1000
_UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_bound = msgspec.Meta(max_length=BATCH_MESSAGES_MAX)
_of_requests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Annotated[list[Request | PullElement | ChainRequest | Upkeep | ConsensusRequest], _bound]
)
_of_request: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Request | PullElement | ChainRequest | Upkeep | ConsensusRequest
)
_of_parts: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], _bound]
)
_of_replies: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Annotated[list[Reply | ChainReply | ConsensusReply], _bound]
)
_of_own: msgspec.msgpack.Decoder[list[AnyMessage]] = msgspec.msgpack.Decoder(
    list[GetTag | GetData | PutData]
)
_of_either: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    Annotated[list[AnyMessage], _bound]
)

Frame = bytes


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """The MessagePack of ``count`` messages or facts, concatenated, each with all its data."""

    count: int
    bytes: Frame


Outgoing = AnyMessage | Encoded


def frame_bytes_max(value_bytes: int) -> int:
    """Return the most bytes of a frame where values have at most ``value_bytes``."""
    return value_bytes + 64 * 1024


def encode_array(items: Sequence[Any]) -> Frame:
    """Return the MessagePack of a list.

    An :class:`Encoded` item stands for its ``count`` members.
    """
    count = sum([item.count if type(item) is Encoded else 0 for item in items])
    if not count:
        return _encoder.encode(items)
    count += sum([type(item) is not Encoded for item in items])
    head = (
        bytes([0x90 | count])
        if count < 16
        else b"\xdc" + count.to_bytes(2)
        if count < 1 << 16
        else b"\xdd" + count.to_bytes(4)
    )
    return head + b"".join(
        [item.bytes if type(item) is Encoded else _encoder.encode(item) for item in items]
    )


def encode(messages: Sequence[Outgoing]) -> list[Frame]:
    """Return the frames of a batch; the first is the header."""
    frames: list[Frame] = [b""]
    wire: list[Outgoing] | None = None
    for position, message in enumerate(messages):
        if type(message) is PutData or type(message) is DataReply or type(message) is PutAhead:
            element = message.element
            if element is not None and element.size >= DETACHED_BYTES_MIN:
                if wire is None:
                    wire = list(messages)
                wire[position] = msgspec.structs.replace(message, element=_detach(element, frames))
        elif type(message) is ListReply:
            entries = [
                msgspec.structs.replace(entry, element=_detach(entry.element, frames))
                if entry.element is not None and entry.element.size >= DETACHED_BYTES_MIN
                else entry
                for entry in message.entries
            ]
            wire = list(messages) if wire is None else wire
            wire[position] = msgspec.structs.replace(message, entries=tuple(entries))
    frames[0] = WIRE_PREFIX + encode_array(messages if wire is None else wire)
    return frames


def _detach(element: Element, frames: list[Frame]) -> Element:
    """Move the data of an element into frames of their own; return the element without data."""
    empty = (b"",) * len(element.parts)
    bare = Element(element.index, element.length, element.checksum, empty, len(frames))
    frames.extend(element.parts)
    return bare


def decode_requests(frames: Sequence[Frame]) -> list[AnyMessage]:
    """Decode a batch to a server or a consensus member, as :func:`decode`.

    A batch with a reply in it is bad, and is not read.
    """
    return _decode(frames, _of_requests, "requests")


def decode_own(header: Frame) -> list[AnyMessage]:
    """Decode all small requests in a header which this process encoded before cutting batches."""
    return _of_own.decode(memoryview(header)[1:])


def decode_replies(frames: Sequence[Frame]) -> list[AnyMessage]:
    """Decode a batch to a client, as :func:`decode`.

    A batch with a request in it is bad, and is not read.
    """
    return _decode(frames, _of_replies, "replies")


def decode(frames: Sequence[Frame]) -> list[AnyMessage]:
    """Decode a batch of either kind, for readers that watch both sides.

    Raises :class:`BadMessage`; no message of a bad batch is used.
    """
    return _decode(frames, _of_either, "messages")


class RequestPortions:
    """The requests of a batch with a large header, decoded about PORTION_BYTES at a time, in order.

    Decoding the whole header would take tenths of a second, and many times the header's memory. The
    messages before a bad one are therefore used. Raises :class:`BadMessage`, as :meth:`take` does.
    """

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames
        self._used = 1
        self._left = deque(_decode_header(frames, _of_parts, "requests"))

    def __bool__(self) -> bool:
        """Return whether requests are left to take."""
        return bool(self._left)

    def take(self) -> list[AnyMessage]:
        """Decode the next requests."""
        messages: list[AnyMessage] = []
        size = 0
        while self._left and size < PORTION_BYTES:
            part = memoryview(self._left.popleft())
            size += len(part)
            if len(part) > REQUEST_BYTES_MAX:
                raise BadMessage(
                    f"a request of {len(part)} bytes, at most {REQUEST_BYTES_MAX} are read"
                )
            try:
                messages.append(_of_request.decode(part))
            except _UNDECODABLE as error:
                raise _bad("a request", error) from error
        self._used = _attach(messages, self._frames, self._used)
        if not self._left and self._used != len(self._frames):
            raise _unused(self._frames, self._used)
        return messages


def _decode(
    frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[Any], kind: str
) -> list[AnyMessage]:
    messages: list[AnyMessage] = _decode_header(frames, decoder, kind)
    used = _attach(messages, frames, 1)
    if used != len(frames):
        raise _unused(frames, used)
    return messages


def _decode_header(
    frames: Sequence[Frame], decoder: msgspec.msgpack.Decoder[Any], kind: str
) -> list[Any]:
    if not frames or len(frames) > FRAMES_MAX:
        raise BadMessage(f"a batch has 1 to {FRAMES_MAX} frames, not {len(frames)}")
    header = frames[0]
    if len(header) > HEADER_BYTES_MAX:
        raise BadMessage(f"a header of {len(header)} bytes, at most {HEADER_BYTES_MAX} are read")
    if header[:1] != WIRE_PREFIX:
        spoken = header[0] if header else "none"
        raise BadMessage(
            f"message format {spoken}, and this program speaks {WIRE_VERSION}: use the same "
            "release of ares on both sides"
        )
    try:
        decoded: list[Any] = decoder.decode(memoryview(header)[1:])
    except _UNDECODABLE as error:
        raise _bad(f"a batch of {kind}", error) from error
    return decoded


def _bad(what: str, error: Exception) -> BadMessage:
    return BadMessage(f"not {what}: {str(error)[:_WHY_CHARACTERS_MAX]}")


def _attach(messages: list[AnyMessage], frames: Sequence[Frame], used: int) -> int:
    """Give elements their data, from frame number ``used`` on; return the next unused number."""
    for position, message in enumerate(messages):
        if type(message) is PutData or type(message) is DataReply or type(message) is PutAhead:
            element = message.element
            if element is not None and element.frame != -1:
                whole = _attached(element, frames, used)
                messages[position] = msgspec.structs.replace(message, element=whole)
                used += len(whole.parts)
        elif type(message) is ListReply:
            entries = list(message.entries)
            for place, entry in enumerate(entries):
                if entry.element is not None and entry.element.frame != -1:
                    whole = _attached(entry.element, frames, used)
                    entries[place] = msgspec.structs.replace(entry, element=whole)
                    used += len(whole.parts)
            messages[position] = msgspec.structs.replace(message, entries=tuple(entries))
    return used


def _attached(element: Element, frames: Sequence[Frame], used: int) -> Element:
    """Return the element with the data of its frames, from number ``used`` on."""
    end = used + len(element.parts)
    if element.frame != used or end > len(frames):
        raise BadMessage(
            f"an element in frames {element.frame} to {end}, expected from {used} and "
            f"below {len(frames)}"
        )
    return Element(element.index, element.length, element.checksum, tuple(frames[used:end]))


def _unused(frames: Sequence[Frame], used: int) -> BadMessage:
    return BadMessage(f"{len(frames)} frames, {used} of them used")
