"""The bench of moving domains (experiments/bench/moving.py): the table, and a smallest real run."""

import json

import pytest
from msgspec import structs

from ares.results.load_points import LoadLatency, LoadPoint
from experiments.bench.figures import Figure
from experiments.bench.load import MeasuredWorkload
from experiments.bench.moving import (
    COPIED_AHEAD,
    MOVER,
    NEW,
    OLD,
    MeasuredMove,
    MovingReport,
    _point,
    goal_figures,
    main,
    text,
)


def moved(p99_s: float) -> MeasuredMove:
    """Return a move with a p99 of reads of 1 ms before and of ``p99_s`` during the move."""
    quiet, moving = (
        LoadPoint(
            1,
            read=LoadLatency(9, 0.0005, seconds, 0.0005),
            longest_pause_s=0.1,
            server_cpu=dict.fromkeys([*OLD, *NEW, MOVER], 0.1),
        )
        for seconds in (0.001, p99_s)
    )
    return MeasuredMove("ABD to EC", "some", 10, 4, 2.0, 50.0, 3, 1, quiet, moving, ["made up"])


def test_latencies_while_moving_are_shown_beside_those_before():
    told = text(MovingReport("here", "once", [moved(0.002)])).splitlines()
    [reads] = [line for line in told if "some: reads" in line]
    [writes] = [line for line in told if "some: writes" in line]
    assert reads.split()[-6:] == ["2.00", "100", "100", "0.50", "0.50", "0.10"]
    assert writes.split()[-6:-4] == ["-", "100"]
    assert "WRONG READ: ABD to EC, some: made up" in told


def test_the_figures_of_moves_are_the_ratios_of_all_rounds():
    alone = structs.replace(moved(0.001), quiet=None, moving=None)
    found = goal_figures([moved(0.002), alone, moved(0.004), moved(0.003)])
    assert found == {"4 objects, ABD to EC, some: p99 of reads": Figure(3.0, 2.0, 4.0)}


def test_copies_ahead_are_compared_with_the_same_move_of_the_round():
    """Rounds of 8 s and 4 s, and with copies ahead 2 s each; a slow move does not count."""
    plain, ahead, slow = (
        structs.replace(moved(0.001), what=f"load{words}", two_s=2.0)
        for words in ("", COPIED_AHEAD, ", slow move")
    )
    first, second = (structs.replace(plain, two_s=two_s) for two_s in (8.0, 4.0))
    alone = structs.replace(ahead, quiet=None)
    found = goal_figures([first, ahead, slow, alone, second, ahead])
    assert found["4 objects, load: time with two configurations, copied ahead : not"] == Figure(
        0.375, 0.25, 0.5
    )


@pytest.mark.slow
@pytest.mark.process
def test_a_short_bench_of_moving_reports_loads_and_durations(tmp_path, capsys):
    words = ["--objects", "30", "--seconds", "0.2", "--slow", "0.3"]
    assert main([*words, "--only", "ABD to EC", "--out", str(tmp_path)]) == 0
    moves = json.loads((tmp_path / "moving.json").read_text())["moves"]
    under_load = [one for one in moves if one["quiet"]]
    assert (len(under_load), len(moves)) == (4, 13)
    for one in moves:
        assert one["moved"] + one["skipped"] == one["objects"]
        assert (one["wrong"], 0 < one["two_s"] <= one["seconds"]) == ([], True)
    assert under_load[2]["seconds"] > 0.2, "a slow move takes longer than a window"
    for one in under_load:
        assert 0 < one["moving"]["seconds"] <= one["seconds"]
        for point in (one["quiet"], one["moving"]):
            assert point.get("failed", 0) == 0
            assert point["read"]["count"] > 0
    told = (tmp_path / "moving.txt").read_text()
    assert told in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    data = page.split('<script id="data" type="application/json">')[1].split("</script>")[0]
    points = [run["load"]["points"] for run in json.loads(data)["runs"]]
    assert sorted(map(len, points)) == [1] * 9 + [2] * 4
    assert all(each[-1]["figures"]["objects/s"] > 0 for each in points)


def test_a_point_has_the_operations_that_were_due_while_the_domain_moved():
    """A window of 2 s, in which the move took the second from 10.5 to 11.5."""
    operations = [(10.4, 10.6, True), (10.6, 10.7, True), (10.7, 12.5, False), (11.6, 11.7, True)]
    part = MeasuredWorkload(
        *(0.0, {}, {}, {}, {}, 0, [], {}, 0.0, 10.0, 12.0, {}, {}, {}), operations=operations
    )
    point = _point([part], 10.5, 11.5, {}, None)
    assert (point.seconds, point.per_s) == (1.0, 2.0)
    assert (point.read.count, point.write.count) == (1, 1)
    assert point.write.p50_s == pytest.approx(1.8, rel=0.02)
    assert point.longest_pause_s == pytest.approx(0.8)
