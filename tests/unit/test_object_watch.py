"""Watches of objects without a network (ares/registers/object_watch.py; rule R26)."""

import pytest
from msgspec import structs

from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import (
    BadInput,
    ConfigurationRefused,
    NotAuthorized,
    ObjectWatchGap,
    Unavailable,
)
from ares.model.identity import CallId, ClientId, ObjectName
from ares.model.messages import ChangedObjects, Describe, ListedObject, PutData, Reason, Refused
from ares.model.tag import Tag
from ares.registers import object_watch
from ares.registers.object_watch import (
    COMPLETED_AT_ONCE,
    OPEN_NAMES_MAX,
    ROUNDS_UNTIL_READ,
    ObjectWatch,
    WatchPoint,
    point_of,
    watch_round,
)
from ares.registers.operations import delete, write
from tests.protocol.protocol_world import ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2)).at("default", 0)
NEXT = Configuration.abd(servers(0, 1, 2)).at("default", 1)
KEY = ObjectName("p/a")
EPOCH = 7


def tag(number: int) -> Tag:
    return Tag(number, ClientId(1))


def reply(*versions, position=0, epoch=EPOCH, after=None, more=False, successor=None):
    listed = tuple(ListedObject(ObjectName(name), tag(number), False) for name, number in versions)
    return ChangedObjects(CallId(1), epoch, position, after, listed, more, successor)


def watching(point: WatchPoint | None = None) -> ObjectWatch:
    watch = ObjectWatch("p/", point)
    watch.able[ABD.id] = ABD.server_ids
    return watch


def told(watch: ObjectWatch, *answers: tuple[str, ChangedObjects]) -> list[tuple[str, int]]:
    """Give the answers of a round, and return the notices."""
    watch.take(ABD, dict(answers))
    return [(listed.name, listed.tag.number) for listed in watch.end_round([ABD])]


def test_a_version_is_told_when_a_quorum_has_reported_it():
    watch = watching()
    assert told(watch, ("s0", reply((KEY, 2))), ("s1", reply((KEY, 1)))) == []
    assert told(watch, ("s2", reply((KEY, 2), position=1)), ("s1", reply())) == [(KEY, 2)]
    assert told(watch, ("s1", reply((KEY, 1), (KEY, 2), position=2)), ("s0", reply())) == []


def test_a_server_with_a_successor_does_not_count():
    pending = Successor(NEXT, Status.PENDING)
    watch = watching()
    answers = [(f"s{number}", reply((KEY, 2), successor=pending)) for number in (0, 1, 2)]
    assert told(watch, *answers) == []


def test_reserved_and_impossible_names_are_not_told():
    watch = watching()
    names = ("\0domain/photos", "", "x" * 2000)
    answers = reply(*[(name, 1) for name in names])
    assert told(watch, ("s0", answers), ("s1", answers)) == []


def test_a_point_names_versions_that_are_on_their_way():
    watch = watching()
    told(watch, ("s0", reply((KEY, 2), position=4)), ("s1", reply(position=9)))
    assert watch.point == WatchPoint(ABD.id, {"s0": (EPOCH, 4), "s1": (EPOCH, 9)}, (KEY,))
    assert point_of(watch.point.text()) == watch.point


def test_a_point_waits_for_listings_and_for_too_many_open_versions():
    watch = watching()
    told(watch, ("s0", reply(after="p/b", more=True)), ("s1", reply()))
    assert watch.point is None
    many = [(f"p/{number}", 1) for number in range(OPEN_NAMES_MAX + 1)]
    told(watch, ("s0", reply(*many)), ("s1", reply()))
    assert watch.point is None


def resumed(open: tuple[str, ...] = ()) -> ObjectWatch:
    positions = {ObjectName(f"s{number}"): (EPOCH, 5) for number in (0, 1, 2)}
    return watching(WatchPoint(ABD.id, positions, open))


def test_a_resumed_watch_tells_changes_only():
    watch = resumed()
    listing = reply((KEY, 2), ("p/b", 1), position=5, more=True)
    assert told(watch, ("s0", listing), ("s1", listing)) == []
    changes = reply((KEY, 2), position=6)
    assert told(watch, ("s0", changes), ("s1", changes)) == [(KEY, 2)]
    assert told(watch, ("s0", reply(("p/b", 2), position=7)), ("s2", reply(("p/b", 2)))) == [
        ("p/b", 2)
    ]


