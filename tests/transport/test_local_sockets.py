"""Unix sockets beside TCP: made, left, believed, passed over, and with all bounds of TCP.

The contract of transports runs over them, too (tests/transport/test_transport_contract.py).
"""

import asyncio
import errno
import os
import socket
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ares.client.connect import connections_of
from ares.cluster.addresses import split_address
from ares.cluster.new_cluster import InitPlan, create, is_free
from ares.cluster.settings import Settings
from ares.cluster.tables import Limits
from ares.model.codec import encode
from ares.model.errors import BadInput
from ares.model.identity import CallId
from ares.model.messages import DataReply, Element, Reason, Refused
from ares.model.tag import TAG_ZERO
from ares.model.units import MIB
from ares.net import links, local_sockets, native
from ares.net.local_sockets import (
    PATH_BYTES_MAX,
    LocalSocket,
    connect_locally,
    listen_locally,
    socket_path,
)
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.net.zmtp.connection import process_at
from ares.net.zmtp.frames import DEALER, NullHandshake, wire
from ares.security.clients_file import Lock
from ares.security.keys import SecretKey, keyed
from ares.server.process_lifecycle import ProcessLifecycle
from tests.ports import free_addresses

from .test_passing import put
from .test_zmq import uvloop_loop
from .wires import (
    S0,
    WAIT_S_MAX,
    Everybody,
    SocketWire,
    WireClient,
    WireServer,
    acknowledge,
    get_tag,
    until,
)

POWERLESS_UID = 65534
"""A user without rights."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as another user")


@pytest.fixture
def run() -> Iterator[Path]:
    """Make a directory for sockets: with a short path, and no closed directory above."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Act as another user."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def as_plain_user() -> Iterator[int]:
    """Act as a user who is not root, and yield the user's number."""
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    with acting_as(POWERLESS_UID):
        yield POWERLESS_UID


def path_of(run: Path, address: str) -> Path:
    host, port = address.split(":")
    return socket_path(run, host, int(port))


async def served(
    run: Path | None, address: str = "", lock: Lock | None = None, limits: Limits | None = None
) -> WireServer:
    listener = ZmtpListener(address or free_addresses(1)[0], lock, limits, sockets=run)
    server = WireServer(listener, acknowledge)
    server.address = await listener.serve(server.handle)
    return server


def client_of(run: Path | None, address: str, secret: SecretKey | None = None) -> WireClient:
    client = WireClient(ZmtpConnections(secret, "nantes", sockets=run))
    client.connections.learn(S0, address)
    return client


# -- the server's end ------------------------------------------------------------------------------


async def test_a_socket_is_its_user_s_and_a_clean_end_removes_it(run: Path) -> None:
    server = await served(run)
    assert stat.S_IMODE(path_of(run, server.address).stat().st_mode) == 0o600
    await server.listener.close()
    assert os.listdir(run) == []


