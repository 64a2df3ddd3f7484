"""The contract of every transport (docstrings of Connections and Listener in ares/net/port.py)."""

import asyncio
import typing
from types import SimpleNamespace
from typing import Any

import pytest

from ares.model.codec import DETACHED_BYTES_MIN, encode
from ares.model.identity import CallId, ClientId, ConfigurationId, ObjectName, ServerId
from ares.model.log_messages import ChainRequest
from ares.model.messages import (
    AnyMessage,
    ConsensusRequest,
    DataReply,
    Element,
    PullElement,
    PutData,
    Request,
    Upkeep,
)
from ares.model.tag import TAG_ZERO, Tag
from ares.model.units import MIB
from ares.net.batching import PEER_WAITING_MESSAGES_MAX, is_large
from ares.net.port import Came, Sender

from .conftest import SOCKETS
from .samples import SAMPLES
from .wires import S0, InprocWire, Wire, acknowledge, get_tag, until


async def test_every_message_arrives_as_it_was(wire: Wire) -> None:
    assert {type(sample) for sample in SAMPLES} == set(typing.get_args(AnyMessage))
    requests = [
        sample
        for sample in SAMPLES
        if isinstance(sample, Request | PullElement | ChainRequest | Upkeep | ConsensusRequest)
    ]
    replies = [sample for sample in SAMPLES if sample not in requests]
    due = [replies]
    server = await wire.serve(answer=lambda messages: due.pop() if due else [])
    client = wire.connect(server)
    client.connections.post(S0, requests)
    await until(
        lambda: len(client.received) == len(replies) and len(server.received) == len(requests)
    )
    assert client.received == replies
    assert sorted(server.received, key=is_large) == sorted(requests, key=is_large)
    assert {name for name, _ in client.batches} == {S0}


@pytest.mark.parametrize("has_keys", [False, True])
@pytest.mark.parametrize("kind", SOCKETS)
async def test_a_compiled_core_answers_before_the_handler(kind: str, has_keys: bool) -> None:
    """The core of this test serves a single call, and leaves the next ones to the handler."""
    [reply] = encode(acknowledge([get_tag(1)]))
    turn = {"tags": 1, "datas": 0, "puts": 0, "received_bytes": 9, "reads": 1, "writes": 0}
    turns = [SimpleNamespace(reply=reply, **turn)]
    senders: list[Sender] = []

    def core(sender: Sender, came: Came) -> Any:
        senders.append(sender)
        return turns.pop() if turns else None

    wire = SOCKETS[kind](has_keys)
    server = await wire.serve()
    client = wire.connect(server)
    await client.ask(S0, [get_tag(0)])
    server.listener.core = core
    await client.ask(S0, [get_tag(1)])
    await client.ask(S0, [get_tag(2)])
    assert [message.call for message in server.received] == [0, 2]
    assert {sender for sender, _ in server.batches} == {*senders}
    await wire.close()


async def test_messages_and_replies_keep_their_order(wire: Wire) -> None:
    server = await wire.serve()
    client = wire.connect(server)
    await client.ask(S0, [get_tag(0)])
    for start in range(1, 6001, 600):
        for call in range(start, start + 600):
            client.connections.post(S0, [get_tag(call)])
        await until(lambda start=start: len(client.received) == start + 600)
    assert [message.call for message in server.received] == list(range(6001))
    assert [message.call for message in client.received] == list(range(6001))


async def test_what_is_posted_together_leaves_as_one_batch(wire: Wire) -> None:
    server = await wire.serve()
    client = wire.connect(server)
    await client.ask(S0, [get_tag(0)])
    client.connections.post(S0, [get_tag(call) for call in range(1, 101)])
    await until(lambda: len(client.received) == 101)
    assert [len(batch) for _, batch in server.batches] == [1, 100]
    assert [len(batch) for _, batch in client.batches] == [1, 100]


async def test_more_than_a_batch_holds_arrives_complete(wire: Wire) -> None:
    server = await wire.serve()
    client = wire.connect(server)
    await client.ask(S0, [get_tag(0)])
    await client.ask(S0, [get_tag(call) for call in range(1, 10_001)])
    assert [message.call for message in server.received] == list(range(10_001))


