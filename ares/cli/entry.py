"""The begin and end of `ares-cli`: preparations before any import of a command, and the last flush.

A signal before the imports ends the process at once and silently, as no work has begun. The three
standard streams are open, even if the process was started without them: a file or socket with a
stream's number would be written to as if it were the stream, and libuv ends a process that closes a
standard stream.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, TextIO


def main() -> None:
    """Run `ares-cli`: the entry point."""
    interrupt = signal.getsignal(signal.SIGINT)
    _end_silently()
    open_standard_streams()
    drop_odd_sizes()
    process = _process(sys.argv[1:])
    status = _run_command(interrupt) if process is None else _run_process(process)
    sys.exit(status if _flushed() else status or 1)


def _run_command(interrupt: Any) -> int:
    """Run the command line. ``interrupt``: the earlier action of SIGINT."""
    from ares.cli.main import TerminationHandler, run

    ending = TerminationHandler()
    try:
        signal.signal(signal.SIGTERM, ending)
        signal.signal(signal.SIGINT, interrupt)
        return run(sys.argv[1:], ending)
    except KeyboardInterrupt:  # a second interrupt, during the report of the first
        return ending.status
    finally:
        _end_silently()


def _run_process(process: Callable[[], None]) -> int:
    try:
        process()
        return 0
    except (Exception, KeyboardInterrupt) as error:
        from ares.cli.main import TerminationHandler, report_error

        return report_error(error, False, TerminationHandler())


def _process(words: Sequence[str]) -> Callable[[], None] | None:
    """Return the process of `server FILE --id ID` or `consensus FILE --id ID`; ``None`` otherwise.

    Only these exact words count, which supervisors write. The process is the code of
    ares/cli/local/process_commands.py, without the parser of command lines: the parser takes a
    third of a process's start.
    """
    match words:
        case ["server" | "consensus" as kind, file, "--id", id] if not (
            file.startswith("-") or id.startswith("-")
        ):
            from ares.server import process_lifecycle

            return partial(
                process_lifecycle.run_storage_server
                if kind == "server"
                else process_lifecycle.run_consensus_member,
                Path(file),
                id,
            )
    return None


def _end_silently() -> None:
    """End the process at once: the action of signals while no command runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def open_standard_streams() -> None:
    """Open closed standard streams, to make their use fail properly.

    Characters outside the encoding of an output are written with backslashes.
    """
    sys.stdin = sys.stdin or _failing("r", os.O_WRONLY)
    sys.stdout = sys.stdout or _failing("w", os.O_RDONLY)
    sys.stderr = sys.stderr or _failing("w", os.O_RDONLY)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def drop_odd_sizes() -> None:
    """Drop COLUMNS and LINES of the environment unless they are the numbers of a terminal.

    A table of 10**30 columns fits into no memory.
    """
    for name in ("COLUMNS", "LINES"):
        if re.fullmatch("[0-9]{1,4}", os.environ.get(name, "")) is None:
            os.environ.pop(name, None)


def _failing(use: Literal["r", "w"], mode: int) -> TextIO:
    """Open a stream on the lowest free descriptor, the number of the closed stream.

    ``mode`` does not allow the ``use``: every use fails.
    """
    descriptor = os.open(os.devnull, mode)
    os.set_inheritable(descriptor, True)
    return open(descriptor, use, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flushed() -> bool:
    """Flush all output, and return whether it was written.

    Unwritten output is dropped: Python would complain about it at the end.
    """
    whole = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            whole = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return whole
