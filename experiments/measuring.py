"""Series of measurements within a run, and their table: medians and spread."""

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


class Table:
    """Printer of a line for every series at once.

    ``named`` has the series that may have goals, by the names of goals.
    """

    def __init__(self) -> None:
        self.named: dict[str, Sequence[float]] = {}

    def line(self, label: str, values: Sequence[float], unit: str = "x", name: str = "") -> None:
        """Print a line. ``values`` has an entry for each round."""
        median = statistics.median(values)
        line = f"  {label:74} {median:8.3g} {unit:3} ({min(values):.3g} to {max(values):.3g})"
        self.named |= {name: values} if name else {}
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