@pytest.mark.parametrize(
    "size",
    [0, 1, DETACHED_BYTES_MIN - 1, DETACHED_BYTES_MIN, DETACHED_BYTES_MIN + 1, MIB, 64 * MIB],
)
async def test_elements_of_any_size_arrive_exact(wire: Wire, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    element = Element(1, size, 99, (data,))

    def give_back(messages: typing.Sequence[AnyMessage]) -> list[AnyMessage]:
        put = messages[0]
        assert isinstance(put, PutData)
        return [DataReply(put.call, (put.tag,), size, TAG_ZERO, put.element, None)]

    client = wire.connect(await wire.serve(answer=give_back))
    [reply] = await client.ask(
        S0,
        [
            PutData(
                CallId(1),
                ConfigurationId(b"c" * 16),
                ObjectName("large"),
                Tag(1, ClientId(2)),
                element,
            )
        ],
    )
    assert isinstance(reply, DataReply)
    assert reply.element == element
    assert memoryview(reply.element.parts[0]).readonly


async def test_a_server_that_starts_later_is_reached(wire: Wire) -> None:
    address = wire.fresh_address()
    client = wire.connect(address)
    client.connections.post(S0, [get_tag(1)])
    await wire.serve(address)
    await client.insist(S0, 2)


async def test_a_server_restarted_at_its_address_is_reached_again(wire: Wire) -> None:
    first = await wire.serve()
    client = wire.connect(first)
    await client.insist(S0, 1)
    await first.listener.close()
    client.connections.post(S0, [get_tag(2)])
    second = await wire.serve(first.address)
    await client.insist(S0, 3)
    assert second.received
    assert not {3} & {message.call for message in first.received}


async def test_a_reply_may_come_later(wire: Wire) -> None:
    server = await wire.serve(answer=lambda messages: [])
    early, late = wire.connect(server), wire.connect(server)
    early.connections.post(S0, [get_tag(1)])
    late.connections.post(S0, [get_tag(2)])
    await until(lambda: len(server.batches) == 2)
    assert not early.batches
    assert not late.batches
    for sender, messages in list(server.batches):
        server.listener.reply(sender, acknowledge(messages) * 3)
    await until(lambda: len(early.received) == 3 and len(late.received) == 3)
    assert (early.calls(), late.calls()) == ({1}, {2})
    assert (len(early.batches), len(late.batches)) == (1, 1)


async def test_each_of_many_clients_gets_its_own_replies(wire: Wire) -> None:
    servers = [await wire.serve() for _ in range(3)]
    clients = [wire.connect(*servers) for _ in range(20)]
    for number, client in enumerate(clients):
        for name in ("s0", "s1", "s2"):
            client.connections.post(
                ServerId(name), [get_tag(number * 1000 + call) for call in range(50)]
            )
    await until(lambda: all(len(client.received) >= 150 for client in clients))
    for number, client in enumerate(clients):
        assert sorted(message.call for message in client.received) == sorted(
            [number * 1000 + call for call in range(50)] * 3
        )
        assert {name for name, _ in client.batches} == {"s0", "s1", "s2"}


async def test_a_server_of_unknown_address_loses_messages_and_disturbs_no_server(
    wire: Wire,
) -> None:
    client = wire.connect(await wire.serve())
    client.connections.post(ServerId("nobody"), [get_tag(1)])
    await client.ask(S0, [get_tag(2)])
    client.connections.post(S0, [])
    await client.ask(S0, [get_tag(3)])
    assert [message.call for message in client.received] == [2, 3]


async def test_the_first_address_learned_stands(wire: Wire) -> None:
    first, second = await wire.serve(), await wire.serve()
    client = wire.connect(first)
    client.connections.learn(S0, second.address)
    await client.ask(S0, [get_tag(1)])
    assert (len(first.received), len(second.received)) == (1, 0)


async def test_closing_twice_and_using_what_is_closed_is_harmless(wire: Wire) -> None:
    server = await wire.serve()
    client = wire.connect(server)
    await client.ask(S0, [get_tag(1)])
    client.connections.post(S0, [get_tag(2)])
    for _ in range(2):
        await client.connections.close()
        client.connections.post(S0, [get_tag(3)])
    server.listener.reply(server.batches[0][0], acknowledge([get_tag(1)]))  # the sender left
    for _ in range(2):
        await server.listener.close()
        server.listener.reply(server.batches[0][0], acknowledge([get_tag(1)]))
    never_started = wire.make_connections()
    await never_started.close()
    await wire.make_listener("127.0.0.1:0").close()
    assert [message.call for message in client.received] == [1]


async def test_replies_handed_over_before_a_close_arrive(wire: Wire) -> None:
    server = await wire.serve(answer=lambda messages: [])
    client = wire.connect(server)
    client.connections.post(S0, [get_tag(1)])
    await until(lambda: bool(server.batches))
    server.listener.reply(server.batches[0][0], acknowledge([get_tag(1)]))
    await server.listener.close()
    await until(lambda: client.calls() == {1})


async def test_a_server_that_is_down_holds_bounded_memory(wire: Wire) -> None:
    address = wire.fresh_address()
    client = wire.connect(address)
    for tick in range(3):
        client.connections.post(
            S0, [get_tag(call) for call in range(tick * 10_000, (tick + 1) * 10_000)]
        )
        await asyncio.sleep(0.01)
    server = await wire.serve(address)
    await client.insist(S0, 99_999)
    backlog = [message.call for message in server.received if message.call != 99_999]
    assert len(backlog) <= PEER_WAITING_MESSAGES_MAX
    assert backlog == list(range(len(backlog))), "the oldest are kept, in order"


async def test_a_stopped_address_loses_messages_until_restarted() -> None:
    wire = InprocWire()
    server = await wire.serve()
    client = wire.connect(server)
    wire.network.stop(server.address)
    client.connections.post(S0, [get_tag(1)])
    for _ in range(5):
        await asyncio.sleep(0)
    assert not server.batches
    wire.network.restart(server.address)
    await client.ask(S0, [get_tag(2)])
    assert client.calls() == {2}
    await wire.close()
