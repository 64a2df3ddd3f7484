"""Points of load of the shared log: the points of the thesis' figures, by scale."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from msgspec import Struct

from experiments.rounds.scenario import SCALES

LOG_STUDY, LOG_THREADS, LOG_FAULTS = "log", "log_threads", "log_faults"
"""Scenarios: loads on all processors, loads on a number of processors, kills of servers."""

LOG_SERVERS = 5
Protocol = Literal["CR", "CRAQ", "UCRAQ"]
LOG_PROTOCOLS: tuple[Protocol, ...] = ("CR", "CRAQ", "UCRAQ")
"""Servers that answer reads: the tail; any server, committed entries; any server, all entries."""


class LogLoadRun(Struct, frozen=True):
    """Points of load, a point for each of ``windows``: operations in flight of a connection.

    Each of ``logs`` has the same chain of ``servers``, and as many connections. Reads are of the
    newest ``interval`` entries; 0: of all entries. ``processors`` is the number of processors of
    all servers together; 0: all.
    """

    protocol: Protocol
    servers: int = 3
    object_size: int = 256
    read_share: float = 0.0
    interval: int = 0
    windows: tuple[int, ...] = (50,)
    logs: int = 1
    processors: int = 0

    @property
    def scenario(self) -> str:
        return LOG_THREADS if self.processors else LOG_STUDY

    @property
    def name(self) -> str:
        return "_".join([self.protocol, *(f"{value:g}" for value in self.parameters().values())])

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for claims beside ``clients``, the window."""
        names = ("servers", "object_size", "read_share", "interval")
        names += ("logs", "processors") if self.processors else ()
        return {name: getattr(self, name) for name in names}


FAULT_VICTIMS = {"head": 0, "middle": 1, "tail": 2}
FAULT_ENTRY_BYTES = 256
ChainBy = Literal["command", "autopilot", "next leader"]


class FaultRun(Struct, frozen=True):
    """A kill of the ``victim`` of a chain of three.

    The next chain is made by a command at once, by the autopilot, or by the autopilot of the next
    leading member after a kill of the leading member.
    """

    victim: str
    chain_by: ChainBy

    def parameters(self) -> dict[str, Any]:
        """Return the parameters for claims."""
        return {
            "servers": len(FAULT_VICTIMS),
            "object_size": FAULT_ENTRY_BYTES,
            "victim": self.victim,
            "chain_by": self.chain_by,
        }


FAULT_RUNS = [FaultRun(victim, by) for by in get_args(ChainBy) for victim in FAULT_VICTIMS]


class LogExtent(Struct, frozen=True):
    """The varying values of a scale. A point ends after ``operations`` or ``seconds``."""

    windows: tuple[int, ...]
    chains: tuple[int, ...]
    shares: tuple[float, ...]
    intervals: tuple[int, ...]
    sizes: tuple[int, ...]
    operations: int
    seconds: float
    iterations: int


LOG_EXTENTS = {
    "quick": LogExtent(
        (50, 500), (3, 5), (0.0, 0.5, 0.9, 0.95, 1.0), (16, 1024), (64, 256, 4096), 6000, 2.0, 2
    ),
    "paper": LogExtent(
        windows=(50, 100, 200, 300, 400, 500),
        chains=(3, 4, 5),
        shares=(0.0, 0.5, 0.75, 0.9, 0.95, 1.0),
        intervals=(1, 16, 64, 256, 1024, 2048),
        sizes=(64, 128, 256, 512, 1024, 2048, 4096),
        operations=20_000,
        seconds=4.0,
        iterations=2,
    ),
}
assert set(LOG_EXTENTS) == set(SCALES)

POINTS_EXTENT = LogExtent((), (), (), (), (), operations=100_000, seconds=4.0, iterations=6)
"""Extent of the scale `points`, whose runs follow from claims.

A load takes a second or two, and six rounds give half the interval of three.
"""


def runs(scale: str) -> Sequence[LogLoadRun]:
    """Return all runs of a scale, without duplicates."""
    return list(dict.fromkeys(_runs(LOG_EXTENTS[scale])))


def _runs(extent: LogExtent) -> Iterator[LogLoadRun]:
    """Yield the runs of Figs. 5.1 and 5.2; 5.3 to 5.5; 5.6; 5.8."""
    for protocol, servers, share in itertools.product(("CR", "CRAQ"), extent.chains, (0.0, 1.0)):
        yield LogLoadRun(protocol, servers, read_share=share, windows=extent.windows)  # type: ignore[arg-type]
    for protocol, servers, share in itertools.product(LOG_PROTOCOLS, extent.chains, extent.shares):
        if share not in (0.0, 1.0) or protocol == "UCRAQ":
            yield LogLoadRun(protocol, servers, read_share=share)
    for protocol, interval in itertools.product(LOG_PROTOCOLS, extent.intervals):
        yield LogLoadRun(protocol, read_share=0.5, interval=interval)
    for protocol, size, share in itertools.product(LOG_PROTOCOLS, extent.sizes, (0.5, 0.95)):
        yield LogLoadRun(protocol, 4, size, share)
