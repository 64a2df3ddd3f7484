"""Bounds of tags, which keep any tag from freezing an object.

The bound of servers grows with time, and a tag accepted by an earlier release can be overwritten.
"""

import msgspec
import pytest

from ares.compiled import replica_parts
from ares.engine.effects import Gather
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import ElementRefused, NoTagLeft
from ares.model.identity import DEFAULT_DOMAIN, VALUE_BYTES_DEFAULT
from ares.model.messages import DELETED_LENGTH, LEFT_LENGTH, PutData, TagReply
from ares.model.tag import NUMBER_FLOOR, NUMBER_LAST, NUMBERS_PER_S, Tag, number_max
from ares.model.value import TOMBSTONE
from ares.registers.operations import delete, read, write
from ares.replica.configuration_state import BadElement, ConfigurationState
from ares.replica.facts import ConfigurationRecord
from ares.replica.replica import Replica
from tests.protocol.protocol_world import ProtocolWorld, servers

MEMBERS = servers(0, 1, 2)
ABD = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 2).at(DEFAULT_DOMAIN, 0)
NOW_S = 1_795_000_000.123456
FROZEN = 2**63
"""The highest number that the last release accepted, which left no number above."""


def put_of(
    configuration: Configuration,
    tag: Tag,
    index: int = 0,
    data: bytes = b"data",
    length: int | None = None,
) -> PutData:
    element = sealed(
        configuration.id,
        "k",
        tag,
        index,
        len(data) if length is None else length,
        (data,) if data else (),
    )
    return PutData(1, configuration.id, "k", tag, element)


def put_by_hand(configuration: Configuration, number: int, to: tuple[str, ...] | None = None):
    """Put an element as a hostile client does; the servers of ``to`` must accept it."""
    to = to or configuration.server_ids
    yield Gather(
        configuration,
        lambda call: msgspec.structs.replace(put_of(configuration, Tag(number, 99)), call=call),
        "put-data",
        to,
        len(to),
    )


@pytest.mark.parametrize("number", [2**53, FROZEN - 1, FROZEN, FROZEN + 1, NUMBER_LAST])
@pytest.mark.parametrize("now_s", [0.0, NOW_S])
def test_an_unreachable_number_is_refused(number, now_s):
    host = ConfigurationState(ABD, 0, lambda: now_s)
    with pytest.raises(BadElement, match=f"the tag {number}.* is beyond {number_max(now_s)}"):
        host.put_data(put_of(ABD, Tag(number, 1)))
    assert host.describe().objects == 0


def test_the_highest_number_is_exceeded_a_microsecond_later():
    clock = [NOW_S]
    host = ConfigurationState(ABD, 0, lambda: clock[0])
    highest = number_max(NOW_S)
    assert highest > NUMBER_FLOOR
    host.put_data(put_of(ABD, Tag(highest, 2**64 - 1)))
    other = ConfigurationState(ABD, 0, lambda: clock[0])
    with pytest.raises(BadElement):
        other.put_data(put_of(ABD, Tag(highest + 1, 1)))
    clock[0] += 1e-6
    other.put_data(put_of(ABD, Tag(highest + 1, 1)))


def test_a_million_writes_a_second_never_come_near():
    assert number_max(NOW_S + 1) - number_max(NOW_S) == NUMBERS_PER_S
    assert NUMBER_FLOOR / 1e6 > 8 * 365 * 86400
    assert [number_max(now_s) for now_s in (-1e9, 0.0, 86400.0)] == [NUMBER_FLOOR] * 3


def test_without_a_clock_the_floor_is_taken():
    host = ConfigurationState(ABD, 0)
    host.put_data(put_of(ABD, Tag(NUMBER_FLOOR, 1)))
    host.put_data(put_of(ABD, Tag(NUMBER_FLOOR + 1, 1)))


@pytest.mark.parametrize(
    ("length", "data"),
    [
        (LEFT_LENGTH - 1, b""),
        (13, b"four"),
        (VALUE_BYTES_DEFAULT, b"four"),
        (2**62, b"four"),
        (-(2**63), b""),
    ],
)
def test_a_length_that_the_data_cannot_have_is_refused(length, data):
    """A slow mover would wait for as many bytes."""
    host = ConfigurationState(EC, 2)
    with pytest.raises(BadElement):
        host.put_data(put_of(EC, Tag(1, 1), 2, data, length))
    assert host.describe().objects == 0


