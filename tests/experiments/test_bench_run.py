"""The smallest bench there is, with real processes: what it leaves behind has the shape that it should have (experiments/bench)."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from experiments.bench import baseline
from experiments.bench.__main__ import main
from experiments.bench.figures import Figure, Point, Report
from experiments.bench.page import page
from experiments.bench.plot import Axis, Series, bars, line_chart
from experiments.bench.samples import Sample
from experiments.bench.scale import page as scale_page
from experiments.bench.scale import text as scale_text
from experiments.bench.text import text

STORES = ["ares-abd", *(["redis-wait"] if shutil.which("redis-server") else [])]


@pytest.mark.process
def test_the_smallest_bench(tmp_path, capsys):
    words = ["--only", ",".join(STORES), "--workloads", "10 B, 1 client", "--rounds", "1", "--seconds", "0.1", "--no-faults", "--out", str(tmp_path)]
    assert main(words) == 0
    report = json.loads((tmp_path / "bench.json").read_text())
    assert [point["peer"] for point in report["points"]] == STORES
    for point in report["points"]:
        assert point["per_s"]["least"] <= point["per_s"]["median"] <= point["per_s"]["most"]
        assert point["per_s"]["median"] > 0
        assert (point["failed"], point["wrong"]) == (0, [])
        assert point["ratios"]["ABD"]["median"] > 0
        assert len(point["generator_cpu"]) == 1
    assert report["points"][0]["ratios"]["ABD"]["median"] == 1
    told = (tmp_path / "bench.txt").read_text()
    assert all(store in told for store in STORES)
    assert told in capsys.readouterr().out
    check_page((tmp_path / "bench.html").read_text(), charts=1)


class Page(HTMLParser):
    """Counts what a page has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: "list[tuple[str, str | None]]") -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href")]


def check_page(html: str, charts: int) -> None:
    """Self-contained, and with so many charts that are XML."""
    found = Page()
    found.feed(html)
    assert "script" not in found.tags
    assert found.links == []
    assert found.tags.count("svg") == charts
    for piece in html.split("<svg ")[1:]:
        ElementTree.fromstring("<svg " + piece.split("</svg>")[0] + "</svg>")


def point(peer: str = "etcd", clients: int = 1, median: float = 10.0, **others: object) -> Point:
    one = Figure(median, median / 2, median * 2)
    shape = {"peer": peer, "workload": f"10 B, {clients} clients", "value_bytes": 10, "clients": clients, "per_s": one, "p50_ms": one, "p99_ms": one}
    rest = {"read_p50_ms": 1.0, "write_p50_ms": 1.0, "server_cpu": 1.0, "generator_cpu": [0.95], "others_cpu": 0.0, "resident_mib": 1.0}
    return Point(**{**shape, **rest, "ratios": {"ABD": one}, "failed": 0, "wrong": [], **others})  # type: ignore[arg-type]


def report(*points: Point) -> Report:
    return Report("here", "once", list(points), [], {}, {"x": "x is not installed"}, {each.peer: "fsync" for each in points})


def test_the_baseline_is_shown_beside_todays_ratio(tmp_path):
    kept = tmp_path / "baseline.json"
    assert baseline.load(kept) == {}
    baseline.save(report(point(median=4.0)), kept)
    baseline.save(report(point(peer="redis", median=5.0)), kept)
    assert len(baseline.load(kept)) == 2
    today = report(point(median=2.0))
    for shown in (text(today, baseline.load(kept)), page(today, baseline.load(kept))):
        assert "2.00 [4.00]" in shown
        assert "x is not installed" in shown


def test_a_generator_that_was_the_bottleneck_and_a_busy_machine_are_marked():
    told = text(report(point(others_cpu=1.0)), {})
    assert "0.95!" in told
    assert "1.00~" in told
    quiet = text(report(point(generator_cpu=[0.2])), {})
    assert "!" not in quiet
    assert "~" not in quiet


def test_the_page_has_a_curve_for_each_store():
    html = page(report(*(point(peer, clients, 10.0 * clients) for peer in ("etcd", "redis") for clients in (1, 32))), {})
    check_page(html, charts=1)
    assert html.count("<circle") == 4


def test_charts_take_what_there_is():
    assert line_chart("nothing", Axis("x"), Axis("y"), []) == ""
    assert bars("nothing", "op/s", []) == ""
    for log in (True, False):
        ElementTree.fromstring(line_chart("one & only <point>", Axis("x", log), Axis("y", log), [Series("s", [(0.0, 0.0, "<here>")], 0)]))
    ElementTree.fromstring(bars("nothing done", "op/s", [("a", 0.0)]))


def test_what_grows_is_told_and_drawn():
    samples = [Sample("keys", "ABD", "keys", count, {"op/s": 10.0, "bytes": 7.0 * count}) for count in (1, 100)]
    assert scale_text(samples).count("op/s 10") == 2
    check_page(scale_page(samples), charts=2)
