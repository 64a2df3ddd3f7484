"""A round's hosts and their work, times of faults, and inventories, without any process."""

import json
import os

import pytest

from ares.model.errors import BadInput
from experiments.rounds.engine import _OneRound, playbooks_of, why_not
from experiments.rounds.layout import (
    DISK,
    RoundHost,
    check_private,
    cluster_file_of,
    command,
    inventory_of,
    memory_bytes_of,
    placed,
    store_of,
    wanted,
    works,
)
from experiments.rounds.round_faults import ordered
from experiments.rounds.round_testbeds import RoundTestbed, seen
from experiments.rounds.round_worker import dap_of_turn
from experiments.rounds.scenario import Fault, LoadSeries, Parameters, ScenarioRound

NAMES = {
    "servers": ("u0", "u1", "u2", "e0", "e1"),
    "writers": ("wu", "we"),
    "readers": ("ru", "re", "re2"),
    "recons": ("cu",),
}
HOSTS = {
    name: RoundHost(
        name,
        (group,),
        {
            "ares_address": f"10.0.0.{number}",
            "ares_site": "E" if "e" in name else "U",
            "ares_python": "/venv/bin/py",
        },
    )
    for number, (name, group) in enumerate(
        (name, group) for group, names in NAMES.items() for name in names
    )
}

LIST = 400.78125
"""MiB of four elements of a value of 200 MiB, with k = 2."""
LIST_MOVED = 400.390625
"""MiB of four elements of a value of 100 MiB, with k = 1."""

MOVED = {
    "servers": 5,
    "parity": 2,
    "reconfigurers": 1,
    "object_size": 100 * 2**20,
    "writers": 3,
    "published": "ares",
}
"""A move from five servers to three, onto some or after crashes, makes k = 1 of k = 3."""


def round_of(protocol="ARES_EC", faults=(), **parameters):
    return ScenarioRound(
        "one", protocol, Parameters(**({"servers": 3, "parity": 1} | parameters)), {}, 1, faults
    )


def test_a_round_takes_the_first_hosts_that_do():
    layout = placed(round_of(servers=4, readers=3, reconfigurers=1), HOSTS)
    assert layout.servers == ("u0", "u1", "u2", "e0")
    assert layout.consensus == ("u0", "u1", "u2")
    assert (layout.writers, layout.readers, layout.recons) == (
        ("wu",),
        ("ru", "re", "re2"),
        ("cu",),
    )
    assert placed(round_of("ETCD"), HOSTS).consensus == ()
    assert len(placed(round_of(), HOSTS).consensus) == 1


def test_clients_are_where_the_servers_are():
    layout = placed(round_of(readers=3), HOSTS)
    assert (layout.servers, layout.readers) == (("u0", "u1", "u2"), ("ru",))


def test_a_store_without_a_password_does_not_listen_in_public():
    public = [RoundHost("p", ("servers",), {"ares_address": "8.8.8.8"})]
    check_private("ARES_EC", public)
    check_private(
        "REDIS",
        [*HOSTS.values(), RoundHost("named", ("servers",), {"ares_address": "name.example"})],
    )
    with pytest.raises(BadInput, match=r"8\.8\.8\.8 of p is public"):
        check_private("REDIS", public)


def test_a_placement_says_where_servers_and_clients_are():
    layout = placed(round_of(placement="1E+2U", client_site="E"), HOSTS)
    assert layout.servers == ("e0", "u0", "u1")
    assert (layout.writers, layout.readers) == (("we",), ("re",))


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"servers": 6}, "6 hosts are asked for as servers, and the testbed has 5"),
        (
            {"placement": "3E+0U", "client_site": "E"},
            "3 hosts are asked for as servers at site E, and the testbed has 2",
        ),
        (
            {"placement": "1E+2U", "client_site": "E", "reconfigurers": 1},
            "1 hosts are asked for as recons at site E, and the testbed has 0",
        ),
    ],
)
def test_what_a_testbed_lacks_is_told(parameters, why):
    with pytest.raises(BadInput, match=why):
        placed(round_of(**parameters), HOSTS)


