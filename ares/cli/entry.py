"""Where `ares-cli` begins and ends: what must hold before any command is imported, and after the last one.

A signal before that ends the process at once and silently, as nothing has begun. The three standard streams are open, whatever the process was given:
a file or socket that got one of their numbers would be written to as if it were the stream, and libuv ends a process that closes one of them.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, TextIO


def main() -> None:
    """The entry point of `ares-cli`."""
    interrupt = signal.getsignal(signal.SIGINT)
    _end_silently()
    open_standard_streams()
    process = _process(sys.argv[1:])
    status = _run_command(interrupt) if process is None else _run_process(process)
    sys.exit(status if _flushed() else status or 1)


def _run_command(interrupt: Any) -> int:
    """``interrupt``: what SIGINT did."""
    from ares.cli.main import Ending, run

    ending = Ending()
    try:
        signal.signal(signal.SIGTERM, ending)
        signal.signal(signal.SIGINT, interrupt)
        return run(sys.argv[1:], ending)
    except KeyboardInterrupt:  # a second one, when the first was being told
        return ending.status
    finally:
        _end_silently()


def _run_process(process: Callable[[], None]) -> int:
    try:
        process()
        return 0
    except (Exception, KeyboardInterrupt) as error:
        from ares.cli.main import Ending, told

        return told(error, False, Ending())


def _process(words: Sequence[str]) -> Callable[[], None] | None:
    """What `server FILE --id ID` and `consensus FILE --id ID` run, in just these words, which supervisors write; None for other command lines.

    It is what ares/cli/local/cluster_commands.py runs, without what reads command lines: that takes a third of the time in which a process starts.
    """
    match words:
        case ["server" | "consensus" as kind, file, "--id", id] if not (
            file.startswith("-") or id.startswith("-")
        ):
            from ares.server import process

            return partial(
                process.run_storage_server if kind == "server" else process.run_consensus_member,
                Path(file),
                id,
            )
    return None


def _end_silently() -> None:
    """What signals do while no command runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def open_standard_streams() -> None:
    """Open those that are closed, so that using one fails as it should. What the encoding of an output lacks is written with backslashes."""
    sys.stdin = sys.stdin or _failing("r", os.O_WRONLY)
    sys.stdout = sys.stdout or _failing("w", os.O_RDONLY)
    sys.stderr = sys.stderr or _failing("w", os.O_RDONLY)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _failing(use: Literal["r", "w"], mode: int) -> TextIO:
    """A stream on the lowest descriptor, which is that of a stream that is closed; ``mode`` does not allow the ``use``."""
    descriptor = os.open(os.devnull, mode)
    os.set_inheritable(descriptor, True)
    return open(descriptor, use, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flushed() -> bool:
    """Whether everything that was written went out. What did not is dropped: Python would complain about it at its end."""
    whole = True
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            whole = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return whole
