"""The servers of a site that a domain gets (ares/cluster/sites.py).

Servers of other sites are asked last, and are no spares.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ares.autopilot.judge import Replace, Roster, Stuck, judge
from ares.cli.domains.domain_commands import followed
from ares.cluster.new_cluster import InitPlan, _text
from ares.cluster.settings import Settings
from ares.cluster.sites import CodeChoice, at_site, labels_of, remote_servers, site_of, sites_of
from ares.cluster.tables import AutopilotSettings
from ares.engine.readiness import Readiness
from ares.model.configuration import Configuration
from ares.model.errors import BadInput, ConfigurationRefused
from ares.reconfig.view import Switches, View
from ares.sharedlog.log_operations import LogOperations
from tests.autopilot.looks import BOOK, abd, identities, watched
from tests.sharedlog.chains import chain

SITES = (("nantes", 5), ("rennes", 3), ("lyon", 2))


@pytest.fixture
def settings() -> Settings:
    return Settings.parse(
        _text(InitPlan(5, 3, spares=5, sites=SITES, base_port=7000, durability="memory"), {}),
        Path("cluster.toml"),
    )


def ids(configuration):
    return set(configuration.server_ids)


def test_the_cluster_file_says_where_servers_are(settings):
    assert sites_of(settings) == {
        "nantes": ["s0", "s1", "s2", "s3", "s4"],
        "rennes": ["s5", "s6", "s7"],
        "lyon": ["s8", "s9"],
    }
    assert site_of(labels_of(settings), settings.initial) == "nantes"
    assert site_of(labels_of(settings), Configuration.abd(["s4", "s5", "s6"])) == "nantes+rennes"
    assert site_of({}, settings.initial) == ""
    assert (
        site_of(labels_of(settings), Configuration.abd(["s4", "s5", "elsewhere"]))
        == "nantes+rennes+?"
    )


def test_what_is_remote_depends_on_where_the_client_is(settings):
    assert remote_servers(settings) == frozenset()
    there = replace(settings, client=replace(settings.client, site="rennes"))
    assert remote_servers(there) == {"s0", "s1", "s2", "s3", "s4", "s8", "s9"}
    with pytest.raises(BadInput, match="known sites: nantes, rennes, lyon"):
        remote_servers(replace(settings, client=replace(settings.client, site="brest")))


def test_a_domain_that_will_not_follow_its_users_is_told(settings):
    assert "has no table [autopilot]" in followed(settings)
    piloted = replace(settings, autopilot=AutopilotSettings())
    assert followed(piloted) == "follows its users"
    assert "fewer than two sites" in followed(
        replace(
            piloted,
            servers={id: replace(server, site="") for id, server in piloted.servers.items()},
        )
    )
    assert "no server counts" in followed(replace(piloted, transport="libzmq"))


def test_a_domain_keeps_its_redundancy_where_the_site_has_the_servers(settings):
    like = Configuration.ec(["s0", "s1", "s2", "s3", "s4"], k=2, delta=4)
    same = at_site(settings, "nantes", "d", like)
    assert (same.dap, same.n, same.k, same.delta, ids(same)) == (
        "ec",
        5,
        2,
        4,
        {"s0", "s1", "s2", "s3", "s4"},
    )
    fewer = at_site(settings, "rennes", "d", like)
    assert (fewer.n, fewer.k, fewer.crashes_survived) == (3, 1, 1)
    assert at_site(settings, "rennes", "d", like, CodeChoice("abd")).dap == "abd"
    assert (
        at_site(
            settings, "nantes", "d", Configuration.abd(["s5", "s6", "s7"]), CodeChoice("ec", 1)
        ).k
        == 1
    )
    assert at_site(settings, "nantes", "d", Configuration.chain(["s5", "s6", "s7"])).dap == "chain"


def test_those_that_are_there_stay_in_their_order(settings):
    for number in range(9):
        there = Configuration.chain(["s3", "s0", "s1"]).at(f"d{number}", 4)
        assert at_site(settings, "nantes", f"d{number}", there).server_ids == ("s3", "s0", "s1")
    partly = at_site(
        settings, "nantes", "d", Configuration.abd(["s6", "s3", "s5", "s1"]).at("d", 1)
    )
    assert (partly.server_ids[:2], partly.n, ids(partly) <= {"s0", "s1", "s2", "s3", "s4"}) == (
        ("s3", "s1"),
        4,
        True,
    )


@pytest.mark.parametrize(("k", "delta"), [(0, None), (None, 0)])
def test_nought_is_no_default(settings, k, delta):
    with pytest.raises(ConfigurationRefused):
        at_site(settings, "nantes", "d", settings.initial, CodeChoice("ec", k, delta))


def test_domains_of_other_names_begin_with_other_servers(settings):
    like = Configuration.abd(["s0", "s1", "s2"]).at("default", 0)
    assert (
        len(
            {
                ids(at_site(settings, "nantes", f"d{number}", like)) == {"s0", "s1", "s2"}
                for number in range(20)
            }
        )
        == 2
    )
    assert at_site(settings, "nantes", "d", like) == at_site(settings, "nantes", "d", like)


def test_hosts_are_taken_in_turn(settings):
    servers = {
        id: replace(server, address=f"10.0.0.{1 if id in ('s0', 's1', 's2') else 2}:7{id[1:]}00")
        for id, server in settings.servers.items()
    }
    for number in range(20):
        chosen = at_site(
            replace(settings, servers=servers),
            "nantes",
            f"d{number}",
            Configuration.abd(["s5", "s6", "s7"]),
        )
        assert 1 <= len(ids(chosen) & {"s0", "s1", "s2"}) <= 2


@pytest.mark.parametrize(
    ("site", "dap", "k", "error", "why"),
    [
        ("brest", None, None, BadInput, "known sites: nantes, rennes, lyon"),
        ("lyon", None, None, ConfigurationRefused, "one crash stops it"),
        ("rennes", "ec", 3, ConfigurationRefused, "Nothing was changed"),
        ("rennes", "abd", 2, BadInput, "belong to --dap ec"),
    ],
)
def test_what_cannot_be_is_refused(settings, site, dap, k, error, why):
    with pytest.raises(error, match=why):
        at_site(settings, site, "d", settings.initial, CodeChoice(dap, k))
    if site == "lyon":
        assert at_site(settings, site, "d", settings.initial, allow_no_faults=True).n == 2


def test_the_cluster_file_names_no_site_of_clients_where_no_server_is():
    text = _text(InitPlan(5, 3, spares=5, sites=SITES, base_port=7000, durability="memory"), {})
    clients = '\n[client]\nsite = "{}"\n'
    assert Settings.parse(text + clients.format("lyon"), Path("cluster.toml")).client.site == "lyon"
    with pytest.raises(BadInput, match=r"client.site.*known: nantes, rennes, lyon"):
        Settings.parse(text + clients.format("brest"), Path("cluster.toml"))


@pytest.mark.parametrize("bad", ["", "a b", "ä", "x" * 65])
def test_a_site_is_a_name(settings, bad):
    text = _text(InitPlan(3, 0, sites=((bad or " ", 3),), base_port=7000, durability="memory"), {})
    with pytest.raises(BadInput, match="site"):
        Settings.parse(text, Path("cluster.toml"))


def test_servers_at_other_sites_are_asked_last():
    readiness, configuration = Readiness(), chain(0, 0, ("s0", "s1", "s2", "s3", "s4"))
    readiness.remote = frozenset({"s0", "s2"})
    for _ in range(200):
        readiness.next_turn()
        assert set(readiness.order(configuration).asked[: configuration.quorum_size]) == {
            "s1",
            "s3",
            "s4",
        }
    readiness.suspects = {"s1", "s3"}
    readiness.next_turn()
    assert set(readiness.order(configuration).asked[:3]) == {"s4", "s0", "s2"}


def test_a_log_is_read_at_the_own_site_while_a_server_answers_there():
    configuration = chain()
    for turn in range(3):
        operations = LogOperations(View(1, configuration, Switches(), Readiness()), turn)
        operations.view.readiness.remote = frozenset({"s0", "s2"})
        assert operations.candidate(0, 0) == (configuration, "s1")
        assert {operations.candidate(0, tries)[1] for tries in range(1, 4)} == {"s0", "s1", "s2"}
        operations.view.readiness.suspects = {"s1"}
        assert operations.candidate(0, 0)[1] in ("s0", "s2")


def test_a_server_that_the_cluster_file_has_no_more_is_replaced_at_the_site_of_the_others():
    sites, book = (
        {id: "nantes" if id in ("s0", "s1", "s5") else "rennes" for id in BOOK},
        {id: BOOK[id] for id in BOOK if id != "s2"},
    )
    verdict = judge(
        [abd(0, 1, 2)], watched(identities(0, 1, 5, 6)), Roster(book, {}, frozenset(), sites)
    )
    assert isinstance(verdict, Replace)
    assert list(verdict.wished.server_ids) == ["s0", "s1", "s5"]


def test_a_spare_of_another_site_is_none():
    sites = dict.fromkeys(("s0", "s1", "s2", "s7"), "nantes") | {"s5": "rennes", "s6": "rennes"}
    verdict = judge(
        [abd(0, 1, 2)], watched(identities(0, 1, 5, 6, 7)), Roster(BOOK, {}, frozenset(), sites)
    )
    assert isinstance(verdict, Replace)
    assert list(verdict.wished.server_ids) == ["s0", "s1", "s7"]
    verdict = judge(
        [abd(0, 1, 2)], watched(identities(0, 1, 5, 6)), Roster(BOOK, {}, frozenset(), sites)
    )
    assert isinstance(verdict, Stuck)
    assert "at its site" in verdict.why
