"""Redirection of a domain, which a client without the right to reconfigure cannot do.

The attacks are an invented successor, an early finalization or collection, and a directory entry.
They use a real client and real sockets; against servers that admit all clients the same attacks
succeed: the attacks are real.
"""

import asyncio

import msgspec
import pytest

from ares.client.manager import Manager
from ares.engine.effects import Gather, Operation
from ares.model.configuration import Configuration, Status, Successor
from ares.model.errors import (
    AresError,
    ConfigurationRefused,
    ConsensusUnavailable,
    NotAuthorized,
    Unavailable,
)
from ares.model.identity import DIRECTORY_PREFIX, CallId, ObjectName
from ares.model.messages import (
    Ack,
    AnyMessage,
    CollectConfig,
    Introduce,
    Reason,
    Refused,
    WriteConfig,
)
from ares.net.native import ZmtpConnections
from ares.reconfig.reconfigure import agree
from ares.reconfig.traversal import put_config
from ares.security import roles as admission
from ares.security.certificates import Signer
from ares.security.keys import SigningKey
from ares.security.roles import Admission

from .secure_cluster import TIMEOUT_S, SecureCluster, within

ENTRY = ObjectName(f"{DIRECTORY_PREFIX}photos")


@pytest.fixture
async def admin(cluster: SecureCluster) -> Manager:
    made = await cluster.manager("admin")
    await within(made.write("key", b"value"))
    return made


@pytest.fixture
async def evil(cluster: SecureCluster) -> Manager:
    return await cluster.manager("evil", "write")


def invented(store: Manager, index: int = 1) -> Configuration:
    return Configuration.abd(list(store.configuration.servers[:3])).at(
        store.configuration.domain, index, store.configuration.cluster_id
    )


async def decided(store: Manager) -> Configuration:
    """Return a configuration only decided: no object was moved."""
    found = await store._runner.run(agree(invented(store)), "decide", TIMEOUT_S)
    return found.configuration


async def run(store: Manager, operation: Operation[object]) -> object:
    return await within(store._runner.run(operation, "attack", TIMEOUT_S))


def successors(cluster: SecureCluster, of: Configuration) -> set[Successor | None]:
    return {host.replica.hosted[of.id].successor for host in cluster.hosts.values()}


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("forged_with", ["nothing", "a key of one's own"])
async def test_an_invented_successor_is_refused(
    cluster: SecureCluster, admin: Manager, evil: Manager, status: Status, forged_with: str
) -> None:
    forged = (
        invented(admin)
        if forged_with == "nothing"
        else Signer(SigningKey.generate()).certified(invented(admin))
    )
    with pytest.raises(
        Unavailable, match="nothing proves that the consensus service of this cluster decided"
    ):
        await run(evil, put_config(admin.configuration, Successor(forged, status)))
    assert successors(cluster, admin.configuration) == {None}
    assert await within((await cluster.manager("fresh", "read")).read("key")) == b"value"


async def test_not_even_an_administrator_invents_one(
    cluster: SecureCluster, admin: Manager
) -> None:
    with pytest.raises(Unavailable, match="nothing proves"):
        await run(
            admin, put_config(admin.configuration, Successor(invented(admin), Status.PENDING))
        )
    assert successors(cluster, admin.configuration) == {None}


