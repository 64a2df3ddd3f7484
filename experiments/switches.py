"""Gain of ARES II's optimisations for files of many blocks, on fast and on slow links.

Fast links are this machine's own.
"""

import os
from collections import defaultdict
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path

from msgspec import structs

from ares.client.connect import connect
from ares.client.local_copy import content_of_bytes
from ares.client.manager import Manager
from ares.cluster.settings import Settings
from ares.fragment.divide import Sizes
from ares.model.units import KIB
from experiments.measuring import Goal, Table, ratios, timed
from experiments.relay import delayed

BLOCKS = 256
SMALL_SIZES = Sizes(4 * KIB, 4 * KIB, 8 * KIB)

SAVES = Goal(0.5, at_most=False)
BATCHING = Goal(5, at_most=False)


def content_of_blocks(blocks: int, sizes: Sizes) -> bytes:
    """Return random bytes that are divided into exactly ``blocks`` blocks."""
    data = os.urandom(blocks * sizes.max)
    last = content_of_bytes(data, sizes).chunks[blocks - 1]
    return data[: last.offset + last.length]


def switched(settings: Settings, **switches: bool) -> Settings:
    """Return the cluster file with other client switches."""
    return structs.replace(settings, client=structs.replace(settings.client, **switches))


async def rereads(table: Table, cluster: Path, delay_s: float, rounds: int) -> None:
    """Measure repeated reads of an unchanged file: with and without piggybacking and fast reads."""
    settings = Settings.load(cluster)
    async with connect(settings) as writer:
        await writer.file("unchanged", sizes=SMALL_SIZES).write(
            content_of_blocks(BLOCKS, SMALL_SIZES)
        )
    seconds: defaultdict[tuple[bool, bool], list[float]] = defaultdict(list)
    with delayed(settings, delay_s) as slow:
        async with AsyncExitStack() as closing:
            files = {}
            for piggyback, fast_read in product((True, False), repeat=2):
                reader = await closing.enter_async_context(
                    connect(switched(slow, piggyback=piggyback, fast_read=fast_read))
                )
                files[piggyback, fast_read] = reader.file("unchanged")
            for number, (combination, file) in product(range(rounds + 2), files.items()):
                took, _ = await timed(file.read())
                if number > 1:
                    seconds[combination].append(took)
    for (piggyback, fast_read), values in seconds.items():
        table.line(
            f"piggyback {_word(piggyback)}, fast read {_word(fast_read)}",
            [1e3 * value for value in values],
            "ms",
        )
    for fast_read in (True, False):
        saved = [1 - ratio for ratio in ratios(seconds[True, fast_read], seconds[False, fast_read])]
        table.line(f"piggyback saves, fast read {_word(fast_read)}: a share of", saved, "", SAVES)
    table.line(
        "fast read saves, piggyback on: a share of",
        [1 - ratio for ratio in ratios(seconds[True, True], seconds[True, False])],
        "",
    )
    table.line(
        "both together save a share of",
        [1 - ratio for ratio in ratios(seconds[True, True], seconds[False, False])],
        "",
        SAVES,
    )


def _word(on: bool) -> str:
    return "on" if on else "off"


async def batching(table: Table, cluster: Path, sizes: Sizes, delay_s: float, rounds: int) -> None:
    """Measure the reconfiguration of a file of 256 blocks, batched and sequential, in turns."""
    settings, name = Settings.load(cluster), f"moving {sizes.min} {delay_s}"
    async with connect(settings) as writer:
        await writer.file(name, sizes=sizes).write(content_of_blocks(BLOCKS, sizes))
    if delay_s:
        with delayed(settings, delay_s) as slow:
            await _move(table, slow, name, rounds)
    else:
        await _move(table, settings, name, rounds)


async def _move(table: Table, settings: Settings, name: str, rounds: int) -> None:
    seconds: defaultdict[bool, list[float]] = defaultdict(list)
    for number, batch in product(range(rounds + 1), (True, False)):
        async with connect(switched(settings, batch=batch)) as mover:
            took = await _reconfigure(mover, name)
        if number:
            seconds[batch].append(took)
    table.line("batched", seconds[True], "s")
    table.line("one after the other", seconds[False], "s")
    table.line(
        f"batching speeds up the reconfiguration of {BLOCKS} blocks by",
        ratios(seconds[False], seconds[True]),
        goal=BATCHING,
    )


async def _reconfigure(mover: Manager, name: str) -> float:
    """Reconfigure to the same kind on the same servers.

    This moves all blocks, and collects the old ones.
    """
    domain = await mover.domain(f"file/{name}")
    wished = mover.configuration
    took, result = await timed(domain.reconfigure(wished))
    assert result.ours
    assert result.moved >= BLOCKS
    return took
