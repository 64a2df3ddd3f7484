"""Invariants checked after every step at every server, and globally; and the promises of a server.

See docs/protocol.md, Invariants.
"""

from collections.abc import Sequence

from ares.dap.coding import Parts, coding_for
from ares.dap.version_list import capacity
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import intact, is_hollow
from ares.model.errors import AresError
from ares.model.identity import NO_CALL, CallId, ConfigurationId, DomainName, ObjectName
from ares.model.messages import (
    DELETED_LENGTH,
    Ack,
    AheadReply,
    AnyMessage,
    ChangedObjects,
    DataReply,
    Describe,
    Drop,
    Element,
    GetAhead,
    GetData,
    Introduce,
    ObjectsReply,
    PullElement,
    PutAhead,
    PutData,
    Request,
    TagReply,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Value
from ares.replica.configuration_state import ConfigurationState
from ares.replica.port import lists_of
from ares.replica.replica import Replica
from ares.testing.promises import Promises, rank


class PromiseBroken(AresError):
    """A promise was broken."""


class SinglePlaces:
    """The invariant: each (domain, index) has a single configuration, everywhere."""

    def __init__(self) -> None:
        self._ids: dict[tuple[DomainName, int], ConfigurationId] = {}

    def see(self, configuration: Configuration) -> None:
        held = self._ids.setdefault((configuration.domain, configuration.index), configuration.id)
        if held != configuration.id:
            raise PromiseBroken(
                f"two configurations for index {configuration.index} of {configuration.domain!r}"
            )


class SingleValues:
    """The invariant: each tag has a single value.

    The invariant holds over all servers and configurations, for ever, even for failed writes. Coded
    elements tell their value as soon as k of them came; the code is a function of the value,
    therefore every further element must equal the encoded value.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[DomainName, ObjectName, Tag], Value] = {}
        self._elements: dict[tuple[ConfigurationId, ObjectName, Tag], dict[int, Parts]] = {}

    def see(self, configuration: Configuration, put: PutData) -> None:
        """Check an element that a server accepted."""
        key = (configuration.domain, put.object, put.tag)
        if key not in self._values:
            value = self._assembled(configuration, put)
            if value is None:
                return
            self._values[key] = value
        if not self._fits(configuration, put.element, self._values[key]):
            raise PromiseBroken(f"tag {put.tag} of {put.object!r} stands for two values")

    def of(self, domain: DomainName, object: ObjectName, tag: Tag) -> Value | None:
        """Return the value of a version, if enough elements ever came to a server."""
        return TOMBSTONE if tag == TAG_ZERO else self._values.get((domain, object, tag))

    def _assembled(self, configuration: Configuration, put: PutData) -> Value | None:
        if put.element.length == DELETED_LENGTH:
            return TOMBSTONE
        elements = self._elements.setdefault((configuration.id, put.object, put.tag), {})
        elements[put.element.index] = put.element.parts
        coding = coding_for(configuration)
        return coding.decode(put.element.length, elements) if len(elements) >= coding.k else None

    def _fits(self, configuration: Configuration, element: Element, value: Value) -> bool:
        if not isinstance(value, bytes) or element.length == DELETED_LENGTH:
            return value is TOMBSTONE and element.length == DELETED_LENGTH
        return element.length == len(value) and b"".join(
            coding_for(configuration).encode(value)[element.index]
        ) == b"".join(element.parts)


class ServerWatch:
    """The invariants of a single server.

    Tags never decrease, pointers move only forward, Lists are bounded, collected data is gone.
    ``values``: of all servers.
    """

    def __init__(self, places: SinglePlaces, values: SingleValues) -> None:
        self._places = places
        self._values = values
        self._newest: dict[tuple[ConfigurationId, ObjectName], Tag] = {}
        self._pointers: dict[ConfigurationId, Successor] = {}

    def look(self, replica: Replica, request: Request) -> None:
        """Check ``replica`` after a ``request`` that may have changed it."""
        if isinstance(request, Introduce):
            if request.configuration.id in replica.hosted:
                self._places.see(request.configuration)
            return
        id = getattr(request, "configuration", None)
        hosting = replica.hosted.get(id) if id is not None else None
        if hosting is not None:
            self._look_at_pointer(hosting)
            for name in request.names if isinstance(request, Drop) else ():
                self._newest.pop((hosting.configuration.id, name), None)
            for put in [request] if isinstance(request, PutData) else _adopted(hosting, request):
                self._look_at_object(hosting, put.object)
                self._values.see(hosting.configuration, put)
            if hosting.collected and (len(hosting.objects) or hosting.bytes):
                raise PromiseBroken(
                    f"{replica.server} holds data for configuration "
                    f"{hosting.configuration.index}, which was collected"
                )

    def restarted(self, replica: Replica) -> None:
        """Start over from the present state.

        Unsynced changes are gone, and no client was told of them.
        """
        self._newest = {
            (id, name): versions.newest
            for id, hosting in replica.hosted.items()
            for name, versions in lists_of(hosting.objects)
        }
        self._pointers = {
            id: hosting.successor
            for id, hosting in replica.hosted.items()
            if hosting.successor is not None
        }

    def _look_at_pointer(self, hosting: ConfigurationState) -> None:
        new, old = hosting.successor, self._pointers.get(hosting.configuration.id)
        if new is old:
            return
        if new is None or (old is not None and rank(new) < rank(old)):
            raise PromiseBroken(
                f"nextC of configuration {hosting.configuration.index} went back from {old} to "
                f"{new}"
            )
        self._places.see(new.configuration)
        self._pointers[hosting.configuration.id] = new
        if hosting.collected and new.status is not Status.FINALIZED:
            raise PromiseBroken(
                f"configuration {hosting.configuration.index} was collected before its successor "
                "was finalized"
            )

    def _look_at_object(self, hosting: ConfigurationState, object: ObjectName) -> None:
        versions = hosting.objects.get(object)
        if versions is None:
            return
        key = (hosting.configuration.id, object)
        if versions.newest < self._newest.get(key, TAG_ZERO):
            raise PromiseBroken(f"the tag of {object!r} went back to {versions.newest}")
        self._newest[key] = versions.newest
        if len(versions.entries) > capacity(hosting.configuration):
            raise PromiseBroken(
                f"{len(versions.entries)} versions of {object!r}, more than delta + 1"
            )


def _adopted(hosting: ConfigurationState, request: Request) -> list[PutData]:
    """Return the versions held of those which a request to adopt names, as puts."""
    held = []
    for name, tag in [(each.name, each.tag) for each in getattr(request, "versions", ())]:
        versions = hosting.objects.get(name)
        element = None if versions is None else versions.element(tag)
        if element is not None and not is_hollow(element):
            held.append(PutData(NO_CALL, hosting.configuration.id, name, tag, element))
    return held


class SimPromises:
    """The replies of a server in a single life.

    The server keeps its word after a restart, and never tells or holds data that no client gave.
    ``rotten``: bits of the server's disk flipped: the stored data may be damaged, but no reply may.
    """

    def __init__(self, server: str) -> None:
        self.rotten = False
        self._server = server
        self._book = Promises()
        self._asked: dict[tuple[str, int], Request | PullElement] = {}
        self._given: set[tuple[ConfigurationId, ObjectName, Tag, int]] = set()

    def asked(self, client: str, requests: Sequence[Request | PullElement]) -> None:
        """Note requests before they are handled."""
        for request in requests:
            if not isinstance(request, Introduce):
                # answered only when refused, with the call of another request
                self._asked[client, request.call] = request
            if isinstance(request, Drop):
                self._book.asked(request)
            if isinstance(request, PutData | PutAhead):
                self._given.add(
                    (request.configuration, request.object, request.tag, request.element.checksum)
                )

    def check_replies(self, client: str, replies: Sequence[AnyMessage]) -> None:
        """Check replies. Raises :class:`PromiseBroken` for data that no client gave."""
        for reply in replies:
            if isinstance(
                reply, Ack | TagReply | DataReply | ObjectsReply | AheadReply | ChangedObjects
            ):
                request = self._asked[client, reply.call]
                self._book.note_reply(request, reply)
                if (
                    isinstance(request, GetData | GetAhead)
                    and isinstance(reply, DataReply)
                    and reply.element is not None
                ):
                    self._judge(
                        request.configuration,
                        request.object,
                        request.wanted or reply.tags[0],
                        reply.element,
                    )

    def kept(self, replica: Replica) -> None:
        """Check ``replica``, rebuilt from the disk.

        Raises :class:`PromiseBroken` if a reply is broken.
        """
        broken = self._book.broken_by(replica.describe(Describe(CallId(1))), *self._book.pointers())
        for versions in self._book.versions() if not broken else ():
            if not replica.hosted[versions.configuration].collected:
                reply = replica.handle(
                    GetData(CallId(1), versions.configuration, versions.object, element=False)
                )
                assert reply is not None
                broken += filter(None, [self._book.broken_by_data(versions, reply, element=False)])
        if broken:
            raise PromiseBroken(f"{self._server} restarted: {'; '.join(broken[:3])}")
        for id, hosting in replica.hosted.items():
            for object, held in lists_of(hosting.objects):
                for tag, element, _ in held.entries:
                    if not self.rotten or (
                        not is_hollow(element) and intact(id, object, tag, element)
                    ):
                        self._judge(id, object, tag, element)

    def _judge(self, id: ConfigurationId, object: ObjectName, tag: Tag, element: Element) -> None:
        if (id, object, tag, element.checksum) not in self._given or not intact(
            id, object, tag, element
        ):
            raise PromiseBroken(
                f"{self._server} has data of {object!r} at {tag} that no writer sent it"
            )
