"""`ares-cli trace`: the phases of an operation, and joined traces of clients and servers."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .command_line import Cli, running_cluster

pytestmark = pytest.mark.process

END_S_MAX = 30.0


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    traces = tmp_path_factory.mktemp("traces")
    os.environ["OTEL_TRACES_EXPORTER"] = f"file:{traces}/%p.json"
    try:
        for cli in running_cluster(tmp_path_factory.mktemp("cluster") / "c"):
            cli.environment["OTEL_TRACES_EXPORTER"] = "none"
            yield cli
    finally:
        del os.environ["OTEL_TRACES_EXPORTER"]


def test_a_write_and_a_read_show_their_phases_and_whom_they_waited_for(cli: Cli) -> None:
    told = cli.ok("trace", "write", "k", stdin=b"value").decode()
    assert [line.split()[0] for line in told.splitlines()[:4]] == [
        "write",
        "StartWriteRequest-MEMORY",
        "Phase1",
        "GetTag",
    ]
    assert "ms went into" in told
    assert "made the quorum of 3" in told
    assert cli.ok("read", "k") == b"value"
    told = cli.ok("trace", "read", "k").decode()
    assert "StartReadRequest-MEMORY" in told
    assert "value" not in told
    assert {span["name"] for [*spans] in cli.json("trace", "read", "k") for span in spans} >= {
        "read",
        "Phase1",
        "GetData",
        "CommunicationLatency",
    }


def test_an_operation_that_fails_is_shown_too(cli: Cli) -> None:
    done = cli.run("trace", "read", "nothing")
    assert done.returncode == 1
    assert b"Phase1" in done.stdout
    assert done.stderr == b"error: no object 'nothing' in domain 'default'\n"


def test_what_servers_did_hangs_under_the_round_that_asked_for_it(cli: Cli, tmp_path: Path) -> None:
    own = tmp_path / "client.json"
    cli.environment["OTEL_TRACES_EXPORTER"] = f"file:{own}"
    cli.ok("write", "k", stdin=b"more")
    cli.environment["OTEL_TRACES_EXPORTER"] = "none"
    pids = [int((cli.directory / f"run/{id}.pid").read_text()) for id in ("s0", "s1", "s2", "s3")]
    for pid in pids:  # each process exports its spans at its end, unless it is told to hurry
        os.kill(pid, 15)
    until_s = time.monotonic() + END_S_MAX
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.05)
    directory = Path(os.environ["OTEL_TRACES_EXPORTER"].removeprefix("file:")).parent
    cli.ok("down", cli.directory)
    told = cli.ok("trace", "--most", "20", own, *directory.iterdir()).decode()
    lines = told[told.index("write ") :].splitlines()
    rows = [line.split()[0] for line in lines if line]
    round = (
        rows.index("PutData") + 1 + rows[rows.index("PutData") + 1 :].index("CommunicationLatency")
    )
    served = rows.index("PutData", round + 1)
    assert rows[served : served + 2] == ["PutData", "Commit"]
    assert {"waiting", "connecting", "to"}.issuperset(rows[round + 1 : served])


def test_files_without_traces_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "no traces are in there" in cli.fails(2, "trace", "show", tmp_path / "empty")
    assert "cannot be read" in cli.fails(2, "trace", "show", tmp_path / "absent")
    assert (
        b"no traces are in there" in cli.run("trace", "show", cli.directory / "cluster.toml").stderr
    )
