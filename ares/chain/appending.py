"""A client's appends: many in flight, in order, each once (docs/log.md, Append; Each append once). No I/O and no clock.

Appends are numbered. All that are unanswered are sent again when the head is silent, asks for an earlier one, or takes nothing any more: from the
lowest on, to the newest chain. When nobody can tell whether an append was taken, it and all that are unanswered fail, and the client goes on under a
new id; the numbers go on, so that late answers are never taken for others.
"""

from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from ares.chain.entries import check_batch
from ares.model.configuration import POSITION_MAX, Configuration, Successor
from ares.model.errors import AppendUncertain, BadInput, PositionTaken, Unavailable
from ares.model.identity import CallId, ClientId
from ares.model.log_messages import Append, Appended, AppendOutcome

WINDOW = 1000
"""Appends in flight at once; more wait."""

RESEND_S = 0.5
RESEND_S_MAX = 4.0
APPEND_CALLS = 1 << 48
"""Calls of appends are from here on: those of other requests stay below."""

Done = Callable[[int | None, BaseException | None], None]


class Flight(Struct, eq=False):
    """An append. ``known``: what was known to be committed before it was first sent. ``copies``: how often it was sent and may have been taken.

    ``declined``: the only copy was not taken, for nobody knows whether an earlier one was; the position was committed then.
    """

    entries: tuple[bytes, ...]
    at: int | None
    deadline: float
    done: Done
    number: int = 0
    known: int = 0
    copies: int = 0
    call: int = 0
    declined: int | None = None


