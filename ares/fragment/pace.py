"""How many blocks are under way at once.

Bounded in bytes, so that a file of any size moves through little memory; and adaptive, since a window that fills a fast network drowns a slow one,
where every block is then late and is sent again. As long as blocks come back quickly the window grows by one for each window of them; when one takes
much longer than the quickest, it shrinks by a quarter (the idea is that of TCP Vegas).
"""

WINDOW_FIRST = 16
WINDOW_MAX = 96
WINDOW_MIN = 2
BYTES_MAX = 24 * 1024 * 1024
"""Of data on its way; erasure coding and the queues of the transport multiply it by about three."""

SURGE_BYTES_MAX = 128 * 1024 * 1024
"""Of data on its way at the very most, when all of many blocks turn out to have changed that were looked at in the belief that few had."""

SLOW_S = 0.4
SLOW_FACTOR = 6.0
MEMORY = 8


class Pace:
    """``window()`` is what :class:`ares.operation.effects.Together` asks; ``done`` is told of every block.

    ``expected_bytes``: what a block will move (0: most likely nothing); ``largest_bytes``: what it may move at most.
    """

    def __init__(self, expected_bytes: int = 0, largest_bytes: int = 0) -> None:
        self._most = max(WINDOW_MIN, SURGE_BYTES_MAX // largest_bytes) if largest_bytes else WINDOW_MAX
        self._size = float(expected_bytes)
        self._window = float(WINDOW_FIRST if expected_bytes else WINDOW_MAX)
        self._quickest_s = float("inf")
        self._since_shrunk = 0

    def window(self) -> int:
        fits = BYTES_MAX / self._size if self._size else WINDOW_MAX
        return int(max(WINDOW_MIN, min(self._window, fits, self._most, WINDOW_MAX)))

    def done(self, seconds: float, moved_bytes: int) -> None:
        """A block took ``seconds`` and moved so many bytes (0: it was known already)."""
        self._size += (moved_bytes - self._size) / MEMORY if moved_bytes < self._size else moved_bytes - self._size
        self._since_shrunk += 1
        if moved_bytes:
            self._quickest_s = min(self._quickest_s, seconds)
        if seconds > SLOW_S and seconds > SLOW_FACTOR * self._quickest_s:
            if self._since_shrunk >= self._window:
                self._window = max(WINDOW_MIN, self._window * 0.75)
                self._since_shrunk = 0
        else:
            self._window = min(WINDOW_MAX, self._window + 1 / self._window)
