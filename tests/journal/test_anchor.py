"""A journal that lacks its newest segments, which every start must refuse.

See ares/store/journal/segments.py.
"""

import os
import random
import shutil

import pytest

from ares.model.errors import BadInput, StoreDamaged
from ares.model.units import KIB
from ares.store.journal.disk import DISK_BLOCK_BYTES, Disk
from ares.store.journal.segment_journal import SegmentJournal
from ares.store.journal.segments import NOTE_PREFIX, Anchor, AnchorRecord, Owner, anchor_of

from .journal_node import OWNER, AtOnce, Node, log_journal, put
from .recorded_disk import crash
from .test_journal_full_disk import SmallDisk
from .test_torn import Story, check


def filled(directory, count=30, disk=None):
    """Make a journal of some segments, and close it."""
    node = Node(log_journal(directory, disk))
    for number in range(1, count):
        node.handle(put(f"{number}", 1, bytes([number]) * 9 * KIB))
        node.commit()
    node.journal.close()


@pytest.fixture
def directory(tmp_path):
    filled(tmp_path / "j")
    return tmp_path / "j"


def segments(directory):
    return sorted(directory.glob("*.log"))


def facts(directory):
    journal = log_journal(directory)
    found = [fact for _, facts in journal.recover() for fact in facts]
    journal.close()
    return found


def anchored_segment(directory):
    anchor = Anchor(Disk(), directory, OWNER.identity)
    anchored = anchor.read()
    anchor.close()
    return anchored


def contents(directory):
    return {
        path.name: path.read_bytes()
        for path in [*directory.iterdir(), *filter(os.path.exists, [anchor_of(directory)])]
    }


def as_an_earlier_release_left_it(directory):
    anchor_of(directory).unlink()
    [note] = directory.glob(f"{NOTE_PREFIX}*")
    note.unlink()


def refused(directory, why):
    """Check that a start is refused, and leaves all files unchanged."""
    (directory / "00000099.new").write_bytes(b"left by a crash")
    before = contents(directory)
    with pytest.raises(StoreDamaged, match=why) as caught:
        facts(directory)
    assert contents(directory) == before
    for words in (
        "The server was not started",
        "nothing was changed",
        "bring all of them back",
        "prepare FILE ID --forget",
    ):
        assert words in str(caught.value)


def test_a_journal_without_all_its_segments_is_refused(directory):
    last = segments(directory)[-1]
    for path in segments(directory):
        path.unlink()
    refused(
        directory, f"segments up to {int(last.stem)} had begun, says .*j.anchor, and none is there"
    )


@pytest.mark.parametrize("count", [1, 2])
def test_the_newest_segments_gone(directory, count):
    *left, _ = segments(directory)[: 1 - count or None]
    last = int(segments(directory)[-1].stem)
    for path in segments(directory)[-count:]:
        path.unlink()
    gone = f"segment {last}" if count == 1 else f"segments up to {last}"
    refused(
        directory,
        f"{gone} had begun, says .*j.anchor, and {int(left[-1].stem)} is the newest that is there",
    )


def test_the_only_segment_gone(tmp_path):
    filled(tmp_path / "j", 2)
    segments(tmp_path / "j")[0].unlink()
    refused(tmp_path / "j", "segment 1 had begun, says .*j.anchor, and none is there")


@pytest.mark.parametrize("count", [0, 1, 2, 99])
def test_the_anchor_gone_and_the_newest_segments_with_it(directory, count):
    """The journal must not pass for a journal of an earlier release."""
    for path in segments(directory)[-count:] if count else ():
        path.unlink()
    anchor_of(directory).unlink()
    refused(
        directory,
        "j.anchor is damaged: it is missing, and nothing else tells which segment of the journal "
        "was the last",
    )


def test_a_journal_of_a_release_that_only_had_an_anchor_is_noted(directory):
    [note] = directory.glob(f"{NOTE_PREFIX}*")
    note.unlink()
    assert len(facts(directory)) == 29
    anchor_of(directory).unlink()
    refused(directory, "it is missing")


def test_an_anchor_of_another_life_is_none_of_this_journal(directory):
    anchor = Anchor(Disk(), directory.with_name("k"), "another")
    directory.with_name("k").mkdir()
    assert anchor.hold()
    anchor.close()
    anchor_of(directory.with_name("k")).rename(anchor_of(directory))
    refused(directory, "it is that of another life of the server")


def test_a_pipe_in_the_place_of_the_anchor_is_named(directory):
    anchor_of(directory).unlink()
    os.mkfifo(anchor_of(directory))
    with pytest.raises(
        BadInput, match=r"it is a pipe or a device, and a file was expected \(.*j\.anchor\)"
    ):
        facts(directory)


@pytest.mark.parametrize("left", [50, 5000, 40 * KIB, 64 * KIB - 1])
def test_the_last_segment_cut(directory, left):
    """Without the anchor the missing part would pass for the damage of a crash."""
    os.truncate(segments(directory)[-1], left)
    refused(directory, f"it was cut: it has {left} bytes and had {64 * KIB}")


def test_an_older_copy_of_the_directory(directory):
    """The copy is whole in itself, and from before the last segment began."""
    shutil.copytree(directory, directory.with_name("backup"))
    node = Node(log_journal(directory))
    for number in range(30, 40):
        node.handle(put(f"{number}", 1, b"x" * 9 * KIB))
        node.commit()
    node.journal.close()
    shutil.rmtree(directory)
    directory.with_name("backup").rename(directory)
    refused(directory, "segments up to [0-9]+ had begun")


