"""Damaged places on a full disk: they wait for room, and no other work waits for them.

See ares/server/space_reclaimer.py.
"""

import asyncio

import pytest

from ares.model.element import sealed
from ares.model.messages import DELETED_LENGTH, Ack, Introduce, PutData, Refused, Scrub
from ares.model.tag import Tag
from ares.model.units import KIB
from ares.server import scrub as scrubbing
from ares.server.scrub import Scrubber, ScrubPlan

from ..journal.journal_node import PHOTOS, put
from ..journal.test_journal_full_disk import SmallDisk
from .integrity_rig import RiggedServer, anatomy, flip


def number_put(number):
    return put(f"{number}", 1, b"d" * 3 * KIB, PHOTOS)


def deletion(number):
    tag = Tag(2, 1)
    return PutData(
        7, PHOTOS.id, f"{number}", tag, sealed(PHOTOS.id, f"{number}", tag, 0, DELETED_LENGTH, ())
    )


@pytest.fixture
def disk():
    return SmallDisk(512 * KIB)


@pytest.fixture
def server(tmp_path, disk):
    """Return a server with a disk full of living objects, in the order of their numbers.

    The objects lie in the places in the same order.
    """
    server = RiggedServer(tmp_path / "j", disk)
    server.ask(Introduce(1, PHOTOS))
    server.taken = 0
    while not isinstance(server.ask(number_put(server.taken))[0], Refused):
        server.taken += 1
    server.per_place = server.taken // (len(server.journal.places()) + 1)
    return server


def damage(server, position):
    """Leave a place, as far as the disk has room.

    When the loop returns, the server makes no further attempts.
    """
    server.host.leave(sorted(server.journal.places())[position])
    server.loop.run()
    assert (server.host.leaving, server.host.lacks_room) == (1, True)


def delete(server, numbers):
    """Delete objects with two requests each; return the number of refusals.

    A refusal makes the server look for places to release.
    """
    refused = 0
    for number in numbers:
        server.host.go_on()
        if not all(isinstance(reply, Ack) for reply in server.ask(deletion(number))):
            refused += isinstance(server.ask(deletion(number))[0], Refused)
    return refused


def assert_whole(server):
    assert (server.host.leaving, server.host.lacks_room, server.failures) == (0, False, [])
    assert all(verdict.whole for verdict in server.examine().values())
    assert server.state == RiggedServer(server.directory).state


def test_others_are_given_back_and_then_it_is_left(server):
    before = server.state
    damage(server, 0)
    assert server.state == before
    assert delete(server, range(2 * server.per_place, server.taken)) == 0
    server.host.go_on()
    server.loop.run()
    assert_whole(server)
    assert all(
        isinstance(server.ask(number_put(server.taken + 1 + number))[0], Ack)
        for number in range(20)
    )


def test_one_that_is_mostly_dead_may_take_the_spare(server):
    """The server can release only this place.

    The place's survivors fit, as for an undamaged place.
    """
    damage(server, 1)
    first = server.per_place + 2
    assert delete(server, range(first, first + server.per_place * 3 // 4)) == 0
    server.host.go_on()
    server.loop.run()
    assert_whole(server)


def test_one_that_lacks_room_does_not_keep_one_that_is_mostly_dead(server):
    damage(server, 0)
    second = sorted(server.journal.places())[1]
    server.host.leave(second)
    server.loop.run()
    assert server.host.leaving == 2
    first = server.per_place + 2
    assert delete(server, range(first, first + server.per_place * 3 // 4)) == 0
    server.host.go_on()
    server.loop.run()
    assert second not in server.journal.places()


def test_it_is_left_when_there_is_room(server, disk):
    damage(server, 0)
    damage(server, 0)
    disk.room += 128 * KIB
    server.host.go_on()
    server.loop.run()
    assert_whole(server)


def test_what_died_while_it_waited_needs_no_room(server):
    damage(server, 0)
    assert delete(server, range(server.per_place + 2)) == 0
    assert_whole(server)


async def test_a_scrub_says_that_it_waits_and_goes_on_by_itself(
    server, disk, tmp_path, monkeypatch
):
    monkeypatch.setattr(scrubbing, "SCRUB_LOOK_S", 0.01)
    path = min(server.directory.glob("*.log"))
    flip(path, anatomy(path)["metadata"][0].start + 41)
    task = asyncio.create_task(
        Scrubber(server.host, server.journal, ScrubPlan(0, 1 << 30, tmp_path / "told")).run()
    )
    told = server.host.scrub(Scrub(1, True, 0))

    async def until(ended):
        async with asyncio.timeout(120):
            while not ended(told := server.host.scrub(Scrub(1, False))):
                server.loop.run()
                await asyncio.sleep(0.001)
        return told

    assert told.running
    told = await until(lambda told: not told.running)
    assert (told.rounds, told.damaged, told.leaving) == (1, 1, 1)
    disk.room += 128 * KIB
    told = await until(lambda told: not told.leaving)
    assert (told.rounds, told.running) == (1, False)
    task.cancel()
    await asyncio.wait([task])
    assert_whole(server)
