"""A client of ARES as published, on a cluster of processes with `published = true`."""

from pathlib import Path

import pytest

from ares.client.connect import connections_of, consensus_of
from ares.client.runner import Runner
from ares.model.identity import ClientId, ObjectName
from ares.testing.published.ares_2022 import AresClient, permitted_c0

from .command_line import Cli, running_cluster

pytestmark = pytest.mark.process


async def exchange(cli: Cli) -> None:
    """Write and read small values by the algorithm as published."""
    initial = permitted_c0(cli.settings)
    consensus = consensus_of(cli.settings)
    client = ClientId(7)
    runner = Runner(client, connections_of(cli.settings), consensus)
    runner.learn(list(cli.settings.book().values()))
    published = AresClient(client, initial)
    try:
        for value in (b"small", b"a small value"):
            tag = await runner.run(published.write(ObjectName("x"), value), "a write", 60.0)
            found = await runner.run(published.read(ObjectName("x")), "a read", 60.0)
            assert found == (tag, value)
    finally:
        await runner.close()


async def test_small_values_are_read_as_published(tmp_path: Path) -> None:
    """Servers with the compiled core keep small values in the core's form."""
    for cli in running_cluster(tmp_path / "cluster", setting="published = true\n"):
        await exchange(cli)
