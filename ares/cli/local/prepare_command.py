"""The command prepare: saying of a data directory that nothing ever ran there, or letting a process whose data is lost begin anew."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.local_files import resolved
from ares.cli.options import Common
from ares.model.errors import BadInput, DirectoryLost

if TYPE_CHECKING:
    from ares.cluster.settings import MemberSettings, ServerSettings, Settings

_REACH_S = 2.0

File = Annotated[Path, typer.Argument(metavar="FILE", help="The cluster file.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Processes whose directories are on this machine.", show_default=False)]


def prepare(
    common: Common,
    file: File,
    ids: Ids,
    forget: Annotated[bool, typer.Option("--forget", help="What they had is lost: let them begin anew, what is left set aside.")] = False,
) -> None:
    """Make data directories ready for the first start of servers and consensus members that never ran anywhere.

    `init` and `up --fresh` do that by themselves; it is for processes that start on another machine, and for those added to the cluster file later.
    An empty directory that was not prepared is taken for that of a lost disk, and refused. Mount the disk first. Who started once in a directory is
    remembered beside it, in DIRECTORY.started, and can only begin anew there.
    """
    from ares.cluster import home
    from ares.cluster.settings import Settings

    settings = Settings.load(file)
    processes = {str(process.id): process for process in settings.processes()}
    if unknown := [id for id in ids if id not in processes]:
        raise BadInput(f"{file} has no process with id {', '.join(unknown)}; known: {', '.join(processes)}; nothing was prepared")
    if not forget:
        _check_never_ran(settings, [processes[id] for id in ids])
    lines, data = [], {}
    for id in dict.fromkeys(ids):
        directory = processes[id].data
        where = f"{directory} (file system mounted at {_mount_point(directory)})"
        if forget:
            said = _begin_anew(settings, processes[id])
        elif home.prepare(directory):
            said = "is ready for its first start"
        else:
            said = "was ready for its first start already"
        lines.append(f"{id}: {where} {said}")
        data[id] = {"data": str(directory), "said": said}
    common.report({"prepared": data}, "\n".join(lines))


def _check_never_ran(settings: "Settings", processes: "Sequence[ServerSettings | MemberSettings]") -> None:
    """Raise :class:`BadInput` if one of them is remembered to have started where nothing of it is now."""
    from ares.cli.local.cluster_data import ran_there
    from ares.cluster.home import kept_in, record_of
    from ares.cluster.settings import MemberSettings

    for process in processes:
        if ran_there(process) and kept_in(process.data) is None:
            record = record_of(process.data)
            lost = DirectoryLost(process.data, [process.id], settings.path, isinstance(process, MemberSettings), record)
            gone = f"{process.id} ran in {process.data} before, says {record}, and nothing of it is there"
            raise BadInput(f"{gone}: it is no process that never ran. {lost.advice()}; nothing was prepared")


def _begin_anew(settings: "Settings", process: "ServerSettings | MemberSettings") -> str:
    """Set aside what is left of the process's earlier life, and make its directory fit for the next; returns what was done."""
    from ares.cluster import home
    from ares.cluster.settings import ServerSettings

    if not isinstance(process, ServerSettings):
        return _rejoin(settings, process)
    with home.held(process.data):
        claim = home.store_identity if settings.durable else home.claim_identity
        identity = claim(process.data, process.identity, True).identity
    then = f"under the new identity {identity}" if settings.durable else "under a new identity"
    return f"lets {process.id} begin anew, empty and {then}: start it, then `ares-cli reconfig` takes it in again"


def _rejoin(settings: "Settings", member: "MemberSettings") -> str:
    """The same for a consensus member. What it acknowledged may be with one other member only, so it must not help to decide without that one."""
    from ares.cluster.home import forget_starts, prepare
    from ares.cluster.settings import split_address
    from ares.consensus.raft.directory import MemberDirectory

    others = [other for other in settings.members.values() if other.id != member.id]
    if not others:
        why = "it is the only consensus member, so nobody else has what was decided: no domain could be created or moved safely any more"
        raise BadInput(f"{member.id} cannot begin anew: {why}. Bring its directory back; reads and writes go on without it; nothing was changed")
    for other in others:
        try:
            socket.create_connection(split_address(other.raft), _REACH_S).close()
        except OSError as error:
            why = f"{other.id} does not answer at {other.raft} ({error.strerror or error}), and it may be the only one that knows what both decided"
            raise BadInput(f"{member.id} cannot begin anew now: {why}. Start all other members first; nothing was changed") from error
    directory = MemberDirectory(member.data)
    directory.lock(member.id)
    try:
        aside = directory.set_aside()
        prepare(member.data)
        forget_starts(member.data)  # last: until then it is refused, and this can be asked for again
    finally:
        directory.unlock()
    left = f"; what was there is in {aside}" if aside is not None else ""
    return f"lets {member.id} begin anew{left}: start it while all other members run, and it copies what they have"


def _mount_point(path: Path) -> Path:
    """Of the file system that ``path``, which may not exist yet, is on."""
    return next(place for place in (resolved(path), *resolved(path).parents) if os.path.ismount(place))
