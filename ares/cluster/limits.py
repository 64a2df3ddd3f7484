"""What the clients of one process may make it hold: the table `[limits]` of the cluster file (docs/limits.md).

Everything that a peer can send is bounded somewhere; here are the bounds that an operator may have reasons to change, because they depend on how many
clients there are and how much memory the machine has. The others are constants beside the code that they bound.
"""

import logging
import resource
from pathlib import Path

from msgspec.structs import replace

from ares.cluster.tables import MIB
from ares.cluster.tables import Limits as Limits
from ares.machine.named_files import refuse
from ares.model.codec import FRAME_BYTES_MAX

CONNECTIONS_MAX = 1_000_000
BYTES_MIN = FRAME_BYTES_MAX + 64 * MIB
"""Less, and the largest value would be cut off on its way."""

DESCRIPTORS_BESIDE = 256
"""What a process opens besides its clients' connections: its store, its log, its threads, the other consensus members."""

_log = logging.getLogger(__name__)


def check_limits(path: Path, limits: Limits) -> None:
    """Raises :class:`ares.BadInput` naming the cluster file at ``path`` and the key."""
    if not 1 <= limits.connections <= CONNECTIONS_MAX:
        refuse(path, "limits.connections", f"expected 1 to {CONNECTIONS_MAX}, found {limits.connections}")
    for key in ("received_bytes", "unread_bytes"):
        if getattr(limits, key) < BYTES_MIN:
            refuse(path, f"limits.{key}", f"expected at least {BYTES_MIN}, room for the largest value, found {getattr(limits, key)}")


def fitting(limits: Limits) -> Limits:
    """``limits`` with as many connections as this process may have descriptors for, after it asked for as many as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + DESCRIPTORS_BESIDE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    fewer = max(soft - DESCRIPTORS_BESIDE, soft // 2)
    _log.warning("%d connections of clients instead of %d: this process may open %d files (ulimit -n, LimitNOFILE)", fewer, limits.connections, soft)
    return replace(limits, connections=fewer)
