"""The repair of damaged places of logs, with records from other servers (docs/store.md, Scrubbing).

A server repairs a single place at a time. A thread looks through the facts of the place; the lost
records are fetched from other nodes of the log, at the rate of all fetches; the thread writes.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ares.model.log_messages import LogRecord
from ares.server.hosted_log import HostedLog
from ares.sharedlog.log_facts import LostRecords
from ares.store.port import NotRepaired

log = logging.getLogger(__name__)

REFETCH_LOOK_S = 0.02
"""Seconds between two looks at a fetch."""

LOG_REPAIR_RETRY_S, LOG_REPAIR_RETRY_S_MAX = 5.0, 900.0

LogPlace = tuple[HostedLog, int]


class LogRepairs:
    """The repairs of a server. ``pace``: the brake for reads of the disk.

    ``damaged``: places that are not repaired yet, with the reason. ``repaired``: a count of places.
    """

    def __init__(self, pace: Callable[[int], None]) -> None:
        self._pace = pace
        self._damaged: dict[LogPlace, str] = {}
        self._retry_s = LOG_REPAIR_RETRY_S
        self._retry_at_s = 0.0
        self.repaired = 0

    @property
    def damaged(self) -> dict[LogPlace, str]:
        for hosted, place in list(self._damaged):
            if not _is_there(hosted, place):
                self.forget(hosted, place)
        return self._damaged

    def forget(self, hosted: HostedLog, place: int) -> None:
        """Forget a place that is whole, or given back."""
        self._damaged.pop((hosted, place), None)

    async def try_again(self, now_s: float, threads: ThreadPoolExecutor) -> None:
        """Try all repairs again, if the time has come."""
        if not self.damaged:
            self._retry_s = LOG_REPAIR_RETRY_S
        elif now_s >= self._retry_at_s:
            self._retry_at_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, LOG_REPAIR_RETRY_S_MAX)
            for hosted, place in list(self.damaged):
                await self.repair(hosted, place, threads)

    async def repair(self, hosted: HostedLog, place: int, threads: ThreadPoolExecutor) -> None:
        """Repair a damaged place, or note why it stays damaged."""
        extra = {"log": next(iter(hosted.node.state.chains.values())).domain}
        try:
            why = await self._mend(hosted, place, threads)
        except NotRepaired as error:
            why = str(error)
        except OSError as error:
            why = f"the disk: {error.strerror}"
        if not why or not _is_there(hosted, place):
            self.forget(hosted, place)
        elif self._damaged.get((hosted, place)) != why:
            self._damaged[hosted, place] = why
            log.error("place %d of a log is damaged and not repaired: %s", place, why, extra=extra)

    async def _mend(self, hosted: HostedLog, place: int, threads: ThreadPoolExecutor) -> str:
        """Repair a place; return an empty text, or the reason why it is not repaired."""
        repair, loop = hosted.repair(place), asyncio.get_running_loop()
        if repair is None:
            return "it is not durable yet"
        found: list[list[LogRecord]] = []
        sources: set[str] = set()
        for lost in await loop.run_in_executor(threads, repair.look, self._pace):
            part = hosted.node.needed(lost)
            if part is None:
                return f"its records from position {lost.first} on may still be cut"
            if not await self._fetch(hosted, lost, part):
                return (
                    f"no other server gives the records from position {lost.first} on; the "
                    "server goes on asking"
                )
            found.append(hosted.node.refetch.found)
            sources |= hosted.node.refetch.sources
        for joined in await loop.run_in_executor(threads, repair.write, found, self._pace):
            hosted.shelf.join(*joined)
        self.repaired += 1
        log.info(
            "repaired place %d of a log: %d records from %s",
            place,
            sum(map(len, found)),
            ", ".join(sorted(sources)) or "no other server",
            extra={"log": next(iter(hosted.node.state.chains.values())).domain},
        )
        return ""

    async def _fetch(self, hosted: HostedLog, lost: LostRecords, part: tuple[int, int]) -> bool:
        refetch = hosted.node.refetch
        refetch.seek(lost, *part)
        while True:
            if refetch.ended:
                return not refetch.failed
            await asyncio.sleep(REFETCH_LOOK_S)  # the log's timer asks


def _is_there(hosted: HostedLog, place: int) -> bool:
    return hosted.journal is not None and place in hosted.journal.durable()
