"""The processes of a cluster on this machine, controlled from outside; and their data directories.

Every server and consensus member is a separate process (``python -P -m ares server FILE --id s0``)
in a separate session: neither a Ctrl-C in the terminal nor the terminal's end reaches the process,
only the supervisor stops it. The process writes to DIR/logs/<id>.log, and DIR/run/<id>.pid names
the pid.

A pid may belong to another process by the time of use. Therefore a process is reached through a
descriptor (pidfd), which cannot change its meaning, and is signalled only if the command line
belongs to this cluster and id.
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
from ares.cluster.addresses import split_address
from ares.cluster.home import CLAIM_NAME, forget_starts, held, is_bare, record_of, was_started
from ares.cluster.new_cluster import obstacle
from ares.cluster.settings import RUN_NAME, MemberSettings, ServerSettings, Settings
from ares.model.errors import AresError, BadInput, DirectoryLost
from ares.platform.interpreter import python
from ares.platform.named_files import read_named
from ares.platform.trusted_files import DIRECTORY_MADE_FOR_ALL, opener

PROCESS_STOP_S = 5.0
"""Seconds from SIGTERM to the kill of a process that does not stop."""

PORTS_FREED_S = 2.0
"""Seconds to wait for ports: a killed process holds them until its memory is freed."""

_PROCESS_POLL_S = 0.03
_LOG_LINES_SHOWN = 12
_PID_BYTES_MAX = 32
GATEWAY_ID = "gateway"
"""Id of the gateway beside the cluster's own processes."""

_ERROR_BEGIN = "error: "
"""The begin of an error message of `ares-cli`."""


class NotStarted(AresError):
    """Processes could not be started; already started processes are stopped again."""


class SupervisedProcess(Struct, frozen=True):
    """A process to run.

    ``kind``: the command of `ares-cli` to run; ``addresses``: the addresses to listen on; of a
    gateway, one.
    """

    id: str
    kind: str
    addresses: tuple[str, ...]


