"""Rounds with real processes: results, a killed server, a failed round, and resumption."""

import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from ares.cluster.home import held
from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments import ENVIRONMENT
from experiments.bench.store_clients import AresStore
from experiments.rounds import engine as subject
from experiments.rounds.engine import Engine
from experiments.rounds.layout import Layout, works
from experiments.rounds.playbook_runs import RoundFailed
from experiments.rounds.round_testbeds import RoundTestbed
from experiments.rounds.round_worker import COUNTED_LATE
from experiments.rounds.scenario import Fault, Parameters, ScenarioRound
from experiments.testbeds import slots
from experiments.testbeds.local_testbed import obstacle

MISSING = (
    None
    if Path(python()[0]).with_name("ansible-playbook").exists()
    else "ansible-core is not installed: pip install 'ares-storage[ansible]'"
)
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(MISSING is not None, reason=MISSING or ""),
]

SMALL = Parameters(servers=3, parity=1, operations=4, interval_s=0.2, readers=2)
SHORT = Parameters(
    servers=4,
    parity=2,
    operations=5,
    interval_s=0.2,
    readers=2,
    reconfigurers=1,
    reconfigurations=1,
    reconfigure_every_s=0.5,
)


def round_of(protocol="ARES_EC", parameters=SHORT, faults=(), iteration=1):
    return ScenarioRound(
        "short", protocol, parameters, {"servers": parameters.servers}, iteration, faults
    )


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def counted_bytes(directory):
    """Return the bytes that the round of the directory counted.

    None if a busy machine began the counting process after the readers; the round says so.
    """
    counted = json.loads((directory / "run.json").read_text())["parameters"].get("counted")
    is_late = COUNTED_LATE in (directory / "logs" / "writer0" / "work.out").read_text()
    assert (counted is None) == is_late
    return counted


def test_a_round_leaves_its_logs_and_what_befell_and_is_not_done_again(tmp_path):
    told: list[str] = []
    rounds = [round_of(faults=(Fault(at_share=0.5, event="crash", server=3),))]
    assert Engine(tmp_path, 7, told.append).run(rounds, resume=False) == []
    directory = tmp_path / "short" / "ARES_EC_servers-4_1"
    described = json.loads((directory / "run.json").read_text())
    assert (described["algorithm"], described["servers"], described["k"], described["m"]) == (
        "ARES_EC",
        4,
        2,
        2,
    )
    assert described["provenance"]["seed"] == 1007, "the one given, and that of the first iteration"
    events = lines(directory / "events.jsonl")
    assert [event["event"] for event in events] == ["phase", "crash", "phase"]
    operations = [line for path in directory.glob("logs/*/client-*.log") for line in lines(path)]
    done = {
        op: [line["status"] for line in operations if line["op"] == op]
        for op in ("read", "write", "reconfigure")
    }
    assert {op: len(statuses) for op, statuses in done.items()} == {
        "read": 10,
        "write": 5,
        "reconfigure": 1,
    }
    # a crash of a server out of four is survived
    assert set(done["read"] + done["write"]) == {"SUCCESS"}
    assert "counted" not in described["parameters"], "a killed server counts nothing"
    with pytest.raises(BadInput, match="1 of these 1 rounds already: --resume goes on"):
        Engine(tmp_path, 7, told.append).run(rounds, resume=False)
    before = (directory / "run.json").read_bytes()
    assert Engine(tmp_path, 7, told.append).run(rounds, resume=True) == []
    assert (directory / "run.json").read_bytes() == before
    asked = subprocess.run(
        python("-m", "experiments", "report", "--results", tmp_path),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
    with sqlite3.connect(tmp_path / "results.db") as database:
        assert database.execute(
            "select count(*) from operations where op in ('read', 'write', 'recon')"
        ).fetchone() == (16,)


@pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
def test_rounds_on_testbed_local_go_over_ssh_and_leave_nothing(tmp_path):
    told: list[str] = []
    rounds = [
        round_of("ARES_ABD", SMALL, (Fault("crash", at_share=0.5, server=2),)),
        round_of("ARES_EC", SMALL),
    ]
    rounds += [round_of("REDIS_W", SMALL)] if shutil.which("redis-server") else []
    assert Engine(tmp_path, 1, told.append, "local").run(rounds, resume=False) == [], told
    for round in rounds:
        directory = tmp_path / "short" / round.name
        operations = [
            line
            for path in directory.glob("logs/*/client-*.log")
            for line in lines(path)
            if line["op"] in ("read", "write")
        ]
        assert sorted(line["op"] for line in operations) == ["read"] * 8 + ["write"] * 4
        assert {line["status"] for line in operations} == {"SUCCESS"}
        assert {path.name for path in (directory / "logs").iterdir()} >= {
            "server0",
            "writer0",
            "reader0",
        }
        assert json.loads((directory / "inventory.json").read_text())["all"]["hosts"]["server0"][
            "ansible_ssh_private_key_file"
        ]
    counted = counted_bytes(tmp_path / "short" / rounds[1].name)
    assert counted is None or counted["kept"] >= 3 * SMALL.object_size // 2
    crash = [
        event
        for event in lines(tmp_path / "short" / rounds[0].name / "events.jsonl")
        if event["event"] == "crash"
    ]
    assert [event["server"] for event in crash] == ["server2"]
    assert f"process {os.getpid()};" not in "".join(slots.status()), (
        "others may have testbeds meanwhile"
    )


def test_a_round_that_fails_is_told_and_kept_aside_and_the_others_go_on(tmp_path):
    told: list[str] = []
    impossible = Parameters(servers=3, parity=1, operations=2, interval_s=0.0, block_min=7)
    quick = Parameters(servers=3, parity=1, operations=2, interval_s=0.0)
    rounds = [round_of("COARES_ABD_F", impossible), round_of("ARES_ABD", quick)]
    assert Engine(tmp_path, 1, told.append).run(rounds, resume=False) == [
        "short/COARES_ABD_F_servers-3_1"
    ]
    assert "FAILED: writer0: Create the object: " in told[0]
    assert "it ended with status 1" in told[0]
    assert "\n" not in told[0]
    aside = tmp_path / "failed" / "short" / "COARES_ABD_F_servers-3_1.1"
    assert json.loads((aside / "failure.json").read_text())["error"] in told[0]
    assert "BadInput" in (aside / "logs" / "writer0" / "create.out").read_text()
    done = tmp_path / "short" / "ARES_ABD_servers-3_1"
    assert (done / "outcome.json").exists()
    counted = counted_bytes(done)
    if counted is None:
        return
    # beside the value servers keep a record of the round's domain
    assert 3 * quick.object_size <= counted["kept"] < 4 * quick.object_size
    # a write sends the value to all servers, and a read gets it from a majority at the least
    assert counted["received"] >= 2 * 3 * quick.object_size
    assert counted["sent"] >= 2 * 2 * quick.object_size


def test_the_time_that_is_left_follows_the_rounds_that_are_done(tmp_path, monkeypatch):
    told: list[str] = []
    long = Parameters(servers=3, parity=1, operations=1000, interval_s=2.0)
    rounds = [round_of(parameters=long, iteration=iteration) for iteration in range(1, 11)]
    quick = subject.RoundOutcome("", rounds[0].expected_s / 10)
    monkeypatch.setattr(Engine, "_carry_out", lambda *_: quick)
    assert Engine(tmp_path, 1, told.append).run(rounds, resume=False) == []
    assert [line.rpartition("; ")[2] for line in told[:2]] == [
        f"about {share * rounds[0].expected_s / 60:.0f} min left" for share in (0.9, 0.8)
    ]
    assert told[-1].endswith("about 0 min left")


def test_a_machine_that_cannot_write_results_fails_the_round_and_says_so(tmp_path, monkeypatch):
    told: list[str] = []

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "events.jsonl"))

    monkeypatch.setattr(subject._OneRound, "run", full)
    monkeypatch.setattr(subject.RoundTestbeds, "bed", lambda _: None)
    assert Engine(tmp_path, 1, told.append).run([round_of()], resume=False) == [
        "short/ARES_EC_servers-4_1"
    ]
    assert "FAILED: this machine cannot write" in told[0]
    assert "No space left on device" in told[0]


