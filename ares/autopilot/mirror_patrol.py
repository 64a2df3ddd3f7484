"""The autopilot's copying for mirrors (ares/registers/mirroring.py).

The leading member makes a pass for each mirror every ``mirror_every_s``. After a pass the patrol
rests for at least as long as the pass took; otherwise a large domain would be listed all the time.
All mirrors share a rate of their own, ``bytes_per_s``. A failed pass does not change the domain;
the failure is reported, and the pass repeated. A removed mirror is emptied once while this member
leads.
"""

import asyncio
import logging
import math
import time

from msgspec import Struct

from ares.autopilot.lookout import Lookout
from ares.client.mirrors import is_removed, list_mirrors, opened
from ares.cluster.tables import AutopilotSettings
from ares.model.errors import AresError
from ares.model.numbers import plural
from ares.platform import tasks
from ares.reconfig.throttle import Throttle
from ares.registers.mirroring import MirrorName, empty

MIRROR_ASK_S = 5.0
MIRROR_STALL_S = 20.0
"""Seconds without progress after which a pass ends."""

MIRROR_RETRY_S_MAX = 60.0
MIRRORS_AT_ONCE = 4
MIRRORS_NAMED_MAX = 3

log = logging.getLogger(__name__)


class _WatchedMirror(Struct):
    """A mirror under watch.

    ``complete_s``: the begin of the last complete pass, on the loop's clock. ``next_at``: the begin
    of the next pass.
    """

    name: MirrorName
    complete_s: float | None = None
    next_at: float = 0.0
    wait_s: float = 0.0
    trouble: str = ""
    emptied: bool = False
    task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"{self.name.domain} at {self.name.site}"


class MirrorPatrol:
    """The patrol of mirrors, which copies while :meth:`run` runs. ``manager`` stays open."""

    def __init__(self, lookout: Lookout, settings: AutopilotSettings) -> None:
        self._lookout, self._manager = lookout, lookout.manager
        self._listed_at = -math.inf
        self._every_s = settings.mirror_every_s
        self._throttle = Throttle(settings.bytes_per_s)
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Semaphore(MIRRORS_AT_ONCE)
        self._mirrors: dict[MirrorName, _WatchedMirror] = {}
        self._trouble = ""

    def sentence(self) -> str:
        """Return the troubles of mirrors, else the ages of mirrors; empty without mirrors."""
        followed = [each for each in self._mirrors.values() if not each.emptied]
        troubled = [
            f"mirror of {each}: {each.trouble}; it is tried again"
            for each in followed
            if each.trouble
        ]
        more = (
            [f"and {len(troubled) - MIRRORS_NAMED_MAX} more mirrors"]
            if len(troubled) > MIRRORS_NAMED_MAX
            else []
        )
        if troubled or self._trouble:
            return "; ".join([*filter(None, [self._trouble]), *troubled[:MIRRORS_NAMED_MAX], *more])
        ages = [
            self._loop.time() - each.complete_s for each in followed if each.complete_s is not None
        ]
        if not followed:
            return ""
        oldest = (
            "none complete yet" if not ages else f"the oldest complete as of {max(ages):.0f} s ago"
        )
        return f"{plural(len(followed), 'mirror')}, {oldest}"

    async def run(self) -> None:
        """List the mirrors and begin the passes that are due, until cancelled."""
        try:
            while True:
                now = self._loop.time()
                if now - self._listed_at >= self._lookout.list_every_s(0.0):
                    self._listed_at = now
                    await self._list()
                for each in self._mirrors.values():
                    if each.task is not None and each.task.done():
                        each.task = None
                    if each.task is None and not each.emptied and self._loop.time() >= each.next_at:
                        each.task = tasks.begin(self._see_to(each), "pass for a mirror")
                await asyncio.sleep(self._every_s)
        finally:
            working = [each.task for each in self._mirrors.values() if each.task is not None]
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)

    async def _list(self) -> None:
        """Find new mirrors. If the list cannot be read, the known mirrors are followed."""
        try:
            names = await list_mirrors(self._manager, MIRROR_ASK_S)
        except AresError as error:
            self._trouble = f"the mirrors cannot be listed: {error}" if self._mirrors else ""
            return
        self._trouble = ""
        for name in names:
            self._mirrors.setdefault(name, _WatchedMirror(name))

    async def _see_to(self, each: _WatchedMirror) -> None:
        async with self._turn:
            began = self._loop.time()
            try:
                trouble = await self._followed(each)
            except AresError as error:
                trouble = str(error)
            except Exception as error:
                tasks.failures.report("pass for a mirror", error)
                trouble = tasks.MISTAKE
            now = self._loop.time()
            if trouble:
                if not each.trouble:
                    log.warning("the mirror of %s is not complete: %s", each, trouble)
                each.wait_s = min(max(2 * each.wait_s, self._every_s), MIRROR_RETRY_S_MAX)
                each.next_at = now + each.wait_s
            else:
                if each.trouble:
                    log.info("the mirror of %s is complete again", each)
                each.wait_s = 0.0
                each.next_at = max(began + self._every_s, now + (now - began))
            each.trouble = trouble

    async def _followed(self, each: _WatchedMirror) -> str:
        """Make a pass, or empty a removed mirror; return the trouble with single objects."""
        mirror = await opened(self._manager, each.name, MIRROR_ASK_S)
        if mirror is None:
            return "it cannot be opened"
        if await is_removed(mirror, MIRROR_ASK_S):
            await mirror.run(empty, "emptying", timeout_s=MIRROR_STALL_S)
            each.emptied = True
            log.info("the mirror of %s was removed, and holds nothing any more", each)
            return ""
        source = await self._manager.domain(each.name.domain, timeout_s=MIRROR_ASK_S)
        began = self._loop.time()
        copied = await source.copy_into(
            mirror, time.time(), self._throttle, timeout_s=MIRROR_STALL_S
        )
        if copied.failed:
            return f"{plural(copied.failed, 'object')} could not be copied: {copied.why}"
        if copied.objects:
            log.debug(
                "the mirror of %s got %d objects, %d bytes", each, copied.objects, copied.bytes
            )
        each.complete_s = began
        return ""
