"""Admission: a bounded number of requests at work, and bounded memory for their data."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator

from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.s3.s3_errors import S3Code, S3Error

MEMORY_WAIT_S = 10.0
"""Longest wait of a request for memory."""


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
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

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

    @contextlib.asynccontextmanager
    async def memory(self, size: int) -> AsyncIterator["TakenMemory"]:
        """Take ``size`` bytes of memory, in the order of requests, until the end of the block.

        Raises S3Error after a long wait.
        """
        taken = TakenMemory(self)
        try:
            await taken.change(size)
            yield taken
        finally:
            self.give_back(taken.size)

    def give_back(self, size: int) -> None:
        """Take back the memory of a request."""
        self.memory_bytes -= size
        self._wake()

    async def take(self, size: int) -> None:
        """Wait for memory. Raises S3Error after a long wait."""
        if not self._waiting and self.memory_bytes + size <= self.memory_bytes_max:
            self.memory_bytes += size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(MEMORY_WAIT_S):
                await turn
        except BaseException as error:
            if turn.cancelled():
                self._waiting.remove((size, turn))
            else:  # it came in the same turn of the event loop
                self.memory_bytes -= size
            self._wake()
            if isinstance(error, TimeoutError):
                raise too_busy("the memory for requests is taken") from None
            raise

    def _wake(self) -> None:
        """Give memory to waiting requests, in their order."""
        while self._waiting:
            size, turn = self._waiting[0]
            if self.memory_bytes + size > self.memory_bytes_max:
                return
            self._waiting.popleft()
            self.memory_bytes += size
            turn.set_result(None)


class TakenMemory:
    """The memory of a request."""

    def __init__(self, admission: GatewayAdmission) -> None:
        self.size = 0
        self._admission = admission

    async def change(self, size: int) -> None:
        """Take more memory, or give back memory beyond ``size``. Raises S3Error as `memory`."""
        size = min(size, self._admission.memory_bytes_max)
        more = size - self.size
        if more > 0:
            await self._admission.take(more)
        else:
            self._admission.give_back(-more)
        self.size = size
