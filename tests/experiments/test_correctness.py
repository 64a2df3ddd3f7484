"""Rounds judged by the answers to their clients (experiments/rounds/correctness.py)."""

import asyncio
import json
from random import Random

import pytest

from ares.model.errors import AresError, ObjectNotFound
from ares.testing.verify.history import load
from experiments.rounds.correctness import HISTORY, History, checked, content, first_value, value_of
from experiments.rounds.round_worker import WitnessedRegister


def round_of(directory, protocol="ABD", **parameters):
    about = {
        "algorithm": protocol,
        "object_size": 8,
        "parameters": {"check": True, **parameters},
        "provenance": {"seed": 3},
    }
    (directory / "run.json").write_text(json.dumps(about))
    return directory


def verdict_of(directory):
    return json.loads((directory / "run.json").read_text())["parameters"].get("checked")


FIRST = value_of(first_value(3, 1, 8))


@pytest.mark.parametrize(
    ("reads", "wrong"),
    [
        ([FIRST, "new", "new"], None),
        (["new", FIRST], "not linearizable"),
        (["nobody's"], "not linearizable"),
        ([None], "not linearizable"),
    ],
)
def test_what_clients_saw_is_judged(tmp_path, reads, wrong):
    below = round_of(tmp_path) / "logs" / "h1"
    below.mkdir(parents=True)
    writer, reader = History(below, 1, "object"), History(below, 2, "object")
    writer.add("write", "new", 1.0, 9.0)
    for number, value in enumerate(reads):
        reader.add("read", value, 2.0 + number, 2.5 + number)
    found = checked(tmp_path)
    assert (found is None) if wrong is None else (wrong in str(found))
    assert verdict_of(tmp_path) == ("linearizable" if wrong is None else "NOT LINEARIZABLE")
    assert len(load((tmp_path / HISTORY).read_bytes(), "it")) == len(reads) + 2
    assert checked(tmp_path) == found, "it may be judged again"


def test_a_value_of_256_mib_is_made_in_pieces_and_the_first_value_is_the_creators():
    """A call of `randbytes` for so many bytes raises OverflowError."""
    asked = []
    made = type("Chance", (), {"randbytes": lambda _, size: asked.append(size) or b"v"})()
    assert content(made, 2**28 + 1) == b"vvvvv"
    assert asked == [2**26] * 4 + [1]
    assert content(Random("3 1"), 8) == first_value(3, 1, 8) == Random("3 1").randbytes(8)


def test_a_write_without_an_answer_may_have_taken_place_or_not(tmp_path):
    history = History(round_of(tmp_path), 1, "object")
    history.add("write", "lost", 1.0, None)
    history.add("write", "found", 2.0, None)
    history.add("read", FIRST, 3.0, 4.0)
    history.add("read", "found", 5.0, 6.0)
    assert checked(tmp_path) is None


def test_what_cannot_be_judged_is_said(tmp_path):
    assert checked(round_of(tmp_path)) == "the clients left no history to check"
    for algorithm in ("COARES_EC_F", "COARES_EC_F (ARES II as printed)"):
        assert checked(round_of(tmp_path, algorithm)) is None
        assert verdict_of(tmp_path).startswith("not judged")
    assert checked(round_of(tmp_path, check=False)) is None
    assert verdict_of(tmp_path) is None
    History(round_of(tmp_path), 1, "object").add("read", FIRST, 1.0, 2.0)
    (tmp_path / "client-2-another-machine.history").write_bytes(b"")
    assert "2 machines, whose clocks cannot be compared" in str(checked(tmp_path))
    (tmp_path / "client-2-another-machine.history").unlink()
    next(tmp_path.glob("client-1-*")).write_bytes(b'{"client":')
    assert "not an event of a history" in str(checked(tmp_path))


class Shelf:
    """A register whose operations end as the test says."""

    def __init__(self, ends):
        self._ends = iter(ends)

    async def write(self, value):
        return self._end()

    async def read(self):
        return self._end()

    def _end(self):
        end = next(self._ends)
        if isinstance(end, Exception):
            raise end
        return end


def test_a_history_has_what_the_client_saw(tmp_path):
    witness = WitnessedRegister(
        Shelf([True, False, AresError("no"), b"v", ObjectNotFound("k", "d"), AresError("no")]),
        History(tmp_path, 1, "object"),
    )

    async def live():
        for asked in (
            *(witness.write(value) for value in (b"1", b"2", b"3")),
            witness.read(),
            witness.read(),
            witness.read(),
        ):
            try:
                await asked
            except AresError:
                continue

    asyncio.run(live())
    [path] = tmp_path.glob("*.history")
    seen = [
        (event.operation, event.value, event.outcome) for event in load(path.read_bytes(), "it")
    ]
    assert seen == [
        ("write", value_of(b"1"), "ok"),
        ("write", value_of(b"3"), "unknown"),
        ("read", value_of(b"v"), "ok"),
        ("read", None, "ok"),
    ]