def test_a_resumed_watch_tells_the_versions_that_were_on_their_way():
    watch = resumed((KEY,))
    listing = reply((KEY, 2), ("p/b", 1), position=5)
    assert told(watch, ("s0", listing), ("s1", listing)) == [(KEY, 2)]


def test_a_quorum_has_to_have_every_change_since_the_point():
    watch = resumed()
    whole, lost = reply((KEY, 2), position=5), reply((KEY, 2), position=5, epoch=EPOCH + 1)
    assert not watch.resumes(ABD, {"s0": whole, "s1": lost})
    assert watch.resumes(ABD, {"s0": whole, "s1": lost, "s2": whole})
    told(watch, ("s0", whole), ("s1", lost))
    assert not watch.resumes(ABD, {"s0": whole, "s1": whole})


def test_a_resumed_watch_tells_versions_of_a_later_configuration():
    """Its servers may be those of the point, and their listings prove nothing."""
    watch = resumed()
    watch.able[NEXT.id] = NEXT.server_ids
    listing = reply(position=5)
    watch.take(ABD, {"s0": listing, "s1": listing})
    watch.take(NEXT, {"s0": reply((KEY, 2)), "s1": reply((KEY, 2))})
    assert [listed.name for listed in watch.end_round([ABD, NEXT])] == [KEY]


def test_incomplete_versions_of_a_configuration_that_was_left_do_not_hold_the_point():
    watch = watching()
    watch.able[NEXT.id] = NEXT.server_ids
    ghosts = [(f"p/{number}", 1) for number in range(OPEN_NAMES_MAX + 1)]
    watch.take(ABD, {"s0": reply(*ghosts), "s1": reply()})
    watch.take(NEXT, {"s0": reply((KEY, 2)), "s1": reply()})
    assert watch.end_round([ABD, NEXT]) == []
    for _ in range(2):
        watch.take(NEXT, {"s0": reply((KEY, 2)), "s1": reply()})
        watch.end_round([NEXT])
    assert watch.point == WatchPoint(NEXT.id, {"s0": (EPOCH, 0), "s1": (EPOCH, 0)}, (KEY,))
    watch.take(NEXT, {"s2": reply((KEY, 2)), "s1": reply()})
    assert [listed.name for listed in watch.end_round([NEXT])] == [KEY]


def test_a_resumed_watch_whose_configuration_was_left_says_so():
    with pytest.raises(ObjectWatchGap, match="Nothing is lost"):
        resumed().end_round([NEXT])


@pytest.mark.parametrize("text", ["", "x", "é", 7, None, "A" * 400_000])
def test_a_text_that_is_no_point_is_refused(text):
    with pytest.raises(BadInput, match="no point"):
        point_of(text)


def test_a_version_passed_over_by_a_read_stays_open():
    watch = watching()
    told(watch, ("s0", reply((KEY, 3))), ("s1", reply()))
    watch.rounds += ROUNDS_UNTIL_READ
    assert watch.take_due() == [KEY]
    watch.found(ListedObject(KEY, tag(2), False))
    assert told(watch) == [(KEY, 2)]
    assert watch.point is not None
    assert watch.point.open == (KEY,)
    assert watch.take_due() == []
    watch.rounds += 2 * ROUNDS_UNTIL_READ
    assert watch.take_due() == [KEY]
    watch.found(ListedObject(KEY, tag(3), True))
    assert told(watch) == [(KEY, 3)]
    assert watch.point.open == ()


def test_names_in_memory_are_bounded(monkeypatch):
    monkeypatch.setattr(object_watch, "WATCHED_NAMES_MAX", 2)
    watch = watching()
    with pytest.raises(BadInput, match="at most 2 names"):
        told(watch, ("s0", reply(("p/a", 1), ("p/b", 1), ("p/c", 1))))


