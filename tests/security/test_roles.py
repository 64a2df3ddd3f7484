"""The rights of each role, with real clients over real sockets.

A key without a present authorisation has no rights.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from ares.client.manager import Manager
from ares.cluster.cluster_keys import revoke
from ares.engine.effects import Gather, Operation
from ares.model.configuration import Configuration
from ares.model.element import sealed
from ares.model.errors import BadInput, NotAuthorized, ObjectNotFound
from ares.model.identity import ClientId, ObjectName
from ares.model.messages import Keyed, PutData, Reason, Refused, Reply
from ares.model.tag import Tag
from ares.replica.configuration_state import ConfigurationState
from ares.security.keys import SecretKey, write_secret
from ares.server.storage_server import StorageServer

from .secure_cluster import SecureCluster, within

WISHED = Configuration.abd(["s1", "s2", "s3"])


async def names(store: Manager) -> list[str]:
    return [name async for name in store.list()]


ACTIONS: dict[str, Callable[[Manager], Awaitable[object]]] = {
    "read": lambda store: store.read("key"),
    "list": names,
    "stat": lambda store: store.stat("key"),
    "status": lambda store: store.status(),
    "write": lambda store: store.write("key", b"new"),
    "write_versioned": lambda store: store.write_versioned("other", b"new", None),
    "delete": lambda store: store.delete("key"),
    "create a domain": lambda store: store.create_domain("photos"),
    "put a file": lambda store: store.file("movie").write(b"content"),
    "reconfigure": lambda store: store.reconfigure(WISHED),
}
EITHER_TRANSPORT = pytest.mark.parametrize("cluster", ["native", "libzmq"], indirect=True)
READS = ["read", "list", "stat", "status"]
WRITES = ["write", "write_versioned", "delete"]
RECONFIGURES = ["create a domain", "put a file", "reconfigure"]
ALLOWED = {
    "read": READS,
    "write": READS + WRITES,
    "reconfigure": list(ACTIONS),
    "admin": list(ACTIONS),
}


@EITHER_TRANSPORT
@pytest.mark.parametrize("role", ALLOWED)
async def test_a_role_allows_what_it_says_and_nothing_else(
    cluster: SecureCluster, role: str
) -> None:
    admin = await cluster.manager("admin")
    somebody = await cluster.manager("somebody", role)
    for action, act in ACTIONS.items():
        await within(admin.write("key", b"value"))
        if action in ALLOWED[role]:
            await within(act(somebody))
            continue
        with pytest.raises(
            NotAuthorized,
            match=rf"takes the role \w+, and the key of 'somebody' has the role {role}",
        ) as refused:
            await within(act(somebody))
        assert not refused.value.may_have_taken_effect
        assert await within(admin.read("key")) == b"value"


async def test_the_clusters_own_processes_have_roles_of_their_own(cluster: SecureCluster) -> None:
    """The processes use their own keys: servers repair from each other, members reconfigure."""
    admin, server, member = (
        await cluster.manager("admin"),
        await cluster.manager("s0"),
        await cluster.manager("r0"),
    )
    await within(admin.write("key", b"value"))
    assert await within(server.read("key")) == b"value"
    with pytest.raises(
        NotAuthorized, match=r"takes the role write, and the key of 's0' has the role read"
    ):
        await within(server.write("key", b"other"))
    await within(member.reconfigure(WISHED))
    assert await within(server.read("key")) == b"value"


async def test_a_refused_write_is_stored_nowhere(cluster: SecureCluster) -> None:
    reader = await cluster.manager("reader", "read")
    with pytest.raises(NotAuthorized, match="nothing was changed"):
        await within(reader.write("key", b"value"))
    assert [
        len(hosting.objects)
        for host in cluster.hosts.values()
        for hosting in host.replica.hosted.values()
    ] == [0] * 5


async def test_where_a_server_is_down_a_refused_write_is_uncertain(cluster: SecureCluster) -> None:
    """The silent server may have another list of clients: its effect is unknown."""
    reader = await cluster.manager("reader", "read", timeout_s=3.0)
    await cluster.listeners[next(iter(cluster.listeners))].close()
    with pytest.raises(NotAuthorized) as refused:
        await within(reader.write("key", b"value"))
    assert refused.value.may_have_taken_effect


@EITHER_TRANSPORT
async def test_an_unknown_key_gets_no_service_and_says_so(cluster: SecureCluster) -> None:
    write_secret(cluster.security.secret_path("stranger"), SecretKey.generate().secret.hex())
    stranger = await cluster.manager("stranger")
    for act in (ACTIONS["read"], ACTIONS["create a domain"]):
        with pytest.raises(NotAuthorized, match="does not know this client's key"):
            await within(act(stranger))
    described = (await within((await cluster.manager("admin")).status())).servers
    assert all(
        description is not None and description.unknown_keys >= 1
        for description in described.values()
    )


@EITHER_TRANSPORT
async def test_a_revoked_key_stops_without_a_restart_and_a_new_one_works(
    cluster: SecureCluster,
) -> None:
    bob = await cluster.manager("bob", "write")
    await within(bob.write("key", b"value"))
    revoke(cluster.security, "bob")
    with pytest.raises(NotAuthorized, match=r"not authorised|does not know this client's key"):
        # on existing connections, or on connections made for this
        await within(bob.read("key"))
    again = await cluster.manager("bob")
    with pytest.raises(NotAuthorized, match="does not know this client's key"):
        # on new connections
        await within(again.read("key"))
    carol = await cluster.manager("carol", "read")
    assert await within(carol.read("key")) == b"value"


@EITHER_TRANSPORT
async def test_a_client_that_was_turned_away_gets_in_when_it_is_authorised(
    cluster: SecureCluster,
) -> None:
    key = SecretKey.generate()
    write_secret(cluster.security.secret_path("late"), key.secret.hex())
    late = await cluster.manager("late")
    with pytest.raises(NotAuthorized):
        await within(late.stat("key"))
    listed = cluster.security.clients_path
    listed.write_text(
        f'{listed.read_text()}\n[[client]]\nname = "late"\nrole = "write"\nkey = "{key.public}"\n'
    )

    async def insisting() -> None:
        while True:
            try:
                await late.write("key", b"value")
                return
            except NotAuthorized:
                await asyncio.sleep(0.05)

    await within(insisting())


class HalfWritten:
    """A state in which only some servers accept puts, as if the remaining disks were full.

    ``tried`` has the servers with a put, including refusing servers.
    """

    def __init__(self, cluster: SecureCluster, reached: tuple[str, ...] = ("s0",)) -> None:
        self.tried: set[str] = set()
        self._reached = reached
        self._hosts = cluster.hosts
        self._originals = {id: host.replica.answer for id, host in cluster.hosts.items()}

    def __enter__(self) -> "HalfWritten":
        for id, host in self._hosts.items():
            self._watch(id, host)
        return self

    def _watch(self, id: str, host: StorageServer) -> None:
        answer = host.replica.answer

        def answered(request: Keyed) -> Reply:
            if isinstance(request, PutData):
                self.tried.add(id)
                if id not in self._reached:
                    return Refused(request.call, Reason.STORAGE, "no room here")
            return answer(request)

        host.replica.answer = answered  # type: ignore[method-assign]
        host._core = None  # which would not ask the replica

    def __exit__(self, *_: object) -> None:
        for id, host in self._hosts.items():
            host.replica.answer = self._originals[id]  # type: ignore[method-assign]


async def half_written(cluster: SecureCluster, value: bytes) -> None:
    writer = await cluster.manager("dying", "write")
    with HalfWritten(cluster) as half:
        writing = asyncio.create_task(writer.write("key", value))

        async def tried() -> None:
            while len(half.tried) < len(cluster.hosts):  # noqa: ASYNC110 (servers have no event for that)
                await asyncio.sleep(0.01)

        await within(tried())
        writing.cancel()
        await asyncio.wait([writing])
        await writer.close()
        await asyncio.sleep(0.2)  # repeated messages still on their way reach no server either


async def reach_the_half_written(cluster: SecureCluster) -> None:
    """Silence two of the servers without the version.

    Every quorum has the server with the version.
    """
    for id in list(cluster.listeners)[3:]:
        await cluster.listeners[id].close()


async def test_a_reader_does_not_return_what_it_cannot_complete(cluster: SecureCluster) -> None:
    admin = await cluster.manager("admin")
    await within(admin.write("key", b"old"))
    await half_written(cluster, b"half")
    await reach_the_half_written(cluster)
    reader = await cluster.manager("reader", "read", timeout_s=3.0)
    with pytest.raises(
        NotAuthorized, match="not at a quorum, and completing it takes the role write"
    ):
        await within(reader.read("key"))
    with pytest.raises(NotAuthorized, match="not at a quorum"):
        await within(reader.read_versioned("key"))


@pytest.mark.parametrize("holders", list(itertools.combinations(["s0", "s1", "s2", "s3", "s4"], 3)))
async def test_a_reader_finds_the_quorum_that_holds_a_version(
    cluster: SecureCluster, holders: tuple[str, ...]
) -> None:
    """The first servers to answer may lack the version."""
    admin = await cluster.manager("admin")
    await within(admin.reconfigure(Configuration.abd(["s0", "s1", "s2", "s3", "s4"])))
    await within(admin.write("key", b"old"))
    with HalfWritten(cluster, holders):
        await within(admin.write("key", b"new"))
    reader = await cluster.manager("reader", "read")
    assert await within(reader.read("key")) == b"new"


async def test_a_reader_waits_until_a_writer_completes_the_found_version(
    cluster: SecureCluster,
) -> None:
    admin = await cluster.manager("admin")
    await within(admin.write("key", b"old"))
    await half_written(cluster, b"half")
    await reach_the_half_written(cluster)
    reader = await cluster.manager("reader", "read", timeout_s=15.0)
    reading = asyncio.create_task(reader.read("key"))
    await asyncio.sleep(0.3)
    assert not reading.done()
    assert await within(admin.read("key")) == b"half"  # a writer's read completes it
    assert await within(reading) == b"half"


async def test_a_reader_without_fast_reads_reads_what_is_at_a_quorum(
    cluster: SecureCluster,
) -> None:
    admin = await cluster.manager("admin")
    await within(admin.write("key", b"value"))
    settings = replace(cluster.settings, client=replace(cluster.settings.client, fast_read=False))
    cluster.settings = settings
    reader = await cluster.manager("reader", "read")
    assert await within(reader.read("key")) == b"value"


async def test_a_batch_is_judged_request_by_request(cluster: SecureCluster) -> None:
    """The permitted requests of a batch are answered beside any refused requests."""
    admin = await cluster.manager("admin")
    await within(admin.write("key", b"value"))
    reader = await cluster.manager("reader", "read")
    results = await within(
        asyncio.gather(
            reader.read("key"),
            reader.write("other", b"x"),
            reader.read("key"),
            return_exceptions=True,
        )
    )
    assert results[0] == results[2] == b"value"
    assert isinstance(results[1], NotAuthorized)


def putting(configuration: Configuration, name: str) -> Operation[None]:
    """Put an element by hand, as a client without checks of names does."""
    tag, object = Tag(1, ClientId(77)), ObjectName(name)
    element = sealed(configuration.id, object, tag, 0, 1, (b"x",))
    yield Gather(
        configuration,
        lambda call: [PutData(call, configuration.id, object, tag, element)] * configuration.n,
        "put-data",
        needed=configuration.n,
    )


@EITHER_TRANSPORT
@pytest.mark.parametrize("name", ["\0mine", "\0", "\0file", "\0domain/x"])
async def test_a_writer_stores_nothing_that_no_client_can_replace(
    cluster: SecureCluster, name: str
) -> None:
    writer, admin = await cluster.manager("writer", "write"), await cluster.manager("admin")

    async def put(store: Manager, name: str) -> None:
        await within(store.run(lambda view: putting(view.sequence.last_known, name), "put"))

    with pytest.raises(NotAuthorized, match="takes the role reconfigure"):
        await put(writer, name)
    assert not any(hosting.objects for hosting in hostings(cluster))
    for taken in ("\0file/x", "\0mirror/removed"):
        await put(writer, taken)
    await put(admin, name)  # as an earlier release accepted it from a writer
    with pytest.raises(BadInput, match="reserved"):
        await within(admin.delete(name))
    await within(admin.delete(name, raw=True))
    with pytest.raises(ObjectNotFound):
        await within(admin.delete(name, raw=True))
    await within(admin.write(name, b"anything", raw=True))
    assert (await within(admin.read_named(ObjectName(name)))).value == b"anything"


def hostings(cluster: SecureCluster) -> list[ConfigurationState]:
    return [own for host in cluster.hosts.values() for own in host.replica.hosted.values()]
