"""The door: admitted connections, the cost of attempts, and no admission without the doorkeeper."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import pytest
import zmq
import zmq.asyncio

from ares.cluster.tables import TransportName
from ares.model.codec import encode
from ares.model.identity import CallId, ServerId
from ares.model.messages import Ack, AnyMessage, Describe, Reason, Refused
from ares.model.units import MIB
from ares.net import native
from ares.net.libzmq import Authenticator
from ares.net.native import ZmtpListener
from ares.net.port import Sender
from ares.net.transports import connections, listener_at
from ares.security.clients_file import KeyedSender, Lock
from ares.security.keys import SecretKey, keyed
from tests.private_memory import private_bytes

from .secure_cluster import WAIT_S_MAX, within

S0 = ServerId("s0")
ATTEMPTS = 2000
AT_ONCE = 20


class Doorkeeper:
    """A policy for the clients in ``known``; refused clients are counted."""

    def __init__(self, *known: SecretKey) -> None:
        self.known = {key.public for key in known}
        self.refused = 0

    def admits(self, key: str, address: str) -> bool:
        self.refused += key not in self.known
        return key in self.known


class GuardedServer:
    """A listener behind a lock, which acknowledges all messages.

    ``clients`` is the transport of the clients.
    """

    def __init__(
        self,
        known: SecretKey,
        transport: TransportName = "native",
        clients: TransportName = "native",
    ) -> None:
        self.transport = transport
        self.clients = clients
        self.key = SecretKey.generate()
        self.doorkeeper = Doorkeeper(known)
        self.listener = listener_at(
            "127.0.0.1:0", Lock(self.key, self.doorkeeper), transport=transport
        )
        self.senders: list[Sender] = []
        self.address = ""

    def handle(self, sender: Sender, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        self.senders.append(sender)
        return [Ack(message.call, None) for message in messages]


class Client:
    """Connections with a record of their deliveries."""

    def __init__(self, address: str, key: SecretKey | None, transport: TransportName) -> None:
        self.received: list[AnyMessage] = []
        self.connections = connections(key, transport)
        self.connections.open(lambda _, messages: self.received.extend(messages))
        self.connections.learn(S0, address)

    async def ask(self, call: int = 1) -> AnyMessage:
        """Post repeatedly until a reply comes."""

        async def asking() -> AnyMessage:
            self.received.clear()
            while not self.received:
                self.connections.post(S0, [Describe(CallId(call))])
                await asyncio.sleep(0.02)
            return self.received[0]

        return await within(asking())


@pytest.fixture
def known() -> SecretKey:
    return SecretKey.generate()


@pytest.fixture(
    params=[("native", "native"), ("native", "libzmq"), ("libzmq", "native"), ("libzmq", "libzmq")],
    ids=" to ".join,
)
async def server(request: pytest.FixtureRequest, known: SecretKey) -> AsyncIterator[GuardedServer]:
    clients, transport = request.param
    made = GuardedServer(known, transport, clients)
    made.address = await made.listener.serve(made.handle)
    yield made
    await made.listener.close()


@contextlib.asynccontextmanager
async def client_of(
    server: GuardedServer, key: SecretKey | None, server_key: str = ""
) -> AsyncIterator[Client]:
    made = Client(keyed(server.address, server_key or server.key.public), key, server.clients)
    yield made
    await made.connections.close()


async def test_a_known_key_gets_in_and_is_known_by_every_batch(
    server: GuardedServer, known: SecretKey
) -> None:
    async with client_of(server, known) as client:
        assert await client.ask() == Ack(CallId(1), None)
    assert server.doorkeeper.refused == 0
    for sender in server.senders:
        assert isinstance(sender, KeyedSender)
        assert sender.key == known.public


async def test_an_unknown_key_is_refused_and_its_messages_reach_no_server(
    server: GuardedServer,
) -> None:
    async with client_of(server, SecretKey.generate()) as stranger:
        reply = await stranger.ask()
        assert isinstance(reply, Refused)
        assert (reply.call, reply.reason) == (0, Reason.NOT_AUTHORIZED)
        assert "does not know this client's key" in reply.detail
    assert server.doorkeeper.refused >= 1
    assert server.senders == []


async def test_a_client_that_was_turned_away_tries_again_by_itself(server: GuardedServer) -> None:
    late = SecretKey.generate()
    async with client_of(server, late) as client:
        assert isinstance(await client.ask(), Refused)
        server.doorkeeper.known.add(late.public)

        async def served() -> None:
            while not isinstance(await client.ask(), Ack):  # noqa: ASYNC110 (the client asks again)
                await asyncio.sleep(0.05)

        await within(served())


async def test_a_server_with_another_key_is_not_spoken_to(
    server: GuardedServer, known: SecretKey
) -> None:
    """The server's key is no verdict on this client: the server may also be crashing repeatedly."""
    async with client_of(server, known, SecretKey.generate().public) as client:

        async def troubled() -> str:
            while S0 not in client.connections.troubles:
                client.connections.post(S0, [Describe(CallId(1))])
                await asyncio.sleep(0.02)
            return client.connections.troubles[S0]

        assert "another key than the cluster file says" in await within(troubled())
        assert client.received == []
    assert server.senders == []


