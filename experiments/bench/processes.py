"""Processes as the kernel sees them: CPU, memory; free ports; programs that are started, waited for and stopped by pid."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PERIOD_S = 0.1
"""Of a slowed process: it runs in the first part of each period, as the kernel's own CPU limits would have it."""

_STOP_S = 10.0


class BenchError(Exception):
    """One store cannot be measured; the others can."""


class NotStarted(BenchError):
    """A program did not come up; the message has the end of what it said."""


def end_on_sigterm() -> None:
    """Have SIGTERM and SIGHUP end this program as Ctrl-C does: what it started is stopped first."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, _: sys.exit(128 + which))


def cpu_s(pid: int) -> float:
    """Seconds of processor time that the process has taken, all threads; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cpu_of(pids: Iterable[int]) -> dict[int, float]:
    """:func:`cpu_s` of each."""
    return {pid: cpu_s(pid) for pid in pids}


def busy_s() -> float:
    """Seconds of processor time that the whole machine was at work, or its host kept for others."""
    user, nice, system, _idle, _wait, interrupts, soft, stolen = (
        int(field) for field in Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + interrupts + soft + stolen) / TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """What the process has in memory; 0 for one that is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def peak_bytes(pid: int) -> int:
    """The largest resident set that the process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens on, below those that outgoing connections are given."""
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
    """Whether fsync costs nothing there, because no disk is behind it."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    where = max(
        (mount for mount in mounts if directory.resolve().is_relative_to(mount[0])),
        key=lambda mount: len(mount[0]),
    )
    return where[1] in ("tmpfs", "ramfs")


def installed(program: str) -> str | None:
    """Where the program is, or None."""
    return shutil.which(program)


@contextlib.contextmanager
def programs(
    directory: Path,
    commands: Mapping[str, Sequence[str]],
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, int]]:
    """Run these at once, each by its name; their pids. What they say is in NAME.log. They are stopped at the end: SIGTERM, then SIGKILL."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in commands.items():
            with (directory / f"{name}.log").open("ab") as log:
                running[name] = subprocess.Popen(
                    words, stdout=log, stderr=log, cwd=directory, env=environment
                )
        yield {name: process.pid for name, process in running.items()}
    finally:
        for process in running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in running.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def await_that(holds: Callable[[], bool], what: str, timeout_s: float, log: Path) -> None:
    """Ask every 50 ms. Raises :class:`NotStarted` after ``timeout_s``."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline_s:
            said = log.read_text(errors="replace")[-1500:] if log.exists() else ""
            raise NotStarted(f"{what} did not happen in {timeout_s:g} s: {said}")
        time.sleep(0.05)


class Slowed:
    """A process that gets ``share`` of one processor at most, from entering to leaving: it is stopped for the rest of every period."""

    def __init__(self, pid: int, share: float) -> None:
        self._pid = pid
        self._share = share
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._turns)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _turns(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            while not self._done.is_set():
                os.kill(self._pid, signal.SIGSTOP)
                self._done.wait(PERIOD_S * (1 - self._share))
                os.kill(self._pid, signal.SIGCONT)
                self._done.wait(PERIOD_S * self._share)
