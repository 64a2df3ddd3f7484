"""A client's search for a domain, and the client's memory of domains.

The memory is bounded, and harmless if old, damaged or forged.
"""

import json
import os
from pathlib import Path

import msgspec
import pytest

from ares.client.connect import USER_SERVICE, connections_of, manager_of
from ares.client.domain_locator import DOMAINS_MAX, DomainLocator, KnownDomains, known_domains_path
from ares.cluster.new_cluster import InitPlan, create
from ares.consensus.local import LocalConsensus
from ares.engine.session import Session
from ares.model.configuration import SERVERS_MAX, Configuration, Server, Status, Successor
from ares.model.identity import DEFAULT_DOMAIN, CallId, DomainName, ServerId
from ares.model.messages import Ack, Finalize, Introduce, Located, Where, WriteConfig
from ares.reconfig.locating import LOCATE_S, OTHERS_S, locate
from ares.replica.facts import ConfigurationRecord
from ares.replica.replica import Replica

CALL = CallId(1)
PHOTOS = DomainName("photos")
BOOK = {
    ServerId(f"s{number}"): Server(
        ServerId(f"s{number}"), f"10.0.0.{number}:7000", f"{number:032x}"
    )
    for number in range(40)
}
C0 = Configuration.abd([BOOK[ServerId(f"s{number}")] for number in range(3)]).at(DEFAULT_DOMAIN, 0)


def at(index: int, first: int = 0) -> Configuration:
    return Configuration.abd(
        [BOOK[ServerId(f"s{number}")] for number in range(first, first + 3)]
    ).at(PHOTOS, index, C0.id)


def server(number: int, journaled: bool = False) -> Replica:
    return Replica(ServerId(f"s{number}"), f"{number:032x}", C0, journaled=journaled)


def named(replica: Replica) -> Configuration | None:
    reply = replica.handle(Where(CALL, PHOTOS))
    assert isinstance(reply, Located)
    return reply.configuration


# -- servers ---------------------------------------------------------------------------------------


def test_a_server_names_the_first_configuration_and_no_later_one_before_it_is_told() -> None:
    replica = server(0)
    assert named(replica) is None
    replica.handle(Introduce(CALL, at(1)))
    assert named(replica) is None
    replica.handle(Introduce(CALL, at(0)))
    assert named(replica) == at(0)
    assert isinstance(replica.handle(Finalize(CALL, at(1).id)), Ack)
    assert named(replica) == at(1)


def test_a_server_names_a_finalized_successor_and_no_pending_one() -> None:
    replica = server(0)
    replica.handle(Introduce(CALL, at(0)))
    replica.handle(WriteConfig(CALL, at(0).id, Successor(at(1, 5), Status.PENDING)))
    assert named(replica) == at(0)
    replica.handle(WriteConfig(CALL, at(0).id, Successor(at(1, 5), Status.FINALIZED)))
    assert named(replica) == at(1, 5)
    replica.handle(Introduce(CALL, at(0)))
    assert named(replica) == at(1, 5), "it never goes back"


def test_what_a_server_was_told_outlasts_it() -> None:
    replica = server(0, journaled=True)
    replica.point(Introduce(CALL, at(1)), 1)
    request = Finalize(CALL, at(1).id)
    assert replica.pointer_room(request) > 0
    _, fact = replica.point(request, 1)
    assert fact == ConfigurationRecord(at(1), None, False, True)
    assert replica.pointer_room(request) == 0
    again = server(0, journaled=True)
    again.begin_restoring()
    again.restore(fact, 1)
    again.restored()
    assert named(again) == at(1)


# -- the question ----------------------------------------------------------------------------------


class Asking:
    """A session that asks; ``found`` is the result."""

    def __init__(self, servers: int) -> None:
        self.session = Session()
        self.found: list[Configuration | None] = []
        roster = [BOOK[ServerId(f"s{number}")] for number in range(servers)]
        self.session.start(
            locate(PHOTOS, roster),
            "where",
            0.0,
            10.0,
            lambda found, error: self.found.append(found),
        )
        [self.call] = {
            message.call for messages in self.session.take_outbox().values() for message in messages
        }

    def hear(self, server: str, configuration: Configuration | None, now: float = 0.0) -> None:
        self.session.receive(ServerId(server), [Located(self.call, configuration)], now)


def test_the_first_server_that_names_one_is_enough() -> None:
    asking = Asking(3)
    asking.hear("s0", None)
    assert asking.found == []
    asking.hear("s1", at(2))
    assert asking.found == [at(2)]


def test_silent_servers_delay_the_search_of_a_domain_only_briefly() -> None:
    asking = Asking(3)
    asking.hear("s0", None)
    asking.session.tick(OTHERS_S / 2)
    assert asking.found == []
    asking.session.tick(OTHERS_S + 0.01)
    assert asking.found == [None]
    silent = Asking(3)
    silent.session.tick(LOCATE_S + 0.01)
    assert silent.found == [None]


