"""Ports for the processes of a test.

Each lane of the suite (a worker of pytest-xdist) has separate ports, so no lane takes a port that
another lane has just found free. The ports are below the range of Linux's own ports, and apart from
the ports of `init`, as used by the demo and torture.
"""

import os
from itertools import cycle, islice

from ares.cluster import new_cluster

_LANES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_PER_LANE = 10_000 // _LANES
_SINGLE_PER_LANE = _PER_LANE // 5

_lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _LANES
_own = range(10_000 + _lane * _PER_LANE, 10_000 + (_lane + 1) * _PER_LANE)
_first = os.getpid() % _SINGLE_PER_LANE  # two suites on the same machine begin with different ports
_single = cycle((*_own[_first:_SINGLE_PER_LANE], *_own[:_first]))


def stay_in_lane() -> None:
    """Give the ports of this lane to clusters made in this process with a base port of 0."""
    new_cluster._PORTS = _own[_SINGLE_PER_LANE:]


def free_addresses(count: int) -> list[str]:
    """Return addresses on loopback, all unused for a while."""
    free = (port for port in _single if new_cluster.is_free("127.0.0.1", port))
    return [f"127.0.0.1:{port}" for port in islice(free, count)]
