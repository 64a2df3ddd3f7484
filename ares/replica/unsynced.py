"""What a group commit changes, and which replies show it: those wait until it is durable (ares/server/host.py)."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from ares.model.codec import BATCH_MESSAGES_MAX, Encoded, Outgoing
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import (
    OF_OBJECTS,
    REQUESTS,
    Ack,
    AnyMessage,
    DataReply,
    Description,
    Introduce,
    ObjectsReply,
    PutData,
    Refused,
    Reply,
    Request,
    Shown,
    TagReply,
    Timed,
)
from ares.model.tag import Tag
from ares.replica.facts import Fact, Pointed

ROWS_MAX = 262_144
"""Of the replies to one client that wait for one commit: a reply is a row, and so is each tag, object or configuration that it names."""

_READ = frozenset({TagReply, DataReply})


class Served(Struct, eq=False):
    """A traced request, and how it went; nothing of the messages but what is told.

    ``batch_s``: when it came, by the host's clock. ``handled_s``: until it was handled, ``left_s``: until its reply left.
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
        """The reply leaves now, and says what was spent on it, if it is of a kind that can."""
        self.left_s = left_s
        if isinstance(reply, Refused):
            self.refused = reply.reason.name
        elif isinstance(reply, TagReply):
            self.tag = reply.tag
        elif isinstance(reply, DataReply) and reply.element is not None:
            self.bytes = reply.element.size
        return (
            structs.replace(reply, spent=(self.handled_s, left_s))
            if isinstance(reply, Timed)
            else reply
        )


def served_of(request: Any, batch_s: float) -> Served:
    """For a request about a configuration that says where it stands in a trace."""
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


class Unsynced:
    """One group commit: what it changes, and the replies that wait for it. ``appended``: there is something to commit. ``bytes``: of its facts.

    ``waited``: when the requests of so many tags or values, and of so many acknowledgements, came, by the host's clock. ``traced``: those of the
    replies that were traced, by the sender and their place. ``objects``: those of each configuration that it changes.
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
        """``fact``, which was appended, is committed with this."""
        if isinstance(fact, Pointed):
            self.pointers.add(fact.configuration.id)
        else:
            self.objects.setdefault(fact.configuration, set()).add(fact.object)

    def keep(
        self, sender: Hashable, reply: Reply, came_s: float, served: Served | None = None
    ) -> None:
        """Until this is durable. A disk may take its time: what is too much is dropped, the client asks again."""
        rows = self._rows.get(sender, 0) + _rows(reply)
        if rows <= ROWS_MAX:
            self._rows[sender] = rows
            replies = self.replies.setdefault(sender, [])
            replies.append(reply)
            self.waited.append((came_s, type(reply) in _READ, type(reply) is Ack))
            if served is not None:
                self.traced.append((sender, len(replies) - 1, served))

    def rows_left(self, sender: Hashable) -> int:
        """How many more are kept for this client."""
        return ROWS_MAX - self._rows.get(sender, 0)

    def keep_encoded(
        self, sender: Hashable, replies: Encoded, rows: int, came_s: float, reads: int, writes: int
    ) -> None:
        """:meth:`keep`, of no more than a batch may have that are encoded, and of no more rows than are left."""
        self._rows[sender] = self._rows.get(sender, 0) + rows
        self.replies.setdefault(sender, []).append(replies)
        self.waited.append((came_s, reads, writes))

    def portions(self) -> Iterator[tuple[Hashable, Sequence[Outgoing]]]:
        """The replies to each sender, no more at a time than a batch may have."""
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
        """Whether a reply to ``request`` may show something of this. Every reply about a configuration shows its pointer."""
        told: Any = request
        if type(request) in OF_OBJECTS:
            return (
                told.object in self.objects.get(told.configuration, ())
                or told.configuration in self.pointers
            )
        shows = REQUESTS[type(request)].shows
        if shows is Shown.EVERYTHING:
            return self.appended
        id = told.configuration.id if type(request) is Introduce else told.configuration
        return id in self.pointers or (shows is Shown.LISTING and id in self.objects)


def _rows(reply: Reply) -> int:
    if type(reply) is DataReply:
        return 1 + len(reply.tags)
    if type(reply) is ObjectsReply:
        return 1 + len(reply.objects)
    return 1 + len(reply.hosted) if type(reply) is Description else 1
