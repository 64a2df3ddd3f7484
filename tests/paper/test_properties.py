"""Properties, lemmas and theorems of ARES II sections 3 and 6, over random schedules.

The schedules have readers, writers and reconfigurers.
"""

import pytest

from ares.model.configuration import advance as true_advance
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE, WITHHELD

from .schedules import (
    Cseq,
    Done,
    Schedule,
    broken_atomicity,
    broken_progress,
    broken_subsequence,
    broken_uniqueness,
)


@pytest.fixture(
    scope="module",
    params=[range(20), pytest.param(range(20, 60), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def histories(request):
    """Make histories of a few dozen operations each, reconfigurations among them."""
    made = [Schedule(seed).run() for seed in request.param]
    indices = {done.cseq.lambda_ for history in made for done in history}
    assert max(indices) >= 4, "the schedules must reconfigure"
    assert any(done.cseq.mu < done.cseq.lambda_ for history in made for done in history), (
        "some operation must end beside a reconfiguration"
    )
    return made


def test_lemma_8_configuration_uniqueness(histories):
    """Section 6.2.1 (i): at any common index all processes hold the same configuration."""
    for history in histories:
        assert broken_uniqueness(history) == []


def test_lemma_10_subsequence(histories):
    """Section 6.2.1 (ii): an operation's sequence is a subsequence of each later operation's."""
    for history in histories:
        assert broken_subsequence(history) == []


def test_lemma_11_the_last_finalized_index_of_a_process_never_goes_back(histories):
    """Section 6.2.1: mu of a process, from each of its operations to the next."""
    for history in histories:
        for client in {done.client for done in history}:
            known = [
                done.cseq.mu
                for done in sorted(history, key=lambda done: done.ended)
                if done.client == client
            ]
            assert known == sorted(known)


def test_lemma_12_and_theorem_13_sequence_progress(histories):
    """Section 6.2.1 (iii): an entry finalized at the end of an operation stays so or is superseded.

    This holds for every later operation.
    """
    for history in histories:
        assert broken_progress(history) == []


def test_theorem_16_atomicity_by_tags(histories):
    """Section 6.2.2: completed reads and writes of an object can be ordered by their tags.

    See Alg. 1:7-24, Alg. 1:31-48.
    """
    for history in histories:
        assert broken_atomicity(history) == []


def test_lemma_15_a_read_never_returns_a_withheld_value(histories):
    """Section 6.2.2: bottom stands for a value that a finalized successor has.

    A reader goes to the successor.
    """
    read = [done.value for history in histories for done in history if done.kind == "read"]
    assert len(read) > 100
    assert all(value is TOMBSTONE or isinstance(value, bytes) for value in read)
    assert WITHHELD not in read


def test_lemma_14_termination(histories):
    """Section 6.2.2: every operation ends.

    An endless schedule, or a failed operation, raises in the making of the histories.
    """
    for history in histories:
        assert len(history) == 5 * 4


def test_lemma_6_a_proposal_is_for_the_index_after_the_last_known(histories):
    """Section 6.2.1: decided configurations have consecutive indices (Alg. 5:17-18).

    Each reconfiguration returns a decided configuration.
    """
    for history in histories:
        installed = {
            done.value.configuration.index for done in history if done.kind == "reconfigure"
        }
        assert installed == set(range(1, len(installed) + 1))


class Pointers:
    """A watch over nextC of every configuration at every server."""

    def __init__(self, world):
        self.world, self.seen, self.moved = world, {}, 0

    def __call__(self):
        for server, replica in self.world.replicas.items():
            for id, hosting in replica.hosted.items():
                new = hosting.successor
                old = self.seen.get((server, id))
                if new is old:
                    continue
                assert new is not None, "a successor was forgotten"
                if old is not None:
                    before = (old.configuration.index, old.status)
                    assert (new.configuration.index, new.status) >= before, "nextC moved backwards"
                    assert (
                        new.configuration.index != before[0]
                        or new.configuration.id == old.configuration.id
                    ), "another successor at one index"
                self.seen[server, id] = new
                self.moved += 1


@pytest.mark.parametrize("seed", range(20))
def test_lemma_7_the_pointer_is_monotonic(seed):
    """Section 6.2.1: the index of nextC at a server never decreases."""
    schedule = Schedule(seed, clients=3, reconfigurers=3, operations=4)
    schedule.inspect = Pointers(schedule.world)
    schedule.run()
    assert schedule.inspect.moved > 10


@pytest.mark.parametrize("seed", range(10))
def test_lemma_9_a_quorum_knows_a_successor_of_all_but_the_last(seed):
    """Section 6.2.1: a quorum of each earlier configuration points at a later configuration.

    This holds for the configurations that any process knows.

    See Alg. 5:19-20.
    """
    schedule = Schedule(seed, clients=4, reconfigurers=2, operations=3)
    checked = 0

    def inspect():
        nonlocal checked
        for client in schedule.clients:
            *earlier, _ = client.view.sequence.active
            for entry in earlier:
                pointers = [
                    schedule.world.replicas[server].hosted.get(entry.id)
                    for server in entry.server_ids
                ]
                pointing = [
                    hosting
                    for hosting in pointers
                    if hosting is not None and hosting.successor is not None
                ]
                assert len(pointing) >= entry.quorum_size
                checked += 1

    schedule.inspect = inspect
    schedule.run()
    assert checked > 100


# -- the checks can fail ---------------------------------------------------------------------------


def test_a_server_that_takes_any_successor_breaks_lemma_7(monkeypatch):
    def takes_anything(own, current, incoming):
        return incoming

    def watched():
        for seed in range(20):
            schedule = Schedule(seed, clients=3, reconfigurers=3, operations=4)
            schedule.inspect = Pointers(schedule.world)
            schedule.run()

    monkeypatch.setattr("ares.replica.configuration_state.advance", takes_anything)
    with pytest.raises(AssertionError, match="nextC moved backwards"):
        watched()
    monkeypatch.setattr("ares.replica.configuration_state.advance", true_advance)


def done(kind, times, number, value=b"v", entries=None, mu=0):
    tag = Tag(number, 1) if number else TAG_ZERO
    return Done(1, kind, "x", *times, tag, value, Cseq(entries or {0: b"c0"}, mu))


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([done("write", (0, 1), 1), done("read", (2, 3), 0, TOMBSTONE)], "goes back"),
        (
            [
                done("write", (0, 1), 1),
                done("write", (0, 5), 2),
                done("read", (2, 3), 2),
                done("read", (4, 6), 1),
            ],
            "goes back",
        ),
        ([done("write", (0, 1), 1), done("write", (2, 3), 1)], "two writes with one tag"),
        ([done("write", (0, 1), 2), done("write", (2, 3), 1)], "goes back"),
        ([done("read", (0, 1), 1)], "was not written"),
        ([done("write", (0, 1), 1, b"w"), done("read", (2, 3), 1, b"v")], "was not written"),
        ([done("read", (0, 1), 1), done("write", (2, 3), 1)], "was not written"),
        ([done("read", (0, 1), 0, b"v")], "out of nothing"),
    ],
)
def test_histories_that_are_not_atomic_are_rejected(history, why):
    assert any(why in sentence for sentence in broken_atomicity(history))


def test_histories_with_broken_sequences_are_rejected():
    known = {0: b"c0", 1: b"c1"}
    assert broken_uniqueness(
        [done("read", (0, 1), 0, entries=known), done("read", (0, 1), 0, entries={1: b"other"})]
    ) == ["index 1"]
    assert broken_subsequence([done("read", (0, 1), 0, entries=known), done("read", (2, 3), 0)])
    assert broken_progress(
        [done("read", (0, 1), 0, entries=known, mu=1), done("read", (2, 3), 0, entries=known)]
    )
    assert not broken_progress(
        [done("read", (0, 2), 0, entries=known, mu=1), done("read", (2, 3), 0, entries=known)]
    ), "they are concurrent"


def test_an_atomic_history_is_accepted():
    history = [
        done("read", (0, 1), 0, TOMBSTONE),
        done("write", (0, 5), 1),
        done("read", (2, 3), 1),
        done("write", (2, 8), 2, b"w"),
        done("read", (6, 7), 1),
        done("read", (9, 10), 2, b"w"),
        done("read", (9, 10), 0, TOMBSTONE)._replace(object="y"),
    ]
    assert broken_atomicity(history) == []
