"""The speed of a reconfiguration's data: a repair must not take the cluster away from its users."""

import math
from collections.abc import Mapping

from ares.engine.adaptive_window import AdaptiveWindow
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.numbers import is_number, shown_number

OBJECT_BYTES_MIN = 4096
"""Least bytes counted for an object: about the cost of the messages of its move."""

GROUP_OBJECTS = 8
"""Objects asked for, and put, at once: enough to fill messages, and few enough to delay other
requests by a millisecond at most.
"""

GROUPS_MAX = 16
"""Most groups under way at once: enough for servers far away, few enough for memory."""

QUEUE_S = 0.00025
"""Queueing seconds of a round that are accepted; or a quarter of the quickest round, if more."""

USERS_PER_S = 10.0
"""Requests of users a second at every server below which hardly any user waits for the mover."""

GROUPS_ALONE = 4
"""Groups under way where no users are active, even near the servers."""

REST_S_MAX = 0.005
"""Longest rest: a group of small objects keeps servers busy for less; a longer round is distant or
large.
"""

SAVED_S = 0.1
"""Idle time which may be made up for: a pause ends a little late, and pauses of many small objects
end at once.
"""

MOVING_BYTES_FIRST, MOVING_BYTES_MIN, MOVING_BYTES_MAX = 512 * 1024, 64 * 1024, 64 * 1024 * 1024
"""Bytes of large values that move at the same time: at first, at least and at most."""

MOVING_BYTES_QUEUE_S = 0.1
"""Time that large values may queue before a slow link."""

QUEUE_LOOK_S = 0.1
"""Seconds between two small rounds that tell how long the queue is."""

GROWTH_FIRST = 0.25
MEMORY_ROUNDS = 64


class Window:
    """The number of objects which move at once, and the moment at which each begins.

    Requests of clients wait behind the mover's requests. Objects therefore begin in groups, a group
    when half of the previous group has ended: a wait for the whole group would let a single
    immovable object hold up the rest. ``batch`` off: one object after the other, no rest.

    A round longer than the quickest has queued, behind the mover's own requests or behind requests
    of clients. The number of groups grows while the queueing is little and shrinks when the
    queueing exceeds QUEUE_S (the idea of LEDBAT). A mover far from its servers has the full window,
    because distance does not count. A mover near its servers has a single group.

    The window alone would still leave servers no time of their own: after an answer, the next
    request is already waiting. The mover therefore rests before each group for as long as the last
    group took. The mover's rounds do not show whether users profit: the rounds take no longer with
    a few hundred operations a second beside them than without. But servers report with every page
    of names how much users have asked of them: where this is next to zero (``alone``), the mover
    does not rest, and has some more groups. Without this knowledge the mover is not alone.
    """

    def __init__(self, batch: bool) -> None:
        self._batch = batch
        self._group = GROUP_OBJECTS if batch else 1
        self._groups = AdaptiveWindow(
            1.0, 1.0, GROUPS_MAX, group=self._group, growth_first=GROWTH_FIRST
        )
        self._under_way = 0
        self._begun = 0
        self._begin_at = 0.0
        self._rest_s = 0.0
        self.alone = False
        self._asked: dict[ServerId, tuple[int, float]] = {}
        self._quickest_s = float("inf")
        self._queued_s = 0.0

    @property
    def groups(self) -> int:
        """Return the number of groups that may be under way."""
        if not self._batch:
            return 1
        groups = int(self._groups.size)
        return max(groups, GROUPS_ALONE) if self.alone else groups

    def hears(self, asked: Mapping[ServerId, int], now: float) -> None:
        """Take note of the requests of users which these servers have had.

        A restarted server begins at 0, and gives no rate until the next report.
        """
        rates = []
        for server, count in asked.items():
            before, at = self._asked.get(server, (count, now))
            if count >= before and now > at:
                rates.append((count - before) / (now - at))
            self._asked[server] = (count, now)
        if rates:
            self.alone = max(rates) < USERS_PER_S

    def __call__(self) -> int:
        """Return how many objects may be under way: one more than now, while another may begin."""
        others = (self.groups - 1) * self._group + self._group // 2
        return self._under_way + (self._begun > 0 or self._under_way <= others)

    def begins(self, now: float, busy_s: float = 0.0) -> float:
        """Begin an object; return the seconds until its turn. ``busy_s``: seconds without turns."""
        if self._begun == 0:
            self._begin_at = now + max(self._rest_s, busy_s)
        self._begun = (self._begun + 1) % self._group
        self._under_way += 1
        return max(0.0, self._begin_at - now)

    def ends(self) -> None:
        """End an object, moved or not."""
        self._under_way -= 1

    def took(self, seconds: float) -> None:
        """Take note of the seconds of a round without data.

        A window grows by a group in as many rounds as the window has objects; faster until the
        first shrinking.
        """
        self._quickest_s = min(self._quickest_s, seconds)
        self._queued_s += (seconds - self._quickest_s - self._queued_s) / MEMORY_ROUNDS
        self._groups.count_end(self._queued_s > max(QUEUE_S, self._quickest_s / 4))

    def rests_after(self, seconds: float) -> None:
        """Take note of an object's seconds as the rest before the next group."""
        self._rest_s = min(seconds, REST_S_MAX) if self._batch and not self.alone else 0.0


