"""Recordings as spans, named as in the papers' figures (ARES II, Figs. 2-16).

Two levels: USER is a program's request; DSMM, the distributed shared memory, is its execution: the
operations on objects, their phases, the primitives, and in these the time for messages on their way
and the time for encoding and decoding elements.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ares.engine.recording import RecordedPart, Recording
from ares.model.identity import ServerId
from ares.model.message import TRACE_BYTES
from ares.replica.group_commit import Served
from ares.tracing.outcomes import attributes_of, of_configuration

SAMPLED = b"\x01"

USER, DSMM = "USER", "DSMM"
_DSMM_ATTRIBUTE = {"ares.level": DSMM}

SERVER_KIND, CLIENT_KIND, INTERNAL_KIND = "server", "client", "internal"
SITE = "ares.site"
"""The place of a process: an attribute of the process's resource."""


class Span(Struct, eq=False):
    """A span with an ``id`` of 8 bytes.

    ``parent``: the id of another span, empty at the root. Times are nanoseconds since 1970.
    ``kind``: server, client or internal.
    """

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    began_ns: int
    ended_ns: int
    kind: str
    attributes: dict[str, Any]
    error: str = ""


NewIds = Callable[[int], bytes]
"""A function that returns the wanted number of span ids, joined."""


class TracedOperation(Struct, eq=False):
    """A recorded operation.

    ``trace``: the id of the trace, empty for an operation only logged. ``parent``: the caller's
    span, if any. ``left_out``: number of untraced operations before this operation.
    """

    recording: Recording
    trace: bytes
    parent: bytes
    label: object
    result: object = None
    error: BaseException | None = None
    left_out: int = 0


def spans_of(traced: TracedOperation, epoch_ns: int, new_ids: NewIds, keys: bool) -> Iterator[Span]:
    """Yield the spans of an operation; the operation's own span comes first.

    ``epoch_ns``: nanoseconds since 1970 at the moment 0 of the operation's clock. ``keys``: names
    may be given.
    """
    recording, trace = traced.recording, traced.trace
    whole = recording.operation
    about = {"ares.level": USER, **attributes_of(recording, traced.result, keys)}
    if keys and (named := str(traced.label).partition(" of ")[2]):
        about["ares.object"] = named
    if traced.error is not None:
        about["error.type"] = type(traced.error).__name__
        whole.failed = str(traced.error) if keys else about["error.type"]
    if recording.dropped:
        about["ares.dropped"] = recording.dropped
    if traced.left_out:
        about["ares.left_out"] = traced.left_out
    new, began_ns = new_ids(len(recording.parts)), epoch_ns + int(1e9 * whole.began_s)
    ids: dict[RecordedPart | None, bytes] = {whole: new[:8]}
    yield Span(
        whole.name,
        trace,
        new[:8],
        traced.parent,
        began_ns,
        epoch_ns + int(1e9 * (whole.ended_s or whole.began_s)),
        CLIENT_KIND,
        about,
        whole.failed,
    )
    place = 0
    for part in recording.parts[1:]:
        place += 8
        above = ids.get(part.parent) or _id_of(part.parent, ids)
        id = ids[part] = part.id[16:24] or new[place : place + 8]
        kind, about = (
            (INTERNAL_KIND, _DSMM_ATTRIBUTE)
            if part.configuration is None
            else (CLIENT_KIND, _about(part, keys))
        )
        began_ns = epoch_ns + int(1e9 * part.began_s)
        ended_ns = began_ns if part.ended_s is None else epoch_ns + int(1e9 * part.ended_s)
        yield Span(part.name, trace, id, above, began_ns, ended_ns, kind, about, part.failed)


def _id_of(part: RecordedPart | None, ids: Mapping[RecordedPart | None, bytes]) -> bytes:
    """Return the id of the part, or of the nearest kept part around the part."""
    while part is not None and part not in ids:
        part = part.parent
    assert part is not None, "the operation itself is kept"
    return ids[part]


def _about(part: RecordedPart, keys: bool) -> dict[str, Any]:
    """Return the attributes of a round, with the quorum's servers and times.

    The times are in steps of a microsecond.
    """
    assert part.configuration is not None
    began_s = part.began_s
    about: dict[str, Any] = {
        "ares.level": DSMM,
        "ares.round": part.what,
        **of_configuration(part.configuration, keys),
        "ares.asked": part.asked,
        "ares.needed": part.needed,
        "ares.quorum": tuple([heard.server for heard in part.heard]),
        "ares.quorum.ms": tuple([_ms(heard.at_s - began_s) for heard in part.heard]),
    }
    if part.spared:
        about["ares.spared"] = part.spared
    if part.spared_asked_s is not None:
        about["ares.spared.ms"] = _ms(part.spared_asked_s - began_s)
    if part.refused:
        about["ares.refused"] = part.refused
    if any((heard.connected_s or 0.0) > began_s for heard in part.heard):
        about["ares.quorum.connected_ms"] = tuple(
            [_ms(max((heard.connected_s or 0.0) - began_s, 0.0)) for heard in part.heard]
        )
    if part.silent_s is not None:
        about["ares.silent.ms"] = _ms(part.silent_s - began_s)
    if part.sent_again:
        about["ares.sent_again"] = part.sent_again
    if any(heard.handled_s is not None for heard in part.heard):
        about["ares.quorum.server_ms"] = tuple(
            [_ms(heard.durable_s or 0.0) for heard in part.heard]
        )
    return about


def _ms(seconds: float) -> float:
    """Return milliseconds in steps of a microsecond."""
    return int(1e6 * seconds + 0.5) / 1e3


def span_of(
    served: Served,
    server: ServerId,
    address: Mapping[str, Any],
    epoch_ns: int,
    new_ids: NewIds,
    keys: bool,
) -> Iterator[Span]:
    """Yield the span of a server's work for a traced request; below, the wait for its disk.

    ``address``: the server's attributes. ``keys``: name the object.
    """
    context, id = served.trace, new_ids(1)
    trace, parent = context[:16], context[16:24]
    if len(context) != TRACE_BYTES or not context[-1] & SAMPLED[0] or not any(trace):
        return
    began_ns = epoch_ns + int(1e9 * served.batch_s)
    handled_ns, left_ns = (
        began_ns + int(1e9 * served.handled_s),
        began_ns + int(1e9 * served.left_s),
    )
    about: dict[str, Any] = {
        "ares.level": DSMM,
        "ares.server": server,
        **address,
        "ares.configuration.id": served.configuration.hex(),
    }
    if keys and served.object:
        about["ares.object"] = served.object
    if served.tag is not None:
        about["ares.tag"] = str(served.tag)
    if served.bytes:
        about["ares.bytes"] = served.bytes
    yield Span(
        served.kind, trace, id, parent, began_ns, left_ns, SERVER_KIND, about, served.refused
    )
    if left_ns > handled_ns:
        yield Span(
            "Commit",
            trace,
            new_ids(1),
            id,
            handled_ns,
            left_ns,
            INTERNAL_KIND,
            {"ares.level": DSMM, "ares.server": server},
        )
