"""Client data that looks like frames, nested: a search for real frames stays linear work.

The search is in a torn or damaged segment.
"""

import itertools
import struct

import pytest

from ares.model.units import KIB
from ares.store.journal import format as journal_format
from ares.store.journal.disk import Disk
from ares.store.journal.examine import SegmentExamination
from ares.store.journal.format import (
    ALIGNMENT,
    BATCH_MAGIC,
    BATCH_PREFIX_BYTES,
    JOURNAL_FORMAT,
    Damage,
    Head,
    encode_batch,
    encode_head,
    encode_mark,
    kept_of_torn,
)

from .journal_node import INITIAL, put

SALT, FIRST = 0x1234, 5


def forged(bytes_all):
    """Return the beginnings of as many frames as fit; each would end at the end of all."""
    count = bytes_all // BATCH_PREFIX_BYTES
    return b"".join(
        struct.pack(
            "<8sQQIIQ", BATCH_MAGIC, FIRST + 1, 0, (count - number - 1) * BATCH_PREFIX_BYTES, 0, 0
        )
        for number in range(count)
    )


@pytest.fixture
def work(monkeypatch):
    """Count the bytes that were looked at."""
    looked_at, checked = [0], journal_format._checked

    def counted(prefix, table, body, seed):
        looked_at[0] += BATCH_PREFIX_BYTES + len(table) + len(body)
        return checked(prefix, table, body, seed)

    monkeypatch.setattr(journal_format, "_checked", counted)

    def since():
        done, looked_at[0] = looked_at[0], 0
        return done

    return since


def test_the_work_of_a_forged_torn_tail_is_bounded(work):
    """Only the data of a batch is present; the mark of an earlier batch follows."""
    works = []
    for kib in (64, 128, 256):
        mark = b"".join(encode_mark(FIRST - 1, SALT))
        frames, _, end = kept_of_torn(
            memoryview(bytes(BATCH_PREFIX_BYTES) + forged(kib * KIB) + mark), 0, SALT, FIRST
        )
        assert (frames, end) == ([], 0)
        works.append(work())
    assert all(later <= 2.2 * earlier for earlier, later in itertools.pairwise(works))


def test_a_mark_is_found_among_them():
    mark = b"".join(encode_mark(FIRST, SALT))
    with pytest.raises(Damage, match=f"the batches up to {FIRST} were durable"):
        kept_of_torn(
            memoryview(bytes(BATCH_PREFIX_BYTES) + forged(64 * KIB) + mark + forged(64 * KIB)),
            0,
            SALT,
            FIRST,
        )


class CountingDisk(Disk):
    def __init__(self):
        super().__init__()
        self.reads = 0

    def read_into(self, descriptor, buffer, offset):
        self.reads += len(buffer)
        return super().read_into(descriptor, buffer, offset)


def damaged(head, kib):
    """Make a segment with a broken first batch; forged frames in its data are at real positions."""
    start = sum(map(len, encode_head(head)))
    for padding in range(8):
        facts = enumerate([put("a", 1, bytes(padding) + forged(kib * KIB)), put("b", 1)], FIRST)
        batches = [
            buffer for number, fact in facts for buffer in encode_batch(number, 0, SALT, [fact])
        ]
        content = bytearray(b"".join([*encode_head(head), *batches]))
        if content.index(BATCH_MAGIC, start + 1) % ALIGNMENT == 0:
            content[start + 9] ^= 1
            return content
    raise AssertionError("one of eight places is aligned")


def test_the_work_of_a_forged_damaged_segment_is_bounded(work, tmp_path):
    head = Head(JOURNAL_FORMAT, INITIAL.id, "s1", "0" * 32, 1, SALT, FIRST, ())
    disk, works = CountingDisk(), []
    for kib in (256, 512, 1024):
        content = damaged(head, kib)
        path = tmp_path / "00000001.log"
        path.write_bytes(content)
        assert not SegmentExamination(disk, path, head, len(content)).run(lambda bytes: None).whole
        works.append(work() + disk.reads)
        disk.reads = 0
    assert all(later <= 2.2 * earlier for earlier, later in itertools.pairwise(works))
