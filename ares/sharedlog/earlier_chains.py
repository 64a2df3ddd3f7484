"""Questions of a node about earlier chains: a client's row, and records below the node's start.

See docs/log.md, Each append once, Reconfiguration, and Old positions.
"""

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from ares.model.configuration import Configuration, Status, Successor
from ares.model.identity import NO_CALL, CallId, ClientId, ConfigurationId, ServerId
from ares.model.log_messages import Fetch, Fetched, LogRecord, LookRow, RowFound
from ares.reconfig.throttle import Throttle
from ares.sharedlog.bound_ids import BoundAppend
from ares.sharedlog.chain_segment import ChainSegment, Sender, waiting_bytes
from ares.sharedlog.entries import first_piece, follow_on
from ares.sharedlog.log_facts import PIECES, LogTrimmed, LostRecords, PieceFetched
from ares.sharedlog.log_state import LogState

FETCH_AGAIN_S = 0.5
REFETCH_AGAIN_S, REFETCH_AGAIN_S_MAX, REFETCH_S_MAX = 5.0, 30.0, 120.0
"""Seconds of waiting for an answer with lost records, at first and at most, and seconds of a fetch
of all lost records of a source.
"""

REFETCH_WAITS_MAX = 64
"""Most lost records whose longer waits are remembered."""

EARLIER_LOOK_S = 0.2
EARLIER_LOOKS_MAX = 1000
WAITING_APPENDS_MAX = 10_000
"""Appends that wait for the same look; clients send dropped further appends again."""

WAITING_APPENDS_BYTES_MAX = 64 * 1024 * 1024
"""Total bytes of waiting appends; more are dropped, and sent again by their clients."""


class EarlierRow(Struct, frozen=True):
    """The part of a client's row found so far, newest chain first.

    ``last``: 0 without a row. ``places``: (first, end) of each number. ``exhausted``: no earlier
    chain has records of the client. ``uncertain``: the records that would decide are trimmed.
    ``below``: the index of the next chain to be asked.
    """

    last: int
    places: dict[int, tuple[int, int]]
    exhausted: bool
    uncertain: bool
    trimmed: int
    below: int

    def joined(self, reply: RowFound, exhausted: bool) -> "EarlierRow":
        """Return the row with the answer of the next chain added."""
        places = {place.number: (place.first, place.end) for place in reply.places} | self.places
        trimmed, uncertain = max(self.trimmed, reply.trimmed), reply.uncertain
        return EarlierRow(
            self.last or reply.last,
            places,
            exhausted or reply.whole or uncertain,
            uncertain,
            trimmed,
            self.below - 1,
        )


class EarlierLook(Struct):
    """A look at ``chain``, for waiting appends. ``turn`` selects the server asked last."""

    segment: ChainSegment
    found: EarlierRow
    chain: Configuration
    successor: Successor
    names: tuple[ClientId, ...]
    since: int
    waiting: dict[tuple[Sender, int], BoundAppend]
    turn: int = 0
    again_at: float = 0.0
    calls: dict[CallId, ClientId] = {}
    """The name that each request under way asks about."""

    rows: dict[ClientId, RowFound] = {}
    """The known rows by name."""

    @property
    def lacking(self) -> list[ClientId]:
        """The names without a known row."""
        return [name for name in self.names if name not in self.rows]

    def done(self) -> EarlierRow:
        """Return the row found so far.

        The row is complete from ``since`` on if this chain starts at ``since`` or before.
        """
        return self.found.joined(joined_rows(self.rows.values()), self.since >= self.chain.start)


def joined_rows(rows: Collection[RowFound]) -> RowFound:
    """Return the row of a client from the rows under each name.

    The row is uncertain only if no name has a row.
    """
    last = max(row.last for row in rows)
    return RowFound(
        NO_CALL,
        True,
        last,
        tuple(place for row in rows for place in row.places),
        all(row.whole for row in rows),
        not last and any(row.uncertain for row in rows),
        max(row.trimmed for row in rows),
    )


