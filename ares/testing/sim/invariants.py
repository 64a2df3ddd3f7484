"""What must hold after every step at every server, and everywhere (section 14 of the protocol's rules)."""

from ares.dap.coding import Parts, coding_for
from ares.dap.list import capacity
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import AresError
from ares.model.identity import ConfigurationId, DomainName, ObjectName
from ares.model.messages import DELETED, Element, Introduce, PutData, Request
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, Value
from ares.replica.hosting import Hosting
from ares.replica.replica import Replica


class Violation(AresError):
    """A promise was broken."""


class Places:
    """One configuration for each (domain, index), everywhere."""

    def __init__(self) -> None:
        self._ids: dict[tuple[DomainName, int], ConfigurationId] = {}

    def see(self, configuration: Configuration) -> None:
        held = self._ids.setdefault((configuration.domain, configuration.index), configuration.id)
        if held != configuration.id:
            raise Violation(f"two configurations for index {configuration.index} of {configuration.domain!r}")


class Values:
    """One tag, one value: over all servers and configurations, ever, whatever became of the write.

    Coded elements tell their value as soon as k of them came; the code is a function of the value, so every other element must be what it gives.
    """

    def __init__(self) -> None:
        self._values: dict[tuple[DomainName, ObjectName, Tag], Value] = {}
        self._elements: dict[tuple[ConfigurationId, ObjectName, Tag], dict[int, Parts]] = {}

    def see(self, configuration: Configuration, put: PutData) -> None:
        """A server took this."""
        key = (configuration.domain, put.object, put.tag)
        if key not in self._values:
            value = self._assembled(configuration, put)
            if value is None:
                return
            self._values[key] = value
        if not self._fits(configuration, put.element, self._values[key]):
            raise Violation(f"tag {put.tag} of {put.object!r} stands for two values")

    def of(self, domain: DomainName, object: ObjectName, tag: Tag) -> Value | None:
        """The value of a version, if enough of it ever came to a server."""
        return TOMBSTONE if tag == TAG_ZERO else self._values.get((domain, object, tag))

    def _assembled(self, configuration: Configuration, put: PutData) -> Value | None:
        if put.element.length == DELETED:
            return TOMBSTONE
        elements = self._elements.setdefault((configuration.id, put.object, put.tag), {})
        elements[put.element.index] = put.element.parts
        coding = coding_for(configuration)
        return coding.decode(put.element.length, elements) if len(elements) >= coding.k else None

    def _fits(self, configuration: Configuration, element: Element, value: Value) -> bool:
        if not isinstance(value, bytes) or element.length == DELETED:
            return value is TOMBSTONE and element.length == DELETED
        return element.length == len(value) and b"".join(coding_for(configuration).encode(value)[element.index]) == b"".join(element.parts)


class ServerWatch:
    """One server: tags never decrease, pointers move only forward, Lists are bounded, what was collected is gone. ``values``: of all servers."""

    def __init__(self, places: Places, values: Values) -> None:
        self._places = places
        self._values = values
        self._newest: dict[tuple[ConfigurationId, ObjectName], Tag] = {}
        self._pointers: dict[ConfigurationId, Successor] = {}

    def look(self, replica: Replica, request: Request) -> None:
        """After ``replica`` handled ``request``, which may have changed something."""
        if isinstance(request, Introduce):
            if request.configuration.id in replica.hosted:
                self._places.see(request.configuration)
            return
        id = getattr(request, "configuration", None)
        hosting = replica.hosted.get(id) if id is not None else None
        if hosting is not None:
            self._look_at_pointer(hosting)
            if isinstance(request, PutData):
                self._look_at_object(hosting, request.object)
                self._values.see(hosting.configuration, request)
            if hosting.collected and (hosting.objects or hosting.bytes):
                raise Violation(f"{replica.server} holds data for configuration {hosting.configuration.index}, which was collected")

    def restarted(self, replica: Replica) -> None:
        """Unsynced changes are gone, and nobody was told of them: start over from what is there."""
        self._newest = {(id, name): versions.newest for id, hosting in replica.hosted.items() for name, versions in hosting.objects.items()}
        self._pointers = {id: hosting.successor for id, hosting in replica.hosted.items() if hosting.successor is not None}

    def _look_at_pointer(self, hosting: Hosting) -> None:
        new, old = hosting.successor, self._pointers.get(hosting.configuration.id)
        if new is old:
            return
        if new is None or (old is not None and rank(new) < rank(old)):
            raise Violation(f"nextC of configuration {hosting.configuration.index} went back from {old} to {new}")
        self._places.see(new.configuration)
        self._pointers[hosting.configuration.id] = new
        if hosting.collected and new.status is not Status.FINALIZED:
            raise Violation(f"configuration {hosting.configuration.index} was collected before its successor was finalized")

    def _look_at_object(self, hosting: Hosting, object: ObjectName) -> None:
        versions = hosting.objects.get(object)
        if versions is None:
            return
        key = (hosting.configuration.id, object)
        if versions.newest < self._newest.get(key, TAG_ZERO):
            raise Violation(f"the tag of {object!r} went back to {versions.newest}")
        self._newest[key] = versions.newest
        if len(versions.entries) > capacity(hosting.configuration):
            raise Violation(f"{len(versions.entries)} versions of {object!r}, more than delta + 1")


def rank(successor: Successor) -> tuple[int, int]:
    """nextC moves to higher ones only."""
    return (successor.configuration.index, successor.status)
