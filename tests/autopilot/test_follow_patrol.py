"""Domains that follow their users, in a cluster in a process (ares/autopilot/follow_patrol.py)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from ares.autopilot import follow_patrol, following
from ares.autopilot.lookout import Lookout
from ares.autopilot.pilot import Autopilot
from ares.client.manager import Manager
from ares.cluster.tables import AutopilotSettings
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ConfigurationRefused, DomainNotFound
from ares.model.messages import FollowReport
from tests.inproc.inproc_cluster import InprocCluster

NANTES, RENNES = ("s0", "s1", "s2"), ("s3", "s4", "s5")
SITES = dict.fromkeys(NANTES, "nantes") | dict.fromkeys(RENNES, "rennes")
pytestmark = pytest.mark.virtual_time
SETTINGS = AutopilotSettings(after_s=3600, every_s=0.1, bytes_per_s=10**9, follow_rest_s=0.5)
WAIT_S_MAX = 60.0
"""Seconds far beyond any time in these tests."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_patrol, "FOLLOW_LOOK_S", 0.05)
    monkeypatch.setattr(follow_patrol, "FOLLOW_LIST_S", 0.1)
    monkeypatch.setattr(following, "SUSTAINED_S", 0.3)
    monkeypatch.setattr(following, "TRIED_AGAIN_S", 0.3)
    monkeypatch.setattr("ares.server.usage_counts.HALF_LIFE_S", 0.3)
    monkeypatch.setattr("ares.server.usage_counts.DECAY_S", 0.05)


class Piloted:
    """A cluster with an autopilot, which leads while ``leads`` is set.

    ``failures`` has the errors of users.
    """

    def __init__(self, cluster: InprocCluster, settings: AutopilotSettings = SETTINGS) -> None:
        self.cluster, self.leads = cluster, True
        self.pilot = Autopilot(
            Lookout(cluster.manager(), cluster.book, SITES),
            lambda: self.leads,
            settings,
            self.placed,
        )
        self.tasks: list[asyncio.Task[None]] = []

    def placed(self, site: str, name: str, like: Configuration) -> Configuration:
        return Configuration.abd(
            [self.cluster.book[id] for id in (NANTES if site == "nantes" else RENNES)]
        )

    def users(self, site: str) -> asyncio.Task[None]:
        """Start users at this site that read and write until a cancel; every error ends them."""

        async def use(manager: Manager) -> None:
            photos = await manager.domain("photos")
            number = 0
            while True:
                number += 1
                await photos.write(f"{site}{number % 5}", b"%d" % number)
                assert await photos.read(f"{site}{number % 5}") == b"%d" % number
                await asyncio.sleep(0.005)

        self.tasks.append(asyncio.create_task(use(self.cluster.manager(site=site))))
        return self.tasks[-1]

    @property
    def report(self) -> FollowReport:
        [followed] = self.pilot.followed() or (FollowReport("", "", "", ""),)
        return followed


@contextlib.asynccontextmanager
async def flying(
    cluster: InprocCluster, settings: AutopilotSettings = SETTINGS
) -> AsyncIterator[Piloted]:
    piloted = Piloted(cluster, settings)
    flight = asyncio.create_task(piloted.pilot.run())
    try:
        yield piloted
    finally:
        assert not flight.done(), "the autopilot ended by itself"
        assert not [task for task in piloted.tasks if task.done() and not task.cancelled()], (
            "users were disturbed"
        )
        for task in [flight, *piloted.tasks]:
            task.cancel()
        await asyncio.gather(flight, *piloted.tasks, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)


async def photos(cluster: InprocCluster) -> Manager:
    manager = cluster.manager()
    await manager.domain("photos", create=Configuration.abd(list(NANTES)))
    return manager


