"""Conflicts of a put: what a person is told of them, and both sides as files."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from ares.cli.command_connection import printable, size
from ares.cli.files.local_files import STANDARD_STREAM

if TYPE_CHECKING:
    from ares.fragment.report import Conflict, WriteReport

SHOWN_MAX = 20
"""How many conflicts a person is shown; --json has them all."""

NAME_CHARACTERS_MAX = 100
COPY_BYTES = 2**20


def told(conflicts: "Sequence[Conflict]", name: str, domain: str | None, file: Path, theirs: bool) -> str:
    """A paragraph for stderr: which ranges of ``file``, what was and was not lost, what there is to do."""
    from ares.fragment.report import DELETED_MEANWHILE, WHOLE_FILE

    whole = len(conflicts) == 1 and conflicts[0].block is None and conflicts[0].why in WHOLE_FILE
    what, local, said = shell_words(name, domain), shlex.quote(str(file)), printable(str(file)) if file != STANDARD_STREAM else "standard input"
    many = f"{len(conflicts)} ranges" if len(conflicts) > 1 else "1 range"
    lines = [f"{'left as others made it' if theirs else 'conflict'}: {many} of {said} did not get into {printable(name)}"]
    lines += [f"  {_range(conflict)}: {conflict.why}" for conflict in conflicts[:SHOWN_MAX]]
    if more := conflicts[SHOWN_MAX:]:
        lines.append(f"  ... and {len(more)} more; --json shows all")
    rest = "nothing else was changed" if whole else "everything else that differs is in"
    lines.append(f"Nothing of theirs was overwritten, {said} is as it was, and {rest}.")
    if whole and conflicts[0].why == DELETED_MEANWHILE:
        return "\n".join([*lines, f"To make it anew: ares-cli put {local} {what} --mine"])
    if theirs:
        return "\n".join([*lines, f"To have theirs here: ares-cli get {what} {local}"])
    return "\n".join(
        [
            *lines,
            "Choose:",
            f"  ares-cli put {local} {what} --mine                 your ranges replace theirs",
            f"  ares-cli put {local} {what} --theirs               leave theirs; `ares-cli get {what} {local}` then brings them here",
            f"  ares-cli put {local} {what} --save-conflicts DIR   write both sides into DIR; put them together in {said}, and put that",
        ]
    )


def shell_words(name: str, domain: str | None) -> str:
    """How a file of the cluster is named on the command line."""
    return f"{shlex.quote(name)} --domain {shlex.quote(domain)}" if domain is not None else shlex.quote(name)


def _range(conflict: "Conflict") -> str:
    if not conflict.length:
        return f"at byte {conflict.offset} (something was taken out there)"
    return f"bytes {conflict.offset} to {conflict.offset + conflict.length - 1} ({size(conflict.length)})"


def save(conflicts: "Sequence[Conflict]", directory: Path, name: str, content: Path) -> list[str]:
    """Write NAME.OFFSET.mine, the range of the local ``content``, and NAME.OFFSET.theirs, where there is one; their paths."""
    if not conflicts:
        return []
    directory.mkdir(parents=True, exist_ok=True)
    stem, used, paths = _flat(name), set[str](), []
    with content.open("rb") as stream:
        for conflict in conflicts:
            place = f"{stem}.{conflict.offset}"
            while place in used:  # two edits may stand at one place of the local file: what one takes out there, and the other puts in
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


def _flat(name: str) -> str:
    """``name`` as a part of a file's name, and no other name's."""
    flat = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:NAME_CHARACTERS_MAX]
    return flat if flat == name else f"{flat}-{blake3(name.encode()).hexdigest(4)}"


def report_data(report: "WriteReport") -> dict[str, object]:
    """The report, for programs."""
    return {
        "kept": report.kept,
        "modified": report.modified,
        "inserted": report.inserted,
        "deleted": report.deleted,
        "moved_bytes": report.moved_bytes,
        "merged": report.merged,
        "conflicts": [
            {
                "offset": conflict.offset,
                "length": conflict.length,
                "why": conflict.why,
                "theirs_bytes": len(conflict.theirs) if conflict.theirs is not None else None,
            }
            for conflict in report.conflicts
        ],
    }
