"""A storage server whose acknowledgements outlast it: what its replies promise is on stable storage before they leave (docs/protocol.md, Rules).

The requests of a turn of the event loop are one group commit, and while one is under way the next gathers. It begins a turn after the replies of the
one before were sent: the loop itself may wait for the disk (ares/store/journal/writer.py), and they must have left before it does. Replies that
depend on a commit wait for it: those to requests that changed something, and those that show what others changed and is not durable yet. A read of an
object without such changes waits for no commit, except that nothing is read or answered while the loop itself waits for the disk.

A disk that is full refuses what would change something and leaves the rest as it is; a disk that fails ends the server.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence

import msgspec

from ares.machine.metrics import DISK_S, Histogram
from ares.model.messages import (
    DELETED,
    Ack,
    AnyMessage,
    Description,
    GetData,
    GetTag,
    PutData,
    Reason,
    Refused,
    Reply,
    Request,
    Scrub,
    Stored,
)
from ares.net.port import Intake, Loop, Sender
from ares.replica.compaction import USUAL, Thrift
from ares.replica.state import Outlasting
from ares.replica.unsynced import Unsynced
from ares.security.roles import Admission
from ares.server.host import Host, for_replica
from ares.server.reclaiming import Reclaiming, Step
from ares.store.port import Journal, Key, Use

_ROOM_BYTES = 64 * 1024
"""A disk without room for so much is full for whoever asks how the server is."""

VERIFIED_BYTES_MAX = 16 * 1024 * 1024
"""What is verified in a client's turn before that ends: some milliseconds of work, where the data are in memory."""

GATHERED_BYTES_MAX = 64 * 1024 * 1024
"""What may wait for the next commit; then no more is taken before that begins."""

Respond = Callable[[Sender, Sequence[AnyMessage]], None]

log = logging.getLogger(__name__)

_FULL = "its disk is full: it answers reads, and takes changes again when there is space"


