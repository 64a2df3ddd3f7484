"""The verdict of the page: a sentence and the ranked stores, before any figure."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ares.cli.main import run as ares_cli
from ares.results.database import opened
from ares.results.load_points import LoadFile, LoadPoint
from ares.results.page import render
from experiments.bench.measured_points import write_load

from . import browser, operation_logs
from .runs_on_disk import line, some_runs, write_run
from .test_load_in_page import run_of, some_load
from .test_page import data_of, imported, page_of
from .test_published import SIZES, write
from .test_published import line as published_line

in_browser = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)
MARKUP = "<img src=x onerror=window.executed=1>"

# Texts that reach beyond the window, or beyond their own element.
CUT = """[...document.querySelectorAll(
    "caption, figcaption, summary, h1, h2, h3, li, dd, p, label")]
  .filter((each) => each.getClientRects().length)
  .filter((each) => each.getBoundingClientRect().right > innerWidth
    || each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.tagName}: ${each.textContent}`)"""


def write_runs(top: Path, means_s: dict[str, dict[int, float]]) -> None:
    """Write runs of reads of one scenario: by store and size, the latency of each read."""
    for store, by_size in means_s.items():
        for size, seconds in by_size.items():
            lines = [line("read", "r", place, seconds) for place in range(3)]
            about = {"scenario": "sizes", "algorithm": store, "object_size": size}
            write_run(top / f"{store}{size}", lines, **about)


def shown(tab: browser.Tab, tmp_path: Path) -> str:
    """Open the page of the runs below ``tmp_path`` and return its verdict."""
    path = tmp_path / "report.html"
    path.write_text(page_of(imported(tmp_path, tmp_path / "runs")))
    tab.open(path)
    return tab.text("#verdict-sentence")


def items(tab: browser.Tab, id: str) -> list[str]:
    script = f"[...document.querySelectorAll('#{id} > li')].map((each) => each.textContent)"
    return list(tab.value(script))


@in_browser
def test_the_verdict_comes_first_with_the_stores_in_their_order(tab, tmp_path):
    means_s = {"ABD": {1: 0.01, 2: 0.02, 3: 0.5}, "ARES_EC": {1: 0.02, 2: 0.08}}
    write_runs(tmp_path / "runs", means_s)  # at size 3 one store was measured alone
    told = shown(tab, tmp_path)
    assert told == "ABD is the fastest (sizes: reads); ARES_EC takes 2.8 times as long."
    assert tab.value("document.querySelector('main section').id") == "verdict"
    assert items(tab, "verdict-ranking") == ["ABDthe fastest", "ARES_EC2.8 times as long"]
    assert items(tab, "verdict-compared") == ["sizes: reads (2 settings): ABD, ARES_EC ×2.8"]
    words = tab.text("#verdict")
    assert "ABD: every server keeps whole values" in words
    assert "EC: every server keeps a coded part of a value" in words


@in_browser
def test_of_several_comparisons_the_mean_decides_and_a_rare_store_has_no_place(tab, tmp_path):
    some_runs(tmp_path / "runs")
    about = {"algorithm": "ABD", "scenario": "other", "object_size": 1}
    write_run(tmp_path / "runs" / "a", [line("read", "r", 0, 1)], **about)
    write_run(tmp_path / "runs" / "b", [line("read", "r", 0, 2)], **about | {"algorithm": "AresEC"})
    told = shown(tab, tmp_path)
    assert "of 3 comparisons" in told
    assert "not ranked: ABD." in tab.text("#verdict-hint")
    ranking = items(tab, "verdict-ranking")
    assert len(ranking) == 2
    assert "; first in" in ranking[0]
    assert any("failed" in each for each in ranking), "failures are told beside the place"


@in_browser
@pytest.mark.parametrize(
    ("means_s", "told"),
    [
        ({"ABD": {1: 0.01}}, "Only ABD was measured, so there is nothing to compare it with."),
        (
            {"ABD": {1: 0.01}, "EC": {2: 0.01}},
            "The 2 stores have no order: too few were measured with the same settings.",
        ),
        ({"ABD": {1: 0.0100}, "EC": {1: 0.0104}}, "ABD and EC are equally fast."),
        (
            {"ABD": {1: 0.0100}, "EC": {1: 0.0101}, "X": {1: 0.0102}, "Y": {1: 1.0}},
            "ABD, EC and X are equally fast.",
        ),
        (
            {"ABD": {1: 0.01, 2: 0.04}, "EC": {1: 0.02, 2: 0.02}},
            "ABD and EC are equally fast.",
        ),
    ],
)
def test_without_a_winner_it_says_why(tab, tmp_path, means_s, told):
    write_runs(tmp_path / "runs", means_s)
    assert shown(tab, tmp_path) == told


@in_browser
def test_of_load_the_most_operations_a_second_decide(tab, tmp_path):
    for store, per_s, kept in (("ABD", (100.0, 300.0), 0.8), ("ETCD", (120.0, 150.0), 0.1)):
        points = [LoadPoint(clients, per_s=rate) for clients, rate in enumerate(per_s, 1)]
        run_of(tmp_path / "runs" / store, points, scenario="load", algorithm=store)
        fault = {"fault": "a killed replica", "scenario": "load", "algorithm": store}
        run_of(tmp_path / "runs" / f"{store} bad", [LoadPoint(1, per_s=1.0, kept=kept)], **fault)
    wrong = LoadFile([LoadPoint(1)], "ETCD", "reads", wrong=["made up"] * 3)
    run_of(tmp_path / "runs" / "wrong", wrong.points, scenario="load", algorithm="ETCD")
    write_load(tmp_path / "runs" / "wrong", wrong)
    told = shown(tab, tmp_path)
    assert told == "ABD is the fastest, first in 2 of 2 comparisons; ETCD takes 4 times as long."
    assert items(tab, "verdict-ranking")[1].endswith("first in 0 of 2, 3 wrong")
    assert items(tab, "verdict-compared") == [
        "load, 10 B, 50% reads: most operations a second (1 setting): ABD, ETCD ×2",
        "load, 10 B, 50% reads, a killed replica: throughput kept (1 setting): ABD, ETCD ×8",
    ]


@in_browser
def test_published_runs_alone_are_not_called_ours(tab, tmp_path):
    for algorithm, begin in (("ABD", "11-5-5"), ("ARES_EC", "11-5-5-0")):
        folder = f"filesizeBig_slow_{algorithm}"
        run = f"{folder}_{2**20}_{begin}_1"
        directory = tmp_path / "runs" / "raw_data" / SIZES / folder / f"logs_{run}"
        write(directory / f"client-6-{run}.log", published_line("read", 1))
    assert shown(tab, tmp_path).startswith("Published runs: ")
    assert "that the authors of ARES published" in tab.text("#facts")
    assert tab.text("#beside-title") == "Printed figures beside the published runs"
    assert not tab.value("/\\bours?\\b/i.test(document.body.innerText)")


@in_browser
@pytest.mark.parametrize("fill", [some_runs, some_load])
def test_no_text_is_cut_on_a_telephone(tab, tmp_path, fill):
    fill(tmp_path / "runs")
    (tmp_path / "runs" / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "operations.log").write_text("no JSON\n" * 3)
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    shown(tab, tmp_path)
    tab.value("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert tab.value(CUT) == []


@in_browser
def test_markup_in_names_stays_text_in_the_verdict(tab, tmp_path):
    write_runs(tmp_path / "runs", {"ABD": {1: 0.01}, MARKUP[:9]: {1: 0.02}})
    for run in (tmp_path / "runs").iterdir():
        description = (run / "run.json").read_text()
        (run / "run.json").write_text(
            description.replace(MARKUP[:9], MARKUP).replace("sizes", MARKUP)
        )
        (run / f"{MARKUP}.log").write_text("no JSON\n")
    assert MARKUP in shown(tab, tmp_path)
    assert MARKUP in items(tab, "verdict-ranking")[1]
    assert items(tab, "verdict-compared")[0].startswith(f"{MARKUP}: reads")
    assert MARKUP in tab.text("#rejected-table td")
    assert tab.value("window.executed === undefined && !document.querySelector('img')")


def test_lines_that_could_not_be_read_are_counted_by_file(tmp_path):
    """Count them also beside a file with more such lines than the database keeps."""
    for name, bad in (("many", 25), ("one", 1)):
        write_run(tmp_path / "runs" / name, [line("read", "r", 0, bad)])
        log = tmp_path / "runs" / name / "operations.log"
        log.write_text(log.read_text() + "no JSON\n" * bad)
    data = data_of(page_of(imported(tmp_path, tmp_path / "runs")))
    found = [(Path(file).parent.name, lines, first) for file, lines, first, _ in data["rejected"]]
    assert found == [("many", 25, 2), ("one", 1, 2)]
    assert all(why for *_, why in data["rejected"])
    assert (data["totals"]["malformed"], data["totals"]["rejected_files"]) == (26, 2)
    assert any(note.startswith("26 lines of 2 files could not be read") for note in data["notes"])


def test_a_run_without_a_name_is_not_called_none(tmp_path, capsys):
    write_run(tmp_path / "runs" / "a", [line("read", "r", 0, 1)])
    path = tmp_path / "results.db"
    operation_logs.imported(path, tmp_path / "runs")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET name = NULL, scenario = NULL")
    names: list[str] = []
    with opened(path) as database:
        page = render(database, "r", lambda done, total, name: names.append(name))
    assert names == [run["path"] for run in data_of(page)["runs"]] == [str(tmp_path / "runs" / "a")]
    assert ares_cli(["results", "summary", str(path)]) == 0
    told = capsys.readouterr().out
    assert "None" not in told
    assert "(no scenario)" in told
