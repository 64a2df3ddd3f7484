"""A local cluster for a measurement: real processes on loopback, free ports, gone afterwards."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _cli(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "ares", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def local_cluster(
    servers: int, dap: str, k: int | None = None, consensus: int = 0, security: str = "none", durability: str = "memory"
) -> Iterator[Path]:
    """The cluster file of a running cluster whose initial configuration has all ``servers``."""
    with tempfile.TemporaryDirectory(prefix="ares-experiment-") as directory:
        shape = ["--dap", dap, *(["--k", str(k)] if k else []), "--security", security, "--durability", durability]
        _cli("init", f"{directory}/c", "--servers", str(servers), "--consensus", str(consensus), "--base-port", "0", *shape)
        _cli("up", f"{directory}/c", "--detach")
        try:
            yield Path(directory) / "c" / "cluster.toml"
        finally:
            _cli("down", f"{directory}/c")
