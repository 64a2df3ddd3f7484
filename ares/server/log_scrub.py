"""The repair of damaged places of logs, with records from other servers (docs/store.md, Scrubbing).

A server repairs a single place at a time. A thread looks through the facts of the place; the lost
records are fetched from other nodes of the log, at the rate of all fetches; the thread writes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ares.model.log_messages import LogRecord
from ares.server.hosted_log import HostedLog
from ares.sharedlog.earlier_chains import REFETCH_S_MAX, Refetch
from ares.sharedlog.log_facts import FilledGap, LostRecords
from ares.store.port import LogRepair, NotRepaired, OrderedJournal

log = logging.getLogger(__name__)

REFETCH_LOOK_S = 0.02
"""Seconds between two looks at a fetch."""

REFETCH_LOOKS_MAX = int(2 * REFETCH_S_MAX / REFETCH_LOOK_S)
"""Most looks at a fetch, which ends sooner by itself, unless the timer of its log fails."""

SCRUB_RETRY_S, SCRUB_RETRY_S_MAX = 5.0, 900.0
"""Shortest and longest wait before the next look at old damage."""

LogPlace = tuple[HostedLog, int]
Run = Callable[..., Awaitable[Any]]
"""A call of the first argument, with the further arguments, in a thread."""


class _Unanswered(NotRepaired):
    """The lost records did not come from other servers."""


class BegunFetch(NamedTuple):
    """The records fetched so far for a place, by loss. ``grows``: the last attempt got some."""

    where: LogPlace | None = None
    found: Mapping[LostRecords, list[LogRecord]] = MappingProxyType({})
    grows: bool = False

    def of(self, where: LogPlace) -> Mapping[LostRecords, list[LogRecord]]:
        """Return the records for this place."""
        return self.found if where == self.where else {}

    def grows_for(self, where: LogPlace) -> bool:
        return self.grows and where == self.where


class RepairTurns:
    """The times of repairs: soon for new damage, and ever more seldom for old damage.

    ``missed``: the damage left by the last repairs.
    """

    missed: frozenset[Hashable] = frozenset()
    _retry_s = SCRUB_RETRY_S
    _retry_at_s = 0.0

    def due(self, damage: Collection[Hashable], now_s: float) -> bool:
        """Return whether repairs of ``damage`` are to be tried now."""
        if not self.missed.issuperset(damage):
            self._retry_s = SCRUB_RETRY_S
        elif not damage or now_s < self._retry_at_s:
            return False
        self._retry_at_s = now_s + self._retry_s
        self._retry_s = min(2 * self._retry_s, SCRUB_RETRY_S_MAX)
        return True


class LogRepairs:
    """The repairs of a server. ``pace``: the brake for reads of the disk. ``sleep``: as asyncio's.

    ``damaged``: places which are not repaired yet, with the reason; empty before the first attempt.
    ``_unread``: repaired places whose new file could not be opened, with the filled gaps. Reads
    meet the damage, hence such a place counts as damaged, although the disk has it as written.
    ``_begun``: the fetch that the next attempt continues.
    """

    def __init__(
        self,
        pace: Callable[[int], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._pace = pace
        self._sleep = sleep
        self._turns = RepairTurns()
        self._unread: dict[LogPlace, Sequence[FilledGap]] = {}
        self._begun = BegunFetch()
        self._trying = asyncio.Lock()
        self.damaged: dict[LogPlace, str] = {}

    def forget(self, hosted: HostedLog, place: int) -> None:
        """Forget a whole place, or a place which is given back."""
        self.damaged.pop((hosted, place), None)
        self._unread.pop((hosted, place), None)
        if self._begun.where == (hosted, place):
            self._begun = BegunFetch()

    def pass_whole(self, hosted: HostedLog, place: int) -> None:
        """Forget a place which the disk has as written, unless reads still use its old file."""
        if (hosted, place) not in self._unread:
            self.forget(hosted, place)

    def note(self, hosted: HostedLog, place: int) -> None:
        """Note a damaged place, which :meth:`try_again` repairs."""
        self.damaged.setdefault((hosted, place), "")

    async def try_again(self, now_s: float, run: Run) -> None:
        """Try all repairs, if new places are damaged or the time has come."""
        self._forget_given_back()
        if self._turns.due(self.damaged, now_s):
            await self.try_all(run)

    async def try_all(self, run: Run) -> None:
        """Try all repairs, after the attempts under way.

        The first place whose records do not come ends the attempts for its log: other work waits.
        A place noted meanwhile counts as new damage.
        """
        async with self._trying:
            silent, places = set[HostedLog](), list(self.damaged)
            for hosted, place in places:
                if hosted not in silent and not await self.repair(hosted, place, run):
                    silent.add(hosted)
            self._turns.missed = frozenset(self.damaged.keys() & places)

    def _forget_given_back(self) -> None:
        places = {hosted: _places(hosted) for hosted, _ in self.damaged}
        for hosted, place in list(self.damaged):
            if place not in places[hosted]:
                self.forget(hosted, place)

    async def repair(self, hosted: HostedLog, place: int, run: Run) -> bool:
        """Repair a damaged place, or note why it stays damaged.

        The place is then tried last, unless its fetch goes on. Returns whether other servers gave
        all records that were asked for.
        """
        where, why, is_answered = (hosted, place), "", True
        try:
            if hosted.journal is not None:
                await self._mend(hosted, hosted.journal, place, run)
        except NotRepaired as error:
            why, is_answered = str(error), not isinstance(error, _Unanswered)
        except OSError as error:
            why = f"the disk: {error.strerror}"
        except Exception as error:
            log.exception("the repair of a place of a log failed; it is tried again")
            why = f"a mistake in ares: {error!r}"
        if not why or place not in _places(hosted):
            self.forget(hosted, place)
            return is_answered
        before = self.damaged.get(where)
        if not self._begun.grows_for(where):
            self.damaged.pop(where, None)
        self.damaged[where] = why
        if why != before:
            extra = _name(hosted)
            log.error("place %d of a log is damaged and not repaired: %s", place, why, extra=extra)
        return is_answered

    async def _mend(self, hosted: HostedLog, journal: OrderedJournal, place: int, run: Run) -> None:
        """Repair a place. Raises :class:`NotRepaired` and OSError."""
        self._renew((hosted, place), journal)
        repair = journal.repair(place, place in hosted.standings)
        if repair is None:  # given back
            return
        losses = await run(repair.look, self._pace)
        if losses is None:  # the disk can read the place again
            return
        found = await self._fetched((hosted, place), losses)
        filled = await run(repair.fill, found)
        await self._write((hosted, place), repair, filled, run)
        self._renew((hosted, place), journal)
        count, extra = sum(map(len, found)), _name(hosted)
        log.info("repaired place %d of a log, with %d fetched records", place, count, extra=extra)

    async def _fetched(
        self, where: LogPlace, losses: Sequence[LostRecords]
    ) -> list[list[LogRecord]]:
        """Return the needed records of each loss. Raises :class:`NotRepaired`."""
        node, kept = where[0].node, self._begun.of(where)
        found = {lost: kept[lost] for lost in losses if lost in kept}
        try:
            for lost in losses:
                part = node.needed(lost)
                if part is None:
                    raise NotRepaired(f"its records from position {lost.first} on may still be cut")
                node.refetch.seek(lost, *part, found.get(lost, ()))
                found[lost] = node.refetch.found
                await self._await(node.refetch, lost)
        finally:
            node.refetch.stop()
            self._keep(where, found)
        return [found[lost] for lost in losses]

    async def _await(self, refetch: Refetch, lost: LostRecords) -> None:
        """Wait until the records are fetched. Raises :class:`_Unanswered`."""
        for _ in range(REFETCH_LOOKS_MAX):
            if refetch.ended:
                break
            await self._sleep(REFETCH_LOOK_S)  # the log's timer asks
        if refetch.failed or not refetch.ended:
            slow = refetch.late or not refetch.ended
            why = "do not come soon enough" if slow else "come from no other server"
            raise _Unanswered(
                f"the records from position {lost.first} on {why}; the server goes on asking"
            )

    def _keep(self, where: LogPlace, found: dict[LostRecords, list[LogRecord]]) -> None:
        """Keep the records of a place for the next attempt.

        A server keeps the records of a single place, as long as they grow. Hence each slow place is
        repaired in its turn, and memory is bounded.
        """
        count, before = _count(found), _count(self._begun.of(where))
        if where == self._begun.where or (count and not self._begun.grows):
            self._begun = BegunFetch(where, found, count > before)

    async def _write(
        self, where: LogPlace, repair: LogRepair, filled: Sequence[FilledGap], run: Run
    ) -> None:
        """Replace the file of a place. A failed sync of the file's name ends the server."""
        try:
            await run(repair.write, self._pace)
        except OSError as error:
            if repair.replaced:
                where[0].commits.fail(error)
            raise
        if repair.replaced:
            self._unread[where] = filled

    def _renew(self, where: LogPlace, journal: OrderedJournal) -> None:
        """Read the new file of a repaired place from now on. Raises OSError."""
        if where not in self._unread:
            return
        hosted, place = where
        journal.renew(place)
        for each in self._unread.pop(where):
            hosted.shelf.rewrite(each)


def _count(found: Mapping[LostRecords, list[LogRecord]]) -> int:
    return sum(map(len, found.values()))


def _places(hosted: HostedLog) -> Collection[int]:
    return () if hosted.journal is None else hosted.journal.durable()


def _name(hosted: HostedLog) -> dict[str, str]:
    return {"log": next(iter(hosted.node.state.chains.values())).domain}
