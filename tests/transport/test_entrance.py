"""The entrance of a starting server: a reason for clients, in bounds, and then the server."""

import gc
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from ares.cluster.addresses import split_address
from ares.cluster.new_cluster import is_free
from ares.model.errors import BadInput
from ares.net import entrance
from ares.net.entrance import ENTRANCE_CONNECTIONS_MAX
from ares.net.libzmq import ZmqConnections
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.zmtp.connection import ZmtpConnection
from ares.net.zmtp.frames import (
    DEALER,
    NullHandshake,
    TurnedAway,
    greeting,
    properties,
    refusal,
)
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey, keyed

from .wires import S0, WAIT_S_MAX, Everybody, WireClient, WireServer, acknowledge, get_tag, until

REASON = "starting: 43 % of its journal of 110.0 MiB is read"
SERVER, CLIENT = SecretKey.generate(), SecretKey.generate()


@pytest.fixture
def listener() -> Iterator[ZmtpListener]:
    listener = ZmtpListener("127.0.0.1:0")
    yield listener
    listener._abandon()


def address_of(listener: ZmtpListener) -> str:
    return "{}:{}".format(*listener._bind().getsockname())


async def served(listener: ZmtpListener) -> WireServer:
    server = WireServer(listener, acknowledge)
    server.address = await listener.serve(server.handle)
    return server


async def answered(client: WireClient) -> None:
    await client.insist(S0, 1)
    assert S0 not in client.connections.troubles


@pytest.mark.parametrize("keys", [False, True], ids=["without keys", "with keys"])
async def test_a_client_hears_the_reason_and_then_the_server(keys: bool) -> None:
    lock = Lock(SERVER, Everybody()) if keys else None
    listener = ZmtpListener("127.0.0.1:0", lock)
    client = WireClient(ZmtpConnections(CLIENT if keys else None))
    with listener.giving_reason(lambda: REASON):
        address = address_of(listener)
        client.connections.learn(S0, keyed(address, SERVER.public) if keys else address)
        client.connections.post(S0, [get_tag(1)])
        await until(lambda: client.connections.troubles.get(S0) == REASON)
    server = await served(listener)
    assert server.address == address
    await answered(client)
    await client.connections.close()
    await listener.close()


async def test_a_client_without_an_authorised_key_hears_nothing_of_the_start() -> None:
    class Nobody(Everybody):
        def admits(self, key: str, host: str) -> bool:
            return False

    listener, asked = ZmtpListener("127.0.0.1:0", Lock(SERVER, Nobody())), []
    client = WireClient(ZmtpConnections(CLIENT))
    with listener.giving_reason(lambda: asked.append(1) or REASON):
        client.connections.learn(S0, keyed(address_of(listener), SERVER.public))
        client.connections.post(S0, [get_tag(1)])
        await until(lambda: bool(client.received))
        assert "does not know this client's key" in client.received[0].detail
    assert not asked
    await client.connections.close()
    await listener.close()


async def test_a_client_on_libzmq_hears_no_word_and_is_served_later(listener: ZmtpListener) -> None:
    """After an ERROR libzmq would never connect again."""
    client, gave = WireClient(ZmqConnections()), []
    with listener.giving_reason(lambda: gave.append(1) or REASON):
        client.connections.learn(S0, address_of(listener))
        client.connections.post(S0, [get_tag(1)])
        await until(lambda: len(gave) > 1)
    await served(listener)
    await answered(client)
    await client.connections.close()
    await listener.close()


def shake(raw: socket.socket) -> bytes:
    """Shake hands as a client of this release without keys; return the bytes of the answer."""
    raw.sendall(NullHandshake(DEALER).opening())
    answer = b""
    while part := raw.recv(4096):
        answer += part
    return answer


def test_the_answer_is_an_error_and_never_a_ready(listener: ZmtpListener) -> None:
    address = split_address(address_of(listener))
    with listener.giving_reason(lambda: REASON), socket.create_connection(address) as raw:
        answer = shake(raw)
    assert answer.startswith(greeting(b"NULL"))
    told = refusal(answer[len(greeting(b"NULL")) + 2 :])
    assert isinstance(told, TurnedAway)
    assert str(told) == REASON


