"""Surveys: the names of a domain's objects, and the self-descriptions of servers."""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from ares.dap.reading import BRIEF
from ares.engine.effects import Gather, Operation, Together
from ares.model.configuration import Configuration, Server
from ares.model.errors import ElementRefused, NotAuthorized, Superseded, Unavailable, Undecodable
from ares.model.identity import NO_DOMAIN, DomainName, ObjectName, ServerId
from ares.model.messages import Describe, Description, ListedObject
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD
from ares.reconfig.listing import list_page
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View
from ares.registers.operations import at_quorum, newest, propagate, query

WINDOW_OBJECTS = 64


class NamesPage(Struct):
    """A page of a listing.

    ``newest``: every name listed by any server, in order, with the entry on which all servers
    agree; None if the answers do not settle the name. ``after``: the cursor of the next page (None:
    no more pages).
    """

    newest: dict[ObjectName, ListedObject | None]
    after: str | None


def list_objects(
    view: View, after: str, prefix: str
) -> Operation[tuple[list[ObjectName], str | None]]:
    """Return a page of the present objects, in order, and the cursor of the next page.

    The cursor is None after the last page. Names which the listing does not settle are looked at,
    object by object (:func:`is_there`): the listing shows an incomplete write or delete as a read
    shows it.
    """
    page = yield from list_mentioned(view, after, prefix)
    there = {
        name for name, newest in page.newest.items() if newest is not None and not newest.deleted
    }

    def probe(name: ObjectName) -> Operation[None]:
        if (yield from is_there(view, name)):
            there.add(name)

    yield Together(
        map(probe, [name for name, newest in page.newest.items() if newest is None]), WINDOW_OBJECTS
    )
    return [name for name in page.newest if name in there], page.after


def list_mentioned(view: View, after: str, prefix: str) -> Operation[NamesPage]:
    """Return a page of the names with a version or a tombstone at any server of a quorum.

    Every active configuration is asked. A listing settles a name if all answers in the last
    configuration agree on its version and know no successor: the version is at a quorum to stay, as
    with a fast read (:func:`ares.registers.operations.at_quorum`). While a successor is known, the
    quorum may agree on a version that never completed, and which the move leaves behind.
    """
    if not view.switches.piggyback:
        yield from read_config(view)
    highest: dict[ObjectName, Tag] = {}
    settled: dict[ObjectName, ListedObject] = {}
    cursors: list[str] = []
    configuration: Configuration | None = view.sequence.last_finalized
    while configuration is not None:
        try:
            page = yield from list_page(configuration, after, prefix)
        except Superseded as superseded:
            configuration = detour(view, superseded)
            continue
        if page.after is not None:
            cursors.append(page.after)
        for name, listed in page.objects.items():
            newest = max(highest.get(name, TAG_ZERO), *(entry.tag for entry in listed))
            if (
                page.successor is None
                and len(listed) == page.answered
                and all(entry.tag == newest for entry in listed)
            ):
                settled[name] = listed[0]
            highest[name] = newest
        configuration = yield from find_next_config(view, configuration, page.successor)
    cursor = min(cursors, default=None)
    within = sorted(name for name in highest if cursor is None or name <= cursor)
    return NamesPage({name: settled.get(name) for name in within}, cursor)


def describe_servers(
    servers: Sequence[Server],
    patience_s: float,
    brief: bool = False,
    usage_of: tuple[DomainName, ...] = (),
) -> Operation[dict[ServerId, Description]]:
    """Return the self-description of each of at most 32 servers, without the silent servers.

    ``brief``: identity only. ``usage_of``: domains whose users the servers report, too.
    """
    roster = Configuration("abd", tuple(servers)).at(NO_DOMAIN, 0)
    try:
        return dict(
            (
                yield Gather(
                    roster,
                    Describe,
                    "describe",
                    None,
                    1,
                    lambda _: False,
                    lambda *_: patience_s,
                    2 * patience_s,
                    (brief, usage_of),
                )
            )
        )
    except (Unavailable, Superseded):
        return {}


def is_there(view: View, object: ObjectName) -> Operation[bool]:
    """Return whether a reader finds a value.

    The caller is a listing, which must neither fail nor wait because of a single object in trouble.
    A version found is written back, as by a reader: the next listing then shows the same. An
    undecodable object is present: a reader gets the error, and a client has to write or delete the
    object. A version which this client, or any client, may not write back is taken as found.
    """
    try:
        answers = yield from query(
            view, lambda dap, object: dap.get_version(object, effort=BRIEF), object
        )
        if at_quorum(answers, newest(answers)) is None:
            answers = yield from query(
                view, lambda dap, object: dap.get_data(object, effort=BRIEF), object
            )
        found = newest(answers)
        if at_quorum(answers, found) is None:
            assert found.value is not WITHHELD, (
                "the last configuration of a traversal has no finalized successor"
            )
            with suppress(ElementRefused, NotAuthorized):
                yield from propagate(view, object, found.tag, found.value)
    except Undecodable:
        return True
    return found.value is not TOMBSTONE
