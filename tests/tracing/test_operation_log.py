"""The log line of an operation, and the attributes of its span, computed from its recording."""

import itertools
import json
import logging
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ares.client.connect import connect
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.tables import TracingSettings
from ares.engine.jobs import OperationLabel
from ares.engine.phases import ROUND
from ares.model.errors import BadInput, Unavailable
from ares.model.identity import ClientId
from ares.model.messages import GetTag
from ares.model.tag import TAG_ZERO
from ares.registers.coverable import write_versioned
from ares.registers.operations import read, write
from ares.tracing import operation_log as subject
from ares.tracing.export import tracer_of
from ares.tracing.operation_log import OperationLog
from ares.tracing.outcomes import attributes_of, covered_s, line_of, quorum_number

from ..unit.session_rig import once
from .test_recording import EC, Traced

PUBLISHED = [
    "objectID",
    "newTag",
    "oldTag",
    "maxTag",
    "opID",
    "dap_protocols",
    "op_latency_start",
    "op_latency_end",
    "op_latency",
    "read_config_latency_total",
    "phase1_latency",
    "phase2_latency",
    "p2_read_config_time_total",
    "p2_put_data_time_total",
    "prop",
    "status",
    "file_size",
    "quorum_phase1",
    "quorum_phase2",
    "params",
    "servers_no",
    "confs_no",
    "clientID",
    "com_latency",
    "manager_comp_latency",
    "message",
    "asctime",
    "levelname",
    "name",
]


def written(name: str = "x", value: bytes = b"value") -> Traced:
    rig = Traced()
    rig.recording.operation.name = "write"
    rig.run(write(rig.view, name, value))
    rig.answer()
    rig.answer()
    return rig


@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 2), (5, 3), (5, 5), (11, 9)])
def test_a_quorum_has_the_number_that_the_published_logs_give_it(n, k):
    servers = [f"s{number}" for number in range(n)]
    numbers = [
        quorum_number(tuple(reversed(quorum)), tuple(servers))
        for quorum in itertools.combinations(servers, k)
    ]
    assert numbers == list(range(len(numbers)))


def test_what_runs_side_by_side_counts_once():
    class Part:
        def __init__(self, began_s: float, ended_s: float) -> None:
            self.began_s, self.ended_s = began_s, ended_s

    assert covered_s([]) == 0
    assert covered_s([Part(5, 6), Part(1, 3), Part(2, 4), Part(2, 3)]) == 4


def test_the_line_of_a_write():
    rig = written()
    line = line_of(rig.recording, OperationLabel("write", "x"), rig.value, None)
    assert (line["message"], line["op"], line["objectID"], line["status"], line["outcome"]) == (
        "WRITE-COMPLETE-DSMM",
        "write",
        "x",
        "SUCCESS",
        "ok",
    )
    assert (line["op_latency_start"], line["op_latency_end"], line["op_latency"]) == (0.0, 9.0, 9.0)
    assert (
        line["phase1_latency"],
        line["phase2_latency"],
        line["p2_put_data_time_total"],
        line["com_latency"],
    ) == (4.0, 5.0, 5.0, 9.0)
    assert (line["newTag"], line["maxTag"], line["file_size"], line["rounds"], line["prop"]) == (
        [1, f"{7:016x}"],
        [0, "0" * 16],
        5,
        2,
        True,
    )
    assert (line["dap_protocols"], line["params"], line["servers_no"]) == (
        {"EC": 1},
        {"dap_protocol": "EC", "m": 2},
        5,
    )
    assert (line["confs_no"], line["configurations"], line["domain"]) == (1, [0], "default")
    assert (line["quorum_phase1"], line["quorum_phase1_servers"]) == (0, ["s0", "s1", "s2", "s3"])
    assert len(line["quorum_phase2_servers"]) == 4
    assert list(itertools.combinations(EC.server_ids, 4))[line["quorum_phase2"]] == tuple(
        sorted(line["quorum_phase2_servers"])
    )


def test_the_line_of_a_read_and_of_one_of_nothing():
    rig = written()
    reading = Traced()
    reading.replicas, reading.recording.operation.name = rig.replicas, "read"
    reading.run(read(reading.view, "x"))
    reading.answer()
    line = line_of(reading.recording, OperationLabel("read", "x"), reading.value, None)
    assert (line["maxTag"], line["newTag"], line["file_size"], line["found"], line["prop"]) == (
        [1, f"{7:016x}"],
        None,
        5,
        True,
        False,
    )
    nothing = Traced()
    nothing.recording.operation.name = "read"
    nothing.run(read(nothing.view, "y"))
    nothing.answer()
    line = line_of(nothing.recording, OperationLabel("read", "y"), nothing.value, None)
    assert (line["found"], line["file_size"], line["status"]) == (False, 0, "SUCCESS")


