"""The servers of ARES II as published (Alg. 4), as functions over immutable states, for one object.

For searches over all schedules. A running server (ares/replica) answers the same, with four
differences. (t0, v0) is in its List without being stored. A second configuration at an index is
refused (rule R2). After gc-config the tags are forgotten, hence the List is empty and its tag is
t0; a published server keeps each tag with bottom. A List with a rotten element is refused.

| lines of Alg. 4 | of a running server, ``ConfigurationState`` |
|---|---|
| 2-3 | ``objects``, ``successor`` |
| 4-7 | ``get_tag`` |
| 8-15 | ``query_list`` |
| 16-27 | ``put_data``, :meth:`ares.dap.version_list.VersionList.put` |
| 28-30 | ``read_config`` |
| 31-35 | ``write_config``, :func:`ares.model.configuration.advance` |
| 36-43 | ``collect``, ``let_go`` |
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ares.model.configuration import Configuration, Successor
from ares.model.element import sealed
from ares.model.identity import ObjectName
from ares.model.messages import (
    DELETED_LENGTH,
    Ack,
    AnyMessage,
    CollectConfig,
    GetTag,
    ListEntry,
    ListReply,
    PutData,
    QueryList,
    ReadConfig,
    TagReply,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO


class ServerState(Struct, frozen=True):
    """The state of a server in c, for an object; ``pairs`` is the List (Alg. 4:1-3)."""

    c: Configuration
    pairs: tuple[ListEntry, ...]
    next_c: Successor | None = None  # Alg. 4:3


def beginning(c: Configuration, position: int, object: ObjectName) -> ServerState:
    """Return the initial state of the server at ``position``: the List has (t0, v0) (Alg. 4:2)."""
    index = position if c.dap == "ec" else 0
    v0 = sealed(c.id, object, TAG_ZERO, index, DELETED_LENGTH, ())
    return ServerState(c, (ListEntry(TAG_ZERO, v0),))


def respond(state: ServerState, request: Any) -> tuple[ServerState, AnyMessage]:
    """Return the next state and the reply to a request about c."""
    match request:
        case GetTag():  # Alg. 4:4, 4:7
            tau_max = max(pair.tag for pair in state.pairs)  # Alg. 4:5
            return state, TagReply(request.call, tau_max, state.next_c)  # Alg. 4:6
        case QueryList():  # Alg. 4:8-9, 4:15
            if request.successor is not None:  # rule R1, which is not in the paper
                state = _write_config(state, request.successor)
            pairs = state.pairs
            if request.held is not None:  # the optimised primitives of CoARES
                newer = tuple(pair for pair in pairs if pair.tag > request.held)
                pairs = newer + _with_bottom(pairs[len(newer) :])
            final = state.next_c is not None and state.next_c.finalized
            if final and not request.whole:  # Alg. 4:10; ARES of 2022 lacks the lines
                pairs = _with_bottom(pairs)  # Alg. 4:11-12
            # Alg. 4:13-14: as printed both are sent; line 14 is read as an else
            return state, ListReply(request.call, pairs, state.next_c)
        case PutData():  # Alg. 4:16, 4:27
            if all(pair.element is not None for pair in state.pairs):  # Alg. 4:17-18
                new = ListEntry(request.tag, request.element)
                state = replace(state, pairs=_trimmed(state, new))  # Alg. 4:19-24
            return state, Ack(request.call, state.next_c)  # Alg. 4:26
        case ReadConfig():  # Alg. 4:28, 4:30
            return state, Ack(request.call, state.next_c)  # Alg. 4:29
        case WriteConfig():  # Alg. 4:31, 4:35
            state = _write_config(state, request.successor)
            return state, Ack(request.call, state.next_c)  # Alg. 4:34
        case CollectConfig():  # Alg. 4:36, 4:43
            known = state.next_c  # Alg. 4:37: bottom has no ID, and is read as lower
            if known is None or _id(request.successor) > _id(known):  # Alg. 4:37
                state = replace(state, next_c=request.successor)  # Alg. 4:38
            state = replace(state, pairs=_with_bottom(state.pairs))  # Alg. 4:39-41
            return state, Ack(request.call, state.next_c)  # Alg. 4:42
    raise TypeError(f"{type(request).__name__} is no request of Alg. 4")


def _trimmed(state: ServerState, new: ListEntry) -> tuple[ListEntry, ...]:
    """Return the List with a pair more, without the lowest beyond delta + 1.

    See Alg. 4:19-25; line 25 is struck out.
    """
    pairs = {pair.tag: pair for pair in (new, *state.pairs)}  # Alg. 4:19
    highest_first = sorted(pairs, reverse=True)  # Alg. 4:20-21
    return tuple(pairs[tag] for tag in highest_first[: state.c.delta + 1])  # Alg. 4:22-24


def _with_bottom(pairs: tuple[ListEntry, ...]) -> tuple[ListEntry, ...]:
    return tuple(ListEntry(pair.tag, None) for pair in pairs)


def _write_config(state: ServerState, incoming: Successor) -> ServerState:
    known = state.next_c
    if known is None or not known.finalized or _id(incoming) > _id(known):  # Alg. 4:32
        return replace(state, next_c=incoming)  # Alg. 4:33
    return state


def _id(successor: Successor) -> int:
    return successor.configuration.index
