"""ares-cli check-history: its output, and its exit status."""

import json

import pytest
from msgspec import structs

from ares.cli.main import run
from ares.testing.verify.history import dump
from ares.testing.verify.log_history import LogEvent, dump_log

from .making import r, w

RIGHT = [w(0, 1, "a", tag=(1, 7)), r(2, 3, "a", tag=(1, 7))]
STALE = [
    w(0, 1, "a", tag=(1, 7)),
    w(2, 3, "b", tag=(2, 7)),
    r(4, 5, "a", tag=(1, 7)),
    w(0, 1, "c", key="fine", tag=(1, 7)),
]
FORK = [
    structs.replace(w(0, 3, value, tag=(1, writer)), base=(0, 0))
    for value, writer in (("a", 7), ("b", 8))
]
LATE = structs.replace(w(4, 5, "c", tag=(2, 7)), base=(1, 7))
GOING_BACK = [w(0, 9, "a", tag=(1, 7)), w(0, 1, "b", tag=(2, 7)), r(2, 3, "a", tag=(1, 7))]


@pytest.fixture
def history(tmp_path):
    def write(events):
        path = tmp_path / "history.jsonl"
        path.write_bytes(events if isinstance(events, bytes) else dump(events))
        return str(path)

    return write


def test_a_linearizable_history_passes(history, capsys):
    assert run(["check-history", history(RIGHT)]) == 0
    assert capsys.readouterr().out == "linearizable: 2 operations on 1 key\n"


