"""What is there: the names of a domain's objects, and what servers say of themselves."""

from collections.abc import Iterator, Sequence

from ares.client.operations import stat
from ares.configuration import Configuration, Server
from ares.effects import Gather, Operation, Together
from ares.errors import Superseded, Unavailable
from ares.identity import NO_DOMAIN, ObjectName, ServerId
from ares.messages import Describe, Description, Listed
from ares.reconfig.listing import list_page
from ares.reconfig.traversal import detour, find_next_config, read_config
from ares.reconfig.view import View
from ares.value import TOMBSTONE

WINDOW_OBJECTS = 64


def list_objects(view: View, after: str, prefix: str) -> Operation[tuple[list[ObjectName], str | None]]:
    """One page of the objects that are there, in order, and the cursor of the next page (None: that was all).

    A name on whose newest version the servers agree is settled by that version; the others are read one by one, as ``stat`` does, so that a
    write or a delete that never completed shows as it would to a reader.
    """
    if not view.switches.piggyback:
        yield from read_config(view)
    seen: dict[ObjectName, list[Listed]] = {}
    settled: dict[ObjectName, bool] = {}
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
            settled[name] = name not in seen and len(listed) == page.answered and all(entry == listed[0] for entry in listed)
            seen.setdefault(name, []).extend(listed)
        configuration = yield from find_next_config(view, configuration, page.successor)
    cursor = min(cursors, default=None)
    within = sorted(name for name in seen if cursor is None or name <= cursor)
    there = {name for name in within if settled[name] and not seen[name][0].deleted}
    yield Together(_probes(view, [name for name in within if not settled[name]], there), WINDOW_OBJECTS)
    return [name for name in within if name in there], cursor


def _probes(view: View, names: Sequence[ObjectName], there: set[ObjectName]) -> Iterator[Operation[None]]:
    def probe(name: ObjectName) -> Operation[None]:
        found = yield from stat(view, name)
        if found.value is not TOMBSTONE:
            there.add(name)

    return (probe(name) for name in names)


def describe_servers(servers: Sequence[Server], patience_s: float, brief: bool = False) -> Operation[dict[ServerId, Description]]:
    """What each of at most 32 servers says of itself; the silent ones are missing. ``brief``: without what it holds."""
    roster = Configuration("abd", tuple(servers)).at(NO_DOMAIN, 0)
    try:
        answers = yield Gather(
            roster,
            lambda call: Describe(call, brief),
            "describe",
            needed=1,
            settled=lambda _: False,
            patience_s=lambda _: patience_s,
            give_up_s=2 * patience_s,
        )
    except (Unavailable, Superseded):
        return {}
    return dict(answers)
