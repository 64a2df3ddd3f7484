"""Errors that misled: closed clients, invalid numbers, positions beyond the end, silent servers."""

import asyncio
from math import inf, nan

import pytest

import ares
from ares.autopilot.judge import one_of
from ares.client.connect import PendingConnection
from ares.client.store import ObjectStore
from ares.model.errors import ConnectionClosed, ObjectNotFound
from ares.reconfig.throttle import Throttle

HUGE = 10**400
ENDLESS = 10**5000
"""Number that Python refuses to print."""


def named(value):
    return type(value).__name__


NO_TIMEOUTS = [0, -1, -0.0, nan, inf, True, False, HUGE, ENDLESS, "5", 1 + 0j, [5]]
NO_POSITIONS = [True, False, -1, 1.0, nan, HUGE, ENDLESS, -ENDLESS, 2**63, "0", [0]]


async def test_a_closed_client_says_so_and_nothing_of_an_operation_under_way(cluster):
    manager = cluster.manager()
    log = await cluster.log()
    await manager.write("k", b"v")
    await manager.close()
    for use in (lambda: manager.read("k"), lambda: manager.write("k", b""), manager.current):
        with pytest.raises(ConnectionClosed, match=r"is closed, and nothing was sent") as caught:
            await use()
        assert "under way" not in str(caught.value)
        assert not caught.value.may_have_taken_effect
    await log.close()
    for use in (lambda: log.append(b"x"), lambda: log.read(0)):
        with pytest.raises(ConnectionClosed, match="is closed, and nothing was sent"):
            await use()


async def test_what_is_under_way_when_the_client_closes_says_that(cluster):
    manager = cluster.manager()
    cluster.stop("s0", "s1", "s2")
    writing = asyncio.create_task(manager.write("k", b"v"))
    await asyncio.sleep(0)
    await manager.close()
    with pytest.raises(ConnectionClosed, match="while this operation was under way"):
        await writing


@pytest.mark.parametrize("name", ["read", "write", "file", "close", "log"])
def test_a_connection_that_was_not_awaited_says_how_to_get_the_store(name):
    with pytest.raises(AttributeError, match=r"async with connect\(.*await connect\("):
        getattr(PendingConnection(None), name)


@pytest.mark.parametrize("timeout_s", NO_TIMEOUTS, ids=named)
async def test_what_is_no_timeout_is_refused(cluster, timeout_s):
    manager, log = cluster.manager(), await cluster.log()
    for use in (
        lambda: manager.read("k", timeout_s=timeout_s),
        lambda: manager.write("k", b"", timeout_s=timeout_s),
        lambda: manager.domain("new", manager.configuration, timeout_s=timeout_s),
        lambda: manager.read_stale("k", timeout_s=timeout_s),
        lambda: ObjectStore.file(manager, "f").read(timeout_s=timeout_s),
        lambda: log.append(b"x", timeout_s=timeout_s),
        lambda: log.read(0, timeout_s=timeout_s),
        lambda: log.tail(timeout_s=timeout_s),
        lambda: anext(log.follow(0, timeout_s=timeout_s)),
    ):
        with pytest.raises(ares.BadInput, match="a timeout is a number of seconds"):
            await use()


@pytest.mark.parametrize("position", NO_POSITIONS, ids=named)
async def test_what_is_no_position_is_refused(cluster, position):
    log = await cluster.log()
    for use in (
        lambda: log.append(b"x", at=position),
        lambda: log.append_many([b"x"], at=position),
        lambda: log.read(position),
        lambda: log.read_range(position, 9),
        lambda: log.read_range(0, position),
        lambda: log.trim(position),
        lambda: anext(log.follow(position)),
    ):
        with pytest.raises(ares.BadInput, match="a position is a whole number"):
            await asyncio.wait_for(use(), 60)


@pytest.mark.parametrize("number", [nan, True, -1, HUGE, ENDLESS, "1"], ids=named)
async def test_other_numbers_of_users_are_checked_alike(cluster, number):
    manager, servers = cluster.manager(), ["s0", "s1", "s2"]
    with pytest.raises(ares.BadInput):
        await manager.read_stale("k", max_age_s=number)
    with pytest.raises(ares.BadInput):
        await ObjectStore.file(manager, "f").collect(number)
    with pytest.raises(ares.BadInput):
        ares.Configuration.ec(servers, k=number)
    with pytest.raises(ares.BadInput):
        ares.Configuration.ec(servers, k=2, delta=number)
    if number != HUGE and number != ENDLESS:
        with pytest.raises(ares.BadInput):
            Throttle(number)


async def test_a_position_beyond_the_end_is_not_called_taken(cluster):
    log = await cluster.log()
    await log.append(b"a")
    with pytest.raises(ares.PositionTaken, match="the log ends at 1, so nothing can be at 7 yet"):
        await log.append(b"b", at=7)
    with pytest.raises(ares.PositionTaken, match="did not get position 0"):
        await log.append(b"b", at=0)
    assert await log.append(b"b", at=1) == 1


async def test_several_silent_servers_do_not_answer(cluster):
    manager = cluster.manager()
    cluster.stop("s3", "s4", "s5")
    for servers, words in ((["s0", "s1", "s3"], "s3 does not"), (["s3", "s4", "s5"], "s5 do not")):
        with pytest.raises(ares.ConfigurationRefused, match=f"{words} answer"):
            await manager.reconfigure(ares.Configuration.abd(servers))
    assert (one_of(["s1"]), one_of(["s1", "s2"])) == ("s1", "one of s1, s2")


def test_a_missing_file_is_named_as_its_user_named_it():
    assert str(ObjectNotFound("d/absent", "file/d/absent")) == "there is no file 'd/absent'"
    assert str(ObjectNotFound("k", "photos")) == "no object 'k' in domain 'photos'"
