"""Configurations: parameters, quorums, names and places (ares/model/configuration.py)."""

import itertools

import pytest

from ares.model.configuration import (
    DELTA_MAX,
    SERVERS_MAX,
    Configuration,
    Server,
    Status,
    Successor,
)
from ares.model.errors import BadInput, ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN

THREE = ["s0", "s1", "s2"]
FIVE = ["s0", "s1", "s2", "s3", "s4"]


@pytest.mark.parametrize(
    ("configuration", "quorum", "crashes"),
    [
        (Configuration.abd(THREE), 2, 1),
        (Configuration.abd(FIVE), 3, 2),
        (Configuration.abd([f"s{n}" for n in range(4)]), 3, 1),
        (Configuration.ec(FIVE, 3), 4, 1),
        (Configuration.ec([f"s{n}" for n in range(11)], 6), 9, 2),
        (Configuration.ec(THREE, 2, allow_no_faults=True), 3, 0),
        (Configuration.ec(THREE, 1), 2, 1),
    ],
)
def test_examples_of_the_papers(configuration, quorum, crashes):
    assert (configuration.quorum_size, configuration.crashes_survived) == (quorum, crashes)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Configuration.abd([]), "1 to 32 servers, not 0"),
        (
            lambda: Configuration.abd([f"s{n}" for n in range(SERVERS_MAX + 1)]),
            "1 to 32 servers, not 33",
        ),
        (lambda: Configuration.abd(["s0", "s1", "s0"]), "s0 is named twice"),
        (lambda: Configuration.ec(THREE, 0), "1 <= k < 3, not k = 0"),
        (lambda: Configuration.ec(THREE, 3), "1 <= k < 3, not k = 3"),
        (
            lambda: Configuration.ec(FIVE, 3, 0),
            "delta, the number of writers at once, must be from 1 to 1000, not 0",
        ),
        (lambda: Configuration.ec(FIVE, 3, DELTA_MAX + 1), "must be from 1 to 1000, not 1001"),
        (lambda: Configuration.ec(FIVE, 3, backend="isa_l_rs_vand"), "isa_l_rs_vand is refused"),
        (
            lambda: Configuration.ec(FIVE, 3, backend="no_such_code"),
            "backend 'no_such_code' is not one of isa_l_rs_cauchy, ",
        ),
        (
            lambda: Configuration.ec(FIVE, 3, backend="flat_xor_hd_3"),
            "with other codes k elements may not rebuild the value",
        ),
        (
            lambda: Configuration("ec", (Server("s0"), Server("s1")), delta=1),
            "backend '' is not one of",
        ),
        (lambda: Configuration("abd", (Server("s0"),), k=2), "ABD replicates whole values"),
        (lambda: Configuration("abd", (Server("s0"),), delta=2), "ABD replicates whole values"),
        (lambda: Configuration("abd", (Server("s0"),), backend="x"), "ABD replicates whole values"),
    ],
)
def test_impossible_parameters_are_refused(make, why):
    with pytest.raises(BadInput, match=why):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: Configuration.abd(THREE[:2], **more),
        lambda **more: Configuration.ec(THREE, 2, **more),
    ],
)
def test_one_that_survives_no_crash_must_be_asked_for(make):
    with pytest.raises(ConfigurationRefused, match="one crash stops it"):
        make()
    assert make(allow_no_faults=True).crashes_survived == 0


def test_the_id_covers_place_and_content():
    base = Configuration.ec([Server("s0", "h:1", "a"), *FIVE[1:]], 3, 4).at("d", 1)
    variants = [
        base,
        base.at("d", 2),
        base.at("e", 1),
        base.at("d", 1, b"c0 of a cluster"),
        Configuration.ec([Server("s0", "h:1", "a"), *FIVE[1:]], 2, 4).at("d", 1),
        Configuration.ec([Server("s0", "h:1", "a"), *FIVE[1:]], 3, 5).at("d", 1),
        Configuration.ec([Server("s0", "h:1", "a"), *FIVE[1:]], 3, 4, "liberasurecode_rs_vand").at(
            "d", 1
        ),
        Configuration.ec([Server("s0", "h:1", "b"), *FIVE[1:]], 3, 4).at("d", 1),
        Configuration.ec([Server("s0", "h:2", "a"), *FIVE[1:]], 3, 4).at("d", 1),
        Configuration.ec([*FIVE[1:], Server("s0", "h:1", "a")], 3, 4).at("d", 1),
        Configuration.abd([Server("s0", "h:1", "a"), *FIVE[1:]]).at("d", 1),
    ]
    for one, other in itertools.combinations(variants, 2):
        assert one.id != other.id
    assert len(base.id) == 16
    assert base.id == base.at("x", 9).at("d", 1).id


def test_content_is_compared_without_place():
    one = Configuration.abd(THREE)
    assert one.same_content(one.at("elsewhere", 7))
    assert not one.same_content(Configuration.abd(FIVE))


def test_addresses_and_identities_come_from_the_book():
    book = {name: Server(name, f"{name}:1", "i" + name) for name in FIVE}
    own = Server("new", "elsewhere:2", "x")
    resolved = Configuration.abd([*THREE, own]).resolved(book)
    assert resolved.servers == (*(book[name] for name in THREE), own)
    with pytest.raises(BadInput, match=r"unknown server s8, s9; known: s0, s1"):
        Configuration.abd(["s9", "s0", "s8"][::-1]).resolved(book)
    with pytest.raises(BadInput, match="known: none"):
        Configuration.abd(THREE).resolved({})


def test_a_line_for_a_person():
    assert (
        Configuration.ec(FIVE, 3).describe()
        == "EC n=5 k=3 delta=8 on s0,s1,s2,s3,s4; quorum 4, survives 1 crash"
    )
    assert (
        Configuration.abd(FIVE).describe()
        == "ABD n=5 on s0,s1,s2,s3,s4; quorum 3, survives 2 crashes"
    )


def test_a_place_keeps_the_content():
    placed = Configuration.ec(FIVE, 3, 4).at("d", 2)
    assert (placed.domain, placed.index, placed.k, placed.delta, placed.server_ids) == (
        "d",
        2,
        3,
        4,
        tuple(FIVE),
    )
    assert Configuration.ec(FIVE, 3).domain == DEFAULT_DOMAIN


def test_c0_names_the_cluster_of_all_that_come_after_it():
    first = Configuration.abd(THREE).at(DEFAULT_DOMAIN, 0)
    assert (first.cluster, first.cluster_id) == (b"", first.id)
    second = Configuration.ec(FIVE, 3).at("d", 1, first.id)
    assert (second.cluster, second.cluster_id, second.at("d", 2, second.cluster_id).cluster_id) == (
        first.id,
    ) * 3
    assert second.at("d", 1).cluster_id not in (first.id, second.id)


@pytest.mark.parametrize("delta", [1, DELTA_MAX])
def test_the_ends_of_the_range_of_delta(delta):
    assert Configuration.ec(FIVE, 3, delta).delta == delta


def test_a_successor_tells_whether_it_is_finalized():
    placed = Configuration.abd(THREE).at("d", 2)
    assert Successor(placed, Status.FINALIZED).finalized
    assert not Successor(placed, Status.PENDING).finalized
