"""The goals of the product, from the table goals.toml. A missed goal fails no test."""

from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

GOALS_FILE = Path(__file__).with_name("goals.toml")


class Goal(Struct, frozen=True, array_like=True):
    """A bound for a figure: ``limit`` is the largest or the smallest good one."""

    direction: Literal["at least", "at most"]
    limit: float
    unit: str
    sentence: str
    bench: str = ""
    """The command that measures the figure."""

    def verdict(self, figure: float) -> str:
        """Say whether the figure meets the goal, and the distance in parts of the limit."""
        better = figure - self.limit if self.direction == "at least" else self.limit - figure
        word = "met" if better >= 0 else "MISSED"
        return f"{word} by {abs(better) / self.limit:.0%}".replace("%", " %")

    def __str__(self) -> str:
        return f"{self.direction} {self.limit:,.10g} {self.unit}".strip()


@cache
def goals() -> dict[str, Goal]:
    """Return the goals by the names of their figures, in the order of the table."""
    table = msgspec.toml.decode(GOALS_FILE.read_bytes(), type=dict[str, dict[str, Goal]])
    return {
        name: msgspec.structs.replace(goal, bench=bench)
        for bench, found in table.items()
        for name, goal in found.items()
    }