def test_a_journal_of_an_earlier_release_starts_and_has_an_anchor_then(directory):
    as_an_earlier_release_left_it(directory)
    assert len(facts(directory)) == 29
    last = segments(directory)[-1]
    assert anchored_segment(directory) == AnchorRecord(int(last.stem), 64 * KIB)
    last.unlink()
    refused(directory, "had begun")


def test_an_empty_journal_of_an_earlier_release_starts_and_has_an_anchor_then(tmp_path):
    assert facts(tmp_path / "j") == []
    assert anchored_segment(tmp_path / "j") == AnchorRecord(0, 0)
    as_an_earlier_release_left_it(tmp_path / "j")
    assert facts(tmp_path / "j") == []
    assert anchored_segment(tmp_path / "j") == AnchorRecord(0, 0)


def test_the_anchor_of_an_earlier_life_is_replaced(directory):
    """`--forget` gave the server another identity, and set the old segments aside."""
    directory.rename(directory.with_name("aside"))
    owner = Owner(OWNER.cluster, OWNER.server, "another")
    journal = SegmentJournal(directory, owner, AtOnce(), segment_bytes=64 * KIB)
    assert list(journal.recover()) == []
    journal.close()
    assert anchored_segment(directory) is None
    assert Anchor(Disk(), directory, "another").read() == AnchorRecord(0, 0)


def spoil(directory, *slots):
    data = bytearray(anchor_of(directory).read_bytes())
    for slot in slots:
        data[slot * DISK_BLOCK_BYTES + 20] ^= 1
    anchor_of(directory).write_bytes(data)


@pytest.mark.parametrize("slot", [0, 1])
def test_one_slot_that_a_crash_tore_leaves_the_other(directory, slot):
    before = anchored_segment(directory)
    spoil(directory, slot)
    assert anchored_segment(directory).number in (before.number, before.number - 1)
    assert len(facts(directory)) == 29
    assert anchored_segment(directory) == before
    spoil(directory, 1 - slot)
    assert len(facts(directory)) == 29


def test_an_anchor_that_cannot_be_read_is_damage(directory):
    spoil(directory, 0, 1)
    refused(
        directory,
        "it cannot be read, and nothing else tells which segment of the journal was the last",
    )
    for content in (b"", bytes(2 * DISK_BLOCK_BYTES)):
        anchor_of(directory).write_bytes(content)
        refused(directory, "it cannot be read")


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))]
)
def test_after_a_crash_at_any_moment_it_starts_and_without_its_last_segment_it_forgets_nothing(
    tmp_path, seed
):
    story, rng, lost = Story(tmp_path / "life", seed), random.Random(seed), 0
    for moment in range(0, len(story.disk.ops) + 1, 2):
        where = tmp_path / f"{moment}"
        told = crash(story.disk.ops[:moment], rng, where)
        whole = tmp_path / f"{moment}-whole"
        shutil.copytree(where, whole)
        if anchor_of(where).exists():
            shutil.copy(anchor_of(where), anchor_of(whole))
        left = Node(log_journal(whole))
        left.directory = whole
        check(story, told, left)
        if segments(where):
            segments(where)[-1].unlink()
            if moment % 4:
                anchor_of(where).unlink()
            try:
                left = Node(log_journal(where))
            except StoreDamaged:
                lost += 1
                continue
            left.directory = where
            check(story, told, left)
    assert lost > 20


class CountingDisk(Disk):
    def __init__(self):
        super().__init__()
        self.syncs = 0

    def sync(self, descriptor):
        self.syncs += 1
        super().sync(descriptor)


def test_an_anchor_is_written_for_a_segment_and_not_for_a_commit(tmp_path):
    disk = CountingDisk()
    journal = log_journal(tmp_path / "j", disk)
    node = Node(journal)
    assert disk.syncs == 1, "it is made"
    node.handle(put("a", 1, b"x"))
    node.commit()
    assert disk.syncs == 1 + 3, "the head of the segment, the anchor, the batch"
    for number in range(2, 20):
        node.handle(put("a", number, b"x"))
        node.commit()
    assert disk.syncs == 1 + 3 + 18
    journal.close()


def test_an_anchor_needs_no_room_when_a_segment_begins(tmp_path):
    """The anchor's room was allocated when the anchor was made."""
    disk = SmallDisk(300 * KIB)
    filled(tmp_path / "j", 3, disk)
    anchor = Anchor(disk, tmp_path / "j", OWNER.identity)
    assert anchor.read() == AnchorRecord(1, 64 * KIB)
    disk.room = disk.used
    anchor.write(2, 64 * KIB)
    assert anchor_of(tmp_path / "j").stat().st_blocks * 512 >= 2 * DISK_BLOCK_BYTES
    anchor.close()


def test_where_there_is_no_room_for_an_anchor_no_segment_begins_and_the_rest_goes_on(directory):
    """The full disk has a journal of an earlier release."""
    as_an_earlier_release_left_it(directory)
    disk = SmallDisk(0)
    anchor = Anchor(disk, directory, OWNER.identity)
    assert not anchor.hold()
    assert not anchor_of(directory).exists()
    assert list(directory.parent.glob("*.new")) == []
    disk.room = 8 * KIB
    assert anchor.hold()
    anchor.close()
    assert len(facts(directory)) == 29
