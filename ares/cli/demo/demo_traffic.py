"""The demo's traffic: a reader and a writer that never pause, each a client of its own, and what they saw.

Every value says which object it is of and how often that was written, and all of its bytes follow from that. So a read that is torn, of another
object, older than a write that had returned when the read began, or older than an earlier read, is noticed.
"""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Awaitable
from typing import Any

from msgspec import Struct

from ares.client.store import ObjectStore
from ares.model.errors import AresError

KEYS = 8
VALUE_BYTES = 1024


class Sample(Struct, frozen=True, gc=False):
    """One operation: ``kind`` is read or write."""

    phase: str
    kind: str
    seconds: float


def value_of(key: str, count: int) -> bytes:
    """The value that the ``count``-th write of ``key`` stores."""
    head = f"{key} {count} ".encode()
    return head + hashlib.shake_128(head).digest(VALUE_BYTES - len(head))


def count_in(key: str, value: bytes) -> int | None:
    """The number of the write of ``key`` that stored ``value``; None if none did."""
    words = value.split(b" ", 2)
    if len(words) != 3 or not words[1].isdigit() or value != value_of(key, int(words[1])):
        return None
    return int(words[1])


class DemoTraffic:
    """``phase`` names what is going on around the traffic; set it at will. ``failures``: operations that failed or were wrong, in words."""

    def __init__(self) -> None:
        self.phase = "before"
        self.samples: list[Sample] = []
        self.failures: list[str] = []
        self.bytes = 0
        self._keys = [f"traffic/{number}" for number in range(KEYS)]
        self._begun = dict.fromkeys(self._keys, 0)
        self._done = dict.fromkeys(self._keys, 0)
        self._seen = dict.fromkeys(self._keys, 0)
        self._going = False
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def expected(self) -> dict[str, bytes]:
        """What each object holds when the traffic has stopped and nothing failed."""
        return {key: value_of(key, count) for key, count in self._done.items()}

    def line(self) -> str:
        """How it goes, for a person who watches."""
        return f"{len(self.samples)} reads and writes, {len(self.failures)} failed or wrong"

    async def start(self, writer: ObjectStore, reader: ObjectStore) -> None:
        """Write every object once, then go on until :meth:`stop`."""
        for key in self._keys:
            await self._write(writer, key)
        self._going = True
        self._tasks = [asyncio.create_task(self._keep(self._write, writer)), asyncio.create_task(self._keep(self._read, reader))]

    async def stop(self) -> None:
        """Let the operations under way end, and begin no others; raises what broke a loop."""
        self._going = False
        await asyncio.gather(*self._tasks)

    def summary(self, phase: str) -> dict[str, Any]:
        """Counts, and latencies in ms, of the operations that began in ``phase``."""
        of = {kind: [sample.seconds for sample in self.samples if (sample.phase, sample.kind) == (phase, kind)] for kind in ("read", "write")}
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
            self.bytes += VALUE_BYTES

    async def _read(self, store: ObjectStore, key: str) -> None:
        least = max(self._done[key], self._seen[key])
        value = await self._timed("read", store.read(key))
        if value is None:
            return
        self.bytes += len(value)
        count = count_in(key, value)
        if count is None:
            self.failures.append(f"a read of {key} returned {len(value)} bytes that nobody wrote there")
        elif not least <= count <= self._begun[key]:
            self.failures.append(f"a read of {key} returned its write {count}, not one from {least} to {self._begun[key]}")
        else:
            self._seen[key] = count

    async def _timed(self, kind: str, operation: Awaitable[Any]) -> Any:
        """The result of an operation, or None when it failed."""
        phase, begin = self.phase, time.perf_counter()
        try:
            result = await operation
        except AresError as error:
            self.failures.append(f"a {kind} failed: {error}")
            return None
        self.samples.append(Sample(phase, kind, time.perf_counter() - begin))
        return result


def _latencies(seconds: list[float]) -> dict[str, Any]:
    if not seconds:
        return {"count": 0}
    ordered = sorted(seconds)
    percentiles = {f"p{percent}_ms": round(1000 * ordered[len(ordered) * percent // 100], 2) for percent in (50, 99)}
    return {"count": len(ordered)} | percentiles | {"max_ms": round(1000 * ordered[-1], 2)}
