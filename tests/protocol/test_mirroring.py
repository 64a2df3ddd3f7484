"""Mirrors in a small world: a pass, the record of a pass, and two simultaneous passes.

See ares/registers/mirroring.py, rule R22.
"""

import random

import pytest

from ares.engine.effects import Gather
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import Unavailable
from ares.model.identity import DEFAULT_DOMAIN, DIRECTORY_PREFIX, ClientId
from ares.model.messages import GetData, PutData, Reason, Refused
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.throttle import Throttle
from ares.reconfig.view import View
from ares.registers import mirroring
from ares.registers.coverable import mention
from ares.registers.mirroring import (
    AS_OF,
    REMOVED,
    MirrorName,
    MirrorPass,
    UnreadableRecord,
    decode_as_of,
    empty,
    encode_as_of,
    parse_mirror,
)
from ares.registers.operations import delete, read, write
from ares.registers.survey import NamesPage, list_objects
from tests.protocol.protocol_world import ProtocolWorld, servers

C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
ELSEWHERE = Configuration.ec(servers(3, 4, 5, 6), 2, 3)
NAME = MirrorName("default", "rennes", 1)
FAST = 1e12


@pytest.fixture
def world():
    return ProtocolWorld(C0, range(7))


def mirror_of(client):
    """Return the mirror's domain in this client's view."""
    return View(
        client.id, ELSEWHERE.at(NAME.name, 0, C0.id), client.view.switches, client.session.readiness
    )


def copying(client, mirror=None, began_s=None, throttle=FAST):
    began_s = client.world.now if began_s is None else began_s
    return MirrorPass(client.view, mirror or mirror_of(client), Throttle(throttle)).run(began_s)


def held(client, name):
    return client.run(read(mirror_of(client), name))


def as_of(client):
    record = held(client, AS_OF).value
    return None if record is TOMBSTONE else decode_as_of(record)


def drain(world):
    while world.step():
        pass


def counting(world, kind):
    """Count the arriving requests of a kind."""
    seen = []
    world.watch = lambda source, target, message: (
        seen.append(message) if isinstance(message, kind) else None
    )
    return seen


def test_a_copy_has_the_tag_of_the_original(world):
    client = world.client()
    tags = {name: client.run(write(client.view, name, name.encode() * 10)) for name in ("a", "b")}
    copied = client.run(copying(client, began_s=17.5))
    assert (copied.objects, copied.bytes, copied.failed) == (2, 20, 0)
    assert {name: (held(client, name).tag, held(client, name).value) for name in tags} == {
        name: (tags[name], name.encode() * 10) for name in tags
    }
    assert as_of(client) == 17.5


def test_only_what_changed_is_fetched(world):
    client = world.client()
    for number in range(20):
        client.run(write(client.view, f"k{number}", b"v" * 50_000))
    assert client.run(copying(client)).objects == 20
    tag = client.run(write(client.view, "k7", b"new"))
    drain(world)
    asked = counting(world, GetData)
    assert client.run(copying(client)).objects == 1
    assert {message.object for message in asked} == {"k7"}
    assert held(client, "k7").tag == tag


def test_a_pass_goes_through_all_pages_of_both(world, monkeypatch):
    monkeypatch.setattr("ares.reconfig.listing.PAGE_OBJECTS", 3)
    client = world.client()
    for number in range(10):
        client.run(write(client.view, f"k{number}", b"v"))
    client.run(delete(client.view, "k5"))
    assert client.run(copying(client)).objects == 10
    client.run(write(client.view, "k11", b"v"))
    client.run(delete(client.view, "k9"))
    assert client.run(copying(client)).objects == 2
    names, after = [], ""
    while after is not None:
        page, after = client.run(list_objects(mirror_of(client), after, ""))
        names += page
    assert names == [AS_OF, *sorted(f"k{number}" for number in (0, 1, 2, 3, 4, 6, 7, 8, 11))]


def test_large_values_come_one_after_the_other(world, monkeypatch):
    monkeypatch.setattr(mirroring, "LARGE_COPY_BYTES", 10_000)
    client = world.client()
    for number in range(3):
        client.run(write(client.view, f"k{number}", b"v" * 20_000))
    fetched, most = set(), 0

    def watch(source, target, message):
        nonlocal most
        if isinstance(message, GetData) and target in ("s0", "s1", "s2") and message.element:
            fetched.add(message.object)
        if isinstance(message, PutData):
            most = max(most, len(fetched))
            fetched.discard(message.object)

    world.watch = watch
    assert client.run(copying(client)).objects == 3
    assert most == 1


def test_deletions_and_new_lives_are_copied(world):
    client = world.client()
    client.run(write(client.view, "k", b"first"))
    client.run(copying(client))
    client.run(delete(client.view, "k"))
    client.run(copying(client))
    assert held(client, "k").value is TOMBSTONE
    tag = client.run(write(client.view, "k", b"again"))
    client.run(copying(client))
    assert (held(client, "k").value, held(client, "k").tag) == (b"again", tag)


