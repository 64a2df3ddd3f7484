"""Versioned objects over the replicas, without I/O (CoARES; ares/registers/coverable.py).

See ARES II section 3, Extension 1.
"""

import itertools

import pytest

from ares.model.configuration import Configuration
from ares.model.errors import Unavailable
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import PutData
from ares.model.tag import TAG_ZERO, Tag
from ares.model.value import TOMBSTONE
from ares.reconfig.view import Switches
from ares.registers.coverable import (
    CoverableResult,
    create,
    cvr_read,
    cvr_write,
    read_versioned,
    write_versioned,
)
from ares.registers.operations import delete, read, write
from tests.protocol.protocol_world import ProtocolWorld, servers

ALL_SWITCHES = [
    Switches(piggyback, True, True, fast, optimised)
    for piggyback, fast, optimised in itertools.product([True, False], repeat=3)
]
"""All switches of a client; gc and batch belong to the reconfigurer."""

ABD = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 2).at(DEFAULT_DOMAIN, 0)
INITIALS = [ABD, EC]
both = pytest.mark.parametrize("initial", INITIALS, ids=["abd", "ec"])
every = pytest.mark.parametrize("switches", ALL_SWITCHES, ids=str)

LARGE = b"0123456789" * 10_000


@both
@every
def test_a_version_is_covered_once(initial, switches):
    world = ProtocolWorld(initial, range(5))
    one, other = world.client(switches), world.client(switches)
    found = one.run(read_versioned(one.view, "k"))
    assert (found.tag, found.value) == (TAG_ZERO, TOMBSTONE)
    first = one.run(write_versioned(one.view, "k", b"first", found.tag))
    assert first == CoverableResult(True, Tag(1, 1), b"first", TAG_ZERO)
    refused = other.run(write_versioned(other.view, "k", b"late", found.tag))
    assert refused == CoverableResult(False, first.tag, b"first"), "turned into a read"
    second = other.run(write_versioned(other.view, "k", b"second", refused.tag))
    assert second == CoverableResult(True, Tag(2, 2), b"second", first.tag)
    assert one.run(write_versioned(one.view, "k", b"stale", first.tag)) == CoverableResult(
        False, second.tag, b"second"
    )
    for client in (one, other):
        found = client.run(read_versioned(client.view, "k"))
        assert (found.tag, found.value, found.length) == (second.tag, b"second", 6)
        assert client.run(read(client.view, "k")).value == b"second"


@both
@every
def test_nothing_is_a_version_too(initial, switches):
    """`None`: the object is absent, whether never written or deleted."""
    world = ProtocolWorld(initial, range(5))
    client = world.client(switches)
    made = client.run(write_versioned(client.view, "k", b"made", None))
    assert made.changed
    assert client.run(write_versioned(client.view, "k", b"again", None)) == CoverableResult(
        False, made.tag, b"made"
    )
    gone = client.run(delete(client.view, "k"))
    assert client.run(
        write_versioned(client.view, "k", b"over what is gone", made.tag)
    ) == CoverableResult(False, gone, TOMBSTONE)
    found = client.run(read_versioned(client.view, "k"))
    assert (found.tag, found.value) == (gone, TOMBSTONE)
    anew = client.run(write_versioned(client.view, "k", b"anew", None))
    assert (anew.changed, anew.base) == (True, gone), "what None stood for"
    assert anew.tag > gone


@both
@every
def test_a_tombstone_is_a_version_like_any_other(initial, switches):
    world = ProtocolWorld(initial, range(5))
    one, other = world.client(switches), world.client(switches)
    made = one.run(write_versioned(one.view, "k", b"made", None))
    gone = one.run(write_versioned(one.view, "k", TOMBSTONE, made.tag))
    assert (gone.changed, gone.value) == (True, TOMBSTONE)
    assert other.run(write_versioned(other.view, "k", TOMBSTONE, made.tag)) == CoverableResult(
        False, gone.tag, TOMBSTONE
    )
    for client in (one, other):
        for _ in range(2):
            found = client.run(read_versioned(client.view, "k"))
            assert (found.tag, found.value) == (gone.tag, TOMBSTONE)
            assert client.run(cvr_read(client.view, "k", gone.tag)).value is TOMBSTONE, (
                "held or not, it has no value to withhold"
            )
    assert one.run(write_versioned(one.view, "k", b"anew", gone.tag)).changed


