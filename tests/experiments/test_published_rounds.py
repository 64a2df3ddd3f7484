"""Rounds of the algorithms as published: their names in results, their answers, and their loads."""

import json
from types import SimpleNamespace

import pytest

from ares.results.database import opened
from ares.results.summary import summarise
from experiments.bench.store_clients import AresStore
from experiments.rounds import engine
from experiments.rounds.correctness import WRONG, History, checked, first_value, value_of
from experiments.rounds.engine import _OneRound
from experiments.rounds.layout import Layout
from experiments.rounds.round_testbeds import RoundTestbed
from experiments.rounds.round_worker import RoundWorker, WorkerTask
from experiments.rounds.scenario import Parameters, ScenarioRound
from experiments.verdicts.rows import read_rows
from tests.results.operation_logs import imported, write

LAYOUT = Layout(("s0",), ("s0",), ("w0",), ("r0",), ())


def test_runs_of_two_algorithms_are_never_one_figure(tmp_path):
    """Results group runs by the algorithm's name, and claims filter by `published`."""
    for number, published in enumerate(("ares", "")):
        own = ScenarioRound("steps", "ARES_EC", Parameters(published=published), {}, 1)
        one = _OneRound(own, RoundTestbed("processes", None, tmp_path, {}, {}), tmp_path, 1)
        directory = tmp_path / "steps" / str(number)
        write(directory / "run.json", one._description(LAYOUT, {"versions": {}}))
        line = {"asctime": "2026-11-22T10:00:00+00:00", "status": "SUCCESS", "clientID": "1"}
        line |= {"message": "READ-COMPLETE-DSMM", "op": "read", "op_latency": 1.0 + number}
        write(directory / "client-1.log", line)
    imported(tmp_path / "results.db", tmp_path / "steps")
    with opened(tmp_path / "results.db") as database:
        names = {row["algorithm"]: row["mean_s"] for row in summarise(database)}
    assert names == {"ARES_EC (ARES of 2022)": 1.0, "ARES_EC": 2.0}
    rows, _ = read_rows(tmp_path)
    assert {
        (row.algorithm, row.parameters["published"], row.figures["mean_s"]) for row in rows
    } == {
        ("ARES_EC", "ares", 1.0),
        ("ARES_EC", "", 2.0),
    }


@pytest.mark.parametrize(
    ("algorithm", "published", "switches", "fault"),
    [
        ("ARES_EC (ARES II as printed)", "ares2", ["piggyback"], None),
        ("ARES_EC (ARES II as printed)", "ares2", ["gc"], None),
        ("ARES_EC (ARES II as printed)", "ares2", ["batch"], "not linearizable"),
        ("ABD (plain)", "ares2", ["piggyback", "gc"], "not linearizable"),
        ("ARES_EC (ARES of 2022)", "ares", [], "not linearizable"),
        ("ARES_EC", "", ["piggyback", "gc"], "not linearizable"),
    ],
)
def test_a_lost_write_of_ares_ii_as_printed_is_told_and_is_no_fault(
    tmp_path, algorithm, published, switches, fault
):
    own = {"check": True, "published": published, "switches": switches}
    write(
        tmp_path / "run.json",
        {"algorithm": algorithm, "object_size": 8, "parameters": own, "provenance": {"seed": 3}},
    )
    history = History(tmp_path, 1, "object")
    history.add("write", "new", 1.0, 2.0)
    history.add("read", value_of(first_value(3, 1, 8)), 3.0, 4.0)
    wrong = checked(tmp_path)
    told = json.loads((tmp_path / "run.json").read_text())["parameters"]["checked"]
    assert told.startswith(WRONG)
    assert (wrong is None) if fault is None else (fault in str(wrong))
    assert ("as ARES II as printed can be: key 'object'" in told) == (fault is None)


def test_the_engine_tells_a_lost_write_beside_the_time(tmp_path, monkeypatch):
    told: list[str] = []
    note = f"{WRONG}, as it can be"
    monkeypatch.setattr(engine._OneRound, "run", lambda *_: note)
    monkeypatch.setattr(engine.RoundTestbeds, "bed", lambda _: None)
    rounds = [ScenarioRound("steps", "ARES_EC", Parameters(), {}, 1)]
    assert engine.Engine(tmp_path, 1, told.append).run(rounds, resume=False) == []
    assert f" s, {note}; about 0 min left" in told[0]


async def test_reconfigurers_in_turn_leave_the_first_moves_pending(tmp_path, monkeypatch):
    """Six moves by two reconfigurers in turn: the first three end after add-config."""
    cluster = SimpleNamespace(servers={"s0": 1, "s1": 1, "s2": 1})

    class Moves:
        async def status(self):
            return cluster

        async def identified(self, wished):
            return wished

        async def begin_move(self, wished, timeout_s):
            moves.append((client, "begun", wished.dap))

        async def reconfigure(self, wished, keys, timeout_s):
            moves.append((client, "done", wished.dap))

        async def close(self):
            pass

    async def connected(self, client):
        return Moves()

    own = Parameters(
        reconfigurers=2,
        reconfigurations=3,
        pending=3,
        published="ares2",
        reconfigure_every_s=0.0,
        fresh_after_s=0.001,
    )
    for name in ("_manager", "_published"):
        monkeypatch.setattr(RoundWorker, name, connected)
    moves: list[tuple[int, str, str]] = []
    for client in (4, 5):
        task = WorkerTask(AresStore("f"), "ARES_MIXED", own, "reconfigure", (client,), 1, tmp_path)
        await RoundWorker(task).run()
    assert moves == [
        *((4, "begun", "ec"), (4, "begun", "ec"), (4, "done", "ec")),
        *((5, "begun", "abd"), (5, "done", "abd"), (5, "done", "abd")),
    ]
