"""Processes as the kernel sees them: CPU, memory, free ports, and start and stop of programs.

Programs are stopped by pid.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from experiments import TICKS_PER_S

_PROGRAM_STOP_S = 10.0


class BenchError(Exception):
    """A store cannot be measured; other stores can."""


class ProgramNotStarted(BenchError):
    """A program did not start; the message has the end of its output."""


def end_on_sigterm() -> None:
    """Make SIGTERM and SIGHUP end this program as Ctrl-C does: its children are stopped first."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, _: sys.exit(128 + which))


def cpu_s(pid: int) -> float:
    """Return the processor seconds of the process, all threads; 0 for a dead process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cpu_of(pids: Iterable[int]) -> dict[int, float]:
    """Return :func:`cpu_s` of each."""
    return {pid: cpu_s(pid) for pid in pids}


def busy_s() -> float:
    """Return the seconds of processor time that the machine worked or its host took away."""
    user, nice, system, _idle, _wait, interrupts, soft, stolen = (
        int(field) for field in Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + interrupts + soft + stolen) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return the resident memory of the process; 0 for a dead process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def peak_bytes(pid: int) -> int:
    """Return the largest resident set so far of the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return free ports below the range that the kernel gives to outgoing connections."""
    found: list[int] = []
    port = 20_000 + int.from_bytes(os.urandom(2), "big") % 10_000
    while len(found) < count:
        port += 1
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
        found.append(port)
    return found


def is_on_memory(directory: Path) -> bool:
    """Return whether fsync is free in the directory, because no disk is behind it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    where = max(
        (mount for mount in mounts if directory.resolve().is_relative_to(mount[0])),
        key=lambda mount: len(mount[0]),
    )
    return where[1] in ("tmpfs", "ramfs")


@contextlib.contextmanager
def programs(
    directory: Path,
    commands: Mapping[str, Sequence[str]],
    environment: Mapping[str, str] | None = None,
    ready: tuple[bytes, float] | None = None,
) -> Iterator[dict[str, int]]:
    """Run the named commands at once, and yield their pids.

    The output is in NAME.log. ``ready``: a word that each program writes when it serves, and the
    seconds to wait for the word. Raises :class:`ProgramNotStarted`. At the end the programs get
    SIGTERM, then SIGKILL.
    """
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            with (directory / f"{name}.log").open("ab") as log:
                running[name] = subprocess.Popen(
                    words, stdout=log, stderr=log, cwd=directory, env=environment
                )
        for name in running if ready is not None else ():
            await_word(*ready, directory / f"{name}.log", running)
        yield {name: process.pid for name, process in running.items()}
    finally:
        for process in running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in running.values():
            try:
                process.wait(_PROGRAM_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def await_that(
    holds: Callable[[], object],
    what: str,
    timeout_s: float,
    log: Path,
    servers: Mapping[str, subprocess.Popen[bytes]] = MappingProxyType({}),
) -> None:
    """Test `holds` until it is true. Raises :class:`ProgramNotStarted` with the end of the log.

    The error follows after ``timeout_s``, or when a server ended. ``log`` is of the awaited server.
    ``servers`` has all needed servers, by the names of their logs, in the same directory.
    """
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        ended = [name for name, server in servers.items() if server.poll() is not None]
        if ended or time.monotonic() > deadline_s:
            why = f"{ended[0]} ended" if ended else f"{timeout_s:g} s went by"
            log = log.with_name(f"{ended[0]}.log") if ended else log
            said = log.read_text(errors="replace")[-1500:].strip() if log.exists() else ""
            raise ProgramNotStarted(
                f"it was waited until {what}, but {why}: {said or 'it said nothing'}"
            )
        time.sleep(0.05)


def await_word(
    word: bytes, timeout_s: float, log: Path, servers: Mapping[str, subprocess.Popen[bytes]]
) -> None:
    """Wait until a program has written this into its log. Raises :class:`ProgramNotStarted`.

    ``servers``: see :func:`await_that`.
    """

    def serves() -> bool:
        return log.exists() and word in log.read_bytes()

    await_that(serves, f"{log.stem} serves", timeout_s, log, servers)
