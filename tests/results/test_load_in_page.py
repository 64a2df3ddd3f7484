"""The part of the page for load, in a real browser: curves, bars, tables, both themes.

The page is narrow and wide, and names try to be HTML.
"""

import json
from pathlib import Path

import pytest

from ares.results.load_points import LoadFile, LoadLatency, LoadPoint, Spread
from experiments.bench.measured_points import write_load

from . import browser
from .runs_on_disk import line, write_run
from .test_page import HOSTILE, data_of, page_file
from .test_page_in_browser import OVERLAPS

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


def run_of(
    directory: Path,
    points: list[LoadPoint],
    *,
    fault: str | None = None,
    workload: str = "10 B, 50% reads",
    **about: object,
) -> None:
    directory.mkdir(parents=True)
    (directory / "run.json").write_text(json.dumps(about))
    write_load(directory, LoadFile(points, str(about["algorithm"]), workload, fault))


def some_load(top: Path) -> None:
    for number, store in enumerate(("ABD", "ETCD")):
        closed = [
            LoadPoint(
                clients,
                per_s=800.0 * clients / (clients + 9 + number),
                read=_latency(0.001 * clients),
                write=_latency(0.002 * clients),
            )
            for clients in (1, 2, 4, 8)
        ]
        wait, service = Spread(0.2, 0.3), Spread(0.1, 0.11)
        opened = [
            LoadPoint(
                8,
                "open",
                900.0,
                per_s=500.0,
                read=_latency(0.3),
                write=_latency(0.4),
                wait=wait,
                service=service,
                missed=77,
            )
        ]
        for iteration in (1, 2):
            about = {
                "scenario": "throughput",
                "algorithm": store,
                "servers": 5,
                "iteration": iteration,
                "parameters": {"read_share": 0.5},
            }
            run_of(top / f"{store}_{iteration}", closed + opened, **about)
        reads = [LoadPoint(1, per_s=100.0, read=_latency(0.01))]
        run_of(
            top / f"{store}_reads",
            reads,
            workload="10 B, reads only",
            scenario="throughput",
            algorithm=store,
            parameters={"read_share": 1.0},
        )
        for fault, kept in (("a killed replica", 0.9), ("a slowed leader", 0.2)):
            bad = LoadPoint(
                100,
                per_s=50.0,
                kept=kept,
                longest_pause_s=0.25,
                curve=[100.0] * 10 + [100 * kept] * 20,
                figures={"fault at (s)": 1.0},
            )
            run_of(
                top / f"{store}_{fault}", [bad], fault=fault, scenario="bad_leader", algorithm=store
            )
    for keys in (10, 1000):
        point = LoadPoint(0, per_s=5.0, figures={"bytes per key": 7.0 * keys})
        run_of(
            top / f"keys_{keys}",
            [point],
            workload="Keys",
            scenario="scale_keys",
            algorithm="ABD n=5",
            parameters={"keys": keys},
        )
    run_of(
        top / "hostile",
        [LoadPoint(1, per_s=1.0, figures={HOSTILE: 1.0})],
        workload=HOSTILE,
        fault=HOSTILE,
        scenario="hostile",
        algorithm=HOSTILE,
    )
    write_run(
        top / "operations",
        [line("read", "r1", 0.0, 0.1)],
        scenario="operations",
        algorithm="ABD",
        servers=3,
    )


def _latency(p50_s: float) -> LoadLatency:
    return LoadLatency(100, p50_s, 3 * p50_s, 1.2 * p50_s)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_file(tmp_path_factory, some_load)


def table(tab: browser.Tab) -> list[list[str]]:
    return list(
        tab.value(
            "[...document.querySelectorAll('#load-table tr')].map((row) => "
            "[...row.cells].map((cell) => cell.textContent))"
        )
    )


def visible(tab: browser.Tab, id: str) -> bool:
    return bool(tab.value(f"document.getElementById('{id}').offsetParent !== null"))


def test_the_page_has_the_points(page):
    data = data_of(page.read_text())
    assert data["totals"]["points"] == 2 * (2 * 5 + 1 + 2) + 3
    assert data["notes"] == []


def test_the_page_draws_latency_over_throughput(tab, page):
    tab.open(page, "#scenario=throughput&workload=10 B, 50% reads")
    assert tab.text("#load-caption").startswith(
        "throughput, 10 B, 50% reads: read p50 over throughput; more clients along each line; "
        "dashed: open loop"
    )
    assert tab.value("document.querySelectorAll('#load-plot .mark').length") == 2 * 5
    assert "ABD, open loop" in tab.text("#load-legend")
    head, *rows = table(tab)
    assert len(rows) == 2 * 5
    [opened] = [dict(zip(head, row, strict=True)) for row in rows if row[0] == "ABD, open loop"]
    assert [
        opened[name] for name in ("waiting p50", "waiting p99", "service p50", "service p99")
    ] == ["200 ms", "300 ms", "100 ms", "110 ms"]
    assert (opened["offered load"], opened["throughput"], opened["never begun"]) == (
        "900 /s",
        "500 /s",
        "77",
    )
    tab.select("choose-up", "write_p99_s")
    tab.select("choose-along", "clients")
    assert "write p99 over clients" in tab.text("#load-caption")
    tab.select("choose-workload", "10 B, reads only")
    assert "workload=10" in tab.value("location.hash")
    assert len(table(tab)) == 1 + 2


def test_what_is_not_told_of_load_is_not_shown_and_the_other_way_round(tab, page):
    tab.open(page, "#scenario=throughput")
    assert visible(tab, "load")
    assert not any(
        visible(tab, part)
        for part in ("distribution", "phases", "runs", "timeline", "traces", "figure-table")
    )
    assert visible(tab, "choose-scenario")
    tab.select("choose-scenario", "operations")
    assert not visible(tab, "load")
    assert all(
        visible(tab, part)
        for part in ("distribution", "phases", "runs", "timeline", "traces", "figure-table")
    )


def test_a_bad_server_has_its_share_and_its_curve(tab, page):
    tab.open(page, "#scenario=bad_leader")
    assert (
        tab.text("#load-caption")
        == "bad_leader, 10 B, 50% reads: kept under the fault over the stores"
    )
    assert [row[0] for row in table(tab)[1:]] == [
        f"{store}, {fault}"
        for store in ("ABD", "ETCD")
        for fault in ("a killed replica", "a slowed leader")
    ]
    assert tab.value("document.querySelectorAll('#load-plot rect.mark').length") == 4
    tab.select("choose-fault", "a slowed leader")
    assert tab.text("#curves-caption") == "Throughput over time: a slowed leader, from 1 s on"
    assert tab.value("document.querySelectorAll('#curves-plot canvas').length") == 1


def test_what_grows_is_drawn_over_what_it_grows_with(tab, page):
    tab.open(page, "#scenario=scale_keys")
    tab.select("choose-up", "bytes per key")
    assert tab.text("#load-caption") == "scale_keys, Keys: bytes per key over keys"
    assert tab.value("document.querySelectorAll('#load-plot .mark').length") == 2


def test_hostile_names_do_not_run_in_the_page(tab, page):
    tab.open(page, "#scenario=hostile")
    assert tab.value("window.executed") is None


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("scenario", ["throughput", "bad_leader"])
def test_it_fits_the_window_in_both_themes(tab, page, width, theme, scenario):
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    tab.open(page, f"#scenario={scenario}&theme={theme}")
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(OVERLAPS) == []
