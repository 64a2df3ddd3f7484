"""The page of results: data equal to the database, with any names, and a small size."""

import itertools
import json
import os
import re
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ares.cli.main import run as ares_cli
from ares.results.database import opened
from ares.results.over_time import _members
from ares.results.page import render
from ares.results.summary import summarise

from . import operation_logs
from .operation_logs import DATA
from .runs_on_disk import line, some_runs, span, write_run

FIGURES = {
    "mean": "mean_s",
    "p50": "p50_s",
    "p99": "p99_s",
    "min": "min_s",
    "max": "max_s",
    "throughput": "throughput_ops_s_per_client",
}
HOSTILE = (
    "</script><script>window.executed=1</script><!--<img src=x "
    "onerror=window.executed=1>/*SCRIPT*//*DATA*/\u202e\x00\x1b[31m"
)


def quiet(*_: object) -> None:
    """Ignore progress."""


def page_of(path: Path) -> str:
    with opened(path) as database:
        return render(database, path.name, quiet)


def imported(tmp_path: Path, top: Path) -> Path:
    path = tmp_path / "results.db"
    operation_logs.imported(path, top)
    return path


def page_file(tmp_path_factory: pytest.TempPathFactory, fill: Callable[[Path], object]) -> Path:
    """Make the page of the runs written by ``fill`` below a directory."""
    top = tmp_path_factory.mktemp("runs")
    fill(top)
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(imported(tmp_path_factory.mktemp("database"), top)))
    return path


