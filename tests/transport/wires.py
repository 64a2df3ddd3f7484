"""Both transports behind a common interface: every test of the contract runs over each."""

import asyncio
import contextlib
import gc
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import zmq
import zmq.asyncio

from ares.model.codec import Frame, decode
from ares.model.identity import CallId, ConfigurationId, ObjectName, ServerId
from ares.model.messages import Ack, AnyMessage, GetTag
from ares.net.libzmq import ZmqConnections, ZmqListener
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.port import Connections, Listener, Sender
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey, keyed
from tests.inproc.network import InprocConnections, InprocListener, InprocNetwork, _Origin

S0 = ServerId("s0")
WAIT_S_MAX = 60.0
"""Seconds far beyond any time in these tests, also on a busy machine."""


def get_tag(call: int) -> GetTag:
    return GetTag(CallId(call), ConfigurationId(b"c" * 16), ObjectName(f"key {call}"))


def acknowledge(messages: Sequence[AnyMessage]) -> list[AnyMessage]:
    return [Ack(message.call, None) for message in messages]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if condition():
                return
            await asyncio.sleep(0.001)


async def nothing_stays(listener: ZmtpListener, provoke: Callable[[], object]) -> None:
    """Fail unless a closed connection frees all objects without garbage collection.

    ``provoke`` makes the listener close the only connection.
    """
    gc.disable()
    try:
        kept = weakref.ref(next(iter(listener.connections)))
        provoke()
        await until(lambda: not listener.connections)
        for _ in range(10):
            await asyncio.sleep(0)
        assert kept() is None
    finally:
        gc.enable()


class WireServer:
    """A recorder of requests, which answers with ``answer``."""

    def __init__(
        self, listener: Listener, answer: Callable[[Sequence[AnyMessage]], Sequence[AnyMessage]]
    ) -> None:
        self.listener = listener
        self.answer = answer
        self.batches: list[tuple[Sender, list[AnyMessage]]] = []
        self.address = ""

    @property
    def received(self) -> list[AnyMessage]:
        return [message for _, batch in self.batches for message in batch]

    def handle(self, sender: Sender, messages: Iterable[AnyMessage]) -> Sequence[AnyMessage]:
        batch = list(messages)
        self.batches.append((sender, batch))
        return self.answer(batch)


class WireClient:
    """Connections with a record of their deliveries."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.batches: list[tuple[ServerId, list[AnyMessage]]] = []
        connections.open(lambda server, messages: self.batches.append((server, list(messages))))

    @property
    def received(self) -> list[AnyMessage]:
        return [message for _, batch in self.batches for message in batch]

    def calls(self) -> set[int]:
        return {message.call for message in self.received}

    async def ask(self, server: ServerId, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        """Post once and wait for as many replies."""
        before = len(self.received)
        self.connections.post(server, messages)
        await until(lambda: len(self.received) >= before + len(messages))
        return self.received[before:]

    async def insist(self, server: ServerId, call: int) -> None:
        """Post repeatedly until the call is answered, as a session does."""
        async with asyncio.timeout(WAIT_S_MAX):
            while call not in self.calls():
                self.connections.post(server, [get_tag(call)])
                await asyncio.sleep(0.02)


def secure(socket: zmq.asyncio.Socket, server: SecretKey, client: SecretKey) -> None:
    """Make the socket a CURVE client with this key, for a server with this key."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(server.public))
    socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(client.public))
    socket.setsockopt(zmq.CURVE_SECRETKEY, client.secret)


class Wire:
    """A maker of servers and clients, which closes both at the end of the test."""

    def __init__(self) -> None:
        self._closing = contextlib.AsyncExitStack()

    def make_listener(self, address: str) -> Listener:
        raise NotImplementedError

    def make_connections(self) -> Connections:
        raise NotImplementedError

    def fresh_address(self) -> str:
        """Return an address without a listener."""
        raise NotImplementedError

    def known_as(self, address: str) -> str:
        """Return the address of a server as told to clients."""
        return address

    async def exchange(
        self, address: str, batches: Sequence[Sequence[Frame]], replies: int
    ) -> list[AnyMessage]:
        """Send raw frames as a client; return the first ``replies`` messages of the answers."""
        raise NotImplementedError

    async def serve(
        self,
        address: str = "",
        answer: Callable[[Sequence[AnyMessage]], Sequence[AnyMessage]] = acknowledge,
    ) -> WireServer:
        server = WireServer(self.make_listener(address or self.fresh_address()), answer)
        server.address = await server.listener.serve(server.handle)
        self._closing.push_async_callback(server.listener.close)
        return server

    def connect(self, *servers: WireServer | str) -> WireClient:
        """Make a client of the servers, which are s0, s1, ..."""
        client = WireClient(self.make_connections())
        for number, server in enumerate(servers):
            client.connections.learn(
                ServerId(f"s{number}"),
                self.known_as(server if isinstance(server, str) else server.address),
            )
        self._closing.push_async_callback(client.connections.close)
        return client

    async def close(self) -> None:
        await self._closing.aclose()


