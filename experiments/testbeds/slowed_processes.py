"""Hosts of a testbed on this machine by name, and their processes: slowed, or killed."""

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.testbeds.testbed_plan import FIRST_HOST, HostPlan, LinkPlan, check

PERIOD_S = 0.1
"""Period of a slowed process, which runs in the first part, as with the kernel's CPU limits."""


class SlowedProcesses:
    """The processes that are slowed at the moment: stopped and continued in turns.

    All testbeds slow by SIGSTOP and SIGCONT, and not by cgroups: the method works the same on every
    machine, with root and without, and slows a process below its share of the processor as well. If
    the slowing process is killed, slowed processes may stay stopped.
    """

    def __init__(self) -> None:
        self._slowed: dict[int, tuple[threading.Event, threading.Thread]] = {}

    def slow(self, pattern: str, percent: float, candidates: Iterable[int]) -> list[int]:
        """Do the work of :meth:`experiments.testbeds.testbed_plan.Testbed.slow`.

        ``candidates`` are pids of the host.
        """
        if not 1 <= percent <= 100:
            raise BadInput(
                f"a process can be slowed to 1 to 100 percent, not {percent:g}; nothing was changed"
            )
        chosen = matching(pattern, candidates)
        for pid in chosen:
            self._release(pid)
            if percent < 100:
                done = threading.Event()
                thread = threading.Thread(target=_turns, args=(pid, percent / 100, done))
                self._slowed[pid] = done, thread
                thread.start()
        return chosen

    def _release(self, pid: int) -> None:
        if pid in self._slowed:
            done, thread = self._slowed.pop(pid)
            done.set()
            thread.join()

    def end(self) -> None:
        """Let all slowed processes run."""
        for pid in list(self._slowed):
            self._release(pid)


def _turns(pid: int, share: float, done: threading.Event) -> None:
    """Stop the process for the rest of every period, after ``share`` of it."""
    with contextlib.suppress(ProcessLookupError):
        while not done.is_set():
            os.kill(pid, signal.SIGSTOP)
            done.wait(PERIOD_S * (1 - share))
            os.kill(pid, signal.SIGCONT)
            done.wait(PERIOD_S * share)


class MadeHosts:
    """The hosts of a testbed on this machine. Raises BadInput for hosts that cannot be."""

    def __init__(self, hosts: Sequence[HostPlan], links: Sequence[LinkPlan] = ()) -> None:
        self.sites = check(hosts, links)
        self.hosts = {host.name: host for host in hosts}
        self.duty = SlowedProcesses()

    def host(self, name: str) -> HostPlan:
        """Return the host. Raises BadInput for another name."""
        if name not in self.hosts:
            raise BadInput(
                f"there is no host {printable(name)!r}; there are {', '.join(self.hosts)}. "
                "Nothing was changed"
            )
        return self.hosts[name]

    def place(self, name: str) -> tuple[int, int]:
        """Return the numbers of the site and of the host, for an address."""
        site = self.hosts[name].site
        beside = [each.name for each in self.hosts.values() if each.site == site]
        return self.sites.index(site), FIRST_HOST + beside.index(name)

    def processes(self, host: str) -> list[int]:
        """Return the pids of the host's processes. Raises BadInput for another name."""
        raise NotImplementedError

    def slow(self, host: str, pattern: str, percent: float) -> list[int]:
        return self.duty.slow(pattern, percent, self.processes(host))

    def kill(self, host: str, pattern: str) -> list[int]:
        chosen = matching(pattern, self.processes(host))
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):  # the process is gone already
                os.kill(pid, signal.SIGKILL)
        return chosen


def matching(pattern: str, candidates: Iterable[int]) -> list[int]:
    """Return the candidates with this regular expression in the command line.

    Raises BadInput if no candidate has it.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise BadInput(
            f"{printable(pattern)!r} is not a regular expression ({error}); nothing was changed"
        ) from None
    chosen = [pid for pid in candidates if expression.search(command_line(pid))]
    if not chosen:
        raise BadInput(
            f"no process of this host has {printable(pattern)!r} in its command line; nothing "
            "was changed"
        )
    return chosen


def command_line(pid: int) -> str:
    """Return the command line as a single line; empty for a process that is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")
