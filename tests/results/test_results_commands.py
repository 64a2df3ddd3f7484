"""`ares-cli results`: its output, and unusable databases."""

import csv
import json
import sqlite3
from pathlib import Path

import pytest

from ares.cli.main import run
from ares.results import database
from tests.ports import free_addresses
from tests.results.operation_logs import content, imported, own, rows, write


def run_results(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = run([str(word) for word in words])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write(
        tmp_path / "runs" / "first" / "w.log",
        own("write", 1),
        own("read", 2),
        "garbage\n",
        {"message": "hello"},
    )
    write(tmp_path / "runs" / "second" / "w.log", own("put", 1), '{"as')
    return tmp_path / "runs"


def test_an_import_says_what_it_took_and_what_not(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run_results(capsys, "results", "import", runs, "--into", tmp_path / "r.db")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "2 runs; 2 files had new lines: 3 operations, 0 events, 0 spans",
        "1 lines are of no operation",
        "1 malformed lines:",
        f"  {runs}/first/w.log:3: JSON is malformed: invalid character (byte 0)",
        "1 lines without an end:",
        f"  {runs}/second/w.log:2: the line has no end yet, and is read when it has",
    ]
    status, out, _ = run_results(
        capsys, "results", "import", runs, "--into", tmp_path / "r.db", "--json"
    )
    assert (status, json.loads(out)["operations"], json.loads(out)["unfinished"]["count"]) == (
        0,
        0,
        1,
    )


def test_a_directory_that_is_named_twice_or_within_another_is_read_once(
    runs: Path, tmp_path: Path
) -> None:
    report = imported(tmp_path / "r.db", runs, runs / "first", runs)
    assert (report.runs, report.files, report.malformed.count) == (2, 2, 1)


def test_a_summary_for_people_for_tables_and_for_programs(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(tmp_path / "r.db", runs)
    status, out, _ = run_results(capsys, "results", "summary", tmp_path / "r.db")
    assert status == 0
    assert [line.split() for line in out.splitlines()] == [
        [
            "run",
            "op",
            "clients",
            "ops",
            "failed",
            "mean",
            "ms",
            "p50",
            "ms",
            "p99",
            "ms",
            "max",
            "ms",
            "client",
            "ops/s",
        ],
        *(
            [],
            ["first"],
            ["first", "write", "1", "1", "0", *["250.000"] * 4, "4.000"],
            ["first", "read", "1", "1", "0", *["250.000"] * 4, "4.000"],
        ),
        *([], ["second"], ["second", "put", "1", "1", "0", *["250.000"] * 4, "4.000"]),
    ]
    _, out, _ = run_results(capsys, "results", "summary", tmp_path / "r.db", "--csv")
    assert [
        (row["run_dir"], row["op"], row["p99_s"]) for row in csv.DictReader(out.splitlines())
    ] == [
        *(
            (f"{runs}/first", "write", "0.250000000"),
            (f"{runs}/first", "read", "0.250000000"),
            (f"{runs}/second", "put", "0.250000000"),
        ),
    ]
    _, out, _ = run_results(capsys, "results", "summary", tmp_path / "r.db", "--json")
    assert [row["scenario"] for row in json.loads(out)] == ["first", "first", "second"]
    assert run_results(capsys, "results", "summary", tmp_path / "r.db", "--json", "--csv")[0] == 2


def test_what_is_no_database_of_results_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.db").write_text("no database" * 100)
    for name, sentence in (
        ("other.db", "CREATE TABLE t (x)"),
        ("later.db", "PRAGMA user_version = 2"),
    ):
        with (
            database.opened(tmp_path / name, create=True)
            if name == "later.db"
            else sqlite3.connect(tmp_path / name) as made
        ):
            made.execute(sentence)
    (tmp_path / "empty.db").touch()
    said = {
        "text.db": "no database of results",
        "other.db": "of another program",
        "later.db": "in format 2",
        "absent.db": "no file",
        "empty.db": "is empty",
    }
    for name, why in said.items():
        before = (tmp_path / name).read_bytes() if (tmp_path / name).exists() else None
        status, _, err = run_results(capsys, "results", "summary", tmp_path / name)
        assert (status, why in err) == (2, True), err
        if name not in ("absent.db", "empty.db"):
            status, _, err = run_results(
                capsys, "results", "import", runs, "--into", tmp_path / name
            )
            assert (status, why in err, (tmp_path / name).read_bytes() == before) == (
                2,
                True,
                True,
            ), err


def test_directories_that_have_nothing_to_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    for directory, why in (
        (tmp_path / "empty", "no operation logs in"),
        (tmp_path / "absent", "is not a directory"),
    ):
        status, _, err = run_results(
            capsys, "results", "import", directory, "--into", tmp_path / "r.db"
        )
        assert (status, why in err, (tmp_path / "r.db").exists()) == (2, True, False)
    status, _, err = run_results(
        capsys, "results", "import", tmp_path / "empty", "--into", tmp_path
    )
    assert (status, "is a directory" in err) == (2, True)
    (tmp_path / "empty" / "run.json").write_text("{}")
    status, _, err = run_results(
        capsys,
        "results",
        "import",
        tmp_path / "empty",
        "--into",
        tmp_path / "r.db",
        "--influx",
        "localhost",
    )
    assert (status, "expected http://" in err) == (2, True)


def test_a_locked_database_is_told_and_keeps_what_it_had(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    imported(tmp_path / "r.db", runs / "first")
    before = content(tmp_path / "r.db")
    other = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    status, _, err = run_results(capsys, "results", "import", runs, "--into", tmp_path / "r.db")
    assert (status, "another program is using" in err) == (1, True)
    other.close()
    assert content(tmp_path / "r.db") == before
    assert run_results(capsys, "results", "import", runs, "--into", tmp_path / "r.db")[0] == 0


def test_a_full_disk_is_told_and_the_next_import_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        write(
            tmp_path / "runs" / f"{number}" / "w.log",
            *(own("write", second, objectID=f"{number}" * 100) for second in range(1000)),
        )
    imported(tmp_path / "r.db", tmp_path / "runs" / "0")
    connect = sqlite3.connect

    def small(*arguments: object, **more: object) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*arguments, **more)  # type: ignore[call-overload]
        made.execute("PRAGMA max_page_count = 120")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        status, _, err = run_results(
            capsys, "results", "import", tmp_path / "runs", "--into", tmp_path / "r.db"
        )
    assert (status, "the disk is full; the part imported before is kept" in err) == (1, True)
    [(kept,)] = rows(tmp_path / "r.db", "SELECT count(*) FROM operations")
    assert 1000 <= kept < 4000
    assert imported(tmp_path / "r.db", tmp_path / "runs").operations == 4000 - kept


def test_an_import_is_told_when_sending_fails(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(
        "influxdb_client", reason="pip install 'ares-storage[results]' has what this needs"
    )
    url = f"http://{free_addresses(1)[0]}"
    status, out, err = run_results(
        capsys, "results", "import", runs, "--into", tmp_path / "r.db", "--influx", url
    )
    assert (
        status,
        "3 operations" in out,
        "0 operations were sent" in out,
        "Connection refused" in err,
    ) == (1, True, True, True)