def test_a_testbed_is_made_for_the_largest_of_all_rounds():
    rounds = [
        round_of(servers=11, readers=30),
        round_of(placement="5E+10U", client_site="U", reconfigurers=2),
    ]
    rounds.append(round_of(servers=5, faults=(Fault("fill", at_share=0.1, server=1),)))
    hosts = {plan.name: plan for plan in wanted(rounds, clients_per_host=20)}
    assert sum(plan.site == "U" and "servers" in plan.groups for plan in hosts.values()) == 11
    assert sum(plan.site == "E" and "servers" in plan.groups for plan in hosts.values()) == 5
    assert [name for name, plan in hosts.items() if plan.disks] == ["server1-U"]
    assert sum("readers" in plan.groups for plan in hosts.values()) == 4
    assert next(iter(hosts.values())).site == "U"


def test_every_client_works_once_and_all_but_the_creator_read_first():
    round = round_of(writers=2, readers=25, reconfigurers=2)
    layout = placed(round, HOSTS)
    given = works(round, layout, store_of(round, layout, HOSTS, "/r"), 7)
    at_work = [
        client
        for mine in given.values()
        for name, work in mine.items()
        if name.startswith("work-")
        for client in work.clients
    ]
    assert sorted(at_work) == list(range(1, 30))
    first = [
        client
        for mine in given.values()
        for name, work in mine.items()
        if name.startswith("first_read-")
        for client in work.clients
    ]
    assert sorted(first) == list(range(2, 28))
    assert [host for host, mine in given.items() if "create-create-1" in mine] == ["wu"]
    assert [host for host, mine in given.items() if "read_file-read-1" in mine] == ["ru"]
    assert max(len(work.clients) for mine in given.values() for work in mine.values()) <= 10


def test_the_inventory_has_the_hosts_and_the_task_of_each():
    round = round_of(faults=(Fault("fill", at_share=0.1, server=1),))
    layout = placed(round, HOSTS)
    made = inventory_of(
        round, layout, HOSTS, dict.fromkeys(HOSTS, "/var/lib/r"), {"round_results": "/res"}, 7
    )
    json.dumps(made)
    described = made["all"]["hosts"]
    assert set(described) == {"u0", "u1", "u2", "wu", "ru"}
    assert made["all"]["children"]["servers"]["hosts"] == {"u0": {}, "u1": {}, "u2": {}}
    assert described["u1"]["round_data_directory"].startswith(DISK)
    assert "round_data_directory" not in described["u0"]
    assert described["u0"]["round_command"] == ""
    assert (
        "/venv/bin/py -P -m experiments.rounds.round_worker < work/work-write-1.json"
        in described["wu"]["round_command"]
    )
    assert (
        json.loads(described["wu"]["round_files"]["work/work-write-1.json"])["store"]["file"]
        == "/var/lib/r/config/cluster.toml"
    )
    assert command("py -P", []) == ""


def test_stores_are_reached_by_the_addresses_of_their_hosts():
    layout = placed(round_of("REDIS_W"), HOSTS)
    assert store_of(round_of("REDIS_W"), layout, HOSTS, "/r").wait == 1
    assert store_of(round_of("REDIS"), layout, HOSTS, "/r").address == "10.0.0.0:6379"
    assert store_of(round_of("ETCD"), layout, HOSTS, "/r").endpoints == (
        "10.0.0.0:2379",
        "10.0.0.1:2379",
        "10.0.0.2:2379",
    )
    assert store_of(round_of("CASSANDRA"), layout, HOSTS, "/r").nodes[2] == ("10.0.0.2", 9042)


