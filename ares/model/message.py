"""The base of all messages, the additions of a traced request, and the properties of requests."""

import enum
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from ares.model.identity import CallId
from ares.model.numbers import Seconds

TRACE_BYTES = 25
Trace = Annotated[bytes, Meta(max_length=TRACE_BYTES)] | None
"""The place of a traced request in its trace.

W3C trace context in binary: 16 bytes of the trace's id, 8 of the parent's, 1 of flags.
"""

Spent = tuple[Seconds, Seconds]
"""Seconds of a traced request at a server: from arrival until handled, and until the reply left.

A commit may delay the reply.
"""


class Message(Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Base of all messages.

    ``call`` is chosen by the client, unique in its session, and repeated by the reply.
    """

    call: CallId

    if TYPE_CHECKING:

        @property
        def bulk(self) -> int:
            """Return the work beyond the work of a small message (ares/model/work.py)."""

    else:
        bulk = 0  # most messages are small, and to ask a property takes ten times as long


class Role(enum.IntEnum):
    """The rights of a client; each role includes the ones before."""

    READ = 1  # read, list, describe; spread decided successors
    WRITE = 2  # store and delete objects
    RECONFIGURE = 3  # create domains, and so files of their own; reconfigure
    ADMIN = 4  # every request


class ShownState(enum.Enum):
    """The part of a replica's state shown by an answer.

    Each answer about a configuration shows its pointer as well.
    """

    NOTHING = enum.auto()
    POINTER = enum.auto()
    OBJECT = enum.auto()
    LISTING = enum.auto()
    EVERYTHING = enum.auto()


class HandledBy(enum.Enum):
    """The part of a process that handles a request."""

    OBJECTS = enum.auto()  # ares/replica/replica.py
    LOGS = enum.auto()  # ares/sharedlog/node.py
    EITHER = enum.auto()  # by the configuration: of objects, or the chain of a log
    SERVER = enum.auto()
    MEMBER = enum.auto()  # of the consensus service


class NeededRoom(enum.Enum):
    """The fact about objects for which a request may need room in a server's journal."""

    NONE = enum.auto()
    ELEMENT = enum.auto()
    POINTER = enum.auto()
    DROPPED_NAMES = enum.auto()


class RequestKind(Struct, frozen=True):
    """The properties of a kind of request.

    ``reply``: the type of its answer, None where no answer is due; every request may be refused.
    ``role``: the least role of the client's key. ``changes``: whether the request may change a
    replica's state even without carrying a successor. The work of a request depends on its content:
    see :attr:`Message.bulk`.
    """

    handled_by: HandledBy
    reply: type[Message] | None
    role: Role
    shows: ShownState = ShownState.NOTHING
    changes: bool = False
    room: NeededRoom = NeededRoom.NONE
