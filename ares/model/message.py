"""What every message has, and what a traced request and its reply say besides."""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from ares.model.identity import CallId

TRACE_BYTES = 25
Trace = Annotated[bytes, Meta(max_length=TRACE_BYTES)] | None
"""The place of a request in a trace, if it is traced: W3C trace context in binary, 16 bytes of the trace's id, 8 of the parent's, 1 of flags."""

Spent = tuple[float, float]
"""What a server says of a traced request: seconds from its arrival until it was handled, and until the reply left, which a commit may delay."""


class Message(Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Base of all. ``call`` is chosen by the client and unique in its session; a reply repeats it."""

    call: CallId

    if TYPE_CHECKING:

        @property
        def bulk(self) -> int:
            """Work of this message beyond that of a small one (ares/model/work.py)."""

    else:
        bulk = 0  # most messages are small, and to ask a property takes ten times as long
