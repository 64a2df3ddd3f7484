"""The fetching of missing records below a node's start from its peers.

See docs/log.md, Reconfiguration, and Old positions.
"""

from collections.abc import Callable

from ares.model.configuration import Status, Successor
from ares.model.identity import CallId, ServerId
from ares.model.log_messages import Fetch, Fetched
from ares.reconfig.throttle import Throttle
from ares.sharedlog.entries import follow_on
from ares.sharedlog.log_facts import LogTrimmed, PieceFetched
from ares.sharedlog.log_state import LogState

FETCH_AGAIN_S = 0.5


class Fetcher:
    """Fetches of old records: a single piece at a time, each after ``pause_s``.

    The next piece is asked for when the last piece is durable; after a restart, fetching continues
    behind it. ``send(server, request)`` sends a request. ``throttle``: the rate limit, shared by
    several fetchers. ``piece``: the number of the fact with the last piece.
    """

    def __init__(
        self,
        state: LogState,
        send: Callable[[ServerId, Fetch], None],
        next_call: Callable[[], CallId],
        throttle: Throttle | None = None,
    ) -> None:
        self.piece = 0
        self.pause_s = 0.0
        self._paused: tuple[int, float] = (-1, 0.0)
        self._state = state
        self._send = send
        self._next_call = next_call
        self._throttle = throttle
        self._under_way: tuple[CallId, int, float] | None = None
        self._source = 0

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
        free = self._throttle is None or self._throttle.busy_s(now) == 0
        if free and sources and not waiting and self.piece <= stored and now >= self._paused[1]:
            self._source += 1
            chain = state.chain_of(first) or state.chains[min(state.chains)]
            following = state.chains.get(chain.index + 1)
            successor = None if following is None else Successor(following, Status.PENDING)
            self._under_way = (self._next_call(), first, now + FETCH_AGAIN_S)
            self._send(
                sources[self._source % len(sources)],
                Fetch(self._under_way[0], chain.id, first, successor),
            )

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
            self._source -= 1
            if self._throttle is not None:
                self._throttle.count(now, sum(record.size for record in reply.records))
            return PieceFetched(reply.records)
        return None

    def take_over(self, upto: int) -> LogTrimmed | None:
        """Return the trim which makes records below ``upto`` unneeded.

        Otherwise a move could wait for ever for records of which a dead node has the only copy.
        """
        return LogTrimmed(upto)
