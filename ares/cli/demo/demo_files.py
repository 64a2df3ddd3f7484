"""The demo's large file: an edit moves a block, two people edit at once, and a third is told of a conflict."""

import os
from typing import Any

from ares.cli.command_connection import size
from ares.cli.demo.demo_show import Narrator
from ares.client.manager import Manager
from ares.fragment.report import WriteReport
from ares.model.errors import AresError

NAME = "film"
FILE_MIB_MIN = 8
LINE = b" (one line, edited) "


class FileLost(AresError):
    """The file did not become what it must."""


class SharedFile:
    """A file of ``mib`` MiB (at least FILE_MIB_MIN, so that it has enough blocks to edit) in the cluster, and what it must hold."""

    def __init__(self, narrator: Narrator, mib: int) -> None:
        self._tell = narrator
        self._bytes = max(mib, FILE_MIB_MIN) * 2**20
        self.content = b""

    async def edit(self, manager: Manager) -> None:
        """Put the file, change a line in the middle, put it again."""
        with self._tell.step(f"put a file of {size(self._bytes)}, cut into blocks by its content, as a domain of its own") as step:
            self.content = os.urandom(self._bytes)
            async with manager.file(NAME) as file:
                report = await file.write(self.content)
                step.note, step.data = _account(report, self._bytes)
        with self._tell.step("insert a line in the middle of it and put it again") as step:
            async with manager.file(NAME) as file:
                self.content = _inserted(self.content, self._bytes // 2)
                report = await file.write(self.content)
                step.note, step.data = _account(report, self._bytes)
            await self.compare(manager)

    async def edit_together(self, manager: Manager, other: Manager) -> None:
        """Two clients edit different parts of the same version, then one of them edits what the other has changed."""
        with self._tell.step("two clients edit the same version of the file, one near its beginning, one near its end") as step:
            async with manager.file(NAME) as ours, other.file(NAME) as theirs:
                before = await ours.read()
                await theirs.read()
                near_begin, near_end = len(before) // 8, len(before) - len(before) // 8
                edited_by_them = _inserted(before, near_end)
                first, second = await ours.write(_inserted(before, near_begin)), await theirs.write(edited_by_them)
                self.content = _inserted(edited_by_them, near_begin)
                await self.compare(other)
                late = await theirs.write(_inserted(edited_by_them, near_begin + 1))
                if first.conflicts or second.conflicts or not late.conflicts:
                    raise FileLost("edits of different blocks got in each other's way, or those of one block did not")
                conflict = late.conflicts[0]
                step.note = (
                    "both edits are in the file; a third, of a block that had changed meanwhile, overwrote nothing and was told so:\n"
                    f"bytes {conflict.offset} to {conflict.offset + conflict.length} in conflict, with the newer content of that block at hand"
                )
                step.data = {"conflicts": len(late.conflicts)}
            await self.compare(manager)

    async def compare(self, manager: Manager) -> None:
        """Raises :class:`FileLost` unless the file is what it must be."""
        async with manager.file(NAME) as file:
            if await file.read() != self.content:
                raise FileLost(f"the file {NAME!r} came back with another content than was put")


def _inserted(content: bytes, at: int) -> bytes:
    return content[:at] + LINE + content[at:]


def _account(report: WriteReport, whole: int) -> tuple[str, dict[str, Any]]:
    """What moved, for people and for programs. Raises :class:`FileLost` if not everything got in."""
    if report.conflicts:
        raise FileLost("a file that nobody else writes came to a conflict")
    blocks = report.modified + report.inserted
    note = f"{blocks} of {blocks + report.kept} blocks moved: {size(report.moved_bytes)} of {size(whole)}"
    return note, {"blocks_moved": blocks, "blocks_kept": report.kept, "bytes_moved": report.moved_bytes}
