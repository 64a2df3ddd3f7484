"""A disk in memory under the real journal, and the possible states after a crash.

Written data lies in blocks. Until a file is synced, each block may be on the disk as after any of
the writes to the block, independently of further blocks: lost, torn and reordered writes; the same
holds for the file's size. Entries of the directory become durable in order, at least the synced
entries. A failed sync leaves the data readable and never written, as Linux does: the next sync of
the file succeeds and writes only later data.

Files reserve room (``allocate``): a full disk is noticed at that moment. A write without a
reservation that finds no room is a mistake of the journal.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

from ares.store.journal.disk import Disk

MODEL_BLOCK_BYTES = 512


class PowerLost(BaseException):
    """The end of the process in the middle of disk work; no Exception, to pass every handler."""


class _ModelFile:
    """A file.

    ``content`` is read, ``durable`` is certainly on the disk; both may be longer than ``size``,
    padded with zeros. ``unsynced``: writes since the last sync, as (offset, data); ``sizes``: the
    sizes since then.
    """

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.size = self.allocated = len(content)
        self.unsynced: list[tuple[int, bytes]] = []
        self.sizes = [self.size]

    def resize(self, size: int) -> None:
        if size < self.size:
            self._put(size, bytes(self.size - size))
            self.allocated = min(self.allocated, size)
        self._reach(size)
        self.size = size
        self.sizes.append(size)

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        self._reach(end)
        self._put(offset, data)
        self.allocated = max(self.allocated, end)
        if end > self.size:
            self.size = end
            self.sizes.append(end)

    def _reach(self, size: int) -> None:
        if size > len(self.content):
            # a new bytearray, since the old may be mapped: a map keeps its length
            self.content = bytearray(self.content).ljust(size, b"\0")
            self.durable.extend(bytes(size - len(self.durable)))

    def _put(self, offset: int, data: bytes) -> None:
        self.content[offset : offset + len(data)] = data
        self.unsynced.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.unsynced:
            self.durable[offset : offset + len(data)] = data
        self.forget()

    def fail(self, rng: Random) -> None:
        """Fail a sync: a random part of the writes since the last sync is kept, the rest lost."""
        self.durable[:] = self._torn(rng, None)
        self.forget()

    def forget(self) -> None:
        self.unsynced.clear()
        del self.sizes[:-1]

    def on_disk(self, offset: int, size: int) -> bytes:
        """Return bytes read past the cache, which is written back first."""
        there = bytearray(self.durable)
        for start, data in self.unsynced:
            there[start : start + len(data)] = data
        return bytes(there[offset : min(offset + size, self.size)])

    def torn(self, rng: Random, loss: float | None) -> bytes:
        """Return the content after a power failure."""
        size = self.sizes[_chosen(rng, 0, len(self.sizes) - 1, loss)]
        return bytes(self._torn(rng, loss)[:size])

    def _torn(self, rng: Random, loss: float | None) -> bytearray:
        writes: dict[int, list[tuple[int, bytes]]] = {}
        for offset, data in self.unsynced:
            for block in range(
                offset // MODEL_BLOCK_BYTES, (offset + len(data) - 1) // MODEL_BLOCK_BYTES + 1
            ):
                writes.setdefault(block, []).append((offset, data))
        left = bytearray(self.durable)
        for block, own in writes.items():
            begin, end = block * MODEL_BLOCK_BYTES, (block + 1) * MODEL_BLOCK_BYTES
            for offset, data in own[: _chosen(rng, 0, len(own), loss)]:
                first, last = max(begin, offset), min(end, offset + len(data))
                left[first:last] = data[first - offset : last - offset]
        return left


def _chosen(rng: Random, least: int, most: int, loss: float | None) -> int:
    return rng.randint(least, most) if loss is None else least if loss == 1 else most


class ModelDisk(Disk):
    """A single directory, whatever the name.

    ``room``: bytes for all files; ``failing``: the next sync of a file fails. ``patience``: changes
    until the power is lost (:class:`PowerLost`); ``None``: never.
    """

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.room: int | None = None
        self.failing = False
        self.patience: int | None = None
        self._rng = rng
        self._names: dict[str, _ModelFile] = {}
        self._durable_names: dict[str, _ModelFile] = {}
        self._entries: list[dict[str, _ModelFile]] = []
        self._open: dict[int, _ModelFile] = {}
        self._last = 2

    # -- faults ------------------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Bytes that the files reserved."""
        return sum(file.allocated for file in self._names.values())

    @property
    def files(self) -> dict[str, bytes]:
        """The readable content of every file."""
        return {name: bytes(file.content[: file.size]) for name, file in self._names.items()}

    def lose_process(self) -> None:
        """Lose the process: written data stays readable, and unsynced as before."""
        self._open.clear()
        self.patience = None

    def lose_power(self, loss: float | None = None) -> None:
        """Lose the power.

        ``loss``: 0 keeps all writes, 1 loses all that may be lost; ``None``: random for each block,
        name and size.
        """
        self.lose_process()
        states = [self._durable_names, *self._entries]
        names = states[_chosen(self._rng, 0, len(states) - 1, loss)]
        promised = {name: file.allocated for name, file in names.items()}
        self._names = {name: _ModelFile(file.torn(self._rng, loss)) for name, file in names.items()}
        for name, file in self._names.items():
            file.allocated = min(promised[name], file.size)
        self._durable_names, self._entries = dict(self._names), []

    def flip(self, name: str, at: int, bit: int, cached: bool) -> None:
        """Flip a durable bit. ``cached``: memory has the right bit, until the power fails."""
        file = {**self._durable_names, **self._names}[name]
        for content in [file.durable] if cached else [file.durable, file.content]:
            content[at] ^= 1 << bit

    def lose_file(self, name: str) -> None:
        """Remove a file without a trace."""
        for names in [self._names, self._durable_names, *self._entries]:
            names.pop(name, None)

    def cut(self, name: str, size: int) -> None:
        """Cut a file to the first ``size`` bytes, durably."""
        file = self._names[name]
        file.resize(size)
        file.sync()

    def _change(self) -> None:
        if self.patience is not None:
            if self.patience == 0:
                raise PowerLost
            self.patience -= 1

    # -- the journal's calls -----------------------------------------------------------------------

    def salt(self) -> int:
        return self._rng.getrandbits(64)

    def create(self, path: Path, size: int) -> int:
        self._change()
        file = self._names[path.name] = _ModelFile(b"")
        self._entries.append(dict(self._names))
        file.resize(size)
        return self._opened(file)

    def open(self, path: Path) -> int:
        if path.name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return self._opened(self._names[path.name])

    def _opened(self, file: _ModelFile) -> int:
        self._last += 1
        self._open[self._last] = file
        return self._last

    def open_past_cache(self, path: Path) -> int:
        return self.open(path)

    def read_into(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        data = self._open[descriptor].on_disk(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def size(self, descriptor: int) -> int:
        return self._open[descriptor].size

    def truncate(self, descriptor: int, size: int) -> None:
        self._change()
        self._open[descriptor].resize(size)

    def allocate(self, descriptor: int, start: int, end: int) -> None:
        file = self._open[descriptor]
        self._take(file, end)
        file.allocated = max(file.allocated, end)

    def _take(self, file: _ModelFile, end: int) -> None:
        if self.room is not None and self.used + max(0, end - file.allocated) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, descriptor: int, size: int) -> bytes:
        file = self._open[descriptor]
        return bytes(file.content[: min(size, file.size)])

    def map(self, descriptor: int, size: int) -> memoryview:
        return memoryview(self._open[descriptor].content)[:size].toreadonly()

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        file, data = self._open[descriptor], b"".join(buffers)
        if self.patience == 0:
            file.write(
                offset,
                data[: self._rng.randint(0, len(data) // MODEL_BLOCK_BYTES) * MODEL_BLOCK_BYTES],
            )
        self._change()
        if offset + len(data) > file.allocated:
            self._take(file, offset + len(data))
        file.write(offset, data)

    def sync(self, descriptor: int) -> None:
        self._change()
        file = self._open[descriptor]
        if self.failing:
            self.failing = False
            file.fail(self._rng)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        file.sync()

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        self._names[new.name] = self._names.pop(old.name)
        self._entries.append(dict(self._names))

    def unlink(self, path: Path) -> None:
        self._change()
        self._names.pop(path.name, None)
        self._entries.append(dict(self._names))

    def names(self, directory: Path) -> list[str]:
        return sorted(self._names)

    def make_directory(self, directory: Path) -> None:
        pass

    def sync_directory(self, directory: Path) -> None:
        self._change()
        self._durable_names, self._entries = dict(self._names), []
