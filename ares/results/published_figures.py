"""Figures published by the authors of ARES and ARES II, for a page to draw beside a database.

Measured on machines in Europe and America (NGIatlantic, 2022), and on Emulab (ARES II): shapes and
ratios compare, seconds do not.
"""

from typing import Any

from msgspec import Struct

REPORT = "NGIatlantic, final report"
PAPER = "ARES II"
_KIB, _MIB = 2**10, 2**20

_SIZE_FIGURES = {  # reads, writes in s at 64 KiB, 1 MiB, 8 MiB; logs of the final report, 5.1.3
    "ABD": ((0.42, 1.23, 6.37), (0.27, 1.01, 7.06)),
    "ARES_ABD": ((0.56, 1.36, 6.40), (0.43, 1.17, 7.40)),
    "ARES_EC": ((1.03, 2.13, 6.67), (0.70, 1.11, 2.70)),
    "CASSANDRA": ((0.59, 1.48, 10.3), (0.70, 1.55, 6.90)),
    "REDIS_W": ((0.29, 0.60, 1.15), (0.58, 1.02, 2.57)),
}
_RATES = {  # reads, writes a second, 32 bytes; three servers, both clients in Europe
    "ABD": (616, 616),
    "ARES_ABD": (55, 55),
    "ARES_EC": (52, 54),
    "CASSANDRA": (209, 236),
    "REDIS_W": (None, 987),
}
_PIGGYBACK = {  # reads in s at 1, 256, 512 MB, without and with piggyback (ARES II, Table 2)
    "AresABD": ((0.343, 72, 264), (0.334, 72, 192)),
    "AresEC": ((0.257, 54, 109), (0.251, 53, 106)),
    "CoAresABD": ((0.308, 71, 176), (0.302, 63, 164)),
    "CoAresEC": ((0.136, 25, 55.6), (0.127, 27, 52.4)),
    "CoAresABDF": ((0.284, 9, 21.8), (0.278, 5, 15.2)),
    "CoAresECF": ((0.149, 9.65, 23.2), (0.142, 3.82, 10.9)),
}
_COLLECTION = {  # reads in s at 1, 64 MB: 11 pending + 1 finalized; 12 finalized (ARES II, Table 3)
    "Ares": ((0.159, 5.57), (0.159, 5.80)),
    "Ares PB": ((0.494, 27.4), (0.166, 5.76)),
    "Ares PB+GC": ((0.107, 5.58), (0.119, 5.71)),
    "CoAres": ((0.162, 5.81), (0.163, 5.88)),
    "CoAres PB": ((0.506, 26.8), (0.167, 5.98)),
    "CoAres PB+GC": ((0.110, 5.73), (0.122, 5.82)),
    "CoAresF": ((0.181, 6.78), (0.186, 6.92)),
    "CoAresF PB": ((0.191, 6.62), (0.193, 6.73)),
    "CoAresF PB+GC": ((0.127, 6.61), (0.135, 6.74)),
}


class PublishedLine(Struct, frozen=True):
    """A line of ``points`` `(x, seconds)` over the parameter ``x``, at the parameters ``at``.

    Points are rates if ``figure`` is the throughput.
    """

    scenario: str
    algorithm: str
    operation: str
    source: str
    at: dict[str, Any]
    x: str
    points: list[tuple[Any, float]]
    figure: str = "mean"


def published() -> list[PublishedLine]:
    """Return all published lines."""
    small, large, pending = (
        (64 * _KIB, _MIB, 8 * _MIB),
        (_MIB, 256 * _MIB, 512 * _MIB),
        (_MIB, 64 * _MIB),
    )
    same = {"servers": 11, "writers": 5, "readers": 5}
    lines = [
        PublishedLine(
            "object_size",
            algorithm,
            operation,
            REPORT,
            same,
            "object_size",
            list(zip(small, values, strict=True)),
        )
        for algorithm, both in _SIZE_FIGURES.items()
        for operation, values in zip(("read", "write"), both, strict=True)
    ]
    lines += [
        PublishedLine(
            "topology1",
            algorithm,
            operation,
            REPORT,
            {"topology": "3E+0U", "clients": "w=E r=E"},
            "servers",
            [(3, rate)],
            "throughput",
        )
        for algorithm, both in _RATES.items()
        for operation, rate in zip(("read", "write"), both, strict=True)
        if rate is not None
    ]
    lines += [
        PublishedLine(
            "piggyback",
            algorithm + suffix,
            "read",
            PAPER,
            same,
            "object_size",
            list(zip(large, values, strict=True)),
        )
        for algorithm, both in _PIGGYBACK.items()
        for suffix, values in zip(("", " PB"), both, strict=True)
    ]
    return lines + [
        PublishedLine(
            "garbage_collection",
            algorithm,
            "read",
            PAPER,
            {"servers": 11, "readers": 10, "pending": count},
            "object_size",
            list(zip(pending, values, strict=True)),
        )
        for algorithm, both in _COLLECTION.items()
        for count, values in zip((11, 0), both, strict=True)
    ]
