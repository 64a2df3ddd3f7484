"""What a server told its clients must be true of it for ever, however often it is killed. No I/O.

A quorum hides what one server forgets, so each server is held to its own words: the tags that it acknowledged or showed, how far its pointers had
moved, what it had collected. Replies are noted as clients get them (:class:`Witness`); after a restart the server is asked again.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ares.model.configuration import Successor
from ares.model.element import hollow, intact
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    AnyMessage,
    CollectConfig,
    DataReply,
    Description,
    GetData,
    GetTag,
    ListObjects,
    ObjectsReply,
    PutData,
    ReadConfig,
    Refused,
    TagReply,
    WriteConfig,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.net.port import Connections

_Key = tuple[ConfigurationId, ObjectName]
_NOTED = (GetTag, GetData, PutData, ReadConfig, WriteConfig, CollectConfig, ListObjects)
_ASKED_MAX = 100_000


class PromisedVersions(Struct, frozen=True):
    """``stored``: tags acknowledged that no reply has yet said to be superseded. ``newest``: the highest tag shown or acknowledged."""

    configuration: ConfigurationId
    object: ObjectName
    stored: frozenset[Tag]
    newest: Tag
    trimmed: Tag


class Promises:
    """The words of one server."""

    def __init__(self) -> None:
        self.count = 0
        self._stored: dict[_Key, set[Tag]] = {}
        self._newest: dict[_Key, Tag] = {}
        self._trimmed: dict[_Key, Tag] = {}
        self._pointers: dict[ConfigurationId, Successor] = {}
        self._collecting: set[ConfigurationId] = set()
        self._collected: set[ConfigurationId] = set()

    # -- what it says ---------------------------------------------------------------------------------------------------

    def asked(self, request: AnyMessage) -> None:
        """A client is about to send ``request``. What may be collected from then on need not be there."""
        if isinstance(request, CollectConfig):
            self._collecting.add(request.configuration)

    def told(self, request: AnyMessage, reply: AnyMessage) -> None:
        """The server answered ``request``."""
        if not isinstance(request, _NOTED) or not isinstance(reply, Ack | TagReply | DataReply | ObjectsReply):
            return
        self.count += 1
        configuration, successor = request.configuration, reply.successor
        if successor is not None and _rank(successor) > _rank(self._pointers.get(configuration)):
            self._pointers[configuration] = successor
        match request, reply:
            case PutData(), Ack() if configuration not in self._collecting:
                self._stored.setdefault((configuration, request.object), set()).add(request.tag)
                self._raise(self._newest, (configuration, request.object), request.tag)
            case GetTag(), TagReply():
                self._raise(self._newest, (configuration, request.object), reply.tag)
            case GetData(), DataReply():
                self._raise(self._newest, (configuration, request.object), max(reply.tags, default=TAG_ZERO))
                self._raise(self._trimmed, (configuration, request.object), reply.trimmed)
            case ListObjects(), ObjectsReply():
                for listed in reply.objects:
                    self._raise(self._newest, (configuration, listed.name), listed.tag)
            case CollectConfig(), Ack():
                self._collected.add(configuration)

    @staticmethod
    def _raise(tags: dict[_Key, Tag], key: _Key, tag: Tag) -> None:
        if tag > tags.get(key, TAG_ZERO):
            tags[key] = tag

    # -- what must be true ----------------------------------------------------------------------------------------------

    def versions(self) -> list[PromisedVersions]:
        """Of every object that the server spoke of, as it stands now."""
        self._forget_collected()
        return [
            PromisedVersions(
                *key,
                frozenset(self._stored.get(key, ())),
                self._newest.get(key, TAG_ZERO),
                self._trimmed.get(key, TAG_ZERO),
            )
            for key in self._newest.keys() | self._stored.keys()
        ]

    def broken_by_data(self, versions: PromisedVersions, reply: AnyMessage) -> str:
        """What of ``versions``, noted before it was asked, the answer to a get-data for the newest element contradicts; nothing if it is right."""
        key = (versions.configuration, versions.object)
        if isinstance(reply, DataReply) and key in self._stored:
            self._stored[key] = {tag for tag in self._stored[key] if tag > reply.trimmed}
        return _broken(versions, reply, versions.configuration in self._collecting)

    def broken_by(self, description: Description, pointers: Mapping[ConfigurationId, Successor], collected: frozenset[ConfigurationId]) -> list[str]:
        """What of the pointers and collections, noted before it was asked, ``description`` contradicts, in words."""
        hosted = {each.configuration.id: each for each in description.hosted}
        broken = []
        for id, promised in pointers.items():
            now = hosted[id].successor if id in hosted else None
            if _rank(now) < _rank(promised):
                broken.append(f"the pointer of {id.hex()} was {promised.status.name} {promised.configuration.index} and is {now}")
        for id in collected:
            if id not in hosted or not hosted[id].collected or hosted[id].objects:
                broken.append(f"{id.hex()} was collected and is {hosted.get(id)}")
        return broken

    def pointers(self) -> tuple[dict[ConfigurationId, Successor], frozenset[ConfigurationId]]:
        """How far pointers had moved, and what was collected, as it stands now."""
        return dict(self._pointers), frozenset(self._collected)

    def _forget_collected(self) -> None:
        for tags in (self._stored, self._newest, self._trimmed):
            for key in [key for key in tags if key[0] in self._collected]:
                del tags[key]


def _broken(versions: PromisedVersions, reply: AnyMessage, may_be_gone: bool) -> str:
    what = f"{versions.object!r} in {versions.configuration.hex()}"
    if isinstance(reply, Refused):
        return f"{what}: refused, {reply.reason.name}: {reply.detail}"
    if not isinstance(reply, DataReply):
        return f"{what}: {type(reply).__name__}"
    finalized = reply.successor is not None and reply.successor.finalized
    if finalized and may_be_gone and not reply.tags:
        return ""
    if lost := [tag for tag in versions.stored if tag not in reply.tags and tag > reply.trimmed]:
        return f"{what}: {len(lost)} versions that it acknowledged are lost, {max(lost)} among them; it has {reply.tags}, dropped {reply.trimmed}"
    newest = max(reply.tags, default=TAG_ZERO)
    if newest < versions.newest or reply.trimmed < versions.trimmed:
        return f"{what}: it had {versions.newest}, dropped {versions.trimmed}, and has {newest}, dropped {reply.trimmed}"
    if newest == TAG_ZERO or finalized:
        return ""
    if reply.element is None or not intact(versions.configuration, versions.object, newest, reply.element):
        return f"{what}: the element of {newest} is not what was stored"
    return ""


def _rank(successor: Successor | None) -> tuple[int, int]:
    return (-1, -1) if successor is None else (successor.configuration.index, int(successor.status))


class Witness:
    """``connections`` (the port) of a client whose servers are taken at their words: replies go into ``promises``, by server."""

    def __init__(self, connections: Connections, promises: Mapping[ServerId, Promises]) -> None:
        self._connections = connections
        self._promises = promises
        self._asked: dict[tuple[ServerId, CallId], AnyMessage] = {}
        self.learn = connections.learn
        self.troubles = connections.troubles
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
            if isinstance(message, _NOTED):
                self._promises[server].asked(message)
                self._asked[server, message.call] = _without_data(message)
        self._connections.post(server, messages)


def _without_data(request: AnyMessage) -> AnyMessage:
    """What must be kept of a request until it is answered: not its data."""
    if not isinstance(request, PutData):
        return request
    return PutData(request.call, request.configuration, request.object, request.tag, hollow(request.element))
