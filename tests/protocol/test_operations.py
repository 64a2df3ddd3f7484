"""Read, write, delete and stat over the replicas, without I/O (ARES II Alg. 1, 3 and 4)."""

import itertools

import msgspec
import pytest

from ares.engine.jobs import ROUND_RESEND_S
from ares.model.configuration import Configuration
from ares.model.errors import DecodeFailed, ObjectNotFound, Unavailable
from ares.model.identity import DEFAULT_DOMAIN, ServerId
from ares.model.messages import DataReply, PutData
from ares.model.tag import TAG_ZERO
from ares.model.value import TOMBSTONE
from ares.reconfig.view import Switches
from ares.registers.operations import delete, read, stat, write
from tests.protocol.protocol_world import ProtocolWorld, servers

ALL_SWITCHES = [Switches(*flags) for flags in itertools.product([True, False], repeat=4)]


def abd(*numbers: int) -> Configuration:
    return Configuration.abd(servers(*numbers)).at(DEFAULT_DOMAIN, 0)


def ec(*numbers: int, k: int = 3, delta: int = 2) -> Configuration:
    return Configuration.ec(servers(*numbers), k, delta).at(DEFAULT_DOMAIN, 0)


INITIALS = [abd(0, 1, 2), ec(0, 1, 2, 3, 4)]


@pytest.mark.parametrize("switches", ALL_SWITCHES)
@pytest.mark.parametrize("initial", INITIALS, ids=["abd", "ec"])
def test_written_values_are_read_by_another_client(initial, switches):
    """Alg. 1:7-24, Alg. 1:31-48."""
    world = ProtocolWorld(initial, range(5))
    writer, reader = world.client(switches), world.client(switches)
    assert reader.run(read(reader.view, "k")).value is TOMBSTONE
    for value in (b"", b"x", b"hello", b"z" * 100_000):
        tag = writer.run(write(writer.view, "k", value))
        found = reader.run(read(reader.view, "k"))
        assert (found.tag, found.value, found.length) == (tag, value, len(value))
        assert reader.run(stat(reader.view, "k")).length == len(value)
    writer.run(delete(writer.view, "k"))
    assert reader.run(read(reader.view, "k")).value is TOMBSTONE
    with pytest.raises(ObjectNotFound):
        writer.run(delete(writer.view, "k"))


@pytest.mark.parametrize("initial", INITIALS, ids=["abd", "ec"])
def test_one_crash_is_survived_and_two_are_not(initial):
    """Alg. 3:23-31."""
    world = ProtocolWorld(initial, range(5))
    client = world.client()
    world.down = {ServerId("s0")}
    for number in range(5):
        client.run(write(client.view, "k", bytes([number]) * 20_000))
        assert client.run(read(client.view, "k")).value == bytes([number]) * 20_000
    world.down.add(ServerId("s1"))
    with pytest.raises(Unavailable) as caught:
        client.run(write(client.view, "k", b"lost?"), timeout_s=2)
    assert set(caught.value.missing) == {"s0", "s1"}
    assert not caught.value.may_have_taken_effect


def test_a_write_that_failed_half_way_says_so_and_its_tag_is_not_used_again():
    """Alg. 1:16."""
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    client = world.client()
    first = client.run(write(client.view, "k", b"first"))
    world.hold = lambda source, target, message: isinstance(message, PutData) and target != "s0"
    with pytest.raises(Unavailable) as caught:
        client.run(write(client.view, "k", b"half"), timeout_s=2)
    assert caught.value.may_have_taken_effect
    world.hold = lambda *_: False
    world.flights.clear()
    world.down = {ServerId("s0")}
    second = client.run(write(client.view, "k", b"second"))
    assert second.number == first.number + 2, "the half-written tag must stay unique"
    world.down = set()
    assert client.run(read(client.view, "k")).value == b"second"


def test_an_interrupted_write_spends_its_tag():
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    client = world.client()
    world.hold = lambda source, target, message: isinstance(message, PutData)
    pending = client.start(write(client.view, "k", b"cancelled"))
    for _ in range(100):
        world.step()
    client.session.cancel(pending.job)
    world.hold = lambda *_: False
    world.flights.clear()
    assert client.run(write(client.view, "k", b"next")).number == 2


def test_writes_of_one_object_by_one_client_wait_for_each_other():
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    client = world.client()
    key = (DEFAULT_DOMAIN, "k")
    pendings = [
        client.start(write(client.view, "k", bytes([number])), key=key) for number in range(10)
    ]
    world.until(lambda: all(pending.ended for pending in pendings))
    assert [pending.result().number for pending in pendings] == list(range(1, 11))


