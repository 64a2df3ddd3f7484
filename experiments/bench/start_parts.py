"""The parts of a start of a server with small objects: bytes, frames, facts, names.

    python -m experiments.bench.start_parts DIRECTORY OBJECTS PUTS

Writes the journal of `one_server fill` in batches of so many puts, unless it exists, and prints
seconds, the median of PART_ROUNDS: of reading its bytes, of a start, each with an empty page cache
and with a full one, and of the steps of a start, each alone.
"""

import asyncio
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ares import compiled
from ares.replica.replica import Replica
from ares.server.storage_process import recovered
from ares.store.journal.disk import Disk
from ares.store.journal.format import walk
from ares.store.journal.segments import SEGMENT_SUFFIX, Owner, open_segment
from experiments.bench import one_server
from experiments.bench.one_server import C0, MEMBERS, fill, opened

PART_ROUNDS = 3
JOURNAL_READ_BYTES = 1024 * 1024


class StartParts:
    """The measurements of the journal in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths = sorted((directory / "store").glob(f"*{SEGMENT_SUFFIX}"))
        self.seconds: dict[str, list[float]] = {}

    def measure(self) -> None:
        """Measure each part once."""
        for name, before in (("empty cache", self._empty_cache), ("full cache", lambda: None)):
            before()
            self._time(f"bytes read, {name}", self._read)
            before()
            self._time(f"start, {name}", lambda: asyncio.run(self._start()))
        owner = Owner(C0.id, MEMBERS[0].id, MEMBERS[0].identity)
        segments = [open_segment(Disk(), path, owner) for path in self._paths]
        frames = self._time(
            "frames verified, in Python",
            lambda: [
                (segment.number, frame.body)
                for segment in segments
                for frame in walk(
                    segment.view, segment.start, segment.head.salt, segment.head.first
                )
            ],
        )
        if compiled.CORE is not None:
            replica = Replica(
                MEMBERS[0].id, MEMBERS[0].identity, C0, True, compiled.replica_parts()
            )
            replica.begin_restoring()
            replay = compiled.CORE.replay
            self._time("facts parsed", lambda: [replay({}, body, at) for at, body in frames])
            self._time(
                "facts parsed and joined",
                lambda: [replica.restore_batch(body, at) for at, body in frames],
            )
            self._time("names ordered", replica.restored)

    def _time(self, name: str, part: Callable[[], Any]) -> Any:
        gc.collect()
        began_s = time.perf_counter()
        found = part()
        self.seconds.setdefault(name, []).append(time.perf_counter() - began_s)
        return found

    def _empty_cache(self) -> None:
        for path in self._paths:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def _read(self) -> None:
        for path in self._paths:
            with path.open("rb", buffering=0) as file:
                while file.read(JOURNAL_READ_BYTES):
                    pass

    async def _start(self) -> int:
        journal = opened(self._directory)
        replica = recovered(
            MEMBERS[0].id, MEMBERS[0].identity, C0, journal, compiled.replica_parts()
        )
        journal.close()
        return len(replica.hosted[C0.id].objects)


def main() -> None:
    directory, objects, puts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not (directory / "store").exists():
        directory.mkdir(parents=True, exist_ok=True)
        one_server.PUTS_AT_ONCE = puts
        asyncio.run(fill(directory, objects))
        os.sync()
    parts = StartParts(directory)
    gc.disable()
    for _ in range(PART_ROUNDS):
        parts.measure()
    for name, seconds in parts.seconds.items():
        print(f"{name:30} {statistics.median(seconds):8.3f}")


if __name__ == "__main__":
    main()
