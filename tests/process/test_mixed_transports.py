"""Both transports in a cluster: clients and servers of either, and a change of the transport.

A server on the other transport is a restart away (docs/transport.md), while clients go on.
"""

import itertools
import os
import select
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import ares
from ares.client.manager import Manager
from ares.cluster.tables import TransportName
from ares.model.units import MIB

from .command_line import Cli, running_cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(params=["none", "curve"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cli]:
    words = ("--transport", "libzmq", "--security", request.param)
    yield from running_cluster(tmp_path / "c", *words)


def speaking(cluster: Cli, transport: TransportName) -> Path:
    """Return a file of the same cluster for a client with this transport."""
    text = cluster.settings.path.read_text().replace('"libzmq"', f'"{transport}"')
    assert f'transport = "{transport}"' in text
    file = cluster.directory / f"{transport}.toml"
    file.write_text(text)
    return file


def restart(cluster: Cli, *ids: str) -> None:
    """Kill processes, and start them with the present cluster file."""
    for id in ids:
        ended = os.pidfd_open(int((cluster.directory / f"run/{id}.pid").read_text()))
        cluster.kill(id)
        select.select([ended], [], [])
        os.close(ended)
    cluster.ok("up", cluster.directory, "--detach")


async def exchange(stores: Sequence[Manager], logs: Sequence[ares.Log]) -> None:
    """Write over each transport, and read over both."""
    for writer, reader in itertools.permutations(range(2)):
        for size in (6, 9 * MIB):
            value = os.urandom(size)
            await stores[writer].write(f"{size} bytes", value)
            assert await stores[reader].read(f"{size} bytes") == value
        entries = [os.urandom(50), os.urandom(MIB // 2)]
        position = await logs[writer].append_many(entries)
        found = await logs[reader].read_range(position, position + 2)
        assert [entry for _, entry in found] == entries


async def test_clients_and_servers_of_both_transports_serve_each_other(cluster: Cli) -> None:
    native, libzmq = speaking(cluster, "native"), speaking(cluster, "libzmq")
    async with ares.connect(native) as one, ares.connect(libzmq) as other:
        chain = ares.Configuration.chain(["s0", "s1", "s2"])
        logs = (await one.log("log", create=chain), await other.log("log"))
        await exchange((one, other), logs)
        cluster.settings.path.write_text(native.read_text())
        restart(cluster, "s1")
        await exchange((one, other), logs)
        coded = ares.Configuration.ec(["s0", "s1", "s2", "s3"], 2)
        await one.reconfigure(coded, transfer="servers")
        await logs[0].reconfigure(ares.Configuration.chain(["s1", "s2", "s3"]))
        await exchange((one, other), logs)
        restart(cluster, "s0", "s2", "s3", "r0", "r1", "r2")
        await exchange((one, other), logs)
        copied = ares.Configuration.abd(["s1", "s2", "s3"])
        await other.reconfigure(copied, transfer="servers")
        await logs[1].reconfigure(ares.Configuration.chain(["s3", "s0", "s1"]))
        await exchange((one, other), logs)
