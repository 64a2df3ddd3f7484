"""The seams between the shells and the world. Each has two implementations that pass one contract suite (tests/transport, tests/consensus).

Nothing here waits for an answer: requests are posted, replies are delivered, and what gets lost is sent again by the session.
"""

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.identity import ClientId, DomainName, ServerId
from ares.model.messages import AnyMessage, ConsensusDescription, Decided, PutData
from ares.replica.facts import Fact
from ares.replica.facts import Key as Key

Sender = Hashable
"""Names the client that a request came from, for the reply; valid while its connection lasts."""


Handle = Callable[[Sender, Iterable[AnyMessage]], Sequence[AnyMessage]]
"""What a server does with requests that came together: the replies to that sender that can be given at once.

They end when the client's turn does (ares/net/turns.py), so each is to be answered before the next is taken. What it does not take, it
is given at the client's next turn.
"""


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

    def open(self, deliver: Callable[[ServerId, Sequence[AnyMessage]], None]) -> None:
        """Start; ``deliver`` is called on the event loop with each batch of replies."""

    def learn(self, server: ServerId, address: str) -> None:
        """Where a server listens (``host:port``). The first address learned for an id stands; connecting happens at the first post."""

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Send a batch. To a server whose address was never learned: dropped."""

    async def close(self) -> None:
        """Close every connection; idempotent."""


class Throttle(Protocol):
    """What keeps requests away from a server that has enough of them."""

    def pause(self) -> None:
        """Take no more requests until :meth:`resume`: they wait with the clients, but for a few that are here already. Replies leave. Idempotent."""

    def resume(self) -> None:
        """Take requests again; idempotent."""


class Listener(Throttle, Protocol):
    """A server's side of a transport.

    ``handle(sender, messages)`` returns the replies to that sender, at once; they leave as one batch. Clients take turns at it. A batch that is not
    one (garbage, another version, oversized) never reaches ``handle``: it is counted in ``bad_batches``, answered with ``Refused(call 0,
    BAD_REQUEST)`` if it had a version, and otherwise dropped.
    """

    bad_batches: int

    async def serve(self, handle: Handle) -> str:
        """Bind and start; returns the address bound (``host:port``). Raises :class:`ares.BadInput` if it cannot be bound."""

    def reply(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        """Send replies that could not be given at once (a consensus decision takes a while). To a sender that left: dropped."""

    async def close(self) -> None:
        """Stop; replies already handed over are sent first (at most about a second); idempotent."""


class Consensus(Protocol):
    """One decision for every (domain, index): the first proposal wins, for ever (protocol: ARES II section 3, c.Con).

    Every method raises :class:`ares.ConsensusUnavailable` when ``timeout_s`` passes without an answer; asking again is always safe.
    """

    async def propose(self, configuration: Configuration, proposer: ClientId, timeout_s: float) -> Decided:
        """The decision for ``(configuration.domain, configuration.index)``: this proposal, or an earlier one."""

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        """The last finalized configuration that the service was told of. Never needed for safety."""

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> None:
        """Keep ``configuration`` as its domain's hint, unless a later one is kept already."""

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        """Why members cannot be reached, as :attr:`Connections.troubles` of servers."""

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """What each member that answers says of itself; never raises for silent ones."""

    async def close(self) -> None:
        """Let go of connections; idempotent."""


class Use(enum.IntEnum):
    """What room in a journal is asked for: how much must be left for others decides who is refused first when the disk fills up."""

    DATA = 0  # leaves the whole spare
    POINTERS = 1  # pointers, collections and deletions, by which space is freed in the end: leave half of it
    COMPACTION = 2  # may take the last of it


class Verdict(Struct, frozen=True):
    """What an examination found. ``whole``: all is there, as it was written.

    ``damaged``: the elements that are not, as far as it can be told whose they were. ``readable``: None, unless the disk failed to read something;
    then the large elements that it can read. To look at the data of others in memory might be to wait for the disk, and to fail with it.
    """

    whole: bool
    damaged: tuple[Key, ...] = ()
    readable: frozenset[Key] | None = None


class Examination(Protocol):
    """Reads a place from the disk and verifies it all, wherever waiting is allowed; whatever happens to the journal meanwhile."""

    def run(self, pace: Callable[[int], None]) -> Verdict:
        """``pace(bytes)`` is called before so many bytes are read; what it raises ends this. Raises OSError if it could not be done."""


class Journal(Protocol):
    """What a server must not forget: facts (ares/replica/facts.py), in places. All is called on one thread, the event loop's. ``keeps``: anything.

    First :meth:`recover`, to its end. Then facts are appended, each in room that was reserved for it, and committed. Space is given back place by
    place: copy what survives of a place's facts to the end, commit that, discard the place.
    """

    keeps: bool

    def recover(self) -> Iterator[tuple[int, Sequence[Fact]]]:
        """Every fact that was committed, and perhaps some that were only appended, with its place; parts of large elements may be views.

        Raises :class:`ares.model.errors.StoreDamaged`, :class:`ares.model.errors.ForeignStore` or :class:`ares.BadInput`.
        """

    def reserve(self, bytes: int, use: Use) -> int | None:
        """The place for facts of so many bytes (ares/replica/facts.py, fact_bytes_max), to be appended now; None when the disk is full."""

    def append(self, fact: Fact, bytes: int) -> None:
        """Keep ``fact``, which takes so many bytes at most, where the last reserved room is; it is not durable yet."""

    def commit(self, done: Callable[[OSError | None, Sequence[PutData]], None]) -> None:
        """Make everything appended so far durable; several commits end in order. ``done(error, moved)`` is not called before this returns.

        ``moved``: the large elements appended, their parts views of the mapped journal, so that memory need not hold them too. After an error nothing
        more becomes durable.
        """

    def places(self) -> Mapping[int, int]:
        """Bytes of every place that no fact is appended to any more."""

    def read(self, place: int) -> Iterator[Fact]:
        """The facts of such a place. Raises :class:`ares.model.errors.StoreDamaged`."""

    def durable(self) -> Mapping[int, int]:
        """Bytes of every place that are durable: those of :meth:`places`, and of one that facts are appended to."""

    def examination(self, place: int) -> Examination | None:
        """Of what is durable there now; None if there is no such place (any more)."""

    def seal(self, place: int) -> bool:
        """No fact is appended to ``place`` any more: it is among :meth:`places` after the next commit. False when there is no room for another."""

    def discard(self, place: int) -> None:
        """What survives of such a place was committed elsewhere: forget it with the next commit. Views into it stay valid."""

    @property
    def bytes_on_disk(self) -> int:
        """What it takes."""

    def close(self) -> None:
        """Let go of files; commits under way are finished first, and not told; idempotent."""


class NoJournal:
    """The journal of a server that keeps everything in memory: nothing is appended to it, and a restart finds nothing."""

    keeps = False
    bytes_on_disk = 0

    def recover(self) -> Iterator[tuple[int, Sequence[Fact]]]:
        return iter(())

    def reserve(self, bytes: int, use: Use) -> int:
        return 0

    def append(self, fact: Fact, bytes: int) -> None: ...

    def commit(self, done: Callable[[OSError | None, Sequence[PutData]], None]) -> None: ...

    def places(self) -> Mapping[int, int]:
        return {}

    def read(self, place: int) -> Iterator[Fact]:
        return iter(())

    durable = places

    def examination(self, place: int) -> None: ...

    def seal(self, place: int) -> bool:
        return False

    def discard(self, place: int) -> None: ...

    def close(self) -> None: ...
