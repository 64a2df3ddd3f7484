"""Put and get of an object with each of the six algorithms of the papers, on the same servers."""

import os
from collections import defaultdict
from pathlib import Path

from ares.client.connect import connect
from ares.model.configuration import Algorithm, Configuration
from ares.model.units import MIB
from experiments.algorithms import open_register
from experiments.measuring import Table, timed
from experiments.paper_algorithms import ALGORITHMS, PaperAlgorithm


async def six_algorithms(table: Table, cluster: Path, size: int, k: int, rounds: int) -> None:
    """Measure new objects: a put, a first get by a reader with no knowledge, and a second get."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    async with connect(cluster) as store:
        servers = store.configuration.servers
    wished: dict[Algorithm, Configuration] = {
        "abd": Configuration.abd(servers),
        "ec": Configuration.ec(servers, k),
    }
    for number in range(rounds + 1):
        for algorithm in ALGORITHMS:
            measured = await _write_and_read(
                cluster, algorithm, wished[algorithm.dap], f"{algorithm.name} {number}", size
            )
            if number:
                for what, took in measured.items():
                    seconds[f"{algorithm.name:11} {what}"].append(took)
    for label, values in seconds.items():
        table.line(label, [size / MIB / value for value in values], "MiB/s")


async def _write_and_read(
    cluster: Path, algorithm: PaperAlgorithm, wished: Configuration, name: str, size: int
) -> dict[str, float]:
    value, domain = os.urandom(size), f"over {algorithm.dap}"
    async with connect(cluster) as writing, connect(cluster) as reading:
        writer = await open_register(writing, algorithm, name, domain, create=wished)
        put, _ = await timed(writer.write(value))
        reader = await open_register(reading, algorithm, name, domain)
        get, got = await timed(reader.read())
        assert got == value
        again, got = await timed(reader.read())
        assert got == value
    return {"put": put, "get": get, "get again": again}
