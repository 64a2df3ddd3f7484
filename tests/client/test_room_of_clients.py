"""The bound of bytes under way in a client: further operations wait in order.

Every operation gives its room back.
"""

import asyncio
import contextlib

import pytest

import ares
from ares.client.domain_directory import ClientParts
from ares.client.manager import Manager
from ares.client.store import ObjectStore
from ares.consensus.local import LocalConsensus
from ares.engine.room import OBJECT_OPERATION_BYTES, OPERATION_BYTES, OPERATIONS_MAX
from ares.model.configuration import Configuration, Server
from ares.model.errors import ConnectionClosed
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.reconfig.view import Switches
from ares.server.storage_process import ServingParts, run_server
from tests.ports import free_addresses

MANY = 20_000
ROOM = 1024 * 1024
VALUE = bytes(10_000)
SERVERS = ("s0", "s1", "s2")


def runner_of(user):
    return user._runner


def limited(user, limit=ROOM):
    """Return `user` after setting the bytes of room to `limit`."""
    runner_of(user).room.limit = limit
    return user


async def full_log(manager, limit=ROOM):
    return limited(await manager.log("events", ares.Configuration.chain(SERVERS)), limit)


def outcomes_of(tasks):
    return {type(task.exception()) for task in tasks}


async def test_twenty_thousand_empty_appends_are_bounded_and_stand_in_order(cluster):
    log = limited(await cluster.log(), 8 * ROOM)
    room, session = runner_of(log).room, log._session
    await log.append(b"first")
    cluster.stop(*SERVERS)
    positions = [log.append(b"%d" % number) for number in range(MANY)]
    await asyncio.sleep(0)  # every task has begun
    assert room.taken <= 8 * ROOM
    held = 8 * ROOM // OPERATION_BYTES
    assert len(session.appender._pending) + len(session.appender._flights) <= held
    assert len(room.waiting) >= MANY - held
    cluster.restart(*SERVERS)
    assert await asyncio.gather(*positions) == list(range(1, MANY + 1))
    assert (room.taken, len(room.waiting)) == (0, 0)
    assert await log.read(MANY) == b"%d" % (MANY - 1)


def patience_s(number):
    """Let the operations in the room outlast all waiting operations."""
    return 8 if number < 100 else 2


async def test_large_appends_writes_and_versioned_writes_are_bounded_in_bytes(cluster):
    manager = limited(cluster.manager())
    log = await full_log(manager)
    await log.append(b"first")
    await manager.write("k", b"")
    cluster.stop(*SERVERS)
    appends = [log.append(VALUE, timeout_s=patience_s(number)) for number in range(1000)]
    writes = [
        asyncio.ensure_future(manager.write(f"k{number}", VALUE, timeout_s=patience_s(number)))
        for number in range(500)
    ]
    writes += [
        asyncio.ensure_future(
            manager.write_versioned(f"k{number}", VALUE, None, timeout_s=patience_s(number))
        )
        for number in range(500, 1000)
    ]
    await asyncio.sleep(0)  # every task has begun
    for user in (log, manager):
        room = runner_of(user).room
        assert ROOM - OBJECT_OPERATION_BYTES - len(VALUE) < room.taken <= ROOM
        assert len(room.waiting) > 800
    await asyncio.wait([*appends, *writes])
    assert outcomes_of(writes) == {ares.Unavailable}
    assert outcomes_of(appends) == {ares.Unavailable, ares.AppendUncertain}
    assert "it waited for room behind" in str(writes[-1].exception())
    assert not appends[-1].exception().may_have_taken_effect
    assert [runner_of(user).room.taken for user in (log, manager)] == [0, 0]
    cluster.restart(*SERVERS)
    assert await log.append(b"goes on") > 0
    assert await manager.write("k", VALUE)


async def test_one_operation_larger_than_the_room_passes_alone(cluster):
    manager = limited(cluster.manager())
    large = bytes(3 * ROOM)
    tags = await asyncio.gather(
        manager.write("a", b"small"), manager.write("b", large), manager.write("c", b"small")
    )
    assert len(tags) == 3
    assert await manager.read("b") == large
    assert await asyncio.gather(*(manager.read(key) for key in "abcabc"))
    file = ObjectStore.file(manager, "f")
    await file.write(large)
    assert await file.read() == large
    async with file.writer() as writer:
        await writer.write(large * 2)
    assert len(await file.read()) == 6 * ROOM
    assert runner_of(manager).room.taken == 0


async def test_what_is_cancelled_gives_its_room_back_and_keeps_no_entry(cluster):
    manager = limited(cluster.manager(), 8 * ROOM)
    log = await full_log(manager, 8 * ROOM)
    await log.append(b"first")
    await manager.write("k", b"")
    cluster.stop(*SERVERS)
    appends = [log.append(VALUE) for _ in range(5000)]
    writes = [asyncio.ensure_future(manager.write(f"k{number}", VALUE)) for number in range(2000)]
    await asyncio.sleep(0)  # every task has begun
    for future in (*appends, *writes):
        future.cancel()
    await asyncio.wait([*appends, *writes])
    await asyncio.sleep(0)
    appender, room = log._session.appender, runner_of(log).room
    assert (runner_of(manager).room.taken, len(runner_of(manager).room.waiting)) == (0, 0)
    in_flight = sum(len(flight.callers) for flight in appender._flights.values())
    assert room.taken == in_flight * (OPERATION_BYTES + len(VALUE)), "those may be sent again"
    assert (len(appender._pending), len(room.waiting)) == (0, 0)
    cluster.restart(*SERVERS)
    assert await log.append(b"last") == 1 + in_flight
    await log.trim(1)
    assert room.taken == 0


