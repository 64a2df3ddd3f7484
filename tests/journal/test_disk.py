"""Writing to a real file (ares/store/journal/disk.py)."""

import os

import pytest

from ares.store.journal.disk import BUFFERS_MAX, Disk


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