async def test_the_file_goes_before_the_socket_closes(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise another process could replace the file in between, and lose the new file."""
    unlink, listened = Path.unlink, []

    def watched(path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as probe:
            listened.append(probe.connect_ex(os.fspath(path)) == 0)
        unlink(path)

    monkeypatch.setattr(Path, "unlink", watched)
    server = await served(run)
    await server.listener.close()
    local = listen_locally(run / "s.sock", 1)
    assert local is not None
    local.end()
    assert listened == [True, True]
    assert os.listdir(run) == []


@as_root
def test_a_socket_that_another_user_left_is_named_with_the_remedy(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run.chmod(0o755)
    left = listen_locally(run / "s.sock", 1)
    assert left is not None
    left.raw.close()
    with acting_as(POWERLESS_UID):
        assert listen_locally(left.path, 1) is None
    assert "if another user's process left the file, remove it" in caplog.text


@as_root
@pytest.mark.parametrize(
    ("directory_mode", "mode", "may"),
    [(0o755, 0o600, False), (0o700, 0o666, False), (0o755, 0o666, True)],
)
def test_permissions_decide_who_may_connect(
    run: Path, directory_mode: int, mode: int, may: bool
) -> None:
    """The last case is the control, with permissions that no server gives."""
    local = listen_locally(run / "s.sock", 9)
    assert local is not None
    assert stat.S_IMODE(local.path.stat().st_mode) == 0o600
    run.chmod(directory_mode)
    local.path.chmod(mode)
    with acting_as(POWERLESS_UID):
        raw = connect_locally(local.path)
    assert (raw is not None) == may
    if raw is not None:
        raw.close()
    local.end()


async def test_the_socket_of_a_killed_server_is_replaced(run: Path) -> None:
    [address] = free_addresses(1)
    killed = listen_locally(path_of(run, address), 1)
    assert killed is not None
    killed.raw.close()
    server, client = await served(run, address), client_of(run, address)
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == {S0}
    await client.connections.close()
    await server.listener.close()


@pytest.mark.parametrize("waiting", [0, 3], ids=["free", "with a full queue"])
async def test_the_socket_of_a_living_process_is_left_alone(
    run: Path, waiting: int, caplog: pytest.LogCaptureFixture
) -> None:
    [address] = free_addresses(1)
    living = listen_locally(path_of(run, address), 0 if waiting else 9)
    assert living is not None
    clients = [connect_locally(living.path) for _ in range(waiting)]
    assert clients.count(None) == max(0, waiting - 1)
    server = await served(run, address)
    assert "another process listens there" in caplog.text
    await server.listener.close()
    assert living.path.is_socket()
    for client in filter(None, clients):
        client.close()
    living.end()


async def test_a_server_that_cannot_listen_leaves_no_socket(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        with pytest.raises(Exception, match="cannot listen"):
            await served(run, address)
    assert os.listdir(run) == []


async def test_a_start_that_fails_leaves_no_port_and_no_socket(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [address] = free_addresses(1)

    async def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.get_running_loop(), "create_unix_server", failing)
        with pytest.raises(OSError, match="Too many open files"):
            await served(run, address)
    assert os.listdir(run) == []
    assert is_free(*split_address(address))
    server = await served(run, address)
    await server.listener.close()


async def test_a_second_process_fails_before_it_touches_the_file(run: Path) -> None:
    """The process at the port may be about to make its socket in place of an old one."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        old = listen_locally(path_of(run, address), 1)
        assert old is not None
        old.raw.close()
        before = old.path.stat().st_ino
        with pytest.raises(BadInput, match="cannot listen"):
            await served(run, address)
        assert old.path.stat().st_ino == before


async def test_a_process_makes_the_socket_when_it_has_the_port(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the process before could end between a look at the file and a try at the port."""
    [address] = free_addresses(1)
    owned = []

    def noted(path: Path, backlog: int) -> LocalSocket | None:
        owned.append(not is_free(*split_address(address)))
        return listen_locally(path, backlog)

    monkeypatch.setattr(native, "listen_locally", noted)
    server = await served(run, address)
    assert owned == [True]
    await server.listener.close()


async def test_a_port_that_the_system_chose_is_in_the_name_of_the_socket(run: Path) -> None:
    server = await served(run, "127.0.0.1:0")
    assert os.listdir(run) == [path_of(run, server.address).name]
    await server.listener.close()


def no_directory(path: Path) -> None:
    path.parent.rmdir()


def open_directory(path: Path) -> None:
    path.parent.chmod(0o777)


def sticky_directory(path: Path) -> None:
    path.parent.chmod(0o1777)


def directory_of_a_group(path: Path) -> None:
    path.parent.chmod(0o770)


def foreign_directory(path: Path) -> None:
    os.chown(path.parent, POWERLESS_UID, -1)


def linked_directory(path: Path) -> None:
    path.parent.rename(f"{path.parent}-elsewhere")
    path.parent.symlink_to(f"{path.parent}-elsewhere")


UNFIT_DIRECTORIES = [
    (open_directory, "chmod go-w"),
    (sticky_directory, "chmod go-w"),
    (directory_of_a_group, "chmod go-w"),
    pytest.param(foreign_directory, "belongs to another user (65534)", marks=as_root),
    (linked_directory, "is no directory"),
]


@pytest.fixture
def nested(run: Path) -> Path:
    """Make the directory of sockets within another one, which goes at the end with all links."""
    (run / "run").mkdir(mode=0o700)
    return run / "run"


@pytest.mark.parametrize(("prepare", "why"), UNFIT_DIRECTORIES)
async def test_a_client_looks_only_where_no_other_user_can_put_a_socket(
    nested: Path, prepare: Callable[[Path], None], why: str
) -> None:
    """A stranger's symbolic link could lead to another server of the same user, or of root."""
    server = await served(nested)
    path = path_of(nested, server.address)
    before = connect_locally(path)
    assert before is not None
    before.close()
    prepare(path)
    assert path.is_socket()
    assert connect_locally(path) is None
    client = client_of(nested, server.address)
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == set()
    await client.connections.close()
    await server.listener.close()


async def test_without_any_unix_socket_everything_is_tcp(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A unit of systemd may allow the families IPv4 and IPv6 alone."""
    [address] = free_addresses(1)
    left = listen_locally(path_of(run, address), 1)
    assert left is not None

    class Sandbox:
        AF_UNIX = socket.AF_UNIX

        @staticmethod
        def socket(family: int) -> None:
            raise OSError(errno.EAFNOSUPPORT, "forbidden")

    monkeypatch.setattr(local_sockets, "socket", Sandbox)
    server, client = await served(run, address), client_of(run, address)
    assert "forbidden" in caplog.text
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == set()
    await client.connections.close()
    await server.listener.close()
    left.end()


def other_file(path: Path) -> None:
    path.write_text("kept")


@pytest.mark.parametrize(
    ("prepare", "why"), [(no_directory, ""), *UNFIT_DIRECTORIES, (other_file, "is no socket")]
)
async def test_a_place_that_is_not_fit_leaves_the_server_with_tcp(
    nested: Path, prepare: Callable[[Path], None], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    [address] = free_addresses(1)
    path = path_of(nested, address)
    prepare(path)
    server, client = await served(nested, address), client_of(nested, address)
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == set()
    assert why in caplog.text
    assert bool(caplog.text) == bool(why)
    await client.connections.close()
    await server.listener.close()
    assert path.exists() == (prepare is other_file)


@pytest.mark.parametrize("more", [0, 1])
async def test_a_path_beyond_the_limit_is_named_and_gone_without(
    run: Path, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    [address] = free_addresses(1)
    length = PATH_BYTES_MAX + more - len(os.fsencode(path_of(run, address)))
    deep = run / ("d" * (length - 1))
    deep.mkdir(mode=0o700)
    server, client = await served(deep, address), client_of(deep, address)
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == (set() if more else {S0})
    assert ("its path has 108 bytes, and at most 107 are possible" in caplog.text) == bool(more)
    await client.connections.close()
    await server.listener.close()


# -- the client's choice ---------------------------------------------------------------------------


async def test_a_client_falls_back_to_tcp_at_once_and_comes_back(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = await served(run)
    client = client_of(run, server.address)
    ways = []
    for call, sockets in enumerate((run, None, run)):
        if call:
            await server.listener.close()
            server = await served(sockets, server.address)
            if sockets is None:  # as after a kill of the server with the socket
                stale = listen_locally(path_of(run, server.address), 1)
                assert stale is not None
                stale.raw.close()
        caplog.clear()
        await client.insist(S0, call)
        assert client.connections.troubles == {}
        ways.append(client.connections.over_sockets == {S0})
    assert ways == [True, False, True]
    assert "WARNING" not in caplog.text
    await client.connections.close()
    await server.listener.close()


async def test_another_address_of_the_server_leads_over_tcp(run: Path) -> None:
    """A relay, or a simulated link, is not passed by."""
    server = await served(run)
    client = client_of(run, server.address.replace("127.0.0.1", "localhost"))
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == set()
    await client.connections.close()
    await server.listener.close()


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def web(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")


async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.mark.parametrize("talk", [slam, web, mute])
async def test_a_process_that_is_no_server_is_passed_over(
    run: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "HANDSHAKE_TIMEOUT_MS", 50 if talk is mute else 5_000)
    pause_s = 1_000.0 if talk is web else 0.2  # a pause would be seen; silence has one
    monkeypatch.setattr(links, "RECONNECT_S_MIN", pause_s)
    [address] = free_addresses(1)
    stranger = await asyncio.start_unix_server(talk, path_of(run, address))
    server, client = await served(None, address), client_of(run, address)
    begin_s = time.monotonic()
    await client.ask(S0, [get_tag(1)])
    assert talk is web or time.monotonic() - begin_s > 0.15
    assert client.connections.over_sockets == set()
    assert client.connections.troubles == {}
    await client.connections.close()
    await server.listener.close()
    stranger.close()


@as_root
async def test_a_process_of_another_user_is_not_believed(run: Path) -> None:
    os.chmod(run, 0o755)
    [address] = free_addresses(1)
    path = path_of(run, address)
    foreign = socket.socket(socket.AF_UNIX)
    foreign.bind(os.fspath(path))
    with acting_as(POWERLESS_UID):
        foreign.listen()
    assert connect_locally(path) is None
    server, client = await served(None, address), client_of(run, address)
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == set()
    await client.connections.close()
    await server.listener.close()
    foreign.close()


def test_the_user_at_the_other_end_is_asked_of_the_kernel(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    assert process_at(here) == (os.getpid(), os.geteuid())
    local = listen_locally(run / "s.sock", 9)
    assert local is not None
    run.chmod(0o755)
    local.path.chmod(0o666)  # else a plain user would not reach the socket of root's test
    with as_plain_user() as plain:
        for user, believed in ((0, True), (plain, True), (54_321, False)):
            monkeypatch.setattr(local_sockets, "process_at", lambda raw, user=user: (1, user))
            raw = connect_locally(local.path)
            assert (raw is not None) == believed
            if raw is not None:
                raw.close()
    for end in (here, there):
        end.close()
    local.end()


@pytest.mark.parametrize("hangs_up", [False, True])
def test_the_descriptor_of_a_connection_is_uvloop_s_alone(
    run: Path, hangs_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another connection may have the descriptor when it is closed a second time."""
    made = list[socket.socket | None]()

    def noted(path: Path) -> socket.socket | None:
        made.append(connect_locally(path))
        return made[-1]

    async def scenario() -> None:
        [address] = free_addresses(1)
        server = await served(None if hangs_up else run, address)
        if hangs_up:
            stranger = await asyncio.start_unix_server(slam, os.fspath(path_of(run, address)))
        client = client_of(run, address)
        await client.ask(S0, [get_tag(1)])
        assert [raw is not None and raw.fileno() for raw in made] == [-1]
        assert client.connections.over_sockets == (set() if hangs_up else {S0})
        if hangs_up:
            stranger.close()
        else:
            [(sender, _)] = server.batches
            assert sender.host == f"pid {os.getpid()}, uid {os.geteuid()}"  # type: ignore[attr-defined]
        await client.connections.close()
        await server.listener.close()
        assert hangs_up or os.listdir(run) == []

    monkeypatch.setattr(native, "connect_locally", noted)
    with asyncio.Runner(loop_factory=uvloop_loop) as runner:
        runner.run(scenario())


# -- keys ------------------------------------------------------------------------------------------


async def test_a_server_behind_the_socket_proves_its_key_and_sees_the_client(run: Path) -> None:
    """The key, the site and the process of the client; another server's key leads to TCP."""
    made = SocketWire(has_keys=True)
    server = await made.serve()
    client = made.connect(server)
    await client.ask(S0, [get_tag(1)])
    [(sender, _)] = server.batches
    assert made.client_key is not None
    assert sender.key == made.client_key.public  # type: ignore[attr-defined]
    assert sender.host == f"pid {os.getpid()}, uid {os.geteuid()}"  # type: ignore[attr-defined]
    assert sender.peer == sender.host  # type: ignore[attr-defined]

    right = SecretKey.generate()
    [address] = free_addresses(1)
    other = await served(None, address, Lock(right, Everybody()))
    path_of(run, address).symlink_to(path_of(made.directory, server.address))
    led = client_of(run, keyed(address, right.public), made.client_key)
    await led.ask(S0, [get_tag(2)])
    assert led.connections.over_sockets == set()
    assert [message.call for message in other.received] == [2]
    assert other.batches[0][0].site == "nantes"  # type: ignore[attr-defined]
    await led.connections.close()
    await other.listener.close()
    await made.close()


async def test_an_unknown_key_is_refused_over_the_socket(run: Path) -> None:
    refused: list[str] = []

    class Nobody:
        def admits(self, key: str, address: str) -> bool:
            refused.append(address)
            return False

    key = SecretKey.generate()
    server = await served(run, lock=Lock(key, Nobody()))  # type: ignore[arg-type]
    client = client_of(run, keyed(server.address, key.public), SecretKey.generate())
    client.connections.post(S0, [get_tag(1)])
    await until(lambda: bool(client.received))
    assert client.received == [
        Refused(CallId(0), Reason.NOT_AUTHORIZED, f"at {server.address}: {links.UNKNOWN_KEY}")
    ]
    assert refused == [f"pid {os.getpid()}, uid {os.geteuid()}"]
    await client.connections.close()
    await server.listener.close()


# -- bounds ----------------------------------------------------------------------------------------

READY = NullHandshake(DEALER).opening()
ENDLESS = b"\x03" + (MIB).to_bytes(8, "big") + bytes(MIB)
"""A frame of an endless message."""


async def stranger(run: Path, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(path_of(run, address))


async def hung_up(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        try:
            while await reader.read(65536):
                pass
        except ConnectionError:
            pass


async def test_silent_strangers_are_bounded_in_number_and_time(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = await served(run, limits=Limits(connections=3))
    listener, client = server.listener, client_of(run, server.address)
    assert isinstance(listener, ZmtpListener)
    silent = [await stranger(run, server.address) for _ in range(3)]
    await until(lambda: len(listener.connections) == 3)
    await client.ask(S0, [get_tag(1)])
    assert client.connections.over_sockets == {S0}
    assert listener.refused == 1
    await hung_up(silent[0][0])
    assert f"pid {os.getpid()}, uid" in str([vars(line) for line in caplog.records])
    monkeypatch.setattr(native, "HANDSHAKE_TIMEOUT_MS", 50)
    late, writer = await stranger(run, server.address)
    await hung_up(late)
    for _, each in [*silent, (late, writer)]:
        each.close()
    await client.connections.close()
    await server.listener.close()


async def test_received_and_unread_bytes_are_bounded(run: Path) -> None:
    data = bytes(MIB)
    limits = Limits(received_bytes=8 * MIB, unread_bytes=8 * MIB)
    server = await served(run, limits=limits)
    server.answer = lambda messages: [
        DataReply(message.call, (), MIB, TAG_ZERO, Element(0, MIB, 1, (data,)), None)
        for message in messages
    ]
    client = client_of(run, server.address)
    reader, writer = await stranger(run, server.address)
    writer.write(READY + ENDLESS * 16)
    await hung_up(reader)
    assert server.listener.cut == 1  # type: ignore[attr-defined]
    deaf, asker = await stranger(run, server.address)
    deaf._transport.pause_reading()  # type: ignore[attr-defined]
    asker.write(READY + b"".join(b"".join(wire(encode([get_tag(n)]))) for n in range(32)))
    await until(lambda: server.listener.cut == 2)  # type: ignore[attr-defined]
    await client.ask(S0, [get_tag(99)])
    assert client.connections.over_sockets == {S0}
    for each in (writer, asker):
        each.transport.abort()
    await client.connections.close()
    await server.listener.close()


async def test_a_large_message_waits_for_a_paused_server(run: Path) -> None:
    """The bytes of a large request are under way until the server reads again."""
    server = await served(run)
    client = client_of(run, server.address)
    await client.ask(S0, [get_tag(1)])
    server.listener.pause()
    client.connections.post(S0, [put(7, bytes(8 * MIB))])
    await until(lambda: client.connections.sending(S0, CallId(7)))
    server.listener.resume()
    await until(lambda: 7 in client.calls())
    assert not client.connections.sending(S0, CallId(7))
    await client.connections.close()
    await server.listener.close()


async def test_a_server_that_takes_no_byte_is_given_up_as_over_tcp(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server is kept if it takes some bytes from time to time."""
    monkeypatch.setattr(links, "SILENCE_MS_MAX", 500)
    server = await served(run)
    client = client_of(run, server.address)
    await client.ask(S0, [get_tag(1)])
    [connection] = server.listener.connections  # type: ignore[attr-defined]
    server.listener.pause()
    client.connections.post(S0, [put(7, bytes(32 * MIB))])
    for _ in range(15):
        await asyncio.sleep(0.1)
        connection.transport.resume_reading()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection.transport.pause_reading()
    assert client.connections.sending(S0, CallId(7))
    await until(lambda: not client.connections.sending(S0, CallId(7)))
    connection.hang_up()
    await client.connections.close()
    await server.listener.close()


# -- the cluster file ------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
async def test_servers_and_clients_follow_the_cluster_file(run: Path, wanted: bool) -> None:
    file = create(run / "c", InitPlan(servers=3, consensus=1, base_port=0)).path
    if not wanted:
        file.write_text("local_sockets = false\n" + file.read_text())
    (file.parent / "run").mkdir(mode=0o700)
    linked = run / "linked.toml"
    linked.symlink_to(file)
    for settings in (Settings.load(file), Settings.load(linked)):
        expected = file.parent / "run" if wanted else None
        assert connections_of(settings).sockets == expected  # type: ignore[attr-defined]
    settings = Settings.load(file)
    for process in settings.processes():
        listener = ProcessLifecycle(settings, process, None).listener
        await listener.serve(lambda _, messages: acknowledge([*messages]))
        made = path_of(file.parent / "run", process.address)
        assert made.exists() == wanted
        client = WireClient(connections_of(settings))
        client.connections.learn(S0, process.address)
        await client.ask(S0, [get_tag(1)])
        assert client.connections.over_sockets == ({S0} if wanted else set())
        await client.connections.close()
        await listener.close()
        assert not made.exists()
