"""A measurement of growth."""

from collections.abc import Iterable

from msgspec import Struct

from ares.model.units import MIB
from experiments.bench.load import MeasuredWorkload
from experiments.bench.store_processes import resident_bytes


class GrowthSample(Struct, frozen=True):
    """The figures at ``x`` of the ``axis``; names of figures include the unit."""

    section: str
    series: str
    axis: str
    x: float
    figures: dict[str, float]
    wrong: list[str] = []


def load_figures(measured: MeasuredWorkload) -> dict[str, float]:
    """Return rate, latency and processor time of a load. The cost of no operations is infinite."""
    taken_s = sum(measured.server_cpu.values()) + sum(measured.generator_cpu)
    found = {
        "op/s": measured.per_s,
        "read p50 ms": measured.latency_ms(0.5, writes=False),
        "write p50 ms": measured.latency_ms(0.5, reads=False),
        "us CPU/op": taken_s / measured.per_s * 1e6 if measured.per_s else float("inf"),
    }
    return found | ({"failed": float(sum(measured.troubles.values()))} if measured.troubles else {})


def resident_mib(pids: Iterable[int]) -> float:
    """Return the sum over all processes."""
    return sum(map(resident_bytes, pids)) / MIB
