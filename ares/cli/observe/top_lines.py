"""The figures of `top` for a pipe: a header, and a line for each interval, in stable columns.

Spaces separate the columns. An unknown value is ``-``. No value contains a unit or a space, which
suits ``awk``. A later release adds columns before the last.
"""

import re
from collections.abc import Mapping
from typing import Any

_TIMES = {
    f"{what}_{rank}_ms": f"{what}_{rank}_s"
    for what in ("read", "write", "queue", "commit")
    for rank in ("p50", "p99")
}
_HEADS = ("time", "reads/s", "writes/s", *_TIMES, "up", "servers", "survive", "moves", "silent")
_TIME_WIDTH = len("2026-01-01T00:00:00Z")


def header() -> str:
    """Return the names of the columns."""
    return _aligned(_HEADS)


def line(figures: Mapping[str, Any]) -> str:
    """Return the line of one look.

    ``up`` counts the servers that answer. ``survive`` is how many more may fail before the writes
    of a domain stop; a negative number says that they have stopped. ``silent`` names servers.
    """
    done, servers = figures["operations"], figures["servers"]
    silent = [server["id"] for server in servers if server["state"] == "silent"]
    values = (
        f"{figures['at'][:19]}Z",
        _decimal(done["reads_per_s"], 1),
        _decimal(done["writes_per_s"], 1),
        *(_decimal(done[name], 2, 1000) for name in _TIMES.values()),
        str(len(servers) - len(silent)),
        str(len(servers)),
        str(min((domain["writes_survive"] for domain in figures["domains"]), default="-")),
        str(len(figures["moves"])),
        ",".join(map(_word, silent)) or "-",
    )
    return _aligned(values)


def _aligned(values: tuple[str, ...]) -> str:
    first, *rest, last = values
    middle = (value.rjust(len(head)) for value, head in zip(rest, _HEADS[1:-1], strict=True))
    return "  ".join((first.ljust(_TIME_WIDTH), *middle, last))


def _word(name: str) -> str:
    """Return a name without characters that break a column or a terminal; peers choose names."""
    return re.sub(r"[^\w.:-]", "?", name)


def _decimal(value: float | None, places: int, times: int = 1) -> str:
    return "-" if value is None else f"{value * times:.{places}f}"
