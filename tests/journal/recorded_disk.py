"""A real directory with a record of its changes, for crashes at every moment.

See ares/testing/sim/model_disk.py.
"""

import random
from pathlib import Path
from typing import NamedTuple

from ares.store.journal.disk import Disk
from ares.store.journal.segments import ANCHOR_SUFFIX, anchor_of
from ares.testing.sim.model_disk import ModelDisk


class Op(NamedTuple):
    """A step: write, size, sync, create, rename, unlink, sync-directory, or told.

    ``report_facts`` is the journal's report of durability; ``data`` has the amount.
    """

    kind: str
    inode: int = -1
    name: str = ""
    offset: int = 0
    data: bytes | str | int = b""


def name_of(path: Path) -> str:
    """Return a name that does not depend on the directory's name.

    The anchor lies beside the directory, under the directory's name.
    """
    return path.name[path.name.index(ANCHOR_SUFFIX) :] if ANCHOR_SUFFIX in path.name else path.name


class RecordedDisk(Disk):
    """A real directory with a record of changes.

    The initial contents of ``directory`` and the anchor are durable.
    """

    def __init__(self, directory: Path | None = None) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self._inodes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._last = 0
        for path in (
            [*sorted(directory.iterdir()), *filter(Path.exists, [anchor_of(directory)])]
            if directory
            else ()
        ):
            self._last += 1
            self._names[name_of(path)] = self._last
            self.ops += [
                Op("create", self._last, name_of(path)),
                Op("write", self._last, data=path.read_bytes()),
                Op("sync", self._last),
            ]
        self.ops.append(Op("sync-directory"))

    def report_facts(self, count: int) -> None:
        self.ops.append(Op("told", data=count))

    def create(self, path, size):
        descriptor = super().create(path, size)
        self._last += 1
        self._inodes[descriptor] = self._names[name_of(path)] = self._last
        self.ops.append(Op("create", self._last, name_of(path)))
        self.ops.append(Op("size", self._last, offset=size))
        return descriptor

    def open(self, path):
        descriptor = super().open(path)
        self._inodes[descriptor] = self._names[name_of(path)]
        return descriptor

    def truncate(self, descriptor, size):
        super().truncate(descriptor, size)
        self.ops.append(Op("size", self._inodes[descriptor], offset=size))

    def write(self, descriptor, buffers, offset):
        super().write(descriptor, buffers, offset)
        self.ops.append(
            Op("write", self._inodes[descriptor], offset=offset, data=b"".join(buffers))
        )

    def sync(self, descriptor):
        super().sync(descriptor)
        self.ops.append(Op("sync", self._inodes[descriptor]))

    def rename(self, old, new):
        super().rename(old, new)
        self._names[name_of(new)] = self._names.pop(name_of(old))
        self.ops.append(Op("rename", name=name_of(old), data=name_of(new)))

    def unlink(self, path):
        super().unlink(path)
        self._names.pop(name_of(path), None)
        self.ops.append(Op("unlink", name=name_of(path)))

    def sync_directory(self, directory):
        super().sync_directory(directory)
        self.ops.append(Op("sync-directory"))


def crash(ops: list[Op], rng: random.Random, directory: Path, loss: float | None = None) -> int:
    """Make ``directory`` a possible state after a power failure at the end of ``ops``.

    Return the amount reported as durable. ``loss``: see
    :meth:`ares.testing.sim.model_disk.ModelDisk.lose_power`.
    """
    disk, open_files = ModelDisk(rng), {}
    for op in ops:
        match op.kind:
            case "create":
                open_files[op.inode] = disk.create(directory / op.name, 0)
            case "size":
                disk.truncate(open_files[op.inode], op.offset)
            case "write":
                disk.write(open_files[op.inode], [op.data], op.offset)
            case "sync":
                disk.sync(open_files[op.inode])
            case "rename":
                disk.rename(directory / op.name, directory / op.data)
            case "unlink":
                disk.unlink(directory / op.name)
            case "sync-directory":
                disk.sync_directory(directory)
    disk.lose_power(loss)
    directory.mkdir()
    for name, content in disk.files.items():
        beside = directory.with_name(f"{directory.name}{name}")
        (beside if name.startswith(ANCHOR_SUFFIX) else directory / name).write_bytes(content)
    return max((op.data for op in ops if op.kind == "told"), default=0)
