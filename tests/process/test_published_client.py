"""The algorithms as published, on a cluster of processes with `published = true` over libzmq."""

import json
import random
from pathlib import Path

import pytest
from msgspec import structs

from ares.client.connect import connect
from ares.fragment.divide import Sizes
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


COARES = (
    PublishedAlgorithm("ares", coverable=True, fragmented=True),
    PublishedAlgorithm("ares2", coverable=True, fragmented=True),
    PublishedAlgorithm("ares2", Ares2Switches(batching=False), coverable=True, fragmented=True),
)
DATA = random.Random(3).randbytes(20_000)
SIZES = Sizes(1024, 1024, 2048)


async def cover(cli: Cli, algorithm: PublishedAlgorithm, directory: Path) -> None:
    """Write an object over its version, and a file that a move takes along block by block."""
    one = await connect_published(cli.settings, algorithm, directory / "one")
    other = await connect_published(cli.settings, algorithm, directory / "other")
    book = cli.settings.book()
    later = Configuration.ec([*book], 2).resolved(book)
    key = directory.name
    try:
        if algorithm.switches.batching:
            assert await one.cvr_write(key, b"begin")
            assert not await other.cvr_write(key, b"late")
            assert await other.cvr_write(key, b"over")
            assert await one.read(key) == b"over"
        mine, theirs = one.file(f"{key}.txt", SIZES), other.file(f"{key}.txt", SIZES)
        assert await mine.write(DATA)
        assert await theirs.write(DATA[1:])
        keys = [f"{key}.txt"] if algorithm.switches.batching else await one.blocks(f"{key}.txt")
        assert (await one.reconfigure(later, keys, 60.0)).dap == "ec"
        assert await mine.read() == await theirs.read() == DATA[1:]
    finally:
        await one.close()
        await other.close()
    lines = [json.loads(line) for line in (directory / "one").read_text().splitlines()]
    [moved] = [line for line in lines if line["op"] == "reconfigure"]
    assert moved["rounds"] > 2 * 10
    assert {"read", "write", "get", "put"} <= {line["op"] for line in lines}


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
        for number, algorithm in enumerate(COARES):
            (directory := tmp_path / f"covered-{number}").mkdir()
            await cover(cli, algorithm, directory)
