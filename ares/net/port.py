"""What clients and servers need of a transport. Every implementation passes the same tests (tests/transport/test_contract.py).

Nothing here waits for an answer: requests are posted, replies are delivered, and what gets lost is sent again by the session.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ares.model.codec import Frame, Outgoing
from ares.model.identity import ServerId
from ares.model.messages import AnyMessage
from ares.model.work import Meter

if TYPE_CHECKING:
    from ares._core import Served

Sender = Hashable
"""Names the client that a request came from, for the reply; valid while its connection lasts."""


Handle = Callable[[Sender, Iterable[AnyMessage]], Sequence[AnyMessage]]
"""What a server does with requests that came together: the replies to that sender that can be given at once.

They end when the client's turn does (ares/net/batching.py), so each is to be answered before the next is taken. What it does not take, it
is given at the client's next turn.
"""


Came = memoryview | Sequence[Sequence[Frame]]
"""Of one client at a time: the bytes of a connection on which messages go as they are, or the batches that were in them, each with its frames."""


class Loop(Protocol):
    """What a server needs of an event loop, on which all of it happens. asyncio's is one, and a simulation has its own."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call it after what is happening now."""

    def time(self) -> float:
        """Seconds, from some moment on."""


class Connections(Protocol):
    """A client's side of a transport: one connection for every server it speaks to.

    Never blocks and never raises because of a peer. A server that is down or slow loses messages, it does not hold memory: what is
    queued for one is bounded. What is posted together leaves as one batch, in order.
    """

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        """Why there is no connection with servers that were posted to, in words for a person, of those of which that is known; it changes."""

    @property
    def connected_s(self) -> Mapping[ServerId, float]:
        """When connections were made, on the clock time.perf_counter, as far as it is known."""

    def open(self, deliver: Callable[[ServerId, Sequence[AnyMessage]], None]) -> None:
        """Start; ``deliver`` is called on the event loop with each batch of replies."""

    def learn(self, server: ServerId, address: str) -> None:
        """Where a server listens (``host:port``). The first address learned for an id stands; connecting happens at the first post."""

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Send a batch. To a server whose address was never learned: dropped."""

    def receiving(self, server: ServerId) -> bool:
        """Whether a large reply of this server is arriving right now, if the transport can tell."""

    async def close(self) -> None:
        """Close every connection; idempotent."""


DeliverFrames = Callable[[ServerId, Sequence[Frame]], None]
"""What is called with a batch of replies that is not decoded. It raises :class:`ares.model.errors.BadMessage`, having used nothing of the batch."""


@runtime_checkable
class FramedConnections(Connections, Protocol):
    """A transport that passes on what is encoded already. ``deliver_frames``, if set, is called with each batch that comes, and ``deliver`` only with
    what the transport itself has to say.
    """

    deliver_frames: DeliverFrames | None

    def post_frame(self, server: ServerId, frame: Frame) -> None:
        """As ``post``, a batch of one frame."""


class Intake(Protocol):
    """What keeps requests away from a server that has enough of them."""

    def pause(self) -> None:
        """Take no more requests until :meth:`resume`: they wait with the clients, but for a few that are here already. Replies leave. Idempotent."""

    def resume(self) -> None:
        """Take requests again; idempotent."""


class Listener(Intake, Protocol):
    """A server's side of a transport.

    ``handle(sender, messages)`` returns the replies to that sender, at once; they leave as one batch. Clients take turns at it. A batch that is not
    one (garbage, another version, oversized) never reaches ``handle``: it is counted in ``bad_batches``, answered with ``Refused(call 0,
    BAD_REQUEST)`` if it had a version, and otherwise dropped. ``seen`` is told of every batch that was read.

    ``meter``: the account of work by which turns are bounded; what serves the requests adds what each of them costs.
    ``core``: asked first by a transport that has the bytes; it does all that is needed, or returns None. None: nothing is compiled.
    """

    bad_batches: int
    meter: Meter
    core: "Callable[[Sender, Came], Served | None] | None"
    seen: "Callable[[Sender, Sequence[AnyMessage]], None]"

    async def serve(self, handle: Handle) -> str:
        """Bind and start; returns the address bound (``host:port``). Raises :class:`ares.BadInput` if it cannot be bound."""

    def reply(self, sender: Sender, messages: Sequence[Outgoing]) -> None:
        """Send replies that could not be given at once (a consensus decision takes a while), some perhaps encoded. To a sender that left: dropped."""

    async def close(self) -> None:
        """Stop; replies already handed over are sent first (at most about a second); idempotent."""