def test_faults_come_in_the_order_of_their_times():
    faults = (Fault("crash", at_share=0.5), Fault("slow", at_s=2.0), Fault("join", at_share=0.9))
    assert [(at_s, fault.event) for at_s, fault in ordered(faults, 10.0)] == [
        (2.0, "slow"),
        (5.0, "crash"),
        (9.0, "join"),
    ]
    with pytest.raises(ValueError, match="at_share or at_s"):
        Fault("crash")


def test_hosts_of_an_inventory_keep_their_order():
    tree = {
        "_meta": {
            "hostvars": {"b": {"ares_address": "10.0.0.2"}, "a": {"ansible_host": "10.0.0.1"}}
        },
        "all": {"children": ["servers"]},
        "servers": {"hosts": ["b", "a"]},
        "consensus": {"hosts": ["b"]},
        "controller": {"hosts": ["localhost"]},
    }
    hosts = seen(tree)
    assert list(hosts) == ["b", "a"]
    assert hosts["b"].groups == ("servers", "consensus")
    assert [host.address for host in hosts.values()] == ["10.0.0.2", "10.0.0.1"]


def test_another_store_has_its_own_first_steps():
    assert playbooks_of("ARES_EC")[:2] == ["round_1_reset", "round_2_create"]
    assert playbooks_of("REDIS_W")[:2] == ["round_1_reset_redis", "round_2_create_redis"]
    assert playbooks_of("ETCD", reserved=True)[0] == "round_program"


@pytest.mark.parametrize(
    ("round", "testbed", "why"),
    [
        (
            round_of("ETCD", object_size=8 * 2**20),
            "local",
            "etcd takes values of 1568768 bytes at most, and 8388608 are asked for",
        ),
        (
            round_of(placement="1E+2U", client_site="U"),
            "processes",
            "several sites need hosts with networks of their own: testbed local",
        ),
        (
            round_of(faults=(Fault("fill", at_share=0.1),)),
            "processes",
            "testbed processes does not fill: testbed local does",
        ),
        (round_of(faults=(Fault("cut", at_share=0.1),)), "aws", "testbed aws does not cut"),
        (round_of(rate_mbit=1.0), "processes", "testbed processes limits no rate"),
        (
            round_of("ARES_ABD", object_size=2**31),
            "local",
            "a value of ares has at most 1073741824 bytes, and 2147483648 are asked for",
        ),
    ],
)
def test_what_cannot_be_carried_out_says_why(round, testbed, why):
    assert why in str(why_not(round, testbed))
    assert why_not(round_of(faults=(Fault("crash", at_share=0.5),)), testbed) is None


def test_a_file_may_be_larger_than_a_value_and_its_blocks_may_not():
    assert why_not(round_of("COARES_EC_F", object_size=2**31), "local") is None
    blocks = round_of("COARES_EC_F", object_size=2**31, block_max=2**31)
    assert "a value of ares" in str(why_not(blocks, "local"))