def test_a_wrong_history_shows_the_operations_at_odds(history, capsys):
    assert run(["check-history", history(STALE)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(
        "NOT linearizable: 4 operations on 2 keys; 1 contradiction\n"
        "key 'k': 'a' must come before 'b'"
    )
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
    assert shown.count("no write stored it") == 10
    assert "... and 15 more; --json shows all" in shown
    assert run(["check-history", path, "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["violations"]) == 25


def test_tags_are_checked_only_when_asked_for(history, capsys):
    path = history(GOING_BACK)
    assert run(["check-history", path]) == 0
    capsys.readouterr()
    assert run(["check-history", path, "--tags"]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(
        "linearizable: 3 operations on 1 key\ntags NOT in order: 1 contradiction\n"
    )
    assert "r2's read has tag 1.7, lower than 2.7" in shown
    assert run(["check-history", path, "--tags", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["violations"], len(told["tag_violations"])) == (False, [], 1)


def test_a_history_with_tags_in_order_passes(history, capsys):
    assert run(["check-history", "--tags", history([*RIGHT, r(4, 5, "a")])]) == 0
    assert capsys.readouterr().out.endswith(
        "tags in order (1 completed operations carry no tag and were not judged)\n"
    )


def test_coverability_is_checked_where_there_are_bases(history, capsys):
    assert (
        run(
            [
                "check-history",
                history([*FORK, *(structs.replace(event, key="plain") for event in RIGHT)]),
            ]
        )
        == 0
    )
    assert capsys.readouterr().out == (
        "linearizable: 4 operations on 2 keys\n"
        "weakly coverable: 2 operations on 1 key with versions\n"
        "1 fork, where concurrent writes covered one version, which is allowed:\n"
        "key 'k': 1.7, 1.8 over 0.0; lost: 1.7\n"
    )


def test_what_is_not_coverable(history, capsys):
    path = history([*FORK, LATE])
    assert run(["check-history", path]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(
        "linearizable: 3 operations on 1 key\n"
        "NOT weakly coverable: 3 operations on 1 key with versions; 1 contradiction\n"
    )
    assert "w4's write covered version 1.7, although 1.8 was known before it began" in shown
    assert f"  {LATE.describe()}\n" in shown
    assert run(["check-history", path, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["violations"], told["coverability"]["ok"]) == (False, [], False)
    assert [event["client"] for event in told["coverability"]["violations"][0]["events"]] == [
        "w0",
        "w4",
    ]
    assert [fork["lost"] for fork in told["coverability"]["forks"]] == [[[1, 8]]]


def test_many_forks_and_operations_without_a_version(history, capsys):
    forks = [structs.replace(event, key=f"k{n}") for n in range(12) for event in FORK]
    assert (
        run(
            [
                "check-history",
                history([*forks, structs.replace(LATE, tag=None, key="other", base=(0, 0))]),
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    assert (
        "with versions (1 completed operations of unknown version were not judged)\n12 forks"
        in shown
    )
    assert shown.endswith("... and 2 more; --json shows all\n")


def test_the_help_tells_of_coverability(capsys):
    assert run(["check-history", "--help"]) == 0
    assert "weakly coverable" in capsys.readouterr().out


def test_undecided_is_not_passed_off_as_right(history, capsys, monkeypatch):
    monkeypatch.setattr("ares.testing.verify.linearizability.check.__defaults__", (1,))
    events = [
        *(w(0, 100, value) for value in "ab" for _ in range(6)),
        *(r(n, n + 0.5, "ab"[n % 2]) for n in range(1, 14)),
    ]
    assert run(["check-history", history(events)]) == 1
    assert capsys.readouterr().out.startswith(
        "undecided: 25 operations on 1 key, no contradiction found\nkey 'k': undecided: 1 states"
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"not json\n", ":1: not an event of a history"),
        (dump(RIGHT) + b'{"client":"x"}\n', ":3: not an event"),
        (dump([r(3, 2, None)]), "responded before it was invoked"),
    ],
)
def test_an_unreadable_history_is_refused_with_the_reason(history, capsys, content, told):
    assert run(["check-history", history(content)]) == 2
    assert told in capsys.readouterr().err


def test_a_missing_history_is_refused(tmp_path, capsys):
    assert run(["check-history", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_tags_asked_for_where_there_are_none(history, capsys):
    assert run(["check-history", "--tags", history([r(0, 1, None)])]) == 2
    assert "no operation carries a tag" in capsys.readouterr().err


def test_control_characters_do_not_reach_the_terminal(history, capsys):
    assert run(["check-history", history([r(0, 1, "\x1b[2J", key="\x1b[31m")])]) == 1
    assert "\x1b" not in capsys.readouterr().out


# -- histories of logs -----------------------------------------------------------------------------


def test_a_history_of_a_log_is_judged_as_such(tmp_path, capsys):
    path = tmp_path / "log.jsonl"
    first = LogEvent("w", "append", "events", 0, 0.0, 1.0, ("a",))
    path.write_bytes(dump_log([first, LogEvent("r", "tail", "events", 1, 2.0, 3.0)]))
    assert run(["check-history", str(path)]) == 0
    assert capsys.readouterr().out == "a log can show this: 2 operations on 1 log\n"
    path.write_bytes(
        dump_log(
            [first, *(LogEvent(f"r{n}\x1b", "read", "events", 0, 2.0, 3.0) for n in range(12))]
        )
    )
    assert run(["check-history", str(path)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("NO log can show this: 13 operations on 1 log; 1")
    assert "had at most 0 entries" in shown
    assert "\x1b" not in shown
    assert run(["check-history", "--json", str(path)]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        (b'{"client":"w","operation":"append","log":"l"}\n', [], ":1: not an event of a log"),
        (dump_log([LogEvent("w", "append", "l", 0, 0.0, 1.0, ("a",))]), ["--tags"], "has no tags"),
        (
            dump_log([LogEvent("w", "append", "l", n, 0.0, 1.0, ("a",)) for n in (0, 1)]),
            [],
            "appended twice",
        ),
    ],
)
def test_an_unusable_history_of_a_log(tmp_path, capsys, content, options, told):
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    assert run(["check-history", str(path), *options]) == 2
    assert told in capsys.readouterr().err
