"""Mirrors that the autopilot updates, and stale reads of mirrors, in a process.

See ares/autopilot/mirror_patrol.py, ares/client.
"""

import asyncio

import pytest

from ares.client.domain_locator import DomainLocator
from ares.client.mirrors import opened
from ares.cluster.tables import AutopilotSettings
from ares.model.configuration import Configuration
from ares.model.errors import (
    BadInput,
    DomainNotFound,
    MirrorNotFound,
    MirrorTooOld,
    NotInMirror,
    ObjectNotFound,
    Unavailable,
)
from ares.model.identity import ServerId
from ares.registers.mirroring import MirrorName
from tests.autopilot.test_pilot import Leaders, becomes, until
from tests.autopilot.virtual_time import since_1970
from tests.inproc.inproc_cluster import InprocCluster

pytestmark = pytest.mark.virtual_time
SETTINGS = AutopilotSettings(after_s=0.8, every_s=0.05, bytes_per_s=10**9, mirror_every_s=0.1)
HERE = Configuration.abd(["s4", "s5", "s6"])


def user_at(cluster: InprocCluster, site: str = "rennes"):
    manager = cluster.manager(timeout_s=5.0)
    manager._site = site
    return manager


async def state(manager, domain="default"):
    [mirror] = [each for each in await manager.mirrors() if each.domain == domain]
    return mirror


async def complete_since(manager, moment, domain="default"):
    """Wait until the mirror is younger than the moment, by the machine's clock."""
    async with asyncio.timeout(30.0):
        while True:
            age_s = (await state(manager, domain)).age_s
            if age_s is not None and since_1970() - age_s >= moment:
                return
            await asyncio.sleep(0.02)


async def test_a_stale_read_is_answered_at_the_clients_site_and_says_how_old_it_is(
    cluster: InprocCluster,
) -> None:
    user, far = cluster.manager(), user_at(cluster)
    tag = await user.write("k", b"first")
    configuration, made = await user.create_mirror("default", "rennes", HERE)
    assert (made, configuration.server_ids) == (True, HERE.server_ids)
    assert (await user.create_mirror("default", "rennes", HERE))[1] is False
    first = await far.read_stale("k")
    assert (first.value, first.age_s, first.site) == (b"first", 0.0, None), (
        "the usual read, until there is a copy"
    )
    async with Leaders(cluster, settings=SETTINGS).flying() as leaders:
        await complete_since(user, since_1970())
        found = await far.read_stale("k")
        assert (found.value, found.tag, found.site) == (b"first", tag, "rennes")
        assert 0 <= found.age_s < 30
        await until(lambda: "1 mirror, the oldest complete as of" in leaders.sentence())
        await user.write("k", b"second")
        await complete_since(user, since_1970())
        assert (await far.read_stale("k")).value == b"second"
        await user.delete("k")
        await complete_since(user, since_1970())
        with pytest.raises(NotInMirror, match="the mirror at rennes has no object 'k'"):
            await far.read_stale("k")
    await user.write("k", b"third")
    assert await far.read("k") == b"third", "an ordinary read never asks a mirror"
    with pytest.raises(ObjectNotFound):
        await far.read_stale("k")
    assert (await user.read_stale("k")).value == b"third", "this client is at no site"
    assert (await user_at(cluster, "lyon").read_stale("k")).value == b"third", (
        "and that one where no mirror is"
    )


async def test_a_copy_that_is_too_old_is_refused(cluster: InprocCluster) -> None:
    user, far = cluster.manager(), user_at(cluster)
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying():
        await complete_since(user, since_1970())
    await asyncio.sleep(0.3)
    with pytest.raises(
        MirrorTooOld, match=r"at rennes is .* old, and at most 0.2 s were asked for"
    ):
        await far.read_stale("k", max_age_s=0.2)
    assert (await far.read_stale("k", max_age_s=1000)).value == b"v"
    for bad in (-1, float("nan"), "1"):
        with pytest.raises(BadInput, match="a greatest age"):
            await far.read_stale("k", max_age_s=bad)


