"""Scenarios as files: each is complete, and its rounds follow the tables."""

import pytest

from ares.model.configuration import DELTA_DEFAULT
from ares.model.errors import BadInput
from experiments.rounds.scenario import (
    OF_ARES,
    ROUND_PROTOCOLS,
    SCALES,
    Parameters,
    protocols_of,
    scenarios,
)

WHOLE = """
title = "A title"
seen_in = "somewhere"
protocols = ["ABD", "ETCD"]
[fixed]
readers = [1, 2]
operations = 3
[parity]
3 = 1
11 = 5
[quick]
servers = [3, 11]
[paper]
iterations = 2
servers = 3
readers = 7
"""


def written(directory, text):
    (directory / "one.toml").write_text(text)
    return scenarios(directory)["one"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", scenarios())
def test_the_rounds_of_a_scenario_differ_in_their_names(name, scale):
    rounds = list(scenarios()[name].rounds(scale))
    assert rounds
    assert len({round.name for round in rounds}) == len(rounds)
    assert all(len(round.name) < 200 and "/" not in round.name for round in rounds)
    of_others = [round for round in rounds if round.protocol not in OF_ARES and round.faults]
    assert all(round.parameters.bad != "nobody" for round in of_others)
    assert not any(
        round.protocol in OF_ARES and fault.server == "leader"
        for round in rounds
        for fault in round.faults
    )


def test_all_quick_rounds_take_less_than_half_an_hour():
    assert (
        sum(
            round.expected_s
            for scenario in scenarios().values()
            for round in scenario.rounds("quick")
        )
        < 30 * 60
    )


def test_a_list_varies_and_the_scale_wins(tmp_path):
    scenario = written(tmp_path, WHOLE)
    assert scenario.varies("quick") == {"readers": [1, 2], "servers": [3, 11]}
    quick = [
        (
            round.protocol,
            round.parameters.readers,
            round.parameters.servers,
            round.parameters.parity,
        )
        for round in scenario.rounds("quick")
    ]
    assert quick == [
        (protocol, readers, servers, m)
        for readers in (1, 2)
        for servers, m in ((3, 1), (11, 5))
        for protocol in ("ABD", "ETCD")
    ]
    paper = list(scenario.rounds("paper", ["ETCD"]))
    assert [(round.name, round.iteration, round.parameters.readers) for round in paper] == [
        ("ETCD_1", 1, 7),
        ("ETCD_2", 2, 7),
    ]


def test_todays_ares_stands_beside_the_algorithm_as_published(tmp_path):
    """Another store has one round, and an algorithm without switches has one for all of them."""
    table = 'published = ["ares", ""]\nswitches = [["gc"], ["batch"]]\nwriters = 3\n'
    scenario = written(tmp_path, WHOLE.replace("operations = 3", table))
    named = {
        round.name: (round.parameters.published, round.parameters.switches, round.parameters.delta)
        for round in scenario.rounds("quick")
        if round.parameters.readers == 1 and round.parameters.servers == 3
    }
    assert named == {
        "ABD_readers-1_published-ares_switches-_servers-3_1": ("ares", (), 3),
        "ABD_readers-1_switches-gc_servers-3_1": ("", ("gc",), DELTA_DEFAULT),
        "ABD_readers-1_switches-batch_servers-3_1": ("", ("batch",), DELTA_DEFAULT),
        "ETCD_readers-1_switches-gc_servers-3_1": ("", ("gc",), DELTA_DEFAULT),
        "ETCD_readers-1_switches-batch_servers-3_1": ("", ("batch",), DELTA_DEFAULT),
    }


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("operations = 3", "operations = 'x'", "operations"),
        ("operations = 3", "operationz = 3", "operationz"),
        ('"ABD", ', '"ABC", ', "ABC"),
        ("operations = 3", "published = 'ares3'", "'ares3' is no algorithm that was transcribed"),
        ("3 = 1", "3 = 3", "parity 3 with 3 servers"),
        ("[quick]", "[quick", "one.toml"),
        ('title = "A title"', "", "title"),
    ],
)
def test_a_file_that_is_no_scenario_says_why(tmp_path, old, new, why):
    with pytest.raises(BadInput, match=why):
        written(tmp_path, WHOLE.replace(old, new))