@pytest.mark.parametrize(("name", "outcome"), [("read", "failed"), ("write", "unknown")])
def test_the_line_of_a_failure_says_whether_it_may_have_happened(name, outcome):
    rig = Traced()
    rig.recording.operation.name = name
    rig.run(once(give_up_s=3.0), timeout_s=10.0)
    for _ in range(4):
        rig.tick(1.0)
    error = rig.error
    assert isinstance(error, Unavailable)
    error.may_have_taken_effect = True
    line = line_of(rig.recording, OperationLabel(name, "x"), None, error)
    assert (line["status"], line["outcome"], line["file_size"], line["found"]) == (
        "UNSUCCESS",
        outcome,
        0,
        None,
    )
    assert line["error"].startswith("Unavailable: ")


def test_a_round_that_was_cut_short_made_no_quorum():
    rig = Traced()
    rig.recording.operation.name = "write"
    job = rig.session.start(
        write(rig.view, "x", b"value"),
        "a write",
        0.0,
        30.0,
        lambda value, error: None,
        recording=rig.recording,
    )
    asked = [message for message in rig.sent()["s0"] if isinstance(message, GetTag)]
    rig.reply("s0", *map(rig.replicas["s0"].handle, asked))
    assert [heard.server for heard in rig.part(ROUND).heard] == ["s0"]
    rig.session.cancel(job)
    line = line_of(rig.recording, OperationLabel("write", "x"), None, TimeoutError())
    assert "quorum_phase1" not in line
    assert "quorum_phase1_servers" not in line


def test_the_quorums_of_a_reconfiguration_are_those_of_its_last_move():
    rig = written()
    moving = Traced()
    moving.replicas, moving.recording.operation.name = rig.replicas, "reconfiguration"
    access = moving.view.dap(EC)

    def move():
        for name in ("x", "y"):
            found = yield from access.get_data(name)
            yield from access.put_data(name, found.tag, found.value)

    moving.run(move())
    while not moving.ends:
        moving.answer()
    line = line_of(moving.recording, "reconfiguration of 'default'", None, None)
    assert (len(line["quorum_phase1_servers"]), len(line["quorum_phase2_servers"])) == (4, 4)
    assert (line["quorum_phase1"], line["quorum_phase2"], line["prop"]) == (0, 0, False)


def test_a_versioned_write_that_came_too_late_wrote_nothing():
    rig = written()
    late = Traced()
    late.replicas, late.recording.operation.name = rig.replicas, "write"
    late.run(write_versioned(late.view, "x", b"other", TAG_ZERO))
    while not late.ends:
        late.answer()
    assert not late.value.changed
    line = line_of(late.recording, OperationLabel("write", "x"), late.value, None)
    assert (line["newTag"], line["maxTag"]) == (None, [1, f"{7:016x}"])


def test_the_attributes_of_the_operation():
    rig = written()
    about = attributes_of(rig.recording, rig.value, keys=False)
    assert about == {
        "db.system.name": "ares",
        "db.operation.name": "write",
        "db.namespace": "default",
        "ares.domain": "default",
        "ares.configuration": 0,
        "ares.dap": "ec",
        "ares.n": 5,
        "ares.k": 3,
        "ares.configurations": (0,),
        "ares.rounds": 2,
        "ares.fast": False,
        "ares.tag": f"1.{7:016x}",
        "ares.bytes": 5,
    }


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("label", "message", "op"),
    [
        (OperationLabel("read", "x"), "READ-COMPLETE-DSMM", "read"),
        (OperationLabel("read", "x", "file "), "READ-COMPLETE", "get"),
        (OperationLabel("put", "x", "file "), "WRITE-COMPLETE", "put"),
        (OperationLabel("deletion", "x", "file "), "DELETE-COMPLETE", "delete"),
        (OperationLabel("read", "\0domain/x"), "LOOKUP-COMPLETE", "lookup"),
        ("reconfiguration of 'default'", "RECONFIG-COMPLETE-DSMM", "reconfigure"),
        ("listing of 'default'", "LIST-COMPLETE", "list"),
        ("describe", "DESCRIBE-COMPLETE", "describe"),
    ],
)
def test_the_message_says_what_it_was_and_of_what(label, message, op):
    rig = written()
    rig.recording.operation.name = (
        label.what if isinstance(label, OperationLabel) else label.partition(" of ")[0]
    )
    line = line_of(rig.recording, label, None, None)
    assert (line["message"], line["op"]) == (message, op)


def test_a_log_has_every_attribute_of_the_published_format_with_a_zone(tmp_path):
    log, rig = OperationLog(tmp_path / "ops-%p.log", ClientId(7)), written()
    for name in ("x", "x", "y"):
        log.write(rig.recording, OperationLabel("write", name), rig.value, None)
    log.close()
    [path] = tmp_path.glob("ops-*.log")
    first, second, other = lines(path)
    assert set(PUBLISHED) <= set(first)
    assert datetime.fromisoformat(str(first["asctime"])).utcoffset() == timedelta(0)
    assert (first["opID"], second["opID"]) == (f"write-{7:016x}-1", f"write-{7:016x}-2")
    assert (first["oldTag"], second["oldTag"], other["oldTag"]) == (None, first["newTag"], None)


