"""What a server told its clients must be true of it for ever, however often it is killed: the book of its promises. No I/O.

A quorum hides what one server forgets, so each server is held to its own words: the tags that it acknowledged or showed, how far its pointers had
moved, what it had collected. A restart may forget what nobody was told of. Everything else is for ever, so what was told need not be kept in order:
tags are held, or were dropped and count as that; pointers move forward only; what was collected stays so (docs/protocol.md, Invariants).

Replies are noted as they leave a simulated server, or as clients get them (:class:`Witness`); after a restart the server is asked again.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ares.model.configuration import Successor
from ares.model.element import hollow, intact
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    AnyMessage,
    Bring,
    CollectConfig,
    DataReply,
    Description,
    GetData,
    GetTag,
    Keyed,
    ListObjects,
    ObjectsReply,
    PutData,
    Refused,
    TagReply,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.net.port import Connections

_Key = tuple[ConfigurationId, ObjectName]
_ASKED_MAX = 100_000


class PromisedVersions(Struct, frozen=True):
    """``told``: tags acknowledged or shown that no answer has yet said to be dropped. ``newest``: the highest ever."""

    configuration: ConfigurationId
    object: ObjectName
    told: frozenset[Tag]
    newest: Tag
    trimmed: Tag


class Promises:
    """The words of one server. ``count``: the replies that were noted."""

    def __init__(self) -> None:
        self.count = 0
        self._told: dict[_Key, set[Tag]] = {}
        self._newest: dict[_Key, Tag] = {}
        self._trimmed: dict[_Key, Tag] = {}
        self._pointers: dict[ConfigurationId, Successor | None] = {}
        self._collecting: set[ConfigurationId] = set()
        self._collected: set[ConfigurationId] = set()

    def asked(self, request: AnyMessage) -> None:
        """A client is about to send ``request``. What may be collected from then on need not be there."""
        if isinstance(request, CollectConfig):
            self._collecting.add(request.configuration)

    def told(self, request: AnyMessage, reply: AnyMessage) -> None:
        """The server answered ``request``."""
        if not isinstance(request, Keyed | Bring) or not isinstance(
            reply, Ack | TagReply | DataReply | ObjectsReply
        ):
            return
        self.count += 1
        id = request.configuration
        if rank(reply.successor) >= rank(self._pointers.get(id)):
            self._pointers[id] = reply.successor
        match request, reply:
            case PutData() | Bring(), Ack() if id not in self._collecting:
                self._note(id, request.object, request.tag)
            case GetTag(), TagReply():
                self._note(id, request.object, reply.tag)
            case GetData(), DataReply():
                self._note(id, request.object, *reply.tags)
                key = id, request.object
                self._trimmed[key] = max(self._trimmed.get(key, TAG_ZERO), reply.trimmed)
            case ListObjects(), ObjectsReply():
                for listed in reply.objects:
                    self._note(id, listed.name, listed.tag)
            case CollectConfig(), Ack():
                self._collected.add(id)

    def _note(self, id: ConfigurationId, object: ObjectName, *tags: Tag) -> None:
        key = id, object
        for tag in tags:
            if tag != TAG_ZERO:
                self._told.setdefault(key, set()).add(tag)
                self._newest[key] = max(self._newest.get(key, TAG_ZERO), tag)

    # -- what must be true ----------------------------------------------------------------------------------------------

    def pointers(
        self,
    ) -> tuple[dict[ConfigurationId, Successor | None], frozenset[ConfigurationId]]:
        """How far the pointer of each configuration that it spoke of had moved, and what was collected, as it stands now."""
        return dict(self._pointers), frozenset(self._collected)

    def versions(self) -> list[PromisedVersions]:
        """Of every object that the server spoke of and that was not collected, as it stands now."""
        for tags in (self._told, self._newest, self._trimmed):
            for key in [key for key in tags if key[0] in self._collected]:
                del tags[key]
        return [
            PromisedVersions(
                *key, frozenset(told), self._newest[key], self._trimmed.get(key, TAG_ZERO)
            )
            for key, told in self._told.items()
        ]

    def broken_by(
        self,
        description: Description,
        pointers: Mapping[ConfigurationId, Successor | None],
        collected: frozenset[ConfigurationId],
    ) -> list[str]:
        """What of the pointers and collections, noted before it was asked, ``description`` contradicts, in words."""
        hosted = {each.configuration.id: each for each in description.hosted}
        broken = []
        for id, promised in pointers.items():
            now = hosted[id].successor if id in hosted else None
            if promised is not None and rank(now) < rank(promised):
                broken.append(
                    f"the pointer of {id.hex()} was {promised.status.name} {promised.configuration.index} and is {now}"
                )
            elif id not in hosted:
                broken.append(f"configuration {id.hex()} is unknown, and was answered for")
        for id in collected:
            if id not in hosted or not hosted[id].collected or hosted[id].objects:
                broken.append(f"{id.hex()} was collected and is {hosted.get(id)}")
        return broken

    def broken_by_data(
        self, versions: PromisedVersions, reply: AnyMessage, *, element: bool = True
    ) -> str:
        """What of ``versions``, noted before it was asked, the answer to a get-data contradicts; nothing if it is right.

        ``element``: the newest one was asked for, and must be whole.
        """
        key = (versions.configuration, versions.object)
        if isinstance(reply, DataReply) and key in self._told:
            self._told[key] = {tag for tag in self._told[key] if tag > reply.trimmed}
        return _broken(versions, reply, versions.configuration in self._collecting, element)


def rank(successor: Successor | None) -> tuple[int, int]:
    """nextC moves to higher ones only."""
    return (-1, -1) if successor is None else (successor.configuration.index, int(successor.status))


def _broken(versions: PromisedVersions, reply: AnyMessage, may_be_gone: bool, element: bool) -> str:
    what = f"{versions.object!r} in {versions.configuration.hex()}"
    if isinstance(reply, Refused):
        return f"{what}: refused, {reply.reason.name}: {reply.detail}"
    if not isinstance(reply, DataReply):
        return f"{what}: {type(reply).__name__}"
    finalized = reply.successor is not None and reply.successor.finalized
    if finalized and may_be_gone and not reply.tags:
        return ""
    if lost := [tag for tag in versions.told if tag not in reply.tags and tag > reply.trimmed]:
        return f"{what}: {len(lost)} versions that it told of are lost, {max(lost)} among them; it has {reply.tags}, dropped {reply.trimmed}"
    newest = max(reply.tags, default=TAG_ZERO)
    if newest < versions.newest or reply.trimmed < versions.trimmed:
        return f"{what}: it had {versions.newest}, dropped {versions.trimmed}, and has {newest}, dropped {reply.trimmed}"
    if newest == TAG_ZERO or finalized or not element:
        return ""
    if reply.element is None or not intact(
        versions.configuration, versions.object, newest, reply.element
    ):
        return f"{what}: the element of {newest} is not what was stored"
    return ""


class Witness:
    """``connections`` (the port) of a client whose servers are taken at their words: replies go into ``promises``, by server."""

    def __init__(self, connections: Connections, promises: Mapping[ServerId, Promises]) -> None:
        self._connections = connections
        self._promises = promises
        self._asked: dict[tuple[ServerId, CallId], AnyMessage] = {}
        self.learn = connections.learn
        self.troubles = connections.troubles
        self.connected_s = connections.connected_s
        self.receiving = connections.receiving
        self.close = connections.close

    def open(self, deliver: Callable[[ServerId, Sequence[AnyMessage]], None]) -> None:
        def note(server: ServerId, replies: Sequence[AnyMessage]) -> None:
            for reply in replies:
                if (request := self._asked.pop((server, reply.call), None)) is not None:
                    self._promises[server].told(request, reply)
            deliver(server, replies)

        self._connections.open(note)

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        if len(self._asked) > _ASKED_MAX:
            self._asked.clear()
        for message in messages:
            if isinstance(message, Keyed):
                self._promises[server].asked(message)
                self._asked[server, message.call] = _without_data(message)
        self._connections.post(server, messages)


def _without_data(request: AnyMessage) -> AnyMessage:
    """What must be kept of a request until it is answered: not its data."""
    if not isinstance(request, PutData):
        return request
    return PutData(
        request.call, request.configuration, request.object, request.tag, hollow(request.element)
    )
