"""An event loop whose clock stands still during work, and jumps to the next timer."""

import asyncio
import heapq
import time
from collections.abc import Coroutine
from typing import Any

CLOCK_ZERO_S = time.time() - time.monotonic()
"""Time since 1970 when the clock of loops was 0."""


def monotonic() -> float:
    """Return the running loop's time, in place of the machine's."""
    return asyncio.get_running_loop().time()


def since_1970() -> float:
    """Return the seconds since 1970 by the running loop's time."""
    return CLOCK_ZERO_S + monotonic()


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a virtual clock; tests must not wait for other processes.

    The clock does not jump while a thread of the executor works.
    """

    _ready: Any
    _scheduled: Any

    def __init__(self) -> None:
        super().__init__()
        self._now_s = time.monotonic()
        self._threads: set[asyncio.Future[Any]] = set()

    def time(self) -> float:
        return self._now_s

    def run_in_executor(self, *arguments: Any) -> Any:
        done = super().run_in_executor(*arguments)
        self._threads.add(done)
        done.add_done_callback(self._threads.discard)
        return done

    def _run_once(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            self._timer_cancelled_count -= 1
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
        if not self._ready and self._scheduled and not self._threads:
            self._now_s = max(self._now_s, self._scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def run_virtually(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` to its end on a :class:`VirtualLoop`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)
