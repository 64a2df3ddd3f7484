"""A store that lacks acknowledged data, or belongs to another server: refused with a reason.

See ares/store/journal/segment_journal.py.
"""

import os
import random

import pytest

from ares.model.errors import BadInput, ForeignStore, StoreDamaged
from ares.model.units import KIB
from ares.store.journal.format import (
    BATCH_MAGIC,
    JOURNAL_FORMAT,
    SEGMENT_MAGIC,
    Head,
    decode_head,
    encode_head,
    parse_frame,
    walk,
)
from ares.store.journal.segment_journal import SegmentJournal
from ares.store.journal.segments import Owner

from .journal_node import INITIAL, OWNER, AtOnce, Node, log_journal, put


@pytest.fixture
def directory(tmp_path):
    node = Node(log_journal(tmp_path / "j"))
    for number in range(1, 30):
        node.handle(put(f"{number}", 1, bytes([number]) * (9 * KIB if number % 3 else 100)))
        node.commit()
    node.journal.close()
    return tmp_path / "j"


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def metadata(path):
    """Return the positions of the metadata of the frames."""
    view = memoryview(path.read_bytes())
    head = parse_frame(view, 0, int(path.stem))
    assert head.magic == SEGMENT_MAGIC
    told = decode_head(head)
    spots = list(range(32 + len(head.body)))
    for frame in walk(view, head.end, told.salt, told.first):
        assert frame.magic == BATCH_MAGIC
        spots += range(
            frame.start, frame.parts[0][0] if frame.parts else frame.start + 40 + len(frame.body)
        )
    return spots


def test_flipped_bits_in_metadata(directory, tmp_path):
    rng = random.Random(1)
    for path in sorted(directory.glob("*.log")):
        for at in rng.sample(metadata(path), 12):
            flip(path, at)
            with pytest.raises((StoreDamaged, ForeignStore), match="was not started"):
                list(log_journal(directory).recover())
            flip(path, at)
    assert len([fact for _, facts in log_journal(directory).recover() for fact in facts]) == 29, (
        "nothing was changed by looking"
    )


def test_flipped_bits_elsewhere_do_not_stop_it(directory):
    for path in sorted(directory.glob("*.log")):
        spots = set(metadata(path))
        for at in random.Random(2).sample(
            [at for at in range(path.stat().st_size) if at not in spots], 10
        ):
            flip(path, at)
    assert len([fact for _, facts in log_journal(directory).recover() for fact in facts]) == 29


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_segment_that_is_missing(directory, which):
    sorted(directory.glob("*.log"))[which].unlink()
    with pytest.raises(StoreDamaged, match=f"segment {which + 1} is missing"):
        list(log_journal(directory).recover())


@pytest.mark.parametrize("bytes_left", [0, 20, 5000, 40_000])
def test_a_segment_that_was_cut(directory, bytes_left):
    os.truncate(sorted(directory.glob("*.log"))[1], bytes_left)
    with pytest.raises(StoreDamaged):
        list(log_journal(directory).recover())


def test_a_segment_in_the_place_of_another(directory):
    one, two = sorted(directory.glob("*.log"))[:2]
    one.write_bytes(two.read_bytes())
    with pytest.raises(StoreDamaged):
        list(log_journal(directory).recover())


STRANGERS = [
    (Owner(b"another", OWNER.server, OWNER.identity), "made in another cluster"),
    (
        Owner(OWNER.cluster, "s9", OWNER.identity),
        r"s1 made it, and this is s9 \(is the right disk mounted",
    ),
    (Owner(OWNER.cluster, "s1", "f"), "now: it is an old copy"),
]


@pytest.mark.parametrize(("owner", "why"), STRANGERS)
def test_the_store_of_another(directory, owner, why):
    with pytest.raises(ForeignStore, match=why):
        list(SegmentJournal(directory, owner, AtOnce()).recover())


def test_a_journal_of_a_newer_format_is_refused(tmp_path):
    (tmp_path / "00000001.log").write_bytes(
        b"".join(encode_head(Head(JOURNAL_FORMAT + 1, INITIAL.id, "s1", "", 1, 0, 1, ())))
    )
    with pytest.raises(ForeignStore, match=f"format {JOURNAL_FORMAT + 1}"):
        list(log_journal(tmp_path).recover())


def test_leftovers_are_removed_and_strangers_left_alone(directory):
    (directory / "00000099.new").write_bytes(b"x")
    (directory / "notes.txt").write_bytes(b"x")
    list(log_journal(directory).recover())
    assert not (directory / "00000099.new").exists()
    assert (directory / "notes.txt").exists()


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be opened"):
        list(log_journal(tmp_path / "file").recover())


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_the_last_batch_is_no_torn_write_however_often_it_was_opened_since(directory, restarts):
    """The element is large, so the damage is in data.

    The batch is kept, to be found and repaired.
    """
    node = Node(log_journal(directory))
    node.handle(put("last", 1, b"x" * 9 * KIB))
    node.commit()
    node.journal.close()
    for _ in range(restarts):
        journal = log_journal(directory)
        list(journal.recover())
        journal.close()
    path = max(directory.glob("*.log"))
    at = path.read_bytes().rindex(b"x" * 64)
    flip(path, at)
    assert "last" in {
        getattr(fact, "object", None)
        for _, facts in log_journal(directory).recover()
        for fact in facts
    }
