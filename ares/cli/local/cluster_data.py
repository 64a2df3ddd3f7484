"""The data directories of a cluster on this machine, looked at from outside: which of its processes ran, and beginning anew."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Collection

from ares.cli.local_files import resolved
from ares.cluster.home import CLAIM_NAME, forget_starts, held, is_bare, record_of, was_started
from ares.cluster.settings import MemberSettings, ServerSettings, Settings
from ares.model.errors import BadInput, DirectoryLost


def started_before(settings: Settings) -> list[str]:
    """The servers that once ran and so, if they kept it in memory only, have lost what they held."""
    return [server.id for server in settings.servers.values() if os.path.exists(server.data / CLAIM_NAME)]  # not of one that cannot be looked into


def started_as(process: ServerSettings | MemberSettings) -> str:
    """What is remembered of it beside its directory once it has started."""
    return process.identity if isinstance(process, ServerSettings) else process.id


def ran_there(process: ServerSettings | MemberSettings) -> bool:
    """Whether it is remembered beside its directory that it started there. Not of one that cannot be looked into."""
    try:
        return was_started(process.data, started_as(process))
    except OSError:
        return False


def lost_directories(settings: Settings, ids: Collection[str]) -> dict[str, str]:
    """Those of the processes that may not start, for nothing is in their directories, and they are not new; and what to do."""
    lost: dict[str, str] = {}
    bare = [process for process in settings.processes() if process.id in ids and is_bare(process.data, started_as(process))]
    for votes, ran in itertools.product((False, True), (True, False)):
        alike = [process for process in bare if (process.id in settings.members, ran_there(process)) == (votes, ran)]
        if alike:
            where = ", ".join(str(process.data) for process in alike)
            record = ", ".join(str(record_of(process.data)) for process in alike) if ran else None
            error = DirectoryLost(where, [process.id for process in alike], settings.path, votes, record)
            lost |= {process.id: str(error) for process in alike}
    return lost


def remove_data(settings: Settings) -> None:
    """Remove the directories of all processes, and what remembers that they started.

    :class:`BadInput`, with nothing removed, if one is in use or outside the cluster's own directory.
    """
    home = settings.path.resolve().parent
    directories = {process.id: process.data for process in settings.processes()}
    for id, directory in directories.items():
        if home not in resolved(directory).parents:
            raise BadInput(f"the data of {id} is in {directory}, outside {home}: nothing was removed; remove it yourself, then try again")
    present = [directory for directory in directories.values() if directory.exists()]
    with contextlib.ExitStack() as stack:
        for directory in present:
            stack.enter_context(held(directory))
        try:
            for directory in present:
                shutil.rmtree(directory)
            for directory in directories.values():
                forget_starts(directory)
        except OSError as error:
            raise BadInput(f"{error.filename} cannot be removed: {error.strerror}; remove it yourself, then try again") from error