def test_names_are_bounded_while_a_watch_resumes(monkeypatch):
    monkeypatch.setattr(object_watch, "WATCHED_NAMES_MAX", 2)
    watch = resumed()
    for number in (0, 1):
        listing = reply((f"p/{number}", 1), position=5, after=f"p/{number}", more=True)
        told(watch, ("s0", listing), ("s1", listing))
    with pytest.raises(BadInput, match="at most 2 names"):
        told(watch, ("s0", reply(("p/2", 1), position=5)))


def test_a_point_of_another_prefix_tells_no_other_names():
    watch = resumed((KEY, "q/other", "\0domain/photos", ""))
    watch.rounds += ROUNDS_UNTIL_READ
    assert watch.take_due() == [KEY]


# -- with servers ----------------------------------------------------------------------------------


def rounds(client, watch, number=1):
    return [
        (notice.key, notice.tag.number, notice.deleted)
        for _ in range(number)
        for notice in client.run(watch_round(client.view, watch))
    ]


def test_a_watch_begins_with_every_object_and_goes_on_with_changes():
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    writer.run(write(writer.view, KEY, b"1"))
    writer.run(write(writer.view, ObjectName("q"), b"1"))
    watch = ObjectWatch("p/")
    assert rounds(watcher, watch) == [(KEY, 1, False)]
    writer.run(delete(writer.view, KEY))
    writer.run(write(writer.view, ObjectName("q"), b"2"))
    assert rounds(watcher, watch, 3) == [(KEY, 2, True)]


def test_a_listing_of_several_pages_and_more_changes_than_a_reply_has(monkeypatch):
    for module in ("configuration_state", "recent_changes"):
        monkeypatch.setattr(f"ares.replica.{module}.PAGE_OBJECTS_MAX", 2)
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    names = [ObjectName(f"p/{number}") for number in range(5)]
    watch = ObjectWatch("p/")
    for value in (b"1", b"2"):
        for name in names:
            writer.run(write(writer.view, name, value))
        found = rounds(watcher, watch)
        while watch.more:
            found += rounds(watcher, watch)
        found += rounds(watcher, watch, 3)
        assert sorted(found) == [(name, int(value), False) for name in names]


def test_a_server_that_restarts_tells_its_listing_again():
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    watch = ObjectWatch("p/")
    rounds(watcher, watch, 3)
    world.down.add("s2")
    writer.run(write(writer.view, KEY, b"1"))
    world.until(lambda: not world.flights)
    world.down = {"s1"}
    changes = world.replicas["s0"].changes
    changes.epoch += 1  # another list, without the change
    changes.newest, changes._changes = 0, {}
    assert rounds(watcher, watch, ROUNDS_UNTIL_READ + 2) == [(KEY, 1, False)]


def test_a_write_that_rests_at_one_server_is_completed_by_the_watch():
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    watch = ObjectWatch("p/")
    rounds(watcher, watch, 2)
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and source is writer and target != "s0"
    )
    writer.start(write(writer.view, KEY, b"1"))
    world.until(lambda: world.replicas["s0"].hosted[ABD.id].objects.newest(KEY) is not None)
    world.down.add("s1")
    assert rounds(watcher, watch, ROUNDS_UNTIL_READ - 1) == []
    assert rounds(watcher, watch, 4) == [(KEY, 1, False)]
    assert world.replicas["s2"].hosted[ABD.id].objects.newest(KEY) == tag(1)


def refuse_writes(monkeypatch, error=None) -> None:
    def refused(*_):
        raise error or NotAuthorized("no", "")
        yield

    monkeypatch.setattr(object_watch, "propagate", refused)


def test_full_disks_end_no_watch(monkeypatch):
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    watch = ObjectWatch("p/")
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and source is writer and target != "s0"
    )
    writer.start(write(writer.view, KEY, b"1"))
    world.until(lambda: world.replicas["s0"].hosted[ABD.id].objects.newest(KEY) is not None)
    world.down.add("s1")
    with monkeypatch.context() as full:
        refuse_writes(full, Unavailable(2, 1, {}, "the disk is full"))
        assert rounds(watcher, watch, ROUNDS_UNTIL_READ + 2) == []
    assert rounds(watcher, watch, 3 * ROUNDS_UNTIL_READ) == [(KEY, 1, False)]


