"""Invalid batches, failing handlers and taken addresses: every transport survives these."""

import logging
import typing

import pytest

from ares.model.codec import WIRE_VERSION, encode
from ares.model.errors import BadInput
from ares.model.identity import CallId, ClientId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import Ack, AnyMessage, Element, GetTag, PutData, Reason, Refused
from ares.model.tag import Tag

from .wires import S0, Wire, acknowledge, get_tag, until

_LARGE = PutData(
    CallId(5),
    ConfigurationId(b"c" * 16),
    ObjectName("k"),
    Tag(1, ClientId(2)),
    Element(0, 9000, 1, (bytes(9000),)),
)
_TWO_LARGE = encode([_LARGE, _LARGE])
BAD_BATCHES = {
    "another version": [bytes([WIRE_VERSION + 1]) + encode([get_tag(1)])[0][1:]],
    "our version, then garbage": [bytes([WIRE_VERSION]) + b"\xc1\xff\x00garbage"],
    "garbage": [b"GET / HTTP/1.1\r\n\r\n"],
    "cut off": [encode([get_tag(1)])[0][:-3]],
    "bytes too many": [encode([get_tag(1)])[0] + b"\x00"],
    "an element's frame is missing": _TWO_LARGE[:-1],
    "a frame too many": [*_TWO_LARGE, b"more"],
    "no such message": [bytes([WIRE_VERSION]) + b"\x91\x92\x7b\x01"],
}


@pytest.mark.parametrize("frames", BAD_BATCHES.values(), ids=BAD_BATCHES.keys())
async def test_a_bad_batch_is_counted_and_refused(wire: Wire, frames: list[bytes]) -> None:
    server = await wire.serve()
    [refused] = await wire.exchange(server.address, [frames], 1)
    assert isinstance(refused, Refused)
    assert (refused.call, refused.reason) == (0, Reason.BAD_REQUEST)
    assert refused.detail
    assert server.listener.bad_batches == 1
    assert not server.batches
    await wire.connect(server).ask(S0, [get_tag(1)])


async def test_a_batch_without_a_version_is_counted_and_dropped(wire: Wire) -> None:
    server = await wire.serve()
    replies = await wire.exchange(server.address, [[b""], [b"", b"x"], encode([get_tag(7)])], 1)
    assert replies == acknowledge([get_tag(7)])
    assert server.listener.bad_batches == 2


async def test_requests_whose_handling_fails_get_no_reply(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(messages: typing.Sequence[AnyMessage]) -> list[AnyMessage]:
        if messages[0].call == 13:
            raise RuntimeError("a bug in the handler")
        return acknowledge(messages)

    server = await wire.serve(answer=answer)
    client = wire.connect(server)
    await client.ask(S0, [get_tag(1)])
    with caplog.at_level(logging.ERROR):
        client.connections.post(S0, [get_tag(13)])
        await until(lambda: len(server.batches) == 2)
    await client.ask(S0, [get_tag(2)])
    assert [message.call for message in client.received] == [1, 2]
    assert "a bug in the handler" in caplog.text


async def test_replies_that_cannot_be_encoded_cost_no_other_client(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(messages: typing.Sequence[AnyMessage]) -> list[AnyMessage]:
        return [Ack(CallId(2**70), None)] if messages[0].call == 13 else acknowledge(messages)

    server = await wire.serve(answer=answer)
    clients = [wire.connect(server) for _ in range(3)]
    for number, client in enumerate(clients):
        await client.ask(S0, [get_tag(number)])
    for client, call in zip(clients, (13, 21, 22), strict=True):
        client.connections.post(S0, [get_tag(call)])
    clients[1].connections.post(S0, [GetTag(CallId(2**70), ConfigurationId(b""), ObjectName("k"))])
    await until(
        lambda: (
            clients[2].calls() == {2, 22} and 13 in {message.call for message in server.received}
        )
    )
    for number, client in enumerate(clients):
        await client.ask(S0, [get_tag(30 + number)])
    assert "could not be sent" in caplog.text


async def test_a_failing_receiver_of_replies_loses_one_batch_only(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    server = await wire.serve()
    connections = wire.make_connections()
    seen: list[int] = []

    def deliver(name: ServerId, messages: typing.Sequence[AnyMessage]) -> None:
        seen.append(messages[0].call)
        if messages[0].call == 13:
            raise RuntimeError("a bug in the receiver")

    connections.open(deliver)
    connections.learn(S0, wire.known_as(server.address))
    for call in (1, 13, 2):
        connections.post(S0, [get_tag(call)])
        await until(lambda call=call: call in seen)
    await connections.close()
    assert "a bug in the receiver" in caplog.text


async def test_an_address_that_is_taken_is_refused(wire: Wire) -> None:
    server = await wire.serve()
    with pytest.raises(BadInput, match=server.address):
        await wire.make_listener(server.address).serve(server.handle)
    await wire.connect(server).ask(S0, [get_tag(1)])
