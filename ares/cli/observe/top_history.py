"""The last minutes of a cluster under `top`, as lines of block characters."""

from collections import deque
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

HISTORY_STEP_S = 5.0
"""Seconds of a character, or an interval if longer."""

HISTORY_STEPS_MAX = 60
SERIES = ("reads_per_s", "writes_per_s", "read_p99_s", "write_p99_s")
SPARK_BLOCKS = "▁▂▃▄▅▆▇█"
NO_SPARK = " "
"""The character for a step without a known value."""


class TopHistory:
    """The largest value of each series in each step, the newest step at the end."""

    def __init__(self, interval_s: float) -> None:
        self._looks = max(ceil(HISTORY_STEP_S / interval_s), 1)
        self._step_s = self._looks * interval_s
        self._taken = 0
        self._steps: dict[str, deque[float | None]] = {
            name: deque(maxlen=HISTORY_STEPS_MAX) for name in SERIES
        }

    def note(self, operations: Mapping[str, float | None]) -> dict[str, Any]:
        """Take the figures of one look; return the steps for the view."""
        for name, steps in self._steps.items():
            if self._taken % self._looks == 0:
                steps.append(None)
            if (value := operations[name]) is not None:
                steps[-1] = max(steps[-1] or 0.0, value)
        self._taken += 1
        return {"step_s": self._step_s, **{name: list(of) for name, of in self._steps.items()}}


def sparkline(values: Sequence[float | None], columns: int) -> str:
    """Return the last ``columns`` values, the largest as a full block, aligned right."""
    shown = values[-columns:]
    most = max((value for value in shown if value is not None), default=0.0)
    blocks = (
        NO_SPARK
        if value is None
        else SPARK_BLOCKS[ceil(value / most * (len(SPARK_BLOCKS) - 1))]
        if most > 0
        else SPARK_BLOCKS[0]
        for value in shown
    )
    return "".join(blocks).rjust(columns)