def test_a_round_says_the_seed_that_its_clients_have(tmp_path):
    """The check derives the first readers' values from the seed.

    Another seed would find a fault.
    """
    layout = Layout(("s0",), ("s0",), ("w0",), ("r0",), ())
    one = subject._OneRound(
        round_of(parameters=SMALL, iteration=2),
        RoundTestbed("processes", None, tmp_path, {}, {}),
        tmp_path,
        2001,
    )
    described = one._description(layout, {"seed": 1, "versions": {}})
    [work] = [
        work
        for name, work in works(one._round, layout, AresStore("f"), one._seed)["w0"].items()
        if name.startswith("create")
    ]
    assert described["provenance"]["seed"] == work.seed == 2001


def test_results_that_cannot_be_kept_are_refused_before_anything_begins(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="nothing was begun"):
        Engine(tmp_path / "file" / "results", 1, [].append).run([round_of()], resume=False)


def test_after_a_host_was_lost_the_testbed_is_made_again(tmp_path, monkeypatch):
    made = []

    def lost(*_: object) -> None:
        raise RoundFailed("server0: cannot be reached: no route", ["server0"])

    monkeypatch.setattr(subject._OneRound, "run", lost)
    monkeypatch.setattr(subject.RoundTestbeds, "_made", lambda *_: made.append(1) or object())
    rounds = [round_of(iteration=number) for number in (1, 2)]
    assert len(Engine(tmp_path, 1, [].append).run(rounds, resume=False)) == 2
    assert len(made) == 2


@pytest.mark.parametrize(
    ("protocol", "parameters", "why"),
    [
        (
            "ARES_ABD",
            Parameters(placement="1E+2U", client_site="U"),
            "servers at several sites need hosts with networks of their own",
        ),
        ("ETCD", Parameters(object_size=8 * 2**20), "etcd takes values of 1568768 bytes at most"),
    ],
)
def test_what_a_store_cannot_do_is_left_out_and_told_once(tmp_path, protocol, parameters, why):
    told: list[str] = []
    assert (
        Engine(tmp_path, 1, told.append).run(
            [round_of(protocol, parameters, iteration=number) for number in (1, 2)], resume=False
        )
        == []
    )
    assert len(told) == 1
    assert told[0].startswith(f"left out: {why}")
    assert not (tmp_path / "short").exists()


def test_two_engines_do_not_work_in_one_directory(tmp_path):
    with held(tmp_path), pytest.raises(BadInput):
        Engine(tmp_path, 1, print).run([round_of()], resume=False)


def test_what_an_engine_that_was_killed_left_is_kept_aside(tmp_path):
    directory = tmp_path / "short" / "round"
    for number in (1, 2):
        subject._make_way(directory)
        (directory / "client-1.log").write_text(str(number))
    assert (tmp_path / "failed" / "short" / "round.1" / "client-1.log").read_text() == "1"
    assert (directory / "client-1.log").read_text() == "2"
