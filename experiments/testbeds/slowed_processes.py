"""Slowed processes: stopped and continued in turns."""

import contextlib
import os
import re
import signal
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.bench.store_processes import SlowedProcess


class SlowedProcesses:
    """The processes that are slowed at the moment.

    All testbeds slow by SIGSTOP and SIGCONT, and not by cgroups: the method works the same on every
    machine, with root and without, and slows a process below its share of the processor as well. If
    the slowing process is killed, slowed processes may stay stopped.
    """

    def __init__(self) -> None:
        self._slowed: dict[int, ExitStack] = {}

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
            if former := self._slowed.pop(pid, None):
                former.close()
            if percent < 100:
                self._slowed[pid] = ExitStack()
                self._slowed[pid].enter_context(SlowedProcess(pid, percent / 100))
        return chosen

    def end(self) -> None:
        """Let all slowed processes run."""
        while self._slowed:
            self._slowed.popitem()[1].close()


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


def kill(pattern: str, candidates: Iterable[int]) -> list[int]:
    """Do the work of :meth:`experiments.testbeds.testbed_plan.Testbed.kill`."""
    chosen = matching(pattern, candidates)
    for pid in chosen:
        with contextlib.suppress(ProcessLookupError):  # the process is gone already
            os.kill(pid, signal.SIGKILL)
    return chosen


def command_line(pid: int) -> str:
    """Return the command line as a single line; empty for a process that is gone."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .rstrip(b"\0")
            .replace(b"\0", b" ")
            .decode(errors="replace")
        )
    except OSError:
        return ""
