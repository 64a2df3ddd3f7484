"""The transport in the cluster file, for clients and servers."""

from pathlib import Path

import pytest
from msgspec import structs

from ares.client.connect import connections_of
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.tables import TransportName
from ares.net.libzmq import ZmqConnections, ZmqListener
from ares.net.native import ZmtpConnections, ZmtpListener
from ares.server.process_lifecycle import ProcessLifecycle, guard_of

KINDS: dict[TransportName, tuple[type, type]] = {
    "native": (ZmtpConnections, ZmtpListener),
    "libzmq": (ZmqConnections, ZmqListener),
}


@pytest.mark.parametrize("security", ["none", "curve"])
@pytest.mark.parametrize("transport", KINDS)
async def test_every_process_and_every_client_has_the_transport_of_the_file(
    tmp_path: Path, transport: TransportName, security: str
) -> None:
    settings = structs.replace(
        create(tmp_path / "c", InitPlan(base_port=0, security=security)), transport=transport
    )
    client, listener = KINDS[transport]
    assert type(connections_of(settings)) is client
    for process in settings.processes():
        guard = guard_of(settings, process.id, process.public_key)
        assert type(ProcessLifecycle(settings, process, guard.lock).listener) is listener
