"""Points of load (ares/results/load_points.py) from measurements of generators.

The module also decides when doubling stops, and computes the cost of a fault.
"""

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from ares.platform.replacement import replace_file
from ares.results.load_points import LOAD_FILE, LoadFile, LoadPoint
from experiments.bench.load import CURVE_S, MeasuredWorkload
from experiments.bench.workload import Workload
from experiments.histogram import latency_of, spread_of


def point_of(
    measured: MeasuredWorkload,
    workload: Workload,
    *,
    offered_per_s: float | None = None,
    curve: bool = False,
) -> LoadPoint:
    """Return the point of a measurement.

    ``offered_per_s`` is the rate of an open loop. ``curve`` adds throughput over time, and pauses.
    """
    pauses = measured.pauses()
    return LoadPoint(
        clients=workload.clients,
        mode="closed" if offered_per_s is None else "open",
        offered_per_s=offered_per_s,
        read_share=workload.read_share if workload.pattern == "even" else None,
        seconds=measured.end_s - measured.begin_s,
        per_s=measured.per_s,
        read=latency_of(measured.reads),
        write=latency_of(measured.writes),
        wait=spread_of(measured.waits),
        service=spread_of(measured.services),
        failed=sum(measured.troubles.values()),
        missed=measured.missed,
        longest_pause_s=max(length_s for _, length_s in pauses),
        curve=measured.curve() if curve else None,
        server_cpu=measured.server_cpu or None,
        began=began(measured.begin_s),
        pauses=pauses if curve else None,
    )


def began(begin_s: float) -> str:
    """Convert a moment of the machine's monotonic clock to a calendar time."""
    return datetime.fromtimestamp(time.time() - time.perf_counter() + begin_s, UTC).isoformat()


def goes_on(rates: Sequence[float], growth: float) -> bool:
    """Return whether doubling the clients again is useful.

    The last or second to last doubling must have added more than ``growth`` to the best rate. A
    single disturbed point does not end the curve.
    """
    if len(rates) < 3:
        return True
    return max(rates[-2:]) > (1 + growth) * max(rates[:-2])


def under_fault(point: LoadPoint, at_s: float) -> LoadPoint:
    """Return the point of a run with a fault ``at_s`` after its begin.

    The point has the kept throughput, and the longest pause from the fault on. Raises
    :class:`ValueError` if the fault was not within the run.
    """
    curve, pauses = point.curve or [], point.pauses or []
    before, after = curve[: math.floor(at_s / CURVE_S)], curve[math.ceil(at_s / CURVE_S) :]
    if at_s < 0 or not before or not after:
        measured = f"{len(curve) * CURVE_S:.1f} s that were measured"
        raise ValueError(f"the fault came {at_s:.1f} s after the begin of {measured}")
    quiet, loud = sum(before) / len(before), sum(after) / len(after)
    pause_s, figures = longest_pause_s(pauses, at_s), {**point.figures, "fault at (s)": at_s}
    kept = loud / quiet if quiet else None
    return structs.replace(point, kept=kept, longest_pause_s=pause_s, figures=figures)


def longest_pause_s(
    pauses: Sequence[tuple[float, float]], begin_s: float = 0.0, end_s: float = math.inf
) -> float:
    """Return the longest pause between ``begin_s`` and ``end_s``."""
    return max(
        (min(at_s + length_s, end_s) - max(at_s, begin_s) for at_s, length_s in pauses), default=0.0
    )


def write_load(directory: Path, file: LoadFile) -> None:
    """Write `load.json` in ``directory``, whole or not at all."""
    replace_file(directory / LOAD_FILE, msgspec.json.encode(file) + b"\n")


def read_load(path: Path) -> LoadFile:
    """Read `load.json`. Raises :class:`msgspec.MsgspecError` for another content."""
    return msgspec.json.decode(path.read_bytes(), type=LoadFile)
