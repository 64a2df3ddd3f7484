"""Savings of the optimised DAPs of CoARES: values that the client holds, and needless put-data.

Put-data is needless for a version that is known to be at a quorum.
"""

import pytest

from ares.model.messages import DataReply, PutData
from ares.model.tag import Tag
from ares.model.value import WITHHELD
from ares.reconfig.view import Switches
from ares.registers.coverable import CoverableResult, cvr_read, read_versioned, write_versioned
from ares.registers.operations import read, write
from tests.protocol.protocol_world import ProtocolWorld
from tests.protocol.test_coverable import ABD, EC, LARGE, both, every

ELEMENT = len(LARGE) // 3 + 200
"""Bound for the bytes of a coded element."""


class Traffic:
    """Bytes of elements that arrive: ``sent`` by servers, ``put`` by clients."""

    def __init__(self, world):
        self.sent = self.put = 0
        world.watch = self.see

    def see(self, source, target, message):
        if isinstance(message, DataReply) and message.element is not None:
            self.sent += message.element.size
        if isinstance(message, PutData):
            self.put += message.element.size

    def of(self, client, operation):
        """Run the operation; return the bytes (sent, put) and the result.

        Messages from before do not count.
        """
        while client.world.step():
            pass
        self.sent = self.put = 0
        result = client.run(operation)
        return (self.sent, self.put), result


@both
@every
def test_an_unchanged_value_does_not_travel(initial, switches):
    world = ProtocolWorld(initial, range(5))
    writer, reader = world.client(switches), world.client(switches)
    traffic = Traffic(world)
    writer.run(write_versioned(writer.view, "k", LARGE, None))
    first, found = traffic.of(reader, read_versioned(reader.view, "k"))
    assert first[0] >= len(LARGE)
    again, same = traffic.of(reader, read_versioned(reader.view, "k"))
    assert (same.tag, same.value, same.length) == (found.tag, LARGE, len(LARGE))
    if switches.optimised:
        assert again == (0, 0), "neither read nor written back"
    else:
        assert again[0] >= len(LARGE)
    by_tag, held = traffic.of(reader, cvr_read(reader.view, "k", found.tag))
    assert held.tag == found.tag
    assert (held.value is WITHHELD) is switches.optimised
    assert (by_tag == (0, 0)) is switches.optimised


@both
@every
def test_a_covering_write_moves_its_own_value_only(initial, switches):
    world = ProtocolWorld(initial, range(5))
    client = world.client(switches)
    traffic = Traffic(world)
    made = client.run(write_versioned(client.view, "k", LARGE, None))
    (sent, put), covered = traffic.of(
        client, write_versioned(client.view, "k", LARGE[::-1], made.tag)
    )
    assert covered.changed
    late = ELEMENT if initial is EC else 0  # this server is asked only after it has the new version
    assert (sent <= late) is switches.optimised
    assert put > 0
    assert traffic.of(client, read_versioned(client.view, "k"))[1].value == LARGE[::-1]


@both
def test_a_changed_value_travels(initial):
    world = ProtocolWorld(initial, range(5))
    writer, reader = world.client(), world.client()
    traffic = Traffic(world)
    made = writer.run(write_versioned(writer.view, "k", LARGE, None))
    reader.run(read_versioned(reader.view, "k"))
    changed = writer.run(write_versioned(writer.view, "k", LARGE[1:], made.tag))
    (sent, _), found = traffic.of(reader, read_versioned(reader.view, "k"))
    assert (found.tag, found.value) == (changed.tag, LARGE[1:])
    assert sent >= len(LARGE) - 1
    (sent, _), refused = traffic.of(writer, write_versioned(writer.view, "k", b"x", made.tag))
    assert refused == CoverableResult(False, changed.tag, LARGE[1:])


@both
@pytest.mark.parametrize("optimised", [True, False])
def test_put_data_is_left_out_for_a_version_known_to_be_at_a_quorum(initial, optimised):
    """Without fast reads every read writes back.

    With the optimised DAPs, a read writes back only versions that this client has not seen at a
    quorum.
    """
    world = ProtocolWorld(initial, range(5))
    writer, reader = (
        world.client(Switches(fast_read=False, optimised=optimised)) for _ in range(2)
    )
    traffic = Traffic(world)
    writer.run(write_versioned(writer.view, "k", LARGE, None))
    puts = [
        traffic.of(client, read_versioned(client.view, "k"))[0][1] > 0
        for client in (reader, reader, writer, writer)
    ]
    assert puts == ([True, False, False, False] if optimised else [True] * 4)


@both
def test_a_version_that_is_held_but_not_at_a_quorum_is_written_back(initial):
    """The reader holds the value of a write to a single server (or k).

    The reader must not take this copy for the register's value.
    """
    world = ProtocolWorld(initial, range(5))
    writer, reader, judge = world.client(), world.client(), world.client()
    reach = {"s0"} if initial is ABD else {"s0", "s1", "s2"}
    world.hold = lambda source, target, message: (
        isinstance(message, PutData) and target not in reach
    )
    writer.start(write(writer.view, "k", LARGE))
    while world.step():
        pass
    writer.dead, world.hold = True, lambda *_: False
    world.flights.clear()
    world.down = {"s1"} if initial is ABD else {"s4"}
    found = reader.run(cvr_read(reader.view, "k", Tag(1, writer.id)))
    assert (found.tag, found.value) == (Tag(1, writer.id), LARGE)
    world.down = {"s0"}
    assert judge.run(read(judge.view, "k")).value == LARGE, "a read that went back"
    world.down = set()
    assert reader.run(cvr_read(reader.view, "k", found.tag)).value is WITHHELD


def test_a_write_in_progress_does_not_make_a_held_value_travel():
    """EC: a server lists a newer, incomplete version, and sends the element.

    The version held is still the latest.
    """
    world = ProtocolWorld(EC, range(5))
    client, other = world.client(), world.client()
    traffic = Traffic(world)
    made = client.run(write_versioned(client.view, "k", LARGE, None))
    world.hold = lambda source, target, message: isinstance(message, PutData) and target != "s0"
    other.start(write(other.view, "k", LARGE))
    while world.step():
        pass
    other.dead, world.hold = True, lambda *_: False
    world.flights.clear()
    (sent, _), found = traffic.of(client, read_versioned(client.view, "k"))
    assert (found.tag, found.value) == (made.tag, LARGE)
    assert sent <= ELEMENT
    covered = client.run(write_versioned(client.view, "k", b"x", made.tag))
    assert covered.changed
    assert client.run(read_versioned(client.view, "k")).value == b"x"


def test_a_value_that_is_forgotten_travels_again():
    world = ProtocolWorld(ABD, range(3))
    client = world.client()
    traffic = Traffic(world)
    client.run(write_versioned(client.view, "k", LARGE, None))
    client.view.memory.__init__(value_bytes_max=len(LARGE))
    client.run(read_versioned(client.view, "k"))
    client.run(write_versioned(client.view, "other", b"x", None))
    (sent, _), found = traffic.of(client, read_versioned(client.view, "k"))
    assert found.value == LARGE
    assert sent >= len(LARGE)
