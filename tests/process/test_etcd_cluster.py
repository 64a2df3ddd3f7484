"""A cluster with decisions in an etcd.

The only processes are the servers, and every decision is asked of etcd.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.consensus.etcds import EtcdProcesses

from .warm_start import ares_cli

pytestmark = pytest.mark.process

LOOK_S_MAX = 60.0


class ClusterOverEtcd:
    """Four servers and an etcd of a single member, running."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "cluster"
        self.etcd = EtcdProcesses(directory)
        self.etcd.start()

    def ares(self, *words: str | Path, status: int = 0) -> str:
        """Return a command's standard output after success, otherwise the standard error."""
        done = subprocess.run(
            ares_cli(*words), capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    def ask(self, *words: str, status: int = 0) -> str:
        return self.ares("-c", self.directory / "cluster.toml", *words, status=status)

    def status(self, answered: str, *words: str) -> str:
        """Return the output of `status` after an etcd answered in time.

        The time is the second allowed by `status`.
        """
        until_s = time.monotonic() + LOOK_S_MAX
        while time.monotonic() < until_s:
            if answered in (said := self.ask("status", *words)):
                return said
        raise AssertionError(f"etcd never answered: {said}")

    def begin(self) -> None:
        told = self.ares(
            "init",
            self.directory,
            "--servers",
            "4",
            "--etcd",
            self.etcd.endpoints[0],
            "--base-port",
            "0",
        )
        assert "decisions in etcd" in told
        self.ares("up", self.directory, "--detach")

    def end(self) -> None:
        self.ares("down", self.directory)
        self.etcd.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOverEtcd]:
    made = ClusterOverEtcd(tmp_path)
    made.begin()
    yield made
    made.end()


def test_servers_alone_are_started_and_etcd_decides(cluster: ClusterOverEtcd) -> None:
    assert sorted(path.stem for path in (cluster.directory / "run").glob("*.pid")) == [
        "s0",
        "s1",
        "s2",
        "s3",
    ]
    [endpoint] = cluster.etcd.endpoints
    cluster.ask("write", "k", "LICENSE")
    cluster.ask("domain", "create", "photos", "--dap", "abd", "--servers", "s0,s1,s2")
    cluster.ask("reconfig", "--dap", "ec", "--k", "2", "--servers", "s0,s1,s2,s3")
    assert json.loads(cluster.ask("stat", "k", "--json"))["index"] == 1
    told = json.loads(cluster.status('"leader"', "--json"))["consensus"]
    assert (told[endpoint]["reachable"], told[endpoint]["leader"], told[endpoint]["decisions"]) == (
        True,
        endpoint,
        2,
    )
    shown = cluster.status("1 of 1 endpoints answer")
    assert re.search(rf"etcd +{endpoint} +leader +\d+ +2 *\n", shown)
    assert "consensus: etcd; 1 of 1 endpoints answer; it has 1 member" in shown
    cluster.etcd.kill()
    cluster.ask("write", "k", "README.md")
    failed = cluster.ask(
        "reconfig", "--dap", "abd", "--servers", "s0,s1,s2", "--timeout", "2", status=1
    )
    assert (
        f"the consensus service did not decide: within 2 s etcd said: {endpoint} (unreachable: "
        "Connection refused)" in failed
    )
    assert (
        "0 of 1 endpoints answer: reads and writes go on, reconfiguring and creating domains wait"
        in cluster.ask("status")
    )
    cluster.etcd.start()
    cluster.ask("reconfig", "--dap", "abd", "--servers", "s0,s1,s2")
    assert json.loads(cluster.ask("stat", "k", "--json"))["index"] == 2