LookKey = tuple[ConfigurationId, ClientId, int, int]


class EarlierLooks:
    """The looks of a head. ``send(server, request)`` asks a server.

    ``here(chain, client, since)`` asks this server, and returns None if this server cannot answer.
    ``done(segment, sender, append, found)`` continues with an append that waited. ``bytes``: the
    bytes of all waiting appends.
    """

    def __init__(
        self,
        send: Callable[[ServerId, LookRow], None],
        here: Callable[[Configuration, ClientId, int], RowFound | None],
        done: Callable[[ChainSegment, Sender, BoundAppend, EarlierRow], None],
        next_call: Callable[[], CallId],
    ) -> None:
        self._send = send
        self._here = here
        self._done = done
        self._next_call = next_call
        self._looks: dict[LookKey, EarlierLook] = {}
        self.bytes = 0

    def wait(
        self,
        segment: ChainSegment,
        sender: Sender,
        append: BoundAppend,
        found: EarlierRow,
        chains: Sequence[Configuration],
        now: float,
    ) -> None:
        """Make ``append`` wait until the preceding chain has answered.

        ``chains``: the known chains, in order. The oldest chain answers for all positions below,
        too.
        """
        earlier = [chain for chain in chains if chain.index <= found.below]
        chain = earlier[-1] if earlier else segment.configuration
        key = (segment.configuration.id, append.client, append.since, found.below)
        look = self._looks.get(key)
        if self.bytes >= WAITING_APPENDS_BYTES_MAX or (
            look is None and len(self._looks) >= EARLIER_LOOKS_MAX
        ):
            return
        if look is None:
            following = next(
                (each for each in chains if each.index == chain.index + 1), segment.configuration
            )
            look = EarlierLook(
                segment,
                found,
                chain,
                Successor(following, Status.PENDING),
                append.names,
                append.since,
                {},
                append.number,
            )
            self._looks[key] = look
            self._add(look, sender, append)
            self._ask(key, look, now)
        elif len(look.waiting) < WAITING_APPENDS_MAX:
            self._add(look, sender, append)

    def _add(self, look: EarlierLook, sender: Sender, append: BoundAppend) -> None:
        earlier = look.waiting.get((sender, append.number))
        self.bytes += waiting_bytes(append) - (0 if earlier is None else waiting_bytes(earlier))
        look.waiting[sender, append.number] = append

    def _forget(self, key: LookKey) -> None:
        self.bytes -= sum(map(waiting_bytes, self._looks.pop(key).waiting.values()))

    def _ask(self, key: LookKey, look: EarlierLook, now: float) -> None:
        for name in look.lacking:
            here = self._here(look.segment.configuration, name, look.since) or self._here(
                look.chain, name, look.since
            )
            if here is not None:
                look.rows[name] = here
        if not look.lacking:
            self._conclude(key, look)
            return
        if look.chain is look.segment.configuration:  # no server can be asked: this append waits
            return
        look.turn, look.again_at = look.turn + 1, now + EARLIER_LOOK_S
        look.calls = {self._next_call(): name for name in look.lacking}
        server = look.chain.server_ids[look.turn % len(look.chain.server_ids)]
        for call, name in look.calls.items():
            self._send(server, LookRow(call, look.chain.id, name, look.since, look.successor))

    def _conclude(self, key: LookKey, look: EarlierLook) -> None:
        self._forget(key)
        found = look.done()
        for (sender, _), append in sorted(look.waiting.items(), key=lambda item: item[0][1]):
            self._done(look.segment, sender, append, found)

    def forget(self) -> None:
        self._looks.clear()
        self.bytes = 0

    def receive(self, reply: RowFound, now: float) -> None:
        """Take an answer. If the server cannot answer, ask another server at the next turn."""
        for key, look in self._looks.items():
            if reply.call in look.calls:
                if reply.holds:
                    look.rows[look.calls[reply.call]] = reply
                    if not look.lacking:
                        self._conclude(key, look)
                return

    def tick(self, now: float) -> None:
        """Ask again where no server answered; forget looks of heads that take no more appends."""
        for key, look in list(self._looks.items()):
            if not look.segment.live:
                self._forget(key)
            elif now >= look.again_at:
                self._ask(key, look, now)


