"""Hundreds of flipped bits, in every kind of place: all are found, and no answer is wrong.

The server knows which elements are lost.
"""

import random
import shutil

import pytest

from ares.model.element import is_hollow
from ares.model.errors import StoreDamaged
from ares.store.journal import examine as journal_examination
from ares.store.journal.disk import Disk
from ares.store.journal.segments import ANCHOR_SUFFIX

from .integrity_rig import BATCH_MAX, RiggedServer, RottenDisk, anatomy, flip, story, truth_of

FLIPS = 25
"""Number of flips for each kind of place and each seed."""


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)])
def life(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("life") / "j"
    return directory, story(directory, seed=request.param)


def copy_store(directory, copy):
    """Copy a store with the anchor, which is beside the directory."""
    shutil.copytree(directory, copy)
    shutil.copy(f"{directory}{ANCHOR_SUFFIX}", f"{copy}{ANCHOR_SUFFIX}")


def copies(directory, where, count, rng, kind):
    """Yield a copy of the store for each of ``count`` places of a kind.

    Each comes with its directory, a segment in it, and the place.
    """
    for number in range(count):
        copy = where / f"{kind}{number}"
        copy_store(directory, copy)
        path = rng.choice([path for path in sorted(copy.glob("*.log")) if anatomy(path)[kind]])
        yield copy, path, rng.choice(rng.choice(anatomy(path)[kind]))


@pytest.mark.parametrize("kind", ["head", "metadata", "data"])
def test_a_flip_in_the_file(life, tmp_path, kind):
    """This acts like a page read after the damage: of mapped data, memory has no better copy."""
    directory, requests = life
    rng, truth = random.Random(3), truth_of(requests)
    for number, (copy, path, at) in enumerate(copies(directory, tmp_path, FLIPS, rng, kind)):
        server = RiggedServer(copy)
        before = server.state
        flip(path, at, rng.randrange(8))
        assert list(server.scrub()) == [int(path.stem)]
        assert not path.exists()
        if number % 2:
            server = RiggedServer(copy)
        assert len(server.quarantined) == (kind == "data")
        assert all(verdict.whole for verdict in server.examine().values())
        server.check(truth)
        server.ask(*requests)
        assert server.host.replica.account.repaired == (kind == "data")
        server.check(truth)
        again = RiggedServer(copy)
        assert (again.state, again.quarantined) == (server.state, server.quarantined)
        assert (server.state, server.quarantined) == (before, set())
        shutil.rmtree(copy)


@pytest.mark.parametrize("kind", ["head", "metadata", "data"])
def test_a_flip_under_the_cache(life, tmp_path, kind):
    """Only the disk is damaged: memory has all data, and it is written anew."""
    directory, requests = life
    for copy, path, at in copies(directory, tmp_path, FLIPS, random.Random(4), kind):
        disk = RottenDisk()
        server = RiggedServer(copy, disk)
        before = server.state
        disk.flips.add((path.name, at))
        assert list(server.scrub()) == [int(path.stem)]
        assert (server.state, server.quarantined) == (before, set())
        disk.flips.clear()
        assert RiggedServer(copy).state == before
        server.check(truth_of(requests))
        shutil.rmtree(copy)


@pytest.mark.parametrize("seed", range(6))
def test_many_flips_at_once(life, tmp_path, seed):
    directory, requests = life
    copy, rng, truth = tmp_path / "j", random.Random(seed), truth_of(requests)
    copy_store(directory, copy)
    server = RiggedServer(copy)
    before = server.state
    for path in sorted(copy.glob("*.log")):
        spots = [at for kind in anatomy(path).values() for place in kind for at in place]
        for at in rng.sample(spots, 30):
            flip(path, at, rng.randrange(8))
    server.scrub()
    assert server.quarantined
    server.check(truth)
    again = RiggedServer(copy)
    assert again.quarantined == server.quarantined
    assert again.state == server.state
    again.ask(*requests)
    assert (again.state, again.quarantined) == (before, set())
    assert (RiggedServer(copy).state, RiggedServer(copy).quarantined) == (before, set())


def test_a_file_that_is_gone_or_cut(life, tmp_path):
    directory, _ = life
    for number, harm in enumerate(
        [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:5000])]
    ):
        copy_store(directory, copy := tmp_path / f"{number}")
        server = RiggedServer(copy)
        before, path = server.state, min(copy.glob("*.log"))
        kept = path.with_suffix(".aside")
        path.rename(kept)
        path.write_bytes(kept.read_bytes())
        harm(path)
        assert list(server.scrub()) == [int(path.stem)]
        assert (server.state, server.quarantined) == (before, set())
        assert RiggedServer(copy).state == before


def test_a_restart_would_have_been_refused(life, tmp_path):
    """The same flip without a scrub before the restart shows the scrub's use."""
    directory, _ = life
    for copy, path, at in copies(directory, tmp_path, 3, random.Random(5), "metadata"):
        if path != max(copy.glob("*.log")):
            flip(path, at)
            with pytest.raises(StoreDamaged):
                RiggedServer(copy)


def test_blocks_that_cannot_be_read(life, tmp_path):
    """The memory of a mapped element in the block is not read, which might end the process.

    All other data of the place is written anew.
    """
    directory, requests = life
    rng = random.Random(6)
    for kind in ("head", "metadata", "data"):
        for copy, path, at in copies(directory, tmp_path, 10, rng, kind):
            disk = RottenDisk()
            server = RiggedServer(copy, disk)
            before = server.state
            disk.dead.add((path.name, at // 4096))
            [verdict] = server.scrub().values()
            assert verdict.readable is not None
            block = range(at // 4096 * 4096, at // 4096 * 4096 + 4096)
            touched = sum(
                1 for place in anatomy(directory / path.name)["data"] if set(place) & set(block)
            )
            assert len(server.quarantined) <= touched + 2 * BATCH_MAX, (
                "no more than what is there, and what batches hold whose metadata is there"
            )
            assert server.quarantined or kind != "data"
            server.check(truth_of(requests))
            disk.dead.clear()
            again = RiggedServer(copy)
            assert again.quarantined == server.quarantined
            again.ask(*requests)
            assert again.state == before
            shutil.rmtree(copy)


def test_whole_segments_are_whole(life):
    directory, _ = life
    for disk in (None, RottenDisk(), CachedDisk()):
        assert all(
            verdict.whole and verdict.readable is None
            for verdict in RiggedServer(directory, disk).examine().values()
        )


class CachedDisk(Disk):
    """A disk of a file system without reads past the cache."""

    def open_past_cache(self, path):
        return self.open(path)


def test_an_examination_that_passes_data_over_is_noticed(life, tmp_path, monkeypatch):
    """Negative control."""
    directory, _ = life
    monkeypatch.setattr(journal_examination.SegmentExamination, "_is_intact", lambda *_: True)
    [(copy, path, at)] = copies(directory, tmp_path, 1, random.Random(7), "data")
    server = RiggedServer(copy)
    flip(path, at)
    with pytest.raises(AssertionError):
        assert list(server.scrub()) == [int(path.stem)]


def test_elements_without_data_of_their_own_are_not_hollow(life):
    _, requests = life
    assert any(
        request.element.length == 0 and not is_hollow(request.element) for request in requests[1:]
    )
