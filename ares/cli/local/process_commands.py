"""Commands for a process of a cluster on this machine: prepare, server, consensus."""

import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ares.cli.local_files import resolved
from ares.cli.options import SharedOptions
from ares.cluster import home
from ares.model.errors import BadInput, DirectoryLost

if TYPE_CHECKING:
    from ares.cluster.settings import MemberSettings, ServerSettings, Settings

_CONNECT_S = 2.0
"""Seconds to connect with another member, before a member begins anew."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="The cluster file.", show_default=False)]
Id = Annotated[
    str, typer.Option("--id", help="Which of the file's processes to be.", show_default=False)
]


def prepare(
    common: SharedOptions,
    file: File,
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Processes whose directories are on this machine.",
            show_default=False,
        ),
    ],
    forget: Annotated[
        bool,
        typer.Option(
            "--forget",
            help="The data of the processes is lost: set aside the rest and let them begin anew.",
        ),
    ] = False,
) -> None:
    """Make data directories ready for the first start of processes that never ran before.

    `init` and `up --fresh` do this by themselves; `prepare` is for processes that start on another
    machine, and for processes added to the cluster file later. An empty directory without
    preparation is refused, because it looks like a lost disk. Mount the disk first. The file
    DIRECTORY.started, beside the directory, records the process that once started in the directory;
    afterwards this process can only begin anew in the directory.
    """
    from ares.cluster.settings import Settings

    settings = Settings.load(file)
    processes = {str(process.id): process for process in settings.processes()}
    if unknown := [id for id in ids if id not in processes]:
        raise BadInput(
            f"{file} has no process with id {', '.join(unknown)}; known: {', '.join(processes)}; "
            "nothing was prepared"
        )
    if not forget:
        _check_never_ran(settings, [processes[id] for id in ids])
    lines, data = [], {}
    for id in dict.fromkeys(ids):
        directory = processes[id].data
        mounted_at = next(
            place
            for place in (resolved(directory), *resolved(directory).parents)
            if os.path.ismount(place)
        )
        if forget:
            state = _begin_anew(settings, processes[id])
        else:
            state = (
                "is ready for its first start"
                if home.prepare(directory)
                else "was ready for its first start already"
            )
        lines.append(f"{id}: {directory} (file system mounted at {mounted_at}) {state}")
        data[id] = {"data": str(directory), "said": state}
    common.report({"prepared": data}, "\n".join(lines))


def _check_never_ran(
    settings: "Settings", processes: "Sequence[ServerSettings | MemberSettings]"
) -> None:
    """Raise :class:`BadInput` if a process is remembered to have started in a now empty place."""
    from ares.cli.local.supervisor import ran_there

    for process in processes:
        if ran_there(process) and home.kept_in(process.data) is None:
            record = home.record_of(process.data)
            lost = DirectoryLost(
                process.data, [process.id], settings.path, process.id in settings.members, record
            )
            gone = (
                f"{process.id} ran in {process.data} before, says {record}, and its data is not "
                "there"
            )
            raise BadInput(
                f"{gone}: `prepare` is for processes that never ran. {lost.advice()}; nothing "
                "was prepared"
            )


def _begin_anew(settings: "Settings", process: "ServerSettings | MemberSettings") -> str:
    """Set aside the rest of the process's earlier life, and prepare the directory for the next.

    Returns a message about the changes.
    """
    from ares.cluster.settings import ServerSettings

    if not isinstance(process, ServerSettings):
        return _rejoin(settings, process)
    with home.held(process.data):
        claim = home.store_identity if settings.durable else home.claim_identity
        identity = claim(process.data, process.identity, True).identity
    then = f"under the new identity {identity}" if settings.durable else "under a new identity"
    return (
        f"lets {process.id} begin anew, empty and {then}: start the server, then `ares-cli "
        "reconfig` takes it in again"
    )


def _rejoin(settings: "Settings", member: "MemberSettings") -> str:
    """Set aside the data of a consensus member, and prepare the directory for a new life.

    A decision acknowledged by the member may be known to only a single other member, therefore the
    member must not help to decide without this other member.
    """
    from ares.cluster.addresses import split_address
    from ares.consensus.raft.directory import MemberDirectory

    others = [other for other in settings.members.values() if other.id != member.id]
    if not others:
        why = (
            "it is the only consensus member, and no other process has the decisions: no domain "
            "could be created or moved safely any more"
        )
        raise BadInput(
            f"{member.id} cannot begin anew: {why}. Bring its directory back; reads and writes "
            "go on without this member; nothing was changed"
        )
    for other in others:
        try:
            socket.create_connection(split_address(other.raft), _CONNECT_S).close()
        except OSError as error:
            why = (
                f"{other.id} does not answer at {other.raft} ({error.strerror or error}), and it "
                "may be the only member that knows the decisions of both"
            )
            raise BadInput(
                f"{member.id} cannot begin anew now: {why}. Start all other members first; "
                "nothing was changed"
            ) from error
    directory = MemberDirectory(member.data)
    directory.lock(member.id)
    try:
        aside = directory.set_aside()
        home.prepare(member.data)
        # last: until this line the member is refused, and a repetition is possible
        home.forget_starts(member.data)
    finally:
        directory.unlock()
    left = f"; its old data is in {aside}" if aside is not None else ""
    return (
        f"lets {member.id} begin anew{left}: start the member while all other members run, and "
        "it copies their decisions"
    )


def server(
    common: SharedOptions,
    file: File,
    id: Id,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Begin empty and under a new identity, an earlier store set aside."
        ),
    ] = False,
) -> None:
    """Run one storage server. Prints READY, the id and the address at the begin of service.

    Logs go to stderr; SIGTERM stops the process.
    """
    _end_at_once()
    from ares.server.process_lifecycle import run_storage_server

    run_storage_server(file, id, forget)


def consensus(common: SharedOptions, file: File, id: Id) -> None:
    """Run one consensus member. Prints READY, the id and the address at the begin of service.

    Logs go to stderr; SIGTERM stops the process.
    """
    _end_at_once()
    from ares.server.process_lifecycle import run_consensus_member

    run_consensus_member(file, id)


def _end_at_once() -> None:
    """Let SIGTERM end this process at once until the process serves.

    A service manager takes death by SIGTERM for a clean end, like status 0.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
