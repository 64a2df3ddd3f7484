"""How servers count who uses which domain: of late, and bounded (ares/server/users.py)."""

from types import SimpleNamespace

import msgspec
import pytest

from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import Describe, GetData, GetTag, Introduce, ListObjects, PutData, ReadConfig
from ares.model.tag import Tag
from ares.replica.replica import Replica
from ares.server import users
from ares.server.host import Host
from ares.server.users import HALF_LIFE_S, Users

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(3)]
INITIAL = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
PHOTOS = INITIAL.at("photos", 0, INITIAL.id)
NEXT = INITIAL.at("photos", 1, INITIAL.id)
UNKNOWN = INITIAL.at("unknown", 0, INITIAL.id)


class World:
    """A server's replica, and what it counts at a moment of our own."""

    def __init__(self, sites=("nantes", "rennes")):
        self.replica = Replica("s0", MEMBERS[0].identity, INITIAL)
        self.replica.introduce(PHOTOS)
        self.users, self.now = Users(sites, self.replica.hosted), 1000.0

    def ask(self, site, *messages):
        assert list(self.users.counting(site, iter(messages), self.now)) == list(messages)

    def per_s(self, domain="photos"):
        return {asked.site: asked.per_s for usage in self.users.usage([domain], self.now) for asked in usage.asked}


def asked(times, configuration=PHOTOS):
    return [GetTag(1, configuration.id, "k")] * times


def test_a_steady_rate_is_told_as_it_is():
    world = World()
    for _ in range(600):
        world.ask("nantes", *asked(3))
        world.now += 0.1
    assert world.per_s() == {"nantes": pytest.approx(30, rel=0.1)}


def test_users_that_left_are_soon_forgotten():
    world = World()
    world.ask("nantes", *asked(1000))
    before = world.per_s()["nantes"]
    world.now += HALF_LIFE_S
    assert world.per_s()["nantes"] == pytest.approx(before / 2)
    world.ask("rennes", *asked(10))
    world.now += 20 * HALF_LIFE_S
    assert world.per_s() == {}
    assert world.users._pairs == 0


def test_only_reads_and_writes_of_what_is_here_count():
    world = World()
    element = sealed(PHOTOS.id, "k", Tag(1, 1), 0, 1, (b"x",))
    moving = GetData(1, PHOTOS.id, "k", True, None, Successor(NEXT, Status.PENDING))
    world.ask("nantes", moving, ReadConfig(1, PHOTOS.id), ListObjects(1, PHOTOS.id, "", 1), Introduce(1, NEXT), Describe(1), *asked(5, UNKNOWN))
    assert world.per_s() == {}
    world.ask("nantes", *asked(1), GetData(1, PHOTOS.id, "k", True), PutData(1, PHOTOS.id, "k", Tag(1, 1), element))
    assert world.per_s()["nantes"] == pytest.approx(3 * users._PER_S)
    assert world.per_s("default") == {}


def test_what_is_asked_of_all_configurations_of_a_domain_counts_and_the_newest_says_how_large_it_is():
    world = World()
    world.replica.introduce(NEXT)
    world.replica.handle(PutData(1, NEXT.id, "k", Tag(1, 1), sealed(NEXT.id, "k", Tag(1, 1), 0, 7, (b"x" * 7,))))
    world.ask("nantes", *asked(1), *asked(1, NEXT))
    [usage] = world.users.usage(["photos", "elsewhere"], world.now)
    assert (usage.domain, usage.bytes, usage.asked[0].per_s) == ("photos", 7, pytest.approx(2 * users._PER_S))


def test_a_site_that_the_cluster_file_does_not_name_is_not_counted():
    world = World()
    for number in range(10_000):
        world.ask(f"site{number}", *asked(1))
    assert world.per_s() == {}
    assert set(world.users._counts) == {"nantes", "rennes"}


def test_more_than_so_many_pairs_are_not_counted_until_others_are_forgotten(monkeypatch):
    monkeypatch.setattr(users, "PAIRS_MAX", 3)
    world = World(("a", "b", "c"))
    for site in ("a", "b", "c"):
        world.ask(site, *asked(1), *asked(1, INITIAL))
    assert sum(map(len, world.users._counts.values())) == world.users._pairs == 3
    world.now += 100 * HALF_LIFE_S
    world.ask("c", *asked(1))
    assert list(world.per_s()) == ["c"]


@pytest.mark.parametrize("jump_s", [-1e6, 1e6, 1e300])
def test_a_clock_that_jumps_makes_no_requests(jump_s):
    world = World()
    world.ask("nantes", *asked(100))
    before = world.per_s()["nantes"]
    world.now += jump_s
    assert world.per_s().get("nantes", 0.0) <= before
    world.now += 1
    world.ask("nantes", *asked(1))
    assert world.per_s()["nantes"] > 0


def test_a_turn_that_ends_early_counts_what_it_took():
    world = World()
    rest = iter(asked(10))
    for number, _ in enumerate(world.users.counting("nantes", rest, world.now), 1):
        if number == 4:
            break
    assert len(list(rest)) == 6
    assert world.per_s()["nantes"] == pytest.approx(4 * users._PER_S)


async def test_a_server_counts_clients_that_say_where_they_are_and_tells_who_asks():
    host = Host(Replica("s0", MEMBERS[0].identity, INITIAL), sites=("nantes", "rennes"))
    client = SimpleNamespace(site="rennes")
    host.handle(client, [Introduce(1, PHOTOS), *asked(5)])
    for nobody in (SimpleNamespace(site=""), "a client without a site"):
        host.handle(nobody, asked(5))
    [described] = host.handle(client, [Describe(2, True, ("photos", "elsewhere"))])
    assert [(usage.domain, [each.site for each in usage.asked]) for usage in described.usage] == [("photos", ["rennes"])]
    assert described.usage[0].asked[0].per_s == pytest.approx(5 * users._PER_S, rel=0.3)
    [brief] = host.handle(client, [Describe(3, True)])
    assert (brief.usage, brief.hosted) == ((), ())
    assert msgspec.structs.replace(described, usage=()).hosted == ()
