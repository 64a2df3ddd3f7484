"""A local cluster for a measurement: real processes on loopback, free ports, gone afterwards."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ares.cluster.settings import Settings
from ares.platform.interpreter import python

_SHAPE = "--consensus 1 --base-port 0 --dap abd --durability memory --security none"


def _cli(*arguments: str) -> None:
    subprocess.run(python("-m", "ares", *arguments), check=True, stdout=subprocess.DEVNULL)


@contextmanager
def local_cluster(servers: int, words: str = "", local_sockets: bool = False) -> Iterator[Path]:
    """Run a cluster whose initial configuration has all ``servers``, and yield the cluster file.

    ``words`` are further options of `ares-cli init`. ``local_sockets``: processes meet at Unix
    sockets, which other stores do not have; otherwise all stores use TCP.
    """
    with tempfile.TemporaryDirectory(prefix="ares-experiment-") as directory:
        home, file = f"{directory}/c", Path(directory) / "c" / "cluster.toml"
        _cli("init", home, "--servers", str(servers), *f"{_SHAPE} {words}".split())
        if not local_sockets:
            file.write_text("local_sockets = false\n" + file.read_text())
        try:
            _cli("up", home, "--detach")
            yield file
        finally:
            _cli("down", home)


def pid_of(file: Path, id: str) -> int:
    """Return the pid of a server or a consensus member."""
    return int((file.parent / "run" / f"{id}.pid").read_text())


def server_pids(file: Path) -> dict[str, int]:
    """Return the pids of the cluster's servers."""
    return {str(id): pid_of(file, id) for id in Settings.load(file).servers}