async def test_clocks_that_disagree_make_no_negative_age(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, far = cluster.manager(), user_at(cluster)
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying():
        await complete_since(user, since_1970())
    now = since_1970()
    monkeypatch.setattr("ares.client.mirrors.time.time", lambda: now - 3600)
    assert (await far.read_stale("k", max_age_s=0)).age_s == 0.0


async def test_what_is_at_the_clients_site_is_read_when_the_rest_is_cut_off(
    cluster: InprocCluster,
) -> None:
    user, far = cluster.manager(), user_at(cluster)
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying() as leaders:
        await complete_since(user, since_1970())
        assert (await far.read_stale("k")).value == b"v"
        cluster.stop("s0", "s1", "s2")
        assert (await far.read_stale("k")).value == b"v"
        with pytest.raises(Unavailable):
            await far.read("k", timeout_s=0.5)
        await until(lambda: "none complete yet" not in leaders.sentence())


async def test_a_domain_at_the_clients_site_is_read_when_the_directory_is_cut_off(
    cluster: InprocCluster,
) -> None:
    """No server can say whether a mirror exists, and no mirror is needed."""
    far = user_at(cluster)
    await (await far.domain("photos", create=HERE)).write("k", b"v")
    cluster.stop("s0", "s1", "s2")
    found = await far.read_stale("k", domain="photos")
    assert (found.value, found.age_s, found.site) == (b"v", 0.0, None)


async def test_servers_of_a_mirror_that_was_removed_may_be_gone(cluster: InprocCluster) -> None:
    user, far = cluster.manager(), user_at(cluster)
    far._locator = DomainLocator(cluster.book, [ServerId("s3")])
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    await user.remove_mirror("default", "rennes")
    assert (await user.create_mirror("default", "rennes", Configuration.abd(["s1", "s2", "s3"])))[1]
    async with Leaders(cluster, settings=SETTINGS).flying():
        await complete_since(user, since_1970())
        cluster.stop("s5", "s6")
        found = await far.read_stale("k")
    assert (found.value, found.site) == (b"v", "rennes")
    await user.remove_mirror("default", "rennes")
    assert (await user.create_mirror("default", "rennes", Configuration.abd(["s1", "s2", "s3"])))[1]


async def test_a_mirror_that_cannot_be_copied_is_told_and_tried_again(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ares.autopilot.mirror_patrol.MIRROR_STALL_S", 0.5)
    monkeypatch.setattr("ares.autopilot.mirror_patrol.MIRROR_ASK_S", 0.5)
    user = cluster.manager()
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(
        cluster, settings=AutopilotSettings(3600, 0.05, 10**9, mirror_every_s=0.1)
    ).flying() as leaders:
        await complete_since(user, since_1970())
        cluster.stop("s5", "s6")
        await until(lambda: "mirror of default at rennes: " in leaders.sentence())
        assert "it is tried again" in leaders.sentence()
        await user.write("k", b"goes on")
        cluster.restart("s5", "s6")
        await until(lambda: "1 mirror, the oldest" in leaders.sentence())
        await complete_since(user, since_1970())
    assert (await user_at(cluster).read_stale("k")).value == b"goes on"


async def test_a_mistake_in_a_pass_does_not_stop_what_replaces_servers(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patrol that begins again counts from zero.

    With a mistake every tenth of a second, no server would be gone for long enough.
    """

    async def mistaken(*_: object) -> str:
        raise RuntimeError("a mistake")

    monkeypatch.setattr("ares.autopilot.mirror_patrol.MirrorPatrol._followed", mistaken)
    user = cluster.manager()
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying() as leaders:
        await until(lambda: "a mistake in ares itself" in leaders.sentence())
        cluster.stop("s2")
        await becomes(user, "s0 s1 s3")


async def test_a_mirror_that_was_removed_is_emptied_and_can_be_made_again(
    cluster: InprocCluster,
) -> None:
    user, far = cluster.manager(), user_at(cluster)
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying() as leaders:
        await complete_since(user, since_1970())
        await user.remove_mirror("default", "rennes")
        assert await user.mirrors() == []
        found = await far.read_stale("k")
        assert (found.value, found.site) == (b"v", None)
        first = await opened(user, MirrorName("default", "rennes", 1))
        assert first is not None
        async with asyncio.timeout(30.0):
            while [name async for name in first.list()]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await until(lambda: "mirror" not in leaders.sentence())
        with pytest.raises(MirrorNotFound):
            await user.remove_mirror("default", "rennes")
        assert (await user.create_mirror("default", "rennes", HERE))[1]
        await complete_since(user, since_1970())
        found = await far.read_stale("k")
        assert (found.value, found.site) == (b"v", "rennes"), (
            "though the first mirror had deleted it"
        )


async def test_a_pass_between_the_parts_of_a_stale_read_makes_it_no_younger(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later record says no word about the value read before."""
    user, far = cluster.manager(), user_at(cluster)
    await user.write("k", b"first")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying():
        await complete_since(user, since_1970())
        mirror = await opened(far, MirrorName("default", "rennes", 1))
        assert mirror is not None
        read, written = mirror.read_named, 0.0

        async def slow(name, timeout_s=None):
            nonlocal written
            found = await read(name, timeout_s)
            if name == "k":
                await user.write("k", b"second")
                written = since_1970()
                await complete_since(user, written)
            return found

        monkeypatch.setattr(mirror, "read_named", slow)
        found = await far.read_stale("k")
        assert (found.value, since_1970() - found.age_s < written) == (b"first", True)


async def test_a_removal_between_the_parts_of_a_stale_read_is_noticed(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror emptied after the read of the record would report an absent object."""
    user, far = cluster.manager(), user_at(cluster)
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying():
        await complete_since(user, since_1970())
        mirror = await opened(far, MirrorName("default", "rennes", 1))
        assert mirror is not None
        read = mirror.read_named

        async def late(name, timeout_s=None):
            if name == "k":
                await user.remove_mirror("default", "rennes")
                async with asyncio.timeout(30.0):
                    while [name async for name in mirror.list()]:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
            return await read(name, timeout_s)

        monkeypatch.setattr(mirror, "read_named", late)
        found = await far.read_stale("k")
    assert (found.value, found.site) == (b"v", None)


async def test_no_client_writes_a_mirror_by_its_name(cluster: InprocCluster) -> None:
    user = cluster.manager()
    await user.domain("photos", create=Configuration.abd(["s0", "s1", "s2"]))
    await user.create_mirror("photos", "rennes", HERE)
    name = MirrorName("photos", "rennes", 1).name
    chain = Configuration.chain(["s0", "s1", "s2"])
    for refused in (
        user.domain,
        user.create_domain,
        user.follow_users,
        user.log,
        lambda name: user.create_log(name, chain),
    ):
        with pytest.raises(BadInput):
            await refused(name)
        with pytest.raises((BadInput, DomainNotFound)):
            await refused("mirror/x")
    assert [each.name async for each in user.domains()] == ["default", "photos"]


async def test_what_can_have_no_mirror(cluster: InprocCluster) -> None:
    user = cluster.manager()
    await user.create_log("events", Configuration.chain(["s0", "s1", "s2"]))
    await user.file("movie").write(b"m")
    await user.create_mirror("default", "rennes", HERE)
    for domain, why in (
        ("events", "is a log"),
        ("file/movie", "is a file"),
        (MirrorName("default", "rennes", 1).name, "is a mirror itself"),
    ):
        with pytest.raises(BadInput, match=why):
            await user.create_mirror(domain, "rennes", HERE)
    with pytest.raises(DomainNotFound):
        await user.create_mirror("nothing", "rennes", HERE)
    with pytest.raises(BadInput, match="a chain is for a log"):
        await user.create_mirror("default", "lyon", Configuration.chain(["s0", "s1", "s2"]))
    long = "x" * 950
    await user.create_domain(long)
    with pytest.raises(BadInput, match="too long a name"):
        await user.create_mirror(long, "rennes", HERE)
    with pytest.raises(DomainNotFound):
        await user_at(cluster).read_stale("k", domain="y" * 990)


async def test_a_mirror_gets_spares_like_any_domain(cluster: InprocCluster) -> None:
    user = cluster.manager()
    await user.write("k", b"v")
    await user.create_mirror("default", "rennes", HERE)
    async with Leaders(cluster, settings=SETTINGS).flying() as leaders:
        await complete_since(user, since_1970())
        cluster.stop("s6")
        await until(lambda: "replaced s6 by s3 in mirror/rennes/1/default" in leaders.sentence())
        await complete_since(user, since_1970())
    assert "s3" in (await state(user)).configuration.server_ids
