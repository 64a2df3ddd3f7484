"""Imports: repeated, after a kill, of grown, replaced or rotated files, and of odd directories."""

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from ares.platform.interpreter import python
from ares.results import importing
from ares.results.log_file import LINE_BYTES_MAX
from tests.results.operation_logs import content, figures, imported, line, own, rows, write


def test_a_run_of_our_own_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    run, into = tmp_path / "runs" / "crashes", tmp_path / "results.db"
    provenance = {"commit": "abc", "seed": 7}
    write(
        run / "run.json",
        {
            "scenario": "crash",
            "algorithm": "CoAresECF",
            "servers": 5,
            "k": 3,
            "m": "2",
            "parameters": {"delta": 4},
            "provenance": provenance,
        },
    )
    write(
        run / "w1.log",
        own("write", 1),
        own("read", 2, outcome="failed", error="Unavailable: s1"),
        own("reconfigure", 3, message="RECONFIG-COMPLETE-DSMM"),
    )
    write(
        run / "w2.jsonl",
        own("put", 4, clientID="w2"),
        own("write", 5, clientID="w2", op_latency=0.75),
        own("list", 6, message="LIST-COMPLETE"),
    )
    write(
        run / "events.jsonl",
        {
            "time": "2026-11-22T12:00:00+01:00",
            "event": "crash",
            "server": "s0",
            "detail": "kill -9",
        },
        {"event": "no time"},
    )
    span = {
        "traceId": "ab" * 16,
        "spanId": "cd" * 8,
        "name": "read",
        "startTimeUnixNano": "5",
        "endTimeUnixNano": "9",
        "attributes": [],
    }
    write(
        run / "t.otlp.jsonl",
        {"resourceSpans": [{"scopeSpans": [{"spans": [span, span]}]}]},
        "no spans\n",
    )
    report = imported(into, tmp_path / "runs")
    assert (report.operations, report.events, report.spans, report.malformed.count) == (6, 1, 2, 3)
    assert [(Path(path).name, number) for path, number, _ in report.malformed.first] == [
        ("run.json", 0),
        ("events.jsonl", 2),
        ("t.otlp.jsonl", 2),
    ]
    [found] = rows(
        into, "SELECT scenario, algorithm, servers, k, m, level, parameters, provenance FROM runs"
    )
    assert found == (
        "crash",
        "CoAresECF",
        5,
        3,
        None,
        "client",
        '{"delta":4}',
        json.dumps(provenance, separators=(",", ":")),
    )
    assert [
        (row["op"], row["level"], row["n_ops"], row["n_unsuccessful"], row["mean_s"])
        for row in figures(into)
    ] == [
        *(
            ("write", "client", 2, 0, 0.5),
            ("read", "client", 0, 1, None),
            ("recon", "client", 1, 0, 0.25),
        ),
        *(("list", "user", 1, 0, 0.25), ("put", "user", 1, 0, 0.25)),
    ]
    assert rows(into, "SELECT began_s, error FROM operations WHERE op = 'read'") == [
        (1795345201.873456, "Unavailable: s1")
    ]
    assert rows(into, "SELECT what, server, detail, at_s FROM events") == [
        ("crash", "s0", "kill -9", 1795345200.0)
    ]


def test_again_adds_nothing_and_what_grew_adds_what_is_new(tmp_path: Path) -> None:
    log, into = tmp_path / "run" / "w.log", tmp_path / "results.db"
    write(log, own("write", 1), "{\n", json.dumps(own("write", 2)))
    assert imported(into, tmp_path).operations == 2
    before = content(into)
    assert imported(into, tmp_path).files == 0
    assert content(into) == before
    write(log, "\n", own("write", 3), '{"asctime": "2026-11-22T', mode="a")
    report = imported(into, tmp_path)
    assert (
        report.operations,
        report.malformed.count,
        report.read_again,
        report.unfinished.first[0][1],
    ) == (1, 0, 0, 5)
    write(
        log, '12:00:00Z", "message": "READ-COMPLETE", "op_latency": 1, "clientID": 1}\n', mode="a"
    )
    assert imported(into, tmp_path).operations == 1
    assert rows(into, "SELECT line, op FROM operations") == [
        (1, "write"),
        (3, "write"),
        (4, "write"),
        (5, "read"),
    ]
    other = tmp_path / "other.db"
    imported(other, tmp_path)
    assert content(other) == content(into)


@pytest.mark.parametrize(
    "later", [[own("write", 7)], [own("write", 7), own("write", 8), own("write", 9)], []]
)
def test_what_was_replaced_is_read_again(tmp_path: Path, later: list[object]) -> None:
    log, into = tmp_path / "run" / "w.log", tmp_path / "results.db"
    write(log, own("write", 1), own("write", 2), "garbage\n")
    imported(into, tmp_path)
    write(log, *later)
    report = imported(into, tmp_path)
    assert (report.read_again, report.operations) == (1, len(later))
    other = tmp_path / "other.db"
    imported(other, tmp_path)
    assert content(other)[2:] == content(into)[2:]


