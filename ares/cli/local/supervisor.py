"""The processes of a cluster on this machine, started, stopped and looked at from outside; and their data directories.

Every server and consensus member is a process of its own (``python -P -m ares server FILE --id s0``) in a session of its own, so that neither a
Ctrl-C in the terminal nor its closing reaches it: only its supervisor stops it. It writes to DIR/logs/<id>.log, and DIR/run/<id>.pid names it.

A pid may be another process's by the time it is used. So a process is looked at through a descriptor (pidfd), which cannot change its meaning,
and is signalled only if its command line is the one that a process of this cluster and id has.
"""

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from msgspec import Struct

from ares.cli.local_files import resolved
from ares.cluster.cluster_file import obstacle
from ares.cluster.home import CLAIM_NAME, forget_starts, held, is_bare, record_of, was_started
from ares.cluster.settings import MemberSettings, ServerSettings, Settings, split_address
from ares.machine.interpreter import python
from ares.machine.named_files import read_named
from ares.machine.trusted_files import DIRECTORY_MADE_FOR_ALL, opener
from ares.model.errors import AresError, BadInput, DirectoryLost

STOP_S = 5.0
"""How long a process may take to stop on SIGTERM before it is killed."""

_POLL_S = 0.03
_LOG_LINES = 12
_PID_BYTES_MAX = 32
_ERROR = "error: "
"""What `ares-cli` begins an error with."""


class NotStarted(AresError):
    """What was to be started was not; whatever of it had been started is stopped again."""


class Member(Struct, frozen=True):
    """One process to run: ``kind`` is the command of `ares-cli` that runs it, ``addresses`` are where it will listen."""

    id: str
    kind: str
    addresses: tuple[str, ...]


