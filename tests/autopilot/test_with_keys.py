"""The autopilot with keys: a client of the servers under its member's own key.

Its decisions are certified like all others.
"""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from ares.cluster.tables import AutopilotSettings
from ares.compiled import replica_parts
from ares.consensus.port import NoNotes
from ares.model.configuration import Configuration
from ares.model.errors import NotAuthorized
from ares.model.identity import ServerId
from ares.net.transports import listener_at
from ares.replica.replica import Replica
from ares.server.process_lifecycle import certifying, guard_of, piloted
from ares.server.storage_server import ServerParts, StorageServer
from tests.security.secure_cluster import SecureCluster

WAIT_S_MAX = 60.0
AGAIN = "f" * 32


async def test_a_server_that_lost_its_memory_is_taken_in_again(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path / "cluster")
    await cluster.start()
    settings = replace(cluster.settings, autopilot=AutopilotSettings(after_s=0.8, every_s=0.1))
    [member] = settings.members.values()
    certified, make = certifying(settings), piloted(settings, member)
    assert certified is not None
    assert make is not None
    flying = asyncio.create_task(make(certified(cluster.decisions), lambda: True, NoNotes()).run())
    user = await cluster.manager("alice", "admin", timeout_s=WAIT_S_MAX)
    await user.write("key", b"v")
    server = settings.servers[ServerId("s4")]
    await cluster.listeners[server.id].close()
    guard = guard_of(settings, server.id, server.public_key)
    again = listener_at(server.address, guard.lock)
    await again.serve(
        StorageServer(
            Replica(server.id, AGAIN, settings.initial, parts=replica_parts()),
            parts=ServerParts(admission=guard.admission),
        ).handler
    )
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            while (await user.current()).servers[4].identity != AGAIN:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not flying.done()
        assert user.configuration.certificate
        assert await user.read("key") == b"v"
    finally:
        flying.cancel()
        await asyncio.gather(flying, return_exceptions=True)
        await again.close()
        await cluster.close()


async def test_a_mirror_is_made_copied_and_read_by_authorised_clients(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path / "cluster")
    await cluster.start()
    settings = replace(
        cluster.settings, autopilot=AutopilotSettings(after_s=60, every_s=0.1, mirror_every_s=0.1)
    )
    [member] = settings.members.values()
    certified, make = certifying(settings), piloted(settings, member)
    assert certified is not None
    assert make is not None
    flying = asyncio.create_task(make(certified(cluster.decisions), lambda: True, NoNotes()).run())
    admin, writer = await cluster.manager("alice", "admin"), await cluster.manager("walt", "write")
    reader = await cluster.manager("rita", "read")
    reader._site = "rennes"
    there = Configuration.abd(["s2", "s3", "s4"])
    try:
        await writer.write("k", b"v")
        with pytest.raises(NotAuthorized):
            await writer.create_mirror("default", "rennes", there)
        with pytest.raises(NotAuthorized):
            await reader.create_mirror("default", "rennes", there)
        await admin.create_mirror("default", "rennes", there)
        async with asyncio.timeout(WAIT_S_MAX):
            while (found := await reader.read_stale("k")).site is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert found.value == b"v"
        with pytest.raises(NotAuthorized):
            await reader.remove_mirror("default", "rennes")
        assert not flying.done()
    finally:
        flying.cancel()
        await asyncio.gather(flying, return_exceptions=True)
        await cluster.close()


def test_without_the_table_nothing_is_made(tmp_path: Path) -> None:
    settings = SecureCluster(tmp_path / "cluster").settings
    [member] = settings.members.values()
    assert piloted(settings, member) is None
