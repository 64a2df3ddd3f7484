"""Write-once domains: names created once, fetched, and dropped without a tombstone (rule R25).

A name is created at most once, with a single value, and is never written again after its drop: an
index outside the domain, such as the index of a bucket, chooses the names. Three operations become
simpler than those of a register:

- Create is put-data alone. All values of a name are equal, hence all versions have the same tag,
  and no first phase looks for a higher tag.
- Fetch needs no write back. A version at some servers is the only value that the name ever has.
- Drop leaves no tombstone. A tombstone orders a delete before older writes, and no write follows.

A create counts as completed when put-data has followed every successor (rule R3), as the second
phase of a write; a fetch begins at the last finalized configuration, as the first phase of a read.
Hence every later fetch finds the value, as long as no client drops the name. A drop follows the
sequence from the last finalized configuration: a mover may have brought the name to each successor.

A late message of a create, or a mover which read the name before its drop, may bring a name back to
some servers. Such a name is litter: the index names it no more. A sweep lists the names of each
server (:func:`list_names`), because a quorum's listing misses names of the other servers.
"""

from collections.abc import Sequence

from msgspec import Struct

from ares.dap.primitives import DataAccess
from ares.engine.effects import Gather, Operation
from ares.engine.phases import READ_OBJECT, WRITE_OBJECT, phase
from ares.model.configuration import Configuration, latest_named
from ares.model.errors import BadInput, LeftBehind, ObjectNotFound, Superseded, WriteOnceRefusal
from ares.model.identity import ObjectName, ServerId, is_object_name
from ares.model.messages import DROPPED_MAX, PAGE_OBJECTS_MAX, Drop, ListObjects, ObjectsReply
from ares.model.tag import WRITE_ONCE_TAG
from ares.model.value import LOST, TOMBSTONE
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View
from ares.registers.operations import newest, propagate, query


class ServerNames(Struct, frozen=True):
    """A page of the names at a server. ``after``: the cursor of the next page; None at the end."""

    names: tuple[ObjectName, ...]
    after: str | None


@phase(WRITE_OBJECT)
def create(view: View, name: ObjectName, value: bytes) -> Operation[None]:
    """Store the only value of ``name``; the same create may be repeated.

    Raises :class:`WriteOnceRefusal`.
    """
    check(view)
    yield from propagate(view, name, WRITE_ONCE_TAG, value)


@phase(READ_OBJECT)
def fetch(view: View, name: ObjectName) -> Operation[bytes]:
    """Return the value of ``name``.

    Raises :class:`ObjectNotFound` if the name was never created or was dropped, as a quorum says;
    :class:`LeftBehind` if a move left its value behind; and :class:`WriteOnceRefusal`.
    """
    check(view)
    found = newest((yield from query(view, DataAccess.get_data, name)))
    if found.value is LOST:
        raise LeftBehind(name, found.tag)
    if found.value is TOMBSTONE:
        raise ObjectNotFound(name, view.domain)
    assert isinstance(found.value, bytes), (
        "the last configuration of a traversal has no finalized successor"
    )
    return found.value


@phase(WRITE_OBJECT)
def drop(view: View, names: Sequence[ObjectName]) -> Operation[None]:
    """Make a quorum of each active configuration forget ``names``, durably.

    Raises :class:`WriteOnceRefusal`, and :class:`BadInput` for an impossible name. After another
    error some names may be dropped; the drop may be repeated.
    """
    check(view)
    if not all(map(is_object_name, names)):
        raise BadInput("a name to be dropped is not a name of an object; nothing was changed")
    for first in range(0, len(names), DROPPED_MAX):
        yield from _drop_some(view, tuple(names[first : first + DROPPED_MAX]))


def _drop_some(view: View, names: tuple[ObjectName, ...]) -> Operation[None]:
    """Drop names from the last finalized configuration and from every successor."""
    configuration: Configuration | None = view.sequence.last_finalized
    while configuration is not None:
        try:
            answers = yield Gather(configuration, Drop, "drop", arguments=(configuration.id, names))
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        found = latest_named(answers.values())
        configuration = yield from find_next_config(view, configuration, found)


def members(view: View) -> Operation[tuple[ServerId, ...]]:
    """Return the servers of the last finalized configuration, as a quorum knows it now."""
    yield from read_config(view)
    return view.sequence.last_finalized.server_ids


def list_names(
    view: View, server: ServerId, after: str = "", limit: int = PAGE_OBJECTS_MAX
) -> Operation[ServerNames]:
    """Return the first ``limit`` names after ``after`` at a server, in order.

    The server is a member of the last finalized configuration known to this client, or known after
    its answer. Raises :class:`BadInput` for other servers, and :class:`WriteOnceRefusal`.
    """
    check(view)
    while True:
        configuration = view.sequence.last_finalized
        if server not in configuration.server_ids:
            raise BadInput(
                f"{server} is not in {configuration.describe()}, the last finalized configuration "
                f"of {view.domain!r}; nothing was listed"
            )
        try:
            answers = yield Gather(
                configuration,
                ListObjects,
                "list-names",
                (server,),
                1,
                arguments=(configuration.id, after, limit),
            )
        except Superseded as superseded:
            detour(view, superseded)
            continue
        reply: ObjectsReply = answers[server]
        yield from find_next_config(view, configuration, reply.successor)
        if view.sequence.last_finalized is configuration:
            names = tuple(listed.name for listed in reply.objects)
            return ServerNames(names, names[-1] if reply.more and names else None)


def check(view: View) -> None:
    """Raise :class:`WriteOnceRefusal` unless the domain is write-once, as it stays for ever."""
    if not view.sequence.last_known.write_once:
        raise WriteOnceRefusal(view.domain, False)