def test_protocols_are_chosen_by_name_or_family():
    assert protocols_of(None) == ()
    assert protocols_of("ABD,ARES,ABD") == OF_ARES
    assert protocols_of("RedisW,etcd") == ("REDIS_W", "ETCD")
    with pytest.raises(BadInput, match="no protocol 'Mongo'"):
        protocols_of("Mongo")
    assert set(OF_ARES) < set(ROUND_PROTOCOLS)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("[fixed.load]\nkeys = 5\nwritten = 6", "no more written keys than keys"),
        ("[fixed.load]\nclients = 0", "above 0"),
        ("[fixed.load]\noffered = [-1.0]", "above 0"),
        ("[fixed.load]\nkeyz = 5", "keyz"),
        ("[fixed]\nbad = 'killed leader'", "bad = 'killed leader' is for a load"),
        ("[fixed]\narrivals = 'open'\ninterval_s = 0.0", "open arrivals need an interval_s"),
        ("[fixed]\nread_share = 1.5", "read_share is from 0 to 1, not 1.5"),
    ],
)
def test_a_load_that_cannot_be_is_refused(tmp_path, table, why):
    text = f"title = ''\nseen_in = ''\nprotocols = ['ABD']\n[quick]\n[paper]\n{table}\n"
    with pytest.raises(BadInput, match=why):
        written(tmp_path, text)


def test_the_bad_server_is_a_fault_of_the_round_and_ares_has_no_leader(tmp_path):
    head = (
        "title = ''\n"
        "seen_in = ''\n"
        "protocols = ['ABD', 'ETCD']\n"
        "[paper]\n"
        "[quick]\n"
        "bad = ['nobody', 'killed replica', 'slowed leader']\n"
        "[fixed.load]\n"
    )
    rounds = list(written(tmp_path, head).rounds("quick"))
    assert [(round.protocol, round.parameters.bad) for round in rounds] == [
        *(
            ("ABD", "nobody"),
            ("ETCD", "nobody"),
            ("ABD", "killed replica"),
            ("ETCD", "killed replica"),
            ("ETCD", "slowed leader"),
        )
    ]
    assert [[(fault.event, fault.server) for fault in round.faults] for round in rounds] == [
        *([], [], [("crash", "replica")], [("crash", "replica")], [("slow", "leader")])
    ]
    assert rounds[-1].name == "ETCD_bad-slowed-leader_1"
    with pytest.raises(BadInput, match="no load can be made for COARES_EC"):
        written(tmp_path, head.replace("'ABD'", "'COARES_EC'"))


def test_values_of_algorithms_as_published_have_time_for_their_link():
    point = {"operations": 10, "object_size": 12_500_000, "rate_mbit": 1000.0}
    abd = Parameters(servers=5, published="ares", **point)
    assert abd.published_s == pytest.approx(2 * 10 * (2 * 5) * 0.1)
    code = Parameters(servers=11, parity=9, writers=5, readers=1, published="ares", **point)
    assert code.published_s == pytest.approx(6 * 10 * (5 + 2) * 11 / 2 * 0.1)
    assert abd.work_s == abd.expected_s + abd.published_s
    assert Parameters(servers=5, **point).published_s == 0.0


def test_how_long_the_work_takes():
    assert Parameters(operations=10, interval_s=2.0).expected_s == pytest.approx(10.2, abs=0.01)
    large = Parameters(operations=10, interval_s=2.0, object_size=150_000_000)
    assert large.expected_s == pytest.approx(30.2, abs=0.01)
    assert (
        Parameters(
            operations=1,
            interval_s=1.0,
            reconfigurers=1,
            reconfigurations=3,
            reconfigure_every_s=4.0,
        ).expected_s
        == 12.0
    )
