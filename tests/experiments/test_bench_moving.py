"""The bench of moving domains (experiments/bench/moving.py): counts, and a smallest real run."""

import json

import pytest

from ares.model.configuration import Configuration
from ares.model.identity import DEFAULT_DOMAIN
from ares.reconfig.reconfigure import reconfigure
from ares.registers.operations import read, write
from experiments.bench.moving import main
from experiments.bench.moving_figures import Latency, LatencyPair, latency
from experiments.bench.moving_load import Trace, WatchedOperation, watched
from tests.protocol.protocol_world import ProtocolWorld, servers

OLD, NEW = Configuration.abd(servers(0, 1, 2)), Configuration.abd(servers(3, 4, 5))


def test_rounds_are_counted_with_the_configurations_they_are_in():
    world = ProtocolWorld(OLD.at(DEFAULT_DOMAIN, 0), range(6))
    client, mover = world.client(), world.client()
    trace = Trace()
    client.run(watched(write(client.view, "k", b"v"), trace))
    assert (trace.rounds, trace.configurations) == (2, {0})
    mover.run(reconfigure(mover.view, NEW))
    trace = Trace()
    assert client.run(watched(read(client.view, "k"), trace)).value == b"v"
    assert trace.configurations == {0, 1}
    assert trace.rounds > 1
    trace = Trace()
    client.run(watched(read(client.view, "k"), trace))
    assert (trace.rounds, trace.configurations) == (1, {1})


def test_an_operation_that_is_watched_still_learns_what_went_wrong():
    def failing():
        raise ValueError("as it should")
        yield

    with pytest.raises(ValueError, match="as it should"):
        next(watched(failing(), Trace()))


def test_latencies_and_pauses_are_those_of_their_windows():
    operations = [
        WatchedOperation(at / 10, at / 10 + 0.001 * (at + 1), True, 1, 1)
        for at in range(10)
        if at != 5
    ]
    found = latency(operations, [(0.0, 0.95)])
    assert (found.count, found.rounds) == (9, 1.0)
    assert found.slowest_ms == pytest.approx(10)
    assert found.pause_ms == pytest.approx(202, abs=1)
    assert latency(operations, [(2.0, 3.0)]) == Latency(0, 0.0, 0.0, 0.0, 1000.0, 0.0)


@pytest.mark.parametrize(("p99_ms", "met"), [(2.0, True), (2.1, False)])
def test_the_goal_for_latency_while_moving(p99_ms, met):
    quiet, moving = Latency(1, 1.0, 1.0, 1.0, 1.0, 1.0), Latency(1, 1.0, p99_ms, 1.0, 1.0, 1.0)
    assert LatencyPair("reads", quiet, moving).met is met


@pytest.mark.slow
@pytest.mark.process
def test_a_short_bench_of_moving_reports_stages_and_loads(tmp_path, capsys):
    assert (
        main(
            [
                "--objects",
                "30",
                "--seconds",
                "0.2",
                "--only",
                "ABD to EC",
                "--slow",
                "0.3",
                "--out",
                str(tmp_path),
            ]
        )
        == 0
    )
    report = json.loads((tmp_path / "moving.json").read_text())
    assert len(report["loads"]) == 3
    for one in report["loads"]:
        assert one["moved"] + one["skipped"] == 30
        assert (one["failed"], one["wrong"]) == (0, [])
        assert [name for name, _ in one["stages"]] == [
            "read-config",
            "add-config",
            "update-config",
            "finalize-config",
            "gc-config",
        ]
        assert one["extra_s"] > 0
    assert {one["batch"] for one in report["durations"]} == {True, False}
    told = (tmp_path / "moving.txt").read_text()
    assert told in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    runs = json.loads(
        page.split('<script id="data" type="application/json">')[1].split("</script>")[0]
    )["runs"]
    moved = [run for run in runs if run["scenario"] == "moving"]
    assert len(moved) == 3
    for run in moved:
        assert run["operations"]["read"]["ok"] > 0
        assert [event[-1] for event in run["events"]][-1] == "the move has ended"
    assert len([run for run in runs if run["load"]]) == len(report["durations"])
