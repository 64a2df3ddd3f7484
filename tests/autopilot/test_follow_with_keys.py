"""Keys and following: a domain follows only requests of permitted clients.

See ares/autopilot/follow_patrol.py.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from ares.autopilot import follow_patrol, following
from ares.autopilot.pilot import Autopilot
from ares.client.manager import Manager
from ares.cluster.cluster_keys import revoke
from ares.cluster.tables import AutopilotSettings
from ares.consensus.port import NoNotes
from ares.model.errors import AresError, NotAuthorized
from ares.model.identity import ServerId
from ares.server.process_lifecycle import certifying, piloted
from tests.security.secure_cluster import SecureCluster

WAIT_S_MAX = 60.0
SITES = (("nantes", 3), ("rennes", 3))


async def reads(manager: Manager) -> None:
    photos = await manager.domain("photos")
    while True:
        with contextlib.suppress(AresError):
            await photos.read("cat")
        await asyncio.sleep(0.005)


async def asked_until_refused(manager: Manager) -> None:
    while True:  # servers look at the list of clients once a second
        await manager.status()
        await asyncio.sleep(0.05)


async def test_domains_follow_only_readers_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_patrol, "FOLLOW_LOOK_S", 0.05)
    monkeypatch.setattr(follow_patrol, "FOLLOW_LIST_S", 0.1)
    monkeypatch.setattr(following, "SUSTAINED_S", 0.3)
    cluster = SecureCluster(tmp_path / "cluster", sites=SITES)
    await cluster.start()
    settings = replace(cluster.settings, autopilot=AutopilotSettings(after_s=3600, every_s=0.1))
    [member] = settings.members.values()
    certified, make = certifying(settings), piloted(settings, member)
    assert certified is not None
    assert make is not None
    pilot: Autopilot = make(certified(cluster.decisions), lambda: True, NoNotes())
    tasks = [asyncio.create_task(pilot.run())]
    try:
        owner = await cluster.manager("owner", "reconfigure", timeout_s=WAIT_S_MAX)
        photos = await owner.domain("photos", create=owner.configuration)
        await photos.write("cat", b"miaow")
        writer = await cluster.manager("writer", "write", site="rennes")
        with pytest.raises(NotAuthorized):
            await writer.follow_users("photos")
        assert await owner.following() == []
        await owner.follow_users("photos")
        with pytest.raises(NotAuthorized):
            await writer.follow_users("photos", False)
        stranger = await cluster.manager("stranger", "read", site="rennes", timeout_s=1.0)
        revoke(cluster.security, "stranger")
        async with asyncio.timeout(WAIT_S_MAX):
            with pytest.raises(NotAuthorized):
                await asked_until_refused(stranger)
            while not pilot.followed():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        tasks.append(asyncio.create_task(reads(stranger)))
        await asyncio.sleep(1.5)
        assert [each.decision for each in pilot.followed()] == [following.FOLLOW_IDLE]
        reader = await cluster.manager("reader", "read", site="rennes")
        tasks.append(asyncio.create_task(reads(reader)))
        async with asyncio.timeout(WAIT_S_MAX):
            while [each.site for each in pilot.followed()] != ["rennes"]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert set((await photos.current()).server_ids) == {
            ServerId(id) for id in ("s3", "s4", "s5")
        }
        assert photos.configuration.certificate
        assert await photos.read("cat") == b"miaow"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cluster.close()
