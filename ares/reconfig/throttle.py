"""How fast a reconfiguration moves data: so that what repairs a cluster does not take it away from those who use it."""

import math
from collections.abc import Mapping

from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.numbers import is_number, shown_number

OBJECT_BYTES_MIN = 4096
"""What an object counts at least: that many bytes cost about as much as the messages that move it."""

GROUP_OBJECTS = 8
"""Objects that are asked for, and put, at once: messages are worth sending, and what waits behind them waits a millisecond at most."""

GROUPS_MAX = 16
"""Groups under way at once at most: enough for servers far away, few enough for memory."""

QUEUE_S = 0.00025
"""How much longer than the quickest a round may take because requests queue at servers; a quarter of the quickest, if that is more."""

USERS_PER_S = 10.0
"""With fewer requests of users a second at every server nobody is there to wait for the mover, or hardly anybody."""

GROUPS_ALONE = 4
"""Groups under way, also near the servers, where nobody else uses them."""

REST_S_MAX = 0.005
"""A group of small objects keeps servers busy for less; what takes longer is on its way for long, or large."""

SAVED_S = 0.1
"""So much of the time in which nothing moved may be made up for: a pause ends a little late, and those of many small objects end at once."""

GROWTH_FIRST = 0.25
SHRINK = 0.75
MEMORY_ROUNDS = 64


class Window:
    """How many objects move at once, and when: what the mover has sent is what clients' requests wait behind. Objects begin in groups, a group when
    half of one has ended: not all, or a single one that cannot be moved would hold up the rest. ``batch`` off: one object after the other, no rest.

    A round that takes longer than the quickest has queued, behind the mover's own requests or behind those of clients. Groups become more while that
    is little and fewer when it is more than QUEUE_S (the idea is that of LEDBAT). Far from its servers a mover has the full window, since it is not
    the distance that counts. Near them it has one group.

    That alone would still leave servers no time of their own: when one has answered, the next request is there. So the mover rests before each group
    for as long as the last one took. Its own rounds do not tell whether anybody is glad of that: they take no longer with a few hundred operations a
    second beside them than without. But servers tell with every page of names how much users have asked of them: where that is next to nothing
    (``alone``), the mover does not rest, and has some groups more. As long as it does not know, it is not alone.
    """

    def __init__(self, batch: bool) -> None:
        self._batch = batch
        self._group = GROUP_OBJECTS if batch else 1
        self._groups = 1.0
        self._under_way = 0
        self._begun = 0
        self._begin_at = 0.0
        self._rest_s = 0.0
        self.alone = False
        self._asked: dict[ServerId, tuple[int, float]] = {}
        self._quickest_s = float("inf")
        self._queued_s = 0.0
        self._has_shrunk = False
        self._since_shrunk = 0

    @property
    def groups(self) -> int:
        """How many may be under way."""
        if not self._batch:
            return 1
        return max(int(self._groups), GROUPS_ALONE) if self.alone else int(self._groups)

    def hears(self, asked: Mapping[ServerId, int], now: float) -> None:
        """How many requests of users these servers have had. One that was restarted begins at 0, and tells nothing until the next time."""
        rates = []
        for server, count in asked.items():
            before, at = self._asked.get(server, (count, now))
            if count >= before and now > at:
                rates.append((count - before) / (now - at))
            self._asked[server] = (count, now)
        if rates:
            self.alone = max(rates) < USERS_PER_S

    def __call__(self) -> int:
        """How many objects may be under way: one more than there are, while another may begin."""
        others = (self.groups - 1) * self._group + self._group // 2
        return self._under_way + (self._begun > 0 or self._under_way <= others)

    def begins(self, now: float, busy_s: float = 0.0) -> float:
        """An object begins, after so many seconds. ``busy_s``: for how long none may."""
        if self._begun == 0:
            self._begin_at = now + max(self._rest_s, busy_s)
        self._begun = (self._begun + 1) % self._group
        self._under_way += 1
        return max(0.0, self._begin_at - now)

    def ends(self) -> None:
        """An object has moved, or will not."""
        self._under_way -= 1

    def took(self, seconds: float) -> None:
        """A round without data took so long. A window grows by a group for as many rounds as it has objects; faster until it first had to shrink."""
        self._quickest_s = min(self._quickest_s, seconds)
        self._queued_s += (seconds - self._quickest_s - self._queued_s) / MEMORY_ROUNDS
        self._since_shrunk += 1
        if self._queued_s <= max(QUEUE_S, self._quickest_s / 4):
            growth = 1 / self._groups if self._has_shrunk else GROWTH_FIRST
            self._groups = min(GROUPS_MAX, self._groups + growth / self._group)
        elif self._since_shrunk >= self._groups * self._group:
            self._groups = max(1.0, self._groups * SHRINK)
            self._since_shrunk, self._has_shrunk = 0, True

    def rests_after(self, seconds: float) -> None:
        """An object took so long: so much later the next group begins."""
        self._rest_s = min(seconds, REST_S_MAX) if self._batch and not self.alone else 0.0


class Throttle:
    """So many bytes a second, together for everything that shares it. Raises :class:`BadInput` for a rate that is none."""

    def __init__(self, bytes_per_s: float) -> None:
        if not is_number(bytes_per_s, math.inf) or bytes_per_s < 1:
            raise BadInput(
                f"a rate is a number of bytes per second, more than 0 (at least 1), not {shown_number(bytes_per_s)}; nothing was sent"
            )
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def busy_s(self, now: float) -> float:
        """For how long what was counted keeps the others waiting."""
        return max(0.0, self._free_at - now)

    def count(self, now: float, length: int) -> None:
        """An object of ``length`` bytes moves now."""
        self._free_at = (
            max(now - SAVED_S, self._free_at) + max(length, OBJECT_BYTES_MIN) / self._bytes_per_s
        )

    def wait_s(self, now: float, length: int) -> float:
        """0: an object of ``length`` bytes moves now, and is counted. Else nothing is, and the mover asks again after so many seconds.

        Time is never set aside for one that waits: it may be given up, and would leave the others waiting for nothing.
        """
        busy_s = self.busy_s(now)
        if busy_s == 0:
            self.count(now, length)
        return busy_s
