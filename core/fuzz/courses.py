"""The courses of events encoded by the fuzzer's inputs, for twins that must not differ.

A course runs on two twins, with the compiled core and in Python. An input is read as decisions,
byte by byte, so that a small change of the input is a small change of the course. Seals of put
elements are right unless the input decides otherwise: no fuzzer finds a hash.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from unittest.mock import patch

from ares.engine.session import SESSION_TICK_S
from ares.model.codec import encode
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import sealed
from ares.model.errors import BadMessage, ConnectionClosed
from ares.model.messages import (
    CollectConfig,
    DataReply,
    Element,
    GetData,
    GetTag,
    ListObjects,
    PutData,
    ReadConfig,
    Role,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from tests.compiled.server_twins import FOREIGN, HOSTED, INITIAL, Half, Keyed, twins
from tests.property.test_compiled_client import NAMES, ODD, SEQUENCES, SERVERS, VALUES, Both

EVENTS_MAX = 40
BETWEEN_STARTS_S = 2 * SESSION_TICK_S
MESSAGES_MAX = 6
EDITS_MAX = 4
ODDS = 16
"""Rarity of messages which hardly any peer sends: one in ODDS."""

OBJECTS = ("a", "b", "ü" * 20, "\0file", "\0domain/x", "n" * 1024, "é" * 513, "")
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 70_000, 0, 1 << 48, (1 << 48) + 1, 2**64 - 1)
WRITERS = (0, 1, 2**32, 2**64 - 1)
SIZES = (0, 1, 2, 10, 31, 300, 8191, 8192)
LENGTHS = (-1, -2, -3, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
SERVER_IDS = [server.id for server in SERVERS]
SENDERS = [
    Keyed(role, site)
    for role in (Role.WRITE, Role.RECONFIGURE, Role.WRITE, Role.READ)
    for site in ("", "here")
]


class Decisions:
    """Decisions made by the bytes of an input; after the end, always the first choice."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def over(self) -> bool:
        return self._at >= len(self._data)

    def below(self, most: int) -> int:
        taken, self._at = self._data[self._at : self._at + 1], self._at + 1
        return taken[0] % most if taken else 0

    def one(self, choices: Sequence):
        return choices[self.below(len(choices))]

    def rarely(self) -> bool:
        return self.below(ODDS) == ODDS - 1

    def bytes(self, most: int) -> bytes:
        count = self.below(most)
        taken, self._at = self._data[self._at : self._at + count], self._at + count
        return taken


def _tag(some: Decisions) -> Tag:
    return Tag(some.one(NUMBERS if some.rarely() else NUMBERS[:8]), some.one(WRITERS))


def _element(
    some: Decisions, configuration: Configuration, name: str, tag: Tag, index: int
) -> Element:
    parts: tuple[bytes, ...] = (bytes([some.below(256)]) * some.one(SIZES),)
    length = len(parts[0]) * configuration.k
    if some.rarely():
        index = some.one((0, 1, -1, 4, 2**31, 2**63 - 1))
    if some.rarely():
        length, parts = some.one(LENGTHS), some.one((parts, (), (b"",), (*parts, b"more")))
    try:
        element = sealed(configuration.id, name, tag, index, length, parts)
    except Exception:  # a name or number that cannot be sealed
        return Element(index, length, 1, parts)
    return Element(index, length, element.checksum ^ 1, parts) if some.rarely() else element


def _request(some: Decisions):
    configuration = some.one([*HOSTED, FOREIGN]) if some.rarely() else some.one(HOSTED)
    id, name, call = (
        configuration.id,
        some.one(OBJECTS if some.rarely() else OBJECTS[:3]),
        some.one((1, 200, 70_000, 2**64 - 1)),
    )
    match some.below(8):
        case 0 | 1:
            return GetTag(call, id, name)
        case 2 | 3:
            wanted, held = (_tag(some) if some.below(2) else None for _ in range(2))
            return GetData(
                call,
                id,
                name,
                bool(some.below(2)),
                wanted,
                _successor(some, configuration) if some.rarely() else None,
                held,
            )
        case 7 if some.rarely():
            finalized = Successor(_successor(some, configuration).configuration, Status.FINALIZED)
            moves = (
                WriteConfig(call, id, _successor(some, configuration)),
                CollectConfig(call, id, finalized),
            )
            return some.one((ReadConfig(call, id), ListObjects(call, id, "", 10), *moves))
    tag = _tag(some)
    return PutData(
        call,
        id,
        name,
        tag,
        _element(some, configuration, name, tag, int(configuration.dap == "ec")),
    )


def _successor(some: Decisions, configuration: Configuration) -> Successor:
    following = INITIAL if configuration is FOREIGN else configuration
    return Successor(
        following.at(following.domain, following.index + 1, INITIAL.id),
        some.one((Status.PENDING, Status.FINALIZED)),
    )


def _edited(some: Decisions, frame: bytes) -> bytes:
    for _ in range(1 + some.below(EDITS_MAX)):
        at = (some.below(256) << 8 | some.below(256)) % (len(frame) + 1)
        frame = frame[:at] + some.bytes(9) + frame[at + some.below(9) :]
    return frame


def _frames(some: Decisions) -> list[bytes]:
    frames = []
    for _ in range(some.one((1, 1, 2, 3))):
        if some.rarely():
            frames.append(some.bytes(256))
            continue
        encoded = encode([_request(some) for _ in range(1 + some.below(MESSAGES_MAX))])
        frames.append(_edited(some, encoded[0]) if some.below(8) == 7 else encoded[0])
    return frames


