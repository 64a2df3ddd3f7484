"""A log as users hold it, over real servers in an event loop.

The tests append, read, follow, trim, move, and cause errors.
"""

import asyncio
import contextlib
import json
from collections import Counter

import pytest

import ares
from ares.model.errors import ConnectionClosed, LogNotFound
from ares.model.log_messages import (
    BATCH_ENTRIES_MAX,
    ENTRY_BYTES_MAX,
    LOG_PIECE_BYTES,
    RECORD_BYTES_MAX,
    ReadLog,
)
from ares.platform import tasks
from ares.sharedlog import log_operations
from ares.sharedlog.appending import APPEND_BYTES_IN_FLIGHT_MAX, APPENDS_IN_FLIGHT_MAX
from ares.sharedlog.log_operations import Follower
from ares.sharedlog.node import LogNode

SPARES = ares.Configuration.chain(["s3", "s4", "s5"])

LARGE = bytes(ENTRY_BYTES_MAX)
LARGE_MAX = APPEND_BYTES_IN_FLIGHT_MAX // ENTRY_BYTES_MAX
"""Number of such entries in flight; a further entry does not fit beside them."""


async def taken(follower, count):
    return [await anext(follower) for _ in range(count)]


async def test_append_read_follow_and_trim(cluster):
    log = await cluster.log()
    assert await log.append(b"a") == 0
    assert await log.append_many([b"b", bytearray(b""), memoryview(b"d")]) == 1
    assert await log.append(b"e", at=4) == 4
    assert await log.read(1) == b"b"
    assert await log.read(2, reads="cr") == b""
    assert await log.read(4, uncommitted=True) == b"e"
    assert await log.read_range(3, 100) == [(3, b"d"), (4, b"e")]
    assert await log.read_range(3, 3) == []
    assert await log.tail() == 5
    follower = log.follow(1)
    assert await taken(follower, 4) == [(1, b"b"), (2, b""), (3, b"d"), (4, b"e")]
    with pytest.raises(ares.NotWritten, match="position 5"):
        await log.read(5)
    await log.trim(3)
    with pytest.raises(ares.Trimmed, match="read from 3 on"):
        await log.read(2)
    with pytest.raises(ares.Trimmed):
        await anext(log.follow(0))
    told = await log.stat()
    assert (told.first, told.tail, told.configuration.n) == (3, 5, 3)
    waiting = asyncio.ensure_future(anext(follower))
    assert await log.append(b"f") == 5
    assert await waiting == (5, b"f")
    await follower.aclose()


async def test_many_appends_in_flight_stand_in_the_order_in_which_they_were_called(cluster):
    log, other = await cluster.log(), await cluster.log()
    count = 3 * APPENDS_IN_FLIGHT_MAX
    mine = [log.append(b"%d" % number) for number in range(count)]
    others = [other.append(b"other") for _ in range(100)]
    positions = await asyncio.gather(*mine)
    assert positions == sorted(positions)
    assert sorted(positions + await asyncio.gather(*others)) == list(range(count + 100))
    found = [entry for _, entry in await log.read_range(0, count + 100) if entry != b"other"]
    assert found == [b"%d" % number for number in range(count)]


async def test_held_reads_are_answered_although_the_timer_of_logs_fails(cluster, monkeypatch):
    """The timer of the first log always fails, the timer of the second log three times."""
    await (await cluster.log("broken")).append(b"first")
    log, failed, tick = await cluster.log(), Counter(), LogNode.tick

    def failing(node, now):
        name = next(iter(node.state.chains.values())).domain
        failed[name] += 1
        if name == "broken" or failed[name] <= 3:
            raise RuntimeError(f"the timer of {name}")
        tick(node, now)

    monkeypatch.setattr(LogNode, "tick", failing)
    monkeypatch.setattr(log_operations, "FOLLOW_S", 0.1)
    before = tasks.failures.counts["timer of logs"]
    follower = Follower(log._session.operations, 0)
    held = asyncio.create_task(log._started(follower.take(), "follow", 60.0))
    async with asyncio.timeout(60):
        while follower.heard < 3:  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.01)
        await log.append(b"an entry")
        assert await held == (0, (b"an entry",))
    assert failed["broken"] > 3
    assert tasks.failures.counts["timer of logs"] > before