@pytest.mark.parametrize(
    ("protocol", "parameters", "why"),
    [
        ("ARES_EC", {"published": "ares"}, None),
        ("ARES_ABD", {"published": "ares2", "switches": ("piggyback", "optimised")}, None),
        ("ABD", {"published": "ares2"}, None),
        ("ABD", {"published": "abd"}, None),
        ("ARES_EC", {"published": "ares", "pending": 2, "fresh_after_s": 9.0}, None),
        ("ARES_EC", {"published": "ares", "pending": 2}, "pending moves come before all reads"),
        ("ARES_EC", {"pending": 2}, "a reconfigurer of today's ares finishes each move"),
        ("COARES_ABD_F", {"published": "ares2", "switches": ("gc",)}, None),
        ("COARES_EC", {"published": "ares"}, None),
        ("COARES_EC", {"published": "abd"}, "plain ABD is protocol ABD, and not COARES_EC"),
        ("COARES_MIXED_F", {"published": "ares", "reconfigurers": 1, "switches": ()}, None),
        (
            "COARES_MIXED_F",
            {"published": "ares2", "reconfigurers": 1, "switches": ("piggyback",)},
            None,
        ),
        ("ARES_EC", {"published": "abd"}, "plain ABD is protocol ABD, and not ARES_EC"),
        ("ARES_ABD", {"published": "ares2"}, "ARES II as printed has no switch fast_read"),
        (
            "ARES_EC",
            {"published": "ares2", "switches": ("gc",), "reconfigurers": 1},
            "gc needs the piggyback: else a read asks a collected configuration",
        ),
        ("ARES_EC", {"published": "ares2", "switches": ("gc",)}, None),
        (
            "ARES_EC",
            {"published": "ares2", "switches": ("piggyback", "gc"), "reconfigurers": 1},
            None,
        ),
        (
            "ARES_EC",
            {"published": "ares", "load": LoadSeries(clients_max=1000)},
            None,
        ),
        (
            "ARES_EC",
            {"published": "ares", "load": LoadSeries(clients_max=1001)},
            "1001 clients write at once, and delta is 1000 at most",
        ),
        ("ABD", {"published": "abd", "load": LoadSeries(clients_max=1001)}, None),
        (
            "ARES_EC",
            {"published": "ares", "writers": 3, "object_size": 600 * 2**20},
            "a server sends its whole List, 4 elements of 1260748800 bytes in all",
        ),
    ],
)
def test_what_an_algorithm_as_published_cannot_do_is_refused(protocol, parameters, why):
    told = why_not(round_of(protocol, **parameters), "local")
    assert told is None if why is None else why in told


@pytest.mark.parametrize(
    ("protocol", "parameters", "values"),
    [
        ("ARES_ABD", {"readers": 5}, 3 + 5),
        ("ARES_ABD", {"readers": 5, "published": "ares"}, 3 + 5 * 3),
        ("ARES_EC", {"readers": 5, "writers": 3, "published": "ares"}, 6 + 5 * 6),
        ("ARES_EC", {"readers": 5, "operations": 1}, 3 + 5),
        ("COARES_EC_F", {"readers": 6}, 1.5 + 6),
        ("COARES_EC_F", {"readers": 6, "writers": 3, "published": "ares"}, 6 + 3 + 12),
        ("COARES_ABD_F", {"readers": 6, "writers": 1, "published": "ares"}, 3 + 1 + 12),
        ("ARES_MIXED", {"readers": 5, "operations": 0, "published": "ares"}, 3 + 5 * 3),
        ("ARES_EC", MOVED | {"onto": "some", "readers": 5}, 12 + 5 * 12),
    ],
)
def test_values_beyond_the_memory_of_this_machine_are_refused(
    protocol, parameters, values, monkeypatch
):
    """With k = 2 of three servers, two versions take as much as one value at each server."""
    round = round_of(protocol, **parameters | {"object_size": 2**20})
    assert memory_bytes_of(round) == int(values * 2**20)
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": int(values * 2**20 / 0.9) + 1}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert "of values" not in str(why_not(round, "local"))
    pages["SC_PHYS_PAGES"] -= 9
    assert f"hold {int(values)} MiB of values at once" in str(why_not(round, "local"))
    assert "of values" not in str(why_not(round, "aws"))


def test_the_cluster_of_a_round_as_published_is_for_it_alone(tmp_path):
    """Its c0 is the first configuration of the cluster file, with a delta of the writers."""
    assert cluster_file_of(round_of(writers=7)) == {}
    load = round_of(published="ares", load=LoadSeries(clients_max=1000))
    assert (load.parameters.delta, cluster_file_of(load)["round_delta"]) == (1000, 1000)
    assert cluster_file_of(round_of(load=LoadSeries(clients_max=1000))) == {}
    made = {
        "round_cluster_options": {"published": True, "transport": "libzmq"},
        "round_allow_no_faults": True,
    }
    ec = round_of(servers=5, parity=2, writers=7, published="ares")
    assert cluster_file_of(ec) == made | {"round_dap": "ec", "round_k": 3, "round_delta": 7}
    assert cluster_file_of(round_of("ABD", published="abd")) == made | {"round_dap": "abd"}
    one = _OneRound(ec, RoundTestbed("processes", None, tmp_path, HOSTS, {}), tmp_path, 1)
    assert one._variables(1.0).items() >= cluster_file_of(ec).items()


