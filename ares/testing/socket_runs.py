"""Runs over Unix sockets: the seeds of every second run, and a check that the sockets were used."""

import os
from collections.abc import Iterable, Set

from ares.cluster.addresses import split_address
from ares.cluster.settings import Settings
from ares.model.identity import ServerId
from ares.net.local_sockets import PATH_BYTES_MAX, socket_path


def make_room_for_sockets(settings: Settings, seed: int) -> bool:
    """Make the directory of the Unix sockets for an odd seed; return whether it is there.

    A run on libzmq, or in a directory with too long a path, has no sockets.
    """
    run = settings.sockets
    if run is None or seed % 2 == 0 or settings.transport != "native":
        return False
    paths = [socket_path(run, *split_address(each.address)) for each in settings.processes()]
    if any(len(os.fsencode(path)) > PATH_BYTES_MAX for path in paths):
        return False
    run.mkdir(mode=0o700)
    return True


def has_sockets(settings: Settings) -> bool:
    """Return whether the run of this cluster has Unix sockets."""
    return settings.sockets is not None and settings.sockets.is_dir()


def not_over_sockets(
    settings: Settings, ids: Iterable[ServerId], reached: Set[ServerId]
) -> list[str]:
    """Return the ``ids`` missing in ``reached``, in words, if the run has Unix sockets."""
    if not has_sockets(settings):
        return []
    return [f"{id} was not reached over its Unix socket" for id in ids if id not in reached]
