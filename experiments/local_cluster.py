"""A local cluster for a measurement: real processes on loopback, free ports, gone afterwards."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from ares.platform.interpreter import python
from experiments import TICKS_PER_S


def _cli(*arguments: str, **variables: str) -> None:
    subprocess.run(
        python("-m", "ares", *arguments),
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | variables,
    )


def processor_s(cluster: Path) -> float:
    """Return the processor seconds spent by all processes of the cluster of this file."""
    spent = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(cluster.parent).encode() in (process / "cmdline").read_bytes():
                fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
                spent += int(fields[11]) + int(fields[12])
    return spent / TICKS_PER_S


class ClusterOptions(Struct, frozen=True):
    """Options of a local cluster beyond the shape."""

    security: str = "none"
    durability: str = "memory"
    transport: str = "native"
    autopilot: bool = False
    traced: bool = False
    """Whether servers export spans to files beside the cluster file, named `*.spans`."""


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
        shape = [
            "--dap",
            dap,
            *(["--k", str(k)] if k else []),
            "--security",
            options.security,
            "--durability",
            options.durability,
        ]
        shape += ["--autopilot"] if options.autopilot else []
        _cli(
            "init",
            f"{directory}/c",
            "--servers",
            str(servers),
            "--consensus",
            str(consensus),
            "--base-port",
            "0",
            *shape,
        )
        file = Path(directory) / "c" / "cluster.toml"
        file.write_text(
            file.read_text().replace(
                "format = 1\n", f'format = 1\ntransport = "{options.transport}"\n'
            )
        )
        _cli(
            "up",
            f"{directory}/c",
            "--detach",
            **({"OTEL_TRACES_EXPORTER": f"file:{directory}/c/%p.spans"} if options.traced else {}),
        )
        try:
            yield file
        finally:
            _cli("down", f"{directory}/c")
