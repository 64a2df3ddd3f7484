"""Messages made from their types, with a number at or beyond a bound, also nested.

A message of this module is the array in MessagePack, which begins with the tag of the kind.
"""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from ares.model.configuration import DELTA_MAX, SERVERS_MAX, Configuration, Server
from ares.model.identity import DomainName, ServerId
from ares.model.messages import AnyMessage

LEAST, MOST = -(2**63), 2**64 - 1
"""The bounds of an integer in MessagePack."""

NO_NUMBERS = [float("-inf"), float("inf"), float("nan")]

KINDS: dict[str, inspect.StructType] = {
    kind.cls.__name__: kind
    for kind in inspect.type_info(AnyMessage).types  # type: ignore[attr-defined]
}
_SERVERS = [
    Server(ServerId(f"s{index}"), "127.0.0.1:9", f"{index:032x}") for index in range(SERVERS_MAX)
]
_LIKELY = Configuration.ec(_SERVERS[:5], k=3)
_FITTING = {
    ("k", 1): Configuration.abd(_SERVERS[:3]),
    ("k", SERVERS_MAX - 1): Configuration.ec(_SERVERS, k=SERVERS_MAX - 1, allow_no_faults=True),
    ("delta", 0): Configuration.abd(_SERVERS[:3]),
    ("delta", DELTA_MAX): Configuration.ec(_SERVERS[:5], k=3, delta=DELTA_MAX),
}
"""Configurations for numbers that the usual configuration cannot have."""


class Field(NamedTuple):
    """A number in a message.

    ``path`` has the indices of the arrays down to the number. ``owner`` is the type with the field.
    """

    name: str
    path: tuple[int, ...]
    owner: type
    bounds: inspect.IntType | inspect.FloatType

    @property
    def within(self) -> list[Any]:
        """Return the least and the highest number in bounds."""
        bounds = self.bounds
        return [bounds.ge, MOST if bounds.le is None else bounds.le]

    @property
    def beyond(self) -> list[Any]:
        """Return numbers out of bounds."""
        bounds = self.bounds
        assert bounds.ge is not None
        if isinstance(bounds, inspect.FloatType):
            assert bounds.le is not None
            return [bounds.ge - 0.5, bounds.le * 1.001, *NO_NUMBERS]
        values = [bounds.ge - 1, LEAST]
        return values if bounds.le is None else [*values, bounds.le + 1, MOST]


def numbers(kind: str) -> Iterator[Field]:
    """Yield the numbers of a kind of message, in the order of its fields."""
    yield from _numbers(KINDS[kind], kind, (), KINDS[kind].cls)


def message(kind: str, field: Field | None = None, value: Any = None) -> list[Any]:
    """Make a message with ``value`` in ``field``. All remaining numbers are in bounds."""
    made = _made(KINDS[kind])
    if field is not None:
        place = made
        for step in field.path[:-1]:
            place = place[step]
        if field.owner is Configuration:
            _fit(place, field.name.rpartition(".")[2], value)
        place[field.path[-1]] = value
    return made


def _numbers(kind: inspect.Type, name: str, path: tuple[int, ...], owner: type) -> Iterator[Field]:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            yield Field(name, path, owner, kind)
        case inspect.StructType(cls=cls, tag=tag, fields=fields):
            for index, field in enumerate(fields, tag is not None):
                yield from _numbers(field.type, f"{name}.{field.name}", (*path, index), cls)
        case inspect.UnionType(types=types):
            for each in types:
                yield from _numbers(each, name, path, owner)
        case inspect.VarTupleType(item_type=item):
            yield from _numbers(item, name, (*path, 0), owner)
        case inspect.TupleType(item_types=items):
            for index, item in enumerate(items):
                yield from _numbers(item, f"{name}[{index}]", (*path, index), owner)


def _made(kind: inspect.Type) -> Any:
    match kind:
        case inspect.StructType(cls=cls) if cls is Configuration:
            return _plain(_LIKELY.at(DomainName("d"), 0, b"c" * 16))
        case inspect.StructType(tag=tag, fields=fields):
            return [*([] if tag is None else [tag]), *(_made(field.type) for field in fields)]
        case inspect.UnionType(types=types):
            return _made(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.VarTupleType(item_type=item):
            return [_made(item)]
        case inspect.TupleType(item_types=items):
            return [_made(item) for item in items]
        case inspect.IntType(ge=least) | inspect.FloatType(ge=least):
            return least or 0
        case inspect.BytesType():
            return b"0" * 16
        case inspect.StrType():
            return "d"
        case inspect.BoolType():
            return False
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
    raise AssertionError(f"no value of {kind} is known")


def _fit(place: list[Any], field: str, value: Any) -> None:
    """Replace the configuration at ``place`` if it cannot have this value."""
    fitting = _FITTING.get((field, value))
    if field == "start":
        fitting = Configuration.chain(_SERVERS[:3])
    if fitting is not None:
        place[:] = _plain(fitting.at(DomainName("d"), 0, b"c" * 16))


def _plain(configuration: Configuration) -> list[Any]:
    return copy.deepcopy(msgspec.msgpack.decode(msgspec.msgpack.encode(configuration)))
