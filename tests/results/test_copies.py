"""Copies of runs: the content identifies a run, and each run counts once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ares.cli.main import run as ares_cli
from ares.results.importing import ImportReport
from tests.results.operation_logs import imported, own, rows, write

ABOUT = {"scenario": "s", "algorithm": "ABD", "servers": 3, "iteration": 1}
_COUNTS = (
    "SELECT r.path, count(*) FROM operations o JOIN files f ON f.id = o.file_id JOIN runs r ON "
    "r.id = f.run_id GROUP BY 1 ORDER BY 1"
)


def a_run(at: Path, about: object = ABOUT, first: int = 0, count: int = 5) -> Path:
    """Write a run of two clients."""
    for client in ("c1", "c2"):
        lines = [own("write", first + number, clientID=client) for number in range(count)]
        write(at / "logs" / f"{client}.log" if about else at / f"{client}.log", *lines)
    if about:
        write(at / "run.json", about)
        write(at / "events.jsonl", {"time": "2026-11-22T12:00:00+01:00", "event": "crash"})
    return at


def counts(into: Path) -> dict[str, int]:
    """Return the number of operations by directory name."""
    return {Path(path).name: count for path, count in rows(into, _COUNTS)}


def left_out(report: ImportReport) -> list[tuple[str, str]]:
    """Return name and reason of each directory that was left out."""
    return [(Path(path).name, why) for path, _, why in report.copies.first]


@pytest.mark.parametrize("about", [ABOUT, None])
def test_a_copied_directory_counts_once(tmp_path: Path, about: object) -> None:
    into, top = tmp_path / "r.db", tmp_path / "runs"
    run = a_run(top / "a", about)
    shutil.copytree(run, top / "backup" / "of" / "a2")
    report = imported(into, top)
    assert (counts(into), report.runs) == ({"a": 10}, 1)
    assert left_out(report) == [
        ("a2", f"left out, since {run} holds the same run, which counts once")
    ]
    shutil.copytree(run, tmp_path / "elsewhere" / "b")
    report = imported(into, top, tmp_path / "elsewhere")
    assert (counts(into), [name for name, _ in left_out(report)]) == ({"a": 10}, ["a2", "b"])
    assert (report.operations, report.files) == (0, 0)


def test_the_command_names_what_it_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "runs" / "a")
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "copy"))
    asked = ["results", "import", str(tmp_path / "runs"), "--into", str(tmp_path / "r.db")]
    assert ares_cli(asked) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 runs; 3 files had new lines: 10 operations, 1 events, 0 spans",
        "1 copies:",
        f"  {copy}: left out, since {run} holds the same run, which counts once",
    ]
    assert ares_cli([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["copies"]
    assert (told["count"], list(told["files"])) == (1, [str(copy)])


def _renamed_iteration(run: Path) -> None:
    write(run / "run.json", ABOUT | {"iteration": 2})


def _other_line(run: Path) -> None:
    write(run / "logs" / "c2.log", own("write", 99), mode="a")
    write(run / "logs" / "c1.log", own("write", 77))


def _first_line_in_common(run: Path) -> None:
    for client in ("c1", "c2"):
        write(run / "logs" / f"{client}.log", own("write", 0, clientID=client), own("read", 50))


@pytest.mark.parametrize("change", [_renamed_iteration, _other_line, _first_line_in_common])
def test_two_runs_with_different_content_stay_two(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Import two runs with the same name and a common part."""
    into = tmp_path / "r.db"
    run = a_run(tmp_path / "first" / "run")
    change(Path(shutil.copytree(run, tmp_path / "second" / "run")))
    report = imported(into, tmp_path / "first", tmp_path / "second")
    assert (report.runs, report.copies.count, len(rows(into, _COUNTS))) == (2, 0, 2)


