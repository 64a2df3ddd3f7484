"""A recorded cluster of real listeners on loopback with clients at work.

The recording has every read of a server, and all events of a session.
"""

import asyncio
import contextlib
import random

import pytest
from msgspec import structs

import ares
from ares import compiled
from ares.client.connect import with_key
from ares.cluster.cluster_keys import authorise
from ares.cluster.new_cluster import InitPlan, create
from ares.consensus.local import LocalConsensus
from ares.consensus.member_host import ConsensusHost
from ares.engine.session import SESSION_TICK_S
from ares.model.configuration import Configuration
from ares.model.errors import NotAuthorized, ObjectNotFound
from ares.model.identity import CallId, ConfigurationId, ObjectName
from ares.model.messages import GetTag
from ares.net import batching
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.server.process_lifecycle import certifying, guard_of
from ares.store.journal.segment_journal import open_journal
from ares.store.journal.segments import Owner
from tests.compiled.recorded_clients import record_sessions
from tests.compiled.recorded_servers import RecordedListener, ServerCourse, holds, recorded_host
from tests.transport.wires import until

SERVERS = [f"s{number}" for number in range(5)]
SMALL, LARGE = [0, 10, 300, 3000, 8000], [9_000, 40_000]
SIZES = {f"key-{number}": SMALL for number in range(4)} | {
    "ü" * 20: SMALL,
    "large": LARGE,
    "either": SMALL + LARGE,
}
"""Size of the values of each object."""

STEPS, SIDE_BY_SIDE = 60, 4
WAIT_S_MAX = 60.0


class TrafficRecording:
    """A recording of a cluster at work.

    ``courses`` are of the servers; ``held`` has each server's final state, by course; ``sessions``
    are of the clients.
    """

    def __init__(self) -> None:
        self.courses, self.held, self.sessions = [], {}, []


class TrafficCluster:
    """Five servers and a consensus member, all on this event loop."""

    def __init__(self, directory, keyed, durable, recording: TrafficRecording) -> None:
        security, durability = "curve" if keyed else "none", "fsync" if durable else "memory"
        self.settings = create(
            directory / "cluster",
            InitPlan(consensus=1, security=security, durability=durability, base_port=0),
        )
        self.listeners = []
        self._directory = directory
        self._durable = durable
        self._recording = recording
        self._closing = contextlib.AsyncExitStack()

    async def __aenter__(self):
        settings = self.settings
        for server in settings.servers.values():
            guard = guard_of(settings, server.id, server.public_key)
            course = ServerCourse(server, settings.initial, guard.admission, self._durable)
            listener = RecordedListener(server.address, guard.lock, course)
            host = recorded_host(course, listener, self._journal(server))
            await listener.serve(host.handler)
            self._recording.courses.append(course)
            self.listeners.append(listener)
            self._closing.callback(
                lambda course=course, host=host: self._recording.held.update(
                    {course: holds(host.replica)}
                )
            )
            self._closing.push_async_callback(listener.close)
            self._closing.push_async_callback(host.finish)
        [member] = settings.members.values()
        guard, certified = guard_of(settings, member.id, member.public_key), certifying(settings)
        consensus, listener = LocalConsensus(), ZmtpListener(member.address, guard.lock)
        service = ConsensusHost(
            certified(consensus) if certified is not None else consensus, listener, guard.admission
        )
        await service.start()
        self._closing.push_async_callback(service.close)
        return self

    def _journal(self, server):
        if not self._durable:
            return None
        journal = open_journal(
            self._directory / f"{server.id}.store",
            Owner(self.settings.initial.cluster_id, server.id, server.identity),
        )
        assert not list(journal.recover()), "it is new"
        self._closing.callback(journal.close)
        return journal

    async def client(self, role="reconfigure"):
        settings = self.settings
        if settings.security is not None:
            name = f"{role}-{len(self._recording.sessions)}"
            authorise(settings.security, name, role)
            settings = with_key(settings, settings.security.secret_path(name))
        client = settings.client
        store = await ares.connect(
            structs.replace(settings, client=structs.replace(client, timeout_s=WAIT_S_MAX))
        )
        self._closing.push_async_callback(store.close)
        return store

    async def __aexit__(self, *_) -> None:
        await self._closing.aclose()


