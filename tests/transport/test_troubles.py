"""Reasons why a server cannot be reached: a connection reports them to the operation.

The user learns why an operation got no answer.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ares.model.identity import CallId
from ares.model.messages import Ack, Reason, Refused
from ares.net import links, native
from ares.net.libzmq import ZmqConnections, ZmqListener
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.zmtp.connection import ZmtpConnection
from ares.net.zmtp.curve import CurveServer
from ares.net.zmtp.frames import framed, greeting
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey, keyed

from .wires import S0, WAIT_S_MAX, Everybody, WireClient, acknowledge, get_tag, until

KEY, SERVER_KEY = SecretKey.generate(), SecretKey.generate()

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def client_of(address: str, secret: SecretKey | None = None) -> AsyncIterator[WireClient]:
    client = WireClient(ZmtpConnections(secret))
    client.connections.learn(S0, address)
    yield client
    await client.connections.close()


@contextlib.asynccontextmanager
async def answering(talk: Talk, port: int = 0) -> AsyncIterator[str]:
    """Run a server that follows the script `talk`."""
    server = await asyncio.start_server(talk, "127.0.0.1", port)
    yield "{}:{}".format(*server.sockets[0].getsockname())
    server.close()


async def trouble_of(client: WireClient) -> str:
    """Post repeatedly, and return the trouble."""
    async with asyncio.timeout(WAIT_S_MAX):
        while S0 not in client.connections.troubles:
            client.connections.post(S0, [get_tag(1)])
            await asyncio.sleep(0.02)
    return client.connections.troubles[S0]


async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return "{}:{}".format(*free.getsockname())


async def test_a_refused_connection_is_named_until_a_server_listens() -> None:
    address = free_address()
    async with client_of(address) as client:
        assert client.connections.troubles == {}
        assert await trouble_of(client) == "connection refused: is it running?"
        listener = ZmtpListener(address)
        await listener.serve(lambda _, messages: acknowledge(messages))
        await client.insist(S0, 2)
        assert client.connections.troubles == {}
        await listener.close()


async def test_an_unknown_host_is_named() -> None:
    async with client_of("no-such-host.invalid:7400") as client:
        assert (await trouble_of(client)).startswith(
            "its host name 'no-such-host.invalid' is not known here: "
        )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"),
            "connection refused: is it running?",
        ),
        (OSError(errno.EHOSTUNREACH, "Connect call failed"), "no route to its machine"),
        (OSError(errno.ENETUNREACH, "Connect call failed"), "no route to its machine"),
        (
            TimeoutError(),
            "nothing answers at its address: is the machine up, and does no firewall drop "
            "connections?",
        ),
        (TimeoutError(errno.ETIMEDOUT, "Connect call failed"), "nothing answers at its address"),
        (OSError(errno.EMFILE, "whatever"), "no connection: Too many open files"),
        (OSError("Multiple exceptions: one, two"), "no connection: Multiple exceptions: one, two"),
        (
            socket.gaierror(-3, "Temporary failure in name resolution"),
            "its host name 'db1' is not known here: Temporary failure in name resolution",
        ),
        (UnicodeError("label too long"), "its host name 'db1' is not known here: label too long"),
    ],
)
def test_what_each_error_is_for_a_person(error: Exception, words: str) -> None:
    assert links.unreached("db1", error).startswith(words)


@pytest.mark.parametrize(("secret", "words"), [(None, links.HUNG_UP), (KEY, links.WRONG_KEY)])
async def test_a_server_that_hangs_up_in_the_handshake_refuses_no_key(
    secret: SecretKey | None, words: str
) -> None:
    """The server may be ending, and may be back in a moment, however often it hung up."""
    async with (
        answering(slam) as address,
        client_of(keyed(address, SERVER_KEY.public) if secret else address, secret) as client,
    ):
        for _ in range(5):
            assert await trouble_of(client) == words
            client.connections.troubles.clear()  # type: ignore[attr-defined]
        assert client.received == []
        assert "hung up during the handshake" in words


async def test_one_that_says_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "HANDSHAKE_TIMEOUT_MS", 50)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()

    async with answering(mute) as address, client_of(address) as client:
        assert await trouble_of(client) == "it takes connections and says nothing: does it hang?"
        await asyncio.sleep(0.1)
        assert client.connections.troubles[S0] == links.SILENT_PEER, (
            "that it was hung up on is our doing"
        )


async def test_what_is_no_server_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def web(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with answering(web) as address, client_of(address) as client:
        assert (
            await trouble_of(client)
            == "the process that answers there is not a server that this release understands: it "
            "does not speak ZMTP"
        )
    assert caplog.text == ""


def turning_away(code: bytes, shows_key: bool) -> Talk:
    """Return a script of a server that answers ERROR with this code.

    The server sends ERROR after a look at the client's key, or at once, as any process can.
    """

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handshake = CurveServer(SERVER_KEY, lambda _: False, b"")
        writer.write(handshake.opening())
        await reader.readexactly(64)
        if shows_key:
            writer.write(handshake.hear((await reader.readexactly(2 + 200))[2:]))
            await reader.read(1000)
        writer.write(framed(b"\x05ERROR\x03" + code))
        await writer.drain()
        await reader.read()
        writer.close()

    return talk


@pytest.mark.parametrize(("code", "refused"), [(b"400", True), (b"300", False)])
async def test_only_an_unknown_key_is_not_authorised(code: bytes, refused: bool) -> None:
    """300 is libzmq's code if the process that knows the keys cannot be asked now."""
    async with (
        answering(turning_away(code, True)) as address,
        client_of(keyed(address, SERVER_KEY.public), KEY) as client,
    ):
        client.connections.post(S0, [get_tag(1)])
        if refused:
            await until(lambda: bool(client.received))
            assert client.received == [
                Refused(CallId(0), Reason.NOT_AUTHORIZED, f"at {address}: {links.UNKNOWN_KEY}")
            ]
        else:
            assert await trouble_of(client) == "it refuses: '300'"
            assert client.received == []


