"""Admission: a bounded number of requests at work, and bounded memory for their data.

A caller is an access key, or all strangers together. Above its part a caller takes places and
memory only while half of all is free: a slow reader leaves the rest to the others.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from ares.gateway.actions.action_table import STREAM_COST_BYTES
from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.s3.s3_errors import S3Code, S3Error

MEMORY_WAIT_S = 10.0
"""Longest wait of a request for memory."""

CALLER_PARTS = 4
"""A caller's part of the places, and of the memory, is one of this many equal parts."""


def too_busy(what: str) -> S3Error:
    """Return the answer for a client to repeat later; nothing was done."""
    return S3Error(S3Code.SlowDown, f"Too busy: {what}. Nothing was done.", {"Retry-After": "1"})


class GatewayAdmission:
    """The requests at work in a process, and the memory for their data."""

    def __init__(self, limits: GatewayLimits) -> None:
        self.at_work = 0
        self.memory_bytes = 0
        """Memory taken for data."""
        self.memory_bytes_max = limits.memory_bytes
        self._requests_max = limits.requests
        self._places = Counter[str]()
        """Requests at work, by their callers."""
        self._places_max = max(limits.requests // CALLER_PARTS, 1)
        self._taken = Counter[str]()
        """Memory taken, by callers."""
        part = max(limits.memory_bytes // CALLER_PARTS, STREAM_COST_BYTES)
        self.part_bytes_max = min(part, limits.memory_bytes)
        """Memory of a caller: any request fits."""
        self._waiting: deque[_Waiting] = deque()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Count a request at work. Raises S3Error if too many are."""
        if self.at_work >= self._requests_max:
            raise too_busy(f"{self.at_work} requests are at work")
        self.at_work += 1
        try:
            yield
        finally:
            self.at_work -= 1

    @contextlib.contextmanager
    def place(self, caller: str) -> Iterator[None]:
        """Count a request at work for its caller. Raises S3Error if too many are."""
        if self._places[caller] >= self._places_max and 2 * self.at_work > self._requests_max:
            raise too_busy(f"{self._places[caller]} requests of this caller are at work")
        self._places[caller] += 1
        try:
            yield
        finally:
            _subtract(self._places, caller, 1)

    @contextlib.asynccontextmanager
    async def memory(self, size: int, caller: str) -> AsyncIterator["TakenMemory"]:
        """Take ``size`` bytes of memory, in the order of requests, until the end of the block.

        A request that waits for its caller's part lets others pass. Raises S3Error after a long
        wait.
        """
        taken = TakenMemory(self, caller)
        try:
            await taken.change(size)
            yield taken
        finally:
            self.give_back(taken.size, caller)

    def give_back(self, size: int, caller: str) -> None:
        """Take back the memory of a request."""
        self.memory_bytes -= size
        _subtract(self._taken, caller, size)
        self._wake()

    async def take(self, size: int, caller: str) -> None:
        """Wait for memory. Raises S3Error after a long wait."""
        waiting = _Waiting(size, caller, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake()
        try:
            async with asyncio.timeout(MEMORY_WAIT_S):
                await waiting.turn
        except BaseException as error:
            if waiting.turn.cancelled():
                self._waiting.remove(waiting)
                self._wake()
            else:  # it came in the same turn of the event loop
                self.give_back(size, caller)
            if isinstance(error, TimeoutError):
                raise too_busy("the memory for requests is taken") from None
            raise

    def _wake(self) -> None:
        """Give memory to waiting requests, in their order."""
        for waiting in list(self._waiting):
            size, caller, turn = waiting
            taken = self.memory_bytes + size
            above_part = self._taken[caller] + size > self.part_bytes_max
            if turn.cancelled() or (above_part and 2 * taken > self.memory_bytes_max):
                continue
            if taken > self.memory_bytes_max:
                return
            self._waiting.remove(waiting)
            self.memory_bytes += size
            self._taken[caller] += size
            turn.set_result(None)


class _Waiting(NamedTuple):
    """A request that waits for memory."""

    size: int
    caller: str
    turn: asyncio.Future[None]


def _subtract(counts: Counter[str], caller: str, count: int) -> None:
    """Subtract from a caller's count, and keep no count of zero."""
    counts[caller] -= count
    if not counts[caller]:
        del counts[caller]


class TakenMemory:
    """The memory of a request."""

    def __init__(self, admission: GatewayAdmission, caller: str) -> None:
        self.size = 0
        self._admission = admission
        self._caller = caller

    async def change(self, size: int) -> None:
        """Take more memory, or give back memory beyond ``size``. Raises S3Error as `memory`."""
        size = min(size, self._admission.part_bytes_max)
        more = size - self.size
        if more > 0:
            await self._admission.take(more, self._caller)
        else:
            self._admission.give_back(-more, self._caller)
        self.size = size
