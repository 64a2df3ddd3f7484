"""Series of measurements within a run, and their table: medians, spread, goals met and missed."""

import statistics
import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from msgspec import Struct

from ares.results.load_points import LoadLatency

Result = TypeVar("Result")


async def timed(work: Awaitable[Result]) -> tuple[float, Result]:
    """Await `work`; return the seconds taken and the result."""
    begin = time.perf_counter()
    result = await work
    return time.perf_counter() - begin, result


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Return the ratio of each pair of measurements.

    Both measurements of a pair were made side by side in the same round.
    """
    return [first / second for first, second in zip(over, under, strict=True)]


class Repeats(Struct, frozen=True):
    """The repetitions of a measurement: ``rounds`` of ``seconds``, each after ``warm_s`` uncounted.

    A ratio is of measurements of the same round; a figure is the median of the rounds.
    """

    rounds: int
    seconds: float
    warm_s: float


class Goal(Struct, frozen=True):
    """A bound for a median: ``limit`` is the largest (``at_most``) or the smallest allowed."""

    limit: float
    at_most: bool = True

    def met(self, median: float) -> bool:
        return median <= self.limit if self.at_most else median >= self.limit

    def __str__(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g}"


class Table:
    """Printer of a line for every series at once, and at the end of the series with a goal."""

    def __init__(self) -> None:
        self._verdicts: list[str] = []

    def line(
        self, label: str, values: Sequence[float], unit: str = "x", goal: Goal | None = None
    ) -> None:
        """Print a line. ``values`` has an entry for each round."""
        median = statistics.median(values)
        line = f"  {label:74} {median:8.3g} {unit:3} ({min(values):.3g} to {max(values):.3g})"
        if goal is not None:
            line += f"   goal {goal}: {'met' if goal.met(median) else 'MISSED'}"
            self._verdicts.append(line.strip())
        print(line, flush=True)

    def latency(self, found: LoadLatency | None, operation: str = "") -> None:
        """Print median and 99th percentile, if there were operations."""
        if found is not None:
            times = f"p50 {1e3 * found.p50_s:.3g} ms, p99 {1e3 * found.p99_s:.3g} ms"
            self.note(f"    {operation}{times}")

    def section(self, title: str) -> None:
        print(f"\n{title}", flush=True)

    def note(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def close(self) -> None:
        missed = sum("MISSED" in verdict for verdict in self._verdicts)
        print(f"\nGoals: {len(self._verdicts) - missed} met, {missed} missed")
        for verdict in self._verdicts:
            print(f"  {verdict}")