async def test_a_server_without_a_proven_key_refuses_no_key() -> None:
    """A server refuses a key only after it has seen the key.

    A client shows the key only after the server has proved to own the server's key.
    """
    async with (
        answering(turning_away(b"400", False)) as address,
        client_of(keyed(address, SERVER_KEY.public), KEY) as client,
    ):
        assert "it refuses before it has shown to own the server's key" in await trouble_of(client)
        assert client.received == []


async def test_a_client_without_a_key_has_none_that_could_be_unknown() -> None:
    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting(b"NULL") + framed(b"\x05ERROR\x03400"))
        await reader.read()
        writer.close()

    async with answering(turn_away) as address, client_of(address) as client:
        assert await trouble_of(client) == "it refuses: '400'"
        assert client.received == []


@pytest.mark.parametrize("listener_kind", [ZmtpListener, ZmqListener])
@pytest.mark.parametrize(
    "client_has_key", [True, False], ids=["a client with a key", "a client without"]
)
async def test_keys_on_one_side_only_are_reported_for_both_transports(
    listener_kind: type[ZmqListener | ZmtpListener], client_has_key: bool
) -> None:
    """Unless the client waits, libzmq hangs up before naming a mechanism."""
    listener = listener_kind(
        "127.0.0.1:0", None if client_has_key else Lock(SERVER_KEY, Everybody())
    )
    address = await listener.serve(lambda _, messages: acknowledge(messages))
    async with client_of(
        keyed(address, SERVER_KEY.public) if client_has_key else address,
        KEY if client_has_key else None,
    ) as client:
        async with asyncio.timeout(WAIT_S_MAX):
            while not client.received:
                client.connections.post(S0, [get_tag(1)])
                await asyncio.sleep(0.02)
        reply = client.received[0]
        assert isinstance(reply, Refused)
        assert (
            reply.detail
            == f"at {address}: {links.NO_SERVER if client_has_key else links.NEEDS_KEYS}"
        )
    await listener.close()


@pytest.mark.parametrize("listener_kind", [ZmtpListener, ZmqListener])
@pytest.mark.parametrize("secret", [None, KEY], ids=["without keys", "with keys"])
async def test_a_careful_handshake_is_one(
    listener_kind: type[ZmqListener | ZmtpListener], secret: SecretKey | None
) -> None:
    """After a hang-up, the client meets the next server at once, and later in the usual way."""
    careful: list[bool] = []
    make = native.ZmtpConnection

    def made(*arguments: object, **named: bool) -> ZmtpConnection:
        careful.append(named["careful"])
        return make(*arguments, **named)  # type: ignore[arg-type]

    address = free_address()
    async with client_of(
        keyed(address, SERVER_KEY.public) if secret else address, secret
    ) as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "ZmtpConnection", made)
            async with answering(slam, int(address.rpartition(":")[2])):
                await trouble_of(client)
            listener = listener_kind(address, Lock(SERVER_KEY, Everybody()) if secret else None)
            await listener.serve(lambda _, messages: acknowledge(messages))
            await client.insist(S0, 2)
            assert (careful[0], careful[-1]) == (False, True)
            assert Ack(CallId(2), None) in client.received
            assert client.connections.troubles == {}
    await listener.close()


async def test_an_address_that_is_none_is_told() -> None:
    async with client_of("nowhere") as client:
        assert "expected host:port, found 'nowhere'" in await trouble_of(client)


async def test_over_libzmq_a_connection_that_is_refused_is_only_silent() -> None:
    """The reason is not reported by libzmq; docs/transport.md."""
    client = WireClient(ZmqConnections())
    client.connections.learn(S0, free_address())
    client.connections.post(S0, [get_tag(1)])
    await asyncio.sleep(0.2)
    assert client.connections.troubles == {}
    await client.connections.close()
