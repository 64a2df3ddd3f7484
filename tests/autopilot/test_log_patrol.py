"""An autopilot over logs in a process: chains lose servers, and get new servers.

The autopilot also finishes the moves of dead reconfigurers.
"""

import asyncio
import contextlib

import pytest

from ares.autopilot.log_patrol import LogPatrol
from ares.autopilot.lookout import Lookout
from ares.autopilot.pilot import Autopilot
from ares.cluster.tables import AutopilotSettings
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from tests.client.conftest import cluster as cluster

pytestmark = pytest.mark.virtual_time
SETTINGS = AutopilotSettings(after_s=1.0, every_s=0.2, bytes_per_s=10**9, log_after_s=0.5)
WAIT_S_MAX = 60.0


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr("ares.autopilot.log_patrol.LOGS_LIST_S", 0.3)
    monkeypatch.setattr("ares.autopilot.log_patrol.INSPECT_EVERY_S_MIN", 0.1)


@contextlib.asynccontextmanager
async def flying(cluster, members=1, book=None):
    """Run autopilots that all believe in their own leadership.

    ``book`` has the servers known to the autopilots.
    """
    names = book or list(cluster.book)
    servers = {name: cluster.book[name] for name in names}
    pilots = [
        Autopilot(Lookout(cluster.manager(), servers), lambda: True, SETTINGS)
        for _ in range(members)
    ]
    tasks = [asyncio.create_task(pilot.run()) for pilot in pilots]
    try:
        yield pilots
    finally:
        assert not any(task.done() for task in tasks), "an autopilot ended by itself"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition, what):
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            while not condition():  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(what()) from None


async def becomes(log, good):
    """Return the last finalized chain, once the chain is ``good``."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not good(await log.current()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return log.configuration


@pytest.mark.parametrize("dead", ["s0", "s1", "s2"])
async def test_appends_go_on_without_a_node_and_a_spare_comes_in(cluster, dead):
    log = await cluster.log()
    positions = [await log.append(b"%d" % number) for number in range(5)]
    async with flying(cluster) as [pilot]:
        await until(lambda: "watches 1 log" in pilot.sentence(), pilot.sentence)
        await asyncio.sleep(2 * SETTINGS.after_s)
        cluster.stop(dead)
        positions += [await log.append(b"%d" % number) for number in range(5, 10)]
        chain = await becomes(log, lambda chain: chain.n == 3 and dead not in chain.server_ids)
        assert f"{dead} is gone" in pilot.sentence()
        assert chain.server_ids[0] in ("s0", "s1")
        assert chain.server_ids[-1] in ("s1", "s2")
        await asyncio.sleep(1)
        assert (await log.current()) == chain, "it moved again"
    assert positions == list(range(10))
    assert [await log.read(position) for position in positions] == [
        b"%d" % number for number in range(10)
    ]


async def test_a_node_that_was_slow_for_a_moment_stays(cluster):
    log = await cluster.log()
    await log.append(b"first")
    async with flying(cluster) as [pilot]:
        await until(lambda: "watches 1 log" in pilot.sentence(), pilot.sentence)
        for _ in range(4):
            cluster.stop("s1")
            await asyncio.sleep(0.2)
            cluster.restart("s1")
            await asyncio.sleep(0.4)
    assert (await log.current()).index == 0
    assert await log.append(b"second") == 1


async def test_without_a_spare_the_chain_is_shorter_and_a_returning_server_joins(cluster):
    log = await cluster.log()
    await log.append(b"first")
    async with flying(cluster, book=["s0", "s1", "s2"]) as [pilot]:
        await until(lambda: "watches 1 log" in pilot.sentence(), pilot.sentence)
        cluster.stop("s0")
        await becomes(log, lambda chain: chain.server_ids == ("s1", "s2"))
        assert await log.append(b"second") == 1
        await until(lambda: "a chain is shorter than it was" in pilot.sentence(), pilot.sentence)
        cluster.restart("s0")
        await becomes(log, lambda chain: sorted(chain.server_ids) == ["s0", "s1", "s2"])
        assert await log.append(b"third") == 2


async def test_too_few_are_left_and_it_says_so(cluster):
    log = await cluster.log()
    await log.append(b"first")
    async with flying(cluster) as [pilot]:
        await until(lambda: "watches 1 log" in pilot.sentence(), pilot.sentence)
        cluster.stop("s0", "s1")
        await until(
            lambda: "only 1 of 3 servers of the chain answer" in pilot.sentence(), pilot.sentence
        )
        cluster.restart("s0")
        await becomes(log, lambda chain: chain.index > 0)
        assert await log.append(b"second") == 1


async def test_a_mistake_in_one_repair_keeps_no_other_log_from_its_own(cluster, monkeypatch):
    reform = LogPatrol._reform

    async def mistaken(patrol, name, each, verdict):
        if name == "broken":
            raise RuntimeError("a mistake")
        await reform(patrol, name, each, verdict)

    monkeypatch.setattr(LogPatrol, "_reform", mistaken)
    broken, log = await cluster.log("broken"), await cluster.log()
    for each in (broken, log):
        await each.append(b"first")
    async with flying(cluster) as [pilot]:
        await until(lambda: "watches 2 logs" in pilot.sentence(), pilot.sentence)
        cluster.stop("s1")
        await until(lambda: "a mistake in ares itself" in pilot.sentence(), pilot.sentence)
        await becomes(log, lambda chain: "s1" not in chain.server_ids)
    assert (await broken.current()).index == 0


@pytest.mark.parametrize("left", ["sealed", "decided", "pending"])
async def test_what_a_dead_reconfigurer_left_is_finished(cluster, left):
    log = await cluster.log()
    await log.append(b"first")
    wished = Configuration.chain([cluster.book[name] for name in ("s3", "s4", "s5")])

    def abandoned(reconfiguration):
        """Run a reconfigurer up to this step only."""
        if left == "sealed":
            reconfiguration._end_of = lambda *_: (_ for _ in ()).throw(AresError("it died"))
        elif left == "pending":
            reconfiguration._finalize = lambda *_: (_ for _ in ()).throw(AresError("it died"))
        yield from reconfiguration._prepare(wished)
        target = yield from reconfiguration._decide(wished)
        if left == "pending":
            yield from reconfiguration.finish_move(target)

    store = await cluster.manager().log("events")
    with contextlib.suppress(AresError):
        await store.run_step(abandoned, "half a reconfiguration")
    async with flying(cluster, members=2) as pilots:
        assert await log.append(b"second") == 1
        chain = await becomes(log, lambda chain: chain.index > 0)
        assert chain.server_ids == (("s0", "s1", "s2") if left == "sealed" else ("s3", "s4", "s5"))
        await asyncio.sleep(1)
        assert (await log.current()).index == 1, [pilot.sentence() for pilot in pilots]


async def test_two_autopilots_do_not_fight(cluster):
    log = await cluster.log()
    await log.append(b"first")
    async with flying(cluster, members=2) as pilots:
        await until(
            lambda: all("watches 1 log" in pilot.sentence() for pilot in pilots),
            lambda: "they do not watch",
        )
        await asyncio.sleep(2 * SETTINGS.after_s)
        cluster.stop("s1")
        assert await log.append(b"second") == 1
        await becomes(log, lambda chain: chain.n == 3 and "s1" not in chain.server_ids)
        await asyncio.sleep(1.5)
        assert (await log.current()).index <= 2