@pytest.mark.parametrize(
    ("protocol", "parameters", "mebibytes"),
    [
        ("ARES_EC", {"object_size": 256 * 2**20}, None),
        ("ARES_EC", {"object_size": 512 * 2**20}, 512),
        ("COARES_EC_F", {"object_size": 512 * 2**20}, None),
        ("ARES_EC", {"object_size": 200 * 2**20, "writers": 3, "published": "ares"}, LIST),
        ("ARES_MIXED", {"object_size": 200 * 2**20, "writers": 3, "published": "ares"}, LIST),
        ("ARES_ABD", {"object_size": 200 * 2**20, "writers": 3, "published": "ares"}, None),
        ("ARES_EC", MOVED, None),
        ("ARES_EC", MOVED | {"onto": "some"}, LIST_MOVED),
        ("ARES_EC", MOVED | {"onto": "some", "reconfigurers": 0}, None),
        ("ARES_EC", MOVED | {"faults": (Fault("crash", at_s=1.0),) * 2}, LIST_MOVED),
        ("ETCD", {"object_size": 512 * 2**20}, None),
    ],
)
def test_a_large_value_or_a_large_list_has_a_limit_of_its_own(protocol, parameters, mebibytes):
    made = cluster_file_of(round_of(protocol, **parameters)).get("round_cluster_options", {})
    limit = made.get("limits", {}).get("value_bytes")
    assert limit == (None if mebibytes is None else mebibytes * 2**20)


@pytest.mark.parametrize(("writers", "readers", "at_once"), [(1, 1, 4), (5, 1, 5), (5, 5, 10)])
def test_servers_have_room_for_the_large_values_of_all_clients(writers, readers, at_once):
    size = 512 * 2**20
    round = round_of("ARES_ABD", object_size=size, writers=writers, readers=readers)
    limits = cluster_file_of(round)["round_cluster_options"]["limits"]
    assert at_once * size < limits["received_bytes"] < (at_once + 1) * size
    assert at_once * size // 2 < limits["unread_bytes"] < (at_once + 1) * size // 2


class AskedLinks:
    def __init__(self):
        self.asked = []

    def delay(self, site, other, delay_ms):
        self.asked.append((site, other, delay_ms))

    def bandwidth(self, host, bits_per_s):
        self.asked.append((host, bits_per_s))


def test_links_have_the_delay_and_the_rate_for_the_time_of_a_round(tmp_path):
    round = round_of(
        servers=2, placement="1E+1U", client_site="U", delay_ms=5.0, rate_mbit=100.0, parity=0
    )
    layout, links = placed(round, HOSTS), AskedLinks()
    bed = RoundTestbed("local", links, tmp_path, HOSTS, {})
    with _OneRound(round, bed, tmp_path, 1)._links(layout):
        assert links.asked[0] == ("E", "U", 5.0)
        assert sorted(links.asked[1:]) == sorted((host, 100_000_000) for host in layout.hosts)
        del links.asked[:]
    assert links.asked[0] == ("E", "U", 0.0)
    assert sorted(links.asked[1:]) == sorted((host, None) for host in layout.hosts)


def test_reconfigurers_in_turn_alternate_the_primitives_and_begin_with_the_erasure_code():
    """Clients 12 to 15 are the reconfigurers; each moves three times."""
    moves = [dap_of_turn(number, client, 4) for number in range(3) for client in range(12, 16)]
    assert moves == ["ec", "abd"] * 6
