"""The law by which the number of parts of an operation under way at once grows and shrinks."""

SHRINK = 0.75


class AdaptiveWindow:
    """A number that grows while ends come quickly, and shrinks when they come slowly.

    The window has ``size`` groups of ``group`` parts. It grows by a group for each window of ends,
    or by ``growth_first`` groups for each group of ends until it first shrinks; it shrinks by a
    quarter at most once in a window of ends (the idea of TCP Vegas and LEDBAT).
    """

    def __init__(
        self,
        first: float,
        least: float,
        most: float,
        *,
        group: int = 1,
        growth_first: float | None = None,
    ) -> None:
        self.size = first
        self._least = least
        self._most = most
        self._group = group
        self._growth_first = growth_first
        self._since_shrunk = 0

    def count_end(self, is_slow: bool) -> None:
        """Count the end of a part."""
        self._since_shrunk += 1
        if not is_slow:
            growth = 1 / self.size if self._growth_first is None else self._growth_first
            self.size = min(self._most, self.size + growth / self._group)
        elif self._since_shrunk >= self.size * self._group:
            self.size = max(self._least, self.size * SHRINK)
            self._since_shrunk, self._growth_first = 0, None
