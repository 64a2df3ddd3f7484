"""Watches of objects in a program's view, without sockets (ObjectStore.watch; rule R26)."""

import asyncio
import contextlib

import pytest

from ares.client.blocking import Blocking, _Loop
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ObjectWatchGap
from ares.model.tag import Tag
from tests.inproc.inproc_cluster import InprocCluster

EC = Configuration.ec(["s2", "s3", "s4", "s5", "s6"], 3)


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch):
    monkeypatch.setattr("ares.client.store.WATCH_PAUSE_S", 0.001)


async def test_a_watch_follows_its_domain(cluster):
    writer, watcher = cluster.manager(), cluster.manager()
    await writer.write("p/a", b"1")
    watch = watcher.watch("p/")
    first = await anext(watch)
    assert (first.key, first.deleted) == ("p/a", False)
    moves = asyncio.create_task(writer.reconfigure(EC))
    tags = {}
    for number in range(20):
        key = f"p/{number % 3}"
        tags[key] = await writer.write(key, b"%d" % number)
        await writer.write("q", b"")
    await moves
    tags["p/a"] = await writer.delete("p/a")
    told = {first.key: first.tag}
    async with contextlib.aclosing(watch):
        async for notice in watch:
            assert notice.key.startswith("p/")
            assert notice.tag > told.get(notice.key, Tag(0, 0))
            told[notice.key] = notice.tag
            if told == tags:
                break


async def test_a_watch_goes_on_at_a_point_in_another_client(cluster):
    writer = cluster.manager()
    await writer.write("a", b"1")
    since = None
    async with contextlib.aclosing(cluster.manager().watch()) as watch:
        await anext(watch)
        await writer.write("b", b"1")
        while since is None:
            since = (await anext(watch)).since
    tag = await writer.write("c", b"1")
    async with contextlib.aclosing(cluster.manager().watch(since=since)) as watch:
        keys = []
        while "c" not in keys:
            notice = await anext(watch)
            keys.append(notice.key)
        assert notice.tag == tag
        assert "a" not in keys
    await writer.reconfigure(EC)
    with pytest.raises(ObjectWatchGap):
        await anext(cluster.manager().watch(since=notice.since))


async def test_arguments_are_checked(cluster):
    store = cluster.manager()
    for prefix in ("\0", 7, "x" * 2000):
        with pytest.raises(BadInput):
            await anext(store.watch(prefix))
    with pytest.raises(BadInput, match="no point"):
        await anext(store.watch(since="x"))
    once = await store.domain("once", create=Configuration.abd(["s0", "s1", "s2"], write_once=True))
    with pytest.raises(BadInput, match="write-once"):
        await anext(once.watch())


def test_a_program_without_asyncio_watches_as_well():
    loop = _Loop()
    cluster = loop.wait(started)
    store = Blocking(loop.wait(lambda: made(cluster)), loop)
    store.write("p/a", b"1")
    notices = store.watch("p/")
    assert next(notices).key == "p/a"
    tag = store.write("p/b", b"1")
    assert next(notices).tag == tag
    notices.close()
    loop.wait(cluster.close)
    loop.stop()


async def started() -> InprocCluster:
    cluster = InprocCluster()
    await cluster.start()
    return cluster


async def made(cluster: InprocCluster):
    return cluster.manager()
