"""Servers that the nemesis may hurt.

A lost life counts until a reconfiguration has admitted the server again.
"""

import pytest

from ares.model.configuration import Configuration, Server
from ares.model.identity import ServerId
from ares.testing.torture.nemesis import NemesisLedger
from ares.testing.torture.records import WishInstalled

NAMES = [ServerId(f"s{number}") for number in range(5)]


def identities(life: int = 1) -> dict[ServerId, str]:
    return {name: f"{name}/{life}" for name in NAMES}


def configuration(
    names: list[str], index: int, ids: dict[ServerId, str] | None = None
) -> Configuration:
    known = ids or identities()
    return Configuration.abd(
        [Server(ServerId(name), "h:1", known[ServerId(name)]) for name in names]
    ).at("default", index)


@pytest.fixture
def ledger() -> NemesisLedger:
    return NemesisLedger(configuration(["s0", "s1", "s2"], 0), identities(), ["r0", "r1", "r2"])


def done(config: Configuration, announced: bool = True) -> WishInstalled:
    return WishInstalled(config, True, 0, announced)


def test_no_more_than_f_servers_of_a_configuration(ledger):
    assert ledger.may_hurt("s0")
    ledger.hurt("s0", "stopped")
    assert not ledger.may_hurt("s0")
    assert not ledger.may_hurt("s1")
    assert ledger.may_hurt("s3"), "it is in no configuration"
    ledger.recovered("s0")
    assert ledger.may_hurt("s1")


def test_a_new_life_stays_lost_to_the_configuration_that_names_the_old_one(ledger):
    ledger.hurt("s0", "dead")
    ledger.recovered("s0", "s0/2")
    assert not ledger.may_hurt("s1")
    assert ledger.may_hurt("s0"), "it is lost there already: killing it again costs nothing"
    wished = configuration(["s0", "s1", "s2"], -1)
    ledger.wished(1, wished)
    ledger.done(1, done(configuration(["s0", "s1", "s2"], 1, identities() | {"s0": "s0/2"})))
    assert ledger.may_hurt("s1")
    assert ledger.in_use[0].index == 1


def test_a_wish_counts_as_soon_as_it_is_made_and_until_it_is_known_what_became_of_it(ledger):
    ledger.wished(1, configuration(["s2", "s3", "s4"], -1))
    ledger.hurt("s3", "dead")
    assert not ledger.may_hurt("s4")
    ledger.left(1)
    ledger.recovered("s3", "s3/2")
    assert not ledger.may_hurt("s4"), "it may be decided, and names the old s3"
    ledger.wished(2, configuration(["s0", "s3", "s4"], -1))
    ledger.done(2, done(configuration(["s0", "s3", "s4"], 2, identities() | {"s3": "s3/2"})))
    assert ledger.may_hurt("s4")
    assert len(ledger.in_use) == 1


def test_a_wish_that_was_refused_counts_no_more(ledger):
    ledger.wished(1, configuration(["s2", "s3", "s4"], -1))
    ledger.refused(1)
    assert len(ledger.in_use) == 1


def test_a_rival_that_ended_after_an_attempt_began_still_counts(ledger):
    ledger.wished(1, configuration(["s2", "s3", "s4"], -1))
    ledger.wished(2, configuration(["s0", "s1", "s3"], -1))
    ledger.left(1)
    ledger.done(2, done(configuration(["s0", "s1", "s3"], 1)))
    assert len(ledger.in_use) == 2


def test_without_an_announcement_the_old_configuration_stays_in_use(ledger):
    ledger.wished(1, configuration(["s2", "s3", "s4"], -1))
    ledger.done(1, done(configuration(["s2", "s3", "s4"], 1), announced=False))
    ledger.hurt("s0", "dead")
    assert not ledger.may_hurt("s1")
    ledger.wished(2, configuration(["s2", "s3", "s4"], -1))
    ledger.done(2, done(configuration(["s2", "s3", "s4"], 1), announced=True))
    assert ledger.may_hurt("s1")


def test_an_older_result_that_comes_late_changes_nothing(ledger):
    ledger.wished(1, configuration(["s2", "s3", "s4"], -1))
    ledger.wished(2, configuration(["s1", "s3", "s4"], -1))
    ledger.done(2, done(configuration(["s1", "s3", "s4"], 2)))
    ledger.done(1, done(configuration(["s2", "s3", "s4"], 1)))
    assert [each.index for each in ledger.in_use] == [2]


def test_what_was_announced_is_in_use_beside_what_was_finalized_after_it_and_not_announced(ledger):
    ledger.wished(1, configuration(["s2", "s3", "s4"], -1))
    ledger.wished(2, configuration(["s1", "s3", "s4"], -1))
    ledger.done(2, done(configuration(["s1", "s3", "s4"], 2), announced=False))
    ledger.done(1, done(configuration(["s2", "s3", "s4"], 1)))
    assert [each.index for each in ledger.in_use] == [2, 1]


def test_never_more_than_a_minority_of_the_consensus_members(ledger):
    assert ledger.may_hurt("r0")
    ledger.hurt("r0", "dead")
    assert not ledger.may_hurt("r1")
    assert not NemesisLedger(
        configuration(["s0", "s1", "s2"], 0), identities(), ["r0", "r1"]
    ).may_hurt("r0")
