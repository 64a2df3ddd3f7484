"""The amount of tracing: an operation is traced whole, or left out before its start.

No clock, no lock, no I/O.
"""

PARTS_EXPECTED = 10
"""Expected parts of an operation under way."""

LARGE_PARTS_MAX = 50_000
"""Most parts that wait where large operations end together: a recording has up to 20,000 parts."""


class Backlog:
    """The parts of recordings that wait for the exporter.

    At ``most`` parts, no further operation is begun until the exporter took some. On average
    ``per_s`` parts in a second are allowed, because the cost of tracing mostly falls on running
    operations; after a pause a second's parts are allowed at once.

    A begun operation is taken at its end, because servers have recorded their work for it:
    operations under way count, too. Only where large operations end together, and LARGE_PARTS_MAX
    would wait, an operation is lost after all. ``left_out`` counts operations not begun, or lost.

    A thread begins and ends operations, another thread takes parts: no number is written by both.
    """

    def __init__(self, most: int, per_s: float) -> None:
        self.most = most
        self.left_out = 0
        self._per_s = per_s
        self._allowed = per_s
        self._asked_s = 0.0
        self._under_way = 0
        self._came = 0
        self._taken = 0

    @property
    def waiting(self) -> int:
        return self._came - self._taken

    def begin(self, now_s: float) -> bool:
        """Return whether an operation is traced; :meth:`end` follows in this case."""
        begins = (
            self._came - self._taken + PARTS_EXPECTED * self._under_way < self.most
            and self._spend(PARTS_EXPECTED, now_s)
        )
        self._under_way += begins
        self.left_out += not begins
        return begins

    def end(self, parts: int) -> bool:
        """End an operation with so many parts; return whether they wait now."""
        self._under_way -= 1
        return self._come(parts, self.waiting + parts <= LARGE_PARTS_MAX)

    def add(self, parts: int, now_s: float) -> bool:
        """Add the parts of an action known only at its end; return whether they wait now."""
        return self._come(parts, self._came - self._taken < self.most and self._spend(parts, now_s))

    def _spend(self, parts: int, now_s: float) -> bool:
        self._allowed = min(self._per_s, self._allowed + self._per_s * (now_s - self._asked_s))
        self._asked_s = now_s
        spends = self._allowed > 0
        self._allowed -= parts * spends
        return spends

    def _come(self, parts: int, fits: bool) -> bool:
        if fits:
            self._came += parts
        else:
            self.left_out += 1
        return fits

    def take(self, parts: int) -> None:
        """Count parts handed to the exporter."""
        self._taken += parts
