"""The requirements of clients and servers on a transport.

Every implementation passes the same tests (tests/transport/test_transport_contract.py). No call
waits for an answer: requests are posted, replies are delivered, and the session sends lost messages
again.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ares.model.codec import Frame, Outgoing
from ares.model.identity import CallId, ServerId
from ares.model.messages import AnyMessage
from ares.model.work import Meter

if TYPE_CHECKING:
    from ares.compiled import ServedTurn

Sender = Hashable
"""The name of the client of a request, for the reply; valid while its connection lasts."""


Handle = Callable[[Sender, Iterable[AnyMessage]], Sequence[AnyMessage]]
"""A server's function for requests that came together; returns the immediate replies to the sender.

The requests end when the client's turn does (ares/net/batching.py), hence each is to be answered
before the next is taken. Requests not taken are given at the client's next turn.
"""


Came = memoryview | Sequence[Sequence[Frame]]
"""The arrived bytes of a client.

Either the bytes of a connection without a cipher, or the batches in them, each with its frames.
"""


class Loop(Protocol):
    """A server's requirements of its event loop: asyncio's loop, or a simulation's own."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call ``callback`` after the present callback."""

    def time(self) -> float:
        """Return seconds, from some moment on."""


class Connections(Protocol):
    """A client's side of a transport: a connection for every server it speaks to.

    Never blocks and never raises because of a peer. A server that is down or slow loses messages
    and holds no memory: the queue for a server is bounded. Messages posted together leave as a
    batch, in order, but puts of large elements after the messages that wait with them.
    """

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        """Return the known reasons, for a person, why servers have no connection; they change."""

    @property
    def connected_s(self) -> Mapping[ServerId, float]:
        """Return the times of connections, on the clock time.perf_counter, where known."""

    @property
    def over_sockets(self) -> Set[ServerId]:
        """Return the servers whose latest connection is a Unix socket of this host."""

    def open(self, deliver: Callable[[ServerId, Sequence[AnyMessage]], None]) -> None:
        """Start; ``deliver`` is called on the event loop with each batch of replies."""

    def learn(self, server: ServerId, address: str) -> None:
        """Learn a server's address (``host:port``).

        The first address learned for an id stands; connecting happens at the first post.
        """

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Send a batch; drop the batch for a server without a learned address."""

    def receiving(self, server: ServerId) -> bool:
        """Return whether a large reply of this server arrives now, if the transport can tell."""

    def sending(self, server: ServerId, call: CallId) -> bool:
        """Return whether a large request has not wholly left, if the transport can tell.

        It arrives as soon as the link allows, or the connection ends: a copy would make it later.
        """

    async def close(self) -> None:
        """Close every connection; idempotent."""


DeliverFrames = Callable[[ServerId, Sequence[Frame]], None]
"""A function called with an undecoded batch of replies.

It raises :class:`ares.model.errors.BadMessage` without using any part of the batch.
"""


@runtime_checkable
class FramedConnections(Connections, Protocol):
    """A transport that passes on encoded messages.

    ``deliver_frames``, if set, is called with each batch that comes, and ``deliver`` only with the
    transport's own messages.
    """

    deliver_frames: DeliverFrames | None

    def post_frame(self, server: ServerId, frame: Frame) -> None:
        """Post a batch of a single frame, as ``post`` does."""


class Intake(Protocol):
    """A valve that keeps requests away from a server with enough of them."""

    def pause(self) -> None:
        """Take no more requests until :meth:`resume`.

        Requests wait with the clients, except a few already here. Replies leave. Idempotent.
        """

    def resume(self) -> None:
        """Take requests again; idempotent."""


class Listener(Intake, Protocol):
    """A server's side of a transport.

    ``handle(sender, messages)`` returns the replies to the sender, at once; they leave as a batch.
    Clients take turns. A bad batch (garbage, another version, oversized) never reaches ``handle``:
    it is counted in ``bad_batches``, answered with ``Refused(call 0, BAD_REQUEST)`` if it had a
    version, and otherwise dropped. ``seen`` is called with every batch read.

    ``meter``: the account of work which bounds turns; the server of the requests adds the cost of
    each. ``core``: called first by a transport that has the bytes; it does all the work, or returns
    None. None: no compiled core.
    """

    bad_batches: int
    meter: Meter
    core: "Callable[[Sender, Came], ServedTurn | None] | None"
    seen: "Callable[[Sender, Sequence[AnyMessage]], None]"

    async def serve(self, handle: Handle) -> str:
        """Bind and start; return the address bound (``host:port``).

        Raises :class:`ares.BadInput` if the address cannot be bound.
        """

    def reply(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        """Send replies given later (a consensus decision takes a while), some perhaps encoded.

        Replies to a sender that left are dropped.
        """

    async def close(self) -> None:
        """Stop; replies already handed over are sent first (at most about a second); idempotent."""
