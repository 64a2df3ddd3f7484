"""How much is traced: an operation is traced whole, or left out before it begins. No clock, no lock, no I/O."""

PARTS_EXPECTED = 10
"""Of an operation that is under way."""

LARGE_PARTS_MAX = 50_000
"""What may wait where large operations end together: a recording has up to 20,000 parts."""


class Backlog:
    """Parts of recordings that wait for the exporter; ``most`` of them, then nothing more is begun until it took some. And ``per_s`` of them in a
    second, on the average, for what tracing costs is mostly paid where an operation runs: those of a second at once after a pause.

    An operation that was begun is taken when it ends, for servers have recorded their work for it: so those under way count, too. Only where large
    ones end together, and LARGE_PARTS_MAX would wait, one is lost after all. ``left_out`` counts what was not begun, or lost.

    One thread begins and ends, another takes: no number is written by both.
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
        """Whether an operation is traced; then :meth:`end` follows."""
        begins = (
            self._came - self._taken + PARTS_EXPECTED * self._under_way < self.most
            and self._spend(PARTS_EXPECTED, now_s)
        )
        self._under_way += begins
        self.left_out += not begins
        return begins

    def end(self, parts: int) -> bool:
        """An operation has ended with so many parts; whether they wait now."""
        self._under_way -= 1
        return self._come(parts, self.waiting + parts <= LARGE_PARTS_MAX)

    def add(self, parts: int, now_s: float) -> bool:
        """Something that is known only when it is over; whether its parts wait now."""
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
        """So many went to the exporter."""
        self._taken += parts
