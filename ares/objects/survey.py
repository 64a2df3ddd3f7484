"""What is there: the names of a domain's objects, and what servers say of themselves."""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from ares.dap.reading import BRIEF
from ares.model.configuration import Configuration, Server
from ares.model.errors import ElementRefused, NotAuthorized, Superseded, Unavailable, Undecodable
from ares.model.identity import NO_DOMAIN, DomainName, ObjectName, ServerId
from ares.model.messages import Describe, Description, Listed
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD
from ares.objects.operations import at_quorum, newest, propagate, query
from ares.operation.effects import Gather, Operation, Together
from ares.reconfig.listing import list_page
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View

WINDOW_OBJECTS = 64


class Names(Struct):
    """One page of a listing. ``newest``: of every name that any server listed, in order, what all of them agree on, if that settles it; else None.

    ``after``: the cursor of the next page (None: that was all).
    """

    newest: dict[ObjectName, Listed | None]
    after: str | None


def list_objects(
    view: View, after: str, prefix: str
) -> Operation[tuple[list[ObjectName], str | None]]:
    """One page of the objects that are there, in order, and the cursor of the next page (None: that was all).

    What the listing does not settle is looked at, object by object (:func:`is_there`), so that a write or a delete that never completed shows as it
    would to a reader.
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


def list_mentioned(view: View, after: str, prefix: str) -> Operation[Names]:
    """One page of the names of which any server of a quorum of each active configuration knows a version, or a tombstone.

    A listing settles a name if all that answer in the last configuration agree on its version and know no successor: then it is at a quorum to stay,
    as with a fast read (:func:`ares.objects.operations.at_quorum`). While a successor is known, the quorum may agree on a version that never
    completed, and that the move leaves behind.
    """
    if not view.switches.piggyback:
        yield from read_config(view)
    highest: dict[ObjectName, Tag] = {}
    settled: dict[ObjectName, Listed] = {}
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
    return Names({name: settled.get(name) for name in within}, cursor)


def describe_servers(
    servers: Sequence[Server],
    patience_s: float,
    brief: bool = False,
    usage_of: tuple[DomainName, ...] = (),
) -> Operation[dict[ServerId, Description]]:
    """What each of at most 32 servers says of itself; the silent ones are missing. ``brief``: without what it holds. ``usage_of``: domains of which
    it says who uses them."""
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
    """Whether a reader finds something. A listing asks, which must not fail, nor wait, because of one object that is in a bad way.

    What was found is written back, as a reader does, so that the next listing says the same. What cannot be decoded is there: a reader is told so
    and a client has to write or delete it. What this client, or any, may not write back is taken as it was found.
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
