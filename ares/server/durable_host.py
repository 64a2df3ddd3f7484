"""A storage server whose acknowledgements outlast it: what its replies promise is on stable storage before they leave (protocol section 11).

The requests of a turn of the event loop are one group commit, and while one is under way the next gathers. Replies that depend on it wait for it:
those to requests that changed something, and those that show what others changed and is not durable yet. A read of an object without such changes
leaves at once.

A disk that is full refuses what would change something and leaves the rest as it is; a disk that fails ends the server.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import assert_never

from ares.errors import StoreDamaged
from ares.identity import ConfigurationId, ObjectName
from ares.messages import (
    DELETED,
    AnyMessage,
    CollectConfig,
    Describe,
    Description,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    PutData,
    ReadConfig,
    Reason,
    Refused,
    Reply,
    Request,
    WriteConfig,
)
from ares.runtime.ports import Journal, Sender, Use
from ares.server.admission import Admission
from ares.server.compaction import Compaction, choose
from ares.server.facts import Fact, Pointed
from ares.server.host import REQUESTS, Host, no_request
from ares.server.state import Outlasting

log = logging.getLogger(__name__)

LOOK_BYTES = 1024 * 1024
"""How much must have died before places are looked at again for one to give back."""

Respond = Callable[[Sender, Sequence[AnyMessage]], None]

_FULL = "its disk is full: it answers reads, and takes changes again when there is space"


class Unsynced:
    """One group commit: what it changes, and the replies that wait for it. ``appended``: there is something to commit."""

    def __init__(self) -> None:
        self.objects: set[tuple[ConfigurationId, ObjectName]] = set()
        self.listings: set[ConfigurationId] = set()
        self.pointers: set[ConfigurationId] = set()
        self.replies: dict[Sender, list[AnyMessage]] = {}
        self.appended = False

    def note(self, fact: Fact) -> None:
        """``fact`` is committed with this."""
        self.appended = True
        if isinstance(fact, Pointed):
            self.pointers.add(fact.configuration.id)
        else:
            self.objects.add((fact.configuration, fact.object))
            self.listings.add(fact.configuration)

    def shown_by(self, request: Request) -> bool:
        """Whether a reply to ``request`` may show something of this. Every reply about a configuration shows its pointer."""
        match request:
            case GetTag() | GetData() | PutData():
                return (request.configuration, request.object) in self.objects or request.configuration in self.pointers
            case ListObjects():
                return request.configuration in self.listings or request.configuration in self.pointers
            case ReadConfig() | WriteConfig() | CollectConfig():
                return request.configuration in self.pointers
            case Describe():
                return self.appended
            case Introduce():
                return request.configuration.id in self.pointers
            case _:
                assert_never(request)


class DurableHost(Host):
    """Serves ``outlasting``, which was restored from ``journal``. ``respond``: the listener's reply. ``fail`` is called once, when the disk fails.

    At most one commit is under way: ``_syncing``; ``_gathering`` is the next.
    """

    def __init__(
        self,
        outlasting: Outlasting,
        journal: Journal,
        respond: Respond,
        fail: Callable[[OSError], None],
        admission: Admission | None = None,
    ) -> None:
        super().__init__(outlasting.replica, admission)
        self._outlasting = outlasting
        self._journal = journal
        self._respond = respond
        self._fail = fail
        self._failed = False
        self._gathering = Unsynced()
        self._syncing: Unsynced | None = None
        self._scheduled = False
        self._compaction: Compaction | None = None
        self._unreadable: set[int] = set()
        self._looked_at_died = -LOOK_BYTES
        self._wakers: list[asyncio.Future[None]] = []

    # -- requests -------------------------------------------------------------------------------------------------------

    def handle(self, sender: Sender, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        """The replies that need not wait; the others follow. After the disk failed there are none."""
        replies: list[AnyMessage] = []
        for message in messages:
            if self._failed:
                return []
            if not isinstance(message, REQUESTS):
                replies.append(no_request(message))
                continue
            reply = self._answer(message)
            if isinstance(reply, Description):
                reply = self._with_vitals(reply)
            if reply is not None and not self._waits(sender, message, reply):
                replies.append(reply)
        return replies

    def _answer(self, request: Request) -> Reply | None:
        room = self._outlasting.room(request)
        if not room:
            return self.replica.handle(request)
        frees = not isinstance(request, PutData) or request.element.length == DELETED
        try:
            place = self._journal.reserve(room, Use.POINTERS if frees else Use.DATA)
        except OSError as error:
            self._stop(error)
            return None
        if place is None:
            self._looked_at_died = self._outlasting.died - LOOK_BYTES
            self._schedule()
            return Refused(request.call, Reason.STORAGE, _FULL)
        reply, fact = self._outlasting.handle(request, place)
        if fact is not None:
            self._journal.append(fact)
            self._gathering.note(fact)
            self._schedule()
        return reply

    def _waits(self, sender: Sender, request: Request, reply: Reply) -> bool:
        """Keep the reply until what it shows is durable."""
        for unsynced in (self._gathering, self._syncing):
            if unsynced is not None and unsynced.appended and unsynced.shown_by(request):
                unsynced.replies.setdefault(sender, []).append(reply)
                return True
        return False

    # -- commits --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._syncing is not None or self._failed:
            return
        try:
            self._compact()
            if self._gathering.appended:
                self._syncing, self._gathering = self._gathering, Unsynced()
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
        self._outlasting.replace(moved)
        synced, self._syncing = self._syncing, None
        if synced is not None:
            for sender, replies in synced.replies.items():
                self._respond(sender, replies)
        self._turn()

    def _stop(self, error: OSError) -> None:
        """Nothing that waits is ever answered: it may or may not be durable, and what is read from now on may not be what is on the disk."""
        if not self._failed:
            self._failed = True
            self._wake()
            self._fail(error)

    async def settle(self) -> None:
        """Until nothing waits for the disk, compaction included."""
        if (self._syncing is not None or self._scheduled) and not self._failed:
            waker = self._loop.create_future()
            self._wakers.append(waker)
            await waker

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.done():
                waker.set_result(None)

    # -- space ----------------------------------------------------------------------------------------------------------

    def _compact(self) -> None:
        """One slice, if there is a place to give back. No commit is under way, so every slice before it is durable."""
        compaction = self._compaction
        if compaction is None:
            compaction = self._chosen()
            if compaction is None:
                return
        try:
            room = compaction.look()
        except StoreDamaged as error:
            log.error("a part of the store cannot be read any more and is kept as it is: %s", error)
            self._unreadable.add(compaction.place)
            self._compaction = None
            return
        if room:
            self._copy(compaction, room)
        elif compaction.ended:
            self._journal.discard(compaction.place)
            self._gathering.appended = True
            self._compaction, self._looked_at_died = None, self._outlasting.died - LOOK_BYTES
        else:
            self._schedule()

    def _copy(self, compaction: Compaction, room: int) -> None:
        place = self._journal.reserve(room, Use.COMPACTION)
        if place is not None:
            for fact in compaction.move(place):
                self._journal.append(fact)
            self._gathering.appended = True

    def _chosen(self) -> Compaction | None:
        if self._outlasting.died - self._looked_at_died < LOOK_BYTES:
            return None
        self._looked_at_died = self._outlasting.died
        places = self._journal.places()
        place = choose({place: bytes for place, bytes in places.items() if place not in self._unreadable}, self._outlasting.live)
        if place is not None:
            self._compaction = Compaction(self._outlasting, place, self._journal.read(place))
        return self._compaction