async def test_a_follower_asks_for_the_next_piece_before_it_goes_through_one(cluster, monkeypatch):
    log = await cluster.log()
    large = bytes(LOG_PIECE_BYTES // 2)
    await asyncio.gather(*(log.append(large) for _ in range(4)))
    connections, asked = log._runner._connections, []
    post = connections.post
    monkeypatch.setattr(
        connections,
        "post",
        lambda server, messages: asked.extend(messages) or post(server, messages),
    )
    async with contextlib.aclosing(log.follow(0)) as entries:
        assert (await anext(entries))[0] == 0
    assert [message.first for message in asked if isinstance(message, ReadLog)] == [0, 2]


async def test_what_is_in_flight_is_bounded_in_bytes(cluster):
    log = await cluster.log()
    await log.append(b"first")
    large = [log.append_many([bytes(ENTRY_BYTES_MAX)] * 4) for _ in range(6)]
    appender = log._session.appender
    assert (len(appender._flights), appender.waiting is not None) == (
        APPEND_BYTES_IN_FLIGHT_MAX // RECORD_BYTES_MAX,
        True,
    )
    assert await asyncio.gather(*large) == [1, 5, 9, 13, 17, 21]


async def test_two_that_open_a_log_of_one_connection_share_its_order(cluster):
    manager = cluster.manager()
    one, two = await manager.log("events", SPARES), await manager.log("events", reads="cr")
    assert await asyncio.gather(*(log.append(b"x") for log in (one, two) * 50)) == list(range(100))
    assert await two.read(99) == b"x"


async def test_an_append_at_another_position_than_the_tail_is_refused(cluster):
    log = await cluster.log()
    await log.append(b"a")
    for at in (0, 7):
        with pytest.raises(ares.PositionTaken) as refused:
            await log.append(b"b", at=at)
        assert (refused.value.position, refused.value.tail) == (at, 1)
    assert await log.append_many([b"b", b"c"], at=1) == 1
    assert await log.tail() == 3


@pytest.mark.parametrize("bad", [-1, 2**63, 1.5, "1", None])
async def test_what_is_no_position_is_refused_before_anything_is_sent(cluster, bad):
    log = await cluster.log()
    for ask in (
        log.read,
        log.trim,
        lambda at: log.append(b"x", at="" if at is None else at),
        lambda at: log.read_range(0, at),
        lambda at: anext(log.follow(at)),
    ):
        with pytest.raises(ares.BadInput, match="position"):
            await ask(bad)
    assert await log.tail() == 0


async def test_what_is_no_entry_is_refused_before_anything_is_sent(cluster):
    log = await cluster.log()
    for entry in ("text", 7, None, b"x" * (ENTRY_BYTES_MAX + 1)):
        with pytest.raises(ares.BadInput, match="nothing was sent"):
            log.append(entry)
    for entries in (
        [],
        b"abc",
        "abc",
        7,
        [b"x", 1],
        [b""] * (BATCH_ENTRIES_MAX + 1),
        [b"x" * ENTRY_BYTES_MAX] * 5,
    ):
        with pytest.raises(ares.BadInput, match="nothing was sent"):
            log.append_many(entries)
    with pytest.raises(ares.BadInput, match="more than 0"):
        log.append(b"x", timeout_s=0)
    with pytest.raises(ares.BadInput, match="craq"):
        log.read(0, reads="any")
    with pytest.raises(ares.BadInput, match="ends at 0"):
        await log.trim(1)
    assert await log.append(b"x" * ENTRY_BYTES_MAX) == 0


async def test_logs_and_domains_of_objects_are_told_apart(cluster):
    manager, chain = cluster.manager(), ares.Configuration.chain(["s0", "s1", "s2"])
    log = await manager.log("events", chain)
    photos = await manager.domain("photos", ares.Configuration.abd(["s0", "s1", "s2"]))
    for fresh in (manager, cluster.manager()):
        with pytest.raises(ares.BadInput, match=r"is a log.*store.log\('events'\)"):
            await fresh.domain("events")
        with pytest.raises(ares.BadInput, match=r"is no log.*store.domain\('photos'\)"):
            await fresh.log("photos")
        with pytest.raises(ares.BadInput, match="is no log"):
            await fresh.log("photos", chain)
    with pytest.raises(ares.BadInput, match="is a log"):
        await manager.domain("events", ares.Configuration.abd(["s0", "s1", "s2"]))
    with pytest.raises(ares.BadInput, match="makes a log"):
        await manager.domain("more", chain)
    with pytest.raises(ares.ConfigurationRefused, match="configurations of a log are chains"):
        await manager.log("more", ares.Configuration.abd(["s0", "s1", "s2"]))
    for name in ("default", "file/x", ""):
        with pytest.raises(ares.BadInput):
            await manager.log(name, chain)
    with pytest.raises(LogNotFound, match="ares-cli log create nothing"):
        await manager.log("nothing")
    with pytest.raises(ares.ConfigurationRefused, match="one crash stops it"):
        ares.Configuration.chain(["s0", "s1"])
    for domain, wished in (
        ("photos", chain),
        ("default", chain),
        ("events", ares.Configuration.abd(["s0", "s1", "s2"])),
    ):
        with pytest.raises(ares.ConfigurationRefused, match="othing was changed"):
            await manager.reconfigure(wished, domain=domain)
    found = {domain.name: type(domain).__name__ async for domain in manager.domains()}
    assert found == {"default": "Manager", "events": "Log", "photos": "ObjectStore"}
    assert (log.configuration.index, photos.configuration.index) == (0, 0)


async def test_a_log_moves_while_it_is_appended_to_and_followed(cluster):
    log, follower = await cluster.log(), (await cluster.log()).follow(0)
    moved, seen = asyncio.Event(), []

    async def append():
        count = 0
        while not moved.is_set() or count < 100:
            await log.append(b"%d" % count)
            count += 1
        return count

    appending = asyncio.create_task(append())
    mover = cluster.manager()
    for servers in (["s3", "s4", "s5"], ["s5", "s0", "s1"], ["s0", "s1", "s2"]):
        stages = set()
        result = await mover.reconfigure(
            ares.Configuration.chain(servers),
            domain="events",
            progress=lambda now, stages=stages: stages.add(now.stage),
        )
        assert list(result.configuration.server_ids) == servers
        assert {"read-config", "prepare", "seal", "fetch"} == stages
    moved.set()
    count = await appending
    while len(seen) < count:
        seen.append(await anext(follower))
    assert seen == [(number, b"%d" % number) for number in range(count)]
    await follower.aclose()
    assert [entry for _, entry in await log.read_range(0, count)] == [
        b"%d" % number for number in range(count)
    ]


async def test_a_move_to_a_server_that_dies_ends_in_time_and_is_finished_later(cluster):
    log = await cluster.log()
    await log.append(b"a")
    mover = cluster.manager()

    def stop(now):
        if now.stage == "seal":
            cluster.stop("s5")

    with pytest.raises(ares.Unavailable, match="chain 1 is decided"):
        await mover.reconfigure(SPARES, domain="events", timeout_s=1.0, progress=stop)
    cluster.restart("s5")
    assert (await mover.reconfigure(SPARES, domain="events")).configuration.index == 1
    assert await log.append(b"b") == 1


async def test_a_new_client_appends_to_a_log_that_was_moved_and_trimmed(cluster):
    """The client's first knowledge was trimmed.

    Copies in abandoned chains count as possibly accepted.
    """
    log = await cluster.log()
    await log.append_many([b"x"] * 10)
    await cluster.manager().reconfigure(SPARES, domain="events")
    await log.append_many([b"y"] * 10)
    await log.trim(15)
    cluster.stop("s0", "s1", "s2")
    cluster.restart("s0", "s1", "s2")
    assert await (await cluster.log()).append(b"z") == 20
    with pytest.raises(ares.PositionTaken):
        await (await cluster.log()).append(b"z", at=3)


@pytest.mark.parametrize("dead", ["s0", "s1", "s2"])
async def test_one_server_dies_and_a_chain_without_it_goes_on(cluster, dead):
    log = await cluster.log()
    await asyncio.gather(*(log.append(b"%d" % number) for number in range(20)))
    cluster.stop(dead)
    under_way = log.append(b"20")
    assert await log.read(19) == b"19"
    assert (await log.read_range(0, 20))[0] == (0, b"0")
    await cluster.manager().reconfigure(
        ares.Configuration.chain([name for name in ("s0", "s1", "s2", "s3") if name != dead]),
        domain="events",
    )
    assert await under_way == 20
    assert await log.append(b"21") == 21
    assert await log.tail() == 22
    assert [entry for _, entry in await log.read_range(0, 22)] == [
        b"%d" % number for number in range(22)
    ]


async def test_unanswered_appends_are_uncertain_and_unsent_appends_are_not(
    cluster,
):
    log = await cluster.log()
    await log.append(b"a")
    cluster.stop("s1")
    sent = [log.append(LARGE, timeout_s=1.5) for _ in range(LARGE_MAX)]
    outcomes = await asyncio.gather(*sent, log.append(b"c", timeout_s=0.1), return_exceptions=True)
    assert all(
        isinstance(outcome, ares.AppendUncertain) and outcome.may_have_taken_effect
        for outcome in outcomes[:-1]
    )
    assert isinstance(outcomes[-1], ares.Unavailable)
    assert "nothing was changed" in str(outcomes[-1])
    assert isinstance(outcomes[0], ares.Uncertain)
    cluster.restart("s1")
    assert await log.append(b"d") >= 1


async def test_a_log_whose_servers_are_all_gone(cluster, monkeypatch):
    monkeypatch.setattr("ares.client.shared_log.FOLLOW_S", 0.2)
    log = await cluster.log()
    await log.append(b"a")
    cluster.stop("s0", "s1", "s2")
    follower = log.follow(1, timeout_s=0.5)
    for ask in (
        log.read(0, timeout_s=0.3),
        log.tail(timeout_s=0.3),
        log.trim(1, timeout_s=0.3),
        anext(follower),
    ):
        with pytest.raises(ares.Unavailable) as silent:
            await ask
        assert "(no answer)" in str(silent.value)
    cluster.restart("s0", "s1", "s2")
    assert await log.read(0) == b"a"


async def test_a_sealed_log_says_so(cluster):
    log = await cluster.log()
    await log.append(b"a")

    async def undecided(*_):
        raise ares.ConsensusUnavailable("no leader")

    decide, cluster.consensus.propose = cluster.consensus.propose, undecided
    with pytest.raises(ares.ConsensusUnavailable):
        await cluster.manager().reconfigure(SPARES, domain="events")
    with pytest.raises(ares.LogSealed, match="reconfigure the log"):
        await log.tail(timeout_s=0.5)
    with pytest.raises(ares.AppendUncertain, match="sealed"):
        await log.append(b"b", timeout_s=0.3)
    assert await log.read(0) == b"a"
    cluster.consensus.propose = decide
    await cluster.manager().reconfigure(SPARES, domain="events")
    assert await log.append(b"b") == 1


async def test_closing_ends_what_is_under_way_and_the_log_can_be_opened_again(cluster):
    manager = cluster.manager()
    log = await manager.log("events", ares.Configuration.chain(["s0", "s1", "s2"]))
    await log.append(b"a")
    cluster.stop("s0", "s1", "s2")
    pending = [
        log.append(b"b"),
        log.append(b"c", at=5),
        log.read(0),
        asyncio.ensure_future(log.tail()),
        asyncio.ensure_future(anext(log.follow(1))),
    ]
    await asyncio.sleep(0.01)
    await log.close()
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionClosed] * 5
    assert [outcome.may_have_taken_effect for outcome in outcomes[:2]] == [True, False]
    assert "may be in the log" in str(outcomes[0])
    for again in (log.append, lambda _: log.read(0)):
        with pytest.raises(ConnectionClosed):
            await again(b"x")
    cluster.restart("s0", "s1", "s2")
    log = await manager.log("events")
    assert await log.read(0) == b"a"
    cluster.stop("s1")
    last = log.append(b"d")
    await manager.close()
    with pytest.raises(ConnectionClosed):
        await last


