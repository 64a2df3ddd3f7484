"""A server's element rebuilt from other servers' elements (ares/registers/repair.py).

The result is exactly the former element, or no element.
"""

import itertools

import msgspec
import pytest

from ares.dap.coding import STRIPE_BYTES, coding_for
from ares.model.configuration import Configuration, Status, Successor
from ares.model.element import intact, sealed
from ares.model.errors import DecodeFailed, Unavailable
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import Element, PutData, WriteConfig
from ares.model.tag import Tag
from ares.registers.repair import STRIPES_AT_ONCE, rebuild_element

from ..protocol.protocol_world import ProtocolWorld, servers

EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 2).at(DEFAULT_DOMAIN, 0)
ABD = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
NEXT = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 1, EC.id)
TAG, OLDER, NEWER = Tag(5, 1), Tag(4, 1), Tag(6, 1)


def elements(configuration, tag, value):
    if configuration.dap == "abd":
        return [sealed(configuration.id, "o", tag, 0, len(value), (value,))] * configuration.n
    return [
        sealed(configuration.id, "o", tag, i, len(value), parts)
        for i, parts in enumerate(coding_for(configuration).encode(value))
    ]


class RebuildingCluster(ProtocolWorld):
    """A world in which every server has every version, except for given gaps."""

    def __init__(self, configuration, values, lacking=()):
        super().__init__(configuration, range(configuration.n))
        self.lengths = {tag: len(value) for tag, value in values.items()}
        self.truth = {tag: elements(configuration, tag, value) for tag, value in values.items()}
        for tag, truth in self.truth.items():
            for (server, replica), element in zip(self.replicas.items(), truth, strict=True):
                if (server, tag) not in lacking:
                    replica.handle(PutData(1, configuration.id, "o", tag, element))

    def rebuilt(self, own="s0", tag=TAG, **more):
        return self.client(1).run(
            rebuild_element(self.initial, "o", tag, self.lengths[tag], own, **more)
        )


VALUES = {OLDER: b"older" * 3000, TAG: b"value" * 3000, NEWER: b"newer" * 3000}


@pytest.mark.parametrize("own", EC.server_ids)
@pytest.mark.parametrize("tag", VALUES)
def test_a_rebuilt_element_equals_the_lost_element(own, tag):
    """This includes the version before the newest; the newest version stays the same."""
    world = RebuildingCluster(EC, VALUES, {(own, tag)})
    assert world.rebuilt(own, tag) == world.truth[tag][EC.server_ids.index(own)]


@pytest.mark.parametrize("own", ABD.server_ids)
def test_a_replica_is_what_another_has(own):
    world = RebuildingCluster(ABD, {TAG: b"value"}, {(own, TAG)})
    assert world.rebuilt(own) == world.truth[TAG][0]


@pytest.mark.parametrize(
    "length", [1, STRIPE_BYTES, STRIPE_BYTES + 1, (STRIPES_AT_ONCE + 1) * STRIPE_BYTES + 5]
)
def test_a_large_one_some_stripes_at_a_time(length):
    world = RebuildingCluster(
        EC, {TAG: bytes(range(256)) * (length // 256) + b"x" * (length % 256)}, {("s0", TAG)}
    )
    assert world.rebuilt() == world.truth[TAG][0]


@pytest.mark.parametrize("lacking", list(itertools.combinations(["s1", "s2", "s3", "s4"], 2)))
def test_an_element_is_not_rebuilt_from_too_few_others(lacking):
    world = RebuildingCluster(EC, VALUES, {(server, TAG) for server in ("s0", *lacking)})
    assert world.rebuilt() is None
    assert world.rebuilt("s0", OLDER) == world.truth[OLDER][0]


@pytest.mark.parametrize("lacking", ["s1", "s4"])
def test_one_of_the_others_lacks_it(lacking):
    world = RebuildingCluster(EC, VALUES, {("s0", TAG), (lacking, TAG)})
    assert world.rebuilt() == world.truth[TAG][0]


def test_a_silent_one_is_not_needed_and_two_are():
    world = RebuildingCluster(EC, VALUES, {("s0", TAG)})
    world.down = {"s2"}
    assert world.rebuilt(suspects={"s1"}) == world.truth[TAG][0]
    world.down = {"s2", "s3"}
    with pytest.raises(Unavailable):
        world.rebuilt()


def test_what_is_not_intact_is_not_taken(monkeypatch):
    world = RebuildingCluster(EC, VALUES, {("s0", TAG)})
    hosting = world.replicas["s1"].hosted[EC.id]
    hosting.objects.replace("o", TAG, world.truth[NEWER][1])
    monkeypatch.setattr("ares.replica.configuration_state.intact", lambda *_: True)
    assert world.rebuilt() == world.truth[TAG][0]
    monkeypatch.setattr("ares.registers.repair.intact", lambda *_: True)
    assert world.rebuilt() != world.truth[TAG][0], "negative control"


def test_a_finalized_successor_has_the_data():
    world = RebuildingCluster(EC, VALUES, {("s0", TAG)})
    world.replicas["s2"].handle(WriteConfig(1, EC.id, Successor(NEXT, Status.PENDING)))
    assert world.rebuilt() == world.truth[TAG][0]
    world.replicas["s2"].handle(WriteConfig(1, EC.id, Successor(NEXT, Status.FINALIZED)))
    assert world.rebuilt() is None


def test_elements_that_fit_no_value():
    """The writer sealed them in this form."""
    world = RebuildingCluster(EC, {}, ())
    world.lengths[TAG] = 20
    for server, replica in world.replicas.items():
        odd = sealed(EC.id, "o", TAG, EC.server_ids.index(server), 20, (b"x" * 10,))
        replica.handle(PutData(1, EC.id, "o", TAG, odd))
    with pytest.raises(DecodeFailed):
        world.rebuilt()


def test_a_repair_asks_for_no_more_than_it_needs():
    world = RebuildingCluster(EC, VALUES, {("s0", TAG)})
    asked = []
    world.watch = lambda source, target, message: (
        asked.append(target) if hasattr(message, "wanted") else None
    )
    element = world.rebuilt()
    assert isinstance(element, Element)
    assert len(asked) == EC.k
    assert "s0" not in asked
    assert intact(EC.id, "o", TAG, msgspec.structs.replace(element, frame=-1))