def test_a_rotation_loses_and_doubles_nothing(tmp_path: Path) -> None:
    run, into = tmp_path / "run", tmp_path / "results.db"
    write(run / "w.log", own("write", 1))
    for number in range(2, 6):
        imported(into, tmp_path)
        if (run / "w.log.1").exists():
            (run / "w.log.1").rename(run / "w.log.2")
        (run / "w.log").rename(run / "w.log.1")
        write(run / "w.log.1", own("write", 10 * number), mode="a")
        write(run / "w.log", own("write", number))
    imported(into, tmp_path)
    numbers = [json.loads(more)["opID"] for (more,) in rows(into, "SELECT more FROM operations")]
    assert sorted(numbers) == sorted(
        f"write-w1-{number}" for number in (1, 2, 3, 4, 5, 20, 30, 40, 50)
    )
    assert imported(into, tmp_path).files == 0


KILLED_AFTER_CALLS = """
import os, signal, sys
from pathlib import Path
from ares.results import importing
from tests.results.operation_logs import imported

left = int(sys.argv[3])

def count(frame, event, argument):
    global left
    if frame.f_code.co_filename == importing.__file__:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

importing.IMPORT_BATCH_LINES = 200
sys.setprofile(count)
imported(Path(sys.argv[1]), Path(sys.argv[2]))
"""
"""Program that ends itself after a number of calls and returns in the importing module."""


def test_killed_at_any_moment_it_ends_with_the_same(tmp_path: Path) -> None:
    lines = [
        json.dumps(own(("write", "read")[number % 2], number % 3000)) + "\n"
        for number in range(3_000)
    ]
    for number in range(3):
        write(
            tmp_path / f"run{number}" / "w.log", *lines, "garbage\n" * 30, *lines[: 1000 * number]
        )
    whole, killed = tmp_path / "whole.db", tmp_path / "killed.db"
    imported(whole, tmp_path)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    chance = random.Random(14)
    for _ in range(4):
        calls = str(chance.randrange(1, 1_500))
        command = python("-c", KILLED_AFTER_CALLS, killed, tmp_path, calls)
        assert subprocess.run(command, env=environment).returncode == -signal.SIGKILL
    assert rows(killed, "SELECT count(*) FROM operations") < rows(
        whole, "SELECT count(*) FROM operations"
    )
    imported(killed, tmp_path)
    assert content(killed) == content(whole)


def test_lines_of_all_kinds(tmp_path: Path) -> None:
    """Bad lines are counted and named, and the first of each file are kept.

    No bad line ends the import.
    """
    bad = [
        *(
            "[]",
            "null",
            "{",
            '{"message": 5}',
            "\\x00",
            "x" * 100,
            "[" * 100_000,
            '{"message":"' + "y" * LINE_BYTES_MAX + '"}',
            json.dumps(own("write", 1))[:-9],
        ),
        *(json.dumps(own("write", 1) | wrong) for wrong in WRONG),
    ]
    good = [
        own("write", 1),
        {"message": "Connecting to servers"},
        own("write", 2, objectID="k" * (LINE_BYTES_MAX - 1000)),
        own("write", 3, status=[]),
    ]
    write(
        tmp_path / "run" / "w.log",
        *good,
        *(f"{one}\n" for one in bad),
        "\n",
        "  \n",
        own("read", 4),
    )
    (tmp_path / "run" / "raw.log").write_bytes(b"\xff\xfe\0\n" * 1000)
    report = imported(tmp_path / "results.db", tmp_path)
    assert (
        report.operations,
        report.passed_over,
        report.malformed.count,
        [(Path(path).name, number) for path, number, _ in report.malformed.first],
    ) == (4, 1, len(bad) + 1000, [("raw.log", 1), ("w.log", 5)])
    assert list(report.malformed.files.values()) == [1000, len(bad)]
    kept = rows(
        tmp_path / "results.db",
        "SELECT f.path, b.line FROM bad_lines b JOIN files f ON f.id = b.file_id",
    )
    assert [number for path, number in kept if path.endswith("/w.log")] == list(
        range(5, 5 + min(len(bad), 20))
    )
    assert rows(tmp_path / "results.db", "SELECT malformed FROM files ORDER BY path") == [
        (1000,),
        (len(bad),),
    ]


WRONG: list[dict[str, object]] = [
    *(
        {"asctime": asctime}
        for asctime in (
            "yesterday",
            5,
            None,
            "0001-01-01T00:00:00+00:00",
            "9999-12-31T23:59:59",
            "1970-01-01T00:00:01",
        )
    ),
    *({"op_latency": latency} for latency in (-1, "1", True, [], 1e300, None)),
    *({"file_size": size} for size in (-1, 1.5, "1", 2**63, 10**400)),
    *({"op": op} for op in (5, "a b", "x" * 40, {})),
    *({"clientID": client} for client in (None, [], {}, "\ud800")),
    *({"status": status} for status in ("FINE", 5, {}, [5])),
]


