"""The command torture, for real and in short: clean, with all kinds of faults, and without remains.

The end of the command does not matter.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from ares.platform.environment import TRANSPORT_VARIABLE
from ares.platform.interpreter import python
from ares.testing.torture.partition import obstacle
from ares.testing.torture.records import LogRecorded, Record
from ares.testing.torture.torture_cluster import die_with
from ares.testing.torture.torture_run import OVER_SOCKETS
from ares.testing.torture.verdict import judge, judge_log
from ares.testing.verify.history import load
from ares.testing.verify.linearizability import check
from ares.testing.verify.log_history import load_log

from .torture_histories import with_stale_read

pytestmark = [pytest.mark.process, pytest.mark.slow]

ENDED_S = 60.0
"""The kernel's time to end the processes of a killed run, on a busy machine."""


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command, with all its files below ``tmp_path``."""
    (tmp_path / "tmp").mkdir()
    command = python("-m", "ares", "torture", "--out", str(tmp_path / "out"), *arguments)
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def running(tmp_path: Path) -> list[str]:
    """Return the command lines of the run's processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes()
        except OSError:
            continue
        if str(tmp_path).encode() in words:
            found.append(words.replace(b"\0", b" ").decode())
    return found


def finished(run: subprocess.Popen[str], tmp_path: Path) -> dict:
    """Return the report of a clean run."""
    out, err = run.communicate(timeout=180)
    assert run.returncode == 0, out + err
    report = json.loads(out)
    assert (report["ok"], report["verdict"][:5]) == (True, "clean")
    assert report["transport"] == os.environ.get(TRANSPORT_VARIABLE, "native")
    assert running(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "history.jsonl",
        "timeline.html",
    ]
    return report


def test_a_short_run_without_partitions_is_clean(tmp_path):
    report = finished(
        start(
            tmp_path,
            "--minutes",
            "0.5",
            "--seed",
            "11",
            "--no-partitions",
            "--durability",
            "memory",
            "--json",
        ),
        tmp_path,
    )
    assert report["faults"]["kill"] > 0
    assert report["faults"]["stop"] > 0
    assert report["reconfigurations"]["done"] > 1
    assert report["partitions"] is False
    assert report["notes"] == ([OVER_SOCKETS] if report["transport"] == "native" else [])
    events = load(Path(report["history"]).read_bytes(), "history")
    assert len(events) == sum(sum(outcomes.values()) for outcomes in report["operations"].values())
    assert check(events).ok
    assert {event.operation for event in events} == {"read", "write", "delete"}
    assert {event.client for event in events} >= {
        "a.writer",
        "b.reader",
        "a.slow-reader",
        "b.plain",
        "a.mixed",
        "b.deleter",
        "final",
    }
    stale = with_stale_read(events)
    assert judge([Record(event, event.responded or event.invoked) for event in stale]).violations


def test_a_short_run_with_a_log_is_clean_and_its_history_is_judged(tmp_path):
    arguments = (
        "--workload",
        "log",
        "--minutes",
        "0.5",
        "--seed",
        "21",
        "--servers",
        "5",
        "--no-partitions",
        "--durability",
        "memory",
        "--json",
    )
    report = finished(start(tmp_path, *arguments), tmp_path)
    assert report["faults"]["kill"] > 0
    assert report["reconfigurations"]["done"] > 0
    events = load_log(Path(report["history"]).read_bytes(), "history")
    assert {event.operation for event in events} >= {"append", "read", "tail", "follow"}
    assert {event.client.partition("/")[0] for event in events} >= {
        "a.appender",
        "b.batcher",
        "a.conditional",
        "b.follower",
        "final",
    }
    pages = [event for event in events if event.client == "final" and event.entries]
    last = max(pages, key=lambda event: event.position)
    assert last.position + len(last.entries) == max(
        event.position for event in events if event.client == "final" and event.operation == "tail"
    )
    # The last page alone may hold only appends whose answers a crash of the client's server lost.
    kept = {entry for page in pages for entry in page.entries}
    lost = next(
        event
        for event in events
        if event.operation == "append" and event.outcome == "ok" and event.entries[0] in kept
    )
    moved = [
        structs.replace(event, position=event.position + 1) if event is lost else event
        for event in events
    ]
    assert judge_log(
        [LogRecorded(event, event.responded or event.invoked) for event in moved]
    ).violations


@pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed")
def test_a_short_run_on_etcd_is_clean(tmp_path):
    report = finished(
        start(
            tmp_path,
            "--minutes",
            "0.5",
            "--seed",
            "13",
            "--servers",
            "5",
            "--etcd",
            "--no-partitions",
            "--json",
        ),
        tmp_path,
    )
    assert report["reconfigurations"]["done"] > 1
    assert any(kind.endswith("consensus") for kind in report["faults"])


def test_without_etcd_there_is_no_run_on_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    run = start(tmp_path, "--etcd", "--no-partitions")
    out, err = run.communicate(timeout=240)
    assert (run.returncode, out) == (1, "")
    assert "etcd is not installed (Debian: apt-get install etcd-server)" in err
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
def test_a_short_run_with_partitions_is_clean(tmp_path):
    run = start(tmp_path, "--minutes", "0.3", "--seed", "12", "--partitions", "--json")
    report = finished(run, tmp_path)
    assert report["partitions"] is True
    assert any(kind.startswith("partition") for kind in report["faults"])
    assert report["reconfigurations"]["done"] > 1
    namespaces = subprocess.run(
        ["ip", "netns", "list"], capture_output=True, text=True, check=True
    ).stdout
    assert f"ares{run.pid}-" not in namespaces


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_running_by_a_run_that_is_ended(tmp_path, number):
    run = start(tmp_path, "--minutes", "2", "--seed", "13", "--no-partitions", "--servers", "4")
    assert run.stderr is not None
    assert "operations" in run.stderr.readline(), "it has come as far as the traffic"
    assert len(running(tmp_path)) > 8
    run.send_signal(number)
    _, err = run.communicate(timeout=240)
    patience = time.monotonic() + ENDED_S
    while number == signal.SIGKILL and running(tmp_path) and time.monotonic() < patience:
        time.sleep(0.05)  # the kernel ends them in its own time
    assert running(tmp_path) == []
    if number != signal.SIGKILL:
        assert run.returncode == 130
        assert "interrupted" in err
        assert list((tmp_path / "tmp").iterdir()) == []


def test_a_child_begins_no_program_after_the_end_of_its_parent():
    """The parent may end between the begin of a child and the child's wish to end with it."""
    gone = partial(die_with, os.getpid() + 1)
    run = subprocess.run(
        python("-c", "print('begun')"), stdout=subprocess.PIPE, preexec_fn=gone, check=False
    )
    assert (run.returncode, run.stdout) == (1, b"")


def test_wrong_usage_is_refused_before_anything_starts(tmp_path):
    for arguments in (["--servers", "2"], ["--minutes", "0"], ["--consensus", "0"]):
        refused = subprocess.run(
            python("-m", "ares", "torture", *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert refused.returncode == 2, arguments
