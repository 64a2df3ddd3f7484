"""The care of a server for the disk: verify all places, leave damaged places, repair elements.

A *round* verifies every place, in a thread and at a limited rate; waits until the live facts of
damaged places have been journaled again (ares/server/space_reclaimer.py); and tries once to repair
every quarantined element, from the elements of other servers. Between rounds the server repairs a
newly missing element at once, and tries again while elements are missing. Damaged places of logs
are repaired beside the rounds, soon after a round or a read finds them (ares/server/log_scrub.py).
A round ends when the repair of each was tried.

The time of the last round outlasts the server in a file beside the store: a server restarted every
week is verified, too.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.element import too_large
from ares.model.errors import AresError
from ares.model.identity import NO_CALL, ConfigurationId, ObjectName
from ares.model.messages import Element, PutData, Scrub, ScrubReply
from ares.model.tag import Tag
from ares.platform import tasks
from ares.replica.facts import Key
from ares.server.hosted_log import HostedLog
from ares.server.log_scrub import SCRUB_RETRY_S, LogRepairs, RepairTurns, Run
from ares.server.storage_server import StorageServer
from ares.store.port import ExaminationResult, Journal

log = logging.getLogger(__name__)

SCRUB_LOOK_S = 1.0
"""Seconds between two looks for work."""

FIRST_AFTER_S = 60.0
"""Seconds from the server's start to a round which is due at the start."""

REBUILT_AT_ONCE = 16
REBUILT_BYTES_AT_ONCE = 64 * 1024 * 1024
"""Limits of elements asked for side by side, and of the bytes of their values."""

SCRUB_FAILURES_MAX = 3
"""Unanswered elements of a configuration after which the remaining elements wait for later."""

Pull = Callable[[Configuration, ObjectName, Tag, int], Awaitable[Element | None]]
"""A function to rebuild this server's element of a version from other servers' elements.

The last argument is the length of the value. Returns None if the element cannot be rebuilt. Raises
:class:`ares.AresError`.
"""


Brake = Callable[[int], None]
"""A function called before each read of so many bytes, which waits; see Examination.run."""


class ScrubPlan(Struct, frozen=True):
    """The plan of a server's care for its disk.

    ``every_s``: from the end of a round to the begin of the next; 0: only when asked for.
    ``time_file``: the file with the time of the last round. ``pull``: None if no server can be
    asked.
    """

    every_s: float
    bytes_per_s: int
    time_file: Path
    pull: Pull | None = None


class _Ended(Exception):
    """The end of the server."""


NAP_S_MAX = 0.5
"""Longest sleep of a thread on the brake, before the thread looks at the rate again."""


