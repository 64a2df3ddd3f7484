"""Invocations of `ares-cli`, each in a forked process, with a report of the outcome.

Lines come in and go out as JSON. The process runs the entry point, with descriptors, environment
and arguments as at a start of Python. A process that an invocation left behind becomes a child of
this process, and is killed. This process owns no descriptors: they are closed in the command's
process.
"""

import ctypes
import gc
import json
import os
import pkgutil
import select
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import ares

LIMIT_S = 60.0
"""Seconds after which a command counts as hanging."""

SERVES_S = 3.0
"""Seconds after which a serving command is asked to stop."""

SERVING = {"up", "server", "consensus", "gateway", "top", "watch"}
_PACKAGES = tuple(
    f"ares.{name}."
    for name in (
        "cli",
        "client",
        "cluster",
        "consensus",
        "machine",
        "net",
        "security",
        "server",
        "store",
        "testing",
    )
)
_PRELOADED = [
    "ares.client.connect",
    "rich.console",
    "rich.markup",
    "rich.progress",
    "rich.table",
    "typer._adapters",
    "uvloop",
]
_PR_SET_CHILD_SUBREAPER = 36
_OUT_BYTES_MAX = 1 << 16
_DESCRIPTORS_MAX = 100


class Outcome(NamedTuple):
    """The outcome of an invocation.

    ``status`` is negative for the signal that ended the process; ``late`` means killed. Both
    streams are kept up to a limit.
    """

    status: int
    late: bool
    seconds: float
    out: str
    err: str


def _lines() -> Any:
    """Yield the lines of standard input."""
    said = b""
    while piece := os.read(0, 1 << 20):
        said += piece
        while b"\n" in said:
            line, _, said = said.partition(b"\n")
            yield line


def _put_in_place(
    environment: dict[str, str], streams: list[str], encoding: str, directory: str, usual: list[int]
) -> None:
    """Prepare the command's process as if it had been started in this way."""
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    for place, how in enumerate(streams):
        match how:
            case "closed":
                os.close(place)
            case "full":
                os.dup2(os.open("/dev/full", os.O_RDWR), place)
            case "broken":
                ends = os.pipe()  # they may have the numbers of closed streams
                os.dup2(ends[1] if place else ends[0], place)
                for end in ends:
                    if end != place:
                        os.close(end)
            case "garbage" if place == 0:
                os.dup2(os.open("/dev/urandom", os.O_RDONLY), place)
            case _:
                os.dup2(usual[place], place)
    os.closerange(3, _DESCRIPTORS_MAX)
    as_python_does = [(0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace")]
    sys.stdin, sys.stdout, sys.stderr = (  # type: ignore[assignment]
        None
        if how == "closed"
        else os.fdopen(place, mode, encoding=encoding, errors=errors, closefd=False)
        for how, (place, mode, errors) in zip(streams, as_python_does, strict=True)
    )


def _awaited(pid: int, seconds: float) -> bool:
    descriptor = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    ended = bool(poller.poll(1000 * seconds))
    os.close(descriptor)
    return ended


def _end_children() -> None:
    """End the remaining children of an ended command."""
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _outcome(pid: int, serves: bool, said: list[int]) -> Outcome:
    begin, late = time.monotonic(), False
    if not _awaited(pid, SERVES_S if serves else LIMIT_S):
        if serves:
            os.kill(pid, signal.SIGTERM)
        if not (serves and _awaited(pid, LIMIT_S)):
            late = True
            os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    seconds = time.monotonic() - begin
    _end_children()
    out, err = (
        os.pread(stream, _OUT_BYTES_MAX, 0).decode("utf-8", "backslashreplace") for stream in said
    )
    return Outcome(status, late, seconds, out, err)


def become_command() -> list[str]:
    """Run the incoming invocations.

    Return, with its words, in a process that becomes a command; exit at the end of standard input.
    """
    nothing = os.open(os.devnull, os.O_RDONLY)
    for line in _lines():
        case: dict[str, Any] = json.loads(line)
        words = case.pop("words")
        said = [os.memfd_create("out"), os.memfd_create("err")]
        pid = os.fork()
        if pid == 0:
            _put_in_place(**case, usual=[nothing, *said])
            return words
        outcome = _outcome(pid, bool(SERVING & set(words[:1])), said)
        os.write(1, json.dumps(outcome).encode() + b"\n")
        for descriptor in said:
            os.close(descriptor)
    sys.exit()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    found = [
        module.name
        for module in pkgutil.walk_packages(ares.__path__, "ares.")
        if module.name.startswith(_PACKAGES)
    ]
    for module in [*_PRELOADED, *found]:
        import_module(module)
    gc.collect()
    gc.freeze()
    sys.argv = ["ares-cli", *become_command()]
    from ares.cli.entry import main

    main()
