"""The traffic of the demo: a reader and a writer that never pause, and notice each bad read."""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Awaitable
from typing import Any

from msgspec import Struct

from ares.client.store import ObjectStore
from ares.model.errors import AresError

DEMO_KEYS = 8
DEMO_VALUE_BYTES = 1024


class DemoOperation(Struct, frozen=True, gc=False):
    """An operation: ``kind`` is read or write."""

    phase: str
    kind: str
    seconds: float


def value_of(key: str, count: int) -> bytes:
    """Return the value that the ``count``-th write of ``key`` stores."""
    head = f"{key} {count} ".encode()
    return head + hashlib.shake_128(head).digest(DEMO_VALUE_BYTES - len(head))


def count_in(key: str, value: bytes) -> int | None:
    """Return the number of the write of ``key`` that stored ``value``; ``None`` if unknown."""
    words = value.split(b" ", 2)
    if len(words) != 3 or not words[1].isdigit() or value != value_of(key, int(words[1])):
        return None
    return int(words[1])


class DemoTraffic:
    """A reader and a writer that never pause, each a separate client, and their results.

    Every value names the object and the number of the write, and all bytes follow from both. Hence
    each bad read is noticed: a torn read, a read of another object, and a read older than a write
    or a read that had returned when the read began. ``phase`` names the present part of the story;
    set it at will. ``failures``: failed or wrong operations, in words.
    """

    def __init__(self) -> None:
        self.phase = "before"
        self.samples: list[DemoOperation] = []
        self.failures: list[str] = []
        self.bytes = 0
        self._keys = [f"traffic/{number}" for number in range(DEMO_KEYS)]
        self._begun = dict.fromkeys(self._keys, 0)
        self._done = dict.fromkeys(self._keys, 0)
        self._seen = dict.fromkeys(self._keys, 0)
        self._going = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def expected(self) -> dict[str, bytes]:
        """Return the value of each object after the traffic has stopped without failures."""
        return {key: value_of(key, count) for key, count in self._done.items()}

    def line(self) -> str:
        """Return a line about the progress, for a person."""
        return f"{len(self.samples)} reads and writes, {len(self.failures)} failed or wrong"

    async def start(self, writer: ObjectStore, reader: ObjectStore) -> None:
        """Write every object once, and go on until :meth:`stop`."""
        for key in self._keys:
            await self._write(writer, key)
        self._going = True
        self._tasks = [
            asyncio.create_task(self._keep(self._write, writer)),
            asyncio.create_task(self._keep(self._read, reader)),
        ]

    async def stop(self) -> None:
        """Let the operations under way end, begin no more, and raise the error of a broken loop."""
        self._going = False
        await asyncio.gather(*self._tasks)

    def summary(self, phase: str) -> dict[str, Any]:
        """Return counts, and latencies in ms, of the operations that began in ``phase``."""
        of = {
            kind: [
                sample.seconds
                for sample in self.samples
                if (sample.phase, sample.kind) == (phase, kind)
            ]
            for kind in ("read", "write")
        }
        return {"phase": phase, "reads": _latencies(of["read"]), "writes": _latencies(of["write"])}

    async def _keep(self, operation: Any, store: ObjectStore) -> None:
        for key in itertools.cycle(self._keys):
            if not self._going:
                return
            await operation(store, key)

    async def _write(self, store: ObjectStore, key: str) -> None:
        count = self._begun[key] = self._begun[key] + 1
        if await self._timed("write", store.write(key, value_of(key, count))) is not None:
            self._done[key] = count
            self.bytes += DEMO_VALUE_BYTES

    async def _read(self, store: ObjectStore, key: str) -> None:
        least = max(self._done[key], self._seen[key])
        value = await self._timed("read", store.read(key))
        if value is None:
            return
        self.bytes += len(value)
        count = count_in(key, value)
        if count is None:
            self.failures.append(
                f"a read of {key} returned {len(value)} bytes that no write stored"
            )
        elif not least <= count <= self._begun[key]:
            self.failures.append(
                f"a read of {key} returned its write {count}, not one from {least} to "
                f"{self._begun[key]}"
            )
        else:
            self._seen[key] = count

    async def _timed(self, kind: str, operation: Awaitable[Any]) -> Any:
        """Return the result of an operation, or ``None`` after a failure."""
        phase, begin = self.phase, time.perf_counter()
        try:
            result = await operation
        except AresError as error:
            self.failures.append(f"a {kind} failed: {error}")
            return None
        self.samples.append(DemoOperation(phase, kind, time.perf_counter() - begin))
        return result


def _latencies(seconds: list[float]) -> dict[str, Any]:
    if not seconds:
        return {"count": 0}
    ordered = sorted(seconds)
    percentiles = {
        f"p{percent}_ms": round(1000 * ordered[len(ordered) * percent // 100], 2)
        for percent in (50, 99)
    }
    return {"count": len(ordered)} | percentiles | {"max_ms": round(1000 * ordered[-1], 2)}
