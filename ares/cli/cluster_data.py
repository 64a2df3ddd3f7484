"""The data directories of a cluster on this machine, looked at from outside: which of its processes ran, and beginning anew."""

import contextlib
import os
import shutil
from collections.abc import Collection

from ares.errors import BadInput, DirectoryLost
from ares.runtime.home import CLAIM_NAME, held, is_bare
from ares.runtime.settings import Settings


def started_before(settings: Settings) -> list[str]:
    """The servers that once ran and so, if they kept it in memory only, have lost what they held."""
    return [server.id for server in settings.servers.values() if os.path.exists(server.data / CLAIM_NAME)]  # not of one that cannot be looked into


def lost_directories(settings: Settings, ids: Collection[str]) -> dict[str, str]:
    """Those of the processes that may not start, for nothing is in their directories, not even that they never ran; and what to do."""
    lost: dict[str, str] = {}
    for processes, votes in ((settings.servers, False), (settings.members, True)):
        data = {process.id: str(process.data) for process in processes.values() if process.id in ids and is_bare(process.data)}
        if data:
            lost |= dict.fromkeys(data, str(DirectoryLost(", ".join(data.values()), list(data), settings.path, votes)))
    return lost


def remove_data(settings: Settings) -> None:
    """Remove the directories of all processes. :class:`BadInput`, with nothing removed, if one is in use or outside the cluster's own directory."""
    home = settings.path.resolve().parent
    directories = {process.id: process.data for process in settings.processes()}
    for id, directory in directories.items():
        if home not in directory.resolve().parents:
            raise BadInput(f"the data of {id} is in {directory}, outside {home}: nothing was removed; remove it yourself, then try again")
    present = [directory for directory in directories.values() if directory.exists()]
    with contextlib.ExitStack() as stack:
        for directory in present:
            stack.enter_context(held(directory))
        try:
            for directory in present:
                shutil.rmtree(directory)
        except OSError as error:
            raise BadInput(f"{error.filename} cannot be removed: {error.strerror}; remove it yourself, then try again") from error
