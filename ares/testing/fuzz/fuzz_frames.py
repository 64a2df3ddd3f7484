"""What nobody should send, and a little of what everybody does: batches of garbage, of real messages with anything in them, and of real ones damaged.

Messages are made by their types (ares/model/messages.py), so that a new kind of message is fuzzed from its first day. All is chance, from a seed.
"""

import random
from collections.abc import Callable, Sequence

import msgspec
from msgspec import inspect

from ares.model.codec import VERSION
from ares.model.configuration import Configuration, Server
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.model.messages import AnyMessage, GetData, GetTag, ListObjects, PutData, ReadConfig, SetLogLevel

_INTEGERS = (0, 1, -1, 2, 127, 128, 255, 256, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
_TEXTS = ("", "k", "default", "a/b", "\0", "ä\N{SNOWMAN}", "x" * 300, "127.0.0.1:7000", "abd", "ec", "../../etc/passwd")
_ITEMS_MAX = 4
_GARBAGE_BYTES_MAX = 2000
_MESSAGES_MAX = 6

_PREFIX = bytes([VERSION])
_ABOUT_ONE = (GetTag, GetData, PutData, ReadConfig, ListObjects)
"""Requests about one configuration that need no successor."""

_SERVERS = [Server(ServerId(f"s{index}"), f"127.0.0.1:{7000 + index}", f"{index:032x}") for index in range(5)]
_CONFIGURATIONS: list[object] = [
    msgspec.msgpack.decode(msgspec.msgpack.encode(configuration.at(DEFAULT_DOMAIN, index)))
    for configuration in (Configuration.abd(_SERVERS[:3]), Configuration.ec(_SERVERS, k=3))
    for index in (0, 1, 7)
]
"""Made up, but possible: most that chance makes are not."""

_KINDS = [
    kind
    for kind in inspect.type_info(AnyMessage).types  # type: ignore[attr-defined]
    if kind.cls is not SetLogLevel  # the only one that works for anybody, and what it does is to fill the log
]


class Mint:
    """Makes batches (their frames). ``known``: the id of a configuration that the server serves, so that some requests get further than its door.

    Requests about that one carry no successor: a server without keys would believe it, and serve no more.
    """

    def __init__(self, chance: random.Random, known: bytes | None = None) -> None:
        self._chance = chance
        self._known = known
        self._slips = 0.0
        self._makers: Sequence[Callable[[], list[bytes]]] = (self._garbage, self._invented, self._invented, self._damaged, self._damaged)

    def batch(self) -> list[bytes]:
        """Some batch; one in a hundred may even be right."""
        return self._chance.choice(self._makers)()

    def _garbage(self) -> list[bytes]:
        chance = self._chance
        frames = [chance.randbytes(chance.randrange(_GARBAGE_BYTES_MAX)) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.7:
            frames[0] = _PREFIX + frames[0]
        return frames

    def _invented(self) -> list[bytes]:
        """Messages of the right shape, but for a slip here and there in every third batch."""
        self._slips = self._chance.choice([0.0, 0.0, 0.02])
        messages = [self._message() for _ in range(self._chance.randint(1, _MESSAGES_MAX))]
        more = [self._chance.randbytes(self._chance.randrange(300)) for _ in range(self._chance.choice([0] * 8 + [1, 2]))]
        return [_PREFIX + msgspec.msgpack.encode(messages), *more]

    def _damaged(self) -> list[bytes]:
        chance = self._chance
        frames = self._invented()
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(frames))
            frame = bytearray(frames[place])
            where = chance.randrange(len(frame) + 1)
            match chance.randrange(6):
                case 0 if frame:
                    frame[min(where, len(frame) - 1)] ^= 1 << chance.randrange(8)
                case 1:
                    del frame[where:]
                case 2:
                    frame[where:where] = chance.randbytes(chance.randint(1, 9))
                case 3:
                    del frame[where : where + chance.randint(1, 9)]
                case 4:
                    frame += frame[where:]
                case 5:
                    frames.append(bytes(frame))
            frames[place] = bytes(frame)
        return frames

    def _message(self) -> list[object]:
        kind = self._chance.choice(_KINDS)
        message = self._struct(kind)
        names = [field.name for field in kind.fields]
        if self._known is not None and kind.cls in _ABOUT_ONE and self._chance.random() < 0.5:
            message[1 + names.index("configuration")] = self._known
            if "successor" in names:
                message[1 + names.index("successor")] = None
        return message

    def _struct(self, kind: inspect.StructType) -> list[object]:
        head: list[object] = [] if kind.tag is None else [kind.tag]
        return head + [self._field(field) for field in kind.fields]

    def _field(self, field: inspect.Field) -> object:
        usual: object = field.default
        return usual if usual is not msgspec.NODEFAULT and self._chance.random() < 0.5 else self._value(field.type)

    def _value(self, kind: inspect.Type) -> object:
        chance = self._chance
        if self._slips and chance.random() < self._slips:
            return chance.choice([None, "text", 7, b"\xff", [], {}, [[[]]]])
        match kind:
            case inspect.StructType(cls=cls):
                return chance.choice(_CONFIGURATIONS) if cls is Configuration and chance.random() < 0.8 else self._struct(kind)
            case inspect.UnionType(types=types):
                return self._value(chance.choice(types))
            case inspect.VarTupleType(item_type=item):
                return [self._value(item) for _ in range(chance.randrange(_ITEMS_MAX))]
            case inspect.IntType():
                return chance.choice(_INTEGERS) if chance.random() < 0.5 else chance.randrange(100)
            case inspect.BytesType():
                return chance.randbytes(chance.choice([0, 1, 16, 16, 200]) if chance.random() < 0.2 else 16)
            case inspect.StrType():
                return chance.choice(_TEXTS)
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.FloatType():
                return chance.choice([0.0, -1.5, float("inf"), float("nan")])
            case inspect.EnumType(cls=cls):
                return chance.choice([*(member.value for member in cls), *([99] if self._slips else [])])
            case inspect.LiteralType(values=values):
                return chance.choice(values)
            case _:
                return None
