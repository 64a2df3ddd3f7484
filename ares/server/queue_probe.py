"""The measurement of a request's wait for a turn on the event loop.

The code that serves a request cannot see this wait: the request is in a buffer of the kernel until
the loop reads the request. A thread therefore asks the loop for a turn ten times a second, as a
connection does when a request arrives, and counts the wait. Requests cost no more than without the
thread.
"""

import asyncio
import threading
import time

from ares.metrics import Histogram

PROBE_EVERY_S = 0.1
"""Time between two probes. A probe takes 0.1 to 0.2 ms of processor time."""

MISSED_MAX = 600
"""Most probes that count as sent while a probe waited: a minute."""


class QueueProbe:
    """Probes of the running event loop from `start` to `close`; `waits` counts the waits."""

    def __init__(self, waits: Histogram) -> None:
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._asked = self._ended = False
        self._thread = threading.Thread(target=self._run, name="queue probe", daemon=True)

    def start(self) -> None:
        """Begin to probe."""
        self._thread.start()

    def close(self) -> None:
        """Send no further probe; the thread ends after its sleep."""
        self._ended = True

    def _run(self) -> None:
        while not self._ended:
            time.sleep(PROBE_EVERY_S)
            if not self._asked and not self._ended:
                self._asked = True
                try:
                    self._loop.call_soon_threadsafe(self._note, time.perf_counter())
                except RuntimeError:  # the loop was closed meanwhile
                    return

    def _note(self, asked_s: float) -> None:
        """Count a probe, and the probes that were left out while it waited."""
        waited_s = time.perf_counter() - asked_s
        self._asked = False
        for missed in range(1 + min(int(waited_s / PROBE_EVERY_S), MISSED_MAX)):
            self._waits.add(waited_s - missed * PROBE_EVERY_S)