class InprocWire(Wire):
    def __init__(self) -> None:
        super().__init__()
        self.network = InprocNetwork()
        self._addresses = 0

    def make_listener(self, address: str) -> InprocListener:
        return InprocListener(self.network, address)

    def make_connections(self) -> InprocConnections:
        return InprocConnections(self.network)

    def fresh_address(self) -> str:
        self._addresses += 1
        return f"place-{self._addresses}"

    async def exchange(
        self, address: str, batches: Sequence[Sequence[Frame]], replies: int
    ) -> list[AnyMessage]:
        connections = self.make_connections()
        client = WireClient(connections)
        for frames in batches:
            self.network.carry_request(address, _Origin(connections, S0), frames)
        await until(lambda: len(client.received) >= replies)
        return client.received


class Everybody:
    """A policy without refusals (:meth:`ares.security.clients_file.AuthorisedClients.admits`)."""

    def admits(self, key: str, address: str) -> bool:
        return True


class ZmqWire(Wire):
    """Both sides on libzmq.

    With ``has_keys``, servers share a key, and clients share another key.
    """

    server_kind: type[ZmqListener] | type[ZmtpListener] = ZmqListener
    client_kind: type[ZmqConnections] | type[ZmtpConnections] = ZmqConnections

    def __init__(self, has_keys: bool = False) -> None:
        super().__init__()
        self.server_key = SecretKey.generate() if has_keys else None
        self.client_key = SecretKey.generate() if has_keys else None

    def make_listener(self, address: str) -> Listener:
        return self.server_kind(
            address, None if self.server_key is None else Lock(self.server_key, Everybody())
        )

    def make_connections(self) -> Connections:
        return self.client_kind(self.client_key)

    def known_as(self, address: str) -> str:
        return address if self.server_key is None else keyed(address, self.server_key.public)

    def endpoint(self, address: str) -> str:
        """Return the address of a server in the words of libzmq."""
        return f"tcp://{address}"

    def fresh_address(self) -> str:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            # below the ports of outgoing connections
            port = socket.bind_to_random_port("tcp://127.0.0.1", 20_000, 32_000)
        return f"127.0.0.1:{port}"

    async def exchange(
        self, address: str, batches: Sequence[Sequence[Frame]], replies: int
    ) -> list[AnyMessage]:
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            if self.server_key is not None and self.client_key is not None:
                secure(socket, self.server_key, self.client_key)
            socket.connect(self.endpoint(address))
            for frames in batches:
                await socket.send_multipart(frames)
            received: list[AnyMessage] = []
            async with asyncio.timeout(WAIT_S_MAX):
                while len(received) < replies:
                    received += decode(await socket.recv_multipart())
            return received


class ZmtpWire(ZmqWire):
    """Our own ZMTP on both sides."""

    server_kind = ZmtpListener
    client_kind = ZmtpConnections


class SocketWire(ZmtpWire):
    """Our own ZMTP on both sides, over Unix sockets."""

    def __init__(self, has_keys: bool = False) -> None:
        super().__init__(has_keys)
        self.directory = Path(self._closing.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        self.clients: list[ZmtpConnections] = []

    def make_listener(self, address: str) -> ZmtpListener:
        lock = None if self.server_key is None else Lock(self.server_key, Everybody())
        return ZmtpListener(address, lock, sockets=self.directory)

    def make_connections(self) -> ZmtpConnections:
        self.clients.append(ZmtpConnections(self.client_key, sockets=self.directory))
        return self.clients[-1]

    def endpoint(self, address: str) -> str:
        return f"ipc://{self.directory}/{address}.sock"

    async def close(self) -> None:
        met = [client for client in self.clients if client.connected_s]
        await super().close()
        assert all(client.over_sockets == {*client.connected_s} for client in met)


class OurServerWire(ZmqWire):
    """Clients on libzmq, servers on our ZMTP."""

    server_kind = ZmtpListener


class OurClientWire(ZmqWire):
    """Servers on libzmq, clients on our ZMTP."""

    client_kind = ZmtpConnections
