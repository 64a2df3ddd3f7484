"""What remembers, beside a journal, which segment was its last and how long that was: a journal without its newest segments reads like an older one.

The anchor is written, and is durable, when a segment begins: after the segment has its name, before any batch in it is acknowledged. So what it names
was there, and if it is not there any more, something that was acknowledged may be gone with it. Earlier releases wrote no anchor; a journal without
one gets it when it is opened. An empty file in the journal, whose name is NOTE_PREFIX and the owner, then says that there
is one: without its anchor such a journal is damaged. The anchor is durable before that file is, and both are before a segment begins.

It has two slots in blocks of their own, written by turns: one that a crash tore, or that rotted, leaves the other, which tells of the segment before.
Its room is its own from the time it is made, so it can be written when the disk is full.

    slot    magic (8 bytes) | turn u64 | owner (16 bytes) | number u64 | bytes u64 | check u64

All numbers are little-endian; ``owner`` is XXH3-128 of the server's identity, ``check`` XXH3-64 over what is before it.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from ares.model.errors import StoreDamaged
from ares.store.journal.disk import BLOCK_BYTES, FULL, Disk

ANCHOR_SUFFIX = ".anchor"
NOTE_PREFIX = "anchored."
"""Of the name of the file in a journal that has an anchor."""

_MAGIC = b"ares-anc"
_slot = struct.Struct("<8sQ16sQQ")
_check = struct.Struct("<Q")
_SLOT_BYTES = _slot.size + _check.size
_BYTES = 2 * BLOCK_BYTES
_ALONE = "nothing else tells which segment of the journal was the last"


class Anchored(NamedTuple):
    """The last segment's number, and how long its file was; 0 and 0: there was none yet."""

    number: int
    bytes: int


def anchor_of(directory: Path) -> Path:
    """The anchor of the journal in ``directory``."""
    return directory.with_name(f"{directory.name}{ANCHOR_SUFFIX}")


class Anchor:
    """Of the journal in ``directory`` of a server with this identity. Methods raise OSError."""

    def __init__(self, disk: Disk, directory: Path, identity: str) -> None:
        self.path = anchor_of(directory)
        self._disk = disk
        self._owner = xxh3_128_digest(identity.encode())
        self._turn = 0
        self._descriptor: int | None = None
        self._note = directory / f"{NOTE_PREFIX}{self._owner.hex()}"
        self._noted = False

    def read(self) -> Anchored | None:
        """What it says; None if there never was one, or that of an earlier life under another identity. Raises :class:`StoreDamaged`."""
        self._noted = self._note.name in self._disk.names(self._note.parent)
        try:
            descriptor = self._disk.open(self.path)
        except FileNotFoundError:
            if self._noted:
                raise StoreDamaged(self.path, f"it is missing, and {_ALONE}") from None
            return None
        content = self._disk.read(descriptor, _BYTES)
        slots = [slot for at in range(0, _BYTES, BLOCK_BYTES) if (slot := _parsed(content[at : at + _SLOT_BYTES])) is not None]
        newest = max(slots, default=None)
        if newest is None or newest[1] != self._owner:
            self._disk.close(descriptor)
            if newest is None:
                raise StoreDamaged(self.path, f"it cannot be read, and {_ALONE}")
            if self._noted:
                raise StoreDamaged(self.path, f"it is that of another life of the server, and {_ALONE}")
            return None
        self._turn, _, number, size = newest
        self._descriptor = descriptor
        return Anchored(number, size)

    def hold(self) -> bool:
        """See to it that it is there, with room for all that it will say, and noted; whether the disk has that room. The journal was read."""
        if self._descriptor is None and not self._make():
            return False
        if not self._noted:
            self._write_note()
        return True

    def _make(self) -> bool:
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            descriptor = self._disk.create(new, _BYTES)
            try:
                self._disk.allocate(descriptor, 0, _BYTES)
            except OSError:
                self._disk.close(descriptor)
                self._disk.unlink(new)
                raise
        except OSError as error:
            if error.errno not in FULL:
                raise
            return False
        self._descriptor = descriptor
        self.write(0, 0)
        self._disk.rename(new, self.path)
        return True

    def _write_note(self) -> None:
        """Say in the journal that there is an anchor, on stable storage. On a full disk only the next segment says so."""
        self._disk.sync_directory(self.path.parent)  # also if it was there: a crash may have come before this
        try:
            self._disk.close(self._disk.create(self._note, 0))
        except OSError as error:
            if error.errno not in FULL:
                raise
            return
        self._disk.sync_directory(self._note.parent)
        self._noted = True

    def write(self, number: int, size: int) -> None:
        """Say it, on stable storage. It is held."""
        assert self._descriptor is not None, "an anchor is held before it is written"
        self._turn += 1
        slot = _slot.pack(_MAGIC, self._turn, self._owner, number, size)
        self._disk.write(self._descriptor, [slot + _check.pack(xxh3_64_intdigest(slot))], self._turn % 2 * BLOCK_BYTES)
        self._disk.sync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            self._disk.close(self._descriptor)
            self._descriptor = None


def _parsed(data: bytes) -> tuple[int, bytes, int, int] | None:
    """Turn, owner, number and bytes of a slot."""
    if len(data) < _SLOT_BYTES or _check.unpack_from(data, _slot.size)[0] != xxh3_64_intdigest(data[: _slot.size]):
        return None
    magic, turn, owner, number, size = _slot.unpack_from(data)
    return (turn, owner, number, size) if magic == _MAGIC else None
