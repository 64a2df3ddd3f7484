"""A local cluster for a measurement: real processes on loopback, free ports, gone afterwards."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from ares.platform.interpreter import python


def _cli(*arguments: str) -> None:
    subprocess.run(python("-m", "ares", *arguments), check=True, stdout=subprocess.DEVNULL)


class ClusterOptions(Struct, frozen=True):
    """Options of a local cluster beyond the shape.

    ``local_sockets``: processes meet at Unix sockets, which other stores do not have; otherwise all
    stores use TCP.
    """

    security: str = "none"
    durability: str = "memory"
    transport: str = "native"
    autopilot: bool = False
    local_sockets: bool = False


_DEFAULTS = ClusterOptions()


@contextmanager
def local_cluster(
    servers: int,
    dap: str,
    k: int | None = None,
    consensus: int = 0,
    options: ClusterOptions = _DEFAULTS,
) -> Iterator[Path]:
    """Run a cluster whose initial configuration has all ``servers``, and yield the cluster file."""
    with tempfile.TemporaryDirectory(prefix="ares-experiment-") as directory:
        shape = f"--servers {servers} --consensus {consensus} --base-port 0 --dap {dap}".split()
        shape += ["--k", str(k)] if k else []
        shape += ["--security", options.security, "--durability", options.durability]
        shape += ["--transport", options.transport]
        shape += ["--autopilot"] if options.autopilot else []
        _cli("init", f"{directory}/c", *shape)
        file = Path(directory) / "c" / "cluster.toml"
        if not options.local_sockets:
            file.write_text("local_sockets = false\n" + file.read_text())
        _cli("up", f"{directory}/c", "--detach")
        try:
            yield file
        finally:
            _cli("down", f"{directory}/c")