def test_a_deletion_is_copied_of_what_the_mirror_never_had(world):
    """An older pass still holds the value, and puts the value after the end of the later pass."""
    user, old, new = world.client(), world.client(), world.client()
    user.run(write(user.view, "k", b"v"))
    world.hold = lambda source, target, message: source is old and isinstance(message, PutData)
    older = old.start(copying(old, began_s=1.0))
    drain(world)
    user.run(delete(user.view, "k"))
    assert new.run(copying(new, began_s=2.0)).failed == 0
    assert (as_of(user), held(user, "k").value) == (2.0, TOMBSTONE)
    world.hold = lambda *_: False
    world.until(lambda: older.ended)
    assert held(user, "k").value is TOMBSTONE, "what the later pass promised still holds"


def test_a_pass_that_dies_in_the_middle_leaves_the_last_record_and_the_next_one_ends_it(world):
    user, dying, next_one = world.client(), world.client(), world.client()
    for number in range(40):
        user.run(write(user.view, f"k{number:02}", b"old"))
    user.run(copying(user, began_s=1.0))
    for number in range(40):
        user.run(write(user.view, f"k{number:02}", b"new"))
    world.hold = lambda source, target, message: (
        source is dying
        and isinstance(message, PutData)
        and (message.object > "k20" or target == "s5")
    )
    dying.start(copying(dying, began_s=2.0))
    drain(world)
    dying.dead = True
    world.flights = [flight for flight in world.flights if dying not in flight]
    world.hold = lambda *_: False
    values = {held(user, f"k{number:02}").value for number in range(40)}
    assert (values, as_of(user)) == ({b"old", b"new"}, 1.0)
    next_one.run(copying(next_one, began_s=3.0))
    assert ({held(user, f"k{number:02}").value for number in range(40)}, as_of(user)) == (
        {b"new"},
        3.0,
    )


def test_what_no_listing_settles_is_looked_at(world):
    """A dead client's write reached a single server: the copy is the value that a reader finds.

    The pass completes the write before copying.
    """
    user, dying, copier = world.client(), world.client(), world.client()
    user.run(write(user.view, "k", b"old"))
    world.hold = lambda source, target, message: (
        source is dying and isinstance(message, PutData) and target != "s0"
    )
    dying.start(write(dying.view, "k", b"new"))
    drain(world)
    dying.dead = True
    world.flights.clear()
    world.hold = lambda *_: False
    world.down = {"s2"}
    copier.run(copying(copier))
    assert held(user, "k").value == b"new"
    world.down = {"s0"}
    assert user.run(read(user.view, "k")).value == b"new"


def test_what_cannot_be_read_stops_neither_the_others_nor_tells_that_all_is_there(world):
    client = world.client()
    bad = Configuration.ec(servers(0, 1, 2, 3), 2, 1).at("d", 0, C0.id)
    client.view = View(client.id, bad, client.view.switches, client.session.readiness)
    for name in ("a", "c"):
        client.run(write(client.view, name, b"v"))
    tag = Tag(1000, ClientId(77))
    elements = [
        sealed(bad.id, "b", tag, index, 100, (bytes(90 + index),)) for index in range(bad.n)
    ]
    puts = Gather(
        bad,
        lambda call: [PutData(call, bad.id, "b", tag, element) for element in elements],
        "put-data",
        needed=bad.n,
    )
    client.run(only(puts))
    copied = client.run(copying(client), idle=True)
    assert (copied.objects, copied.failed) == (2, 1)
    assert "no version of 'b' can be decoded" in copied.why
    assert as_of(client) is None
    client.run(write(client.view, "b", b"whole"))
    assert client.run(copying(client, began_s=4.0)).objects == 1
    assert as_of(client) == 4.0


def only(effect):
    yield effect


def test_a_mirror_that_refuses_everything_ends_the_pass(world, monkeypatch):
    client = world.client()
    for number in range(100):
        client.run(write(client.view, f"k{number}", b"v"))
    for server in ("s3", "s4", "s5", "s6"):
        handle = world.replicas[server].handle

        def refusing(request, handle=handle):
            return (
                Refused(request.call, Reason.STORAGE, "its disk is full")
                if isinstance(request, PutData)
                else handle(request)
            )

        monkeypatch.setattr(world.replicas[server], "handle", refusing)
    with pytest.raises(Unavailable, match="its disk is full"):
        client.run(copying(client), idle=True)
    assert as_of(client) is None
    assert client.run(read(client.view, "k7")).value == b"v"


def test_names_of_the_projects_own_are_not_copied(world):
    client = world.client()
    client.run(mention(client.view, "\0file/x"))
    client.run(write(client.view, DIRECTORY_PREFIX + "photos", b"an entry"))
    client.run(write(client.view, "\x01", b"a user's"))
    assert client.run(copying(client)).objects == 1
    assert held(client, DIRECTORY_PREFIX + "photos").tag == TAG_ZERO
    assert held(client, "\x01").value == b"a user's"


