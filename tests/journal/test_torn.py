"""A journal after a crash: all facts reported as durable, and no invented facts.

See ares/store/journal/segment_journal.py.
"""

import os
import random

import pytest

from ares.model.errors import StoreDamaged
from ares.model.identity import NO_CALL
from ares.model.messages import PutData
from ares.model.tag import TAG_ZERO
from ares.model.units import KIB
from ares.replica.facts import TagsTrimmed
from ares.replica.port import lists_of
from ares.replica.replica import Replica

from .journal_node import INITIAL, ME, Node, change, log_journal, plain, requests, state
from .recorded_disk import RecordedDisk, crash


def slow(*seeds):
    return [pytest.param(seed, marks=pytest.mark.slow) for seed in seeds]


@pytest.fixture(autouse=True)
def no_waits_for_the_disk(monkeypatch):
    """Leave out the system's syncs: the model of the disk says which bytes survive."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


class Story:
    """A server's life on a model disk.

    ``steps`` has the state of a plain replica at each report of durability, and at the end.
    """

    def __init__(self, directory, seed, count=40, disk=None):
        self.disk = disk or RecordedDisk()
        node = Node(log_journal(directory, self.disk))
        self.steps = [plain([])]
        rng = random.Random(seed)
        self.handled = []
        for request in requests(count, seed):
            node.handle(request)
            self.handled.append(request)
            if rng.random() < 0.4:
                node.commit()
                self._report()
            if rng.random() < 0.15 and node.journal.places():
                node.commit()
                self._report()
                node.compact(rng.choice(sorted(node.journal.places())))
        node.commit()
        self._report()
        assert node.state == state(plain(self.handled))
        assert set(node.errors) == {None}

    def _report(self):
        self.disk.report_facts(len(self.handled))


def check(story, reported, left):
    """Check the bounds of the recovered state: the reported facts and the handled facts.

    The state has at least the reported facts, and at most the handled facts.
    """
    recovered = left.state
    for request in story.handled[:reported]:
        change(left.replica, request, 0)
    assert left.state == recovered, "something acknowledged was forgotten"
    all = Replica(ME.id, ME.identity, INITIAL, journaled=True)
    all.restored()
    for request in story.handled:
        change(all, request, 0)
    whole = state(all)
    for fact in facts_of(left.replica):
        all.restore(fact, 0)
    assert state(all) == whole, "something was invented"


def facts_of(replica):
    """Yield all facts in the state."""
    for id, hosting in replica.hosted.items():
        yield hosting.pointed()
        for name, versions in lists_of(hosting.objects):
            if versions.trimmed != TAG_ZERO:
                yield TagsTrimmed(id, name, versions.trimmed)
            for tag, element, _ in versions.entries:
                yield PutData(NO_CALL, id, name, tag, element)


def recovered(directory):
    return Node(log_journal(directory))


@pytest.mark.parametrize("seed", [0, *slow(1, 2, 3, 4, 5)])
def test_every_moment_of_a_life(tmp_path, seed):
    story = Story(tmp_path / "life", seed)
    rng = random.Random(seed)
    for moment in range(len(story.disk.ops) + 1):
        for loss in (0, 1, None, None):
            where = tmp_path / f"{moment}-{rng.random()}"
            reported = crash(story.disk.ops[:moment], rng, where, loss)
            check(story, reported, recovered(where))


@pytest.mark.parametrize("seed", [0, *slow(1, 2)])
def test_crashing_again_while_recovering(tmp_path, seed):
    story = Story(tmp_path / "life", seed)
    rng = random.Random(seed)
    for moment in rng.sample(range(len(story.disk.ops)), 25):
        once = tmp_path / f"{moment}"
        reported = crash(story.disk.ops[:moment], rng, once)
        again = RecordedDisk(once)
        before = len(again.ops)
        node = Node(log_journal(once, again))
        shown = node.state
        ops = again.ops
        for cut in range(before, len(ops) + 1):
            where = tmp_path / f"{moment}-{cut}"
            crash(ops[:cut], rng, where)
            left = recovered(where)
            assert cut < len(ops) or left.state == shown, (
                "what was shown after the first crash is gone after the second"
            )
            check(story, reported, left)


class Hasty(RecordedDisk):
    """A disk that leaves out random syncs."""

    def sync(self, descriptor):
        if len(self.ops) % 3:
            super().sync(descriptor)


def test_a_sync_that_is_left_out_is_noticed(tmp_path):
    """Negative control: a journal that reports too early."""
    story, failures = Story(tmp_path / "life", 1, disk=Hasty()), 0
    rng = random.Random(1)
    for moment in range(20, len(story.disk.ops), 5):
        where = tmp_path / f"{moment}"
        reported = crash(story.disk.ops[:moment], rng, where, 1)
        try:
            check(story, reported, recovered(where))
        except (AssertionError, StoreDamaged):
            failures += 1
    assert failures


def test_large_elements_are_views(tmp_path):
    node = Node(log_journal(tmp_path / "j"))
    handled = list(requests(30, 5))
    for request in handled:
        node.handle(request)
    node.commit()
    for one in (node, Node(log_journal(tmp_path / "j"))):
        assert one.state == state(plain(handled))
        elements = [
            e
            for h in one.replica.hosted.values()
            for _, v in lists_of(h.objects)
            for _, e, _ in v.entries
        ]
        assert {
            isinstance(part, memoryview) for e in elements if e.size >= 8 * KIB for part in e.parts
        } == {True}
        assert {
            isinstance(part, bytes) for e in elements if e.size < 8 * KIB for part in e.parts
        } == {True}
    assert any(isinstance(request, PutData) for request in handled)
