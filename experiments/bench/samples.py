"""One measurement of how something grows."""

from collections.abc import Iterable

from msgspec import Struct

from experiments.bench.load import Measured
from experiments.bench.processes import resident_bytes

MIB = 2**20


class Sample(Struct, frozen=True):
    """What was found at ``x`` of the ``axis``; figures are called by what they are, unit included."""

    section: str
    series: str
    axis: str
    x: float
    figures: dict[str, float]
    wrong: list[str] = []


def load_figures(measured: Measured) -> dict[str, float]:
    """Rate, latency and processor time of a load. Infinite cost for operations that were none."""
    taken_s = sum(measured.server_cpu.values()) + sum(measured.generator_cpu)
    found = {
        "op/s": measured.per_s,
        "read p50 ms": measured.latency_ms(0.5, writes=False),
        "write p50 ms": measured.latency_ms(0.5, reads=False),
        "us CPU/op": taken_s / measured.per_s * 1e6 if measured.per_s else float("inf"),
    }
    return found | ({"failed": float(sum(measured.troubles.values()))} if measured.troubles else {})


def resident_mib(pids: Iterable[int]) -> float:
    """Of all of them."""
    return sum(map(resident_bytes, pids)) / MIB