async def test_a_cancelled_append_that_was_not_sent_is_not_sent(cluster):
    log = await cluster.log()
    await log.append(b"a")
    cluster.stop("s1")
    sent = [log.append(LARGE) for _ in range(LARGE_MAX)]
    waiting, last = log.append(b"never"), log.append(b"c")
    sent[0].cancel()
    waiting.cancel()
    await asyncio.sleep(0.01)
    cluster.restart("s1")
    assert await last == LARGE_MAX + 1
    assert [await log.read(position) for position in (0, LARGE_MAX + 1)] == [b"a", b"c"]
    assert await log.tail() == LARGE_MAX + 2


async def test_a_log_belongs_to_its_event_loop(cluster):
    log = await cluster.log()
    for ask in (
        lambda: log.append(b"x"),
        lambda: log.read(0),
        lambda: log.tail(),
        lambda: anext(log.follow(0)),
    ):

        async def elsewhere(ask=ask):
            return await ask()

        with pytest.raises(ares.BadInput, match="event loop"):
            await asyncio.to_thread(asyncio.run, elsewhere())
    with pytest.raises(ares.BadInput, match="event loop"):
        await asyncio.to_thread(log.append, b"x")
    assert await log.tail() == 0


async def test_a_read_goes_on_when_the_server_that_was_asked_is_silent(cluster, monkeypatch):
    monkeypatch.setattr("ares.sharedlog.quick_reads.CHAIN_ASK_S", 0.1)
    monkeypatch.setattr(log_operations, "CHAIN_ASK_S", 0.1)
    log = await cluster.log()
    await log.append(b"a")
    for dead in ("s0", "s1", "s2"):
        cluster.stop(dead)
        assert await log.read(0) == b"a"
        assert await log.read(0, reads="cr") == b"a"
        cluster.restart(dead)


async def test_operations_of_a_log_are_in_the_operation_log(cluster, tmp_path):
    from ares.cluster.tables import TracingSettings
    from ares.model.identity import ClientId
    from ares.tracing.export import tracer_of
    from ares.tracing.operation_log import OperationLog

    path = tmp_path / "operations.log"
    log = await cluster.log(
        tracer=tracer_of(TracingSettings(), "test", OperationLog(path, ClientId(1)))
    )
    await log.append(b"a")
    await log.read(0)
    with pytest.raises(ares.PositionTaken):
        await log.append(b"a", at=0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [
        (line["op"], line["objectID"], line["outcome"])
        for line in lines
        if line["objectID"] == "events"
    ]
    assert told[-3:] == [
        ("append", "events", "ok"),
        ("read", "events", "ok"),
        ("append", "events", "failed"),
    ]