@pytest.mark.parametrize("closes", ["client", "log"])
async def test_when_it_closes_all_that_wait_for_room_are_told_that_nothing_was_sent(
    cluster, closes
):
    manager = limited(cluster.manager())
    log = await full_log(manager)
    await log.append(b"first")
    cluster.stop(*SERVERS)
    appends = [log.append(VALUE) for _ in range(500)]
    writes = [asyncio.ensure_future(manager.write(f"k{number}", VALUE)) for number in range(200)]
    await asyncio.sleep(0)  # every task has begun
    await (manager if closes == "client" else log).close()
    ended = [*appends, *writes] if closes == "client" else appends
    await asyncio.wait(ended, timeout=60)
    assert outcomes_of(ended) == {ConnectionClosed}
    assert "nothing was sent" in str(appends[-1].exception())
    assert not appends[-1].exception().may_have_taken_effect
    assert runner_of(log).room.taken == 0
    for write in writes:
        write.cancel()


async def test_reads_count_as_large_as_the_last_reply(cluster):
    manager = limited(cluster.manager())
    await manager.write("large", bytes(ROOM // 4))
    assert len(await manager.read("large")) == ROOM // 4
    cluster.stop(*SERVERS)
    reads = [asyncio.ensure_future(manager.read("large", timeout_s=1)) for _ in range(100)]
    await asyncio.sleep(0)  # every task has begun
    room = runner_of(manager).room
    assert len(room.waiting) == 97
    await asyncio.wait(reads)
    assert (room.taken, outcomes_of(reads)) == (0, {ares.Unavailable})


async def test_a_full_room_does_not_hold_up_what_frees_the_cluster(cluster):
    manager = limited(cluster.manager())
    await manager.write("k", b"v")
    cluster.stop("s2", "s1")
    writes = [asyncio.ensure_future(manager.write(f"k{n}", VALUE)) for n in range(500)]
    await asyncio.sleep(0)  # every task has begun
    assert len(runner_of(manager).room.waiting)
    assert set((await asyncio.wait_for(manager.status(), 60)).servers) == set(cluster.book)
    with pytest.raises(ares.Unavailable):
        await asyncio.wait_for(manager.current(timeout_s=0.5), 60)
    cluster.restart("s1", "s2")
    await asyncio.gather(*writes)


@contextlib.asynccontextmanager
async def over_tcp():
    """Run a client of three servers over TCP; yield the client and the listeners.

    The compiled core runs small operations if present.
    """
    book = [
        Server(f"s{number}", address, f"{number:032x}")
        for number, address in enumerate(free_addresses(3))
    ]
    initial, stop = Configuration.abd(book).at(DEFAULT_DOMAIN, 0), asyncio.Event()
    listeners = [ZmtpListener(server.address) for server in book]
    serving = [
        asyncio.create_task(
            run_server(
                ServingParts(
                    server.id, server.identity, initial, listener, stop, links=ZmtpConnections()
                )
            )
        )
        for server, listener in zip(book, listeners, strict=True)
    ]
    known = {server.id: server for server in book}
    manager = Manager(
        ClientParts(
            ZmtpConnections, LocalConsensus(), initial, known, ClientId(7), Switches(), 60.0
        )
    )
    yield manager, listeners
    await manager.close()
    stop.set()
    await asyncio.gather(*serving)


@pytest.mark.parametrize("same_key", [False, True])
async def test_small_operations_are_bounded_in_number_and_go_on_in_order(same_key):
    async with over_tcp() as (manager, listeners):
        await manager.write("first", b"")
        await manager.read("first")
        for listener in listeners:
            listener.pause()
        session, room = manager._runner.session, manager._runner.room
        ended = []

        async def write(number):
            await manager.write("k" if same_key else f"k{number}", b"%d" % number)
            ended.append(number)

        writes = [asyncio.ensure_future(write(number)) for number in range(OPERATIONS_MAX + 500)]
        reads = [asyncio.ensure_future(manager.read("first")) for _ in range(500)]
        await asyncio.sleep(0)  # every task has begun
        assert session.under_way <= OPERATIONS_MAX
        assert len(room.waiting) >= 1000
        await asyncio.sleep(1.0)
        assert session.under_way <= OPERATIONS_MAX, "servers were asked again"
        cancelled = [*writes[100 : OPERATIONS_MAX + 300], *reads[:10]]
        for task in cancelled:
            task.cancel()
        for listener in listeners:
            listener.resume()
        await asyncio.gather(*writes, *reads, return_exceptions=True)
        assert all(task.cancelled() for task in cancelled)
        assert len(ended) == 300
        if same_key:
            assert ended == sorted(ended)
        assert (session.under_way, room.taken, len(room.waiting)) == (0, 0, 0)


async def test_cancelled_operations_of_the_core_let_the_waiting_ones_in():
    async with over_tcp() as (manager, listeners):
        await manager.write("first", b"")
        for listener in listeners:
            listener.pause()
        writes = [
            asyncio.ensure_future(manager.write(f"k{number}", b""))
            for number in range(2 * OPERATIONS_MAX)
        ]
        await asyncio.sleep(0)  # every task has begun
        for write in writes[: OPERATIONS_MAX + 100]:
            write.cancel()
        for listener in listeners:
            listener.resume()
        await asyncio.gather(*writes[OPERATIONS_MAX + 100 :])
        assert not manager._runner.room.waiting
