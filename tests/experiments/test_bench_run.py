"""The smallest bench, with real processes: the results have the right shape (experiments/bench)."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.bench import one_server
from experiments.bench.__main__ import main
from experiments.bench.alone import PEAK, alone
from experiments.bench.apart import apart_obstacle
from experiments.bench.bench_files import make_page
from experiments.bench.figures import BenchReport, Figure, Point
from experiments.bench.index_rows import INDEX_PARTS
from experiments.bench.scale import GrowthSample, keep_samples
from experiments.bench.scale import text as scale_text
from experiments.bench.store_processes import BenchError
from experiments.bench.text import text

STORES = ["ares-abd", *(["redis-wait"] if shutil.which("redis-server") else [])]


@pytest.mark.slow
@pytest.mark.process
def test_a_short_bench_measures_every_store(tmp_path, capsys):
    words = [
        "--only",
        ",".join(STORES),
        "--workloads",
        "10 B, 1 client",
        "--rounds",
        "1",
        "--seconds",
        "0.1",
        "--out",
        str(tmp_path),
    ]
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
    shown = points_in(tmp_path)
    assert set(shown) == {f"{store}_10_1" for store in STORES}
    for store, point in zip(STORES, report["points"], strict=True):
        assert shown[f"{store}_10_1"][0]["per_s"] == pytest.approx(
            point["per_s"]["median"], rel=1e-3
        )


@pytest.mark.slow
@pytest.mark.process
def test_stores_apart_wait_for_late_packets(tmp_path):
    if why := apart_obstacle():
        pytest.skip(why)
    words = f"--only ares-abd --rounds 1 --seconds 0.5 --servers 3 --apart 2 --out {tmp_path}"
    command = python("-m", "experiments.bench", "--workloads", "10 B, 1 client", *words.split())
    subprocess.run(command, check=True, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    [found] = json.loads((tmp_path / "bench.json").read_text())["points"]
    assert found["failed"] == 0
    assert 0 < found["per_s"]["median"] <= 300, "a round trip takes 4 ms at least"


@pytest.mark.slow
@pytest.mark.process
def test_measurements_alone_have_figures_and_the_memory_of_their_process(tmp_path):
    """The parts of an index follow in order; a server starts from a journal, and drops names."""
    index, filled, churned = (tmp_path / name for name in ("index", "filled", "churned"))
    for directory in (index, filled, churned):
        directory.mkdir()
    found = [alone(part, index, 2000) for part in INDEX_PARTS]
    assert list(alone(one_server.fill, filled, 5000)) == [PEAK]
    found += [alone(one_server.start, filled, 5000), alone(one_server.churn, churned, 6000)]
    for figures in found:
        assert figures.pop(PEAK) > 10
        assert figures
        assert all(figure >= 0 for figure in figures.values())


def points_in(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the points on the page of ``out``, by the name of the run."""
    page = (out / "report.html").read_text()
    data = json.loads(
        page.split('<script id="data" type="application/json">')[1].split("</script>")[0]
    )
    assert data["notes"] == []
    return {
        run["path"].rpartition("/")[2]: run["load"]["points"] for run in data["runs"] if run["load"]
    }


def point(peer: str = "etcd", clients: int = 1, median: float = 10.0, **others: object) -> Point:
    one = Figure(median, median / 2, median * 2)
    shape = {
        "peer": peer,
        "workload": f"10 B, {clients} clients",
        "per_s": one,
        "p50_ms": one,
        "p99_ms": one,
    }
    rest = {"server_cpu": 1.0, "generator_cpu": [0.95], "others_cpu": 0.0}
    return Point(**{**shape, **rest, "ratios": {"ABD": one}, "failed": 0, "wrong": [], **others})  # type: ignore[arg-type]


def report(*points: Point) -> BenchReport:
    return BenchReport("here", "once", list(points), {}, {"x": "x is not installed"})


def test_a_generator_that_was_the_bottleneck_and_a_busy_machine_are_marked():
    told = text(report(point(others_cpu=1.0)))
    assert "0.95!" in told
    assert "1.00~" in told
    assert "x is not installed" in told
    quiet = text(report(point(generator_cpu=[0.2])))
    assert "!" not in quiet
    assert "~" not in quiet


@pytest.mark.slow
def test_what_grows_is_told_and_kept_as_runs(tmp_path):
    samples = {
        "keys": [
            GrowthSample(
                "ABD", "keys", count, {"op/s": 10.0, "bytes": 7.0 * count, "cost": float("inf")}
            )
            for count in (1, 100)
        ],
        "clients": [GrowthSample("EC", "clients", 5, {"op/s": 20.0, "failed": 3.0})],
    }
    told = [line.split() for line in scale_text(samples).splitlines()]
    assert ["ABD", "100", "10", "700", "inf"] in told
    assert ["clients", "op/s", "failed"] in told
    for _ in range(2):  # the results of the last bench are replaced
        keep_samples(tmp_path, samples)
        make_page(tmp_path)
    found = points_in(tmp_path)
    assert {name: [point["figures"] for point in points] for name, points in found.items()} == {
        "ABD_0": [{"bytes": 7.0}],
        "ABD_1": [{"bytes": 700.0}],
        "EC_0": [{}],
    }
    assert [(point["clients"], point["per_s"], point["failed"]) for point in found["EC_0"]] == [
        (5, 20.0, 3)
    ]


def test_a_page_that_cannot_be_made_is_told_and_the_rounds_stay(tmp_path):
    keep_samples(tmp_path, {"keys": [GrowthSample("ABD", "keys", 1, {"op/s": 10.0})]})
    (tmp_path / "report.html").mkdir()
    with pytest.raises(BenchError, match="no page was made of"):
        make_page(tmp_path)
    assert len(list((tmp_path / "rounds").rglob("load.json"))) == 1
