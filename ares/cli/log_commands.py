"""Commands about logs: log create, append, read, tail, follow, trim, stat.

docs/log.md describes them under "Using a log".
"""

import asyncio
import base64
import json
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from msgspec import Struct

from ares.cli.domains.configuration_options import AllowNoFaults, described, wished_configuration
from ares.cli.domains.domain_commands import DomainExists
from ares.cli.local_files import (
    STANDARD_STREAM,
    naming,
    opened_source,
    read_piece,
    reporting_interruption,
    standard_output,
)
from ares.cli.options import Result, SharedOptions, with_manager
from ares.cli.terminal import Show, printable, progress_bar, size
from ares.model.configuration import Configuration
from ares.model.errors import AppendUncertain, AresError, BadInput, NotWritten, Trimmed
from ares.model.log_messages import BATCH_ENTRIES_MAX, ENTRY_BYTES_MAX, RECORD_BYTES_MAX

if TYPE_CHECKING:
    from ares.client.manager import Manager
    from ares.client.shared_log import Log

APPENDS_AT_ONCE = 16
"""Appends of lines under way at once."""

RANGE = 4096

Name = Annotated[str, typer.Argument(metavar="NAME", help="The log's name.", show_default=False)]
Position = Annotated[
    int, typer.Argument(metavar="P", min=0, help="A position: 0, 1, 2, ...", show_default=False)
]
Servers = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="s0,s1,...",
        help="The ids of the chain's servers, head first, with commas.",
        show_default=False,
    ),
]
Input = Annotated[
    Path,
    typer.Argument(
        metavar="[FILE|-]", help="The entry; standard input by default.", show_default=False
    ),
]
At = Annotated[
    int | None,
    typer.Option(
        "--at",
        metavar="P",
        min=0,
        help="Only if the (first) entry gets exactly this position.",
        show_default=False,
    ),
]


def create(
    common: SharedOptions,
    name: Name,
    servers: Servers = None,
    allow_no_faults: AllowNoFaults = False,
) -> None:
    """Make a log: a totally ordered sequence of entries, kept by a chain of servers.

    `ares-cli reconfig --dap chain` moves it to another chain.
    """
    wished = wished_configuration(common, "chain", None, None, servers, allow_no_faults)

    async def use(manager: "Manager") -> tuple[Configuration, bool]:
        log, created = await manager.create_log(name, wished)
        return log.configuration if created else await log.current(), created

    configuration, created = with_manager(common, use)
    if not created:
        change = f"`ares-cli reconfig --domain {shlex.quote(name)} --dap chain` changes that"
        raise DomainExists(
            f"log {name!r} exists already, with {configuration.describe()}; {change}"
        )
    common.report(
        described(name, configuration), f"log {printable(name)}: {configuration.describe()}"
    )


def append(
    common: SharedOptions,
    name: Name,
    file: Input = STANDARD_STREAM,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines",
            help="Each line is an entry, without its line end, and is appended as it comes.",
        ),
    ] = False,
    at: At = None,
) -> None:
    """Append a file, or standard input, as one entry, or an entry per line; prints the position.

    With --lines and --at all lines are one append: all are appended, or none.
    """
    try:
        source = opened_source(file)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}; nothing was sent") from error
    with source, naming(file):
        done = (
            _append_lines(common, name, source)
            if lines and at is None
            else _append_once(common, name, source, lines, at)
        )
    data = {"log": name, "entries": done.entries, "position": done.first, "last": done.last}
    common.report(
        data,
        f"{done.first}"
        if not lines
        else f"{done.entries} entries"
        + (f", from {done.first} to {done.last}" if done.entries else ""),
    )


class AppendTally(Struct):
    """The acknowledged ``entries`` between the positions ``first`` and ``last``."""

    entries: int = 0
    first: int | None = None
    last: int | None = None

    def take(self, count: int, position: asyncio.Future[int]) -> None:
        """Note the end of an append of ``count`` entries; count them if acknowledged."""
        if not position.cancelled() and position.exception() is None:
            self.entries += count
            self.first = position.result() if self.first is None else self.first
            self.last = position.result() + count - 1


def _append_once(
    common: SharedOptions, name: str, source: BinaryIO, lines: bool, at: int | None
) -> AppendTally:
    limit = RECORD_BYTES_MAX if lines else ENTRY_BYTES_MAX
    content = source.read(limit + 1)
    if len(content) > limit:
        raise BadInput(
            f"{'one append' if lines else 'an entry'} has at most {size(limit)}, and the input "
            "has more; nothing was sent"
        )
    entries = [content]
    if lines:
        entries = content.removesuffix(b"\n").split(b"\n") if content else []
    position = _with_log(common, name, lambda log: log.append_many(entries, at=at))
    return AppendTally(len(entries), position, position + len(entries) - 1)


def _append_lines(common: SharedOptions, name: str, source: BinaryIO) -> AppendTally:
    """Append lines as they come, many under way at once; only these are in memory."""
    done = AppendTally()

    def so_far() -> str:
        return f"{done.entries} lines are in the log" + (
            f", the last at {done.last}" if done.entries else ""
        )

    try:
        with (
            reporting_interruption(lambda: f"{so_far()}; lines after them may be, too"),
            progress_bar("append") as show,
        ):
            _with_log(common, name, lambda log: _feed(log, source, done, show))
    except AppendUncertain as error:
        raise AppendUncertain(f"{so_far()}, and then {error.why}") from error
    except AresError as error:
        if not done.entries:
            raise
        raise AresError(f"{so_far()}, and nothing after them: {error}") from error
    return done


