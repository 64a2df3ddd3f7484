"""A client's appends: many in flight, in order, each once. No I/O and no clock.

See docs/log.md, Append, and Each append once.

Appends called before a message is sent go as one append: the callers get consecutive positions and
share the append's fate. Appends are numbered. All unanswered appends are sent again when the head
is silent, asks for an earlier append, or takes no more appends: from the lowest number on, to the
newest chain. When no server can tell whether an append was taken, the append and all unanswered
appends fail, and the client continues under a new id. The numbers go on, hence a late answer is
never taken for the answer to another append.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf

from msgspec import Struct

from ares.model.configuration import Configuration, Successor
from ares.model.errors import (
    NO_TROUBLES,
    AppendUncertain,
    BadInput,
    PositionTaken,
    Unavailable,
    Uncertain,
)
from ares.model.identity import NO_CALL, CallId, ClientId, ServerId
from ares.model.log_messages import Append, Appended, AppendOutcome, AwaitAppend
from ares.model.numbers import POSITION_MAX
from ares.sharedlog.entries import check_batch

APPENDS_IN_FLIGHT_MAX = 1000
"""Appends in flight at once; more appends wait."""

APPEND_BYTES_IN_FLIGHT_MAX = 16 * 1024 * 1024
"""Bytes of the appends in flight, unless a single one is larger: all may have to be sent again."""

TOGETHER_MAX = 64
TOGETHER_BYTES_MAX = 64 * 1024
"""Limits of the entries of several callers in one append.

A server reads all entries of an append to show one entry.
"""

AWAITED_IN_FLIGHT_MAX = 4
"""Appends in flight up to which the tail is asked to answer, too.