class RecordAsker:
    """Requests for records, sent to the holders of the records in turn.

    ``send(server, request)`` sends a request. ``throttle``: the rate limit, shared by several
    askers.
    """

    def __init__(
        self,
        state: LogState,
        send: Callable[[ServerId, Fetch], None],
        next_call: Callable[[], CallId],
        throttle: Throttle | None = None,
    ) -> None:
        self._state = state
        self._send = send
        self._next_call = next_call
        self._throttle = throttle
        self._turn = 0

    def _is_free(self, now: float) -> bool:
        return self._throttle is None or self._throttle.busy_s(now) == 0

    def _ask(self, holders: Sequence[ServerId], first: int) -> tuple[CallId, ServerId]:
        """Ask the next holder for records from ``first`` on, with their chain's successor (R1)."""
        self._turn += 1
        server, call = holders[self._turn % len(holders)], self._next_call()
        chain = self._state.chain_of(first) or self._state.chains[min(self._state.chains)]
        following = self._state.chains.get(chain.index + 1)
        successor = None if following is None else Successor(following, Status.PENDING)
        self._send(server, Fetch(call, chain.id, first, successor))
        return call, server

    def _count(self, records: Sequence[LogRecord], now: float) -> None:
        if self._throttle is not None:
            self._throttle.count(now, sum(record.size for record in records))


class Fetcher(RecordAsker):
    """Fetches of old records: a single piece at a time, each after ``pause_s``.

    The next piece is asked for when the last piece is durable; after a restart, fetching continues
    behind it. ``piece``: the number of the fact with the last piece.
    """

    piece = 0
    pause_s = 0.0
    _paused: tuple[int, float] = (-1, 0.0)
    _under_way: tuple[CallId, int, float] | None = None

    def go_on(self, now: float, stored: int) -> None:
        """Ask for the next piece if a chain of this server needs the piece.

        A sealed chain may stop fetching.
        """
        state, first = self._state, self._state.base_upto
        if not any(segment.live and segment.start > first for segment in state.segments.values()):
            return
        waiting = (
            self._under_way is not None and self._under_way[1] == first and now < self._under_way[2]
        )
        sources = state.holders(first)
        if self._paused[0] != first:
            self._paused = (first, now + self.pause_s)
        free = self._is_free(now) and now >= self._paused[1]
        if free and sources and not waiting and self.piece <= stored:
            self._under_way = (self._ask(sources, first)[0], first, now + FETCH_AGAIN_S)

    def accept(self, reply: Fetched, now: float) -> LogTrimmed | PieceFetched | None:
        """Return the fact of an answer, or None if the answer brings no fact.

        The fact is a verified piece, or a trim which the answer reports and this node takes over.
        """
        if (
            self._under_way is None
            or reply.call != self._under_way[0]
            or reply.first != self._state.base_upto
        ):
            return None
        if reply.trimmed > max(reply.first, self._state.trimmed):
            self._under_way = None
            return self.take_over(reply.trimmed)
        if (
            reply.records
            and reply.records[0].first <= reply.first
            and follow_on(reply.records[0].first, reply.records)
        ):
            self._under_way = None
            self._turn -= 1
            self._count(reply.records, now)
            return PieceFetched(reply.records)
        return None

    def take_over(self, upto: int) -> LogTrimmed | None:
        """Return the trim which makes records below ``upto`` unneeded.

        Otherwise a move could wait for ever for records of which a dead node has the only copy.
        """
        return LogTrimmed(upto)


