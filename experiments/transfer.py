"""Put and get of large files beside raw ZeroMQ and a pass of encoding; edits; repeated reads."""

import os
import time
from collections import defaultdict
from pathlib import Path

from ares.client.connect import connect
from ares.client.local_copy import content_of_bytes
from ares.client.manager import Manager
from ares.dap.coding import coding_for
from ares.fragment.divide import Sizes
from ares.model.configuration import Configuration
from ares.model.units import MIB
from experiments.measuring import Goal, Table, ratios, timed, warm_memory
from experiments.raw_zmq import RawPeers, raw_peers

PUT_GET = Goal(2.0)
MOVED_GOAL = Goal(3)
AGAIN_GOAL = Goal(20, at_most=False)

Seconds = defaultdict[str, list[float]]


async def transfers(table: Table, cluster: Path, size: int, rounds: int) -> None:
    """Print a line for each ratio, in the cluster's initial configuration."""
    seconds: Seconds = defaultdict(list)
    async with connect(cluster) as writer:
        configuration = writer.configuration
        with raw_peers(configuration.n) as raw:
            for number in range(rounds + 1):
                measured = await _round(cluster, writer, configuration, raw, f"file {number}", size)
                if number:
                    for name, value in measured.items():
                        seconds[name].append(value)
    _add_lines(table, seconds, size)


async def _round(
    cluster: Path,
    writer: Manager,
    configuration: Configuration,
    raw: RawPeers,
    name: str,
    size: int,
) -> dict[str, float]:
    """Measure each transfer with a new file and a new reader; the first round of all warms up."""
    data, part = os.urandom(size), bytes(-(-size // configuration.k))
    edited = b"".join((data[: size // 2], b"!", data[size // 2 :]))
    sent = len(part) * configuration.n
    measured: dict[str, float] = {}
    file = writer.file(name)
    measured["domain"], _ = await timed(writer.create_domain(f"file/{name}"))
    warm_memory(2 * sent)
    written, _ = await timed(file.write(data))
    measured["put"] = measured["domain"] + written
    warm_memory(2 * sent)
    measured["raw put"] = raw.write(part)
    measured["encode"] = _encode(configuration, data)
    async with connect(cluster) as reader:
        await reader.current()  # this connects the client, as the raw peers are connected
        copy = reader.file(name)
        warm_memory(2 * size)
        measured["get"], got = await timed(copy.read())
        assert got == data
        warm_memory(2 * size)
        measured["raw get"] = raw.read(configuration.k)
        measured["get again"], got = await timed(copy.read())
        assert got == data
    del got, copy
    measured["edit"], report = await timed(file.write(edited))
    measured["blocks moved"] = float(report.modified + report.inserted)
    measured["bytes moved"] = float(report.moved_bytes)
    atomic = writer.file(f"atomic {name}", atomic=True)
    warm_memory(2 * sent)
    measured["atomic put"], _ = await timed(atomic.write(data))
    async with connect(cluster) as reader:
        await reader.current()
        copy = reader.file(f"atomic {name}")
        warm_memory(2 * size)
        measured["atomic get"], _ = await timed(copy.read())
        measured["atomic get again"], got = await timed(copy.read())
        assert got == data
    return measured


def _encode(configuration: Configuration, data: bytes) -> float:
    """Encode the blocks of ``data`` once with the erasure code, and return the seconds."""
    coding = coding_for(configuration)
    blocks = [
        data[chunk.offset : chunk.offset + chunk.length]
        for chunk in content_of_bytes(data, Sizes()).chunks
    ]
    begin = time.perf_counter()
    for block in blocks:
        coding.encode(block)
    return time.perf_counter() - begin


def _add_lines(table: Table, seconds: Seconds, size: int) -> None:
    mib = size / MIB
    for name in ("put", "atomic put", "get", "atomic get"):
        table.line(f"first {name}", [mib / value for value in seconds[name]], "MiB/s")
    for way in ("put", "get"):
        floor = [
            raw + encode
            for raw, encode in zip(seconds[f"raw {way}"], seconds["encode"], strict=True)
        ]
        for kind in ("", "atomic "):
            goal = None if kind else PUT_GET
            table.line(
                f"first {kind}{way} : raw ZeroMQ with the same bytes + one pass of encoding",
                ratios(seconds[kind + way], floor),
                goal=goal,
            )
        table.line(f"  raw ZeroMQ's part of the latter, {way}", seconds[f"raw {way}"], "s")
    table.line("  the pass of encoding", seconds["encode"], "s")
    table.line("  deciding a new file's configuration, a part of the put", seconds["domain"], "s")
    table.line(
        "1 byte inserted in the middle, put again: blocks moved",
        seconds["blocks moved"],
        "",
        goal=MOVED_GOAL,
    )
    table.line("  first put : that put", ratios(seconds["put"], seconds["edit"]))
    table.line(
        "first get : reading again through the same client",
        ratios(seconds["get"], seconds["get again"]),
        goal=AGAIN_GOAL,
    )
    table.line(
        "first get : reading again, atomic file",
        ratios(seconds["atomic get"], seconds["atomic get again"]),
        goal=AGAIN_GOAL,
    )
