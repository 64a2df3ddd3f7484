"""Listings of a configuration's objects: pages from a quorum, united.

Every server answers with the names after a cursor, in order. A page is certain up to the last name
of the shortest cut-off answer, where the next page begins. Every version completed before the
listing began is at a quorum, hence in the union.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from ares.engine.effects import Gather, Operation
from ares.engine.phases import phase
from ares.model.configuration import Configuration, Successor, latest
from ares.model.identity import ObjectName, ServerId, is_object_name
from ares.model.messages import ListedObject, ListObjects, ObjectsReply

PAGE_OBJECTS = 1000


class ListingPage(Struct, frozen=True):
    """A page of a listing.

    ``objects``: name to the entries of all servers with the name. ``answered``: number of servers.
    ``after``: the next cursor, or None. ``asked``: tags and values asked by users so far, of each
    of these servers.
    """

    objects: dict[ObjectName, list[ListedObject]]
    answered: int
    after: str | None
    successor: Successor | None
    asked: dict[ServerId, int] = {}

    def may_have(self, object: ObjectName) -> bool:
        """Return whether a name after the page's cursor is listed, or follows the page's end."""
        return object in self.objects or (self.after is not None and object > self.after)


@phase("ListObjects")
def list_page(
    configuration: Configuration, after: str, prefix: str = "", carry: Successor | None = None
) -> Operation[ListingPage]:
    """Return a page of names after ``after`` which start with ``prefix``. ``carry``: rule R1."""
    arguments = (configuration.id, after, PAGE_OBJECTS, prefix, carry)
    answers: Mapping[ServerId, ObjectsReply] = yield Gather(
        configuration, ListObjects, "list-objects", arguments=arguments
    )
    page = _united(list(answers.values()))
    return structs.replace(page, asked={server: reply.asked for server, reply in answers.items()})


def _united(replies: Sequence[ObjectsReply]) -> ListingPage:
    certain = min(
        (reply.objects[-1].name for reply in replies if reply.more and reply.objects), default=None
    )
    objects: dict[ObjectName, list[ListedObject]] = {}
    for reply in replies:
        for listed in reply.objects:
            if (certain is None or listed.name <= certain) and is_object_name(listed.name):
                objects.setdefault(listed.name, []).append(listed)
    return ListingPage(
        dict(sorted(objects.items())),
        len(replies),
        certain,
        latest([reply.successor for reply in replies]),
    )
