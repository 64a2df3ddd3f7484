"""The promises of a server: replies must stay true through any number of kills. No I/O.

A quorum hides the forgotten data of a server, therefore each server is checked against all replies
of the same server: acknowledged or shown tags, positions of pointers, collected configurations. A
restart may lose facts without a reply. Every reported fact stays true for ever, therefore the order
of promises need not be kept: tags are held, or were dropped and count as dropped; pointers move
forward only; a collected configuration stays collected (docs/protocol.md, Invariants).

Replies are noted as they leave a simulated server, or as clients get them
(:class:`PromiseWitness`); after a restart the server is asked again.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from ares.model.configuration import Successor
from ares.model.element import hollow, intact
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    Adopt,
    AheadReply,
    AnyMessage,
    ChangedObjects,
    CollectConfig,
    CopyOutcome,
    DataReply,
    Description,
    Drop,
    GetAhead,
    GetData,
    GetTag,
    Keyed,
    ListObjects,
    ListReply,
    ObjectsReply,
    PullElement,
    PutData,
    QueryList,
    Refused,
    TagReply,
    WatchObjects,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.net.port import Connections

_Key = tuple[ConfigurationId, ObjectName]
_ASKED_MAX = 100_000


class PromisedVersions(Struct, frozen=True):
    """The promised tags of an object in a configuration.

    ``reported``: tags acknowledged or shown, without tags reported as dropped. ``newest``: the
    highest tag ever reported.
    """

    configuration: ConfigurationId
    object: ObjectName
    reported: frozenset[Tag]
    newest: Tag
    trimmed: Tag


class Promises:
    """The promises of a single server. ``count``: the noted replies."""

    def __init__(self) -> None:
        self.count = 0
        self._reported: dict[_Key, set[Tag]] = {}
        self._newest: dict[_Key, Tag] = {}
        self._trimmed: dict[_Key, Tag] = {}
        self._pointers: dict[ConfigurationId, Successor | None] = {}
        self._collecting: set[ConfigurationId] = set()
        self._dropped: set[_Key] = set()
        self._collected: set[ConfigurationId] = set()

    def asked(self, request: AnyMessage) -> None:
        """Note a ``request`` before sending.

        A configuration under collection may vanish, and so may dropped names (rule R25).
        """
        if isinstance(request, CollectConfig):
            self._collecting.add(request.configuration)
        if isinstance(request, Drop):
            self._dropped.update((request.configuration, name) for name in request.names)

    def note_reply(self, request: AnyMessage, reply: AnyMessage) -> None:
        """Note the server's reply to ``request``."""
        if not isinstance(request, Keyed | PullElement | Adopt) or not isinstance(
            reply,
            Ack | TagReply | DataReply | ObjectsReply | ListReply | AheadReply | ChangedObjects,
        ):
            return
        self.count += 1
        id = request.configuration
        if rank(reply.successor) >= rank(self._pointers.get(id)):
            self._pointers[id] = reply.successor
        match request, reply:
            case PutData() | PullElement(), Ack() if id not in self._collecting:
                self._note(id, request.object, request.tag)
            case Adopt(), AheadReply() if id not in self._collecting:
                for version, outcome in zip(request.versions, reply.outcomes, strict=False):
                    if outcome != CopyOutcome.MISSING:
                        self._note(id, version.name, version.tag)
            case GetTag(), TagReply():
                self._note(id, request.object, reply.tag)
            case GetData() | GetAhead(), DataReply():
                self._note(id, request.object, *reply.tags)
                key = id, request.object
                self._trimmed[key] = max(self._trimmed.get(key, TAG_ZERO), reply.trimmed)
            case QueryList(), ListReply():
                self._note(id, request.object, *(entry.tag for entry in reply.entries))
            case ListObjects() | WatchObjects(), ObjectsReply() | ChangedObjects():
                for listed in reply.objects:
                    self._note(id, listed.name, listed.tag)
            case CollectConfig(), Ack():
                self._collected.add(id)

    def _note(self, id: ConfigurationId, object: ObjectName, *tags: Tag) -> None:
        key = id, object
        for tag in tags:
            if tag != TAG_ZERO:
                self._reported.setdefault(key, set()).add(tag)
                self._newest[key] = max(self._newest.get(key, TAG_ZERO), tag)

    # -- checks ------------------------------------------------------------------------------------

    def pointers(
        self,
    ) -> tuple[dict[ConfigurationId, Successor | None], frozenset[ConfigurationId]]:
        """Return the promises as of now.

        Returns the promised pointer of each configuration, and the collected configurations.
        """
        return dict(self._pointers), frozenset(self._collected)

    def versions(self) -> list[PromisedVersions]:
        """Return the promised versions of each uncollected object, as of now."""
        for tags in (self._reported, self._newest, self._trimmed):
            for key in [key for key in tags if key[0] in self._collected]:
                del tags[key]
        return [
            PromisedVersions(
                *key, frozenset(tags), self._newest[key], self._trimmed.get(key, TAG_ZERO)
            )
            for key, tags in self._reported.items()
            if key not in self._dropped
        ]

    def broken_by(
        self,
        description: Description,
        pointers: Mapping[ConfigurationId, Successor | None],
        collected: frozenset[ConfigurationId],
    ) -> list[str]:
        """Return how ``description`` breaks the promised pointers and collections, in words.

        The promises were noted before the server was asked.
        """
        hosted = {each.configuration.id: each for each in description.hosted}
        broken = []
        for id, promised in pointers.items():
            now = hosted[id].successor if id in hosted else None
            if promised is not None and rank(now) < rank(promised):
                broken.append(
                    f"the pointer of {id.hex()} was {promised.status.name} "
                    f"{promised.configuration.index} and is {now}"
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
        """Return how a reply to get-data breaks the promised versions; empty if the reply is right.

        ``versions`` were noted before the server was asked. ``element``: the newest element was
        asked for, and must be whole.
        """
        key = (versions.configuration, versions.object)
        if isinstance(reply, DataReply) and key in self._reported:
            self._reported[key] = {tag for tag in self._reported[key] if tag > reply.trimmed}
        return _broken(versions, reply, versions.configuration in self._collecting, element)


def rank(successor: Successor | None) -> tuple[int, int]:
    """Return the rank of a pointer: nextC moves only to higher ranks."""
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
    if lost := [tag for tag in versions.reported if tag not in reply.tags and tag > reply.trimmed]:
        return (
            f"{what}: {len(lost)} versions that it told of are lost, {max(lost)} among them; it "
            f"has {reply.tags}, dropped {reply.trimmed}"
        )
    newest = max(reply.tags, default=TAG_ZERO)
    if newest < versions.newest or reply.trimmed < versions.trimmed:
        return (
            f"{what}: it had {versions.newest}, dropped {versions.trimmed}, and has {newest}, "
            f"dropped {reply.trimmed}"
        )
    if newest == TAG_ZERO or finalized or not element:
        return ""
    if reply.element is None or not intact(
        versions.configuration, versions.object, newest, reply.element
    ):
        return f"{what}: the element of {newest} is not what was stored"
    return ""


class PromiseWitness:
    """The ``connections`` (the port) of a client.

    They note the replies of each server in ``promises``.
    """

    def __init__(self, connections: Connections, promises: Mapping[ServerId, Promises]) -> None:
        self._connections = connections
        self._promises = promises
        self._asked: dict[tuple[ServerId, CallId], AnyMessage] = {}
        self.learn = connections.learn
        self.troubles = connections.troubles
        self.connected_s = connections.connected_s
        self.over_sockets = connections.over_sockets
        self.receiving = connections.receiving
        self.sending = connections.sending
        self.close = connections.close

    def open(self, deliver: Callable[[ServerId, Sequence[AnyMessage]], None]) -> None:
        def note(server: ServerId, replies: Sequence[AnyMessage]) -> None:
            for reply in replies:
                if (request := self._asked.pop((server, reply.call), None)) is not None:
                    self._promises[server].note_reply(request, reply)
            deliver(server, replies)

        self._connections.open(note)

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        if len(self._asked) > _ASKED_MAX:
            self._asked.clear()
        for message in messages:
            if isinstance(message, Keyed | Adopt):
                self._promises[server].asked(message)
                self._asked[server, message.call] = _without_data(message)
        self._connections.post(server, messages)


def _without_data(request: AnyMessage) -> AnyMessage:
    """Return the request without data: the part to keep until the answer."""
    if not isinstance(request, PutData):
        return request
    return PutData(
        request.call, request.configuration, request.object, request.tag, hollow(request.element)
    )
