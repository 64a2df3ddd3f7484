"""The command gateway: S3 over HTTP for the buckets of a cluster."""

from importlib.util import find_spec

import typer

from ares.cli.buckets.access_key_commands import SealKey
from ares.cli.buckets.gateway_options import (
    AccessLogFile,
    AddressConnections,
    Connections,
    Domains,
    HttpPages,
    Listen,
    MemoryMib,
    Processes,
    Region,
    Requests,
    TlsCertificate,
    TlsKey,
)
from ares.cli.options import SharedOptions, print_core_advice
from ares.model.errors import BadInput

GATEWAY_PORT = 9000
GATEWAY_LIBRARIES = ("awscrt", "httptools")
"""Libraries of the extra `gateway`."""


def gateway(
    common: SharedOptions,
    listen: Listen = f"127.0.0.1:{GATEWAY_PORT}",
    processes: Processes = 1,
    domain: Domains = None,
    region: Region = "us-east-1",
    seal_key: SealKey = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    http: HttpPages = "",
    access_log: AccessLogFile = "",
    connections: Connections = 1024,
    address_connections: AddressConnections = None,
    requests: Requests = 256,
    memory_mib: MemoryMib = 512,
) -> None:
    """Serve the buckets of a cluster over S3's protocol, until Ctrl-C or SIGTERM.

    Before the first start: `ares-cli bucket init`, and `ares-cli bucket key new root --role admin`.
    Prints READY and the address at the begin of service; logs go to stderr. Any number of gateways
    may serve a cluster, also on several machines: each one needs the cluster file, a client key if
    the cluster has keys, and gateway.key.
    """
    require_gateway_libraries()
    if (tls_cert is None) is not (tls_key is None):
        raise BadInput("TLS needs both --tls-cert and --tls-key; nothing was started")
    from ares.gateway.access.sealed_keys import seal_path
    from ares.gateway.http.gateway_limits import GatewayLimits
    from ares.gateway.http.s3_process import GatewayPlan, run_gateway

    settings = common.settings()
    print_core_advice()
    plan = GatewayPlan(
        settings,
        listen=listen,
        seal=seal_path(settings.path, seal_key),
        region=region,
        domains=tuple(domain or ()),
        http=http,
        processes=processes,
        certificate=tls_cert,
        key=tls_key,
        access_log=access_log,
        limits=GatewayLimits(
            connections,
            address_connections or max(connections // 2, 1),
            requests,
            memory_mib * 2**20,
        ),
    )
    raise typer.Exit(run_gateway(plan))


def missing_gateway_libraries() -> list[str]:
    """Return the libraries of the extra `gateway` that are not installed."""
    return [name for name in GATEWAY_LIBRARIES if find_spec(name) is None]


def require_gateway_libraries() -> None:
    """Raise :class:`BadInput` if the extra `gateway` is not installed."""
    if missing := missing_gateway_libraries():
        raise BadInput(
            f"a gateway needs {' and '.join(missing)}, which is not installed here: "
            "pip install 'ares-storage[gateway]'. Nothing was started"
        )
