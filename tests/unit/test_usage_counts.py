"""Counts of each domain's users at a server: recent, bounded (ares/server/usage_counts.py)."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from ares.compiled import replica_parts
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    Describe,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PutData,
    ReadConfig,
)
from ares.model.tag import Tag
from ares.replica.replica import Replica
from ares.server import usage_counts
from ares.server.storage_process import ServingParts, run_server
from ares.server.usage_counts import HALF_LIFE_S, UsageCounts
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(3)]
INITIAL = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
PHOTOS = INITIAL.at("photos", 0, INITIAL.id)
NEXT = INITIAL.at("photos", 1, INITIAL.id)
OTHERS = INITIAL.at("others", 0, INITIAL.id)
UNKNOWN = INITIAL.at("unknown", 0, INITIAL.id)


class UsersWorld:
    """A server's replica with counts, and a clock of the test."""

    def __init__(self, sites=("nantes", "rennes")):
        self.replica = Replica("s0", MEMBERS[0].identity, INITIAL, parts=replica_parts())
        self.replica.introduce(PHOTOS)
        self.now = 1000.0
        self.users = UsageCounts(
            sites, self.replica.hosted, lambda: self.now, random.Random(1).random
        )

    def ask(self, site, *messages):
        """Ask with each message alone; a batch would count as a whole."""
        for message in messages:
            self.users.seen(SimpleNamespace(site=site), [message])

    def per_s(self, domain="photos"):
        return {
            asked.site: asked.per_s for usage in self.users.usage([domain]) for asked in usage.asked
        }


def asked(times, configuration=PHOTOS):
    return [GetTag(1, configuration.id, "k")] * times


def test_a_steady_rate_is_told_as_it_is():
    world = UsersWorld()
    for _ in range(600):
        world.ask("nantes", *asked(3))
        world.now += 0.1
    assert world.per_s() == {"nantes": pytest.approx(30, rel=0.1)}


def test_users_that_left_are_soon_forgotten():
    world = UsersWorld()
    world.ask("nantes", *asked(1000))
    before = world.per_s()["nantes"]
    world.now += HALF_LIFE_S
    assert world.per_s()["nantes"] == pytest.approx(before / 2)
    world.ask("rennes", *asked(10))
    world.now += 20 * HALF_LIFE_S
    assert world.per_s() == {}
    assert world.users._pairs == 0


def test_only_reads_and_writes_of_what_is_here_count():
    world = UsersWorld()
    element = sealed(PHOTOS.id, "k", Tag(1, 1), 0, 1, (b"x",))
    moving = GetData(1, PHOTOS.id, "k", True, None, Successor(NEXT, Status.PENDING))
    world.ask(
        "nantes",
        moving,
        ReadConfig(1, PHOTOS.id),
        ListObjects(1, PHOTOS.id, "", 1),
        Introduce(1, NEXT),
        Describe(1),
        *asked(5, UNKNOWN),
    )
    assert world.per_s() == {}
    world.ask(
        "nantes",
        *asked(1),
        GetData(1, PHOTOS.id, "k", True),
        PutData(1, PHOTOS.id, "k", Tag(1, 1), element),
    )
    assert world.per_s()["nantes"] == pytest.approx(3 * usage_counts._PER_S)
    assert world.per_s("default") == {}


def test_requests_to_all_configurations_of_a_domain_count_and_the_newest_tells_its_size():
    world = UsersWorld()
    world.replica.introduce(NEXT)
    world.replica.handle(
        PutData(1, NEXT.id, "k", Tag(1, 1), sealed(NEXT.id, "k", Tag(1, 1), 0, 7, (b"x" * 7,)))
    )
    world.ask("nantes", *asked(1), *asked(1, NEXT))
    [usage] = world.users.usage(["photos", "elsewhere"])
    assert (usage.domain, usage.bytes, usage.asked[0].per_s) == (
        "photos",
        7,
        pytest.approx(2 * usage_counts._PER_S),
    )


def test_a_site_that_the_cluster_file_does_not_name_is_not_counted():
    world = UsersWorld()
    for number in range(10_000):
        world.ask(f"site{number}", *asked(1))
    assert world.per_s() == {}
    assert set(world.users._counts) == {"nantes", "rennes"}


def test_more_than_so_many_pairs_are_not_counted_until_others_are_forgotten(monkeypatch):
    monkeypatch.setattr(usage_counts, "PAIRS_MAX", 3)
    world = UsersWorld(("a", "b", "c"))
    for site in ("a", "b", "c"):
        world.ask(site, *asked(1), *asked(1, INITIAL))
    assert sum(map(len, world.users._counts.values())) == world.users._pairs == 3
    world.now += 100 * HALF_LIFE_S
    world.ask("c", *asked(1))
    assert list(world.per_s()) == ["c"]


@pytest.mark.parametrize("jump_s", [-1e6, 1e6, 1e300])
def test_a_clock_that_jumps_makes_no_requests(jump_s):
    world = UsersWorld()
    world.ask("nantes", *asked(100))
    before = world.per_s()["nantes"]
    world.now += jump_s
    assert world.per_s().get("nantes", 0.0) <= before
    world.now += 1
    world.ask("nantes", *asked(1))
    assert world.per_s()["nantes"] > 0


def test_a_batch_counts_as_a_whole_whatever_the_order_in_it():
    """Each of three domains gets a third if all are always asked together."""
    world = UsersWorld()
    world.replica.introduce(OTHERS)
    batch = [*asked(1, INITIAL), *asked(1), *asked(1, OTHERS)]
    for _ in range(30_000):
        world.users.seen(SimpleNamespace(site="nantes"), batch)
    for domain in ("default", "photos", "others"):
        assert world.per_s(domain)["nantes"] == pytest.approx(
            30_000 * usage_counts._PER_S, rel=0.05
        )


@pytest.mark.parametrize(
    "sender",
    [
        "a client of no site",
        b"one of libzmq",
        SimpleNamespace(site=""),
        SimpleNamespace(site="brest"),
    ],
)
def test_a_client_without_a_site_is_not_counted(sender):
    world = UsersWorld()
    world.users.seen(sender, asked(5))
    world.users.seen(SimpleNamespace(site="nantes"), [])
    assert world.per_s() == {}


async def test_a_server_counts_users_of_its_listener_and_reports_them():
    network, stop, heard, answers = InprocNetwork(), asyncio.Event(), asyncio.Queue(), {}
    running = asyncio.create_task(
        run_server(
            ServingParts(
                "s0",
                MEMBERS[0].identity,
                INITIAL,
                InprocListener(network, "here"),
                stop,
                sites=("nantes", "rennes"),
            )
        )
    )
    await asyncio.sleep(0)
    for site, times in (("rennes", 5), ("", 5), ("brest", 5)):
        connections = InprocConnections(network, site)
        connections.open(lambda _, messages: heard.put_nowait(messages))
        connections.learn("s0", "here")
        connections.post("s0", [Introduce(1, PHOTOS)])
        connections.post("s0", asked(times))
        connections.post("s0", [Describe(2, True, ("photos", "elsewhere")), Describe(3, True)])
    async with asyncio.timeout(60):
        while not {2, 3} <= answers.keys():
            answers |= {message.call: message for message in await heard.get()}
    told, brief = answers[2], answers[3]
    assert [(usage.domain, [each.site for each in usage.asked]) for usage in told.usage] == [
        ("photos", ["rennes"])
    ]
    assert told.usage[0].asked[0].per_s == pytest.approx(5 * usage_counts._PER_S, rel=0.3)
    assert (brief.usage, brief.hosted, told.hosted) == ((), (), ())
    stop.set()
    await running
