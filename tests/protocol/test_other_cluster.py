"""A consensus service with the journals of another cluster.

Its decisions and hints are never taken for decisions of this cluster.
"""

import pytest

from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused, Unavailable
from ares.model.identity import DEFAULT_DOMAIN
from ares.reconfig.reconfigure import reconfigure
from ares.reconfig.view import View
from ares.registers.operations import read, write
from tests.protocol.protocol_world import ProtocolWorld, servers

ABD = Configuration.abd(servers(0, 1, 2))
EC = Configuration.ec(servers(2, 3, 4, 5, 6), 3, 2)
LATER = Configuration.abd(servers(4, 5, 6))
C0 = ABD.at(DEFAULT_DOMAIN, 0)
OTHER = EC.at(DEFAULT_DOMAIN, 0)


@pytest.fixture
def world():
    return ProtocolWorld(C0, range(7))


def state(world):
    """Return the state of every server."""
    return {
        name: [hosting.describe() for hosting in replica.hosted.values()]
        for name, replica in world.replicas.items()
    }


@pytest.mark.parametrize(
    "decided",
    [
        LATER.at(DEFAULT_DOMAIN, 1, OTHER.id),
        LATER.at(DEFAULT_DOMAIN, 2, C0.id),
        LATER.at("photos", 1, C0.id),
        OTHER,
    ],
    ids=["other cluster", "other index", "other domain", "other c0"],
)
def test_a_decision_of_another_place_or_cluster_is_refused_and_changes_nothing(world, decided):
    client = world.client()
    tag = client.run(write(client.view, "k", b"v"))
    world.decisions.decide(DEFAULT_DOMAIN, 1, decided, 99)
    while world.step():
        pass
    before = state(world)
    with pytest.raises(ConfigurationRefused, match=r"of another cluster.*Nothing was changed"):
        client.run(reconfigure(client.view, LATER))
    while world.step():
        pass
    assert state(world) == before
    assert client.view.sequence.last_known == C0
    assert client.run(read(client.view, "k")).tag == tag


def test_a_decision_of_this_cluster_by_another_client_is_completed(world):
    """The control: the same decision, with the right cluster and place."""
    client = world.client()
    world.decisions.decide(DEFAULT_DOMAIN, 1, EC.at(DEFAULT_DOMAIN, 1, C0.id), 99)
    result = client.run(reconfigure(client.view, LATER))
    assert (result.configuration, result.ours) == (EC.at(DEFAULT_DOMAIN, 1, C0.id), False)


@pytest.mark.parametrize(
    "down", [set(), {"s0", "s1", "s2"}], ids=["servers answer", "servers are silent"]
)
def test_a_hint_of_another_cluster_is_ignored(world, down):
    client = world.client()
    tag = client.run(write(client.view, "k", b"v"))
    world.decisions.tell_finalized(DEFAULT_DOMAIN, 3, LATER.at(DEFAULT_DOMAIN, 3, OTHER.id))
    world.down, seen = down, []
    world.watch = lambda source, target, message: (
        seen.append(target) if target in LATER.server_ids else None
    )
    pending = client.start(read(client.view, "k"), timeout_s=3)
    client.session.hinted(DEFAULT_DOMAIN, world.decisions.hint(DEFAULT_DOMAIN), world.now)
    world.until(lambda: pending.ended)
    if down:
        with pytest.raises(Unavailable, match="configuration 0 of domain 'default'"):
            pending.result()
    else:
        assert pending.result().tag == tag
    assert client.view.sequence.last_finalized == C0
    assert seen == []


def test_a_hint_of_this_cluster_is_followed(world):
    """The control: the same hint, with the right cluster."""
    client, mover = world.client(), world.client()
    mover.run(write(mover.view, "k", b"v"))
    mover.run(reconfigure(mover.view, LATER))
    world.down = {"s0", "s1", "s2"}
    assert client.run(read(client.view, "k"), timeout_s=3).value == b"v"
    assert client.view.sequence.last_finalized == LATER.at(DEFAULT_DOMAIN, 1, C0.id)


def test_servers_refuse_the_domains_of_another_cluster(world):
    client = world.client()
    before = state(world)
    photos = View(client.id, LATER.at("photos", 0, OTHER.id), client.view.switches)
    with pytest.raises(ConfigurationRefused, match="is this the right cluster file"):
        client.run(write(photos, "k", b"v"))
    assert state(world) == before
