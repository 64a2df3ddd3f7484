"""The model disk of simulated journals (ares/testing/sim/model_disk.py): effects of a crash."""

from pathlib import Path
from random import Random

import pytest

from ares.testing.sim.model_disk import MODEL_BLOCK_BYTES, ModelDisk, PowerLost

HERE = Path("store")
SEEDS = range(60)


def written(disk, name, *writes):
    """Write to a file that existed before and was synced with its name."""
    descriptor = disk.create(HERE / name, 4 * MODEL_BLOCK_BYTES)
    disk.write(descriptor, [b"old " * MODEL_BLOCK_BYTES], 0)
    disk.sync(descriptor)
    disk.sync_directory(HERE)
    for offset, data in writes:
        disk.write(descriptor, [data], offset)
    return descriptor


def left(seed, *writes, prepare=lambda disk, descriptor: None, loss=None):
    disk = ModelDisk(Random(seed))
    descriptor = written(disk, "f", *writes)
    prepare(disk, descriptor)
    disk.lose_power(loss)
    return disk.files["f"]


BEFORE = b"old " * MODEL_BLOCK_BYTES
NEW = (0, b"new " * MODEL_BLOCK_BYTES)


def test_what_was_synced_stays():
    outcomes = {
        left(seed, NEW, prepare=lambda disk, descriptor: disk.sync(descriptor)) for seed in SEEDS
    }
    assert outcomes == {NEW[1]}


def test_what_was_not_synced_may_be_lost_kept_or_torn_by_the_block():
    assert left(1, NEW, loss=0) == NEW[1]
    assert left(1, NEW, loss=1) == BEFORE
    outcomes = {left(seed, NEW) for seed in SEEDS}
    blocks = {
        tuple(outcome[start : start + 4] for start in range(0, len(outcome), MODEL_BLOCK_BYTES))
        for outcome in outcomes
    }
    assert len(blocks) > 10
    assert {word for block in blocks for word in block} == {b"old ", b"new "}


def test_of_two_writes_to_a_block_the_first_may_be_all_that_is_left():
    assert {left(seed, (0, b"1111"), (0, b"2222"))[:4] for seed in SEEDS} == {
        b"old ",
        b"1111",
        b"2222",
    }


def test_after_a_failed_sync_it_reads_as_written_and_no_sync_writes_it():
    outcomes = set()
    for seed in SEEDS:
        disk = ModelDisk(Random(seed))
        descriptor = written(disk, "f", NEW)
        disk.failing = True
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(descriptor)
        assert disk.read(descriptor, 1 << 20) == NEW[1]
        disk.sync(descriptor)
        disk.lose_power()
        outcomes.add(disk.files["f"])
    assert len(outcomes) > 10


def test_names_become_durable_in_order():
    outcomes = set()
    for seed in SEEDS:
        disk = ModelDisk(Random(seed))
        written(disk, "a")
        disk.close(disk.create(HERE / "b.new", 10))
        disk.rename(HERE / "b.new", HERE / "b")
        disk.unlink(HERE / "a")
        disk.lose_power()
        outcomes.add(tuple(sorted(disk.files)))
    assert outcomes == {("a",), ("a", "b.new"), ("a", "b"), ("b",)}


def test_a_killed_process_loses_nothing_that_it_wrote():
    disk = ModelDisk(Random(1))
    written(disk, "f", NEW)
    disk.lose_process()
    assert disk.files["f"] == NEW[1]


def test_the_process_ends_in_the_middle_of_its_work():
    disk = ModelDisk(Random(1))
    descriptor = written(disk, "f")
    disk.patience = 1
    disk.write(descriptor, [b"first"], 0)
    with pytest.raises(PowerLost):
        disk.write(descriptor, [b"second"], 0)


def test_room_is_what_was_promised():
    disk = ModelDisk(Random(1))
    descriptor = disk.create(HERE / "f", 10_000)
    disk.room = 5000
    disk.allocate(descriptor, 0, 4000)
    with pytest.raises(OSError, match="No space"):
        disk.allocate(descriptor, 4000, 6000)
    with pytest.raises(OSError, match="No space"):
        disk.write(descriptor, [bytes(2000)], 4000)
    disk.write(descriptor, [bytes(4000)], 0)
    disk.truncate(descriptor, 100)
    disk.allocate(descriptor, 100, 5000)


def test_a_flipped_bit_is_read_past_the_cache_and_after_the_power_failed():
    disk = ModelDisk(Random(1))
    view = disk.map(written(disk, "f"), 100)
    disk.flip("f", 0, 0, cached=True)
    assert bytes(view[:3]) == b"old"
    buffer = memoryview(bytearray(8))
    assert disk.read_into(disk.open_past_cache(HERE / "f"), buffer, 0) == 8
    assert bytes(buffer[:3]) == b"nld"
    disk.lose_power()
    assert disk.files["f"][:3] == b"nld"
    with pytest.raises(FileNotFoundError):
        disk.open_past_cache(HERE / "g")
