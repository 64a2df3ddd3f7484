"""Processes that are apart: a network of this process alone, whose packets all come late.

The network is a namespace of the kernel with loopback only. It ends with the last process in it.
"""

import contextlib
import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ares.platform.interpreter import python
from ares.testing import namespaces
from ares.testing.namespaces import NETWORK_TOOLS
from experiments import ENVIRONMENT
from experiments.bench.store_processes import await_that
from experiments.testbeds import nfqueue
from experiments.testbeds.nfqueue import QueueShape

_NEW_NETWORK = 0x40000000
_DELAYS_START_S = 10.0
_ALL_LATE = "*filter\n-A OUTPUT -o lo -j NFQUEUE --queue-num 0\nCOMMIT\n"


def apart_obstacle() -> str | None:
    """Return why this machine cannot delay packets, and the remedy, or `None`."""
    return namespaces.obstacle(NETWORK_TOOLS | {"iptables-legacy": "iptables"})


@contextlib.contextmanager
def late_packets(delay_s: float) -> Iterator[None]:
    """Move this process for good to a network where each packet comes ``delay_s`` late.

    Processes that this process starts from now on are there, too. Raises OSError,
    :class:`NamespaceFailed`, :class:`experiments.bench.store_processes.ProgramNotStarted`.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "no new network")
    namespaces.run("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory(prefix="ares-bench-") as directory:
        place, log = Path(directory, "delays"), Path(directory, "log")
        command = ["nice", "-n", "-15", *python("-m", "experiments.testbeds.nfqueue", str(place))]
        with log.open("wb") as errors:
            delaying = subprocess.Popen(command, stderr=errors, env=ENVIRONMENT)
        try:
            await_that(place.exists, "packets are delayed", _DELAYS_START_S, log)
            nfqueue.shape(place, {0: QueueShape(delay_s)})
            namespaces.run("iptables-legacy-restore", "--wait", given=_ALL_LATE)
            yield
        finally:
            delaying.terminate()
            delaying.wait()