@pytest.mark.parametrize(
    ("length", "data"), [(DELETED_LENGTH, b""), (LEFT_LENGTH, b""), (0, b""), (12, b"four")]
)
def test_a_length_that_the_data_can_have_is_taken(length, data):
    host = ConfigurationState(EC, 2)
    host.put_data(put_of(EC, Tag(1, 1), 2, data, length))
    assert host.describe().objects == 1


# -- objects that an earlier release allowed to freeze -------------------------------------------


@pytest.fixture
def frozen():
    """Make a world whose servers were started from the last release's stored state."""
    world = ProtocolWorld(ABD, range(3))
    for server in MEMBERS:
        replica = Replica(server.id, server.identity, ABD, True, replica_parts(lambda: NOW_S))
        replica.begin_restoring()
        replica.restore(ConfigurationRecord(ABD, None, False), 1)
        replica.restore(put_of(ABD, Tag(FROZEN, 99)), 1)
        replica.restored()
        world.replicas[server.id] = replica
    return world


def test_it_can_be_read_written_and_deleted(frozen):
    client = frozen.client()
    assert client.run(read(client.view, "k")).value == b"data"
    assert client.run(write(client.view, "k", b"mine")) == Tag(FROZEN + 1, client.id)
    frozen.down = {"s0"}
    assert client.run(read(client.view, "k")).value == b"mine"
    client.run(delete(client.view, "k"))
    assert client.run(read(client.view, "k")).value is TOMBSTONE


def test_a_tag_put_by_hand_is_refused_beyond_the_next_number(frozen):
    client = frozen.client()
    with pytest.raises(ElementRefused):
        client.run(put_by_hand(ABD, FROZEN + 2))
    assert client.run(write(client.view, "k", b"mine")).number == FROZEN + 1


# -- reports to clients --------------------------------------------------------------------------


def test_the_refusal_says_what_where_and_that_nothing_was_changed():
    world = ProtocolWorld(ABD, range(3))
    client = world.client()
    began = world.now
    with pytest.raises(
        ElementRefused,
        match=r"s0 \(the tag 9223372036854775808\..* is beyond .*; it was not stored",
    ) as caught:
        client.run(put_by_hand(ABD, FROZEN))
    assert caught.value.untouched
    assert world.now - began < 1.0
    assert client.run(read(client.view, "k")).value is TOMBSTONE


@pytest.mark.parametrize(
    "operation", [lambda view: write(view, "k", b"v"), lambda view: delete(view, "k")]
)
def test_nothing_is_sent_over_a_tag_that_none_can_follow(operation):
    """The tag is from a false server: such a number cannot even be written down."""
    world = ProtocolWorld(ABD, range(3))
    honest = world.client()
    honest.run(write(honest.view, "k", b"v"))
    for replica in world.replicas.values():
        hosting = next(iter(replica.hosted.values()))
        hosting.put(
            PutData(
                0,
                ABD.id,
                "k",
                Tag(NUMBER_LAST, 99),
                sealed(ABD.id, "k", Tag(NUMBER_LAST, 99), 0, 1, (b"x",)),
            ),
            checked=True,
        )
    client, puts = world.client(), []
    world.watch = lambda source, target, message: (
        puts.append(message) if isinstance(message, PutData) else None
    )
    with pytest.raises(NoTagLeft, match=r"no number can be above it.*nothing was lost"):
        client.run(operation(client.view))
    assert puts == []
    assert client.view.tags._taken == {}


def test_an_answer_with_such_a_tag_leaves_nothing_behind_in_the_client():
    """The next write acts as if the false server was never asked.

    The false server does not answer this write.
    """
    world = ProtocolWorld(ABD, range(3))
    client = world.client()
    real = world.replicas["s0"].handle

    def false(request):
        reply = real(request)
        return (
            msgspec.structs.replace(reply, tag=Tag(NUMBER_LAST, 1))
            if isinstance(reply, TagReply)
            else reply
        )

    world.replicas["s0"].handle = false
    world.down = {"s2"}
    with pytest.raises(NoTagLeft):
        client.run(write(client.view, "k", b"v"))
    world.down = {"s0"}
    assert client.run(write(client.view, "k", b"v")).number == 1