def test_a_move_of_either_does_not_matter(world):
    client, copier = world.client(), world.client()
    mirror = mirror_of(copier)
    for number in range(5):
        client.run(write(client.view, f"k{number}", b"v"))
    copier.run(copying(copier, mirror))
    client.run(reconfigure(client.view, Configuration.ec(servers(1, 2, 3, 4, 5), 3)))
    client.run(reconfigure(mirror_of(client), Configuration.abd(servers(4, 5, 6))))
    client.run(write(client.view, "k9", b"v"))
    assert copier.run(copying(copier, mirror)).objects == 1
    assert copier.run(read(mirror, "k9")).value == b"v"
    assert mirror.sequence.last_finalized.index == 1


def test_a_cut_link_ends_a_pass_without_a_record(world):
    client = world.client()
    client.run(write(client.view, "k", b"v"))
    world.down = {"s3", "s4", "s5", "s6"}
    with pytest.raises(Unavailable):
        client.run(copying(client), timeout_s=2.0, idle=True)
    world.down = set()
    assert as_of(client) is None


def test_a_throttle_slows_a_mirror_pass(world):
    client = world.client()
    for number in range(10):
        client.run(write(client.view, f"k{number}", b"v" * 10_000))
    began = world.now
    client.run(copying(client, throttle=20_000), idle=True)
    assert world.now - began >= 4.0


def test_what_was_emptied_holds_nothing_but_the_mark(world):
    client = world.client()
    for number in range(30):
        client.run(write(client.view, f"k{number}", b"v"))
    client.run(copying(client))
    mirror = mirror_of(client)
    client.run(write(mirror, REMOVED, b""))
    client.run(empty(mirror))
    client.run(empty(mirror))
    assert client.run(list_objects(mirror, "", ""))[0] == [REMOVED]


@pytest.mark.parametrize("seed", range(30))
def test_two_that_copy_beside_writers_keep_what_records_promise(seed):
    """Check that each record keeps its promise.

    The mirror has all versions that were completed before the record's pass began, and no object of
    the mirror goes back.
    """
    world = ProtocolWorld(C0, range(7), seed)
    rng = random.Random(seed)
    users, copiers, reader = (
        [world.client() for _ in range(2)],
        [world.client() for _ in range(2)],
        world.client(),
    )
    completed, seen = {}, {}
    promised = {0.0: {}}
    time, pending = 0.0, {}
    for _ in range(40):
        for client in [client for client, (what, name) in pending.items() if what.ended]:
            what, name = pending.pop(client)
            if isinstance(what.value, Tag):
                completed[name] = max(what.value, completed.get(name, TAG_ZERO))
        client = rng.choice(
            [client for client in (*users, *copiers) if client not in pending] or [None]
        )
        if client in copiers:
            time += 1.0
            promised[time] = dict(completed)
            pending[client] = client.start(copying(client, began_s=time)), None
        elif client is not None:
            name = f"k{rng.randrange(4)}"
            operation = (
                delete
                if rng.random() < 0.3
                else lambda view, name: write(view, name, b"%d" % rng.randrange(10**6))
            )
            pending[client] = client.start(operation(client.view, name)), name
        for _ in range(rng.randrange(60)):
            world.step()
        if rng.random() < 0.3:
            check(reader, promised, seen)
    world.until(lambda: all(what.ended for what, _ in pending.values()))
    check(reader, promised, seen)


def test_control_passes_that_copy_no_tombstones_break_what_records_promise(monkeypatch):
    listing = mirroring.list_mentioned

    def without_tombstones(view, after, prefix):
        page = yield from listing(view, after, prefix)
        return NamesPage(
            {
                name: listed
                for name, listed in page.newest.items()
                if listed is None or not listed.deleted
            },
            page.after,
        )

    monkeypatch.setattr(mirroring, "list_mentioned", without_tombstones)
    with pytest.raises(AssertionError):
        all(
            test_two_that_copy_beside_writers_keep_what_records_promise(seed) is None
            for seed in range(30)
        )


def check(reader, promised, seen):
    promise = promised[as_of(reader) or 0.0]
    for number in range(4):
        name = f"k{number}"
        found = held(reader, name)
        assert found.tag >= promise.get(name, TAG_ZERO), (name, found.tag, promise)
        assert found.tag >= seen.get(name, TAG_ZERO), "a mirror went back"
        seen[name] = found.tag


@pytest.mark.parametrize(
    "name", [NAME, MirrorName("a/b/7/c", "s", 12), MirrorName("mirror/x/1/d", "y", 1)]
)
def test_the_name_of_a_mirror_is_parsed(name):
    assert parse_mirror(name.name) == name


@pytest.mark.parametrize(
    "name",
    [
        "photos",
        "mirror/",
        "mirror/s/1",
        "mirror/s/1/",
        "mirror//1/d",
        "mirror/s/x/d",
        "mirror/s/01/d",
        "mirror/s/²/d",
    ],
)
def test_other_names_are_none(name):
    assert parse_mirror(name) is None


@pytest.mark.parametrize(
    "record", [b"", b"x", encode_as_of(float("nan")), encode_as_of(float("inf")), b"\x80"]
)
def test_records_that_say_nothing(record):
    with pytest.raises(UnreadableRecord, match="the next pass replaces it"):
        decode_as_of(record)
