"""Kills of head, middle and tail of a chain, sequentially, under appends that must continue.

The processes are real.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ares import Log, connect
from ares.model.configuration import Configuration
from tests.process.command_line import Cli

from .test_process import ares, status

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """Run six servers, with `default` on the first three and the log on the others."""
    directory = tmp_path / "cluster"
    ares(
        "init",
        directory,
        "--servers",
        "3",
        "--spares",
        "3",
        "--consensus",
        "3",
        "--base-port",
        "0",
        "--autopilot",
        "--durability",
        "memory",
    )
    file = directory / "cluster.toml"
    file.write_text(
        file.read_text()
        .replace("after_s = 60", "after_s = 3", 1)
        .replace("every_s = 5", "every_s = 0.5")
    )
    ares("up", directory, "--detach")
    try:
        yield Cli(directory)
    finally:
        ares("down", directory)


async def append_on(log: Log, done: list[tuple[float, int]]) -> None:
    """Append sequentially; record the time of each acknowledgement, and its position."""
    while True:
        position = await log.append(b"%d" % len(done), timeout_s=120)
        done.append((time.monotonic(), position))


async def chain_of_three(log: Log, good: Callable[[Configuration], bool]) -> Configuration:
    async with asyncio.timeout(120):
        while not ((await log.current()).n == 3 and good(log.configuration)):  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.2)
    return log.configuration


async def appended(done: list[tuple[float, int]], count: int) -> None:
    async with asyncio.timeout(120):
        while len(done) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def kill_each(cli: Cli, watching: Callable[[], Any]) -> dict[str, float]:
    """Return the seconds without appends, by the position of the killed server."""
    without, done = {}, list[tuple[float, int]]()
    async with connect(cli.settings) as store:
        log = await store.log("events", Configuration.chain(["s3", "s4", "s5"]))
        appending = asyncio.create_task(append_on(log, done))
        await asyncio.to_thread(watching)
        await asyncio.sleep(5)  # until spares may be relied on
        chain = log.configuration
        for place, number in (("head", 0), ("middle", 1), ("tail", -1)):
            dead = chain.server_ids[number]
            killed_at = time.monotonic()
            cli.kill(dead)
            chain = await chain_of_three(log, lambda chain, dead=dead: dead not in chain.server_ids)  # type: ignore[misc]
            await appended(done, len(done) + 1)
            times = [killed_at, *(at for at, _ in done if at > killed_at), time.monotonic()]
            without[place] = max(later - earlier for earlier, later in pairwise(times))
        appending.cancel()
        positions = [position for _, position in done]
        assert positions == list(range(len(done)))
        kept = [entry async for entry in first_of(log, len(done))]
        assert kept == [b"%d" % number for number in range(len(done))]
    return without


async def first_of(log: Log, count: int) -> Any:
    async for position, entry in log.follow(0):
        yield entry
        if position + 1 == count:
            return


def test_appends_go_on_when_head_middle_or_tail_is_killed(cli: Cli) -> None:
    def watching() -> Any:
        return status(cli, lambda told: "watches 1 log" in (told["autopilot"] or ""))

    without = asyncio.run(kill_each(cli, watching))
    rounded = {place: round(seconds, 2) for place, seconds in without.items()}
    print("seconds without appends:", rounded)  # noqa: T201
    told = status(cli, lambda told: "is gone" in (told["autopilot"] or ""))
    assert "log events: chain " in told["autopilot"]
