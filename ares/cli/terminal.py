"""Words typed and shown on a terminal: amounts, names, and the progress of a long command."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ares.model.errors import BadInput
from ares.model.units import size as size

STATUS_INTERRUPTED = 130
"""Exit status after SIGINT, as of a shell."""

_BYTES_OF_UNIT = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SECONDS_OF_UNIT = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def parse_size(text: str) -> int:
    """Return bytes of a number with K, M or G for 1024, 1024 * 1024 or 1024 * 1024 * 1024.

    512KiB equals 512K.
    """
    short = (
        text.upper().removesuffix("IB")
        if text.upper().endswith(("KIB", "MIB", "GIB"))
        else text.upper()
    )
    return _parsed(
        short,
        _BYTES_OF_UNIT,
        "a size is a number of bytes, or one with K, M or G, for example 512K",
        text,
    )


def parse_seconds(text: str) -> int:
    """Return seconds of a number with s, m, h or d."""
    return _parsed(
        text,
        _SECONDS_OF_UNIT,
        "a time is a number of seconds, or one with m, h or d, for example 24h",
        text,
    )


def _parsed(text: str, units: dict[str, int], expected: str, given: str) -> int:
    found = re.fullmatch(rf"([0-9]{{1,12}})([{''.join(units)}]?)", text)
    if found is None:
        raise BadInput(f"{expected}, not {given!r}")
    return int(found[1]) * units[found[2]]


def printable(text: str) -> str:
    """Return ``text`` fit for a terminal: a name with control characters as a literal."""
    return text if text.isprintable() else repr(text)


Show = Callable[[str, int, int, str], None]


@contextmanager
def progress_bar(stage: str) -> Iterator[Show]:
    """Show the progress on stderr, if stderr is a terminal.

    FORCE_COLOR makes no terminal of a file. The yielded function takes a stage, the done amount,
    the total (0: not known yet), and a text.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("  {task.description:15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(stage, total=None, text="")
        yield lambda stage, done, total, text: bar.update(
            task, description=stage, completed=done, total=total or None, text=text
        )