def test_a_copy_that_was_made_while_the_run_went_on_counts_once(tmp_path: Path) -> None:
    """Take the directory with the most lines for the run, in either order."""
    top, into = tmp_path / "runs", tmp_path / "r.db"
    run = a_run(top / "m", count=3)
    for name in ("early", "zlate"):
        shutil.copytree(run, top / name)
    a_run(run, count=5)
    for round in range(3):
        report = imported(into, top)
        assert counts(into) == {"m": 10}
        assert sorted({name for name, _ in left_out(report)}) == ["early", "zlate"]
        assert report.operations == (0 if round else 10)
    shutil.copytree(run, top / "exact")
    a_run(run, count=6)
    assert imported(into, top).operations == 2
    assert counts(into) == {"m": 12}


def test_a_directory_that_was_moved_keeps_its_run(tmp_path: Path) -> None:
    top, into = tmp_path / "runs", tmp_path / "r.db"
    a_run(top / "old").joinpath("unread.log").write_text('{"asctime": "20')
    imported(into, top)
    (top / "old").rename(top / "new")
    write(top / "new" / "logs" / "c1.log", own("write", 9), mode="a")
    report = imported(into, top)
    assert (counts(into), report.operations, report.copies.count) == ({"new": 11}, 1, 0)
    assert rows(into, "SELECT count(*) FROM runs") == [(1,)]
    assert imported(into, top).operations == 0


def test_a_copy_under_another_run_s_name_and_place(tmp_path: Path) -> None:
    """Replace `latest` after each run: every run counts once."""
    top, into = tmp_path / "runs", tmp_path / "r.db"
    for latest in ("latest", "zlatest"):
        for number in range(3):
            run = a_run(top / f"run{number}", first=10 * number)
            shutil.rmtree(top / latest, ignore_errors=True)
            shutil.copytree(run, top / latest)
            imported(into, top)
            assert sum(counts(into).values()) == 10 * (number + 1)
        shutil.rmtree(top)
        into.unlink()


def test_a_copy_after_a_rotation_counts_once(tmp_path: Path) -> None:
    top, into = tmp_path / "runs", tmp_path / "r.db"
    log = top / "run" / "w.log"
    write(log, own("write", 1), own("write", 2))
    imported(into, top)
    log.rename(top / "run" / "w.log.1")
    write(log, own("write", 3))
    shutil.copytree(top / "run", top / "backup")
    report = imported(into, top)
    assert (sum(counts(into).values()), report.operations) == (3, 1)
    assert imported(into, top).operations == 0


def test_a_log_that_was_copied_beside_itself_counts_once(tmp_path: Path) -> None:
    into, run = tmp_path / "r.db", a_run(tmp_path / "runs" / "a")
    shutil.copytree(run / "logs", run / "logs of before")
    report = imported(into, tmp_path / "runs")
    assert (counts(into), report.copies.count) == ({"a": 10}, 2)
    assert "holds the same run" not in left_out(report)[0][1]


def test_a_partly_imported_run_is_completed_from_its_copy(tmp_path: Path) -> None:
    into, run = tmp_path / "r.db", a_run(tmp_path / "a")
    copy = Path(shutil.copytree(run, tmp_path / "b"))
    (run / "logs" / "c2.log").rename(tmp_path / "c2")
    imported(into, run)
    (tmp_path / "c2").rename(run / "logs" / "c2.log")
    imported(into, copy)
    assert counts(into) == {"b": 10}
    imported(into, run)
    assert counts(into) == {"b": 10}


def test_load_without_operations_counts_once(tmp_path: Path) -> None:
    into, run = tmp_path / "r.db", tmp_path / "runs" / "load"
    write(run / "run.json", ABOUT)
    write(run / "load.json", {"points": [{"clients": 4, "seconds": 3.25, "per_s": 991.5}]})
    shutil.copytree(run, tmp_path / "runs" / "load (copy)")
    report = imported(into, tmp_path / "runs")
    assert (report.points, report.copies.count) == (1, 1)
