"""Domains and status in a program's view, without sockets (ares/client/manager.py)."""

import asyncio

import pytest
from msgspec import structs

from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ConfigurationRefused, DomainNotFound, ObjectNotFound
from ares.registers.write_once import create, drop, fetch
from ares.replica.replica import Replica

EC = Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3)
ABD = Configuration.abd(["s4", "s5", "s6"])


async def test_two_managers_that_create_a_domain_get_the_same_one(cluster):
    one, two, late = cluster.manager(), cluster.manager(), cluster.manager()
    created = await asyncio.gather(
        one.create_domain("photos", EC), two.create_domain("photos", ABD)
    )
    assert sorted(ours for _, ours in created) == [False, True]
    stores = [store for store, _ in created]
    assert stores[0].configuration == stores[1].configuration
    await stores[0].write("key", b"a photo")
    assert await stores[1].read("key") == b"a photo"
    opened = await late.domain("photos")
    assert await opened.read("key") == b"a photo"
    assert (opened.name, opened.configuration.id) == ("photos", stores[0].configuration.id)
    again, ours = await late.create_domain("photos", ABD)
    assert again is opened
    assert not ours


async def test_objects_of_domains_are_apart(cluster):
    store = cluster.manager()
    photos = await store.domain("photos", create=EC)
    await photos.write("key", b"there")
    with pytest.raises(ObjectNotFound):
        await store.read("key")
    await store.write("key", b"here")
    await photos.delete("key")
    assert await store.read("key") == b"here"
    assert [name async for name in store.list()] == ["key"], "directory entries are not objects"


async def test_a_domain_is_known_by_default_like_default(cluster):
    store = cluster.manager()
    made, ours = await store.create_domain("like it")
    assert ours
    assert made.configuration.same_content(cluster.initial)
    assert [domain.name async for domain in cluster.manager().domains()] == ["default", "like it"]
    assert await store.domain("default") is store
    assert await store.domain("like it") is made


async def test_a_domain_that_was_never_created(cluster):
    with pytest.raises(DomainNotFound, match="domain create nothing"):
        await cluster.manager().domain("nothing")


@pytest.mark.parametrize("name", ["", "x" * 1001, "a\nb", "\0", "\ud800"])
async def test_bad_names_of_domains(cluster, name):
    store = cluster.manager()
    for refused in (store.domain(name), store.create_domain(name, EC)):
        with pytest.raises(BadInput, match="1 to 1000 bytes"):
            await refused
    with pytest.raises(BadInput, match="from the beginning"):
        await store.create_domain("default", EC)
    assert cluster.requests == 0


async def test_status_with_a_silent_server(cluster):
    store = cluster.manager()
    await store.write("key", b"value")
    cluster.stop("s3")
    status = await store.status()
    assert list(status.servers) == list(cluster.book)
    assert [name for name, described in status.servers.items() if described is None] == ["s3"]
    first = status.servers["s0"]
    assert (first.server, first.identity) == ("s0", cluster.book["s0"].identity)
    assert first.memory_bytes > 0
    assert [hosted.configuration for hosted in first.hosted] == [cluster.initial]
    assert status.servers["s6"].hosted == ()
    assert [member.member for member in status.members] == ["local"]


async def test_a_manager_reconfigures_any_domain(cluster):
    store, told = cluster.manager(), []
    photos = await store.domain("photos", create=ABD)
    await photos.write("key", b"a photo")
    result = await store.reconfigure(EC, domain="photos", progress=told.append)
    assert (result.configuration.domain, result.configuration.index, result.ours, result.moved) == (
        "photos",
        1,
        True,
        1,
    )
    assert result.configuration.same_content(await store.identified(EC))
    assert told[0].stage == "read-config"
    assert photos.configuration == result.configuration
    assert store.configuration == cluster.initial
    assert await cluster.manager().current() == cluster.initial, "`default` stays where it was"
    cluster.stop("s0", "s1")
    assert await photos.read("key") == b"a photo"
    cluster.restart("s0", "s1")
    other = await cluster.manager().reconfigure(ABD, domain="photos")
    assert other.configuration.index == 2, "a manager that had not opened the domain"
    assert (await store.reconfigure(EC, domain="default")).configuration.domain == "default"
    with pytest.raises(DomainNotFound):
        await store.reconfigure(EC, domain="nothing")


async def test_a_write_once_domain(cluster):
    store = cluster.manager()
    once = Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3, write_once=True)
    blobs = await store.domain("blobs", create=once)
    assert "write-once" in blobs.configuration.describe()
    await blobs.run(lambda view: create(view, "chunk", b"data" * 5000), "creation")
    await blobs.run(lambda view: create(view, "small", b"data"), "creation")
    late = await cluster.manager().domain("blobs")
    assert await late.run(lambda view: fetch(view, "chunk"), "fetch") == b"data" * 5000
    assert await late.read("small") == b"data"
    for refused in (
        *(late.write("small", b"more"), late.write("new", b""), late.delete("small")),
        late.write_versioned("new", b"", None),
    ):
        with pytest.raises(BadInput, match="'blobs' is write-once"):
            await refused
    with pytest.raises(ConfigurationRefused, match="'blobs' is write-once, and stays so"):
        await late.reconfigure(ABD)
    with pytest.raises(ConfigurationRefused, match="'default' is not write-once"):
        await store.reconfigure(ABD.marked(True))
    with pytest.raises(BadInput, match=r"is write-once.*can have no mirror"):
        await store.create_mirror("blobs", "nantes", ABD)
    await blobs.reconfigure(ABD.marked(True))
    await late.run(lambda view: drop(view, ["chunk"]), "drop")
    assert [name async for name in late.list()] == ["small"]


async def test_servers_of_an_earlier_release_get_no_write_once_domain(cluster, monkeypatch):
    described = Replica.describe

    def earlier(replica, request):
        return structs.replace(described(replica, request), write_once=False)

    monkeypatch.setattr(Replica, "describe", earlier)
    with pytest.raises(ConfigurationRefused, match="earlier release"):
        await cluster.manager().domain("blobs", create=ABD.marked(True))
