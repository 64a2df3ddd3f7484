"""Autopilots over a cluster in a process: a spare takes over, whichever member leads.

See ares/autopilot/pilot.py.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

import pytest

import ares.autopilot.pilot
from ares.autopilot.lookout import Lookout
from ares.autopilot.pilot import Autopilot
from ares.client.manager import Manager
from ares.cluster.tables import AutopilotSettings
from ares.compiled import replica_parts
from ares.engine.effects import Gather
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.identity import ClientId, ServerId
from ares.model.messages import PutData
from ares.model.tag import Tag
from ares.reconfig.view import Switches
from ares.replica.replica import Replica
from ares.server.storage_server import StorageServer
from tests.inproc.inproc_cluster import InprocCluster
from tests.inproc.network import InprocListener
from tests.protocol.protocol_world import CARRIED

pytestmark = pytest.mark.virtual_time
SETTINGS = AutopilotSettings(after_s=0.8, every_s=0.05, bytes_per_s=10**9)
WAIT_S_MAX = 60.0
"""Seconds far beyond any time in these tests."""


class Leaders:
    """Autopilots with at most a single leader."""

    def __init__(
        self,
        cluster: InprocCluster,
        settings: AutopilotSettings = SETTINGS,
        book: "dict[ServerId, object] | None" = None,
        switches: Switches | None = None,
    ) -> None:
        self.leader = 0
        self.managers = [cluster.manager(switches=switches) for _ in range(2)]
        book = book or cluster.book
        self.pilots = [
            Autopilot(Lookout(manager, book), lambda number=number: self.leader == number, settings)
            for number, manager in enumerate(self.managers)
        ]

    def sentence(self) -> str:
        return self.pilots[self.leader].sentence()

    @contextlib.asynccontextmanager
    async def flying(self) -> "AsyncIterator[Leaders]":
        tasks = [asyncio.create_task(pilot.run()) for pilot in self.pilots]
        try:
            yield self
        finally:
            assert not any(task.done() for task in tasks), "an autopilot ended by itself"
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)


async def becomes(manager: Manager, servers: str, domain: str = "default") -> Configuration:
    """Return the domain's configuration, once the domain is on these servers."""
    store = await manager.domain(domain)
    async with asyncio.timeout(WAIT_S_MAX):
        while " ".join((await store.current()).server_ids) != servers:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return store.configuration


async def forget(cluster: InprocCluster, name: str, identity: str) -> None:
    """Start the server again, without memory."""
    server = cluster.book[ServerId(name)]
    listener = cluster.listeners[int(name[1:])]
    await listener.close()
    again = InprocListener(cluster.network, server.address)
    await again.serve(
        StorageServer(Replica(server.id, identity, cluster.initial, parts=replica_parts())).handle
    )
    cluster.listeners[int(name[1:])] = again


