"""A group commit: changes, and the replies with these changes.

These replies wait until the commit is durable (ares/server/storage_server.py).
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from ares.model.codec import BATCH_MESSAGES_MAX, Encoded, Outgoing
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import (
    READ_REPLIES,
    REQUEST_KINDS,
    Ack,
    AnyMessage,
    ChangedObjects,
    DataReply,
    Description,
    Introduce,
    ListReply,
    ObjectsReply,
    PutData,
    Refused,
    Reply,
    Request,
    ShownState,
    TagReply,
    Timed,
)
from ares.model.tag import Tag
from ares.replica.facts import ConfigurationRecord, Fact, NamesDropped

ROWS_MAX = 262_144
"""Most waiting rows of a commit, for each client.

A reply is a row, and likewise each tag, object or configuration named by the reply.
"""


class Served(Struct, eq=False):
    """A traced request and the request's course; only the reported parts of messages are kept.

    ``batch_s``: arrival, by the host's clock. ``handled_s``: seconds until handled, ``left_s``:
    until the reply left.
    """

    kind: str
    trace: bytes
    configuration: bytes
    object: str
    tag: Tag | None
    bytes: int
    batch_s: float
    handled_s: float = 0.0
    left_s: float = 0.0
    refused: str = ""

    def answered(self, reply: AnyMessage, left_s: float) -> AnyMessage:
        """Return the reply as sent now, with the time spent if this kind of reply has the field."""
        self.left_s = left_s
        if isinstance(reply, Refused):
            self.refused = reply.reason.name
        elif isinstance(reply, TagReply):
            self.tag = reply.tag
        elif isinstance(reply, DataReply) and reply.element is not None:
            self.bytes = reply.element.size
        elif isinstance(reply, ListReply):
            self.bytes = reply.size
        return (
            structs.replace(reply, spent=(self.handled_s, left_s))
            if isinstance(reply, Timed)
            else reply
        )


def served_of(request: Any, batch_s: float) -> Served:
    """Return the record of a traced request about a configuration."""
    tag, size = (request.tag, request.element.size) if type(request) is PutData else (None, 0)
    return Served(
        type(request).__name__,
        request.trace,
        request.configuration,
        getattr(request, "object", ""),
        tag,
        size,
        batch_s,
    )


class GroupCommit:
    """A group commit: the changes, and the waiting replies.

    ``appended``: the commit has facts. ``bytes``: the size of the facts. ``waited``: arrival, by
    the host's clock, with the number of tags or values and of acknowledgements. ``traced``: the
    traced replies, by sender and position. ``objects``: the changed objects of each configuration.
    """

    def __init__(self) -> None:
        self.objects: dict[ConfigurationId, set[ObjectName]] = {}
        self.pointers: set[ConfigurationId] = set()
        self.replies: dict[Hashable, list[Outgoing]] = {}
        self.waited: list[tuple[float, int, int]] = []
        self.traced: list[tuple[Hashable, int, Served]] = []
        self._rows: dict[Hashable, int] = {}
        self.appended = False
        self.bytes = 0

    def note(self, fact: Fact) -> None:
        """Count the appended ``fact`` in this commit."""
        if isinstance(fact, ConfigurationRecord):
            self.pointers.add(fact.configuration.id)
        elif isinstance(fact, NamesDropped):
            self.objects.setdefault(fact.configuration, set()).update(fact.names)
        else:
            self.objects.setdefault(fact.configuration, set()).add(fact.object)

    def keep(
        self, sender: Hashable, reply: Reply, came_s: float, served: Served | None = None
    ) -> None:
        """Queue a reply until the commit is durable; drop replies beyond ROWS_MAX.

        A disk may be slow; after a drop the client asks again.
        """
        rows = self._rows.get(sender, 0) + _rows(reply)
        if rows <= ROWS_MAX:
            self._rows[sender] = rows
            replies = self.replies.setdefault(sender, [])
            replies.append(reply)
            self.waited.append((came_s, type(reply) in READ_REPLIES, type(reply) is Ack))
            if served is not None:
                self.traced.append((sender, len(replies) - 1, served))

    def rows_left(self, sender: Hashable) -> int:
        """Return the number of rows left for this client."""
        return ROWS_MAX - self._rows.get(sender, 0)

    def keep_encoded(
        self, sender: Hashable, replies: Encoded, rows: int, came_s: float, reads: int, writes: int
    ) -> None:
        """Queue encoded replies as :meth:`keep` does.

        They are no more than a batch may have, and no more rows than are left.
        """
        self._rows[sender] = self._rows.get(sender, 0) + rows
        self.replies.setdefault(sender, []).append(replies)
        self.waited.append((came_s, reads, writes))

    def portions(self) -> Iterator[tuple[Hashable, Sequence[Outgoing]]]:
        """Yield the replies to each sender, at most a batch at a time."""
        for sender, replies in self.replies.items():
            if self._rows[sender] > BATCH_MESSAGES_MAX:
                first = count = 0
                for position, reply in enumerate(replies):
                    more = reply.count if type(reply) is Encoded else 1
                    if count + more > BATCH_MESSAGES_MAX:
                        yield sender, replies[first:position]
                        first, count = position, 0
                    count += more
                replies = replies[first:]
            yield sender, replies

    def shown_by(self, request: Request) -> bool:
        """Return whether a reply to ``request`` may show a change in this commit.

        Every reply about a configuration shows its pointer.
        """
        fields: Any = request
        shows = REQUEST_KINDS[type(request)].shows
        if shows is ShownState.OBJECT:
            return (
                fields.object in self.objects.get(fields.configuration, ())
                or fields.configuration in self.pointers
            )
        if shows is ShownState.EVERYTHING or shows is ShownState.NOTHING:
            return self.appended and shows is ShownState.EVERYTHING
        id = fields.configuration.id if type(request) is Introduce else fields.configuration
        return id in self.pointers or (shows is ShownState.LISTING and id in self.objects)


def _rows(reply: Reply) -> int:
    if type(reply) is DataReply:
        return 1 + len(reply.tags)
    if type(reply) is ListReply:
        return 1 + len(reply.entries)
    if type(reply) is ObjectsReply or type(reply) is ChangedObjects:
        return 1 + len(reply.objects)
    return 1 + len(reply.hosted) if type(reply) is Description else 1
