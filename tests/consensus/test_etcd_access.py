"""Access to an etcd: silent endpoints, endpoints of different clusters, logins, TLS."""

import asyncio
import secrets
import socket
import time
from pathlib import Path

import pytest
from aetcd import rpc

from ares.cluster.tables import EtcdSettings
from ares.consensus.etcd import EtcdConsensus
from ares.model.errors import BadInput, ConsensusUnavailable
from ares.model.identity import ClientId, DomainName
from ares.model.messages import Decided

from ..ports import free_addresses
from .clusters import PATIENCE_S, configuration
from .etcds import CLUSTER, EtcdProcesses
from .pem import Authority

pytestmark = pytest.mark.process

ALICE, BOB = ClientId(1), ClientId(2)
DEFAULT = DomainName("default")


async def propose(client: EtcdConsensus, proposer: ClientId, index: int) -> Decided:
    return await client.propose(
        configuration(index, servers=f"s0 s1 t{proposer}"), proposer, PATIENCE_S
    )


async def test_unreachable_endpoints_are_passed_over_and_named(
    shared_etcd: EtcdProcesses, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        mute = f"127.0.0.1:{silent.getsockname()[1]}"
        [closed] = free_addresses(1)
        cluster = secrets.token_bytes(16)
        client = EtcdConsensus(shared_etcd.settings(mute, closed, *shared_etcd.endpoints), cluster)
        assert (await propose(client, ALICE, 0)).proposer == ALICE
        assert len(await client.describe(1.5)) == 1
        await client.close()
        client = EtcdConsensus(EtcdSettings((mute, closed), file=tmp_path), cluster)
        patience_s = 4.0  # a busy machine takes a second to hear of a refused connection
        errors = await asyncio.gather(
            client.propose(configuration(0), BOB, patience_s),
            client.tell_finalized(configuration(0), patience_s),
            client.hint(DEFAULT, patience_s),
            return_exceptions=True,
        )
        for error in errors:
            assert isinstance(error, ConsensusUnavailable)
            assert f"within {patience_s:g} s etcd said: " in str(error)
            assert f"{closed} (unreachable: Connection refused)" in str(error)
            assert f"{mute} (" in str(error)
        assert await client.describe(0.3) == []
        await client.close()


async def test_closing_ends_what_is_under_way(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = EtcdConsensus(
            EtcdSettings((f"127.0.0.1:{silent.getsockname()[1]}",), file=tmp_path), CLUSTER
        )
        asking = asyncio.create_task(client.propose(configuration(0), ALICE, PATIENCE_S))
        await asyncio.sleep(0.1)
        await client.close()
        with pytest.raises(ConsensusUnavailable, match="closed"):
            await asking
        with pytest.raises(ConsensusUnavailable, match="closed"):
            await client.hint(DEFAULT, PATIENCE_S)
        assert await client.describe(1.0) == []


async def test_endpoints_of_two_etcd_clusters_are_refused_before_anything_is_decided(
    lone_etcd: EtcdProcesses, shared_etcd: EtcdProcesses
) -> None:
    lone_etcd.start()
    await lone_etcd.client().hint(DEFAULT, PATIENCE_S)
    client = lone_etcd.client(*lone_etcd.endpoints, *shared_etcd.endpoints)
    with pytest.raises(
        ConsensusUnavailable, match="no members of one etcd cluster, and two would decide apart"
    ):
        await propose(client, ALICE, 0)
    assert (await lone_etcd.client().describe(PATIENCE_S))[0].decisions == 0


async def test_clusters_and_prefixes_are_apart(shared_etcd: EtcdProcesses) -> None:
    one, two = secrets.token_bytes(16), secrets.token_bytes(16)
    clients = [
        EtcdConsensus(shared_etcd.settings(prefix=prefix), cluster)
        for prefix, cluster in (("/a", one), ("/a", two), ("/b/c", one))
    ]
    for proposer, client in enumerate(clients):
        assert (await propose(client, ClientId(proposer), 0)).proposer == proposer
        assert [each.decisions for each in await client.describe(PATIENCE_S)] == [1]
        await client.close()


async def require_logins(etcd: EtcdProcesses) -> None:
    """Make users root and ares; ares may use the keys under /ares only."""
    [endpoint] = etcd.endpoints
    everything_of_ares = rpc.Permission(
        permType=rpc.Permission.READWRITE, key=b"/ares/", range_end=b"/ares0"
    )
    for method, request in (
        ("AuthEnable", rpc.AuthEnableRequest()),
        ("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="ares", role="ares")),
        ("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="root", role="root")),
        (
            "RoleGrantPermission",
            rpc.AuthRoleGrantPermissionRequest(name="ares", perm=everything_of_ares),
        ),
        ("RoleAdd", rpc.AuthRoleAddRequest(name="ares")),
        ("UserAdd", rpc.AuthUserAddRequest(name="ares", password="a password")),
        ("UserAdd", rpc.AuthUserAddRequest(name="root", password="another")),
    )[::-1]:
        await etcd.raw(endpoint, f"Auth.{method}", request)


async def test_a_user_logs_in_and_in_again(lone_etcd: EtcdProcesses, tmp_path: Path) -> None:
    lone_etcd.start()
    await require_logins(lone_etcd)
    secret = tmp_path / "password"
    secret.write_text("a password\n")
    secret.chmod(0o600)
    client = lone_etcd.client(user="ares", password_path=secret)
    await propose(client, ALICE, 0)
    assert [each.decisions for each in await client.describe(PATIENCE_S)] == [1]
    lone_etcd.kill()  # the login is forgotten
    lone_etcd.start()
    assert (await propose(client, BOB, 0)).proposer == ALICE
    started_s = time.monotonic()
    with pytest.raises(ConsensusUnavailable, match="refuses: etcdserver: permission denied"):
        await propose(
            lone_etcd.client(user="ares", password_path=secret, prefix="/elsewhere"), ALICE, 0
        )
    with pytest.raises(ConsensusUnavailable, match="refuses: etcdserver: user name is empty"):
        await propose(lone_etcd.client(), ALICE, 0)
    secret.write_text("a wrong one")
    with pytest.raises(
        ConsensusUnavailable, match="refuses: etcdserver: authentication failed"
    ) as caught:
        await propose(lone_etcd.client(user="ares", password_path=secret), ALICE, 0)
    assert "a wrong one" not in str(caught.value)
    assert time.monotonic() - started_s < PATIENCE_S  # the call did not wait for a change
    secret.chmod(0o644)
    with pytest.raises(BadInput, match=r"etcd.password: .*mode 644"):
        lone_etcd.client(user="ares", password_path=secret)


async def test_tls_with_certificates_of_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, mine = authority.issue("server"), authority.issue("client")
    options = (
        f"--cert-file={server.certificate}",
        f"--key-file={server.key}",
        f"--trusted-ca-file={authority.path}",
        "--client-cert-auth",
    )
    etcd = EtcdProcesses(tmp_path, scheme="https", options=options)
    try:
        etcd.start()
        client = etcd.client(ca=authority.path, certificate=mine.certificate, key=mine.key)
        assert (await propose(client, ALICE, 0)).proposer == ALICE
        stranger = Authority(tmp_path / "stranger")
        for others in (
            {},
            {"ca": authority.path},
            {"ca": stranger.path, "certificate": mine.certificate, "key": mine.key},
        ):
            with pytest.raises(ConsensusUnavailable, match="within 1 s etcd said"):
                await etcd.client(**others).propose(configuration(0), BOB, 1.0)
        with pytest.raises(BadInput, match=r"etcd.ca: .*missing.pem cannot be read"):
            etcd.client(ca=tmp_path / "missing.pem")
    finally:
        await etcd.close()
