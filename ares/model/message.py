"""The base of all messages, and the additions of a traced request and its reply."""

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
