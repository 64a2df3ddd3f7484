"""A recording as spans, with the names that the papers' figures have (ARES II, Figs. 2-16), and what a server did as a span below them.

Two levels: USER is what a program asked for; DSMM, the distributed shared memory, is what became of it: the operations on objects, their phases,
the primitives, and in these the time in which messages are on their way and the time in which elements are encoded and decoded.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ares.model.identity import ServerId
from ares.operation.recording import RecordedPart, Recording
from ares.replica.unsynced import Served
from ares.tracing.outcomes import attributes_of, of_configuration

NAMES = {
    **dict.fromkeys(("read", "read_versioned", "cvr_read", "stat"), "StartReadRequest-MEMORY"),
    **dict.fromkeys(("write", "write_versioned", "cvr_write", "create", "delete", "advance"), "StartWriteRequest-MEMORY"),
    **dict.fromkeys(("reconfigure", "mend"), "StartReconRequest-MEMORY"),
    **dict.fromkeys(("query", "_first_phase"), "Phase1"),
    "propagate": "Phase2",
    "get_tag": "GetTag",
    "get_data": "GetData",
    "put_data": "PutData",
    "read_config": "ReadConfig",
    "put_config": "PutConfig",
    "add_config": "AddConfig",
    "update_config": "UpdateConfig",
    "announce_successor": "FinalizeConfig",
    "gc_config": "GCConfig",
    "list_page": "ListObjects",
    "round": "CommunicationLatency",
    "settled": "FindTagInKLists",
    "load": "LoadCoding",
    "encode": "EncodeLatency",
    "decode": "DecodeLatency",
    "consensus": "Consensus",
    "pause": "Pause",
    "queue": "Queue",
}
"""The span of a part, by the part's name; parts of other names are none, and what is in them belongs to the part around them."""

USER, DSMM = "USER", "DSMM"

SERVER, CLIENT, INTERNAL = "server", "client", "internal"


class Span(Struct, eq=False):
    """``id`` of 8 bytes; ``parent``: another's, empty at the root. Times are nanoseconds since 1970. ``kind``: server, client or internal."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    began_ns: int
    ended_ns: int
    kind: str
    attributes: dict[str, Any]
    error: str = ""


def spans_of(
    recording: Recording,
    result: object,
    trace: bytes,
    parent: bytes,
    epoch_ns: float,
    new_id: Callable[[], bytes],
    attributes: Mapping[str, Any],
    keys: bool,
) -> Iterator[Span]:
    """The spans of an operation, the operation's own first.

    ``result``: of the operation. ``parent``: the span of the caller, if it has one. ``epoch_ns``: nanoseconds since 1970 when the recording's clock
    was 0. ``attributes``: more of the operation. ``keys``: files may be named.
    """
    ids: dict[RecordedPart, bytes] = {}
    for part in recording.parts:
        whole = part is recording.operation
        name = part.name if whole else NAMES.get(part.name)
        above = parent if part.parent is None else _id_of(part.parent, ids)
        ids[part] = (part.id[16:24] or new_id()) if name is not None else above
        if name is None:
            continue
        about = {"ares.level": USER, **attributes_of(recording, result, keys), **attributes} if whole else {"ares.level": DSMM, **_about(part, keys)}
        if whole and recording.dropped:
            about["ares.dropped"] = recording.dropped
        began_ns, ended_ns = (int(epoch_ns + 1e9 * (at_s or part.began_s)) for at_s in (part.began_s, part.ended_s))
        kind = CLIENT if part.name == "round" or whole else INTERNAL
        yield Span(name, trace, ids[part], above, began_ns, ended_ns, kind, about, part.failed)


def _id_of(part: RecordedPart, ids: Mapping[RecordedPart, bytes]) -> bytes:
    """Of the part, or of the one around it that was kept."""
    while part not in ids:
        assert part.parent is not None, "the operation itself is kept"
        part = part.parent
    return ids[part]


def _about(part: RecordedPart, keys: bool) -> dict[str, Any]:
    """What a round was, and which servers made its quorum."""
    if part.configuration is None:
        return {}
    about: dict[str, Any] = {
        "ares.round": part.what,
        **of_configuration(part.configuration, keys),
        "ares.asked": list(part.asked),
        "ares.needed": part.needed,
        "ares.quorum": [heard.server for heard in part.heard],
        "ares.quorum.ms": [round(1e3 * (heard.at_s - part.began_s), 3) for heard in part.heard],
    }
    if part.sent_again:
        about["ares.sent_again"] = part.sent_again
    if any(heard.handled_s is not None for heard in part.heard):
        about["ares.quorum.server_ms"] = [round(1e3 * (heard.durable_s or 0.0), 3) for heard in part.heard]
    return about


def span_of(served: Served, server: ServerId, address: Mapping[str, Any], new_id: Callable[[], bytes], keys: bool) -> Iterator[Span]:
    """What a server did for a traced request; below it, the wait for its disk. ``address``: its attributes. ``keys``: name the object."""
    trace, parent, id = served.trace[:16], served.trace[16:24], new_id()
    began_ns = int(1e9 * served.came_s)
    handled_ns, left_ns = (began_ns + int(1e9 * seconds) for seconds in (served.handled_s, served.left_s))
    about: dict[str, Any] = {"ares.level": DSMM, "ares.server": server, **address, "ares.configuration.id": served.configuration.hex()}
    if keys and served.object:
        about["ares.object"] = served.object
    if served.tag is not None:
        about["ares.tag"] = str(served.tag)
    if served.bytes:
        about["ares.bytes"] = served.bytes
    yield Span(served.kind, trace, id, parent, began_ns, left_ns, SERVER, about, served.refused)
    if left_ns > handled_ns:
        yield Span("Commit", trace, new_id(), id, handled_ns, left_ns, INTERNAL, {"ares.level": DSMM, "ares.server": server})