class Appender:
    """Of one client, to ``chain``. ``known``: a position that is known to be committed. ``outbox``: for the head of ``chain``, in order.

    ``stalled``: the head is silent or takes nothing; ``trouble``: why, if it said so; ``heard``: a successor that it named. ``wants_tail``: a
    conditional append waits for :meth:`tail_known`.
    """

    def __init__(self, client: ClientId, chain: Configuration, new_client: Callable[[], ClientId]) -> None:
        self.client = client
        self.chain = chain
        self.known = chain.start
        self.outbox: list[Append] = []
        self.stalled = False
        self.trouble = ""
        self.heard: Successor | None = None
        self._new_client = new_client
        self._flights: dict[int, Flight] = {}
        self._pending: deque[Flight] = deque()
        self._last = 0
        self._calls = APPEND_CALLS
        self._resend_at = 0.0
        self._resend_s = RESEND_S

    @property
    def busy(self) -> bool:
        return bool(self._flights or self._pending)

    @property
    def wants_tail(self) -> bool:
        at = self._pending[0].at if self._pending else None
        return at is not None and at > self.known and not self._flights

    def submit(self, entries: Sequence[bytes], at: int | None, now: float, timeout_s: float, done: Done) -> None:
        """Append; ``done(position, None)`` or ``done(None, error)`` is called once. Raises :class:`BadInput` for what cannot be appended."""
        check_batch(entries)
        if at is not None and not 0 <= at <= POSITION_MAX:
            raise BadInput(f"a position is from 0 to {POSITION_MAX}, not {at}; nothing was sent")
        self._pending.append(Flight(tuple(entries), at, now + timeout_s, done))
        self._begin(now)

    def _begin(self, now: float) -> None:
        """Send what may be sent. A conditional append goes alone, and never beyond what is known to be committed."""
        flying = next(iter(self._flights.values()), None)
        while self._pending and len(self._flights) < WINDOW:
            flight = self._pending[0]
            if (flying is not None and flying.at is not None) or (flight.at is not None and (flying is not None or flight.at > self.known)):
                return
            self._pending.popleft()
            self._last += 1
            flight.number, flight.known = self._last, self.known
            if not self._flights:
                self._resend_at, self._resend_s = now + RESEND_S, RESEND_S
            self._flights[flight.number] = flight
            self._send(flight)
            flying = flight

    def _send(self, flight: Flight) -> None:
        self._calls += 1
        flight.call = self._calls
        flight.copies += 1
        lowest = self._lowest()
        call, chain, since = CallId(flight.call), self.chain.id, self._since(flight, lowest)
        self.outbox.append(Append(call, chain, self.client, flight.number, lowest.number, since, flight.entries, flight.at))

    def _lowest(self) -> Flight:
        return next(iter(self._flights.values()))

    def _since(self, flight: Flight, lowest: Flight) -> int:
        """Of ``lowest``: none of the numbers from there on can be below it."""
        return lowest.known

    def _send_again(self, first: int) -> None:
        for number, flight in self._flights.items():
            if number >= first:
                self._send(flight)

    def receive(self, reply: Appended, now: float) -> None:
        """Late answers count if they say that an append is there; other ones only if they are to its last copy."""
        flight = self._flights.get(reply.number)
        if flight is None:
            return
        if reply.outcome is AppendOutcome.DONE:
            self.known = max(self.known, reply.position + len(flight.entries))
            self._end(flight, reply.position, None, now)
        elif reply.call == flight.call:
            match reply.outcome:
                case AppendOutcome.TAKEN if flight.at is not None:
                    self.known = max(self.known, reply.position)
                    self._end(flight, None, PositionTaken(flight.at, reply.position), now)
                case AppendOutcome.GAP if reply.position in self._flights:
                    self._send_again(reply.position)
                case AppendOutcome.UNCERTAIN:
                    self._unsure(flight, reply.position, now)
                case AppendOutcome.SEALED | AppendOutcome.BEHIND:
                    self.stalled, self.heard = True, reply.successor or self.heard

    def _end(self, flight: Flight, position: int | None, error: BaseException | None, now: float) -> None:
        del self._flights[flight.number]
        self.trouble = ""
        self._resend_at, self._resend_s = now + RESEND_S, RESEND_S
        flight.done(position, error)
        self._raise_since()
        self._begin(now)

    def _unsure(self, flight: Flight, committed: int, now: float) -> None:
        """Of a number that was sent once the answer says that it is not there; otherwise an earlier copy may be."""
        if flight.copies > 1:
            self._give_up("what would tell whether it was taken is trimmed", now)
            return
        flight.declined = committed
        self._raise_since()

    def _raise_since(self) -> None:
        """The lowest one is not there: nothing of this client's is below what was committed then. Higher ones wait: `since` is of the lowest."""
        lowest = next(iter(self._flights.values()), None)
        if lowest is not None and lowest.declined is not None:
            lowest.known, lowest.declined, lowest.copies = max(lowest.known, lowest.declined), None, 0
            self._send(lowest)

    def _give_up(self, why: str, now: float) -> None:
        flights, self._flights = self._flights, {}
        self.outbox.clear()
        self.client = self._new_client()
        for flight in flights.values():
            flight.done(None, AppendUncertain(why))
        self._begin(now)

    def tail_known(self, tail: int, now: float) -> None:
        """An answer of tail(), asked after ``wants_tail``."""
        self.known = max(self.known, tail)
        if self.wants_tail:
            flight = self._pending.popleft()
            assert flight.at is not None
            flight.done(None, PositionTaken(flight.at, tail))
        self._begin(now)

    def moved(self, chain: Configuration, now: float) -> None:
        """A majority of the chain before knows ``chain``: go on there."""
        self.chain, self.stalled, self.heard = chain, False, None
        self.known = max(self.known, chain.start)
        self.outbox.clear()
        self.send_all_again(now)
        self._begin(now)

    def send_all_again(self, now: float) -> None:
        """Everything unanswered, from the lowest number on."""
        self._resend_at = now + self._resend_s
        self._send_again(0)

    def tick(self, now: float) -> None:
        late = [flight for flight in self._pending if flight.deadline <= now]
        for flight in late:
            self._pending.remove(flight)
            flight.done(None, Unavailable(0, 0, {}, "the append was not sent: earlier ones were not answered in time"))
        if self._flights and any(flight.deadline <= now for flight in self._flights.values()):
            self._give_up(f"the log did not answer in time{self.trouble and '; '}{self.trouble}", now)
        if self._flights and now >= self._resend_at:
            self.stalled, self._resend_s = True, min(2 * self._resend_s, RESEND_S_MAX)
            self.send_all_again(now)