class Scripts(HTMLParser):
    """A parser of the page's scripts and addresses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.addresses: list[str] = []
        self._inside = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script"
        self.scripts += [""] if self._inside else []
        self.addresses += [
            value or ""
            for name, value in attributes
            if name in ("src", "href", "srcset", "action", "data")
        ]

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def data_of(page: str) -> dict[str, Any]:
    found = Scripts(page)
    assert len(found.scripts) == 3, "text from outside starts no script"
    return dict(json.loads(found.scripts[0]))


def assert_same_figures(data: dict[str, Any], path: Path) -> None:
    """Compare every figure of `results summary` with the page."""
    with opened(path) as database:
        rows = list(summarise(database))
    runs = {run["path"]: run for run in data["runs"]}
    assert len(rows) == sum(len(run["operations"]) for run in data["runs"])
    for row in rows:
        shown = runs[row["run_dir"]]["operations"][row["op"]]
        assert [shown["clients"], shown["ok"], shown["failed"]] == [
            row["n_clients"],
            row["n_ops"],
            row["n_unsuccessful"],
        ]
        for name, column in FIGURES.items():
            assert shown[name] == pytest.approx(row[column], rel=1e-8), (
                row["run_dir"],
                row["op"],
                name,
            )


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("runs")
    some_runs(top)
    return imported(tmp_path_factory.mktemp("database"), top)


@pytest.fixture(scope="module")
def data(database: Path) -> dict[str, Any]:
    return data_of(page_of(database))


def test_it_is_complete_in_itself_and_runs_no_script_but_its_own(database):
    page = page_of(database)
    assert all(address.startswith("#") for address in Scripts(page).addresses)
    assert re.search(r"default-src 'none'.*script-src 'sha256-[\w+/=]+' 'sha256-[\w+/=]+'", page)
    assert not any(
        word in page for word in ("@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML =")
    )
    assert "Copyright (c) 2022 Leon Sorokin" in page, "the licence of uPlot asks for it"


def test_figures_are_those_of_the_summary(data, database):
    assert_same_figures(data, database)
    assert data["totals"] == {
        "runs": 4,
        "operations": 4 * 80 + 3,
        "failed": 2,
        "malformed": 0,
        "rejected_files": 0,
        "points": 0,
    }
    assert any("2 operations failed" in note for note in data["notes"])


def test_a_run_tells_its_parameters_and_where_it_comes_from(data):
    run = next(run for run in data["runs"] if run["path"].endswith("AresEC_65536"))
    assert run["parameters"] == {
        "servers": 3,
        "writers": 2,
        "readers": 2,
        "object_size": 65536,
        "delay_ms": 20,
    }
    assert run["provenance"] == "commit: 0123456789\nseed: 14"
    assert data["parameters"] == ["servers", "writers", "readers", "object_size", "delay_ms"]


def test_what_happened_over_time_is_there_with_faults_and_outcomes(data):
    run = next(run for run in data["runs"] if run["path"].endswith("AresEC_65536"))
    assert [(what, server, detail) for _, what, server, detail in run["events"]] == [
        ("crash", "s1", "SIGKILL"),
        ("join", "s3", None),
    ]
    crashed_s, first_s = (
        run["events"][0][0],
        min(row[0] for row in run["times"]["read"]["each"] + run["times"]["write"]["each"]),
    )
    assert first_s == 0
    assert [row[2] for row in run["times"]["read"]["each"]].count(1) == 1
    assert [row[2] for row in run["times"]["write"]["each"]].count(2) == 1
    assert run["times"]["recon"]["each"] == [[pytest.approx(crashed_s - 5, abs=1e-3), 1.5, 0]]
    assert (run["operations"]["write"]["failed"], run["operations"]["write"]["unknown"]) == (1, 1)
    shares = {
        name: [row[2][place] for row in run["quorums"]["rows"]]
        for place, name in enumerate(run["quorums"]["servers"])
    }
    assert set(shares["s0"]) == {1}
    assert (shares["s1"][0], shares["s1"][-1], shares["s2"][0], shares["s2"][-1]) == (1, 0, 0, 1)


def test_phases_add_up_to_the_mean(data):
    for operation in (run["operations"]["read"] for run in data["runs"]):
        assert operation["timed"] == operation["ok"]
        assert sum(operation["phases"]) == pytest.approx(operation["mean"], rel=1e-3)


def test_the_slowest_the_median_the_fastest_and_a_failed_trace_are_chosen(data):
    run = next(run for run in data["runs"] if run["path"].endswith("AresEC_65536"))
    assert run["traces_of"] == 8
    assert [(trace["kind"], trace["why"], trace["ms"]) for trace in run["traces"]] == [
        *(
            ("read", "slowest", 30),
            ("read", "median", 4),
            ("read", "fastest", 2),
            ("write", "slowest", 9),
            ("write", "slowest failed", 5),
        )
    ]
    slowest, failed = run["traces"][0], run["traces"][-1]
    read, phase = [0, "read", 0, 30, "client"], [1, "Phase1", 1, 20, "client"]
    assert [row[:5] for row in slowest["rows"]] == [
        read,
        phase,
        [2, "GetData", 2, 8, "server"],
        [3, "Commit", 3, 4, "server"],
    ]
    assert slowest["sentence"] == "20.0 of 30.0 ms went into Phase1 of read."
    assert failed["rows"][0][4:] == ["failed", "failed: Unavailable: too few answered"]


@pytest.mark.parametrize(("servers", "size"), [(3, 2), (5, 4), (11, 6), (11, 9)])
def test_published_quorums_are_numbered_as_they_were(servers, size):
    names = [f"server{number}" for number in range(servers)]
    quorums = list(itertools.combinations(names, size))
    assert [tuple(_members(number, servers, size)) for number in range(len(quorums))] == quorums
    assert _members(len(quorums), servers, size) == _members(-1, servers, size) == ()


def test_hostile_names_stay_names(tmp_path):
    write_run(
        tmp_path / "runs/a",
        [
            line("read", HOSTILE, 0, 1),
            line("write", "w", 0, 1, "failed", error=HOSTILE),
            line("read", "x", 1, 1, op="constructor"),
        ],
        [{"at": 1, "event": HOSTILE, "server": HOSTILE, "detail": HOSTILE * 1000}],
        [span((1, 1, 0), HOSTILE, 0, 1, error=HOSTILE)],
        scenario=HOSTILE,
        algorithm=HOSTILE,
        topology=f"a {HOSTILE}",
        servers=3,
        parameters={HOSTILE: HOSTILE, "__proto__": "x", "algorithm": "y", "big": "z" * 100_000},
        provenance={HOSTILE: [HOSTILE]},
    )
    page = page_of(imported(tmp_path, tmp_path / "runs"))
    run = data_of(page)["runs"][0]
    assert run["scenario"].startswith("</script><script>window.executed=1</script>")
    assert "\\u003c/script>\\u003cscript>window.executed=1" in page
    assert not any(character in page for character in "\u202e\x00\x1b")
    assert len(page) < 200_000


def test_what_runs_say_of_themselves_is_bounded(tmp_path):
    for run in range(20):
        write_run(
            tmp_path / f"runs/{run}",
            [line("read", "r", 0, 1)],
            scenario="s" * 10**6,
            parameters={f"p{run}-{number}": 1 for number in range(1000)},
        )
    write_run(tmp_path / "runs/large", [line("read", "r", 0, 2)], provenance={"text": "x" * 10**6})
    page = page_of(imported(tmp_path, tmp_path / "runs"))
    data = data_of(page)
    assert len(data["parameters"]) == 32
    assert max(len(run["parameters"]) for run in data["runs"]) == 16
    assert "too long for a page" in data["runs"][-1]["provenance"]
    assert len(page) < 300_000


def test_a_database_of_nothing_is_a_page_that_says_so(tmp_path):
    with opened(tmp_path / "empty.db", create=True):
        pass
    data = data_of(page_of(tmp_path / "empty.db"))
    assert (data["runs"], data["totals"]["runs"]) == ([], 0)


def test_runs_without_operations_faults_or_traces_are_told(tmp_path):
    write_run(tmp_path / "runs/a", [])
    write_run(tmp_path / "runs/b", [line("read", "r", 0, 1, "failed")], algorithm="AresEC")
    data = data_of(page_of(imported(tmp_path, tmp_path / "runs")))
    nothing, failed = data["runs"]
    assert (
        nothing["operations"],
        nothing["times"],
        nothing["events"],
        nothing["traces"],
        nothing["algorithm"],
    ) == ({}, {}, [], [], "(no algorithm)")
    assert (
        failed["operations"]["read"]["failed"],
        failed["operations"]["read"]["mean"],
        failed["operations"]["read"]["quantiles"],
    ) == (
        1,
        None,
        None,
    )
    assert any(note.startswith("1 runs have no operations") for note in data["notes"])


def many_operations(path: Path, runs: int, operations: int) -> None:
    """Make a database by SQL: runs with operations, and a failure in 50."""
    with opened(path, create=True) as database:
        numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)"
        database.execute("BEGIN")
        described = "SELECT i, i, i, 's', 'A' || (i % 9), 'client', i FROM n"
        database.execute(
            f"{numbers} INSERT INTO runs (id, path, name, scenario, algorithm, level, readers) "
            f"{described}",
            (runs,),
        )
        database.execute(
            "INSERT INTO files (id, run_id, path, kind) SELECT id, id, path, 'main' FROM runs"
        )
        columns = "(file_id, line, run_id, level, op, client, ok, began_s, latency_s, phase1_s)"
        rows = (
            "SELECT r.id, i, r.id, 'client', iif(i % 3, 'read', 'write'), i % 7, i % 50 > 0, 1e9 "
            "+ i * 0.01, 0.001 + (i * 7919 % 1000) * 1e-5, 0.0005"
        )
        database.execute(
            f"{numbers} INSERT INTO operations {columns} {rows} FROM runs r, n", (operations,)
        )
        database.execute("COMMIT")


@pytest.mark.slow
def test_a_run_of_many_operations_makes_no_large_page(tmp_path):
    many_operations(tmp_path / "many.db", 1, 200_000)
    page = page_of(tmp_path / "many.db")
    data = data_of(page)
    reads, writes = (data["runs"][0]["times"][op] for op in ("read", "write"))
    assert sum(sum(row[1:4]) for row in reads["bins"] + writes["bins"]) == 200_000
    assert (
        sum(row[2] for row in reads["bins"] + writes["bins"]) == data["totals"]["failed"] == 4_000
    )
    assert len(reads["bins"]) <= 120
    assert len(page) < 250_000
    assert_same_figures(data, tmp_path / "many.db")


@pytest.mark.slow
def test_many_runs_make_no_large_page(tmp_path):
    many_operations(tmp_path / "many.db", 2_100, 40)
    page = page_of(tmp_path / "many.db")
    data = data_of(page)
    assert (data["totals"]["runs"], len(data["runs"])) == (2_100, 2_000)
    assert any("Of 2100 runs the first 2000" in note for note in data["notes"])
    assert len(page) < 5_000_000


def test_a_trace_of_many_spans_is_drawn_by_its_longest(tmp_path):
    spans = [
        span((1, 1, 0), "put", 0, 1000),
        *(span((1, number, 1), "PutData", number, number) for number in range(2, 900)),
    ]
    write_run(tmp_path / "runs/a", [line("write", "w", 0, 1)], spans=spans)
    [trace] = data_of(page_of(imported(tmp_path, tmp_path / "runs")))["runs"][0]["traces"]
    assert (len(trace["rows"]), trace["left"]) == (150, 899 - 150)
    assert trace["rows"][0][:4] == [0, "put", 0, 1000]


@pytest.mark.skipif(
    not (DATA / "ngi_sample.tar.xz").is_file(),
    reason=f"{DATA} has no sample of the published collection",
)
def test_the_published_sample_is_a_page_of_less_than_five_megabytes_with_its_figures(tmp_path):
    with tarfile.open(DATA / "ngi_sample.tar.xz") as sample:
        sample.extractall(tmp_path / "sample", filter="data")
    path = imported(tmp_path, tmp_path / "sample")
    page = page_of(path)
    data = data_of(page)
    assert len(page.encode()) < 5_000_000
    assert_same_figures(data, path)
    assert {
        line["algorithm"] for line in data["published"] if line["scenario"] == "object_size"
    } >= {"ABD", "ARES_EC", "REDIS_W"}
    crashed = next(run for run in data["runs"] if run["scenario"] == "node_crashes")
    for server, crash_s in (("server0", 100), ("server3", 200)):  # final report, 5.1.5
        place = crashed["quorums"]["servers"].index(server)
        shares = [
            (row[0] * crashed["quorums"]["width"], row[2][place])
            for row in crashed["quorums"]["rows"]
        ]
        assert all(share > 0 for at_s, share in shares if at_s < crash_s - 10)
        assert not any(share for at_s, share in shares if at_s > crash_s + 10)


def run_report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = ares_cli(["results", "report", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_command_writes_the_page_wholly_or_not_at_all(tmp_path, database, capsys):
    output = tmp_path / "report.html"
    output.write_text("before")
    (tmp_path / "other.db").write_text(
        "no database, but a text that is long enough to look like one\n" * 30
    )
    status, _, error = run_report(capsys, str(tmp_path / "other.db"), "-o", str(output))
    assert (status, output.read_text()) == (2, "before")
    assert "is no database of results" in error
    status, printed, _ = run_report(capsys, str(database), "-o", str(output))
    assert (status, printed) == (
        0,
        f"{output}: {output.stat().st_size / 1024:.1f} KiB; open it in a browser\n",
    )
    assert_same_figures(data_of(output.read_text()), database)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.db", "report.html"]


def test_an_interruption_says_that_nothing_was_written(tmp_path, database, capsys, monkeypatch):
    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("ares.results.page.render", interrupted)
    status, printed, error = run_report(capsys, str(database), "-o", str(tmp_path / "report.html"))
    assert (status, printed, error) == (
        130,
        "",
        f"error: interrupted: {tmp_path}/report.html is as it was\n",
    )
    assert not list(tmp_path.iterdir())


def test_the_command_refuses_what_it_cannot_read_or_write(tmp_path, database, capsys):
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE x (y)")
    for arguments, expected in (
        ((str(tmp_path / "nowhere.db"), "-o", "x.html"), "there is no file"),
        (
            (str(tmp_path / "foreign.db"), "-o", str(tmp_path / "x.html")),
            "is a database of another program",
        ),
        ((str(database), "-o", str(tmp_path)), "is a directory"),
        ((str(database), "-o", str(tmp_path / "no/x.html")), "there is no directory"),
        ((str(database), "-o", "/dev/full"), "No space left on device"),
    ):
        status, printed, error = run_report(capsys, *arguments)
        assert (status != 0, printed) == (True, ""), arguments
        assert expected in error
        assert "Traceback" not in error


def test_the_page_does_not_replace_its_database(tmp_path, database, capsys):
    copy = tmp_path / "copy.db"
    copy.write_bytes(database.read_bytes())
    (tmp_path / "link.html").symlink_to(copy)
    os.link(copy, tmp_path / "hard.html")
    for output in ("copy.db", "link.html", "hard.html"):
        status, _, error = run_report(capsys, str(copy), "-o", str(tmp_path / output))
        assert (status, "is the database itself" in error) == (2, True)
        assert copy.read_bytes() == database.read_bytes()


def test_runs_of_the_same_name_from_two_places_are_told_apart(tmp_path):
    for at_s, place in enumerate(("one", "two"), 1):
        run = (
            tmp_path
            / place
            / "raw_data"
            / "Stress Test – Object Size (all algorithms)"
            / "filesizeRedisW"
            / "logs_filesizeRedisW_65536_11-1-0_1"
        )
        operation_logs.write(run / "user-1-x.log", operation_logs.line("write", at_s, dsmm=False))
    data = data_of(page_of(imported(tmp_path, tmp_path)))
    assert len({run["path"] for run in data["runs"]}) == len(data["runs"]) == 2
    assert [
        place in run["path"] for run, place in zip(data["runs"], ("/one/", "/two/"), strict=True)
    ] == [True, True]
