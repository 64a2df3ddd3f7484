"""Series of measurements within one run, and the table that comes of them: medians, spread, goals met and missed."""

import mmap
import statistics
import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from msgspec import Struct

Result = TypeVar("Result")


async def timed(work: Awaitable[Result]) -> tuple[float, Result]:
    """Seconds, and the result."""
    begin = time.perf_counter()
    result = await work
    return time.perf_counter() - begin, result


def warm_memory(size: int) -> None:
    """Have the kernel hand out so much memory once, and take it back.

    A virtual machine gets its memory from its host page by page when it is first touched, and gives back what has been free for some seconds. That
    costs more than all that is measured here, and would fall on whichever side of a ratio happens to come first.
    """
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Measurement by measurement: those of one round were made side by side."""
    return [first / second for first, second in zip(over, under, strict=True)]


class Goal(Struct, frozen=True):
    """``limit`` is the most (``at_most``) or the least that the median may be."""

    limit: float
    at_most: bool = True

    def met(self, median: float) -> bool:
        return median <= self.limit if self.at_most else median >= self.limit

    def __str__(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g}"


class Table:
    """Prints a line for every series as it comes, and at the end those with a goal."""

    def __init__(self) -> None:
        self._verdicts: list[str] = []

    def line(
        self, label: str, values: Sequence[float], unit: str = "x", goal: Goal | None = None
    ) -> None:
        """``values``: one for each round."""
        median = statistics.median(values)
        told = f"  {label:74} {median:8.3g} {unit:3} ({min(values):.3g} to {max(values):.3g})"
        if goal is not None:
            told += f"   goal {goal}: {'met' if goal.met(median) else 'MISSED'}"
            self._verdicts.append(told.strip())
        print(told, flush=True)

    def section(self, title: str) -> None:
        print(f"\n{title}", flush=True)

    def note(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def close(self) -> None:
        missed = sum("MISSED" in verdict for verdict in self._verdicts)
        print(f"\nGoals: {len(self._verdicts) - missed} met, {missed} missed")
        for verdict in self._verdicts:
            print(f"  {verdict}")
