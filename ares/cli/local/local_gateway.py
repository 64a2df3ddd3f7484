"""A gateway beside the processes of a cluster on this machine."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from ares.cli.local.supervisor import GATEWAY_ID, SupervisedProcess, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable

    from ares.client.manager import Manager
    from ares.gateway.access.sealed_keys import AccessKey

FIRST_KEY_NAME = "root"


async def first_access_key(manager: "Manager", cluster_file: Path) -> "AccessKey | None":
    """Make the domains for buckets, and an access key with the role admin; None if keys exist."""
    from ares.client.buckets.bucket_errors import BucketsExist
    from ares.gateway.access.issued_keys import issue, issued_keys, open_seal
    from ares.gateway.access.reserved_buckets import KEYS_BUCKET
    from ares.gateway.access.sealed_keys import KeyRole, new_access_key, seal_path

    with contextlib.suppress(BucketsExist):
        await manager.create_bucket_domains()
    keys = await manager.bucket(KEYS_BUCKET, create=True)
    seal = await open_seal(keys, cluster_file, seal_path(cluster_file, None))
    if await issued_keys(keys, seal):
        return None
    key = new_access_key(FIRST_KEY_NAME, KeyRole.ADMIN, ())
    await issue(keys, seal, key)
    return key


def start_gateway(
    supervisor: Supervisor, address: str, timeout_s: float, interrupted: "Callable[[], bool]"
) -> int:
    """Start a gateway at ``address``, wait for service, and return the pid.

    Call this inside :meth:`Supervisor.alone`. Raises NotStarted.
    """
    gateway = SupervisedProcess(GATEWAY_ID, "gateway", (address,))
    return supervisor.start([gateway], timeout_s, interrupted)[GATEWAY_ID]
