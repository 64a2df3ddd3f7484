"""The page in a real browser: choices are shown, in both themes, by keyboard, too.

The page raises no complaint, and loads and runs no foreign code.
"""

import time
from pathlib import Path

import pytest

from . import browser
from .runs_on_disk import line, some_runs, span, write_run
from .test_page import HOSTILE, data_of, imported, page_file, page_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.program() is None, reason=browser.MISSING),
]

# Pairs of overlapping texts of a picture.
OVERLAPS = """[...document.querySelectorAll("svg")].flatMap((picture) => {
  const texts = [...picture.querySelectorAll("text")]
    .filter((text) => !text.getAttribute("transform"));
  const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
  const covers = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right
    && a.top + 3 < b.bottom && b.top + 3 < a.bottom;
  return boxes.flatMap(([name, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => covers(a, b)).map(([other]) => `${name} / ${other}`)); })"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_file(tmp_path_factory, some_runs)


def table(tab: browser.Tab, part: str) -> list[list[str]]:
    return list(
        tab.value(
            f"[...document.querySelectorAll('#{part} tbody tr')].map((row) => "
            "[...row.cells].map((cell) => cell.textContent))"
        )
    )


def shown_s(seconds: float) -> str:
    """Format seconds as the page does."""
    factor, unit = (1, "s") if seconds >= 1 else (1000, "ms")
    return f"{float(f'{seconds * factor:.3g}'):g} {unit}"


def test_a_parameter_is_changed_and_the_figure_is_that_of_the_database(tab, page):
    runs = {
        run["path"].rpartition("/")[2]: run["operations"]
        for run in data_of(page.read_text())["runs"]
    }
    tab.open(page)
    assert tab.text("#figure-caption") == "object_size, read: mean latency by object size"
    first = table(tab, "figure-table")
    assert [row[:3] for row in first] == [
        [size, algorithm, shown_s(runs[f"{algorithm}_{number}"]["read"]["mean"])]
        for size, number in (("64 KiB", 2**16), ("1 MiB", 2**20))
        for algorithm in ("AresABD", "AresEC")
    ]
    tab.select("choose-op", "write")
    tab.select("choose-x", "algorithm")
    tab.select("choose-p-object_size", str(2**20))
    assert (
        tab.text("#figure-caption")
        == "object_size, write: mean latency by algorithm; object size 1 MiB"
    )
    assert [row[:2] for row in table(tab, "figure-table")] == [
        [name, shown_s(runs[f"{name}_{2**20}"]["write"]["mean"])] for name in ("AresABD", "AresEC")
    ]
    tab.select("choose-figure", "failed")
    assert tab.value("document.querySelectorAll('#figure .mark').length") == 2
    assert "figure=failed" in tab.value("location.hash")


def test_the_address_holds_what_was_chosen(tab, page):
    tab.open(page, f"#op=write&figure=p99&p-object_size={2**16}&x=algorithm&theme=dark")
    assert (
        tab.text("#figure-caption")
        == "object_size, write: p99 latency by algorithm; object size 64 KiB"
    )
    assert tab.value("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("system", ["light", "dark"])
def test_it_has_both_themes_by_the_system_and_by_choice(tab, page, system):
    other = {"light": "dark", "dark": "light"}[system]
    tab.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": system}]
    )
    tab.open(page)
    brightness = (
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) "
        "=> a + +b, 0)"
    )
    assert (tab.value(brightness) > 384) == (system == "light")
    tab.select("theme", other)
    assert (tab.value(brightness) > 384) == (other == "light")
    assert tab.value("document.documentElement.dataset.theme") == other


def test_a_point_leads_to_its_runs_by_keyboard(tab, page):
    tab.open(page)
    tab.value("[...document.querySelectorAll('#figure a')].at(-1).focus()")
    words = tab.value("document.activeElement.getAttribute('aria-label')")
    assert words.startswith("AresEC, object size 1 MiB, read: mean latency")
    tab.press("Enter", 13)
    deadline = time.monotonic() + browser.WAIT_S
    while tab.value("document.activeElement.id") != "runs-title" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tab.text("#runs-caption").startswith("Those of the point AresEC, object size 1 MiB.")
    [run] = table(tab, "runs-table")
    assert "AresEC_1048576" in run[0]
    assert "commit: 0123456789" in run[0]
    tab.value("document.querySelector('#runs-table td a').click()")
    while "AresEC_1048576" not in tab.text("#timeline-caption") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "AresEC_1048576" in tab.text("#timeline-caption")


def test_an_algorithm_is_hidden_by_its_name_in_the_legend(tab, page):
    tab.open(page)
    tab.value("document.querySelector('#legend button').click()")
    assert tab.text("#legend [aria-pressed=false]") == "AresABD"
    assert {row[1] for row in table(tab, "figure-table")} == {"AresEC"}
    assert tab.text(":focus") == "AresABD"


def test_timeline_quorums_and_traces_are_drawn_with_their_tables(tab, page):
    tab.open(page)
    tab.value("set({ run: D.runs.find((run) => run.traces.length).path })")
    assert [row[2] for row in table(tab, "timeline-events")] == ["crash", "join"]
    rows = table(tab, "timeline-table")
    assert [sum(int(row[place]) for row in rows) for place in (2, 3, 4)] == [81, 1, 1]
    assert [row[2] for row in table(tab, "quorums-table")][-1] == "100"
    assert tab.text("#traces-sentence") == "20.0 of 30.0 ms went into Phase1 of read."
    assert tab.value("document.querySelectorAll('#traces-plot rect').length") == 4
    for place in ("distribution-plot", "timeline-plot"):
        dots = f"document.querySelector('#{place} canvas')"
        painted = (
            f"{dots}.getContext('2d').getImageData(0, 0, {dots}.width, "
            f"{dots}.height).data.some((value) => value)"
        )
        assert tab.value(painted), place
        assert tab.value(f"{dots}.getAttribute('aria-label').length") > 20
    tab.select("choose-over", "throughput")
    assert "throughput over the time" in tab.text("#timeline-caption")


@pytest.mark.parametrize("width", [1000, 390])
def test_it_fits_and_no_label_covers_another(tab, page, width):
    tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=width < 600,
    )
    for fragment in ("", "#x=algorithm&op=write&band=no", "#figure=throughput"):
        tab.open(page, fragment)
        assert tab.value("document.documentElement.scrollWidth") <= width
        assert tab.value(OVERLAPS) == []
    unnamed = "!e.labels?.length && !e.closest('[aria-hidden], [aria-label], label')"
    assert (
        tab.value(
            "[...document.querySelectorAll('select, input, canvas, svg')].filter((e) => "
            f"{unnamed}).length"
        )
        == 0
    )


def test_it_is_printed_in_light_colours(tab, page):
    tab.open(page, "#theme=dark")
    tab.value(
        "window.themes = []; addEventListener('beforeprint', () => "
        "themes.push(document.documentElement.dataset.theme))"
    )
    assert len(tab.call("Page.printToPDF", printBackground=True)["data"]) > 20_000
    assert tab.value("[...themes, document.documentElement.dataset.theme]") == ["light", "dark"]


def test_no_name_is_executed_or_breaks_the_page(tab, tmp_path):
    write_run(
        tmp_path / "runs/a",
        [
            line("read", HOSTILE, 0, 1),
            line("read", "x", 1, 1, op="constructor"),
            line("read", "y", 1, 1, op="__proto__"),
        ],
        [{"at": 1, "event": HOSTILE, "server": HOSTILE, "detail": HOSTILE}],
        [span((1, 1, 0), HOSTILE, 0, 1, error=HOSTILE)],
        scenario=HOSTILE,
        algorithm=HOSTILE,
        object_size=1,
        parameters={HOSTILE: HOSTILE, "__proto__": "x", "constructor": 1, "toString": True},
        provenance={HOSTILE: HOSTILE},
    )
    write_run(
        tmp_path / "runs/b",
        [line("read", "r", 0, 1)],
        scenario=HOSTILE,
        algorithm="__proto__",
        object_size=2,
        parameters={"constructor": 2},
    )
    path = tmp_path / "report.html"
    path.write_text(page_of(imported(tmp_path, tmp_path / "runs")))
    tab.open(path)
    assert tab.value(
        "window.executed === undefined && document.querySelectorAll('img, body script').length "
        "=== 3"
    )
    assert len(table(tab, "figure-table")) == 2
    assert "<img src=x" in tab.text("#figure-caption")
    tab.select("choose-op", "constructor")
    assert len(table(tab, "figure-table")) == 1
    tab.value(
        "set({ run: '<script>', trace: '<img>', op: '__proto__', figure: 'constructor', x: "
        "'toString', point: '|' })"
    )


def test_a_database_of_nothing_says_how_to_fill_it(tab, tmp_path):
    from ares.results.database import opened

    with opened(tmp_path / "empty.db", create=True):
        pass
    path = tmp_path / "report.html"
    path.write_text(page_of(tmp_path / "empty.db"))
    tab.open(path)
    assert "ares-cli results import" in tab.text("#choices")
    assert tab.value(
        "[...document.querySelectorAll('main section')].filter((part) => !part.hidden).map((part) "
        "=> part.id)"
    ) == ["figures", "about"]
