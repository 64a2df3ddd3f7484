"""`ares-cli trace`: the phases of an operation, and joined traces of clients and servers."""

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.tracing.tree import GAP_NAME

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
    begun = [name for name, *_ in rows(told) if name != GAP_NAME]
    assert begun[:4] == ["write", "StartWriteRequest-MEMORY", "Phase1", "GetTag"]
    assert re.search("ms (went into|are not accounted for)", told)  # the latter: a busy machine
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


def test_a_reconfiguration_names_a_stopped_server_and_its_times_add_up(
    cli: Cli, tmp_path: Path
) -> None:
    """The wait of a second for a server's description once counted as work on earlier replies."""
    traces, stopped = tmp_path / "reconfig.json", int((cli.directory / "run/s3.pid").read_text())
    cli.ok("write", "k", stdin=b"value")
    os.kill(stopped, signal.SIGSTOP)
    cli.environment["OTEL_TRACES_EXPORTER"] = f"file:{traces}"
    try:
        assert "s3 does not answer" in cli.fails(
            1, "reconfig", *["--servers", "s0,s1,s2,s3", "--dap", "ec", "--k", "2"]
        )
        cli.ok("reconfig", "--servers", "s0,s1,s2", "--dap", "abd")
    finally:
        cli.environment["OTEL_TRACES_EXPORTER"] = "none"
        os.kill(stopped, signal.SIGCONT)
    told = cli.ok("trace", traces).decode()
    trees = [rows(tree) for tree in told.split("\n\n")]
    for tree in trees:
        path = [own for _, _, own, line in tree if "█" in line]
        assert sum(path) == pytest.approx(tree[0][1], rel=0.1), told
    [move] = [tree for tree in trees if tree[0][0] == "reconfiguration"]
    waited = [tree for tree in trees if any("waiting for s3" in name for name, *_ in tree)]
    [looked] = [tree for tree in waited if tree is not move]
    assert max(looked, key=lambda row: row[2])[0] == "waiting for s3"
    assert re.search(r"describe: s3 had not answered after \d+\.\d ms", told)
    assert {"AddConfig", "Consensus", "UpdateConfig", "GCConfig"} <= {name for name, *_ in move}
    assert any("s3" in line.partition("not yet")[2] for *_, line in move)


def rows(tree: str) -> list[tuple[str, float, float, str]]:
    """Return the lines of a tree: name, whole time, time without the lines below, line."""
    row = re.compile(r" *(\S.*?) +(\d+\.\d+) ms +(\d+\.\d+) ms ")
    found = [(row.match(line), line) for line in tree.splitlines()]
    return [(told[1], float(told[2]), float(told[3]), line) for told, line in found if told]


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
    lines = [
        line for line in lines if not line.lstrip().startswith(GAP_NAME)
    ]  # a busy machine has gaps
    rows = [line.split()[0] for line in lines if line]
    round = (
        rows.index("PutData") + 1 + rows[rows.index("PutData") + 1 :].index("CommunicationLatency")
    )
    stages = ["connecting", "to"] if rows[round + 1] == "connecting" else []
    assert rows[round + 1 :][: len(stages) + 2] == [*stages, "PutData", "Commit"]
    last = lines[round][lines[round].index("put-data: ") :].partition(";")[0].split()[-2]
    told = [line.split("ms")[0].split() for line in lines[round + 1 :][: len(stages)]]
    assert all(last in words for words in told), "its rows are about the server that ended it"


def test_files_without_traces_are_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "no traces are in there" in cli.fails(2, "trace", "show", tmp_path / "empty")
    assert "cannot be read" in cli.fails(2, "trace", "show", tmp_path / "absent")
    assert (
        b"no traces are in there" in cli.run("trace", "show", cli.directory / "cluster.toml").stderr
    )
