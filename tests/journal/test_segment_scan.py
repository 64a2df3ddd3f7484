"""The scan of a segment at a start: windows of batches for the core, and bytes read ahead."""

import random

import pytest

from ares.compiled import CORE, replica_parts
from ares.model.errors import StoreDamaged
from ares.model.tag import Tag
from ares.model.units import KIB, MIB
from ares.replica.facts import ConfigurationRecord, TagsTrimmed
from ares.replica.replica import USUAL_PARTS, Replica
from ares.server.storage_process import recovered
from ares.store.journal.format import BATCH_PREFIX_BYTES, decode_head, parse_frame, walk
from ares.store.journal.segments import SCANNED_BYTES_MAX

from .journal_node import INITIAL, ME, NEXT, PHOTOS, ClosingDisk, log_journal, put, state
from .test_journal_contract import append, commit

compiled_only = pytest.mark.skipif(CORE is None, reason="nothing is compiled")


class AheadDisk(ClosingDisk):
    """A disk with the ranges that were read ahead."""

    def __init__(self):
        super().__init__()
        self.ahead = []

    def read_ahead(self, view, start, end):
        assert start < end <= len(view)
        self.ahead.append((start, end))
        super().read_ahead(view, start, end)


class CountedReplica(Replica):
    """A replica with the bytes shown to the core, and the batches joined in windows and alone."""

    shown = in_windows = alone = 0

    def restore_run(self, frames, salt, sequence, place):
        bytes, count = super().restore_run(frames, salt, sequence, place)
        self.shown += len(frames)
        self.in_windows += count
        return bytes, count

    def restore_batch(self, body, place):
        self.alone += 1
        return super().restore_batch(body, place)


def written(directory, batches, segment_bytes=256 * KIB):
    """Write a journal of these batches, and a last segment."""
    journal = log_journal(directory, segment_bytes=segment_bytes)
    list(journal.recover())
    for facts in batches:
        append(journal, *facts)
        commit(journal)
    assert journal.seal(max(journal.durable()))
    commit(journal)
    journal.close()


def read(directory, segment_bytes=256 * KIB):
    """Read the journal; return the replica and the ranges read ahead."""
    disk = AheadDisk()
    replica = CountedReplica(ME.id, ME.identity, INITIAL, True, replica_parts())
    replica.begin_restoring()
    journal = log_journal(directory, disk, segment_bytes)
    for place, facts in journal.recover(replica):
        for fact in facts:
            replica.restore(fact, place)
    replica.restored()
    journal.close()
    return replica, disk.ahead


def small(number):
    return put(f"{number}", 1, bytes(100))


def test_small_batches_are_read_ahead_of_the_scan(tmp_path):
    written(tmp_path, [[small(number)] for number in range(9000)], 4 * MIB)
    replica, ahead = read(tmp_path, 4 * MIB)
    assert len(replica.hosted[INITIAL.id].objects) == 9000
    assert ahead[0][0] < 2 * KIB, "after a first batch"
    assert [start for start, _ in ahead[1:]] == [end for _, end in ahead[:-1]]
    assert all(end - start <= 2 * SCANNED_BYTES_MAX for start, end in ahead)
    assert ahead[-1][1] == (tmp_path / "00000001.log").stat().st_size
    assert len(ahead) < 60, "a call costs as much as a batch"


def test_data_of_large_elements_is_not_read(tmp_path):
    batches = [
        [put(f"{number}", 1, bytes(200 * KIB))] if number % 8 == 0 else [small(number)]
        for number in range(160)
    ]
    written(tmp_path, batches, 16 * MIB)
    replica, ahead = read(tmp_path, 16 * MIB)
    assert replica.hosted[INITIAL.id].objects.bytes > 4_000_000
    assert 0 < sum(end - start for start, end in ahead) < 400 * KIB


def odd(number):
    """Return a fact that the core leaves to Python."""
    return ConfigurationRecord(PHOTOS if number % 2 else NEXT, None, False)


@compiled_only
def test_the_core_takes_windows_and_leaves_unusual_batches(tmp_path):
    written(
        tmp_path, [[odd(number) if number % 500 == 0 else small(number)] for number in range(4000)]
    )
    replica, _ = read(tmp_path)
    assert replica.in_windows + replica.alone == 4000
    assert replica.alone < 200


@compiled_only
def test_many_unusual_batches_cost_no_more_than_their_bytes(tmp_path):
    written(tmp_path, [[odd(number)] for number in range(1000)])
    replica, _ = read(tmp_path)
    bytes = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    assert 0 < replica.shown < 4 * bytes
    assert replica.in_windows == 0


def some_facts(chance, number):
    kind = chance.random()
    if kind < 0.02:
        return odd(number)
    if kind < 0.05:
        return put(f"{chance.randrange(50)}", number + 1, chance.randbytes(9 * KIB))
    configuration = INITIAL if kind < 0.7 else PHOTOS
    if kind < 0.1:
        return TagsTrimmed(configuration.id, f"{chance.randrange(50)}", Tag(number + 1, 1))
    return put(f"{chance.randrange(50)}", number + 1, chance.randbytes(300), configuration)


@compiled_only
@pytest.mark.parametrize("seed", range(8))
def test_both_cores_read_the_same(tmp_path, seed):
    """Batches of configurations that a later batch introduces come before, too."""
    chance = random.Random(seed)
    batches = [
        [some_facts(chance, number) for _ in range(chance.choice([1, 1, 2, 30]))]
        for number in range(600)
    ]
    written(tmp_path, [*batches, [odd(0)], [odd(1)]])
    replica, _ = read(tmp_path)
    assert replica.in_windows > 50
    assert replica.alone > 50
    pure = recovered(ME.id, ME.identity, INITIAL, log_journal(tmp_path), USUAL_PARTS)
    assert state(replica) == state(pure)
    assert live(replica) == live(pure)


def live(replica):
    return {place: bytes for place, bytes in replica.account.live.items() if bytes}


def frames_of(data):
    head = parse_frame(memoryview(data), 0, 1)
    told = decode_head(head)
    return list(walk(memoryview(data), head.end, told.salt, told.first))


def test_a_flipped_bit_within_a_window_is_found(tmp_path):
    written(tmp_path, [[small(number)] for number in range(300)])
    path = tmp_path / "00000001.log"
    whole = path.read_bytes()
    for frame in random.Random(3).sample(frames_of(whole), 20):
        for at in (0, 8, 16, 24, 28, 32, BATCH_PREFIX_BYTES + 60):
            data = bytearray(whole)
            data[frame.start + at] ^= 4
            path.write_bytes(data)
            with pytest.raises(StoreDamaged, match=f"it cannot be read beyond byte {frame.start} "):
                read(tmp_path)


def test_a_batch_in_the_place_of_another_is_found(tmp_path):
    written(tmp_path, [[small(number)] for number in range(100, 400)])
    path = tmp_path / "00000001.log"
    data = bytearray(path.read_bytes())
    one, two = frames_of(bytes(data))[200:202]
    assert one.end - one.start == two.end - two.start
    data[one.start : one.end] = data[two.start : two.end]
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match=f"it cannot be read beyond byte {one.start} "):
        read(tmp_path)
