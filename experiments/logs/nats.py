"""NATS JetStream: three servers, a stream of three replicas.

Every replica syncs a message to disk before the acknowledgement. Debian has no package of NATS;
`experiments/build_nats.sh` builds it with Go, once, into a cache.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from experiments.bench.store_processes import await_that, free_ports, programs

NATS_VERSION = "v2.15.2"
NATS_SERVERS = 3
NATS_START_S = 20.0


def binary() -> Path:
    """Return the path of the program."""
    return Path.home() / ".cache" / "ares" / f"nats-server-{NATS_VERSION}"


def missing() -> str | None:
    """Return the missing software, and how to get it."""
    return (
        None
        if binary().is_file()
        else "NATS is not here: experiments/build_nats.sh builds it (Go, two minutes)"
    )


@contextlib.contextmanager
def running(directory: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Run three servers; yield the address of a server, and the pids of all."""
    ports, names = free_ports(2 * NATS_SERVERS), [f"n{number}" for number in range(NATS_SERVERS)]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports[NATS_SERVERS:])
    for name, port, route in zip(names, ports[:NATS_SERVERS], ports[NATS_SERVERS:], strict=True):
        cluster = f'cluster {{ name: measured, listen: "127.0.0.1:{route}", routes: [{routes}] }}'
        store = f'jetstream {{ store_dir: "{directory / name}", sync_interval: always }}'
        (directory / f"{name}.conf").write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{port}"\n{store}\n{cluster}\n'
        )
    with programs(
        directory, {name: [str(binary()), "-c", str(directory / f"{name}.conf")] for name in names}
    ) as servers:
        log = directory / "n0.log"
        await_that(
            lambda: log.exists() and b"Server is ready" in log.read_bytes(),
            "NATS serves",
            NATS_START_S,
            log,
        )
        yield f"127.0.0.1:{ports[0]}", servers