def test_a_line_without_end_takes_no_memory_and_is_told(tmp_path: Path) -> None:
    log = tmp_path / "run" / "w.log"
    write(log, own("write", 1), "x" * (5 * LINE_BYTES_MAX))
    report = imported(tmp_path / "results.db", tmp_path)
    assert (report.operations, report.malformed.count, report.unfinished.count) == (1, 0, 1)
    write(log, "\n", own("write", 2), mode="a")
    report = imported(tmp_path / "results.db", tmp_path)
    assert (report.operations, report.malformed.count, report.unfinished.count) == (1, 1, 0)


def test_surroundings_of_all_kinds(tmp_path: Path) -> None:
    """The directory has circular and dangling links, pipes, and odd names.

    A directory has the name of a log; odd names are not UTF-8 or would change a terminal.
    """
    run = tmp_path / "run"
    write(run / "w.log", own("write", 1))
    (run / "loop").symlink_to(run)
    (run / "around.log").symlink_to(run / "around.log")
    (run / "nowhere.log").symlink_to(tmp_path / "nowhere")
    os.mkfifo(run / "pipe.log")
    (run / "directory.log").mkdir()
    write(Path(os.fsdecode(os.fsencode(run) + b"/\xff\x1b[31m"), "w.log"), own("write", 2))
    report = imported(tmp_path / "results.db", run / "loop")
    assert (report.runs, report.operations, report.unreadable.count) == (2, 2, 3)
    assert rows(tmp_path / "results.db", "SELECT path LIKE '%\\xff%' FROM runs ORDER BY path") == [
        (0,),
        (1,),
    ]
    assert imported(tmp_path / "results.db", tmp_path).operations == 0


def test_spans_of_a_run_are_bounded_and_the_rest_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "RUN_SPANS_MAX", 3)
    span = {
        "traceId": "ab",
        "spanId": "cd",
        "name": "read",
        "startTimeUnixNano": "5",
        "endTimeUnixNano": "9",
    }
    for name in ("a.otlp.jsonl", "b.otlp.jsonl"):
        spans = [span | {"name": name}, span]
        write(tmp_path / "run" / name, {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    report = imported(tmp_path / "results.db", tmp_path)
    assert (report.spans, report.left_out) == (3, 1)
    write(
        tmp_path / "run" / "b.otlp.jsonl",
        {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]},
        mode="a",
    )
    assert imported(tmp_path / "results.db", tmp_path).left_out == 1


def test_mutated_logs_never_stop_an_import(tmp_path: Path) -> None:
    """Each line is an operation, skipped, malformed or empty.

    A second import finds no new lines.
    """
    chance = random.Random(14)
    base = b"".join(
        json.dumps(one).encode() + b"\n"
        for one in (
            own("write", 1),
            line("read", 2),
            own("put", 3, error="x"),
            {"message": "Connecting"},
        )
    )
    for number in range(60):
        mutated = bytearray(base * 3)
        for _ in range(chance.randrange(1, 20)):
            place = chance.randrange(len(mutated))
            mutated[place : place + chance.randrange(3)] = chance.choice(
                [
                    b"",
                    b"\n",
                    b"\0",
                    b"9" * 400,
                    b"\xc3",
                    b'"',
                    b"[{",
                    bytes([chance.randrange(256)]),
                ]
            )
        names = (
            f"logs_scalability_slow_ABD_3-{number}-1_1/client-1-x.log",
            f"own{number}/w.log",
            f"own{number}/events.jsonl",
            f"own{number}/t.otlp.jsonl",
        )
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(mutated)
        (tmp_path / f"own{number}" / "run.json").write_bytes(
            bytes(mutated[: chance.randrange(len(mutated))])
        )
    imported(tmp_path / "results.db", tmp_path)
    assert imported(tmp_path / "results.db", tmp_path).operations == 0
    counted = (
        "SELECT lines >= malformed + passed_over + (SELECT count(*) FROM operations o WHERE "
        "o.file_id = files.id) FROM files"
    )
    assert {whole for (whole,) in rows(tmp_path / "results.db", counted)} == {1}
    assert figures(tmp_path / "results.db")


def test_logs_below_a_run_belong_to_it(tmp_path: Path) -> None:
    round = tmp_path / "runs" / "scenario" / "round"
    write(round / "run.json", {"scenario": "s", "algorithm": "ABD"})
    for host in ("h1", "h2"):
        write(round / "logs" / host / "client-1.log", own("read", 1, clientID=host))
    write(round / "events.jsonl", {"time": "2026-11-22T10:00:00+00:00", "event": "crash"})
    write(round / "logs" / "other" / "run.json", {"scenario": "of its own"})
    write(round / "logs" / "other" / "client-1.log", own("read", 1))
    into = tmp_path / "results.db"
    assert imported(into, tmp_path / "runs").operations == 3
    assert imported(into, tmp_path / "runs").files == 0
    counted = (
        "SELECT scenario, count(*) FROM measured o JOIN runs r ON r.id = o.run_id GROUP BY 1 "
        "ORDER BY 1"
    )
    assert [tuple(row) for row in rows(into, counted)] == [("of its own", 1), ("s", 2)]
    assert [tuple(row) for row in rows(into, "SELECT count(*) FROM runs")] == [(2,)]
