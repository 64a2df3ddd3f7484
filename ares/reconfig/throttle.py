"""How fast a reconfiguration moves data: so that what repairs a cluster does not take it away from those who use it."""

from ares.errors import BadInput

OBJECT_BYTES_MIN = 4096
"""What an object counts at least: that many bytes cost about as much as the messages that move it."""

WINDOW_MAX = 128
"""Objects that move at once at most: enough to fill every message, few enough for memory."""

WINDOW_MIN = 32
"""Fewer at once cost more, since messages are filled less, and leave clients no more: the move only takes longer."""

QUEUE_S = 0.002
"""How much longer than the quickest a round may take because requests queue at servers; as much again as the quickest, if that is more."""

SAVED_S = 0.1
"""Who waits is woken a little late, and many small objects at once: so much of the time in which nothing moved may be made up for."""

GROWTH_FIRST = 0.25
SHRINK = 0.75
MEMORY_ROUNDS = 8


class Window:
    """How many objects move at once: what the mover has sent is what clients' requests wait behind. ``batch`` off: one.

    A round that takes longer than the quickest has queued, behind the mover's own requests or behind those of clients. The window grows while that is
    little and shrinks when it is more than QUEUE_S, so that the mover takes what the servers have left (the idea is that of LEDBAT). Far from its
    servers it has the full window, since it is not the distance that counts.
    """

    def __init__(self, batch: bool) -> None:
        self._batch = batch
        self._size = float(WINDOW_MIN)
        self._quickest_s = float("inf")
        self._queued_s = 0.0
        self._has_shrunk = False
        self._since_shrunk = 0

    def __call__(self) -> int:
        return int(self._size) if self._batch else 1

    def took(self, seconds: float) -> None:
        """A round without data took so long. The window grows by one for as many as it has; faster until it first had to shrink."""
        self._quickest_s = min(self._quickest_s, seconds)
        self._queued_s += (seconds - self._quickest_s - self._queued_s) / MEMORY_ROUNDS
        self._since_shrunk += 1
        if self._queued_s <= max(QUEUE_S, self._quickest_s):
            self._size = min(WINDOW_MAX, self._size + (1 / self._size if self._has_shrunk else GROWTH_FIRST))
        elif self._since_shrunk >= self._size:
            self._size = max(WINDOW_MIN, self._size * SHRINK)
            self._since_shrunk, self._has_shrunk = 0, True


class Throttle:
    """So many bytes a second, together for everything that shares it. Raises :class:`BadInput` for a rate that is none."""

    def __init__(self, bytes_per_s: float) -> None:
        if not isinstance(bytes_per_s, int | float) or not bytes_per_s > 0:
            raise BadInput(f"a rate is a number of bytes per second, more than 0, not {bytes_per_s!r}; nothing was sent")
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    def wait_s(self, now: float, length: int) -> float:
        """0: an object of ``length`` bytes moves now, and is counted. Else nothing is, and the mover asks again after so many seconds.

        Time is never set aside for one that waits: it may be given up, and would leave the others waiting for nothing.
        """
        if self._free_at > now:
            return self._free_at - now
        self._free_at = max(now - SAVED_S, self._free_at) + max(length, OBJECT_BYTES_MIN) / self._bytes_per_s
        return 0.0