@both
@every
def test_an_empty_value_is_a_value(initial, switches):
    world = ProtocolWorld(initial, range(5))
    client = world.client(switches)
    made = client.run(write_versioned(client.view, "k", b"", None))
    assert client.run(write_versioned(client.view, "k", b"x", None)) == CoverableResult(
        False, made.tag, b""
    )
    assert client.run(read_versioned(client.view, "k")).value == b""


@both
@every
def test_a_version_that_never_was(initial, switches):
    """The highest version need not be the latest.

    A read with such a version gets the present version and the value.
    """
    world = ProtocolWorld(initial, range(5))
    client = world.client(switches)
    made = client.run(write(client.view, "k", LARGE))
    for never in (Tag(99, 1), Tag(1, 99), Tag(1, 0), TAG_ZERO):
        assert client.run(cvr_write(client.view, "k", b"x", never)) == CoverableResult(
            False, made, LARGE
        )
        found = client.run(cvr_read(client.view, "k", never))
        assert (found.tag, found.value) == (made, LARGE)


@both
@every
def test_a_new_object_takes_one_round(initial, switches):
    world = ProtocolWorld(initial, range(5))
    one, other = world.client(switches), world.client(switches)
    before = one.session.last_call
    tag = one.run(create(one.view, "new", LARGE))
    assert tag == Tag(1, one.id)
    assert one.session.last_call - before == (1 if switches.piggyback else 2)
    found = other.run(read_versioned(other.view, "new"))
    assert (found.tag, found.value) == (tag, LARGE)
    assert one.run(write_versioned(one.view, "new", b"x", tag)).changed


# -- unknown outcomes ------------------------------------------------------------------------------


def half_write(world, client, value, version, reach):
    """Start a versioned write that reaches the servers of ``reach``, and make it fail."""
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and target not in reach
    )
    with pytest.raises(Unavailable) as caught:
        client.run(write_versioned(client.view, "k", value, version), timeout_s=2)
    world.hold = lambda *_: False
    world.flights.clear()
    assert caught.value.may_have_taken_effect


@every
def test_after_an_unknown_outcome_a_retry_tells_what_became_of_it(switches):
    world = ProtocolWorld(ABD, range(3))
    client = world.client(switches)
    made = client.run(write_versioned(client.view, "k", b"made", None))
    half_write(world, client, b"half", made.tag, {"s0"})
    world.down = {"s1"}
    retried = client.run(write_versioned(client.view, "k", b"retried", made.tag))
    assert retried == CoverableResult(False, Tag(2, client.id), b"half"), (
        "it took effect, and the retry says so"
    )
    world.down = {"s0"}
    assert client.run(read_versioned(client.view, "k")).value == b"half"


@every
def test_after_an_unknown_outcome_that_came_to_nothing_a_retry_takes_another_version(switches):
    world = ProtocolWorld(ABD, range(3))
    client, other = world.client(switches), world.client(switches)
    made = client.run(write_versioned(client.view, "k", b"made", None))
    half_write(world, client, b"half", made.tag, {"s0"})
    world.down = {"s0"}
    retried = client.run(write_versioned(client.view, "k", b"retried", made.tag))
    assert retried == CoverableResult(True, Tag(3, client.id), b"retried", made.tag), (
        "the half-written tag must stay unique"
    )
    world.down = {"s1"}
    assert other.run(read_versioned(other.view, "k")).value == b"retried"


def test_a_created_object_of_unknown_outcome():
    world = ProtocolWorld(ABD, range(3))
    client = world.client()
    world.hold = lambda source, target, message: isinstance(message, PutData) and target != "s0"
    with pytest.raises(Unavailable):
        client.run(create(client.view, "k", b"half"), timeout_s=2)
    world.hold = lambda *_: False
    world.flights.clear()
    assert client.run(create(client.view, "k", b"again")) == Tag(2, client.id)
    assert client.run(read_versioned(client.view, "k")).value == b"again"


def test_concurrent_writes_over_one_version_may_both_succeed_and_none_is_torn():
    """Weak coverability: for this reason a versioned write is not compare-and-swap."""
    outcomes = set()
    for seed in range(60):
        world = ProtocolWorld(ABD, range(3), seed)
        clients = [world.client() for _ in range(2)]
        pendings = [
            client.start(write_versioned(client.view, "k", bytes([client.id]), None))
            for client in clients
        ]
        world.until(lambda pendings=pendings: all(pending.ended for pending in pendings))
        results = [pending.result() for pending in pendings]
        changed = [result for result in results if result.changed]
        assert changed
        latest = max(changed, key=lambda result: result.tag)
        assert clients[0].run(read(clients[0].view, "k")).value == latest.value
        outcomes.add(len(changed))
    assert outcomes == {1, 2}