class ByteWindow:
    """Bytes of large values that move at the same time: a slow link's queue stays short.

    Requests of the mover's own client, and of clients behind the same link, wait behind these
    bytes. Small rounds to the servers of a configuration (``side``) are as quick as when the link
    was idle, or longer by the link's queue. While the queue takes less than MOVING_BYTES_QUEUE_S,
    the window grows by each moved value, at first to twice its size in a round trip. The window is
    halved when the queue takes longer. A value larger than the window moves alone.
    """

    def __init__(self) -> None:
        self._limit = MOVING_BYTES_FIRST
        self._taken = 0
        self._quickest_s: dict[int, float] = {}
        self._queued_s: dict[int, float] = {}
        self._has_shrunk = False
        self._shrinks_at = 0.0
        self._looks_at = 0.0

    @property
    def limit(self) -> int:
        """Return the number of bytes that may move at the same time."""
        return self._limit

    def enter(self, length: int) -> bool:
        """Take room for a value, unless values that move leave too little."""
        if self._taken and self._taken + length > self._limit:
            return False
        self._taken += length
        return True

    def leave(self, length: int) -> None:
        """Give back the room of a value, which has moved or will not."""
        self._taken -= length
        if max(self._queued_s.values(), default=0.0) <= MOVING_BYTES_QUEUE_S / 2:
            more = length * length // self._limit if self._has_shrunk else length
            self._limit = min(MOVING_BYTES_MAX, self._limit + more)

    def wants_look(self, now: float) -> bool:
        """Return whether a small round is due, which tells how long the queue is; count it.

        The first is due QUEUE_LOOK_S after the first call: a quick move needs none.
        """
        if now < self._looks_at:
            return False
        is_first, self._looks_at = self._looks_at == 0.0, now + QUEUE_LOOK_S
        return not is_first

    def took(self, side: int, seconds: float, now: float) -> None:
        """Learn the time of a small round to the servers of ``side``."""
        quickest_s = self._quickest_s[side] = min(self._quickest_s.get(side, math.inf), seconds)
        queued_s = self._queued_s[side] = seconds - quickest_s
        if queued_s > MOVING_BYTES_QUEUE_S and now >= self._shrinks_at:
            self._limit = max(MOVING_BYTES_MIN, min(self._limit, self._taken) // 2)
            self._has_shrunk, self._shrinks_at = True, now + seconds


class Throttle:
    """A limit of bytes a second, common to all its users.

    Raises :class:`BadInput` for an impossible rate.
    """

    def __init__(self, bytes_per_s: float) -> None:
        if not is_number(bytes_per_s, math.inf) or bytes_per_s < 1:
            raise BadInput(
                "a rate is a number of bytes per second, more than 0 (at least 1), not "
                f"{shown_number(bytes_per_s)}; nothing was sent"
            )
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def busy_s(self, now: float) -> float:
        """Return the seconds that the counted bytes keep further objects waiting."""
        return max(0.0, self._free_at - now)

    def count(self, now: float, length: int) -> None:
        """Count an object of ``length`` bytes that moves now."""
        self._free_at = (
            max(now - SAVED_S, self._free_at) + max(length, OBJECT_BYTES_MIN) / self._bytes_per_s
        )

    def wait_s(self, now: float, length: int) -> float:
        """Return 0 and count the object, or return the seconds until the next try.

        0: the object moves now. No time is ever set aside for a waiting object: a move may be given
        up, and would leave further objects waiting in vain.
        """
        busy_s = self.busy_s(now)
        if busy_s == 0:
            self.count(now, length)
        return busy_s