def test_fast_read_takes_one_round_and_plain_read_two():
    """Alg. 1:40-46."""
    rounds = {}
    for fast in (True, False):
        world = ProtocolWorld(abd(0, 1, 2), range(3))
        client = world.client(Switches(fast_read=fast))
        client.run(write(client.view, "k", b"v"))
        before = client.session.last_call
        client.run(read(client.view, "k"))
        rounds[fast] = client.session.last_call - before
    assert rounds == {True: 1, False: 2}


def test_read_writes_back_what_is_not_at_a_quorum():
    """Alg. 1:40-46."""
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    writer, reader = world.client(), world.client()
    world.hold = lambda source, target, message: isinstance(message, PutData) and target != "s0"
    writer.start(write(writer.view, "k", b"v"))
    for _ in range(50):
        world.step()
    writer.dead = True
    world.flights.clear()
    world.hold = lambda *_: False
    world.down = {ServerId("s1")}
    assert reader.run(read(reader.view, "k")).value == b"v"
    world.down = {ServerId("s0")}
    assert reader.run(read(reader.view, "k")).value == b"v", "a read that went back"


def test_ec_large_elements_come_from_k_servers_only():
    """Alg. 3:9-12, Alg. 4:8-15."""
    world = ProtocolWorld(ec(0, 1, 2, 3, 4), range(5))
    client = world.client()
    client.run(write(client.view, "k", b"x" * 300_000))
    seen = []
    world.watch = lambda source, target, message: seen.append(message)
    assert client.run(read(client.view, "k")).value == b"x" * 300_000
    replies = [message for message in seen if isinstance(message, DataReply)]
    assert sum(1 for reply in replies if reply.element is not None) <= 3
    assert len(replies) >= 4


def test_ec_more_than_delta_partial_writes_never_make_a_read_go_back():
    """A server trims a completed version for delta + 1 partial versions.

    The reader must not settle for the version before.
    """
    world = ProtocolWorld(ec(0, 1, 2, 3, 4, delta=1), range(5))
    writer, reader = world.client(), world.client()
    writer.run(write(writer.view, "k", b"old"))
    world.down = {ServerId("s4")}
    completed = writer.run(write(writer.view, "k", b"completed"))
    world.down = set()
    world.flights.clear()
    for number in range(2):
        partial = world.client()
        world.hold = lambda source, target, message: isinstance(message, PutData) and target != "s0"
        partial.start(write(partial.view, "k", bytes([number])))
        for _ in range(100):
            world.step()
        partial.dead = True
        world.hold = lambda *_: False
        world.flights.clear()
    world.down = {ServerId("s3")}
    try:
        found = reader.run(read(reader.view, "k"), timeout_s=3)
    except DecodeFailed:
        world.down = set()
        found = reader.run(read(reader.view, "k"), timeout_s=3)
    assert found.tag >= completed


def test_a_flipped_bit_counts_as_missing():
    """Alg. 3:16-18."""
    world = ProtocolWorld(ec(0, 1, 2, 3, 4), range(5))
    client = world.client()
    client.run(write(client.view, "k", b"payload" * 10))
    hosting = next(iter(world.replicas["s1"]._hosted.values()))
    tag, element, _ = hosting.objects.get("k").entries[0]
    hosting.objects.replace(
        "k", tag, msgspec.structs.replace(element, parts=(b"\xff" + element.parts[0][1:],))
    )
    for down in ("s0", "s2", "s3", "s4"):
        world.down = {ServerId(down)}
        assert client.run(read(client.view, "k")).value == b"payload" * 10


def test_version_of_an_object_never_written():
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    client = world.client()
    found = client.run(stat(client.view, "nothing"))
    assert (found.tag, found.value, found.length) == (TAG_ZERO, TOMBSTONE, -1)


def test_duplicated_and_late_replies_are_harmless():
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    client = world.client()
    for number in range(20):
        client.run(write(client.view, "k", bytes([number])))
        world.flights.extend(world.flights[:])
    assert client.run(read(client.view, "k")).value == bytes([19])


def test_lost_messages_are_sent_again():
    world = ProtocolWorld(abd(0, 1, 2), range(3))
    client = world.client()
    pending = client.start(write(client.view, "k", b"v"))
    world.flights.clear()
    world.until(lambda: pending.ended)
    assert pending.result().number == 1
    assert world.now >= ROUND_RESEND_S
