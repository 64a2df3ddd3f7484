"""Listing objects while servers lack some of them, page by page, and in several domains."""

import pytest

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.errors import ObjectNotFound
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import CollectConfig, GetTag, PutData, Reason, TagReply, WriteConfig
from ares.model.tag import TAG_ZERO
from ares.model.value import TOMBSTONE
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import Switches, View
from ares.registers.operations import delete, read, stat, write
from ares.registers.survey import list_objects
from ares.replica.replica import Replica
from tests.protocol.protocol_world import CARRIED, ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2))
EC = Configuration.ec(servers(2, 3, 4, 5, 6), 3, 2)
C0 = ABD.at(DEFAULT_DOMAIN, 0)


@pytest.fixture
def world():
    return ProtocolWorld(C0, range(7), switches=CARRIED)


def drain(world):
    while world.step():
        pass


def names(world, client, prefix=""):
    found, after, pages = [], "", 0
    while after is not None:
        page, after = client.run(list_objects(client.view, after, prefix))
        found += page
        pages += 1
    return found, pages


def test_tombstones_are_not_listed(world):
    client = world.client()
    for name in ("a", "b", "c"):
        client.run(write(client.view, name, b"v"))
    client.run(delete(client.view, "b"))
    assert names(world, client)[0] == ["a", "c"]
    client.run(reconfigure(client.view, EC))
    assert names(world, client)[0] == ["a", "c"]
    client.run(write(client.view, "b", b"again"))
    assert names(world, client)[0] == ["a", "b", "c"]


@pytest.mark.parametrize("switches", [Switches(), Switches(False, False, False, False)])
def test_pages_over_servers_that_lack_some_names(world, switches, monkeypatch):
    monkeypatch.setattr("ares.reconfig.listing.PAGE_OBJECTS", 3)
    client = world.client(switches)
    expected = [f"k{number:02}" for number in range(20)]
    for number, name in enumerate(expected):
        world.down = {f"s{number % 3}"}
        client.run(write(client.view, name, b"v"))
        world.flights.clear()
    for number in (3, 4, 11):
        world.down = {f"s{number % 2}"}
        client.run(delete(client.view, f"k{number:02}"))
        world.flights.clear()
        expected.remove(f"k{number:02}")
    for down in ({"s0"}, {"s1"}, {"s2"}, set()):
        world.down = down
        found, pages = names(world, client)
        assert found == expected
        assert pages > 3
    assert names(world, client, "k1")[0] == [name for name in expected if name.startswith("k1")]
    assert names(world, client, "x") == ([], 1)


def test_a_listing_while_a_reconfiguration_is_pending_covers_both(world, monkeypatch):
    monkeypatch.setattr("ares.reconfig.listing.PAGE_OBJECTS", 2)
    mover, client = world.client(), world.client()
    for name in ("a", "c", "e"):
        client.run(write(client.view, name, b"v"))
    world.hold = lambda source, target, message: source is mover and isinstance(message, PutData)
    mover.start(reconfigure(mover.view, EC))
    drain(world)
    for name in ("b", "d", "f"):
        client.run(write(client.view, name, b"v"))
    client.run(delete(client.view, "c"))
    assert names(world, client)[0] == ["a", "b", "d", "e", "f"]
    assert client.view.sequence.last_known.index == 1


def test_a_write_that_reached_one_server_is_listed_as_a_reader_would_see_it(world):
    writer, reader = world.client(), world.client()
    world.hold = lambda source, target, message: isinstance(message, PutData) and target != "s0"
    writer.start(write(writer.view, "half", b"v"))
    drain(world)
    world.flights.clear()
    writer.dead, world.hold = True, lambda *_: False
    world.down = {"s2"}
    assert names(world, reader)[0] == ["half"]
    world.down = {"s0"}
    assert names(world, reader)[0] == ["half"], "the listing wrote it back"


def beside_a_mover_that_has_looked(world, operation):
    """Bring a put of a dead client to two servers, after a mover has looked at both.

    The client asked before the move began. The put completes no version. The mover waits before
    further puts.
    """
    mover, dying = world.client(), world.client()
    world.hold = lambda source, target, message: isinstance(message, PutData) or _finalizes(message)
    dying.start(operation(dying.view))
    drain(world)
    moving = mover.start(reconfigure(mover.view, EC))
    drain(world)
    world.hold = lambda source, target, message: source is mover or target in (mover, dying, "s2")
    drain(world)
    dying.dead = True
    world.flights = [flight for flight in world.flights if dying not in flight]
    world.hold = lambda source, target, message: mover in (source, target)
    world.down = {"s2"}
    return moving


def _finalizes(message):
    return isinstance(message, WriteConfig) and message.successor.finalized


@pytest.mark.parametrize("there", [False, True])
def test_a_listing_agrees_with_what_readers_find_when_the_move_has_ended(world, there):
    """Two servers agree on a version that came after the mover had looked at both.

    No client completed the version, and the move leaves the version behind.
    """
    client, lister, reader = world.client(), world.client(), world.client()
    client.run(write(client.view, "a", b"v"))
    if there:
        client.run(write(client.view, "k", b"v"))
    moving = beside_a_mover_that_has_looked(
        world, lambda view: delete(view, "k") if there else write(view, "k", b"w")
    )
    listed = names(world, lister)[0]
    world.down, world.hold = set(), lambda *_: False
    world.until(lambda: moving.ended)
    assert ("k" in listed) is (reader.run(read(reader.view, "k")).value is not TOMBSTONE)
    assert names(world, world.client())[0] == listed


# -- domains ---------------------------------------------------------------------------------------


def test_domains_do_not_see_each_other(world):
    client = world.client()
    photos = View(client.id, EC.at("photos", 0, C0.id), Switches())
    client.run(write(client.view, "k", b"plain"))
    client.run(write(photos, "k", b"a photo"))
    client.run(delete(client.view, "k"))
    assert client.run(read(photos, "k")).value == b"a photo"
    with pytest.raises(ObjectNotFound, match="no object 'other' in domain 'photos'"):
        client.run(delete(photos, "other"))
    client.run(reconfigure(photos, ABD))
    assert photos.sequence.last_finalized.index == 1
    assert client.view.sequence.last_known.index == 0
    assert client.run(read(photos, "k")).value == b"a photo"
    assert client.run(stat(client.view, "k")).value is TOMBSTONE


def test_a_successor_of_another_domain_is_refused(world):
    replica = world.replicas["s0"]
    stray = Successor(EC.at("photos", 1, C0.id), Status.FINALIZED)
    assert replica.handle(CollectConfig(1, C0.id, stray)).reason is Reason.CONFLICTING_SUCCESSOR
    assert replica.handle(GetTag(2, C0.id, "k")) == TagReply(2, TAG_ZERO, None)


def test_a_reborn_server_serves_new_domains_under_its_new_identity(world):
    reborn = Server("s0", "host0:1", "f" * 32)
    world.replicas["s0"] = Replica(reborn.id, reborn.identity, C0)
    client = world.client()
    fresh = View(
        client.id, Configuration.abd([reborn, *servers(3, 4)]).at("fresh", 0, C0.id), Switches()
    )
    world.down = {"s3"}
    client.run(write(fresh, "k", b"v"))
    assert client.run(read(fresh, "k")).value == b"v"
