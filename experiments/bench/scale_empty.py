"""Cost of a process before the first request: time to start, memory, processor time."""

import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ares.platform.interpreter import python
from experiments.bench.growth_sample import GrowthSample, resident_mib
from experiments.bench.store_processes import cpu_s

STARTS = 5
EMPTY_IDLE_S = 3.0


def empty(full: bool) -> Iterator[GrowthSample]:
    """Measure a server without and with a disk, and a single consensus member.

    A single member elects itself.
    """
    starts = STARTS if full else 3
    for label, durability, words in (
        ("server in memory", "memory", ["server", "--id", "s0"]),
        ("server with a disk", "fsync", ["server", "--id", "s0"]),
        ("consensus member", "memory", ["consensus", "--id", "r0"]),
    ):
        found = [_started(durability, words) for _ in range(starts)]
        figures = {name: statistics.median(one[name] for one in found) for name in found[0]}
        yield GrowthSample("empty", label, "processes", 1, figures)


def _started(durability: str, words: list[str]) -> dict[str, float]:
    ares = python("-m", "ares")
    with tempfile.TemporaryDirectory(prefix="ares-bench-") as directory:
        shape = f"--servers 3 --consensus 1 --base-port 0 --durability {durability}".split()
        subprocess.run(
            [*ares, "init", f"{directory}/c", *shape], check=True, stdout=subprocess.DEVNULL
        )
        command = [*ares, words[0], str(Path(directory) / "c" / "cluster.toml"), *words[1:]]
        began_s = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith(b"READY"), f"{words[0]} did not start"
                ready_s, taken_s = time.perf_counter() - began_s, cpu_s(process.pid)
                time.sleep(0.5)
                idle_from_s = cpu_s(process.pid)
                time.sleep(EMPTY_IDLE_S)
                idle = (cpu_s(process.pid) - idle_from_s) / EMPTY_IDLE_S
                return {
                    "s to start": ready_s,
                    "s CPU to start": taken_s,
                    "MiB": resident_mib([process.pid]),
                    "idle CPU, %": idle * 100,
                }
            finally:
                process.terminate()
