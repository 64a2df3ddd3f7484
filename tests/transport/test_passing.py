"""Small requests pass large requests on their way to a slow server; a single copy of each waits."""

import asyncio

import pytest

from ares.model.identity import CallId, ClientId, ConfigurationId, ObjectName
from ares.model.messages import AnyMessage, Element, PutData
from ares.model.tag import Tag
from ares.model.units import MIB
from ares.net.native import LINK_UNSENT_BYTES, SLOW_LINK_S, SLOW_LINK_UNSENT_BYTES, ZmtpConnections

from .wires import S0, ZmqWire, get_tag, until

PUTS = 60
ON_THE_WAY_MAX = 30
"""Puts held by libzmq and the kernel at most: small requests cannot pass these."""


def put(call: int, data: bytes) -> PutData:
    return PutData(
        CallId(call),
        ConfigurationId(b"c" * 16),
        ObjectName("k"),
        Tag(1, ClientId(2)),
        Element(0, len(data), 1, (data,)),
    )


async def test_a_small_request_passes_large_ones_and_copies_do_not_wait_twice(
    our_wire: ZmqWire,
) -> None:
    server = await our_wire.serve()
    client = our_wire.connect(server)
    await client.ask(S0, [get_tag(1)])
    server.listener.pause()
    data = bytes(MIB)
    for _ in range(3):
        client.connections.post(S0, [put(call, data) for call in range(100, 100 + PUTS)])
        await asyncio.sleep(0.1)
    client.connections.post(S0, [get_tag(2)])
    server.listener.resume()
    await until(lambda: {2, *range(100, 100 + PUTS)} <= client.calls())
    calls = [message.call for message in server.received[1:]]
    assert calls.index(CallId(2)) <= ON_THE_WAY_MAX
    assert len(calls) <= 1 + PUTS + ON_THE_WAY_MAX


async def test_a_put_is_sending_until_its_server_has_it_or_the_connection_ends(
    our_wire: ZmqWire,
) -> None:
    server = await our_wire.serve()
    client = our_wire.connect(server)
    await client.ask(S0, [get_tag(1)])
    tells = our_wire.client_kind.__name__ == "ZmtpConnections"
    server.listener.pause()
    calls = [CallId(call) for call in range(100, 100 + PUTS)]
    client.connections.post(S0, [put(call, bytes(MIB)) for call in calls])
    await asyncio.sleep(0.1)
    assert client.connections.sending(S0, calls[-1]) == tells
    assert not client.connections.sending(S0, CallId(1))
    server.listener.resume()
    await until(lambda: set(calls) <= client.calls())
    await until(lambda: not any(client.connections.sending(S0, call) for call in calls))
    server.listener.pause()
    client.connections.post(S0, [put(call + 1000, bytes(MIB)) for call in calls])
    await asyncio.sleep(0.1)
    await server.listener.close()
    await until(lambda: not client.connections.sending(S0, CallId(calls[0] + 1000)))


async def test_few_bytes_stay_unsent_only_after_a_server_was_slow(our_wire: ZmqWire) -> None:
    """The bound belongs to a connection: a new connection begins with the larger bound.

    A Unix socket is no slow link.
    """
    server = await our_wire.serve()
    client = our_wire.connect(server)
    if not isinstance(client.connections, ZmtpConnections):
        pytest.skip("libzmq bounds what it holds by itself")

    def bound() -> int:
        return client.connections._links[S0]._latest.transport.get_write_buffer_limits()[1]

    await client.ask(S0, [get_tag(1)])
    assert bound() == LINK_UNSENT_BYTES
    server.listener.pause()
    calls = [CallId(call) for call in range(100, 100 + PUTS)]
    client.connections.post(S0, [put(call, bytes(MIB)) for call in calls])
    await until(lambda: client.connections._links[S0]._slow_since > 0.0)
    await asyncio.sleep(2 * SLOW_LINK_S)
    server.listener.resume()
    await until(lambda: set(calls) <= client.calls())
    is_local = client.connections.over_sockets == {S0}
    assert bound() == (LINK_UNSENT_BYTES if is_local else SLOW_LINK_UNSENT_BYTES)
    await server.listener.close()
    await until(lambda: client.connections._links[S0]._latest.transport.is_closing())
    assert client.connections._links[S0]._slow_since == 0.0


async def test_messages_wait_for_a_new_connection_while_one_ends(
    our_wire: ZmqWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message posted between the server's end of a connection and its loss waits for the next."""
    server = await our_wire.serve()
    client = our_wire.connect(server)
    if not isinstance(client.connections, ZmtpConnections):
        pytest.skip("libzmq ends its connections by itself")
    await client.ask(S0, [get_tag(1)])
    link = client.connections._links[S0]
    attempts: list[int] = []
    take_next = link._waiting.take_next

    def counted() -> list[AnyMessage]:
        attempts.append(1)
        assert len(attempts) < 100, "the loop never ends"
        return take_next()

    monkeypatch.setattr(link._waiting, "take_next", counted)
    link._latest.transport.close()
    client.connections.post(S0, [get_tag(2)])
    client.connections.post(S0, [get_tag(3)])
    await until(lambda: {2, 3} <= client.calls())
    assert len(attempts) < 10