class Supervisor:
    """The processes of the cluster whose file is DIR/cluster.toml."""

    def __init__(self, cluster_file: Path) -> None:
        self._file = cluster_file.resolve()
        self._run = self._file.parent / "run"
        self._logs = self._file.parent / "logs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other supervisors from starting the cluster meanwhile; :class:`BadInput` when one does."""
        return held(self._run)

    def running(self) -> dict[str, int]:
        """The pid of every process of the cluster that was started here and still runs, by id."""
        pids = {}
        for path in sorted(self._run.glob("*.pid")):
            if (process := self._find(path)) is not None:
                pids[path.stem], descriptor = process
                os.close(descriptor)
        return pids

    def start(
        self, members: list[Member], timeout_s: float, interrupted: Callable[[], bool]
    ) -> dict[str, int]:
        """Start all of the processes, of which none runs, and wait until each one serves; returns their pids by id. Call it :meth:`alone`.

        Raises :class:`NotStarted` when one ends, says nothing for ``timeout_s`` or ``interrupted()`` turns true: then none of them is left running.
        """
        self.check_ports(members)
        pids, left_out = self.start_what_can(members, timeout_s, interrupted)
        if left_out:
            self.stop(pids)
            why = "\n".join(f"{id}: {what}" for id, what in left_out.items())
            raise NotStarted(
                f"everything that this had started is stopped again. Put the cause right: {why}"
            )
        return pids

    def start_what_can(
        self, members: list[Member], timeout_s: float, interrupted: Callable[[], bool]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Start the processes, of which none runs, and wait until each one serves or is left out; this does not run then. Call it :meth:`alone`.

        Returns the pids of what serves now, and why anything else does not run, both by id. Left out is what cannot listen, ends, or says nothing for
        ``timeout_s``. Raises :class:`NotStarted` when ``interrupted()`` turns true: then none of them is left running.
        """
        self._logs.mkdir(DIRECTORY_MADE_FOR_ALL, exist_ok=True)
        left_out = {
            member.id: f"was not started: {deaf}" for member in members if (deaf := _deaf(member))
        }
        begun: dict[str, int] = {}
        try:
            for member in members:
                if member.id not in left_out:
                    begun[member.id] = self._spawn(member)
            left_out |= self._await_ready(begun, time.monotonic() + timeout_s, interrupted)
            self.stop(left_out.keys() & begun.keys())
        except BaseException:
            self.stop(begun)
            raise
        return {id: self._children[id].pid for id in begun if id not in left_out}, left_out

    def check_ports(self, members: list[Member], advice: str = "") -> None:
        """Raise :class:`NotStarted`, with the ``advice``, if any of ``members`` could not listen."""
        if deaf := [f"{member.id}: {why}" for member in members if (why := _deaf(member))]:
            raise NotStarted(f"nothing was started: {'; '.join(deaf)}{advice}")

    def ended(self) -> dict[str, int]:
        """Those of the processes started by this supervisor that have ended since the last call, with their exit status."""
        ended = {
            id: status
            for id, child in self._children.items()
            if (status := child.poll()) is not None
        }
        for id in ended:
            del self._children[id]
            (self._run / f"{id}.pid").unlink(missing_ok=True)
        return ended

    def log_path(self, id: str) -> Path:
        """Where the process writes what it has to say."""
        return self._logs / f"{id}.log"

    def kill(self, ids: Collection[str]) -> list[str]:
        """kill -9; they are gone when this returns."""
        return self.stop(ids, [signal.SIGKILL])

    def stop(
        self,
        ids: Collection[str] | None = None,
        signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL),
    ) -> list[str]:
        """Stop these processes of the cluster, or all that were started here: each signal has STOP_S seconds to work. Returns the ids stopped."""
        waiting: dict[int, str] = {}
        paths = [
            path for path in sorted(self._run.glob("*.pid")) if ids is None or path.stem in ids
        ]
        for path in paths:
            if (process := self._find(path)) is not None:
                waiting[process[1]] = path.stem
        stopped = sorted(waiting.values())
        for number in signals:
            self._signal_and_await(waiting, number)
        if waiting:
            raise AresError(
                f"{', '.join(sorted(waiting.values()))} cannot be stopped, not even by SIGKILL; their pids are in {self._run}"
            )
        for path in paths:
            if (child := self._children.pop(path.stem, None)) is not None:
                child.wait()
            path.unlink(missing_ok=True)
        return stopped

    def _signal_and_await(self, waiting: dict[int, str], number: signal.Signals) -> None:
        """Signal the processes behind the descriptors in ``waiting`` and take out those that end within STOP_S."""
        for descriptor in waiting:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                signal.pidfd_send_signal(descriptor, number)
        deadline = time.monotonic() + STOP_S
        poller = select.poll()
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left_s * 1000):
                poller.unregister(descriptor)
                del waiting[descriptor]
                os.close(descriptor)

    def _find(self, pid_file: Path) -> tuple[int, int] | None:
        """Pid and descriptor of the process that the file names, if it is one of this cluster; the caller closes the descriptor."""
        child = self._children.get(pid_file.stem)
        if (
            child is not None and child.poll() is None
        ):  # it is ours, though it may be too young to have a command line
            return child.pid, os.pidfd_open(child.pid)
        try:
            pid = int(read_named(pid_file, _PID_BYTES_MAX, streams=False)[0])
            descriptor = os.pidfd_open(pid)
        except (
            ValueError,
            OverflowError,
            OSError,
        ):  # a torn file, or no such process: nothing that could be stopped
            return None
        if self._is_ours(pid, pid_file.stem):
            return pid, descriptor
        os.close(descriptor)
        return None

    def _is_ours(self, pid: int, id: str) -> bool:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            return False
        said = [os.fsdecode(word) for word in words[1:]]
        known = [self._command(kind, id)[1:] for kind in ("server", "consensus")]
        return (
            said in known or ["-P", *said] in known
        )  # releases before this one started Python without -P

    def _command(self, kind: str, id: str) -> list[str]:
        return python("-m", "ares", kind, self._file, "--id", id)

    def _spawn(self, member: Member) -> int:
        """Start one process; returns where in its log this run begins."""
        named = self._run / f"{member.id}.pid"
        named.unlink(missing_ok=True)  # whatever it is
        with (
            open(self.log_path(member.id), "ab", opener=opener) as log,
            open(named, "x", encoding="ascii", opener=opener) as pid_file,
        ):
            begin = log.tell()
            child = subprocess.Popen(
                self._command(member.kind, member.id),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._children[member.id] = child
            pid_file.write(f"{child.pid}\n")
        return begin

    def _await_ready(
        self, begun: dict[str, int], deadline_s: float, interrupted: Callable[[], bool]
    ) -> dict[str, str]:
        """Until each process serves, or does not and will not: these, and why."""
        pending, left_out = dict(begun), {}
        while pending:
            if interrupted():
                raise NotStarted("interrupted: everything that this had started is stopped again")
            late = time.monotonic() > deadline_s
            for id, begin in list(pending.items()):
                if f"READY {id} ".encode() not in self._log(id, begin):
                    if (status := self._children[id].poll()) is not None:
                        left_out[id] = self._story(id, begin, f"ended with status {status}")
                    elif late:
                        left_out[id] = self._story(
                            id,
                            begin,
                            "did not become ready in time (--timeout gives it more) and was stopped",
                        )
                    else:
                        continue
                del pending[id]
            time.sleep(_POLL_S)
        return left_out

    def _log(self, id: str, begin: int) -> bytes:
        with open(self.log_path(id), "rb") as log:
            log.seek(begin)
            return log.read()

    def _story(self, id: str, begin: int, what: str) -> str:
        """What became of a process, with its own words for it if it had any."""
        last = self._log(id, begin).decode("utf-8", "replace").splitlines()[-_LOG_LINES:]
        if last and last[-1].startswith(_ERROR):
            return f"{what}: {last[-1].removeprefix(_ERROR)}"
        said = "\n".join(f"  {line}" for line in last) or "  (nothing)"
        return f"{what}. The end of {self.log_path(id)}:\n{said}"


def members_of(settings: Settings) -> list[Member]:
    """Every process of a cluster, consensus members first."""
    consensus = [
        Member(it.id, "consensus", tuple(filter(None, (it.address, it.raft, it.http))))
        for it in settings.members.values()
    ]
    return [
        *consensus,
        *(
            Member(it.id, "server", tuple(filter(None, (it.address, it.http))))
            for it in settings.servers.values()
        ),
    ]


def _deaf(member: Member) -> str:
    """Return where the process could not listen, and why; empty if it can.

    Found before it starts: without a disk, a start that fails may cost its identity.
    """
    return ", ".join(
        f"{address} cannot be listened on: {why}"
        for address in member.addresses
        if (why := obstacle(*split_address(address)))
    )


# -- data directories -----------------------------------------------------------------------------------------------------


def started_before(settings: Settings) -> list[str]:
    """The servers that once ran and so, if they kept it in memory only, have lost what they held."""
    return [
        server.id
        for server in settings.servers.values()
        if os.path.exists(server.data / CLAIM_NAME)
    ]  # not of one that cannot be looked into


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
    bare = [
        process
        for process in settings.processes()
        if process.id in ids and is_bare(process.data, started_as(process))
    ]
    for votes, ran in itertools.product((False, True), (True, False)):
        alike = [
            process
            for process in bare
            if (process.id in settings.members, ran_there(process)) == (votes, ran)
        ]
        if alike:
            where = ", ".join(str(process.data) for process in alike)
            record = ", ".join(str(record_of(process.data)) for process in alike) if ran else None
            error = DirectoryLost(
                where, [process.id for process in alike], settings.path, votes, record
            )
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
            raise BadInput(
                f"the data of {id} is in {directory}, outside {home}: nothing was removed; remove it yourself, then try again"
            )
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
            raise BadInput(
                f"{error.filename} cannot be removed: {error.strerror}; remove it yourself, then try again"
            ) from error