async def gone(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_follows_its_users_and_goes_back_with_them(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    store = await manager.domain("photos")
    await store.write("old", b"value")
    await manager.follow_users("photos")
    async with flying(cluster) as piloted:
        users = piloted.users("rennes")
        await until(
            lambda: (
                (piloted.report.site, piloted.report.decision) == ("rennes", following.FOLLOW_HERE)
            )
        )
        assert (await store.current()).server_ids == RENNES
        assert await store.read("old") == b"value"
        assert not users.done()
        await gone(users)
        piloted.users("nantes")
        await until(
            lambda: (
                (piloted.report.site, piloted.report.decision) == ("nantes", following.FOLLOW_HERE)
            )
        )
        assert (await store.current()).server_ids == NANTES
        assert piloted.pilot.counted.follows == 2
        assert "1 domain follows its users" in piloted.pilot.sentence()
    assert (await store.current()).index == 2


async def test_it_stays_while_its_place_at_the_other_site_has_no_quorum(
    cluster: InprocCluster,
) -> None:
    manager = await photos(cluster)
    store = await manager.domain("photos")
    await manager.follow_users("photos")
    for gone_server in ("s3", "s5"):
        cluster.stop(gone_server)
    async with flying(cluster) as piloted:
        users = piloted.users("rennes")
        await until(lambda: piloted.report.decision == following.FOLLOW_CUT_OFF)
        assert "only 1 of its 3 servers there answer, and 2 make a quorum" in piloted.report.why
        await asyncio.sleep(4 * following.SUSTAINED_S)
        assert piloted.report.decision == following.FOLLOW_CUT_OFF
        assert ((await store.current()).index, store.pending) == (0, [])
        for gone_server in ("s3", "s5"):
            cluster.restart(gone_server)
        await until(lambda: piloted.report.site == "rennes")
        assert not users.done()


async def test_users_at_both_sites_leave_it_where_it_is(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    await manager.follow_users("photos")
    async with flying(cluster) as piloted:
        piloted.users("nantes")
        piloted.users("rennes")
        await until(
            lambda: piloted.report.decision in (following.FOLLOW_EVEN, following.FOLLOW_HERE)
        )
        await asyncio.sleep(2)  # in which a busy machine may make the users look idle
        assert piloted.report.site == "nantes"
    assert (await (await manager.domain("photos")).current()).index == 0


async def test_without_the_flag_it_stays_and_the_flag_goes_off(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    async with flying(cluster) as piloted:
        piloted.users("rennes")
        await asyncio.sleep(1)
        assert piloted.pilot.followed() == ()
        await manager.follow_users("photos", False)
        await manager.follow_users("photos")
        assert await cluster.manager().following() == ["photos"]
        await until(lambda: piloted.report.site == "rennes")
        await manager.follow_users("photos", False)
        await manager.follow_users("photos", False)
        await until(lambda: not piloted.pilot.followed())
    assert await manager.following() == []
    assert [name async for name in manager.list()] == []


async def test_a_budget_that_is_too_small_is_told(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    await (await manager.domain("photos")).write("large", b"x" * 10_000)
    await manager.follow_users("photos")
    settings = AutopilotSettings(after_s=3600, every_s=0.1, follow_bytes_per_hour=9_000)
    async with flying(cluster, settings) as piloted:
        piloted.users("rennes")
        await until(lambda: piloted.report.decision == following.FOLLOW_BUDGET)
        assert "more than follow_bytes_per_hour, 9000" in piloted.report.why
    assert (await (await manager.domain("photos")).current()).index == 0


async def test_a_site_with_fewer_servers_or_with_silent_ones_gets_nothing(
    cluster: InprocCluster,
) -> None:
    manager = cluster.manager()
    await manager.domain("photos", create=Configuration.ec(["s0", "s1", "s2", "s6"], 2))
    await manager.follow_users("photos")
    async with flying(cluster) as piloted:
        users = piloted.users("rennes")
        await until(lambda: piloted.report.decision == following.FOLLOW_FULL)
        assert "rennes has 3 servers, and it has 4 here" in piloted.report.why
        await manager.reconfigure(Configuration.abd(list(NANTES)), domain="photos")
        cluster.stop("s4")
        await until(lambda: piloted.report.decision == following.FOLLOW_FAILED)
        assert "s4 does not answer" in piloted.report.why
        cluster.restart("s4")
        await until(lambda: piloted.report.site == "rennes")
        assert not users.done()


async def test_only_the_member_that_leads_decides(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    await manager.follow_users("photos")
    async with flying(cluster) as piloted:
        await until(lambda: piloted.report.decision == following.FOLLOW_IDLE)
        piloted.leads = False
        await until(lambda: not piloted.pilot.followed())
        piloted.users("rennes")
        await asyncio.sleep(1)
        assert (await (await manager.domain("photos")).current()).index == 0
        piloted.leads = True
        await until(lambda: piloted.report.site == "rennes")


async def test_a_change_by_another_client_is_not_undone(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    store = await manager.domain("photos")
    last = await store.current()
    other = cluster.manager()
    await other.reconfigure(Configuration.abd(["s1", "s2", "s6"]), domain="photos")
    wished = await manager.identified(Configuration.abd(list(RENNES)))
    assert (
        await store.run(
            lambda view: follow_patrol.follow(view, last, wished, follow_patrol.MoveOptions()),
            "move",
        )
        is None
    )
    assert (await store.current()).server_ids == ("s1", "s2", "s6")


async def test_default_and_absent_domains_cannot_follow_users(cluster: InprocCluster) -> None:
    manager = cluster.manager()
    with pytest.raises(BadInput, match="'default' follows no users"):
        await manager.follow_users("default")
    with pytest.raises(DomainNotFound):
        await manager.follow_users("nowhere")
    with pytest.raises(BadInput, match="text"):
        await manager.follow_users(3)  # type: ignore[arg-type]
    assert await manager.following() == []


async def test_more_domains_than_can_follow_are_told(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_patrol, "FOLLOWING_MAX", 2)
    monkeypatch.setattr(follow_patrol, "USAGES_MAX", 1)
    manager = cluster.manager()
    for name in ("a", "b", "c"):
        await manager.domain(name, create=Configuration.abd(list(NANTES)))
        await manager.follow_users(name)
    async with flying(cluster) as piloted:
        await until(
            lambda: (
                "2 domains follow their users; 1 more do not: 2 at most can"
                in piloted.pilot.sentence()
            )
        )
        await until(lambda: [each.domain for each in piloted.pilot.followed()] == ["a"])
        await until(lambda: len(piloted.pilot._follows._decisions) == 2)  # type: ignore[union-attr]


async def test_a_placement_that_is_refused_is_told(cluster: InprocCluster) -> None:
    manager = await photos(cluster)
    await manager.follow_users("photos")

    def refuse(*_: object) -> Configuration:
        raise ConfigurationRefused("rennes is full")

    async with flying(cluster) as piloted:
        piloted.pilot._follows._placed = refuse  # type: ignore[union-attr]
        piloted.users("rennes")
        await until(lambda: "the move to rennes failed: rennes is full" in piloted.report.why)
