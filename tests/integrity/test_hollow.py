"""A rotten element at a server: its tag stays, and its data is missing.

Only the same version heals the element.
"""

import msgspec
import pytest

from ares.model.configuration import Status, Successor
from ares.model.element import hollow, intact, sealed
from ares.model.messages import (
    Ack,
    CollectConfig,
    Describe,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    Reason,
    Refused,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.model.units import KIB
from ares.replica.port import lists_of
from tests.journal.memory_journal import Kept, MemoryJournal

from ..journal.journal_node import INITIAL, NEXT, PHOTOS, put
from ..journal.test_journal_full_disk import SmallDisk
from .integrity_rig import RiggedServer, RottenDisk, anatomy, flip

OLD, NEW = put("a", 1, b"old" * 4 * KIB), put("a", 2, b"new" * 4 * KIB)


def key(request):
    return request.configuration, request.object, request.tag


def rot(server, data):
    """Flip a bit of the first bytes of ``data`` on the disk; return the segment."""
    for path in sorted(server.directory.glob("*.log")):
        at = path.read_bytes().find(data)
        if at != -1:
            flip(path, at + 5)
            return path
    raise AssertionError("it is nowhere")


def ask_for(server, request):
    [reply] = server.ask(GetData(1, request.configuration, request.object, True, request.tag))
    return reply


@pytest.fixture
def server(tmp_path):
    server = RiggedServer(tmp_path / "j")
    server.ask(Introduce(1, PHOTOS), OLD, NEW)
    return server


@pytest.mark.parametrize("which", [OLD, NEW], ids=["old", "new"])
def test_it_is_found_by_a_read_and_outlasts_a_restart(server, which):
    path = rot(server, which.element.parts[0])
    reply = ask_for(server, which)
    assert (reply.element, reply.tags) == (None, (NEW.tag, OLD.tag))
    assert server.quarantined == {key(which)}
    assert not path.exists(), "nothing else that is there is trusted to that file"
    for one in (server, RiggedServer(server.directory)):
        assert one.quarantined == {key(which)}
        assert ask_for(one, which).tags == (NEW.tag, OLD.tag)
        [description] = one.ask(Describe(1))
        assert (description.stored.quarantined, description.stored.repaired) == (1, 0)
        hosting = one.host.replica.hosted[INITIAL.id]
        assert hosting.bytes == sum(
            element.size
            for _, versions in lists_of(hosting.objects)
            for _, element, _ in versions.entries
        )


@pytest.mark.parametrize("which", [OLD, NEW], ids=["old", "new"])
def test_the_same_version_heals_it_and_nothing_else_moves(server, which):
    before = server.state
    rot(server, which.element.parts[0])
    server.scrub()
    assert server.state != before
    [tags, listed] = server.ask(GetTag(1, INITIAL.id, "a"), ListObjects(2, INITIAL.id, "", 9))
    assert server.host.repair(which)
    server.loop.run()
    assert server.ask(GetTag(1, INITIAL.id, "a"), ListObjects(2, INITIAL.id, "", 9)) == [
        tags,
        listed,
    ]
    assert (server.state, server.quarantined) == (before, set())
    assert not server.host.repair(which), "it is not missed any more"
    again = RiggedServer(server.directory)
    assert (again.state, again.quarantined) == (before, set())
    assert all(verdict.whole for verdict in again.examine().values())


def test_a_resend_by_its_writer_heals_it_too(server):
    rot(server, NEW.element.parts[0])
    server.scrub()
    assert server.ask(NEW) == [Ack(7, None)]
    assert not server.quarantined
    [description] = server.ask(Describe(1))
    assert (description.stored.quarantined, description.stored.repaired) == (0, 1)


def test_wrong_puts_do_not_heal_a_rotten_element(server):
    """The wrong puts have another version, other data, no data, or another server's element.

    The element is as sealed, or missing.
    """
    rot(server, OLD.element.parts[0])
    server.scrub()
    others = [
        msgspec.structs.replace(OLD, element=NEW.element),
        msgspec.structs.replace(OLD, element=hollow(OLD.element)),
        msgspec.structs.replace(OLD, element=sealed(*key(OLD), 1, 12 * KIB, ())),
        msgspec.structs.replace(OLD, element=sealed(*key(OLD), 2, 12 * KIB, (b"x" * 4 * KIB,))),
    ]
    for other in others:
        [refused] = server.ask(other)
        assert isinstance(refused, Refused)
        assert refused.reason is Reason.BAD_ELEMENT
        assert not server.host.repair(other)
    assert not server.host.repair(put("a", 3, b"x"))
    assert server.quarantined == {key(OLD)}
    assert ask_for(server, OLD).tags == (NEW.tag, OLD.tag)


def test_a_version_that_was_dropped_is_not_missed(server):
    rot(server, OLD.element.parts[0])
    server.scrub()
    server.ask(put("a", 3, b"newest"))
    assert not server.quarantined
    assert not server.host.repair(OLD)
    assert ask_for(server, OLD).tags == (Tag(3, 1), NEW.tag)
    assert not RiggedServer(server.directory).quarantined


def test_what_a_finalized_successor_has_is_not_missed(server):
    photo = put("p", 1, b"photo" * 4 * KIB, PHOTOS)
    server.ask(photo)
    rot(server, photo.element.parts[0])
    server.scrub()
    server.ask(WriteConfig(1, PHOTOS.id, Successor(NEXT, Status.PENDING)))
    assert server.quarantined == {key(photo)}
    server.ask(WriteConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    assert not server.quarantined
    assert not server.host.repair(photo)
    server.ask(CollectConfig(1, PHOTOS.id, Successor(NEXT, Status.FINALIZED)))
    for one in (server, RiggedServer(server.directory)):
        assert not one.quarantined


def test_where_several_copies_are_left_the_last_counts(server):
    """The repair's place was written, and a crash came before the release of the rotten place."""
    path = rot(server, NEW.element.parts[0])
    aside = path.read_bytes()
    server.scrub()
    server.host.repair(NEW)
    server.loop.run()
    before = server.state
    path.write_bytes(aside)
    for _ in range(2):
        again = RiggedServer(server.directory)
        assert (again.state, again.quarantined) == (before, set())
        assert intact(*key(NEW), ask_for(again, NEW).element)


def test_a_full_disk_delays_it_and_nothing_else(tmp_path):
    disk = SmallDisk(400 * KIB)
    server = RiggedServer(tmp_path / "j", disk)
    requests = []
    while not isinstance(server.ask(put(f"{len(requests)}", 1, b"d" * 9 * KIB))[0], Refused):
        requests.append(put(f"{len(requests)}", 1, b"d" * 9 * KIB))
    before = server.state
    first, second, *_ = sorted(server.directory.glob("*.log"))
    for path in (first, second):
        flip(path, anatomy(path)["metadata"][0].start + 41)
        server.host.leave(int(path.stem))
    disk.room = disk.used
    server.loop.run()
    assert server.host.leaving
    assert server.host.lacks_room
    assert server.state == before
    assert all(isinstance(it, Ack) for it in server.ask(*requests))
    disk.room += 200 * KIB
    server.host.go_on()
    server.loop.run()
    assert (server.host.leaving, server.host.lacks_room, server.failures) == (0, False, [])
    assert server.state == before == RiggedServer(server.directory).state


def test_a_journal_in_memory_is_examined_as_well():
    kept = Kept()
    server = RiggedServer(None, journal=MemoryJournal(kept, lambda step: step(), 64 * KIB))
    server.ask(OLD, NEW)
    assert all(verdict.whole for verdict in server.examine().values())
    [place] = kept.facts
    kept.facts[place][0] = msgspec.structs.replace(
        OLD, element=msgspec.structs.replace(OLD.element, parts=(b"rotten",))
    )
    [verdict] = server.scrub().values()
    assert verdict.damaged == (key(OLD),)
    assert not server.quarantined, "what is served was in memory all along"
    assert (
        RiggedServer(None, journal=MemoryJournal(kept, lambda step: step(), 64 * KIB)).state
        == server.state
    )


def test_the_place_that_is_written_to_is_left_as_well(tmp_path):
    disk = RottenDisk()
    server = RiggedServer(tmp_path / "j", disk)
    server.ask(OLD)
    [path] = server.directory.glob("*.log")
    disk.flips.add((path.name, 50))
    assert list(server.scrub()) == [1]
    server.ask(NEW)
    assert (
        {int(path.stem) for path in server.directory.glob("*.log")}
        == set(server.journal.durable())
        == {2}
    )
    assert RiggedServer(server.directory).state == server.state
