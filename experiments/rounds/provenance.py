"""Origin of figures: commit, machine, versions, settings of the kernel; and files with it."""

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

import msgspec

from ares.platform.release import version

_CLOCK_ASK_S = 20.0
_VERSION_OF = {
    "redis": ["redis-server", "--version"],
    "etcd": ["etcd", "--version"],
    "cassandra": ["java", "--version"],
}


@cache
def checkout_commit() -> str | None:
    """Return the commit of the checkout at the first call: this process has the code of its begin.

    A checkout may change while a bench of an hour runs.
    """
    root = Path(__file__).parents[2]
    return _first_line(["git", "-C", str(root), "describe", "--always", "--dirty"])


def provenance(testbed: str, seed: int) -> dict[str, object]:
    """Return the origin of all rounds of a run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else "processor"
    return {
        "commit": checkout_commit(),
        "machine": f"{len(models)} x {model}, {platform.platform()}",
        "load_average": os.getloadavg()[0],
        "versions": {"ares": version(), "cpython": sys.version.split()[0]},
        "tcp": _kernel("tcp_congestion_control"),
        "queueing": _kernel("../core/default_qdisc"),
        "seed": seed,
        "testbed": testbed,
    }


@cache
def version_of(store: str) -> str | None:
    """Return the version that a store's program prints on this machine, or `None`."""
    return _first_line(_VERSION_OF[store]) if store in _VERSION_OF else None


def write_json(path: Path, content: object) -> None:
    """Write a file of JSON for people."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))


def _first_line(command: list[str]) -> str | None:
    """Return the first line of the output."""
    how = {"capture_output": True, "text": True, "timeout": _CLOCK_ASK_S}
    try:
        asked = subprocess.run(command, check=False, **how)  # type: ignore[call-overload]
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(asked.stdout.strip().splitlines()), None)


def _kernel(name: str) -> str | None:
    try:
        return (Path("/proc/sys/net/ipv4") / name).read_text().strip()
    except OSError:
        return None
