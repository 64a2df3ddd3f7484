"""Bytes counted by servers: from a client's questions to the figures of a run."""

import json
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from ares.metrics import ListenerTraffic
from ares.model.configuration import Configuration
from ares.model.identity import CallId, ServerId
from ares.model.messages import ConfigurationReport, Description
from experiments.bench.store_clients import AresStore, EtcdStore
from experiments.rounds import round_worker
from experiments.rounds.layout import Layout, works
from experiments.rounds.round_worker import RoundWorker, WorkerTask
from experiments.rounds.scenario import Parameters, ScenarioRound
from experiments.rounds.server_bytes import note_counted, note_servers
from experiments.verdicts.rows import read_rows
from tests.results.operation_logs import imported, own, write

C0 = Configuration.abd(["s0", "s1", "s2"])


def server(received=0, sent=0, kept=()):
    traffic = ListenerTraffic()
    traffic.received_bytes, traffic.sent_bytes = received, sent
    hosted = tuple(ConfigurationReport(C0, 1, each, False, None) for each in kept)
    about = (CallId(1), ServerId("s0"), "", b"", "", 0.0, 0, hosted)
    return Description(*about, work=traffic.work())


def test_the_bytes_of_all_servers_and_configurations_are_summed(tmp_path):
    note_servers(tmp_path / "sums", [server(5, 7, (10, 20)), server(1, 2, (30,))])
    assert json.loads((tmp_path / "sums").read_text()) == {"received": 6, "sent": 9, "kept": 60}


@pytest.mark.parametrize(
    "other", [None, Description(CallId(1), ServerId("s0"), "", b"", "", 0.0, 0, ())]
)
def test_a_server_that_does_not_tell_leaves_no_sum(tmp_path, other):
    note_servers(tmp_path / "sums", [server(5), other])
    assert not (tmp_path / "sums").exists()


def test_a_round_has_the_bytes_of_its_work_alone(tmp_path):
    write(tmp_path / "run.json", {"parameters": {"servers": 3}})
    before = {"received": 100, "sent": 50, "kept": 3}
    write(tmp_path / "logs" / "writer0" / "servers-before.json", before)
    note_counted(tmp_path)
    assert "counted" not in json.loads((tmp_path / "run.json").read_text())["parameters"]
    after = {"received": 160, "sent": 75, "kept": 9}
    write(tmp_path / "logs" / "reader0" / "servers-after.json", after)
    note_counted(tmp_path)
    assert json.loads((tmp_path / "run.json").read_text())["parameters"] == {
        "servers": 3,
        "counted": {"received": 60, "sent": 25, "kept": 9},
    }


def test_the_first_writer_counts_before_the_work_and_the_last_reader_after():
    layout = Layout(("s0",), ("s0",), ("w0", "w1"), ("r0",), ())
    parameters = Parameters(writers=2, readers=2)

    def counting(protocol, store):
        given = works(ScenarioRound("steps", protocol, parameters, {}, 1), layout, store, 1)
        tasks = [(host, name, task) for host in given for name, task in given[host].items()]
        return [(host, name, task.count_into) for host, name, task in tasks if task.count_into]

    assert counting("ARES_EC", AresStore("f")) == [
        ("w0", "work-write-1", "logs/servers-before.json"),
        ("r0", "read_file-read-1", "logs/servers-after.json"),
    ]
    assert counting("ETCD", EtcdStore(())) == []


async def count(into, monkeypatch):
    """Run the work of two clients without and with counting; return the order of the steps."""
    done = []

    @asynccontextmanager
    async def connected(settings):
        async def status():
            done.append("asked")
            return SimpleNamespace(servers={"s0": server(5, 7, (10,))})

        yield SimpleNamespace(status=status)

    async def live(self, client):
        done.append(client)

    monkeypatch.setattr(round_worker, "connect", connected)
    monkeypatch.setattr(RoundWorker, "_settings", lambda self: None)
    monkeypatch.setattr(RoundWorker, "_live", live)
    given = (AresStore("f"), "ARES_EC", Parameters(), "write", (1, 2), 1, "logs")
    await RoundWorker(WorkerTask(*given)).run()
    await RoundWorker(WorkerTask(*given, str(into))).run()
    return done


@pytest.mark.parametrize("begins_in_s", [None, 50.0], ids=["at once", "later"])
async def test_a_process_counts_before_its_clients_begin(tmp_path, monkeypatch, begins_in_s):
    monkeypatch.setenv("ROUND_BEGIN", "" if begins_in_s is None else f"{time.time() + begins_in_s}")
    assert await count(tmp_path / "sums", monkeypatch) == [1, 2, "asked", 1, 2]
    assert json.loads((tmp_path / "sums").read_text())["kept"] == 10


@pytest.mark.parametrize("begins_in_s", [-0.1, 1000.0], ids=["late", "other clock"])
async def test_a_process_that_counts_after_the_beginning_leaves_no_sum(
    tmp_path, monkeypatch, capsys, begins_in_s
):
    """Clients of other processes may be at work: their bytes would be missing."""
    monkeypatch.setenv("ROUND_BEGIN", f"{time.time() + begins_in_s}")
    assert await count(tmp_path / "sums", monkeypatch) == [1, 2, "asked", 1, 2]
    assert not (tmp_path / "sums").exists()
    assert round_worker.COUNTED_LATE in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reconfigurers", "figures"),
    [
        (0, {"operations": 6, "stored": 3.0, "sent": 2.0, "received": 0.5}),
        (1, {"operations": 6, "stored": 3.0}),
    ],
)
def test_a_run_has_the_bytes_per_operation_in_values_and_beside_moves_the_kept_alone(
    tmp_path, reconfigurers, figures
):
    counted = {"received": 120, "sent": 20, "kept": 30}
    about = {"scenario": "piggyback", "algorithm": "ARES_EC", "iteration": 2, "object_size": 10}
    settings = {"reconfigurers": reconfigurers, "servers": 3}
    parameters = {"counted": counted, "published": "ares2"}
    write(tmp_path / "a" / "run.json", about | settings | {"parameters": parameters})
    operations = [own(op, number) for number, op in enumerate(("read",) * 4 + ("write",) * 2)]
    write(
        tmp_path / "a" / "client-1.log", *operations, own("recon", 9, message="RECONFIG-COMPLETE")
    )
    imported(tmp_path / "results.db", tmp_path / "a")
    rows, _ = read_rows(tmp_path)
    [of_all] = [row for row in rows if row.op == "all"]
    assert (of_all.algorithm, of_all.iteration, dict(of_all.figures)) == ("ARES_EC", 2, figures)
    assert "counted" not in of_all.parameters


def test_reads_with_a_second_phase_are_apart_from_reads_without(tmp_path):
    write(tmp_path / "a" / "run.json", {"scenario": "piggyback", "algorithm": "COARES_EC"})
    reads = [(False, 1.0), (True, 8.0), (False, 3.0), (None, 100.0)]
    lines = [
        own("read", number, op_latency=latency_s, prop=prop)
        for number, (prop, latency_s) in enumerate(reads)
    ]
    write(tmp_path / "a" / "client-1.log", *lines, own("read", 9, status="UNSUCCESS", prop=False))
    imported(tmp_path / "results.db", tmp_path / "a")
    [row] = read_rows(tmp_path)[0]
    assert list(row.samples["fast_s"]) == [1.0, 3.0]
    assert (row.figures["fast_s"], row.figures["slow_s"]) == (2.0, 8.0)
