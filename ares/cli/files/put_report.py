"""The report of a put: moved amounts, conflicts with their remedies, and both sides as files."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from blake3 import blake3
from msgspec import structs

from ares.cli.local_files import STANDARD_STREAM, LocalEnd
from ares.cli.terminal import printable, size
from ares.platform.replacement import COPY_BYTES

if TYPE_CHECKING:
    from ares.fragment.report import Conflict, WriteReport

CONFLICTS_SHOWN_MAX = 20
"""The number of conflicts shown to a person; --json has all."""

NAME_CHARACTERS_MAX = 100


def conflict_text(
    conflicts: "Sequence[Conflict]", name: str, domain: str | None, file: Path, theirs: bool
) -> str:
    """Return a paragraph for stderr: conflicting ranges of ``file``, losses, and remedies."""
    from ares.fragment.report import DELETED_MEANWHILE

    whole = len(conflicts) == 1 and conflicts[0].block is None and conflicts[0].whole_file
    what, local, origin = (
        shell_words(name, domain),
        shlex.quote(str(file)),
        printable(str(file)) if file != STANDARD_STREAM else "standard input",
    )
    many = f"{len(conflicts)} ranges" if len(conflicts) > 1 else "1 range"
    lines = [
        (
            f"{'left as other clients wrote it' if theirs else 'conflict'}: {many} of {origin} did "
            f"not get into {printable(name)}"
        )
    ]
    lines += [
        f"  {_range(conflict)}: {conflict.why}" for conflict in conflicts[:CONFLICTS_SHOWN_MAX]
    ]
    if more := conflicts[CONFLICTS_SHOWN_MAX:]:
        lines.append(f"  ... and {len(more)} more; --json shows all")
    rest = "nothing else was changed" if whole else "all other changes are in the cluster"
    lines.append(f"Nothing of theirs was overwritten, {origin} is as it was, and {rest}.")
    if whole and conflicts[0].why == DELETED_MEANWHILE:
        lines.append(f"To make it anew: ares-cli put {local} {what} --mine")
    elif theirs:
        lines.append(f"To have theirs here: ares-cli get {what} {local}")
    else:
        lines += [
            "Choose:",
            f"  ares-cli put {local} {what} --mine                 your ranges replace theirs",
            (
                f"  ares-cli put {local} {what} --theirs               leave theirs; `ares-cli get "
                f"{what} {local}` then brings them here"
            ),
            (
                f"  ares-cli put {local} {what} --save-conflicts DIR   write both sides into DIR; "
                f"put them together in {origin}, and put that"
            ),
        ]
    return "\n".join(lines)


def shell_words(name: str, domain: str | None) -> str:
    """Return a file's name in words of a command line."""
    return (
        f"{shlex.quote(name)} --domain {shlex.quote(domain)}"
        if domain is not None
        else shlex.quote(name)
    )


def _range(conflict: "Conflict") -> str:
    if not conflict.length:
        return f"at byte {conflict.offset} (bytes were removed at this position)"
    return (
        f"bytes {conflict.offset} to {conflict.offset + conflict.length - 1} "
        f"({size(conflict.length)})"
    )


def save_both_sides(
    conflicts: "Sequence[Conflict]", directory: Path, name: str, content: Path
) -> list[str]:
    """Write NAME.OFFSET.mine, the range of the local ``content``, and NAME.OFFSET.theirs.

    The latter is written only if it exists. Returns the paths.
    """
    if not conflicts:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:NAME_CHARACTERS_MAX]
    if stem != name:  # files of other names may not get these names
        stem += f"-{blake3(name.encode()).hexdigest(4)}"
    used, paths = set[str](), []
    with content.open("rb") as stream:
        for conflict in conflicts:
            place = f"{stem}.{conflict.offset}"
            while place in used:
                # two edits may share a place: a removal, and an insertion by the other client
                place += "+"
            used.add(place)
            mine = directory / f"{place}.mine"
            stream.seek(conflict.offset)
            with mine.open("wb") as out:
                left = conflict.length
                while left and (piece := stream.read(min(left, COPY_BYTES))):
                    out.write(piece)
                    left -= len(piece)
            paths.append(str(mine))
            if conflict.theirs is not None:
                theirs = directory / f"{place}.theirs"
                theirs.write_bytes(conflict.theirs)
                paths.append(str(theirs))
    return paths


def report_data(report: "WriteReport") -> dict[str, object]:
    """Return the report, for programs."""
    conflicts = [
        {name: getattr(conflict, name) for name in ("offset", "length", "why")}
        | {"theirs_bytes": len(conflict.theirs) if conflict.theirs is not None else None}
        for conflict in report.conflicts
    ]
    return structs.asdict(report) | {"conflicts": conflicts}


def put_sentence(report: "WriteReport", size_bytes: int) -> str:
    """Return the moved blocks and bytes of a put, in words."""
    sent, moved = report.modified + report.inserted, size(report.moved_bytes)
    return (
        f"{sent} of {report.kept + sent} blocks, {moved} of {size(size_bytes)} moved "
        f"({report.describe()})"
    )


def report_rest(
    report: "WriteReport",
    name: str,
    domain: str | None,
    file: Path,
    theirs: bool,
    saved: list[str],
    source: LocalEnd,
) -> None:
    """Report the rest of a put; conflicts on stderr.

    A write to a local file behind the already read part is not in the put, and would stay unnoticed
    without this report.
    """
    if report.merged:
        others = (
            "1 other block, which stays as it is"
            if report.merged == 1
            else f"{report.merged} other blocks, which stay as they are"
        )
        typer.echo(
            f"{printable(name)} is not byte for byte {printable(str(file))}: other clients "
            f"changed {others}; `ares-cli get` brings the cluster's content"
        )
    if report.conflicts:
        typer.echo(conflict_text(report.conflicts, name, domain, file, theirs), err=True)
    if saved:
        typer.echo(f"saved: {', '.join(saved)}", err=True)
    if (
        source.path is not None
        and source.path.exists()
        and (now := source.path.stat().st_size) > source.size_bytes
    ):
        late = (
            f"a program writes to it, and its last {size(now - source.size_bytes)} may not be in "
            f"{printable(name)}: put it again"
        )
        typer.echo(f"note: {printable(str(source.path))} has grown since: {late}", err=True)
