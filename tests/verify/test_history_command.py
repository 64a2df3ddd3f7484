"""ares-cli check-history: what it says, and its exit status."""

import json

import pytest

from ares.cli.main import run
from ares.verify.history import dump

from .making import r, w

RIGHT = [w(0, 1, "a", tag=(1, 7)), r(2, 3, "a", tag=(1, 7))]
STALE = [w(0, 1, "a", tag=(1, 7)), w(2, 3, "b", tag=(2, 7)), r(4, 5, "a", tag=(1, 7)), w(0, 1, "c", key="fine", tag=(1, 7))]
GOING_BACK = [w(0, 9, "a", tag=(1, 7)), w(0, 1, "b", tag=(2, 7)), r(2, 3, "a", tag=(1, 7))]


@pytest.fixture
def history(tmp_path):
    def write(events):
        path = tmp_path / "history.jsonl"
        path.write_bytes(events if isinstance(events, bytes) else dump(events))
        return str(path)

    return write


def test_a_right_history(history, capsys):
    assert run(["check-history", history(RIGHT)]) == 0
    assert capsys.readouterr().out == "linearizable: 2 operations on 1 keys\n"


def test_a_wrong_history_shows_the_operations_at_odds(history, capsys):
    assert run(["check-history", history(STALE)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("NOT linearizable: 4 operations on 2 keys; 1 contradictions\nkey 'k': 'a' must come before 'b'")
    assert all(f"  {event.describe()}\n" in shown for event in STALE[:3])
    assert "fine" not in shown


def test_a_wrong_history_as_json(history, capsys):
    assert run(["check-history", "--json", history(STALE)]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["operations"], told["keys"], told["undecided"]) == (False, 4, 2, [])
    (violation,) = told["violations"]
    assert violation["key"] == "k"
    assert [event["client"] for event in violation["events"]] == ["w0", "w2", "r4"]
    assert "tag_violations" not in told


def test_only_so_many_contradictions_are_shown_to_a_person(history, capsys):
    path = history([r(n, n + 1, f"v{n}") for n in range(25)])
    assert run(["check-history", path]) == 1
    shown = capsys.readouterr().out
    assert shown.count("nobody wrote it") == 10
    assert "... and 15 more; --json shows all" in shown
    assert run(["check-history", path, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["violations"]) == 25


def test_tags_are_checked_only_when_asked_for(history, capsys):
    path = history(GOING_BACK)
    assert run(["check-history", path]) == 0
    capsys.readouterr()
    assert run(["check-history", path, "--tags"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("linearizable: 3 operations on 1 keys\ntags NOT in order: 1 contradictions\n")
    assert "r2's read has tag 1.7, lower than 2.7" in shown
    assert run(["check-history", path, "--tags", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["violations"], len(told["tag_violations"])) == (False, [], 1)


def test_tags_in_order(history, capsys):
    assert run(["check-history", "--tags", history([*RIGHT, r(4, 5, "a")])]) == 0
    assert capsys.readouterr().out.endswith("tags in order (1 completed operations carry no tag and were not judged)\n")


def test_undecided_is_not_passed_off_as_right(history, capsys, monkeypatch):
    monkeypatch.setattr("ares.verify.linearizability.check.__defaults__", (1,))
    events = [*(w(0, 100, value) for value in "ab" for _ in range(6)), *(r(n, n + 0.5, "ab"[n % 2]) for n in range(1, 14))]
    assert run(["check-history", history(events)]) == 1
    assert capsys.readouterr().out.startswith("undecided: 25 operations on 1 keys, no contradiction found\nkey 'k': undecided: 1 states")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not json\n", ":1: not an event of a history"),
        (dump(RIGHT) + b'{"client":"x"}\n', ":3: not an event"),
        (dump([r(3, 2, None)]), "responded before it was invoked"),
    ],
)
def test_unreadable_input(history, capsys, content, told):
    assert run(["check-history", history(content)]) == 2
    assert told in capsys.readouterr().err


def test_a_missing_file(tmp_path, capsys):
    assert run(["check-history", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_tags_asked_for_where_there_are_none(history, capsys):
    assert run(["check-history", "--tags", history([r(0, 1, None)])]) == 2
    assert "no operation carries a tag" in capsys.readouterr().err


def test_control_characters_do_not_reach_the_terminal(history, capsys):
    assert run(["check-history", history([r(0, 1, "\x1b[2J", key="\x1b[31m")])]) == 1
    assert "\x1b" not in capsys.readouterr().out
