"""Memory of a client that puts and gets a file much larger than its memory.

    .venv/bin/python -m experiments.client_memory CLUSTER_FILE BYTES

prints the baseline and the peaks after the put and the get, in KiB, and the seconds that each took.
Each measurement is a separate process, because the kernel reports the largest resident set of a
whole process.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ares.client.connect import connect
from ares.model.units import MIB
from ares.platform.interpreter import python
from ares.platform.loop import run
from experiments import ENVIRONMENT
from experiments.measuring import Goal, Table, timed

GRAIN_BYTES = 64 * 1024
"""Random bytes in every MiB; the rest is a hole.

No two blocks are alike, and the file is small on disk.
"""

FREE_FACTOR = 1.25
PEAK = Goal(200)


def write_sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for offset in range(0, size, MIB):
            file.seek(offset)
            file.write(os.urandom(min(GRAIN_BYTES, size - offset)))
        file.truncate(size)


def _same(one: Path, other: Path) -> bool:
    with one.open("rb") as first, other.open("rb") as second:
        while data := first.read(MIB):
            if data != second.read(MIB):
                return False
        return not second.read(1)


def _peak_kib() -> int:
    """Return the largest resident set of this program.

    ``getrusage`` would return the parent's if larger.
    """
    return int(_fields("/proc/self/status")["VmHWM"].split()[0])


def _fields(path: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in Path(path).read_text().splitlines())


async def _put_and_get(cluster: str, size: int, directory: Path) -> Sequence[float]:
    source, copy = directory / "source", directory / "copy"
    write_sparse(source, size)
    write_sparse(directory / "small", MIB)
    async with connect(cluster) as store:
        await store.file("small").write(directory / "small")
        baseline = _peak_kib()
        put, _ = await timed(store.file("huge").write(source))
        after_put = _peak_kib()
    async with connect(cluster) as store:
        get, _ = await timed(store.file("huge").read_into(copy))
        after_get = _peak_kib()
    same = await asyncio.to_thread(_same, source, copy)
    assert same, "the file came back changed"
    return baseline, after_put, after_get, put, get


def affordable(wanted: int, expansion: float) -> int:
    """Halve ``wanted`` until the servers of this machine can keep as many bytes in free memory."""
    free = int(_fields("/proc/meminfo")["MemAvailable"].split()[0]) * 1024
    while wanted * expansion * FREE_FACTOR > free:
        wanted //= 2
    return wanted


def memory(table: Table, cluster: Path, size: int) -> None:
    """Print the peaks above the baseline."""
    command = python("-m", "experiments.client_memory", str(cluster), str(size))
    output = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ).stdout
    baseline, after_put, after_get, put, get = (float(number) for number in output.split())
    table.note(
        f"{size / MIB:,.0f} MiB put in {put:.1f} s and got into a file in {get:.1f} s; "
        f"{baseline / 1024:.0f} MiB before"
    )
    table.line("peak above that after the put", [(after_put - baseline) / 1024], "MiB")
    table.line("peak above that after the get", [(after_get - baseline) / 1024], "MiB", PEAK)


def main() -> None:
    with tempfile.TemporaryDirectory(
        prefix="ares-experiment-", dir=Path(sys.argv[1]).parent
    ) as directory:
        print(*run(_put_and_get(sys.argv[1], int(sys.argv[2]), Path(directory))))


if __name__ == "__main__":
    main()
