"""How a process ends: SIGTERM and SIGINT end it cleanly, and the second one at once.

Cleanly means that it takes nothing more, finishes what it took (requests handled, commits on the disk, replies sent) and exits with status 0. Ending
at once is what a crash is, and safe: what was acknowledged outlasts it where the cluster file says so. Before it serves, a process owes nobody
anything, and the first signal ends it at once, too.
"""

import asyncio
import logging
import signal
from collections.abc import Callable

log = logging.getLogger(__name__)


def end_at_once() -> None:
    """What SIGTERM does to this process until :func:`stop_on_signals`. A service manager takes that for a clean end, as it does status 0."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stop_on_signals(stop: asyncio.Event, ending: Callable[[], None]) -> None:
    """Set ``stop``, and call ``ending`` first, when SIGTERM or SIGINT comes to this process, from now on."""
    loop = asyncio.get_running_loop()

    def begin_to_stop(number: signal.Signals) -> None:
        log.info("stopping on %s; a second signal ends this process at once", number.name)
        for other in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(other)
            signal.signal(other, signal.SIG_DFL)
        ending()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_to_stop, number)
