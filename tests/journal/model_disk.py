"""A disk that remembers what was done to it, and what a crash in the middle of that may leave.

What is written lies in blocks of 4 KiB. Until the file is synced, each block may be on the disk as it was after any of the writes to it, whatever
became of other blocks: lost, torn and reordered writes. Entries of the directory become durable in order, the synced ones at least.
"""

import random
from pathlib import Path
from typing import NamedTuple

from ares.runtime.journal_disk import Disk

BLOCK_BYTES = 4096


class Op(NamedTuple):
    """``kind``: write, size, sync, create, rename, unlink, sync-directory, or told (what the journal said was durable; ``data``: how much)."""

    kind: str
    inode: int = -1
    name: str = ""
    offset: int = 0
    data: bytes | str | int = b""


class ModelDisk(Disk):
    """A real directory, and the story of it. What was in ``directory`` before is durable."""

    def __init__(self, directory: Path | None = None) -> None:
        self.ops: list[Op] = []
        self._inodes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._last = 0
        for path in sorted(directory.iterdir()) if directory else ():
            self._last += 1
            self._names[path.name] = self._last
            self.ops += [Op("create", self._last, path.name), Op("write", self._last, data=path.read_bytes()), Op("sync", self._last)]
        self.ops.append(Op("sync-directory"))

    def told(self, count: int) -> None:
        self.ops.append(Op("told", data=count))

    def create(self, path, size):
        descriptor = super().create(path, size)
        self._last += 1
        self._inodes[descriptor] = self._names[path.name] = self._last
        self.ops.append(Op("create", self._last, path.name))
        self.ops.append(Op("size", self._last, offset=size))
        return descriptor

    def open(self, path):
        descriptor = super().open(path)
        self._inodes[descriptor] = self._names[path.name]
        return descriptor

    def truncate(self, descriptor, size):
        super().truncate(descriptor, size)
        self.ops.append(Op("size", self._inodes[descriptor], offset=size))

    def write(self, descriptor, buffers, offset):
        super().write(descriptor, buffers, offset)
        self.ops.append(Op("write", self._inodes[descriptor], offset=offset, data=b"".join(buffers)))

    def sync(self, descriptor):
        super().sync(descriptor)
        self.ops.append(Op("sync", self._inodes[descriptor]))

    def rename(self, old, new):
        super().rename(old, new)
        self._names[new.name] = self._names.pop(old.name)
        self.ops.append(Op("rename", name=old.name, data=new.name))

    def unlink(self, path):
        super().unlink(path)
        self._names.pop(path.name, None)
        self.ops.append(Op("unlink", name=path.name))

    def sync_directory(self, directory):
        super().sync_directory(directory)
        self.ops.append(Op("sync-directory"))


def crash(ops: list[Op], rng: random.Random, directory: Path, loss: float | None = None) -> int:
    """Make ``directory`` what may be left when the power fails after ``ops``; returns how much was told to be durable by then.

    ``loss``: 0 keeps everything that was done, 1 loses everything that may be lost; None: each block, name and size as chance will have it.
    """
    names: dict[str, int] = {}
    entries = [op for op in ops if op.kind in ("create", "rename", "unlink", "sync-directory")]
    synced = max((position for position, op in enumerate(entries) if op.kind == "sync-directory"), default=-1) + 1
    for op in entries[: _chosen(rng, synced, len(entries), loss)]:
        if op.kind == "create":
            names[op.name] = op.inode
        elif op.kind == "rename":
            names[op.data] = names.pop(op.name)
        elif op.kind == "unlink":
            names.pop(op.name, None)
    directory.mkdir()
    for name, inode in names.items():
        own = [op for op in ops if op.inode == inode and op.kind in ("write", "size", "sync")]
        (directory / name).write_bytes(_content(own, rng, loss))
    return max((op.data for op in ops if op.kind == "told"), default=0)


def _chosen(rng, least, most, loss):
    return rng.randint(least, most) if loss is None else least if loss == 1 else most


def _content(ops, rng, loss):
    synced = max((position for position, op in enumerate(ops) if op.kind == "sync"), default=-1) + 1
    durable = bytearray()
    for op in ops[:synced]:
        _apply(durable, op)
    states = [bytes(durable)]
    for op in ops[synced:]:
        _apply(durable, op)
        states.append(bytes(durable))
    size = len(states[_chosen(rng, 0, len(states) - 1, loss)])
    left = bytearray()
    for start in range(0, size, BLOCK_BYTES):
        blocks = [state[start : start + BLOCK_BYTES].ljust(BLOCK_BYTES, b"\0") for state in states]
        left += blocks[_chosen(rng, 0, len(blocks) - 1, loss)]
    return bytes(left[:size])


def _apply(content, op):
    if op.kind == "size":
        del content[op.offset :]
        content.extend(bytes(op.offset - len(content)))
    elif op.kind == "write":
        content.extend(bytes(max(0, op.offset + len(op.data) - len(content))))
        content[op.offset : op.offset + len(op.data)] = op.data
