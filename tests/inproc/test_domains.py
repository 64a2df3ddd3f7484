"""Domains, status and reconfiguration as a program sees them, without sockets (ares/client/manager.py)."""

import asyncio
import itertools

import pytest

from ares.configuration import Configuration
from ares.errors import BadInput, ConfigurationRefused, DomainNotFound, ObjectNotFound, Unavailable
from ares.reconfig.view import Switches

from .cluster import MIB

EC = Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3)
ABD = Configuration.abd(["s4", "s5", "s6"])


async def test_two_managers_that_create_a_domain_get_the_same_one(cluster):
    one, two, late = cluster.manager(), cluster.manager(), cluster.manager()
    created = await asyncio.gather(one.create_domain("photos", EC), two.create_domain("photos", ABD))
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


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "\0", "\ud800"])
async def test_bad_names_of_domains(cluster, name):
    store = cluster.manager()
    for refused in (store.domain(name), store.create_domain(name, EC)):
        with pytest.raises(BadInput, match="1 to 255 bytes"):
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


async def test_reconfigure_beside_writers_and_readers(cluster):
    """Every value that a writer was told is stored is the newest or older than what a reader gets, whatever moves meanwhile."""
    writer, reader, mover = (cluster.manager(switches=Switches(fast_read=fast)) for fast in (True, False, True))
    keys = [f"key{number}" for number in range(5)]
    await asyncio.gather(*(writer.write(key, b"0") for key in keys))
    written, seen, stopped = dict.fromkeys(keys, 0), [], False

    async def write_on(key):
        for number in itertools.count(1):
            if stopped:
                return
            await writer.write(key, b"%d" % number)
            written[key] = number

    async def read_on(key):
        while not stopped:
            floor = written[key]
            value = int(await reader.read(key))
            assert value >= floor, "a completed write is lost"
            seen.append(value)

    loops = [asyncio.create_task(loop(key)) for loop in (write_on, read_on) for key in keys]
    told = []
    for wished in (EC, ABD, EC):
        result = await mover.reconfigure(wished, progress=told.append)
        assert result.ours
        assert result.configuration.same_content(await mover.identified(wished))
        assert result.moved + result.skipped == len(keys)
    stopped = True
    await asyncio.gather(*loops)
    assert len(seen) > 10
    stages = [progress.stage for progress in told]
    assert stages[0] == "read-config"
    assert {"update-config", "finalize-config", "gc-config"} <= set(stages)
    assert max(progress.moved for progress in told) == len(keys)
    for key in keys:
        assert int(await cluster.manager().read(key)) == written[key]
    assert mover.configuration.index == 3


async def test_large_values_move(cluster):
    store = cluster.manager()
    value = bytes(range(256)) * (3 * MIB // 256) + b"end"
    await store.write("large", value)
    assert (await store.reconfigure(EC)).bytes == len(value)
    cluster.stop("s0", "s1", "s6")
    assert await cluster.manager().read("large") == value


async def test_a_new_configuration_begins_with_servers_that_run(cluster):
    store = cluster.manager()
    cluster.stop("s5")
    with pytest.raises(ConfigurationRefused, match=r"s5 does not answer.*Nothing was changed"):
        await store.reconfigure(EC)
    with pytest.raises(ConfigurationRefused, match="s5"):
        await store.domain("photos", create=ABD)
    with pytest.raises(BadInput, match="unknown server s9"):
        await store.reconfigure(Configuration.abd(["s0", "s1", "s9"]))
    assert store.configuration == cluster.initial
    assert (await cluster.consensus.describe(1.0))[0].decisions == 0


async def test_reconfigurers_that_race_agree(cluster):
    stores = [cluster.manager(), cluster.manager()]
    await stores[0].write("key", b"v")
    results = await asyncio.gather(stores[0].reconfigure(EC), stores[1].reconfigure(ABD))
    placed = {}
    for result in results:
        assert placed.setdefault(result.configuration.index, result.configuration) == result.configuration
    assert any(result.ours for result in results)
    assert await cluster.manager().read("key") == b"v"


class NoConsensus:
    """A consensus service that never answers."""

    async def propose(self, configuration, proposer, timeout_s):
        await asyncio.Event().wait()

    async def hint(self, domain, timeout_s):
        return None

    async def close(self):
        pass


async def test_without_consensus_reads_and_writes_go_on_and_reconfiguration_ends_at_its_timeout(cluster):
    store = cluster.manager(consensus=NoConsensus())
    await store.write("key", b"v")
    with pytest.raises(Unavailable, match="reconfiguration of 'default'"):
        await store.reconfigure(EC, timeout_s=0.2)
    with pytest.raises(Unavailable, match="creation of domain 'photos'"):
        await store.create_domain("photos", EC, timeout_s=0.2)
    assert await store.read("key") == b"v"
    assert store.configuration == cluster.initial


async def test_a_cancelled_reconfiguration_is_finished_by_the_next(cluster):
    store = cluster.manager()
    await asyncio.gather(*(store.write(f"key{number}", b"v") for number in range(20)))
    moving = asyncio.Event()
    running = asyncio.create_task(store.reconfigure(EC, progress=lambda progress: moving.set() if progress.moved else None))
    await moving.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    result = await cluster.manager().reconfigure(ABD)
    assert result.configuration.index in (1, 2)
    other = cluster.manager()
    assert [await other.read(f"key{number}") for number in range(20)] == [b"v"] * 20


async def test_a_progress_callback_that_raises_fails_the_call(cluster):
    store = cluster.manager(timeout_s=3600)
    await store.write("key", b"v")

    def progress(told):
        if told.moved:
            raise KeyError("the caller's own mistake")

    with pytest.raises(KeyError, match="own mistake"):
        async with asyncio.timeout(1):
            await store.reconfigure(EC, progress=progress)