async def test_the_same_attack_redirects_if_every_client_is_admitted(
    cluster: SecureCluster, admin: Manager, evil: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    monkeypatch.setattr(
        Admission, "admit", lambda self, sender, messages, hosted=None: (messages, [])
    )
    await run(evil, put_config(admin.configuration, Successor(invented(admin), Status.FINALIZED)))
    with pytest.raises(AresError):
        await within((await cluster.manager("fresh", "read", timeout_s=2.0)).read("key"))


async def test_a_decided_successor_is_spread_by_readers_as_pending_only(
    cluster: SecureCluster, admin: Manager
) -> None:
    reader = await cluster.manager("reader", "read")
    successor = await decided(admin)
    await run(reader, put_config(admin.configuration, Successor(successor, Status.FINALIZED)))
    assert {
        known.status for known in successors(cluster, admin.configuration) if known is not None
    } == {Status.PENDING}
    assert await within(admin.read("key")) == b"value"
    assert await within(admin.write("key", b"newer"))


async def test_taking_a_readers_word_for_it_would_lose_the_object(
    cluster: SecureCluster, admin: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: the certificate alone does not prevent a false finalization.

    No object was moved to the finalized configuration.
    """
    monkeypatch.setattr(admission, "_hearsay", lambda message, own: message)
    reader = await cluster.manager("reader", "read")
    successor = await decided(admin)
    await run(reader, put_config(admin.configuration, Successor(successor, Status.FINALIZED)))
    with pytest.raises(AresError, match="no object"):
        await within((await cluster.manager("fresh", "read")).read("key"))


async def test_collecting_takes_the_role_reconfigure(
    cluster: SecureCluster, admin: Manager, evil: Manager
) -> None:
    c0, successor = admin.configuration, Successor(await decided(admin), Status.FINALIZED)

    def collect() -> Operation[None]:
        yield Gather(c0, lambda call: CollectConfig(call, c0.id, successor), "gc-config")

    with pytest.raises(NotAuthorized, match="CollectConfig takes the role reconfigure"):
        await run(evil, collect())
    assert not any(host.replica.hosted[c0.id].collected for host in cluster.hosts.values())
    assert await within(admin.read("key")) == b"value"


async def test_a_reader_follows_many_reconfigurations(
    cluster: SecureCluster, admin: Manager
) -> None:
    """A reader with c0 alone finds a finalized successor beyond the next, and uses it."""
    late = await cluster.manager("late", "read")
    for servers in (["s1", "s2", "s3"], ["s0", "s1", "s2"], ["s2", "s3", "s4"]):
        result = await within(admin.reconfigure(Configuration.abd(servers)))
        assert result.announced
        assert not result.uncollected
    assert result.configuration.index == 3
    assert await within(late.read("key")) == b"value"
    assert await within((await cluster.manager("writer", "write")).write("key", b"new"))
    assert await within(late.read("key")) == b"new"


async def test_a_reader_finishes_what_a_dead_reconfigurer_left(
    cluster: SecureCluster, admin: Manager
) -> None:
    """A single server knows the successor; the reader tells a quorum (rule R3) and reads."""
    successor = Successor(await decided(admin), Status.PENDING)
    cluster.hosts[next(iter(cluster.hosts))].replica.hosted[admin.configuration.id].install(
        successor
    )
    reader = await cluster.manager("reader", "read")
    for id in list(cluster.listeners)[3:]:
        await cluster.listeners[id].close()
    writer = await cluster.manager("writer", "write")
    await within(writer.write("key", b"new"))
    assert await within(reader.read("key")) == b"new"


async def test_a_configuration_is_introduced_with_its_certificate_only(
    cluster: SecureCluster, admin: Manager, evil: Manager
) -> None:
    replies: list[AnyMessage] = []
    connections = ZmtpConnections(cluster.key("evil"))
    connections.open(lambda _, messages: replies.extend(messages))
    for server in cluster.settings.book().values():
        connections.learn(server.id, server.address)
    forged = invented(admin)
    successor = await decided(admin)
    again = Successor(successor, Status.PENDING)

    async def posted(*messages: AnyMessage) -> AnyMessage:
        replies.clear()
        while not replies:
            connections.post(admin.configuration.server_ids[0], messages)
            await asyncio.sleep(0.05)
        return replies[0]

    reply = await within(posted(Introduce(CallId(1), forged)))
    assert isinstance(reply, Refused)
    assert reply.reason is Reason.NOT_CERTIFIED
    reply = await within(
        posted(
            Introduce(CallId(2), successor), WriteConfig(CallId(3), admin.configuration.id, again)
        )
    )
    assert reply == Ack(CallId(3), again)
    await connections.close()


async def test_a_writer_cannot_write_where_a_domain_begins(
    cluster: SecureCluster, admin: Manager, evil: Manager
) -> None:
    elsewhere = msgspec.msgpack.encode(invented(admin, 0))
    with pytest.raises(NotAuthorized, match="PutData takes the role reconfigure"):
        await within(evil.write_named(ENTRY, elsewhere, TIMEOUT_S))
    photos = await within(admin.domain("photos", create=Configuration.abd(["s0", "s1", "s2"])))
    await within(photos.write("cat", b"meow"))
    cat = await within((await within(evil.domain("photos"))).read("cat"))
    assert cat == b"meow"


@pytest.mark.parametrize("entry", ["invented", "another domain's", "a later index"])
async def test_a_client_believes_no_entry_that_was_not_decided(
    cluster: SecureCluster, admin: Manager, entry: str
) -> None:
    """A client that may reconfigure can write an entry; use of the entry needs the decision."""
    cars, _ = await within(admin.create_domain("cars"))
    configuration = (
        invented(admin, 0)
        if entry == "invented"
        else cars.configuration
        if entry == "another domain's"
        else await decided(admin)
    )
    await within(admin.write_named(ENTRY, msgspec.msgpack.encode(configuration), TIMEOUT_S))
    with pytest.raises(ConfigurationRefused, match="differs from the decision"):
        await within((await cluster.manager("reader", "read")).domain("photos"))


async def test_an_uncertified_hint_is_not_kept(cluster: SecureCluster, admin: Manager) -> None:
    with pytest.raises(ConsensusUnavailable, match="nothing proves"):
        await within(admin._consensus.tell_finalized(invented(admin), 2.0))
    assert await within(admin._consensus.hint(admin.configuration.domain, TIMEOUT_S)) is None
