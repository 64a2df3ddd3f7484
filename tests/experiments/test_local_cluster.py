"""Clusters of measurements: the same way to all stores, unless a measurement asks for another."""

from pathlib import Path

import pytest

from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from experiments import local_cluster as measured
from experiments.bench.peers import ARES_PEERS


@pytest.mark.parametrize("local_sockets", [False, True])
def test_a_measured_cluster_uses_sockets_only_where_asked(
    local_sockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_only(command: str, directory: str, *options: str) -> None:
        if command == "init":
            create(Path(directory), InitPlan(servers=3, consensus=0, base_port=0))

    monkeypatch.setattr(measured, "_cli", make_only)
    with measured.local_cluster(3, local_sockets=local_sockets) as file:
        assert Settings.load(file).local_sockets == local_sockets


def test_one_store_of_the_bench_shows_sockets() -> None:
    assert [peer.name for peer in ARES_PEERS if peer.local_sockets] == ["ares-abd-sockets"]