class Refetch(RecordAsker):
    """A second fetch of final records, which damage to a journal lost: a piece at a time.

    ``found``: the records so far. ``failed``: no holder of the next record gave the record, each
    asked once; or all records took too long, and the fetch is ``late``. A holder that answers is
    asked again. After a failed fetch with a silent holder, the next fetch of the same records waits
    longer for each answer, also after fetches of other records: a link may be slow.
    """

    failed = late = False
    _at = _upto = _refusals = _room = 0
    _until: float | None = None
    _lost = LostRecords(PIECES, 0, 0, 0)
    _asked: tuple[CallId, ServerId, float] | None = None
    _is_silent = False

    def __init__(
        self,
        state: LogState,
        send: Callable[[ServerId, Fetch], None],
        next_call: Callable[[], CallId],
        throttle: Throttle | None = None,
    ) -> None:
        super().__init__(state, send, next_call, throttle)
        self._waits_s: dict[LostRecords, float] = {}
        """The longer waits, the latest failure last."""

    def seek(
        self, lost: LostRecords, first: int, upto: int, found: Sequence[LogRecord] = ()
    ) -> None:
        """Begin to fetch the records of ``lost`` with positions in [first, upto).

        ``found``: the records of an earlier fetch, which is continued.
        """
        self.found = [each for each in found if first < each.end <= upto]
        self._lost, self._upto = lost, upto
        self._at = self.found[-1].end if self.found else first
        self._room = lost.size - sum(record.size for record in self.found)
        self._refusals, self._until, self._asked = 0, None, None
        self.failed = self.late = self._is_silent = False

    def stop(self) -> None:
        """Ask no more, and keep no records."""
        self._at, self._asked, self.found = self._upto, None, []

    @property
    def ended(self) -> bool:
        return self.failed or self._at >= self._upto

    def go_on(self, now: float) -> None:
        """Ask the next holder if no answer is awaited; a late answer counts as a refusal."""
        if self.ended:
            return
        if self._until is None:
            self._until = now + REFETCH_S_MAX
        if self._asked is not None and now >= self._asked[2]:
            self._asked, self._is_silent = None, True
            self._refusals += 1
        holders = self._state.holders(self._at)
        if now >= self._until or self._refusals >= len(holders):
            self.failed, self.late, self._asked = True, now >= self._until, None
            if self._is_silent:
                self._lengthen_wait()
        elif self._asked is None and self._is_free(now):
            wait_s = self._waits_s.get(self._lost, REFETCH_AGAIN_S)
            self._asked = (*self._ask(holders, self._at), now + wait_s)

    def _lengthen_wait(self) -> None:
        """Wait longer at the next fetch of these records; forget the oldest of many waits."""
        wait_s = self._waits_s.pop(self._lost, REFETCH_AGAIN_S)
        self._waits_s[self._lost] = min(2 * wait_s, REFETCH_AGAIN_S_MAX)
        if len(self._waits_s) > REFETCH_WAITS_MAX:
            del self._waits_s[next(iter(self._waits_s))]

    def awaits(self, reply: Fetched) -> bool:
        return self._asked is not None and reply.call == self._asked[0]

    def accept(self, sender: Sender, reply: Fetched, now: float) -> None:
        """Take the answer that is awaited."""
        if self._asked is None or sender != self._asked[1]:
            return
        self._asked = None
        records = self._fitting(first_piece(reply.records))
        if records:
            self._refusals, self._at = 0, records[-1].end
            self._turn -= 1
            self._room -= sum(record.size for record in records)
            self.found += records
            self._count(records, now)
        else:
            self._refusals += 1
        self.go_on(now)

    def _fitting(self, records: Sequence[LogRecord]) -> Sequence[LogRecord]:
        """Return the wanted records of an answer; no records if a record is not in place.

        The first record may begin before the first wanted position: records are whole. A record of
        a fetched piece may begin before the lost positions, where a trim ended.
        """
        wanted = [each for each in records if each.end > self._at and each.first < self._upto]
        if not wanted:
            return ()
        first = wanted[0].first
        least = 0 if self._lost.source == PIECES else self._lost.first
        fits = (self._at if self.found else least) <= first <= self._at
        fits = fits and wanted[-1].end <= self._upto and follow_on(first, wanted)
        return wanted if fits and sum(each.size for each in wanted) <= self._room else ()