async def _use(stores, rng, steps=STEPS) -> None:
    """Run a client's operations sequentially."""
    versions = {}
    for _ in range(steps):
        store, key = rng.choice(stores), rng.choice(list(SIZES))
        value = rng.randbytes(rng.choice(SIZES[key]))
        with contextlib.suppress(ObjectNotFound):
            match rng.choice(["read"] * 4 + ["write"] * 4 + ["delete", "stat", "if", "if"]):
                case "read":
                    await store.read(key)
                case "write":
                    await store.write(key, value)
                case "delete":
                    await store.delete(key)
                case "stat":
                    await store.stat(key)
                case "if":
                    versions[store, key] = (
                        await store.write_versioned(key, value, versions.get((store, key)))
                    ).version


async def _move(stores) -> None:
    """Move each domain once, from ABD to EC or back, while other clients use it."""
    default, photos, notes = stores
    await photos.reconfigure(Configuration.abd(SERVERS[:3]))
    await notes.write("moved", bytes(LARGE[-1]))
    await notes.reconfigure(Configuration.ec(SERVERS, 3), transfer="servers")
    await default.reconfigure(Configuration.ec(SERVERS, 2))
    assert {key async for key in photos.list()} <= SIZES.keys()


async def _domains(store):
    coded, copied = Configuration.ec(SERVERS, 3), Configuration.abd(SERVERS[1:4])
    return [
        store,
        await store.domain("photos", create=coded),
        await store.domain("notes", create=copied),
    ]


async def _refused(cluster) -> None:
    """Send requests that no client of ares sends, or that the client has no right to."""
    if cluster.settings.security is not None:
        reader = await cluster.client("read")
        with pytest.raises(NotAuthorized):
            await reader.write("key-1", b"mine")
        return
    server, came = cluster.settings.servers[SERVERS[0]], asyncio.Queue()
    connections = ZmtpConnections()
    connections.open(lambda server, messages: came.put_nowait(messages))
    connections.learn(server.id, server.address)
    connections.post(server.id, [GetTag(CallId(1), ConfigurationId(b"unknown"), ObjectName("a"))])
    await came.get()
    connections.post_frame(server.id, b"\x01\x91\x00")
    await came.get()
    await connections.close()


async def _hiccups(cluster) -> None:
    """Stop the reads of each server in turn, so that the server falls behind."""
    for listener in cluster.listeners:
        listener.pause()
        await asyncio.sleep(2 * SESSION_TICK_S)
        listener.resume()


async def _stall(cluster, users) -> None:
    """Stop the reads of more servers than a quorum can miss, until all requests were sent again.

    Operations begin during this time, and some are given up.
    """
    for listener in cluster.listeners[-2:]:
        listener.pause()
    default = users[0][0]
    given_up = [
        asyncio.ensure_future(operation)
        for operation in (
            default.read("key-1"),
            default.write("key-2", b"late"),
            default.delete("key-3"),
        )
    ]
    jobs = [
        asyncio.ensure_future(_use(stores, random.Random(number), SIDE_BY_SIDE))
        for number, stores in enumerate(users)
    ]
    # as if sent at the time of the repetition
    await until(lambda: default._runner.session.readiness.suspects.issuperset(SERVERS[-2:]))
    # an operation that began a moment later is asked again at the next tick
    await asyncio.sleep(2 * SESSION_TICK_S)
    for operation in given_up:
        operation.cancel()
    for listener in cluster.listeners:
        listener.resume()
    await asyncio.gather(*jobs)
    assert all(operation.cancelled() for operation in given_up)


async def _work(cluster: TrafficCluster) -> None:
    await _refused(cluster)
    mover, *users = [await _domains(await cluster.client()) for _ in range(4)]
    jobs = [
        _use(stores, random.Random(number * 10 + place))
        for number, stores in enumerate(users)
        for place in range(SIDE_BY_SIDE)
    ]
    async with asyncio.timeout(WAIT_S_MAX):
        await asyncio.gather(*jobs, _hiccups(cluster), _move(mover))
        await _stall(cluster, users)


async def _recorded(directory, keyed, durable, recording: TrafficRecording) -> None:
    async with TrafficCluster(directory, keyed, durable, recording) as cluster:
        await _work(cluster)


def record(directory, keyed=False, durable=False, core=True) -> TrafficRecording:
    """Record a cluster. ``core`` says whether the recorded programs had the core."""
    recording = TrafficRecording()
    with pytest.MonkeyPatch.context() as patch:
        if not core:
            patch.setattr(compiled, "CORE", None)
        # batches that came together are answered together, as in replays
        patch.setattr(batching, "TURN_S", WAIT_S_MAX)
        recording.sessions = record_sessions(patch)
        asyncio.run(_recorded(directory, keyed, durable, recording))
    return recording
