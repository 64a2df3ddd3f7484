"""Gateways in processes, on a cluster of processes on loopback."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ares.platform.interpreter import python
from tests.ports import free_addresses
from tests.process.command_line import running_cluster

from .s3_service import S3Service

GATEWAY_START_S = 60


def running_gateways(directory: Path, count: int) -> Iterator[S3Service]:
    """Run a cluster in ``directory`` with ``count`` gateways and an administrator's key."""
    for cli in running_cluster(directory / "c", "--durability", "memory"):
        cli.ok("bucket", "init")
        key = cli.json("bucket", "key", "new", "root", "--role", "admin")
        addresses = free_addresses(count)
        with contextlib.ExitStack() as ended:
            for address in addresses:
                ended.enter_context(_gateway(cli.settings.path, address))
            endpoints = tuple(f"http://{address}" for address in addresses)
            yield S3Service(endpoints, key["access_key"], key["secret_key"])


@contextlib.contextmanager
def _gateway(cluster: Path, address: str) -> Iterator[None]:
    """Run a gateway at ``address``, ended by SIGTERM."""
    command = python("-m", "ares", "-c", cluster, "gateway", "--listen", address)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert address in process.stdout.readline()
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0