def test_a_client_that_may_not_write_leaves_the_version_to_its_writer(monkeypatch):
    refuse_writes(monkeypatch)
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    watch = ObjectWatch("p/")
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and source is writer and target != "s0"
    )
    writing = writer.start(write(writer.view, KEY, b"1"))
    world.until(lambda: world.replicas["s0"].hosted[ABD.id].objects.newest(KEY) is not None)
    world.down.add("s1")
    assert rounds(watcher, watch, ROUNDS_UNTIL_READ + 2) == []
    assert not watch.may_complete
    reads = []
    monkeypatch.setattr(object_watch, "completed_version", lambda *about: reads.append(about))
    assert rounds(watcher, watch, 2 * ROUNDS_UNTIL_READ) == []
    assert reads == []
    world.hold = lambda *_: False
    world.until(lambda: writing.ended)
    assert rounds(watcher, watch, 4 * ROUNDS_UNTIL_READ) == [(KEY, 1, False)]


def test_a_completed_version_is_told_though_a_server_that_has_it_is_always_late(monkeypatch):
    refuse_writes(monkeypatch)
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    world.down.add("s1")
    writer.run(write(writer.view, KEY, b"1"))
    world.down.clear()
    world.hold = lambda source, target, message: (
        source == "s2"
        and (
            isinstance(message, ChangedObjects)
            or any("s2" not in (flight[0], flight[1]) for flight in world.flights)
        )
    )
    watch = ObjectWatch("p/")
    assert rounds(watcher, watch, ROUNDS_UNTIL_READ + 2) == [(KEY, 1, False)]


def test_a_watch_has_few_values_in_memory_at_once(monkeypatch):
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and source is writer and target != "s0"
    )
    names = [ObjectName(f"p/{number}") for number in range(5)]
    for name in names:
        writer.start(write(writer.view, name, b"1"))
    objects = world.replicas["s0"].hosted[ABD.id].objects
    world.until(lambda: len(objects) == len(names))
    world.down.add("s1")
    running, most = 0, 0
    complete = object_watch.completed_version

    def counted(*about):
        nonlocal running, most
        running += 1
        most = max(most, running)
        found = yield from complete(*about)
        running -= 1
        return found

    monkeypatch.setattr(object_watch, "completed_version", counted)
    told_at_last = rounds(watcher, ObjectWatch("p/"), ROUNDS_UNTIL_READ + 2)
    assert sorted(told_at_last) == [(name, 1, False) for name in names]
    assert most == COMPLETED_AT_ONCE


def test_the_notices_of_a_round_share_the_text_of_a_point():
    world = ProtocolWorld(ABD, range(3))
    writer, watcher = world.client(), world.client()
    watch = ObjectWatch("p/")
    rounds(watcher, watch, 3)
    for number in range(3):
        writer.run(write(writer.view, ObjectName(f"p/{number}"), b"1"))
    world.until(lambda: not world.flights)
    first, second, last = watcher.run(watch_round(watcher.view, watch))
    assert first.since is second.since
    assert first.since != last.since


def test_servers_of_an_earlier_release_are_named():
    world = ProtocolWorld(ABD, range(3))
    early = set()
    for server, replica in world.replicas.items():
        describe = replica.describe

        def earlier(request: Describe, server=server, describe=describe):
            description = describe(request)
            return structs.replace(description, watches=server not in early)

        replica.describe = earlier
    watcher = world.client()
    early.add("s1")
    watch = ObjectWatch("")
    assert rounds(watcher, watch) == []
    assert set(watch.able[ABD.id]) == {"s0", "s2"}
    early.add("s2")
    with pytest.raises(ConfigurationRefused, match="s1, s2 runs an earlier release"):
        rounds(watcher, ObjectWatch(""))


def test_a_server_refuses_a_prefix_that_no_name_has():
    world = ProtocolWorld(ABD, range(3))
    request = object_watch.WatchObjects(CallId(1), ABD.id, "é" * 600, 0, 0, None)
    refused = world.replicas["s0"].handle(request)
    assert isinstance(refused, Refused)
    assert refused.reason is Reason.BAD_REQUEST
    assert not world.replicas["s0"].changes.recording
