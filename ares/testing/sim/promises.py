"""What a server told others, and that it still stands by it after a restart; and that it never tells or holds what nobody gave it.

A restart may forget what nobody was told of. Everything else is for ever, so what was told need not be kept in order: the tags that were taken or
shown are held, or were dropped and count as that; pointers move forward only; what was collected stays so (protocol sections 11 and 14).
"""

from collections.abc import Sequence

from ares.model.configuration import Successor
from ares.model.element import intact, is_hollow
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import Ack, AnyMessage, DataReply, Element, GetData, GetTag, Introduce, ListObjects, ObjectsReply, PutData, Request, TagReply
from ares.model.tag import TAG_ZERO, Tag
from ares.replica.hosting import Hosting
from ares.replica.replica import Replica
from ares.testing.sim.invariants import Violation, rank

_Key = tuple[ConfigurationId, ObjectName]


class Promises:
    """Of one server, in one life. ``rotten``: bits of its disk turned over: what it holds may be damaged, and still nothing that it tells."""

    def __init__(self, server: str) -> None:
        self.rotten = False
        self._server = server
        self._asked: dict[tuple[str, int], Request] = {}
        self._given: set[tuple[ConfigurationId, ObjectName, Tag, int]] = set()
        self._hosted: set[ConfigurationId] = set()
        self._pointers: dict[ConfigurationId, Successor] = {}
        self._tags: dict[_Key, set[Tag]] = {}
        self._trimmed: dict[_Key, Tag] = {}

    def asked(self, client: str, requests: Sequence[Request]) -> None:
        """What came, before it is handled."""
        for request in requests:
            if not isinstance(request, Introduce):  # it is answered only when it is refused, and has the call of another request
                self._asked[client, request.call] = request
            if isinstance(request, PutData):
                self._given.add((request.configuration, request.object, request.tag, request.element.checksum))

    def told(self, client: str, replies: Sequence[AnyMessage]) -> None:
        """What leaves. Raises :class:`Violation` if it has data that nobody gave."""
        for reply in replies:
            if isinstance(reply, Ack | TagReply | DataReply | ObjectsReply):
                self._note(self._asked[client, reply.call], reply)

    def _note(self, request: Request, reply: Ack | TagReply | DataReply | ObjectsReply) -> None:
        id: ConfigurationId = getattr(request, "configuration")  # noqa: B009
        self._hosted.add(id)
        if reply.successor is not None and (id not in self._pointers or rank(reply.successor) > rank(self._pointers[id])):
            self._pointers[id] = reply.successor
        match request, reply:
            case PutData(), Ack():
                self._note_tag(id, request.object, request.tag)
            case GetTag(), TagReply():
                self._note_tag(id, request.object, reply.tag)
            case GetData(), DataReply():
                for tag in reply.tags:
                    self._note_tag(id, request.object, tag)
                key = id, request.object
                self._trimmed[key] = max(self._trimmed.get(key, TAG_ZERO), reply.trimmed)
                if reply.element is not None:
                    self._judge(id, request.object, request.wanted or reply.tags[0], reply.element)
            case ListObjects(), ObjectsReply():
                for listed in reply.objects:
                    self._note_tag(id, listed.name, listed.tag)

    def _note_tag(self, id: ConfigurationId, object: ObjectName, tag: Tag) -> None:
        if tag != TAG_ZERO:
            self._tags.setdefault((id, object), set()).add(tag)

    def _judge(self, id: ConfigurationId, object: ObjectName, tag: Tag, element: Element) -> None:
        if (id, object, tag, element.checksum) not in self._given or not intact(id, object, tag, element):
            raise Violation(f"{self._server} has data of {object!r} at {tag} that nobody gave it")

    # -- after a restart ------------------------------------------------------------------------------------------------

    def kept(self, replica: Replica) -> None:
        """Raises :class:`Violation` if ``replica``, put together from the disk, does not stand by what was told."""
        for id in self._hosted:
            if id not in replica.hosted:
                raise Violation(f"{self._server} restarted and does not know a configuration any more")
        for id, successor in self._pointers.items():
            held = replica.hosted[id].successor
            if held is None or rank(held) < rank(successor):
                raise Violation(f"{self._server} restarted and nextC of a configuration went back from {successor} to {held}")
        for (id, object), tags in self._tags.items():
            self._kept(replica.hosted[id], object, tags)
        for id, hosting in replica.hosted.items():
            for object, versions in hosting.objects.items():
                for tag, element, _ in versions.entries:
                    if not self.rotten or (not is_hollow(element) and intact(id, object, tag, element)):
                        self._judge(id, object, tag, element)

    def _kept(self, hosting: Hosting, object: ObjectName, tags: set[Tag]) -> None:
        if hosting.collected:
            return
        versions = hosting.objects.get(object)
        trimmed = versions.trimmed if versions is not None else TAG_ZERO
        held = versions.tags() if versions is not None else ()
        lost = [tag for tag in tags if tag > trimmed and tag not in held]
        if lost or trimmed < self._trimmed.get((hosting.configuration.id, object), TAG_ZERO):
            raise Violation(f"{self._server} restarted without versions of {object!r} that it told of: {sorted(lost)}, dropped up to {trimmed}")
