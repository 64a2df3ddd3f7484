"""The algorithms as published, on a cluster of processes with `published = true` over libzmq."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from ares.client.connect import connect
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, DomainNotFound, ObjectNotFound
from ares.testing.published.ares2 import Ares2Switches
from ares.testing.published.published_objects import PublishedAlgorithm, connect_published
from experiments.bench.measured_points import read_load
from experiments.bench.store_clients import AresStore
from experiments.rounds.load_work import make_load, prepare_load
from experiments.rounds.scenario import LoadSeries, Parameters

from .command_line import Cli, running_cluster

pytestmark = pytest.mark.process

ALGORITHMS = (
    PublishedAlgorithm("abd"),
    PublishedAlgorithm("ares"),
    PublishedAlgorithm("ares2"),
    PublishedAlgorithm("ares2", Ares2Switches(piggyback=False, gc=False, batching=False)),
)
STEPS = {"findTag_in_k_lists", "findMaxTagStar", "findMaxTagVal_in_k_lists", "DecodeLatency"}
PARTS = {"Phase1", "Phase2", "GetTag", "GetData", "PutData", "CommunicationLatency"}


async def exchange(cli: Cli, algorithm: PublishedAlgorithm, directory: Path) -> None:
    """Read, write and move small values, with a log and a trace; two moves are left pending."""
    tracing = structs.replace(cli.settings.tracing, exporter=f"file:{directory / 'spans'}")
    settings = structs.replace(cli.settings, tracing=tracing)
    objects = await connect_published(settings, algorithm, directory / "log")
    book = settings.book()
    later = Configuration.ec([*book], 2).resolved(book)
    try:
        with pytest.raises(ObjectNotFound):
            await objects.read(f"none of {algorithm}")
        for value in (b"small", b"a small value"):
            await objects.write("x", value)
            assert await objects.read("x") == value
        if algorithm.name == "abd":
            with pytest.raises(BadInput, match="plain ABD has no reconfigurations"):
                await objects.reconfigure(later, ["x"], 60.0)
        else:
            for _ in range(2):
                await objects.begin_move(later, 60.0)
            moved = await objects.reconfigure(later, ["x"], 60.0)
            assert (moved.dap, moved.index % 3) == ("ec", 0)
        assert await objects.read("x") == b"a small value"
    finally:
        await objects.close()
    lines = [json.loads(line) for line in (directory / "log").read_text().splitlines()]
    assert [line["op"] for line in lines if line["outcome"] == "ok"] == [
        *("read", *("write", "read") * 2),
        *(() if algorithm.name == "abd" else ("add-config", "add-config", "reconfigure")),
        "read",
    ]
    for line in lines:
        if line["op"] == "reconfigure":
            assert {*line["configurations"]} >= {moved.index - number for number in range(4)}
    assert lines[-1]["phase1_latency"] * lines[-1]["phase2_latency"] > 0
    names = (directory / "spans").read_text()
    spans = PARTS | ({"findMaxTagStar"} if algorithm.name == "abd" else STEPS)
    assert {name for name in spans if f'"{name}"' not in names} == set()


def make_points(cluster: Path, directory: Path) -> None:
    """Make a point of load by plain ABD, whose clients make no domain."""
    series = LoadSeries(5, 5, 60, 5.0, clients=4, clients_max=4, processes=1)
    own = Parameters(servers=4, object_size=10, load=series, published="abd")
    store = AresStore(str(cluster))
    prepare_load(store, "ABD", own)
    make_load(store, "ABD", own, lambda: None, directory)
    file = read_load(directory / "load.json")
    assert (file.peer, file.wrong, file.points[0].failed) == ("ABD (plain)", [], 0)
    assert None not in (file.points[0].read, file.points[0].write)


async def test_small_values_are_read_and_moved_as_published(tmp_path: Path) -> None:
    """Servers with the compiled core keep small values in the core's form."""
    setting = 'published = true\ntransport = "libzmq"\n'
    for cli in running_cluster(tmp_path / "cluster", setting=setting):
        make_points(cli.settings.path, tmp_path)
        async with connect(cli.settings) as todays:
            with pytest.raises(DomainNotFound):
                await todays.domain("load-ABD")
        for number, algorithm in enumerate(ALGORITHMS):
            (directory := tmp_path / str(number)).mkdir()
            await exchange(cli, algorithm, directory)