@pytest.mark.parametrize("transport", ["native", "libzmq"])
@pytest.mark.parametrize("clients", ["native", "libzmq"])
async def test_a_server_that_has_no_key_is_not_spoken_to(
    known: SecretKey, transport: TransportName, clients: TransportName
) -> None:
    plain = listener_at("127.0.0.1:0", transport=transport)
    seen: list[Sender] = []
    address = await plain.serve(
        lambda sender, messages: (
            seen.append(sender) or [Ack(message.call, None) for message in messages]
        )
    )
    client = Client(keyed(address, SecretKey.generate().public), known, clients)
    assert isinstance(await client.ask(), Refused)
    assert seen == []
    await client.connections.close()
    await plain.close()


@pytest.mark.parametrize("key", ["a client without", "a client with"])
async def test_a_client_of_another_mechanism_is_told(
    key: str, known: SecretKey, caplog: pytest.LogCaptureFixture
) -> None:
    """The notice comes once a second, and not for every connection attempt."""
    has_key = key == "a client with"
    listener = listener_at(
        "127.0.0.1:0", None if has_key else Lock(SecretKey.generate(), Doorkeeper())
    )
    address = await listener.serve(
        lambda _, messages: [Ack(message.call, None) for message in messages]
    )
    client = Client(
        keyed(address, SecretKey.generate().public) if has_key else address,
        known if has_key else None,
        "native",
    )
    for _ in range(3):
        answer = await client.ask()
        assert isinstance(answer, Refused)
        assert answer.reason is (Reason.BAD_REQUEST if has_key else Reason.NOT_AUTHORIZED), (
            "nobody said anything of this client's key"
        )
        assert (
            "does not speak CURVE" if has_key else "this cluster file has no keys"
        ) in answer.detail
    assert "hung up on a server" not in caplog.text
    await client.connections.close()
    await listener.close()


