"""Each tag has a single value, also under simultaneous operations of a client on an object.

The operations may also fail or be given up.
"""

import pytest

from ares.model.configuration import Configuration
from ares.model.errors import ObjectNotFound
from ares.model.identity import DEFAULT_DOMAIN, ClientId
from ares.model.messages import PutData
from ares.model.tag import Tag, TagSource
from ares.model.value import TOMBSTONE
from ares.registers.coverable import CoverableResult, cvr_read, cvr_write
from ares.registers.operations import delete, read, write
from tests.protocol.protocol_world import ProtocolWorld, servers
from tests.simulation.controls import numbers_forgotten_by_the_first_to_end

ABD = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
EC = Configuration.ec(servers(0, 1, 2, 3, 4), 3, 8).at(DEFAULT_DOMAIN, 0)


def watch_tags(world):
    """Return the values of each tag at any server: by index, since coded elements differ."""
    values = {}

    def watch(source, target, message):
        if isinstance(message, PutData):
            element = message.element
            values.setdefault((message.object, message.tag, element.index), set()).add(
                (element.length, b"".join(element.parts))
            )

    world.watch = watch
    return values


def an_operation(rng, view, value, versions):
    kind = rng.choice(["write", "cvr-write", "delete"])
    if kind == "write":
        return write(view, "k", value)
    return (
        cvr_write(view, "k", value, rng.choice([None, *versions]))
        if kind == "cvr-write"
        else delete(view, "k")
    )


@pytest.mark.parametrize("c0", [ABD, EC])
def test_operations_of_one_client_side_by_side(c0):
    for seed in range(150):
        completed, last, values = side_by_side(c0, seed)
        assert {key: len(there) for key, there in values.items() if len(there) > 1} == {}
        assert last >= max(completed)


def test_control_numbers_that_the_first_to_end_forgets_are_taken_twice():
    with numbers_forgotten_by_the_first_to_end():
        assert any(
            len(there) > 1 for seed in range(150) for there in side_by_side(ABD, seed)[2].values()
        )


def side_by_side(c0, seed):
    """Run writes, coverable writes and deletions in any order, without a queue.

    Some are cancelled, and some servers are silent for a while. Return the tags of completed
    operations, the result of a later read, and the values of all tags.
    """
    world = ProtocolWorld(c0, range(5), seed)
    values, rng = watch_tags(world), world.rng
    clients = [world.client(), world.client()]
    running, owners = [], []
    for number in range(8):
        client = clients[rng.random() < 0.2]
        versions = [one.value for one in running if isinstance(one.value, Tag)]
        owners.append(client)
        running.append(
            client.start(an_operation(rng, client.view, f"{number} ".encode() * 20, versions))
        )
        for _ in range(rng.randrange(25)):
            world.step()
        world.down = {f"s{rng.randrange(5)}"} if rng.random() < 0.3 else set()
        if rng.random() < 0.2:
            chosen = rng.randrange(len(running))
            owners[chosen].session.cancel(running[chosen].job)
    world.down = set()
    world.until(lambda: not any(client.session.busy for client in clients))
    assert [
        one.error
        for one in running
        if one.error is not None and not isinstance(one.error, ObjectNotFound)
    ] == []
    completed = [
        one.value.tag if isinstance(one.value, CoverableResult) else one.value
        for one in running
        if one.value is not None
    ]
    return completed, clients[1].run(read(clients[1].view, "k")).tag, values


def test_numbers_are_remembered_until_no_operation_can_miss_them():
    source, other = TagSource(ClientId(7)), TagSource(ClientId(8))
    first, second = source.begin("k"), source.begin("k")
    assert source.take(first, 0) == Tag(1, 7)
    first.completed = 1
    source.end("k", first)
    assert source.take(second, 0) == Tag(2, 7), (
        "it may have asked before the first one was complete"
    )
    source.end("k", second)
    third = source.begin("k")
    assert source.take(third, 0) == Tag(3, 7), "what became of the second one is not known"
    third.completed = 3
    source.end("k", third)
    assert source.take(source.begin("k"), 3) == Tag(4, 7)
    assert source.take(source.begin("j"), 0) == Tag(1, 7)
    assert other.take(other.begin("k"), 0) == Tag(1, 8)


def test_nothing_is_kept_of_what_completed():
    world = ProtocolWorld(ABD, range(3))
    client = world.client()
    for number in range(100):
        client.run(write(client.view, f"k{number}", b"v"))
    client.run(delete(client.view, "k1"))
    with pytest.raises(ObjectNotFound):
        client.run(delete(client.view, "k1"))
    version = client.run(cvr_read(client.view, "k2")).tag
    assert client.run(cvr_write(client.view, "k2", TOMBSTONE, version)).changed
    assert not client.run(cvr_write(client.view, "k2", b"w", version)).changed
    assert client.view.tags._taken == {}