def test_tags_of_few_objects_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "TAGS_REMEMBERED", 2)
    log, rig = OperationLog(tmp_path / "ops.log", ClientId(7)), written()
    for name in "abcabc":
        log.write(rig.recording, OperationLabel("write", name), rig.value, None)
    log.close()
    assert [line["oldTag"] for line in lines(tmp_path / "ops.log")] == [None] * 6


def test_a_log_is_rotated_by_its_size_and_loses_no_line(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "LOG_FILE_BYTES", 5_000)
    log, rig = OperationLog(tmp_path / "ops.log", ClientId(7)), written()
    for _ in range(20):
        log.write(rig.recording, OperationLabel("write", "x"), rig.value, None)
    log.close()
    files = list(tmp_path.iterdir())
    assert len(files) > 2
    # the last line that fitted may be longer than the remaining space
    assert all(file.stat().st_size <= 7_000 for file in files)
    assert sum(len(lines(file)) for file in files) == 20


def test_a_log_that_cannot_be_written_is_refused_before_anything_is_sent(tmp_path):
    with pytest.raises(BadInput, match=r"operations cannot be logged to .*; nothing was sent"):
        OperationLog(tmp_path / "no" / "ops.log", ClientId(7))


@pytest.mark.parametrize("name", ["\0", "n" * 300, "pipe"])
def test_a_log_that_cannot_be_opened_at_once_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")  # no process reads the pipe
    with pytest.raises(BadInput, match=r"operations cannot be logged to .*; nothing was sent"):
        OperationLog(tmp_path / name, ClientId(7))


def test_a_pipe_with_a_reader_gets_the_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "LOG_FILE_BYTES", 1)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    log, rig = OperationLog(tmp_path / "pipe", ClientId(7)), written()
    for _ in range(3):
        log.write(rig.recording, OperationLabel("write", "x"), rig.value, None)
    log.close()
    told = os.read(reader, 65536).splitlines()
    os.close(reader)
    assert [json.loads(line)["op"] for line in told] == ["write"] * 3


def test_what_is_open_under_another_name_is_not_renamed(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "LOG_FILE_BYTES", 1)
    with (tmp_path / "output").open("w") as output:
        log, rig = OperationLog(f"/dev/fd/{output.fileno()}", ClientId(7)), written()
        for _ in range(3):
            log.write(rig.recording, OperationLabel("write", "x"), rig.value, None)
        log.close()
    assert len(lines(tmp_path / "output")) == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_costs_lines_and_is_told_once(caplog):
    log, rig = OperationLog("/dev/full", ClientId(7)), written()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            log.write(rig.recording, OperationLabel("write", "x"), rig.value, None)
    log.close()
    assert (
        caplog.text.count("lines are missing in /dev/full from now on, and operations go on") == 1
    )


def test_operations_are_logged_whether_they_are_traced_or_not(tmp_path):
    for share in (0.0, 1.0):
        log = OperationLog(tmp_path / f"{share}.log", ClientId(7))
        tracer = tracer_of(
            TracingSettings(exporter=f"file:{tmp_path}/{share}.spans", share=share), "a test", log
        )
        assert tracer is not None
        for name in ("one", "two"):
            begun = tracer.begin(OperationLabel("read", name))
            assert begun is not None
            tracer.end(begun, None, None)
        tracer.close()
        assert [line["objectID"] for line in lines(tmp_path / f"{share}.log")] == ["one", "two"]
        assert (tmp_path / f"{share}.spans").exists() == (share == 1.0)


async def test_connect_takes_the_path_of_the_log(tmp_path):
    settings = create(tmp_path / "c", InitPlan(servers=3, consensus=0, base_port=0))
    async with connect(settings, operation_log=tmp_path / "ops.log") as store:
        with pytest.raises(Unavailable):
            await store.read("x", timeout_s=0.1)
    [line] = lines(tmp_path / "ops.log")
    assert (line["message"], line["objectID"], line["status"], line["outcome"]) == (
        "READ-COMPLETE-DSMM",
        "x",
        "UNSUCCESS",
        "failed",
    )
    with pytest.raises(BadInput, match="named by its path"):
        connect(settings, operation_log=7)


@pytest.mark.parametrize(
    ("label", "op", "named"),
    [
        ("creation of domain 'photos'", "creation", "domain 'photos'"),
        ("listing of 'photos'", "list", "photos"),
        ('reconfiguration of "a\'b"', "reconfigure", "a'b"),
        ("listing of the domains", "list", "the domains"),
    ],
)
def test_what_is_no_object_is_named_as_in_its_label(tmp_path, label, op, named):
    log = OperationLog(tmp_path / "ops.log", ClientId(7))
    tracer = tracer_of(TracingSettings(exporter=f"file:{tmp_path}/spans", share=0.0), "a test", log)
    assert tracer is not None
    begun = tracer.begin(label)
    assert begun is not None
    tracer.end(begun, None, None)
    tracer.close()
    [line] = lines(tmp_path / "ops.log")
    assert (line["op"], line["objectID"]) == (op, named)