async def test_a_client_without_a_key_gets_nothing(server: GuardedServer) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"tcp://{server.address}")
        await socket.send_multipart(encode([Describe(CallId(1))]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await socket.recv_multipart()
    assert server.senders == []


@pytest.mark.parametrize("clients", ["native", "libzmq"])
async def test_a_client_whose_key_is_revoked_is_hung_up_on(
    clients: TransportName, known: SecretKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes idle clients.

    Servers on libzmq keep such connections, and refuse their messages.
    """
    monkeypatch.setattr(native, "ROLL_CALL_S", 0.02)
    server = GuardedServer(known, "native", clients)
    server.address = await server.listener.serve(server.handle)
    other = SecretKey.generate()
    server.doorkeeper.known.add(other.public)
    async with client_of(server, known) as bob, client_of(server, other) as carol:
        assert await bob.ask() == await carol.ask() == Ack(CallId(1), None)
        server.doorkeeper.known.discard(known.public)

        async def hung_up() -> None:
            while len(server.listener.connections) > 1:  # noqa: ASYNC110 (the listener tells when it did)
                await asyncio.sleep(0.01)

        await within(hung_up())
        assert await carol.ask(2) == Ack(CallId(2), None)
        assert isinstance(await bob.ask(3), Refused)
    assert isinstance(server.listener, ZmtpListener)
    assert server.listener.cut == 1
    await server.listener.close()


async def test_a_client_cannot_choose_its_user_id(server: GuardedServer) -> None:
    """The user id comes from the doorkeeper, not from the client."""
    key = SecretKey.generate()
    server.doorkeeper.known.add(key.public)
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(server.key.public))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(key.public))
        socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret)
        socket.setsockopt(zmq.METADATA, b"X-User-Id:admin")
        socket.setsockopt(zmq.ROUTING_ID, b"admin")
        socket.connect(f"tcp://{server.address}")
        await socket.send_multipart(encode([Describe(CallId(1))]))
        await within(socket.recv_multipart())
    [sender] = server.senders
    assert isinstance(sender, KeyedSender)
    assert sender.key == key.public


async def test_without_a_doorkeeper_no_client_gets_in(
    known: SecretKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the doorkeeper, libzmq would let every key in."""
    make = Authenticator.__init__

    def gone(authenticator: Authenticator, *arguments: object) -> None:
        make(authenticator, *arguments)  # type: ignore[arg-type]
        authenticator.close()

    monkeypatch.setattr(Authenticator, "__init__", gone)
    server = GuardedServer(known, "libzmq", "libzmq")
    server.address = await server.listener.serve(server.handle)
    async with client_of(server, known) as client:
        for call in range(25):
            client.connections.post(S0, [Describe(CallId(call))])
            await asyncio.sleep(0.02)
        assert not any(isinstance(message, Ack) for message in client.received)
    assert server.senders == []
    await server.listener.close()


async def attempt(
    context: zmq.Context[zmq.Socket[bytes]], server: GuardedServer, many: int
) -> None:
    """Connect `many` times with an unknown key."""
    for _ in range(many // AT_ONCE):
        stranger, sockets, before = SecretKey.generate(), [], server.doorkeeper.refused
        for _ in range(AT_ONCE):
            socket = context.socket(zmq.DEALER)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(server.key.public))
            socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(stranger.public))
            socket.setsockopt(zmq.CURVE_SECRETKEY, stranger.secret)
            socket.connect(f"tcp://{server.address}")
            # would be kept if the server accepted it
            socket.send_multipart([bytes([1]) + bytes(64 * 1024)], zmq.NOBLOCK)
            sockets.append(socket)
        async with asyncio.timeout(WAIT_S_MAX):
            while server.doorkeeper.refused < before + AT_ONCE:  # noqa: ASYNC110 (counted by another callback)
                await asyncio.sleep(0.002)
        for socket in sockets:
            socket.close()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["native", "libzmq"])
async def test_attempts_of_strangers_cost_no_memory_and_disturb_no_client(
    known: SecretKey, transport: TransportName
) -> None:
    server = GuardedServer(known, transport)
    server.address = await server.listener.serve(server.handle)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    async with client_of(server, known) as client:
        await attempt(context, server, ATTEMPTS // 4)
        before = private_bytes()
        await attempt(context, server, ATTEMPTS)
        grown = private_bytes() - before
        assert await client.ask(7) == Ack(CallId(7), None)
    context.term()
    await server.listener.close()
    assert server.doorkeeper.refused == ATTEMPTS // 4 + ATTEMPTS
    assert grown < 8 * MIB
    assert {sender.key for sender in server.senders if isinstance(sender, KeyedSender)} == {
        known.public
    }