def test_only_a_reason_of_a_start_is_shown_as_it_came() -> None:
    """Any process may listen at the address, with any words."""
    assert str(TurnedAway("400")) == "it refuses: '400'"
    assert str(TurnedAway("starting: \x1b[2J")) == "it refuses: 'starting: \\x1b[2J'"


def test_a_peer_in_the_middle_of_a_handshake_takes_no_room_for_ever(
    listener: ZmtpListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 33rd connection closes the oldest, and a client behind silent strangers is heard."""
    monkeypatch.setattr(entrance, "ENTRANCE_PAUSE_S", 0.0)
    with listener.giving_reason(lambda: REASON) as place, ExitStack() as ends:
        address = split_address(address_of(listener))
        silent = [
            ends.enter_context(closing(socket.create_connection(address)))
            for _ in range(2 * ENTRANCE_CONNECTIONS_MAX)
        ]
        with socket.create_connection(address) as raw:
            assert REASON.encode() in shake(raw)
        assert len(place.connections) <= ENTRANCE_CONNECTIONS_MAX
        closed = silent[:ENTRANCE_CONNECTIONS_MAX]
        for each in closed:
            each.settimeout(WAIT_S_MAX)
            while each.recv(4096):
                pass
    assert not place.connections


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", bytes(64), b""])
def test_other_bytes_end_a_connection_and_no_more(listener: ZmtpListener, said: bytes) -> None:
    with listener.giving_reason(lambda: REASON):
        address = split_address(address_of(listener))
        with socket.create_connection(address) as stranger:
            stranger.sendall(said)
            stranger.shutdown(socket.SHUT_WR)
            with socket.create_connection(address) as raw:
                assert REASON.encode() in shake(raw)


async def test_the_port_refuses_nobody_between_entrance_and_server(listener: ZmtpListener) -> None:
    """Clients which come in between wait in the backlog."""
    with listener.giving_reason(lambda: REASON):
        address = address_of(listener)
    client = WireClient(ZmtpConnections())
    client.connections.learn(S0, address)
    with socket.create_connection(split_address(address)):
        client.connections.post(S0, [get_tag(1)])
        await served(listener)
        await answered(client)
    await client.connections.close()
    await listener.close()


async def test_a_failed_start_leaves_neither_thread_nor_port() -> None:
    listener = ZmtpListener("127.0.0.1:0")
    before = threading.active_count()
    address = address_of(listener)
    with pytest.raises(BadInput, match="made up"), listener.giving_reason(lambda: REASON):
        raise BadInput("made up")
    assert threading.active_count() == before
    await listener.close()
    assert is_free(*split_address(address))


async def test_a_taken_port_is_refused_before_anything_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = ZmtpListener("{}:{}".format(*taken.getsockname()))
        with pytest.raises(BadInput, match="cannot listen"):
            listener.giving_reason(lambda: REASON)
        await listener.close()


def test_a_connection_that_ended_is_freed_without_garbage_collection(
    listener: ZmtpListener,
) -> None:
    """A start turns the collection off, and its end keeps all objects for ever."""
    kept: list[weakref.ref[object]] = []
    gc.disable()
    try:
        with listener.giving_reason(lambda: REASON) as place:

            class Noted(dict[ZmtpConnection, None]):
                def __setitem__(self, connection: ZmtpConnection, value: None) -> None:
                    kept.append(weakref.ref(connection))
                    super().__setitem__(connection, value)

            place.connections = Noted()
            for _ in range(3):
                with socket.create_connection(split_address(address_of(listener))) as raw:
                    assert REASON.encode() in shake(raw)
        assert len(kept) == 3
        assert not [each for each in kept if each() is not None]
    finally:
        gc.enable()


def test_what_a_client_says_is_read_by_earlier_releases() -> None:
    """The property is for servers of this release; others pass over it."""
    assert b"Ares-Reasons" in properties(DEALER)
    assert b"Ares-Reasons" not in properties(b"ROUTER")
