"""An attacker on the way of a cluster with keys: each attack ends the connection, and does no more.

The attacker is a process of its own, `wire_attacker.py`, which imports nothing of the project.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ares.net.zmtp import curve
from ares.platform.interpreter import python

from ..ports import free_addresses
from .secure_cluster import SecureCluster, within
from .wire_attacker import KINDS

ATTACKER = Path(__file__).parent / "wire_attacker.py"
ATTACKS, DOWNGRADES = 15, 2
"""Attacked connections. A server that seems to have no key is given up: a minority may be."""

WRITES = 24
SMALL_BYTES, LARGE_BYTES = 100, 300_000


def attacks_of(kind: str) -> int:
    return DOWNGRADES if kind == "downgrade" else ATTACKS


@contextlib.asynccontextmanager
async def attacking(kind: str, pairs: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *python(ATTACKER, kind, "7", str(attacks_of(kind)), *pairs),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await within(process.stdout.readline()) == b"ready\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("cipher", ["aes", "box"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_attack_on_the_way_ends_the_connection_and_no_operation(
    kind: str, cipher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARES_KEY", raising=False)
    if cipher == "box":
        monkeypatch.setattr(curve, "has_gcm", lambda: False)
    elif not curve.has_gcm():
        pytest.skip("this processor has no instructions for AES-256-GCM")
    cluster = SecureCluster(tmp_path / "cluster")
    ids = list(cluster.settings.servers)
    cluster.behind = dict(zip(ids, free_addresses(len(ids)), strict=True))
    pairs = [f"{cluster.settings.servers[id].address}={cluster.behind[id]}" for id in ids]
    async with attacking(kind, pairs) as attacker, contextlib.AsyncExitStack() as closing:
        await cluster.start()
        closing.push_async_callback(cluster.close)
        client = await cluster.manager("admin")
        for number in range(WRITES):
            size = LARGE_BYTES if number % 3 == 0 else SMALL_BYTES
            value = number.to_bytes(2, "big") * (size // 2)
            await within(client.write("key", value))
            assert await within(client.read("key")) == value
        report, _ = await within(attacker.communicate(b""))
    counted = json.loads(report)
    assert counted["attacked"] >= min(attacks_of(kind), len(ids))
    assert counted["ended"] == counted["attacked"]
