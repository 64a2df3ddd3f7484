"""The autopilot: in the consensus member that leads, it watches the servers, and replaces those that are gone (ares/autopilot/judge.py decides).

One member leads at a time, so one autopilot works at a time. That two do for a moment, when the lead changes, costs work and nothing else. A new
leader knows nothing of what the last one saw, and begins to count anew.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ares.autopilot.flight import Duty, Flight
from ares.client.manager import Manager
from ares.model.configuration import Server
from ares.model.identity import ServerId

LOOK_S = 1.0
"""How often it is asked who leads, at least."""

log = logging.getLogger(__name__)


class Autopilot:
    """Works while ``leads()`` is true, over a ``manager`` of its own, which it closes. ``book``: the servers of the cluster file."""

    def __init__(self, manager: Manager, book: Mapping[ServerId, Server], leads: Callable[[], bool], duty: Duty) -> None:
        self._manager = manager
        self._book = book
        self._leads = leads
        self._duty = duty
        self._flight: Flight | None = None

    def sentence(self) -> str:
        """What it does, or did last."""
        return self._flight.sentence() if self._flight is not None else "ready, for when this member leads"

    async def run(self) -> None:
        """Be ready, and fly whenever this member leads, until cancelled."""
        try:
            while True:
                if self._leads():
                    await self._lead()
                await asyncio.sleep(min(self._duty.every_s, LOOK_S))
        finally:
            await self._manager.close()

    async def _lead(self) -> None:
        """Until another member leads. A reconfiguration that is broken off then is pending; the next leader finishes it."""
        log.info("this member leads: its autopilot watches %d servers", len(self._book), extra={"after_s": self._duty.after_s})
        self._flight = Flight(self._manager, self._book, self._duty)
        task = asyncio.create_task(self._flight.fly())
        try:
            while self._leads() and not task.done():
                await asyncio.wait([task], timeout=min(self._duty.every_s, LOOK_S))
            if task.done():
                task.result()
        except Exception:  # a mistake of ours must not leave the cluster without a watch
            log.exception("the autopilot failed, and begins again")
        finally:
            self._flight = None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        log.info("the autopilot here rests")
