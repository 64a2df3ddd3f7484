"""Whether the exporter keeps up: an operation is traced whole, or left out before it begins. No clock, no lock, no I/O."""

PARTS_EXPECTED = 10
"""Of an operation that is under way."""

LARGE_PARTS_MAX = 50_000
"""What may wait where large operations end together: a recording has up to 20,000 parts."""


class Backlog:
    """Parts of recordings that wait for the exporter; ``most`` of them, then nothing more is begun until it took some.

    An operation that was begun is taken when it ends, for servers have recorded their work for it: so those under way count, too. Only where large
    ones end together, and LARGE_PARTS_MAX would wait, one is lost after all. ``left_out`` counts what was not begun, or lost.

    One thread begins and ends, another takes: no number is written by both.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.left_out = 0
        self._under_way = 0
        self._came = 0
        self._taken = 0

    @property
    def waiting(self) -> int:
        return self._came - self._taken

    def begin(self) -> bool:
        """Whether an operation is traced; then :meth:`end` follows."""
        return self._counted(self.waiting + PARTS_EXPECTED * self._under_way < self.most, under_way=1)

    def end(self, parts: int) -> bool:
        """An operation has ended with so many parts; whether they wait now."""
        self._under_way -= 1
        return self._counted(self.waiting + parts <= LARGE_PARTS_MAX, parts)

    def add(self, parts: int) -> bool:
        """Something that is known only when it is over; whether its parts wait now."""
        return self._counted(self.waiting < self.most, parts)

    def take(self, parts: int) -> None:
        """So many went to the exporter."""
        self._taken += parts

    def _counted(self, fits: bool, parts: int = 0, under_way: int = 0) -> bool:
        if fits:
            self._came += parts
            self._under_way += under_way
        else:
            self.left_out += 1
        return fits
