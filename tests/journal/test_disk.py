"""Writing to a real file (ares/store/journal/disk.py)."""

import mmap
import os
from pathlib import Path

import pytest

from ares.store.journal import disk as disk_module
from ares.store.journal.disk import BUFFERS_MAX, LOOK_BYTES, Disk, TimedDisk


@pytest.mark.parametrize("at_once", [1, 7, 1000, 1 << 20])
def test_everything_is_written_however_little_the_system_takes_at_once(
    tmp_path, monkeypatch, at_once
):
    """Buffers are passed by the hundred, each again until it is written whole."""
    given = []

    def pwritev(descriptor, buffers, offset):
        given.append(len(buffers))
        return os.pwrite(descriptor, b"".join(buffers)[:at_once], offset)

    monkeypatch.setattr("ares.store.journal.disk.os.pwritev", pwritev)
    buffers = [bytes([65 + number % 26]) * (number % 5) for number in range(3 * BUFFERS_MAX)]
    whole = b"".join(buffers)
    disk = Disk()
    descriptor = disk.create(tmp_path / "f", 0)
    disk.write(descriptor, buffers, 10)
    assert disk.read(descriptor, 1 << 20) == bytes(10) + whole
    assert max(given) <= BUFFERS_MAX
    assert len(given) <= 1 + len(whole) // at_once + len(buffers) // BUFFERS_MAX
    disk.close(descriptor)


@pytest.mark.parametrize("kind", [Disk, TimedDisk])
def test_pages_leave_memory_after_many_looks(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(disk_module, "LOOKED_AT_BYTES_MAX", 2 * LOOK_BYTES)
    path = tmp_path / "segment"
    path.write_bytes(bytes(8 * LOOK_BYTES))
    looks = kind()
    with path.open("r+b") as file:
        kept, closed = (memoryview(mmap.mmap(file.fileno(), 0)) for _ in range(2))
    assert kept[0] == closed[0] == 0
    looks.looked_at(closed, 1)
    del closed
    assert len(resident(path)) == 1, "no look keeps a map"
    assert resident(path) > [0]
    looks.looked_at(kept, 1)
    assert resident(path) > [0]
    looks.looked_at(kept, 1)
    assert resident(path) == [0]
    assert kept[0] == 0


def resident(path):
    """Return the kilobytes in this process's memory of each map of the file."""
    rows = iter(Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines())
    return [
        int(next(row for row in rows if row.startswith("Rss:")).split()[1])
        for row in rows
        if row.endswith(str(path))
    ]