class DurableHost(Host):
    """Serves ``outlasting``, which was restored from ``journal``. ``respond``: the listener's reply. ``fail`` is called once, when the disk fails.
    ``throttle``: keeps requests away while too much waits for the disk.

    At most one commit is under way: ``_syncing``; ``_gathering`` is the next. ``_busy``: the next must not begin yet.
    """

    def __init__(
        self,
        outlasting: Outlasting,
        journal: Journal,
        respond: Respond,
        fail: Callable[[OSError], None],
        admission: Admission | None = None,
        loop: Loop | None = None,
        thrift: Thrift = USUAL,
        throttle: Intake | None = None,
    ) -> None:
        super().__init__(outlasting.replica, admission, loop)
        self._outlasting = outlasting
        self._journal = journal
        self._respond = respond
        self._fail = fail
        self._throttle = throttle
        self._failed = False
        self._full = False
        self._gathering = Unsynced()
        self._syncing: Unsynced | None = None
        self._scheduled = False
        self._busy = False
        self._reclaiming = Reclaiming(outlasting, journal, thrift)
        self.scrub: Callable[[Scrub], Reply] | None = None
        self._wakers: list[asyncio.Future[None]] = []
        self._finishing = False
        self._commit_begun_s = 0.0
        self._commit_times = Histogram(DISK_S)

    # -- requests -------------------------------------------------------------------------------------------------------

    def handle(self, sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        """The replies that need not wait; the others follow. After the disk failed there are none."""
        replies: list[AnyMessage] = []
        answer = self.replica.answer
        ledger = self._outlasting.ledger
        verified_bytes_max = ledger.verified_bytes + VERIFIED_BYTES_MAX
        for message in messages:
            if self._failed or self._finishing:
                deque(messages, 0)
                return []
            if isinstance(message, GetTag) or (isinstance(message, GetData) and message.successor is None):
                reply: Reply | None = answer(message)
            elif for_replica(message):
                reply = self._answer(message)
            else:
                replies.append(self._upkeep(message))
                continue
            if reply is not None and not self._waits(sender, message, reply):
                replies.append(reply)
            if ledger.verified_bytes > verified_bytes_max:
                break
        for place in self._outlasting.take_suspects():
            self.leave(place)
        return replies

    def _answer(self, request: Request) -> Reply | None:
        room = self._outlasting.room(request)
        if not room:
            reply = self.replica.handle(request)
            return self._with_vitals(reply) if type(reply) is Description else reply
        frees = not isinstance(request, PutData) or request.element.length == DELETED
        try:
            place = self._journal.reserve(room, Use.POINTERS if frees else Use.DATA)
        except OSError as error:
            self._stop(error)
            return None
        if place is None:
            if not self._full:
                self._full = True
                log.error("the disk is full: changes are refused, reads go on; it takes changes again when there is space")
            self._reclaiming.look_again()
            self._schedule()
            return Refused(request.call, Reason.STORAGE, _FULL)
        if self._full and not frees:
            self._full = False
            log.warning("the disk has space again: changes are taken")
        reply, fact = self._outlasting.handle(request, place)
        if fact is not None:
            self._journal.append(fact, room)
            self._gathering.note(fact, room)
            if self._gathering.bytes > GATHERED_BYTES_MAX and self._throttle is not None:
                self._throttle.pause()
            self._schedule()
        return reply

    def _waits(self, sender: Sender, request: Request, reply: Reply) -> bool:
        """Keep the reply until what it shows is durable."""
        gathering, syncing = self._gathering, self._syncing
        if gathering.appended and gathering.shown_by(request):
            gathering.keep(sender, reply)
        elif syncing is not None and syncing.shown_by(request):
            syncing.keep(sender, reply)
        else:
            return False
        return True

    def _with_vitals(self, description: Description) -> Description:
        outlasting, full = self._outlasting, self._trouble() == _FULL
        stored = Stored(self._journal.bytes_on_disk, sum(outlasting.live.values()), len(outlasting.quarantined), outlasting.repaired, full)
        return msgspec.structs.replace(super()._with_vitals(description), stored=stored)

    def _commits(self) -> Histogram:
        return self._commit_times

    def _trouble(self) -> str:
        if self._failed:
            return "its disk failed"
        try:
            return "" if self._journal.reserve(_ROOM_BYTES, Use.DATA) is not None else _FULL
        except OSError as error:
            self._stop(error)
            return f"its disk failed: {error.strerror}"

    # -- commits --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._busy or self._failed:
            return
        try:
            if not self._finishing:
                self._reclaim()
            if self._gathering.appended:
                self._syncing, self._gathering, self._busy = self._gathering, Unsynced(), True
                if self._throttle is not None:
                    self._throttle.resume()
                self._commit_begun_s = time.perf_counter()
                self._journal.commit(self._committed)
                return
        except OSError as error:
            self._stop(error)
        if not self._scheduled:
            self._wake()

    def _committed(self, error: OSError | None, moved: Sequence[PutData]) -> None:
        if self._failed:
            return
        if error is not None:
            self._stop(error)
            return
        self._commit_times.add(time.perf_counter() - self._commit_begun_s)
        self._outlasting.replace(moved)
        synced, self._syncing = self._syncing, None
        if synced is not None:
            for sender, replies in synced.replies.items():
                self._respond(sender, replies)
        self._loop.call_soon(self._after_replies)

    def _after_replies(self) -> None:
        self._busy = False
        self._turn()

    def _stop(self, error: OSError) -> None:
        """Nothing that waits is ever answered: it may or may not be durable, and what is read from now on may not be what is on the disk."""
        if not self._failed:
            self._failed = True
            self._wake()
            self._fail(error)

    async def settle(self) -> None:
        """Until nothing waits for the disk, compaction included."""
        if (self._busy or self._scheduled) and not self._failed:
            waker = asyncio.get_running_loop().create_future()
            self._wakers.append(waker)
            await waker

    async def finish(self) -> None:
        """Take nothing more, as if the network had lost it, and reply to what was taken. What compaction has not done is left to the next start."""
        self._finishing = True
        await self.settle()

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)

    # -- the state of the store -----------------------------------------------------------------------------------------

    def _reclaim(self) -> None:
        step = self._reclaiming.step()
        if step is Step.APPENDED:
            self._gathering.appended = True
        elif step is Step.LOOKED:
            self._schedule()

    def leave(self, place: int, readable: Container[Key] | None = None) -> None:
        """The file of ``place`` was found damaged: journal again, from memory, what is alive there, and give the place up.

        ``readable``: see :class:`ares.store.port.Verdict`.
        """
        self._reclaiming.leave(place, readable)
        self._schedule()

    def go_on(self) -> None:
        """Try again to leave damaged places: there may be room now, or a place by which to make some."""
        if self.leaving:
            self._reclaiming.look_again()
            self._schedule()

    @property
    def leaving(self) -> int:
        """How many damaged places are not left yet."""
        return self._reclaiming.damaged

    @property
    def lacks_room(self) -> bool:
        """Whether damaged places cannot be left, for the disk is full."""
        return self._reclaiming.lacks_room

    @property
    def outlasting(self) -> Outlasting:
        """What it serves; for looking at."""
        return self._outlasting

    def repair(self, put: PutData) -> bool:
        """Take a quarantined element that others rebuilt; whether it is here now, and durable soon. One that is not missed any more is not taken."""
        if self._failed or self._finishing or not self._outlasting.is_quarantined((put.configuration, put.object, put.tag)):
            return False
        return isinstance(self._answer(put), Ack)

    def _scrub(self, request: Scrub) -> Reply:
        return super()._scrub(request) if self.scrub is None else self.scrub(request)