With more in flight the time of a single answer matters less than the work of a second answer.
"""

APPEND_RESEND_S = 0.5
APPEND_RESEND_S_MAX = 4.0
APPEND_CALLS = 1 << 48
"""Lower bound of the calls of appends; the calls of other requests stay below."""

AWAIT_CALLS = 1 << 52
"""Lower bound of the calls of messages to the tail: this number and the call of the append."""

CHAIN_SEALED = (
    "its chain is sealed and the next chain is not decided yet (reconfigure the log, to the same "
    "servers if need be)"
)
AFTER_CLOSING = "the append may be in the log: read it before you send it again"

Done = Callable[[int | None, BaseException | None], None]


class Flight(Struct, eq=False):
    """An append of one or more callers.

    ``known``: the position known to be committed before the append was first sent. ``copies``: how
    often the append was sent and may have been taken. ``declined``: the position committed when the
    only copy was refused, because no server knew whether an earlier copy was taken. ``wanted``: a
    caller waits for the append. ``callers``: with the index of each caller's first entry.
    """

    entries: list[bytes]
    at: int | None
    deadline: float
    callers: list[tuple[Done, int]]
    number: int = 0
    known: int = 0
    copies: int = 0
    call: CallId = NO_CALL
    declined: int | None = None
    wanted: bool = True
    size: int = 0

    def settle(self, position: int) -> None:
        """Tell the callers that the append is in the log, with the first entry at ``position``."""
        for done, place in self.callers:
            done(position + place, None)

    def fail(self, error: Callable[[], BaseException]) -> None:
        """Tell the callers that the append failed, each with an error of its own."""
        for done, _ in self.callers:
            done(None, error())

    def has_room(self, entries: Sequence[bytes], size: int) -> bool:
        """Return whether ``entries`` may go together with this append, which was not sent yet."""
        return (
            self.at is None
            and self.size + size <= TOGETHER_BYTES_MAX
            and len(self.entries) + len(entries) <= TOGETHER_MAX
        )

    def join(self, entries: Sequence[bytes], size: int, deadline: float, done: Done) -> None:
        """Add ``entries`` behind the entries of this append."""
        self.callers.append((done, len(self.entries)))
        self.entries += entries
        self.size += size
        if deadline < self.deadline:
            self.deadline = deadline


class Appender:
    """The appends of a client to ``chain``. ``known``: a position known to be committed.

    ``stalled``: the head is silent or takes no appends. ``heard``: a successor named by the head.

    ``wants_tail``: an append waits for :meth:`tail_known`. A conditional append does, and any
    append that comes ``trust_s`` after the last answer, and the first append. Both a change of the
    chain and a trim since this answer would make the append uncertain: a copy sent to the earlier
    chain counts as a copy that the log may contain. An unsent append is not uncertain.

    ``secret``: SECRET_BYTES random bytes, which prove the client id to servers.
    """

    def __init__(
        self,
        client: ClientId,
        chain: Configuration,
        new_client: Callable[[], ClientId],
        trust_s: float = inf,
        secret: bytes = b"",
    ) -> None:
        self.client = client
        self.chain = chain
        self.known = chain.start
        self.stalled = False
        self.heard: Successor | None = None
        self._new_client = new_client
        self._secret = secret
        self._outbox: list[Append] = []
        self._awaits: list[AwaitAppend] = []
        self._open: Flight | None = None
        self._flights: dict[int, Flight] = {}
        self._pending: deque[Flight] = deque()
        self._last = 0
        self._calls = APPEND_CALLS
        self._resend_at = 0.0
        self._resend_s = APPEND_RESEND_S
        self._look_at = inf
        self._bytes = 0
        self._unwanted = 0
        self._alone = False
        self._sealed = False
        self._trust_s = trust_s
        self._heard_at = -inf
        self._stale = False

    @property
    def busy(self) -> bool:
        return bool(self._flights or self._pending)

    @property
    def has_orders(self) -> bool:
        """Return whether :meth:`take_outbox` would return a message."""
        return bool(self._outbox or self._open is not None)

    @property
    def wants_tail(self) -> bool:
        if not self._pending or self._flights:
            return False
        at = self._pending[0].at
        return self._stale or (at is not None and at > self.known)

    @property
    def waiting(self) -> Flight | None:
        """Return the last append, if the append was not sent yet."""
        return self._pending[-1] if self._pending else None

    @property
    def calls(self) -> int:
        """Return the last call given to a copy."""
        return self._calls

    def submit(
        self, done: Done, now: float, entries: Sequence[bytes], at: int | None, timeout_s: float
    ) -> None:
        """Append, and call ``done(position, None)`` or ``done(None, error)`` once.

        A caller that stops waiting calls :meth:`forget`. Raises :class:`BadInput` for entries or a
        position that no append can have.
        """
        check_batch(entries)
        if at is not None and not 0 <= at <= POSITION_MAX:
            raise BadInput(f"a position is from 0 to {POSITION_MAX}, not {at}; nothing was sent")
        size = len(entries[0]) if len(entries) == 1 else sum(map(len, entries))
        deadline = now + timeout_s
        if deadline < self._look_at:
            self._look_at = deadline
        together = self._open
        if (
            together is not None
            and at is None
            and not self._pending
            and self._bytes + size <= APPEND_BYTES_IN_FLIGHT_MAX
            and together.has_room(entries, size)
        ):
            self._bytes += size  # as _begin does
            together.join(entries, size, deadline, done)
            return
        self._pending.append(Flight(list(entries), at, deadline, [(done, 0)], size=size))
        self._begin(now)

    def _begin(self, now: float) -> None:
        """Send the appends that may be sent.

        A conditional append goes alone, and never beyond the position known to be committed.
        """
        if not self._flights and now - self._heard_at > self._trust_s:
            self._stale = True
            return
        while self._pending and len(self._flights) < APPENDS_IN_FLIGHT_MAX:
            flight = self._pending[0]
            if not flight.wanted:
                self._pending.popleft()
                self._unwanted -= 1
                continue
            if self._flights and (
                self._alone
                or flight.at is not None
                or self._bytes + flight.size > APPEND_BYTES_IN_FLIGHT_MAX
            ):
                return
            if flight.at is not None and flight.at > self.known:
                return
            self._pending.popleft()
            if not self._flights:
                self._resend_at, self._resend_s = now + APPEND_RESEND_S, APPEND_RESEND_S
            self._launch(flight)

    def forget(self, flight: Flight) -> None:
        """End an append whose caller stopped waiting, unless the append was or will be sent."""
        if flight.number or not flight.wanted or not flight.callers:
            return
        flight.wanted = False
        flight.entries.clear()
        flight.fail(partial(Unavailable, 0, 0, {}, "the append was cancelled before it was sent"))
        flight.callers.clear()
        self._unwanted += 1
        if 2 * self._unwanted > len(self._pending):
            self._pending = deque(other for other in self._pending if other.wanted)
            self._unwanted = 0

    def _launch(self, flight: Flight) -> None:
        """Put an append into the outbox.

        Appends that come before the outbox leaves go together with this append.
        """
        self._bytes += flight.size
        if (
            self._open is not None
            and flight.at is None
            and self._open.has_room(flight.entries, flight.size)
        ):
            ((done, _),), flight.callers = flight.callers, []
            self._open.join(flight.entries, flight.size, flight.deadline, done)
            return
        self._send_open()
        self._last += 1
        flight.number, flight.known = self._last, self.known
        self._flights[self._last] = self._open = flight
        self._alone = flight.at is not None

    def take_outbox(self) -> list[Append]:
        """Return the messages for the head of the chain, in order, and empty the outbox."""
        self._send_open()
        outbox, self._outbox = self._outbox, []
        return outbox

    def take_awaits(self) -> list[AwaitAppend]:
        """Return the messages for the tail of the chain, after those of :meth:`take_outbox`."""
        awaits, self._awaits = self._awaits, []
        return awaits

    def _send_open(self) -> None:
        if self._open is not None:
            self._send(self._open)

    def _send(self, flight: Flight) -> None:
        if flight is self._open:
            self._open = None
        self._calls = flight.call = CallId(self._calls + 1)
        flight.copies += 1
        lowest = self._lowest()
        since = self._since(flight, lowest)
        self._outbox.append(
            Append(
                flight.call,
                self.chain.id,
                self.client,
                flight.number,
                lowest.number,
                since,
                tuple(flight.entries),
                flight.at,
                self._secret,
            )
        )
        if self.chain.backend and self.chain.n > 1 and len(self._flights) <= AWAITED_IN_FLIGHT_MAX:
            call = CallId(AWAIT_CALLS + flight.call)
            self._awaits.append(
                AwaitAppend(call, self.chain.id, self.client, flight.number, self._secret)
            )

    def _lowest(self) -> Flight:
        return next(iter(self._flights.values()))

    def _since(self, flight: Flight, lowest: Flight) -> int:
        """Return the position that no number from ``lowest`` on can be below."""
        return lowest.known

    def _send_again(self, first: int) -> None:
        for number, flight in self._flights.items():
            if number >= first:
                self._send(flight)

    def receive(self, reply: Appended, now: float) -> None:
        """Take an answer of the head, or of the tail.

        A late answer counts if the answer says that the append is in the log; any other answer
        counts only if the answer is to the last copy.
        """
        flight = self._flights.get(reply.number)
        if flight is None or flight is self._open:
            return
        if reply.outcome is AppendOutcome.DONE:
            end = reply.position + len(flight.entries)
            if end > self.known:
                self.known = end
            self._end(flight, partial(flight.settle, reply.position), now)
        elif reply.call == flight.call:
            match reply.outcome:
                case AppendOutcome.TAKEN if flight.at is not None:
                    self.known = max(self.known, reply.position)
                    self._end(
                        flight,
                        partial(flight.fail, partial(PositionTaken, flight.at, reply.position)),
                        now,
                    )
                case AppendOutcome.GAP if reply.position in self._flights:
                    self._send_again(reply.position)
                case AppendOutcome.UNCERTAIN:
                    self._unsure(flight, reply.position, now)
                case AppendOutcome.SEALED | AppendOutcome.BEHIND:
                    self._sealed = reply.outcome is AppendOutcome.SEALED and reply.successor is None
                    self.stalled, self.heard = True, reply.successor or self.heard

    def _end(self, flight: Flight, finish: Callable[[], None], now: float) -> None:
        del self._flights[flight.number]
        self._bytes -= flight.size
        self._heard_at = now
        self._resend_at, self._resend_s = now + APPEND_RESEND_S, APPEND_RESEND_S
        finish()
        self._raise_since()
        if self._pending:
            self._begin(now)

    def refused(self, call: int, error: Callable[[], Uncertain], now: float) -> None:
        """Fail the append whose copy ``call`` the head refuses for a lasting reason.

        If this was the only copy, the append is not in the log.
        """
        flight = next((flight for flight in self._flights.values() if flight.call == call), None)
        if flight is not None and flight.copies == 1:
            self._end(flight, partial(flight.fail, error), now)
        elif flight is not None:
            self._give_up(str(error()), now)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every append with an error of its own: no append will be sent again."""
        flights, self._flights, self._pending, self._open = (
            [*self._flights.values(), *(one for one in self._pending if one.wanted)],
            {},
            deque(),
            None,
        )
        for flight in flights:
            flight.fail(partial(_closing, error, flight.copies > 0))

    def _unsure(self, flight: Flight, committed: int, now: float) -> None:
        """Handle the answer that the head does not know whether the append was taken.

        If the number was sent once, the answer proves that the append is not in the log. Otherwise
        an earlier copy may be in the log.
        """
        if flight.copies > 1:
            self._give_up("the entries that would tell whether it was appended are trimmed", now)
            return
        flight.declined = committed
        self._raise_since()

    def _raise_since(self) -> None:
        """Send the lowest append again, with a higher ``since``, if the append was declined.

        The lowest append is not in the log: no append of this client is below the position
        committed at that answer. Higher appends wait, because ``since`` belongs to the lowest.
        """
        lowest = next(iter(self._flights.values()), None)
        if lowest is not None and lowest.declined is not None:
            lowest.known, lowest.declined, lowest.copies = (
                max(lowest.known, lowest.declined),
                None,
                0,
            )
            self._send(lowest)

    def _give_up(self, why: str, now: float) -> None:
        flights, self._flights, self._bytes, self._open = self._flights, {}, 0, None
        self._outbox.clear()
        self._awaits.clear()
        self.client = self._new_client()
        for flight in flights.values():
            unsent = partial(Unavailable, 0, 0, {}, f"the append was not sent: {why}")
            flight.fail(partial(AppendUncertain, why) if flight.copies else unsent)
        self._begin(now)

    def tail_known(self, tail: int, now: float) -> None:
        """Take an answer of tail(), asked after ``wants_tail``."""
        self.known = max(self.known, tail)
        self._stale, self._heard_at = False, now
        if self.wants_tail:
            flight = self._pending.popleft()
            self._unwanted -= not flight.wanted
            assert flight.at is not None
            flight.fail(partial(PositionTaken, flight.at, tail))
        self._begin(now)

    def moved(self, chain: Configuration, now: float) -> None:
        """Continue at ``chain``, which a majority of the preceding chain knows."""
        self.chain, self.stalled, self.heard, self._sealed = chain, False, None, False
        self.known = max(self.known, chain.start)
        self._outbox.clear()
        self._awaits.clear()
        self.send_all_again(now)
        self._begin(now)

    def send_all_again(self, now: float) -> None:
        """Send all unanswered appends again, from the lowest number on."""
        self._resend_at = now + self._resend_s
        self._send_again(0)

    def tick(self, now: float, troubles: Mapping[ServerId, str] = NO_TROUBLES) -> None:
        """Let time pass. ``troubles``: known reasons why servers cannot be reached."""
        if now >= self._look_at:
            self._end_late(now, troubles)
        if self._flights and now >= self._resend_at:
            self.stalled, self._resend_s = True, min(2 * self._resend_s, APPEND_RESEND_S_MAX)
            self.send_all_again(now)

    def _end_late(self, now: float, troubles: Mapping[ServerId, str]) -> None:
        late = [flight for flight in self._pending if flight.deadline <= now and flight.wanted]
        self._pending = deque(
            flight for flight in self._pending if flight.deadline > now and flight.wanted
        )
        self._unwanted = 0
        for flight in late:
            why = (
                "no server told the end of the log in time"
                if self._stale
                else "earlier appends were not answered in time"
            )
            flight.fail(partial(Unavailable, 0, 0, {}, f"the append was not sent: {why}"))
        if any(flight.deadline <= now for flight in self._flights.values()):
            head, *others = self.chain.server_ids
            known = [f"{head}, its head: {troubles.get(head, 'no answer')}"]
            known += [f"{server}: {troubles[server]}" for server in others if server in troubles]
            silence = f"the log did not answer in time ({'; '.join(known)})"
            self._give_up(CHAIN_SEALED if self._sealed else silence, now)
        self._look_at = min(
            (flight.deadline for flight in (*self._flights.values(), *self._pending)), default=inf
        )


def _closing(error: Callable[[], Uncertain], was_sent: bool) -> Uncertain:
    failure = error()
    failure.may_have_taken_effect, failure.advice = was_sent, AFTER_CLOSING
    return failure