@patch(
    "ares.server.storage_server.time", SimpleNamespace(perf_counter=lambda: 0.0)
)  # replies to traced requests have times
def server(data: bytes) -> None:
    """Send batches to twin servers, with or without a journal, with or without keys."""
    some = Decisions(data)
    compiled, pure = twins(bool(some.below(2)), bool(some.below(2)))
    for _ in range(EVENTS_MAX):
        if some.over:
            break
        event, sender, frames, raw = (
            some.below(8),
            some.one(SENDERS),
            _frames(some),
            bool(some.below(2)),
        )
        for half in (compiled, pure):
            match event:
                case 0:
                    half.take_steps()
                case 1:
                    half.loop.take()
                case 2:
                    half.disk.take()
                case _:
                    half.receive(sender, frames, raw and all(frames))
        assert compiled.sent == pure.sent, (compiled.sent[-1:], pure.sent[-1:])
        if event == 3:
            _torn(some, compiled, frames)
    assert compiled.state == pure.state
    for half in (compiled, pure):
        half.take_steps()
    assert (compiled.sent, compiled.state) == (pure.sent, pure.state)


def _torn(some: Decisions, compiled: Half, frames: list[bytes]) -> None:
    """Check that the core leaves a read alone which is no whole number of messages, or empty."""
    before = compiled.state
    read = _edited(some, b"".join(frames))
    if compiled.host.serve(SENDERS[-2], memoryview(read[: 1 + some.below(9)])) is not None:
        raise AssertionError(read)
    assert compiled.state == before


class Pair(Both):
    """Twin clients.

    ``forged``: a tag, a length and bytes which no client wrote, from several servers.
    Time passes in ticks, and between the starts of operations: operations that end at the same tick
    may end in any order.
    """

    forged: tuple[Tag, int, int] | None = None

    def do(self, event: str, *rest) -> None:
        if event == "start":
            self._pass(BETWEEN_STARTS_S)
        if event == "tick":
            self._pass(*rest)
        else:
            super().do(event, *rest)

    def _pass(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds / SESSION_TICK_S))):
            super().do("tick", SESSION_TICK_S)


def client(data: bytes) -> None:
    """Run twin clients with servers that answer well or oddly.

    The clients know a configuration, of replicas or an erasure code, or also its successor.
    """
    some = Decisions(data)
    both = Pair(*some.one(SEQUENCES))
    both.forged = (
        (_tag(some), some.one(LENGTHS) if some.below(2) else some.below(256), some.one(SIZES))
        if some.below(2)
        else None
    )
    for _ in range(EVENTS_MAX):
        if some.over:
            break
        match some.below(16):
            case 0 | 1 | 2 | 3:
                both.do(
                    "start",
                    some.one(("read", "write", "write", "read", "delete")),
                    some.one(NAMES),
                    some.one(VALUES),
                )
            case 4:
                both.do("tick", some.one((0.001, 0.03, 0.3, 1.1)))
            case 5:
                both.do("cancel", some.below(20))
            case 6:
                both.do("lose", some.below(len(SERVERS)))
            case 7:
                both.do(
                    "answer",
                    some.below(len(SERVERS)),
                    1 + some.below(3),
                    bool(some.below(2)),
                    some.one(ODD),
                )
            case 8 | 9 | 10:
                _answer_oddly(some, both)
            case _:
                both.do("answer", some.below(len(SERVERS)), 1 + some.below(4), False, "")
    both.post()
    for twin in both.twins:
        twin.session.close(ConnectionClosed)
    mine, pure = both.twins
    assert sorted(mine.ends, key=repr) == sorted(pure.ends, key=repr), (mine.ends, pure.ends)
    assert mine.session.busy == pure.session.busy


def _forged(
    some: Decisions, both: Pair, server: str, request: GetData, reply: DataReply
) -> DataReply:
    """Return a forged reply with right seals."""
    assert both.forged is not None
    tag, length, size = both.forged
    index = (
        some.below(len(SERVERS))
        if some.rarely()
        else SERVER_IDS.index(server)
        if both.configuration.dap == "ec"
        else 0
    )
    element = (
        sealed(both.configuration.id, request.object, tag, index, length, (b"f" * size,))
        if length >= 0
        else None
    )
    return DataReply(reply.call, (tag,), length, TAG_ZERO, element, None)


def _answer_oddly(some: Decisions, both: Pair) -> None:
    """Reply with tags and elements unlike the server's, or with changed bytes."""
    both.post()
    server = some.one(SERVERS).id
    count = 1 + some.below(3)
    requests, both.waiting[server] = both.waiting[server][:count], both.waiting[server][count:]
    replies = []
    for request in requests:
        reply = both.replicas[server].handle(request)
        if isinstance(reply, DataReply) and both.forged is not None and some.below(2):
            reply = _forged(some, both, server, request, reply)
        elif isinstance(reply, DataReply) and some.below(2):
            tag, index = _tag(some), some.below(len(SERVERS))
            element = (
                _element(some, both.configuration, request.object, tag, index)
                if some.below(4)
                else None
            )
            length = some.one(LENGTHS) if some.rarely() or element is None else element.length
            reply = DataReply(
                reply.call,
                (tag,) * some.below(3),
                length,
                _tag(some) if some.rarely() else reply.trimmed,
                element,
                None,
            )
        if reply is not None:
            replies.append(reply)
    frames = encode(replies)
    if some.below(2):
        frames = [_edited(some, frames[0]), *frames[1:]]
    refused = []
    for twin in both.twins:
        try:
            twin.session.receive_frames(server, frames, both.now)
            refused.append(None)
        except BadMessage as error:
            refused.append(str(error))
    assert refused[0] == refused[1], refused
    both.compare()