class _Pace:
    """A brake for a thread: a call before a read waits for the time of the earlier bytes.

    A new rate counts at once, also for the present wait.
    """

    def __init__(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self.bytes = 0
        self._owed_bytes = 0.0
        self._paid_s = time.monotonic()
        self._ended = threading.Event()

    def begin(self) -> None:
        """Forget the bytes of earlier reads."""
        self.bytes, self._owed_bytes = 0, 0.0

    def verify(self, bytes: int) -> None:
        """Wait, and count the bytes for the progress of a round."""
        self(bytes)
        self.bytes += bytes

    def __call__(self, bytes: int) -> None:
        while True:
            now_s = time.monotonic()
            self._owed_bytes = max(
                self._owed_bytes - (now_s - self._paid_s) * self.bytes_per_s, 0.0
            )
            self._paid_s = now_s
            if not self._owed_bytes:
                break
            if self._ended.wait(min(self._owed_bytes / self.bytes_per_s, NAP_S_MAX)):
                raise _Ended
        if self._ended.is_set():
            raise _Ended
        self._owed_bytes += bytes

    def end(self) -> None:
        self._ended.set()


class _Repairs:
    """The repairs of ``host``'s missing elements. ``pull``: None if no server can be asked."""

    def __init__(self, host: StorageServer, pull: Pull | None) -> None:
        self._host = host
        self._pull = pull
        self._turns = RepairTurns()

    async def try_again(self, now_s: float) -> None:
        """Try all repairs, if new elements are missing or the time has come."""
        if self._turns.due(self._host.replica.quarantined, now_s):
            await self.try_all()

    async def try_all(self) -> None:
        """Try each quarantined element once, some at a time.

        An element that is quarantined meanwhile counts as newly missing.
        """
        failures: dict[ConfigurationId, int] = {}
        tried = list(self._host.replica.quarantined)
        for some in self._together(tried):
            await asyncio.gather(*(self._try(key, failures) for key in some))
        missed = self._turns.missed = frozenset(tried).intersection(self._host.replica.quarantined)
        if missed:
            log.warning(
                "elements that could not be repaired yet: %d; they are tried again", len(missed)
            )

    def _together(self, keys: list[Key]) -> Iterator[list[Key]]:
        waiting = deque(keys)
        while waiting:
            some = [waiting.popleft()]
            bytes = self._host.replica.missing_bytes(some[0])
            while (
                waiting
                and len(some) < REBUILT_AT_ONCE
                and (bytes := bytes + self._host.replica.missing_bytes(waiting[0]))
                <= REBUILT_BYTES_AT_ONCE
            ):
                some.append(waiting.popleft())
            yield some

    async def _try(self, key: Key, failures: dict[ConfigurationId, int]) -> None:
        id, object, tag = key
        if (
            self._pull is None
            or failures.get(id, 0) >= SCRUB_FAILURES_MAX
            or not self._host.replica.is_quarantined(key)
        ):
            return
        configuration, length = (
            self._host.replica.hosted[id].configuration,
            self._host.replica.missing_bytes(key),
        )
        extra = {"object": object, "tag": str(tag)}
        value_bytes = self._host.replica.hosted[id].value_bytes
        if length > value_bytes * configuration.k:  # other servers' elements do not come here
            if key not in self._turns.missed:
                why = too_large(length, value_bytes)
                log.warning("an element is not repaired: %s", why, extra=extra)
            return
        try:
            element = await self._pull(configuration, object, tag, length)
        except AresError as error:
            failures[id] = failures.get(id, 0) + 1
            log.warning("an element cannot be repaired yet: %s", error, extra=extra)
            return
        if element is not None and self._host.repair(PutData(NO_CALL, id, object, tag, element)):
            log.info("repaired an element from other servers", extra=extra)


class Scrubber:
    """The scrubbing of ``host`` and ``journal``. Use :meth:`run` as a task, and cancel it."""

    def __init__(self, host: StorageServer, journal: Journal, plan: ScrubPlan) -> None:
        self._host = host
        self._journal = journal
        self._plan = plan
        self._repairs = _Repairs(host, plan.pull)
        self._pace = _Pace(plan.bytes_per_s)
        self._asked = asyncio.Event()
        self._running = False
        self._rounds = 0
        self._total = 0
        self._damaged = 0
        self._log_repairs = LogRepairs(self._pace)
        self._suspects_at_s = 0.0
        host.scrub = self.answer
        host.log_damage = lambda: len(self._log_repairs.damaged)

    def answer(self, request: Scrub) -> ScrubReply:
        """Begin a round if asked for, and return the progress.

        The rate of a request holds until the round ends.
        """
        if request.begin:
            self._pace.bytes_per_s = (
                request.bytes_per_s if request.bytes_per_s > 0 else self._plan.bytes_per_s
            )
            if not self._running:
                self._begin()
                self._asked.set()
        replica = self._host.replica
        return ScrubReply(
            request.call,
            self._running,
            self._rounds,
            min(self._pace.bytes, self._total),
            self._total,
            self._damaged,
            len(replica.quarantined),
            replica.account.repaired,
            self._host.leaving,
            len(self._log_repairs.damaged),
        )

    def _begin(self) -> None:
        self._running, self._damaged = True, 0
        self._pace.begin()
        of_logs = [journal for _, journal in self._host.logs_on_disk]
        self._total = sum(sum(journal.durable().values()) for journal in (self._journal, *of_logs))

    async def run(self) -> None:
        """Scrub and repair until cancelled."""
        due_s = time.time() + max(self._until_due_s(), FIRST_AFTER_S)
        with ThreadPoolExecutor(1, "scrub") as threads:
            run = partial(asyncio.get_running_loop().run_in_executor, threads)
            logs = tasks.keep(partial(self._look_after_logs, run), "repair of logs")
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._asked.wait(), SCRUB_LOOK_S)
                    if not self._asked.is_set() and self._plan.every_s and time.time() >= due_s:
                        self._begin()
                    if self._running:
                        due_s = time.time() + self._plan.every_s
                    await self._work(run)
            finally:
                logs.cancel()
                self._pace.end()

    async def _look_after_logs(self, run: Run) -> None:
        """Repair damaged places of logs, also during a round, until cancelled."""
        while True:
            await asyncio.sleep(SCRUB_LOOK_S)
            await self._work_on_logs(run)

    async def _work_on_logs(self, run: Run) -> None:
        await self._look_at_suspects(run)
        await self._log_repairs.try_again(time.monotonic(), run)

    async def _work(self, run: Run) -> None:
        self._asked.clear()
        is_round = self._running
        try:
            if is_round:
                await self._round(run)
            else:
                self._host.go_on()
                await self._repairs.try_again(time.monotonic())
        except Exception:
            log.exception("looking after the store failed; it is tried again")
        finally:
            if is_round:  # else a round may have been asked for since, at a rate of its own
                self._running = False
                self._pace.bytes_per_s = self._plan.bytes_per_s

    def _until_due_s(self) -> float:
        """Return the seconds until the next round is due.

        Without a known last round, now counts as the last round: a new store needs no round.
        """
        try:
            return (
                min(float(self._plan.time_file.read_text(encoding="ascii")) - time.time(), 0.0)
                + self._plan.every_s
            )
        except (OSError, ValueError):
            self._write_time()
            return self._plan.every_s

    def _write_time(self) -> None:
        try:
            self._plan.time_file.write_text(f"{time.time():.0f}\n", encoding="ascii")
        except OSError as error:
            log.warning("the time of the scrub could not be written: %s", error)

    # -- a round -----------------------------------------------------------------------------------

    async def _round(self, run: Run) -> None:
        log.info("scrub: %d bytes to verify", self._total)
        for place in sorted(self._journal.durable()):
            await self._verify_objects(place, run)
        for hosted, journal in self._host.logs_on_disk:
            for place in sorted(journal.durable()):
                await self._verify_log(hosted, journal, place, run, self._pace.verify)
        await self._log_repairs.try_all(run)
        while True:
            if not self._host.leaving or self._host.lacks_room:
                break
            await asyncio.sleep(SCRUB_LOOK_S / 20)
        await self._repairs.try_all()
        self._rounds += 1
        self._write_time()
        replica = self._host.replica
        extra = {
            "places_damaged": self._damaged,
            "quarantined": len(replica.quarantined),
            "repaired": replica.account.repaired,
        }
        log.info("scrub: done, %d bytes verified", self._pace.bytes, extra=extra)

    async def _verify_objects(self, place: int, run: Run) -> None:
        verdict = await self._verify(self._journal, place, run, self._pace.verify)
        if verdict is None or verdict.whole:
            return
        self._damaged += 1
        log.error(
            "scrub: place %d differs from the written data; damaged elements: %d",
            place,
            len(verdict.damaged),
        )
        self._host.leave(place, verdict.readable)

    async def _verify_log(
        self, hosted: HostedLog, journal: Journal, place: int, run: Run, pace: Brake
    ) -> None:
        verdict = await self._verify(journal, place, run, pace)
        if verdict is not None and verdict.whole:
            self._log_repairs.pass_whole(hosted, place)
        elif verdict is not None:
            log.error("scrub: place %d of a log differs from the written data", place)
            self._log_repairs.note(hosted, place)

    async def _look_at_suspects(self, run: Run) -> None:
        """Verify the places of logs where reads did not find their records, from time to time.

        Reads of a place that is whole on the disk may fail, too, and again meanwhile.
        """
        if time.monotonic() < self._suspects_at_s:
            return
        for hosted, journal in self._host.logs_on_disk:
            suspects, hosted.shelf.suspects = hosted.shelf.suspects, set()
            for place in suspects:
                if (hosted, place) not in self._log_repairs.damaged:  # else tried again in time
                    await self._verify_log(hosted, journal, place, run, self._pace)
        self._suspects_at_s = time.monotonic() + SCRUB_RETRY_S

    async def _verify(
        self, journal: Journal, place: int, run: Run, pace: Brake
    ) -> ExaminationResult | None:
        """Return the verdict on a place; None if the place is gone, or the examination failed."""
        examination = journal.examination(place)
        if examination is None:
            return None
        try:
            verdict: ExaminationResult = await run(examination.run, pace)
        except OSError as error:
            log.error("scrub: place %d of the store could not be verified: %s", place, error)
            self._damaged += 1
            return None
        # the place may have been given back since
        return verdict if place in journal.durable() else None