async def _feed(log: "Log", source: BinaryIO, done: AppendTally, show: Show) -> None:
    under_way: deque[asyncio.Future[int]] = deque()
    taken, rest = 0, b""

    def begin(batch: list[bytes]) -> None:
        position = log.append_many(batch)
        position.add_done_callback(partial(done.take, len(batch)))
        under_way.append(position)

    try:
        while read := await read_piece(source):
            *lines, rest = (rest + read).split(b"\n")
            if len(rest) > ENTRY_BYTES_MAX:  # the log refuses the line, with its number
                lines.append(rest)
            for batch in _batches(lines, taken):
                while len(under_way) >= APPENDS_AT_ONCE:
                    await under_way.popleft()
                begin(batch)
                taken += len(batch)
            show("append", done.entries, 0, "lines")
        if rest:
            begin([rest])
    finally:
        while under_way:
            await under_way.popleft()


def _batches(lines: list[bytes], before: int) -> Iterable[list[bytes]]:
    """Yield ``lines`` in appends of the largest allowed size.

    ``before``: the number of earlier lines, for an error message.
    """
    batch: list[bytes] = []
    filled = 0
    for number, line in enumerate(lines, before + 1):
        if len(line) > ENTRY_BYTES_MAX:
            raise BadInput(
                f"line {number} has more than the {size(ENTRY_BYTES_MAX)} that an entry may have"
            )
        if len(batch) == BATCH_ENTRIES_MAX or filled + len(line) > RECORD_BYTES_MAX:
            yield batch
            batch, filled = [], 0
        batch.append(line)
        filled += len(line)
    if batch:
        yield batch


def read(
    common: SharedOptions,
    name: Name,
    position: Position,
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="Q",
            min=0,
            help="Print the entries from P on and below Q, as far as they exist.",
        ),
    ] = None,
    uncommitted: Annotated[
        bool,
        typer.Option(
            "--uncommitted",
            help="Print a server's entry, which a reconfiguration may still take back.",
        ),
    ] = False,
) -> None:
    """Print the entry at P, byte for byte; with --to several, each with a line end.

    With --json a line for each, as base64.
    """
    if to is not None and (uncommitted or to <= position):
        raise BadInput(
            "--to names a position beyond P, and reads up to it are of committed entries: leave "
            "out --uncommitted"
        )

    async def use(log: "Log") -> None:
        if to is None:
            entry = await log.read(position, uncommitted=uncommitted)
            with standard_output() as out:
                out.write(_line(position, entry) if common.json else entry)
            return
        first = position
        while first < to:
            try:
                pairs = await log.read_range(first, min(to, first + RANGE))
            except NotWritten:
                if first == position:
                    raise
                return
            _print(pairs, bool(common.json))
            first += len(pairs)

    _with_log(common, name, use)


def tail(common: SharedOptions, name: Name) -> None:
    """Print the next position of the log: the number of entries ever appended."""
    position = _with_log(common, name, lambda log: log.tail())
    common.report({"log": name, "tail": position}, f"{position}")


def follow(
    common: SharedOptions,
    name: Name,
    first: Annotated[
        int | None,
        typer.Option(
            "--from",
            metavar="P",
            min=0,
            help="Begin at P (default: at the first entry that is not trimmed).",
        ),
    ] = None,
) -> None:
    """Print entries as they come, each with a line end, until Ctrl-C.

    The next position is printed at the end. With --json a line for each, as base64.
    """
    upcoming = first or 0

    async def use(log: "Log") -> None:
        nonlocal upcoming
        while True:
            try:
                async for position, entry in log.follow(upcoming):
                    _print([(position, entry)], bool(common.json))
                    upcoming = position + 1
            except Trimmed as trimmed:
                if first is not None or upcoming:
                    raise
                upcoming = trimmed.upto

    with reporting_interruption(lambda: f"--from {upcoming} goes on where this ended"):
        _with_log(common, name, use)


def trim(common: SharedOptions, name: Name, position: Position) -> None:
    """Give up the entries below P: their room is given back, and reading them fails."""
    _with_log(common, name, lambda log: log.trim(position))
    common.report(
        {"log": name, "trimmed": position}, f"log {printable(name)}: trimmed up to {position}"
    )


def stat(common: SharedOptions, name: Name) -> None:
    """Show how far the log NAME goes, and the chain that takes its appends."""
    found = _with_log(common, name, lambda log: log.stat())
    chain = found.configuration
    held = (
        f"{found.tail - found.first}, from {found.first} to {found.tail - 1}"
        if found.tail > found.first
        else "none"
    )
    lines = [
        f"log            {printable(name)}",
        f"entries        {held}",
        f"tail           {found.tail}",
        f"configuration  {chain.index}: {chain.describe()}",
    ]
    common.report(
        {"first": found.first, "tail": found.tail, "start": chain.start} | described(name, chain),
        "\n".join(lines),
    )


def _with_log(
    common: SharedOptions, name: str, use: "Callable[[Log], Awaitable[Result]]"
) -> Result:
    """Return the result of ``use`` with the log. Raises :class:`ares.DomainNotFound`."""

    async def opened(manager: "Manager") -> Result:
        return await use(await manager.log(name))

    return with_manager(common, opened)


def _print(pairs: Iterable[tuple[int, bytes]], as_json: bool) -> None:
    with standard_output() as out:
        out.writelines(
            _line(position, entry) if as_json else entry + b"\n" for position, entry in pairs
        )


def _line(position: int, entry: bytes) -> bytes:
    return (
        json.dumps(
            {"position": position, "base64": base64.b64encode(entry).decode("ascii")}
        ).encode()
        + b"\n"
    )
