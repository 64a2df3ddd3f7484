"""Ports for what a test starts: each lane of the suite (a worker of pytest-xdist) has its own, so none takes what another has just found to be free.

They are below those that Linux hands out by itself, and apart from those among which `init` chooses, as the demo and torture do here.
"""

import os
from itertools import cycle, islice

from ares.cluster import cluster_file

_LANES = 4
_PER_LANE = 2_500
_SINGLE_PER_LANE = 500

_lane = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _LANES
_own = range(10_000 + _lane * _PER_LANE, 10_000 + (_lane + 1) * _PER_LANE)
_first = os.getpid() % _SINGLE_PER_LANE  # two suites on one machine do not begin with the same ones
_single = cycle((*_own[_first:_SINGLE_PER_LANE], *_own[:_first]))


def stay_in_lane() -> None:
    """Clusters that are made in this process with a base port of 0 get ports of its lane."""
    cluster_file._PORTS = _own[_SINGLE_PER_LANE:]


def free_addresses(count: int) -> list[str]:
    """On loopback, none of which was given to anybody lately."""
    free = (port for port in _single if cluster_file.is_free("127.0.0.1", port))
    return [f"127.0.0.1:{port}" for port in islice(free, count)]