async def test_a_spare_takes_over_in_every_domain(
    cluster: InprocCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ares.client")
    user = cluster.manager()
    await user.write("key", b"v")
    photos = await user.domain("photos", create=Configuration.ec(["s2", "s3", "s4", "s5"], 2))
    await photos.write("cat", b"c" * 10_000)
    await user.file("movie").write(b"m" * 10_000)
    async with Leaders(cluster).flying() as leaders:
        await until(lambda: leaders.sentence().startswith("watches 7 servers"))
        cluster.stop("s2")
        await becomes(user, "s0 s1 s6")
        await becomes(user, "s0 s1 s3", "file/movie")
        await becomes(user, "s6 s3 s4 s5", "photos")
        await until(
            lambda: (
                "replaced s2 by s6 in default, photos, replaced s2 by s3 in file/movie"
                in leaders.sentence()
            )
        )
        await until(
            lambda: (leaders.pilots[0].counted.done, leaders.pilots[0].counted.absent) == (3, 0)
        )
        cluster.stop("s0")
        await becomes(user, "s4 s1 s6")
        reader = cluster.manager()
        assert await reader.read("key") == b"v"
        assert await (await reader.domain("photos")).read("cat") == b"c" * 10_000
        async with reader.file("movie") as movie:
            assert await movie.read() == b"m" * 10_000
    messages = [record.getMessage() for record in caplog.records]
    assert sum(message.startswith("s2 is gone") for message in messages) == 1
    assert any(message.startswith("replacing s2 by s6 in domain default") for message in messages)


async def test_nothing_happens_before_it_is_time(cluster: InprocCluster) -> None:
    """A server that returns soon enough keeps its place."""
    user = cluster.manager()
    await user.write("key", b"v")
    async with Leaders(
        cluster, AutopilotSettings(after_s=3600, every_s=0.05, bytes_per_s=10**9)
    ).flying() as leaders:
        cluster.stop("s2")
        await until(lambda: "absent: s2 for" in leaders.sentence())
        assert leaders.pilots[0].counted.absent == 1
        cluster.restart("s2")
        await until(lambda: leaders.sentence().startswith("watches"))
    assert (await user.current()).index == 0


async def test_a_server_that_lost_its_memory_is_taken_in_again(cluster: InprocCluster) -> None:
    user = cluster.manager()
    await user.write("key", b"v")
    book = {ServerId(name): cluster.book[ServerId(name)] for name in ("s0", "s1", "s2")}
    async with Leaders(cluster, book=book).flying() as leaders:
        await until(lambda: leaders.sentence().startswith("watches 3 servers"))
        await forget(cluster, "s1", "f" * 32)
        async with asyncio.timeout(WAIT_S_MAX):
            while (await user.current()).servers[1].identity != "f" * 32:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    cluster.stop("s0")
    assert await cluster.manager().read("key") == b"v"


async def test_no_spare_is_said_once_and_one_that_comes_is_taken(
    cluster: InprocCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ares.client")
    user = cluster.manager()
    await user.write("key", b"v")
    cluster.stop("s3", "s4", "s5", "s6")
    async with Leaders(cluster).flying() as leaders:
        cluster.stop("s2")
        await until(lambda: "no spare for s2" in leaders.sentence())
        assert leaders.pilots[0].counted.troubled == 1
        cluster.stop("s1")
        await until(lambda: "only 1 of 3 servers answer, and 2 make a quorum" in leaders.sentence())
        cluster.restart("s1")
        await until(lambda: "no spare for s2" in leaders.sentence())
        await asyncio.sleep(3 * SETTINGS.after_s)
        assert (await user.current()).index == 0
        cluster.restart("s4")
        await becomes(user, "s0 s1 s4")
    told = [
        record.getMessage()
        for record in caplog.records
        if "no spare" in record.getMessage() and "no longer" not in record.getMessage()
    ]
    assert 1 <= len(told) <= 2, told


async def test_the_next_leader_finishes_what_the_last_one_began(cluster: InprocCluster) -> None:
    user = cluster.manager()
    await asyncio.gather(*(user.write(f"key{number}", bytes(100_000)) for number in range(10)))
    settings = AutopilotSettings(after_s=0.8, every_s=0.05, bytes_per_s=500_000)
    leaders = Leaders(cluster, settings, switches=CARRIED)
    async with leaders.flying():
        await until(lambda: leaders.sentence().startswith("watches"))
        cluster.stop("s2")
        await until(lambda: "of 10 objects seen to" in leaders.sentence())
        leaders.leader = 1
        await until(lambda: leaders.pilots[0].sentence().startswith("ready"))
        assert (await user.current()).index == 0
        await becomes(user, "s0 s1 s3")
        await until(lambda: "completed a move that was left half done" in leaders.sentence())
    reader = cluster.manager()
    assert [await reader.read(f"key{number}") for number in range(10)] == [bytes(100_000)] * 10


async def test_two_that_both_think_they_lead_do_no_harm(cluster: InprocCluster) -> None:
    user = cluster.manager()
    await asyncio.gather(*(user.write(f"key{number}", b"%d" % number) for number in range(50)))
    both = [Leaders(cluster), Leaders(cluster)]
    async with both[0].flying(), both[1].flying():
        cluster.stop("s2")
        await becomes(user, "s0 s1 s3")
        await until(
            lambda: (
                all(leaders.sentence().endswith("in default") for leaders in both)
                or user.configuration.index == 1
            )
        )
        await asyncio.sleep(3 * SETTINGS.after_s)
    assert (await user.current()).index == 1, "one replacement was enough"
    assert [await user.read(f"key{number}") for number in range(50)] == [
        b"%d" % number for number in range(50)
    ]


async def test_a_decision_of_another_client_is_never_undone(cluster: InprocCluster) -> None:
    """The domain is moved by hand just before the autopilot acts.

    The autopilot's wish for the old configuration does not follow the new configuration. Without
    copies ahead the decision is made before the autopilot acts.
    """
    user = cluster.manager(switches=CARRIED)
    await user.write("key", b"v")
    leaders = Leaders(cluster)
    async with leaders.flying():
        await until(lambda: leaders.sentence().startswith("watches"))
        cluster.stop("s2")
        await user.reconfigure(Configuration.ec(["s3", "s4", "s5", "s6"], 2))
        await asyncio.sleep(3 * SETTINGS.after_s)
    now = await user.current()
    assert (now.dap, " ".join(now.server_ids)) == ("ec", "s3 s4 s5 s6")
    assert await user.read("key") == b"v"


async def test_a_server_unknown_so_far_keeps_the_place_that_it_was_given(
    cluster: InprocCluster,
) -> None:
    """All servers are up. A domain is moved by hand onto a server unknown to the autopilot.

    The autopilot began to watch long before, and the cluster file does not name the server.
    """
    user = cluster.manager()
    book = {ServerId(f"s{number}"): cluster.book[ServerId(f"s{number}")] for number in range(5)}
    async with Leaders(cluster, book=book).flying() as leaders:
        await until(lambda: leaders.sentence().startswith("watches"))
        await asyncio.sleep(2 * SETTINGS.after_s)
        await user.reconfigure(Configuration.abd(["s0", "s1", "s5"]))
        await asyncio.sleep(3 * SETTINGS.after_s)
        assert ((await user.current()).index, user.configuration.server_ids[2]) == (1, "s5")
        cluster.stop("s5")
        await becomes(user, "s0 s1 s2")


async def test_readers_and_writers_go_on_meanwhile(cluster: InprocCluster) -> None:
    user = cluster.manager()
    written = 0
    async with Leaders(
        cluster, AutopilotSettings(after_s=0.8, every_s=0.05, bytes_per_s=100_000)
    ).flying() as leaders:
        await user.write("key", b"0")
        cluster.stop("s1")
        async with asyncio.timeout(WAIT_S_MAX):
            while "replaced s1" not in leaders.sentence():
                written += 1
                await user.write("key", b"%d" % written)
                assert await user.read("key") == b"%d" % written
                await asyncio.sleep(0.001)  # the virtual clock stands still during work
    assert await cluster.manager().read("key") == b"%d" % written


async def test_a_server_of_another_cluster_counts_as_absent(cluster: InprocCluster) -> None:
    """The server answers with the right name and identity.

    The server would refuse the configuration for ever.
    """
    user = cluster.manager()
    await user.write("key", b"v")
    other = Configuration.abd(
        [cluster.book[ServerId("s4")], cluster.book[ServerId("s5")], cluster.book[ServerId("s6")]]
    ).at("default", 0)
    server = cluster.book[ServerId("s3")]
    await cluster.listeners[3].close()
    cluster.listeners[3] = InprocListener(cluster.network, server.address)
    await cluster.listeners[3].serve(
        StorageServer(Replica(server.id, server.identity, other, parts=replica_parts())).handle
    )
    async with Leaders(cluster).flying():
        cluster.stop("s2")
        await becomes(user, "s0 s1 s4")


async def test_an_object_that_cannot_be_decoded_is_told_and_other_domains_go_on(
    cluster: InprocCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The autopilot retries such a domain ever more rarely: each pause doubles."""
    monkeypatch.setattr("ares.autopilot.pilot.ROUND_S", 0.5)
    user = cluster.manager()
    await user.write("key", b"v")
    photos = await user.domain("photos", create=Configuration.ec(["s2", "s3", "s4", "s5"], 2, 1))
    await photos.write("cat", b"c" * 100)
    bad = photos.configuration
    tag = Tag(1000, ClientId(77))
    elements = [
        sealed(bad.id, "bad", tag, index, 100, (bytes(90 + index),)) for index in range(bad.n)
    ]
    puts = Gather(
        bad,
        lambda call: [PutData(call, bad.id, "bad", tag, element) for element in elements],
        "put-data",
        needed=bad.n,
    )
    await photos.run(lambda view: (yield puts), "put")
    tries: list[float] = []
    mend = ares.autopilot.pilot.mend

    def counted(view, *more):
        if view.domain == "photos":
            tries.append(asyncio.get_running_loop().time())
        return mend(view, *more)

    monkeypatch.setattr("ares.autopilot.pilot.mend", counted)
    async with Leaders(cluster).flying() as leaders:
        await until(lambda: leaders.sentence().startswith("watches 7 servers"))
        cluster.stop("s2")
        await becomes(user, "s0 s1 s6")
        await until(
            lambda: (
                "'bad': the elements of" in leaders.sentence() and "(photos)" in leaders.sentence()
            )
        )
        await until(lambda: len(tries) == 3)
        assert tries[1] - tries[0] >= 0.5
        assert tries[2] - tries[1] >= 1.0
        await photos.delete("bad")
        await becomes(user, "s0 s3 s4 s5", "photos")
        await until(lambda: "(photos)" not in leaders.sentence())
    assert await photos.read("cat") == b"c" * 100