class Supervisor:
    """The processes of the cluster whose file is DIR/cluster.toml."""

    def __init__(self, cluster_file: Path) -> None:
        self._file = cluster_file.resolve()
        self._run = self._file.parent / RUN_NAME
        self._logs = self._file.parent / "logs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Keep further supervisors from starting the cluster inside the context.

        Raises :class:`BadInput` when another supervisor does.
        """
        return held(self._run)

    def running(self) -> dict[str, int]:
        """Return the pids of running processes of the cluster, started on this machine, by id."""
        pids = {}
        for path in sorted(self._run.glob("*.pid")):
            if (process := self._find(path)) is not None:
                pids[path.stem], descriptor = process
                os.close(descriptor)
        return pids

    def start(
        self, members: list[SupervisedProcess], timeout_s: float, interrupted: Callable[[], bool]
    ) -> dict[str, int]:
        """Start ``members``, none of which runs; wait until all serve, and return their pids by id.

        Call this inside :meth:`alone`. Raises :class:`NotStarted` when a process ends, says nothing
        for ``timeout_s`` or ``interrupted()`` turns true: in this case no process is left running.
        """
        self.check_ports(members)
        pids, left_out = self.start_what_can(members, timeout_s, interrupted)
        if left_out:
            self.stop(pids)
            why = "\n".join(f"{id}: {what}" for id, what in left_out.items())
            raise NotStarted(
                "all processes that this command had started are stopped again. Mend the cause: "
                f"{why}"
            )
        return pids

    def start_what_can(
        self, members: list[SupervisedProcess], timeout_s: float, interrupted: Callable[[], bool]
    ) -> tuple[dict[str, int], dict[str, str]]:
        """Start ``members``, none of which runs, and wait until each serves or is left out.

        Call this inside :meth:`alone`. A process is left out, and does not run, if it cannot
        listen, ends, or is silent for ``timeout_s``. Returns the pids of the serving processes, and
        the reasons for the left-out processes, both by id. Raises :class:`NotStarted` when
        ``interrupted()`` turns true: in this case no process is left running.
        """
        self._logs.mkdir(DIRECTORY_MADE_FOR_ALL, exist_ok=True)
        until_s = time.monotonic() + PORTS_FREED_S
        while (
            left_out := {
                member.id: f"was not started: {deaf}"
                for member in members
                if (deaf := _deaf(member))
            }
        ) and time.monotonic() < until_s:
            time.sleep(_PROCESS_POLL_S)
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

    def check_ports(self, members: list[SupervisedProcess], advice: str = "") -> None:
        """Raise :class:`NotStarted`, with ``advice``, if a port of ``members`` is unusable."""
        if deaf := [f"{member.id}: {why}" for member in members if (why := _deaf(member))]:
            raise NotStarted(f"nothing was started: {'; '.join(deaf)}{advice}")

    def ended(self) -> dict[str, int]:
        """Return the exit status, by id, of each child that has ended since the last call."""
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
        """Return the path of the process's log."""
        return self._logs / f"{id}.log"

    def kill(self, ids: Collection[str]) -> list[str]:
        """Kill with signal 9, and return when the processes are gone."""
        return self.stop(ids, [signal.SIGKILL])

    def stop(
        self,
        ids: Collection[str] | None = None,
        signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL),
    ) -> list[str]:
        """Stop these processes of the cluster, or all of this machine; return the stopped ids.

        Each signal has PROCESS_STOP_S seconds to work.
        """
        gateway = self._run / f"{GATEWAY_ID}.pid"
        if ids is None and gateway.exists():  # first: its end needs the servers
            return self.stop([GATEWAY_ID], signals) + self.stop(signals=signals)
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
                f"{', '.join(sorted(waiting.values()))} cannot be stopped, not even by SIGKILL; "
                f"their pids are in {self._run}"
            )
        for path in paths:
            if (child := self._children.pop(path.stem, None)) is not None:
                child.wait()
            path.unlink(missing_ok=True)
        return stopped

    def _signal_and_await(self, waiting: dict[int, str], number: signal.Signals) -> None:
        """Signal the processes behind the descriptors in ``waiting``.

        Processes ended within PROCESS_STOP_S are removed from ``waiting``.
        """
        for descriptor in waiting:
            with contextlib.suppress(ProcessLookupError):  # the process ended by itself
                signal.pidfd_send_signal(descriptor, number)
        deadline = time.monotonic() + PROCESS_STOP_S
        poller = select.poll()
        for descriptor in waiting:
            poller.register(descriptor, select.POLLIN)
        while waiting and (left_s := deadline - time.monotonic()) > 0:
            for descriptor, _ in poller.poll(left_s * 1000):
                poller.unregister(descriptor)
                del waiting[descriptor]
                os.close(descriptor)

    def _find(self, pid_file: Path) -> tuple[int, int] | None:
        """Return pid and descriptor of the process in ``pid_file``, if it belongs to this cluster.

        The caller closes the descriptor.
        """
        child = self._children.get(pid_file.stem)
        if child is not None and child.poll() is None:
            # the process is ours, though perhaps too young to have a command line
            return child.pid, os.pidfd_open(child.pid)
        try:
            pid = int(read_named(pid_file, _PID_BYTES_MAX, streams=False)[0])
            descriptor = os.pidfd_open(pid)
        except (
            ValueError,
            OverflowError,
            OSError,
        ):
            # a torn file, or no such process: no process to stop
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
        started = [os.fsdecode(word) for word in words[1:]]
        if id == GATEWAY_ID:
            return started[:-1] == self._gateway_command("")[1:-1]
        known = [self._command(kind, id)[1:] for kind in ("server", "consensus")]
        # releases before this release started Python without -P
        return started in known or ["-P", *started] in known

    def _command(self, kind: str, id: str) -> list[str]:
        return python("-m", "ares", kind, self._file, "--id", id)

    def _gateway_command(self, address: str) -> list[str]:
        return python("-m", "ares", "gateway", "--cluster", self._file, "--listen", address)

    def _spawn(self, member: SupervisedProcess) -> int:
        """Start a process; return the position in its log at which this run begins."""
        named = self._run / f"{member.id}.pid"
        named.unlink(missing_ok=True)  # of whatever type
        with (
            open(self.log_path(member.id), "ab", opener=opener) as log,
            open(named, "x", encoding="ascii", opener=opener) as pid_file,
        ):
            begin = log.tell()
            child = subprocess.Popen(
                self._gateway_command(member.addresses[0])
                if member.id == GATEWAY_ID
                else self._command(member.kind, member.id),
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
        """Wait until each process serves or certainly will not; return the latter, with reasons."""
        pending, left_out = dict(begun), {}
        while pending:
            if interrupted():
                raise NotStarted(
                    "interrupted: all processes that this command had started are stopped again"
                )
            late = time.monotonic() > deadline_s
            for id, begin in list(pending.items()):
                if f"READY {id} ".encode() not in self._log(id, begin):
                    if (status := self._children[id].poll()) is not None:
                        left_out[id] = self._story(id, begin, f"ended with status {status}")
                    elif late:
                        left_out[id] = self._story(
                            id,
                            begin,
                            "did not become ready in time (--timeout gives it more) and was "
                            "stopped",
                        )
                    else:
                        continue
                del pending[id]
            time.sleep(_PROCESS_POLL_S)
        return left_out

    def _log(self, id: str, begin: int) -> bytes:
        with open(self.log_path(id), "rb") as log:
            log.seek(begin)
            return log.read()

    def _story(self, id: str, begin: int, what: str) -> str:
        """Return the end of a process in words, with the process's last words, if any."""
        last = self._log(id, begin).decode("utf-8", "replace").splitlines()[-_LOG_LINES_SHOWN:]
        if last and last[-1].startswith(_ERROR_BEGIN):
            return f"{what}: {last[-1].removeprefix(_ERROR_BEGIN)}"
        shown = "\n".join(f"  {line}" for line in last) or "  (nothing)"
        return f"{what}. The end of {self.log_path(id)}:\n{shown}"


def members_of(settings: Settings) -> list[SupervisedProcess]:
    """Return every process of a cluster, consensus members first."""
    consensus = [
        SupervisedProcess(it.id, "consensus", tuple(filter(None, (it.address, it.raft, it.http))))
        for it in settings.members.values()
    ]
    return [
        *consensus,
        *(
            SupervisedProcess(it.id, "server", tuple(filter(None, (it.address, it.http))))
            for it in settings.servers.values()
        ),
    ]


def _deaf(member: SupervisedProcess) -> str:
    """Return the address where the process could not listen, and why; empty without an obstacle.

    The check comes before the start: without a disk, a failed start may cost the identity.
    """
    return ", ".join(
        f"{address} cannot be listened on: {why}"
        for address in member.addresses
        if (why := obstacle(*split_address(address)))
    )


# -- data directories ------------------------------------------------------------------------------


def started_before(settings: Settings) -> list[str]:
    """Return the servers that once ran and have lost their data if kept in memory only."""
    # not of a directory that is closed to this user
    return [
        server.id
        for server in settings.servers.values()
        if os.path.exists(server.data / CLAIM_NAME)
    ]


def started_as(process: ServerSettings | MemberSettings) -> str:
    """Return the name in the note that records a start, beside the directory of the process."""
    return process.identity if isinstance(process, ServerSettings) else process.id


def ran_there(process: ServerSettings | MemberSettings) -> bool:
    """Return whether the note beside the directory names the process; false if unreadable."""
    try:
        return was_started(process.data, started_as(process))
    except OSError:
        return False


def lost_directories(settings: Settings, ids: Collection[str]) -> dict[str, str]:
    """Return the processes that may not start, with remedies.

    Their directories are empty, and the processes are not new.
    """
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
    """Remove the directories of all processes, and the notes of their starts.

    Raises :class:`BadInput`, with nothing removed, if a directory is in use or outside the
    cluster's own directory.
    """
    home = settings.path.resolve().parent
    directories = {process.id: process.data for process in settings.processes()}
    for id, directory in directories.items():
        if home not in resolved(directory).parents:
            raise BadInput(
                f"the data of {id} is in {directory}, outside {home}: nothing was removed; "
                "remove it yourself, then try again"
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
                f"{error.filename} cannot be removed: {error.strerror}; remove it yourself, then "
                "try again"
            ) from error