def test_all_servers_may_say_that_they_do_not_know() -> None:
    asking = Asking(2)
    asking.hear("s0", None)
    asking.hear("s1", None)
    assert asking.found == [None]


# -- memory --------------------------------------------------------------------------------------


def ids(asked: list[Server]) -> list[str]:
    return [server.id for server in asked]


def test_servers_of_the_own_site_are_asked_then_those_that_had_it() -> None:
    known = KnownDomains()
    locator = DomainLocator(BOOK, [ServerId("s0"), ServerId("s5")], known)
    assert [ids(asked) for asked in locator.of(PHOTOS)] == [["s0", "s5"]]
    locator.remember([at(3, 5), C0])
    assert [ids(asked) for asked in locator.of(PHOTOS)] == [["s0", "s5"], ["s6", "s7"]]
    assert [ids(asked) for asked in DomainLocator(BOOK, list(BOOK)).of(PHOTOS)] == [
        list(BOOK)[:SERVERS_MAX],
        list(BOOK)[SERVERS_MAX:],
    ]
    assert list(DomainLocator().of(PHOTOS)) == []


def test_what_one_client_remembers_the_next_one_knows(tmp_path: Path) -> None:
    path = tmp_path / "new" / "domains.json"
    DomainLocator(BOOK, (), KnownDomains(path)).remember([at(1)])
    DomainLocator(BOOK, (), KnownDomains(path)).remember(
        [at(0, 4).at(DomainName("films"), 0, C0.id)]
    )
    assert json.loads(path.read_bytes()) == {
        "photos": ["s0", "s1", "s2"],
        "films": ["s4", "s5", "s6"],
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert [ids(asked) for asked in DomainLocator(BOOK, (), KnownDomains(path)).of(PHOTOS)] == [
        ["s0", "s1", "s2"]
    ]
    assert [entry.name for entry in path.parent.iterdir()] == ["domains.json"], (
        "no other file is left"
    )


def test_it_is_bounded_and_keeps_the_domains_used_last(tmp_path: Path) -> None:
    known = KnownDomains(tmp_path / "domains.json")
    for half in range(2):
        known.remember(
            {
                DomainName(f"d{number}"): [ServerId("s0")]
                for number in range(half * DOMAINS_MAX, (half + 1) * DOMAINS_MAX)
            }
        )
        known.remember({DomainName("d5"): [ServerId("s1")]})
    kept = json.loads((tmp_path / "domains.json").read_bytes())
    assert len(kept) == DOMAINS_MAX
    assert kept["d5"] == ["s1"]
    assert "d6" not in kept


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"photos": "s0"}',
        b'{"photos": ["s0"',
        b'{"photos": [' + b'"s0",' * 40 + b'"s0"]}',
        b"[" * 100_000,
        b'{"photos": [7]}',
    ],
)
def test_a_file_that_is_damaged_counts_as_empty_and_is_replaced(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "domains.json"
    path.write_bytes(content)
    assert list(DomainLocator(BOOK, (), KnownDomains(path)).of(PHOTOS)) == []
    DomainLocator(BOOK, (), KnownDomains(path)).remember([at(0)])
    assert json.loads(path.read_bytes()) == {"photos": ["s0", "s1", "s2"]}


def test_a_forged_memory_leads_only_to_servers_of_the_cluster_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "domains.json"
    path.write_text(json.dumps({"photos": ["s1", "evil:7000", "s1", ""]}))
    assert [ids(asked) for asked in DomainLocator(BOOK, (), KnownDomains(path)).of(PHOTOS)] == [
        ["s1"]
    ]


def test_where_nothing_can_be_written_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "ares").write_text("a file where the directory should be")
    path = known_domains_path(C0.id, {"XDG_CACHE_HOME": str(tmp_path)})
    assert path == tmp_path / "ares" / f"domains-{C0.id.hex()}.json"
    DomainLocator(BOOK, (), KnownDomains(path)).remember([at(0)])
    os.mkfifo(tmp_path / "pipe")
    assert list(DomainLocator(BOOK, (), KnownDomains(tmp_path / "pipe")).of(PHOTOS)) == []
    assert known_domains_path(C0.id, {"ARES_CACHE": "off"}) is None
    assert list(DomainLocator(BOOK, (), KnownDomains(None)).of(PHOTOS)) == []


async def test_a_process_of_the_cluster_remembers_nothing_and_a_user_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The autopilot's home is no user's cache."""
    monkeypatch.setenv("ARES_CACHE", str(tmp_path / "cache"))
    settings = create(
        tmp_path / "cluster",
        InitPlan(servers=3, spares=3, sites=(("near", 3), ("far", 3)), base_port=0),
    )
    placed = msgspec.structs.replace(
        settings.initial, domain=PHOTOS, index=1, cluster=settings.initial.id
    )
    for service, remembers in (("ares-autopilot", False), (USER_SERVICE, True)):
        manager = manager_of(
            settings, lambda: connections_of(settings), LocalConsensus(), service=service
        )
        manager._opened(placed)
        await manager.close()
        assert (tmp_path / "cache").exists() is remembers
