"""A storage server on the event loop: from a listener through replica and journal, and back.

See docs/protocol.md, Rules.

With a journal, the promises of a reply are on stable storage before the reply leaves. The requests
of a turn of the event loop are a group commit (ares/server/commit_loop.py). A reply which depends
on a commit waits for the commit: the reply to a request that changed a version, and a reply with
another client's change before the change is durable. A read of an object without such changes waits
for no commit, except that no request is read or answered while the loop itself waits for the disk.

A full disk refuses changes and leaves the remaining work as it is; a failing disk ends the server.

A server with all data in memory has a journal that keeps no facts
(:class:`ares.store.port.NoJournal`) and a replica that makes no facts: no request leaves a fact to
commit, hence no reply waits.
"""

import asyncio
import logging
import time
from collections import ChainMap, deque
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from ares import compiled
from ares.compiled import ServedTurn
from ares.metrics import DISK_S_BUCKETS, Histogram, ListenerTraffic, Vitals, holding
from ares.model.codec import Encoded, Outgoing, encode_array
from ares.model.errors import BadInput
from ares.model.identity import CallId
from ares.model.messages import (
    DELETED_LENGTH,
    REQUEST_KINDS,
    Ack,
    Adopt,
    AnyMessage,
    Describe,
    Description,
    DiskUsage,
    Drop,
    GetData,
    GetTag,
    HandledBy,
    ListObjects,
    Located,
    NeededRoom,
    ObjectsReply,
    PullElement,
    PutAhead,
    PutData,
    QueryList,
    Reason,
    Refused,
    Reply,
    Request,
    RequestDone,
    Scrub,
    SetLogLevel,
    ShownState,
    Where,
)
from ares.model.work import ENTRY_BYTES_MIN, Meter
from ares.net.port import Came, Handle, Intake, Loop, Sender
from ares.platform import tasks
from ares.platform.json_logs import set_level
from ares.platform.memory import give_back_freed_memory, memory_bytes
from ares.platform.release import version
from ares.replica.compaction import USUAL_COMPACTION, CompactionLimits
from ares.replica.facts import Fact, TagsTrimmed, fact_bytes_max
from ares.replica.group_commit import GroupCommit, Served, served_of
from ares.replica.replica import Pointing, Replica
from ares.security.roles import Admission
from ares.server.commit_loop import DISK_FULL_REFUSAL, CommitDone, CommitLoop, FullDisk
from ares.server.hosted_log import HostedLog
from ares.server.hosted_logs import HostedLogs
from ares.server.space_reclaimer import ReclaimStep, SpaceReclaimer
from ares.server.usage_counts import UsageCounts
from ares.store.port import Journal, Key, NoJournal, OrderedJournal, Use

_ROOM_BYTES = 64 * 1024
"""Room of a disk below which the disk counts as full."""

GATHERED_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that may wait for the next commit; beyond, requests wait until the commit begins."""

Respond = Callable[[Sender, Sequence[Outgoing]], None]
Handler = Callable[[Sender, Any], Reply | None]
Change = Callable[[Any, int], tuple[Reply | None, Fact | None]]

log = logging.getLogger(__name__)

TRIM_PORTIONS = 20
"""Freed portions of collected configurations after which their memory goes back to the system."""

_decode_facts = msgspec.msgpack.Decoder(list[PutData | TagsTrimmed]).decode
"""Decodes the facts of the compiled core."""

_ASKS_NOBODY = "this server asks no other servers"
_NOT_PUBLISHED = (
    "QueryList is of the algorithms as published, which are not atomic: ARES II can lose a "
    "completed write. A cluster with users refuses them; the cluster file of an experiment may "
    "say published = true"
)
_ALL_IN_MEMORY = "this server keeps all data in memory: no disk holds data to verify"

_ANSWERED_AT_ONCE = frozenset(
    kind
    for kind, row in REQUEST_KINDS.items()
    if row.handled_by is HandledBy.OBJECTS
    and row.shows is ShownState.OBJECT
    and kind is not QueryList
)


def _drop_replies(sender: Sender, replies: Sequence[Outgoing]) -> None:
    """Send no reply: without a journal no reply ever waits."""


def _refuse(message: AnyMessage) -> Refused:
    kind = type(message).__name__
    return Refused(message.call, Reason.BAD_REQUEST, f"{kind} is no request to a storage server")


def _keep_no_logs(sender: Sender, request: AnyMessage) -> Refused:
    return Refused(request.call, Reason.BAD_REQUEST, "this server keeps no logs")


def _not_published(sender: Sender, request: QueryList) -> Refused:
    return Refused(request.call, Reason.BAD_REQUEST, _NOT_PUBLISHED)


def _set_level(sender: Sender, request: SetLogLevel) -> Reply:
    try:
        set_level(request.level)
    except BadInput as error:
        return Refused(request.call, Reason.BAD_REQUEST, str(error))
    return RequestDone(request.call)


class ServerParts(NamedTuple):
    """The parts around a server's replica and journal."""

    respond: Respond = _drop_replies
    """Sends a waiting reply through the listener."""

    fail: Callable[[OSError], None] = lambda error: None
    """Called once, when the disk fails."""

    admission: Admission | None = None
    """The permissions of clients; None: all requests are allowed."""

    loop: Loop | None = None
    """The event loop; None: asyncio's running loop."""

    limits: CompactionLimits = USUAL_COMPACTION
    throttle: Intake | None = None
    """Keeps requests away while too many bytes wait for the disk."""

    traffic: ListenerTraffic | None = None
    """The listener's counts, for descriptions."""

    logs: HostedLogs | None = None
    """The logs of the server; None: no logs."""

    sites: Iterable[str] = ()
    """The sites of the cluster file.

    Requests of clients at these sites are counted if the listener tells ``users``.
    """

    published: bool = False
    """Permission for the algorithms as published, which are not atomic."""

    meter: Meter | None = None
    """The listener's; the cost of a request is the bytes of the reply and the verified bytes."""


_NO_PARTS = ServerParts()


class StorageServer:
    """The host of ``replica``, which was restored from ``journal``.

    A batch of requests is answered with a batch. ``scrub``: answers requests to verify the disk.
    ``log_damage``: returns the number of damaged places of logs that are not repaired yet.
    ``traced``: called with every traced request, when the reply leaves. ``bring``: answers requests
    to get a version from other servers, at once or later. ``commits``: the commits of ``journal``.

    ``_at_once``: kinds of requests that need no look at the journal; without a journal, all but
    introductions, descriptions and listings. ``_syncing`` is the commit under way, ``_gathering``
    the next. ``_ending``: no more requests are taken.
    """

    def __init__(
        self,
        replica: Replica,
        journal: Journal | None = None,
        parts: ServerParts = _NO_PARTS,
    ) -> None:
        self.replica = replica
        self._meter = parts.meter or Meter()
        self._logs = parts.logs
        self._published = parts.published
        self.traced: Callable[[Served], None] = lambda served: None
        self.scrub: Callable[[Scrub], Reply] = lambda request: Refused(
            request.call, Reason.BAD_REQUEST, _ALL_IN_MEMORY
        )
        self.log_damage: Callable[[], int] = lambda: 0
        self.bring: Callable[[Sender, PullElement], Reply | None] = lambda sender, request: Refused(
            request.call, Reason.NOT_BROUGHT, _ASKS_NOBODY
        )
        self._journal = journal or NoJournal()
        self._respond, self._fail = parts.respond, parts.fail
        self._admission, self._throttle = parts.admission, parts.throttle
        self._traffic = parts.traffic
        self._loop = parts.loop or asyncio.get_running_loop()
        self.users = UsageCounts(parts.sites, replica.hosted, self._loop.time)
        self._started = self._loop.time()
        self._at_once: frozenset[type[AnyMessage]] = (
            frozenset() if replica.journaled else _ANSWERED_AT_ONCE
        )
        at_hand = self._journal.at_hand if replica.journaled else None
        self._handlers = self._handlers_by_kind()
        self._core = compiled.server_core(replica.hosted, at_hand)
        self._ending = False
        self._releasing = False
        self._portions = 0
        self._gathering = GroupCommit()
        self._syncing: GroupCommit | None = None
        self.commits = CommitLoop(self, self._loop, self._stop, "commit")
        self._full_disk = FullDisk(self._loop.time, "objects")
        self._reclaiming = SpaceReclaimer(replica, self._journal, parts.limits)
        self._batch_s = self._commit_begun_s = 0.0
        self._commits_s = Histogram(DISK_S_BUCKETS) if replica.journaled else None
        if replica.has_dropped:  # in an earlier life
            self._release_soon()

    # -- requests ----------------------------------------------------------------------------------

    @property
    def handler(self) -> Handle:
        """The listener's handler: :meth:`handle` of the admitted requests."""
        admission, handle = self._admission, self.handle
        of_logs: Any = self._logs.hosted if self._logs is not None else {}
        hosted = ChainMap[Any, Any](cast(Any, self.replica.hosted), of_logs)
        if admission is None:
            return handle

        def handle_admitted(sender: Sender, messages: Iterable[AnyMessage]) -> Sequence[AnyMessage]:
            admitted, refused = admission.admit(sender, messages, hosted)
            replies = handle(sender, admitted)
            return [*refused, *replies] if refused else replies

        return handle_admitted

    @property
    def core(self) -> Callable[[Sender, Came], ServedTurn | None] | None:
        """The listener's fast handler, :meth:`serve`, if a core is compiled."""
        return None if self._core is None else self.serve

    def handle(self, sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        """Return the replies which need not wait; the remaining replies follow.

        A message that is no request to a storage server is refused. At the end of the server no
        request is answered.
        """
        if self._ending:
            deque(messages, 0)
            return []
        replies: list[AnyMessage] = []
        answer, at_once, meter = self.replica.answer, self._at_once, self._meter
        self._batch_s = time.perf_counter()
        for message in messages:
            if type(message) in at_once and message.trace is None:  # type: ignore[union-attr]
                reply = answer(message)  # type: ignore[arg-type]
                meter.spent += reply.bulk
                replies.append(reply)
            elif not self._take(sender, message, replies):
                break
        if not at_once:
            if self._ending:
                deque(messages, 0)
                return []
            self._leave_suspects()
        if self.replica.has_dropped:
            self._release_soon()
        return replies

    def _release_soon(self) -> None:
        """Free the memory of collected configurations, a portion in each turn of the loop."""
        if not self._releasing:
            self._releasing = True
            self._loop.call_soon(self._release)

    def _release(self) -> None:
        """Free a portion; a trim between portions is short, and each takes a time of its own.

        A single portion, as after a repeated collection, is not worth a trim.
        """
        self._releasing = False
        self._portions += 1
        more = self.replica.release()
        if self._portions == TRIM_PORTIONS or (not more and self._portions > 1):
            give_back_freed_memory()
        if self._portions == TRIM_PORTIONS or not more:
            self._portions = 0
        if more:
            self._release_soon()

    def _take_traced(self, sender: Sender, message: AnyMessage, replies: list[AnyMessage]) -> bool:
        """Take a request, as :meth:`_take`; the client asks for the time taken."""
        served = served_of(message, self._batch_s)
        before = len(replies)
        goes_on = self._take(sender, msgspec.structs.replace(message, trace=None), replies, served)
        served.handled_s = time.perf_counter() - served.batch_s
        if len(replies) > before:
            replies[-1] = served.answered(replies[-1], served.handled_s)
            self._trace(served)
        return goes_on

    def _trace(self, served: Served) -> None:
        """Report a traced request. An error of the tracer is no error of the disk."""
        with tasks.supervised("trace of a request"):
            self.traced(served)

    def _take(
        self,
        sender: Sender,
        message: AnyMessage,
        replies: list[AnyMessage],
        served: Served | None = None,
    ) -> bool:
        """Answer at once, or after the commit on which the reply depends.

        Returns whether the client's turn continues.
        """
        if served is None and getattr(message, "trace", None) is not None:
            return self._take_traced(sender, message, replies)
        handler = self._handlers.get(type(message))
        if handler is None:
            replies.append(_refuse(message))
            return True
        reply = handler(sender, message)
        account = self.replica.account
        self._meter.spent += account.verified_bytes + (0 if reply is None else reply.bulk)
        account.verified_bytes = 0
        if reply is not None and not (
            (self._gathering.appended or self._syncing is not None)
            and self._waits(sender, message, reply, served)  # type: ignore[arg-type]
        ):
            replies.append(reply)
        return not self._ending

    def _handlers_by_kind(self) -> dict[type[AnyMessage], Handler]:
        """Return the handler of each kind of request, by the table of requests."""
        handlers: dict[type[AnyMessage], Handler] = {
            Describe: self._describe,
            Where: self._locate,
            PutAhead: lambda sender, request: self.replica.handle(request),
            Adopt: self._adopt,
            PullElement: lambda sender, request: self.bring(sender, request),
            Scrub: lambda sender, request: self.scrub(request),
            SetLogLevel: _set_level,
        }
        replica = self.replica
        by_room: dict[NeededRoom, Handler] = dict.fromkeys(
            NeededRoom, lambda sender, request: replica.handle(request)
        )
        if replica.journaled:
            handlers[GetData] = handlers[QueryList] = self._get_data
            by_room = {
                NeededRoom.NONE: lambda sender, request: replica.answer(request),
                NeededRoom.ELEMENT: self._put,
                NeededRoom.POINTER: self._point,
                NeededRoom.DROPPED_NAMES: self._drop,
            }
        for kind, row in REQUEST_KINDS.items():
            handler = by_room[row.room]
            if row.handled_by is HandledBy.OBJECTS:
                handlers.setdefault(kind, handler)
            elif row.handled_by is HandledBy.EITHER:
                handlers[kind] = handler if self._logs is None else partial(self._hand, handler)
            elif row.handled_by is HandledBy.LOGS:
                handlers[kind] = _keep_no_logs if self._logs is None else self._logs.handle
        handlers[ListObjects] = partial(self._list, handlers[ListObjects])
        if not self._published:
            handlers[QueryList] = _not_published
        return handlers

    def serve(self, sender: Sender, came: Came) -> ServedTurn | None:
        """Serve a read from the network through the compiled core.

        The effect is :meth:`handler` of all messages, and ``users`` are told. None if a message is
        unusual: no message was handled. Changes for watches are known from the core's facts, hence
        a server without a journal serves all requests in Python while it has watches.
        """
        core, admission = self._core, self._admission
        if core is None or self._ending or self._full_disk.refuses:
            return None
        if self._at_once and self.replica.changes.keeps_from_core():
            return None
        writes = True if admission is None else admission.may_write(sender)
        if writes is None:
            return None
        if self._at_once:
            served: ServedTurn | None = core.serve(came, writes)
        else:
            self._batch_s = time.perf_counter()
            gathering, syncing = self._gathering, self._syncing
            rows_left = (
                gathering.rows_left(sender)
                if syncing is None
                else min(gathering.rows_left(sender), syncing.rows_left(sender))
            )
            served = core.serve(came, writes, gathering, syncing, rows_left)
            if served is not None:
                self._commit_served(sender, served)
        if served is None:
            return None
        self._meter.spent += served.received_bytes + (len(served.reply) if served.reply else 0)
        if self.users.any and self.users.counts(sender):
            for id, number in served.asked:
                self.users.count(sender, id, number)
        return served

    def _commit_served(self, sender: Sender, served: ServedTurn) -> None:
        """Append the core's facts to the journal, and keep the replies waiting for the facts."""
        if served.facts is not None:
            facts = Encoded(*served.facts)
            self._journal.extend(facts, served.fact_bytes)
            self._gather(served.fact_bytes)
            if self.replica.changes.recording:
                for fact in _decode_facts(encode_array([facts])):
                    if isinstance(fact, PutData):
                        self.replica.changes.note(fact)
        for commit, replies, rows, reads, writes in served.waiting:
            commit.keep_encoded(
                sender, Encoded(reads + writes, replies), rows, self._batch_s, reads, writes
            )

    def _leave_suspects(self) -> None:
        if self.replica.account.suspects:
            for place in self.replica.take_suspects():
                self.leave(place)

    def _get_data(self, sender: Sender, request: GetData | QueryList) -> Reply | None:
        if request.successor is None:
            return self.replica.answer(request)
        return self._point(sender, request)

    def _list(self, handler: Handler, sender: Sender, request: ListObjects) -> Reply | None:
        reply = handler(sender, request)
        if type(reply) is not ObjectsReply:
            return reply
        self._meter.spent += ENTRY_BYTES_MIN * len(self.replica.hosted)
        return msgspec.structs.replace(reply, asked=self._asked())

    def _put(self, sender: Sender | None, request: PutData) -> Reply | None:
        room = self.replica.put_room(request)
        if not room:
            return self.replica.answer(request)
        return self._store(request, room)

    def _store(self, put: PutData, room: int) -> Reply | None:
        """Put a version that is not here, with a fact of at most ``room`` bytes."""
        frees = put.element.length == DELETED_LENGTH
        return self._change(self.replica.put, put, room, Use.POINTERS if frees else Use.DATA)

    def _adopt(self, sender: Sender, request: Adopt) -> Reply | None:
        def put(copy: PutData) -> Reply | None:
            self._meter.spent += copy.element.bulk
            if not self.replica.journaled:
                return self.replica.answer(copy)
            return self._store(copy, fact_bytes_max(copy))

        return self.replica.adopt(request, put)

    def _drop(self, sender: Sender, request: Drop) -> Reply | None:
        room = self.replica.drop_room(request)
        if not room:
            return self.replica.handle(request)
        return self._change(self.replica.drop, request, room, Use.POINTERS)

    def _point(self, sender: Sender, request: Pointing) -> Reply | None:
        room = self.replica.pointer_room(request)
        if not room:
            return self.replica.handle(request)
        return self._change(self.replica.point, request, room, Use.POINTERS)

    def _change(self, change: Change, request: Any, room: int, use: Use) -> Reply | None:
        """Return the reply to a request whose fact takes at most ``room`` bytes."""
        try:
            place = self._journal.reserve(room, use)
        except OSError as error:
            self.commits.fail(error)
            return None
        if place is None:
            self._reclaiming.look_again()
            self.commits.schedule()
            return self._full_disk.refuse(request.call)
        if self._full_disk.refuses and use is Use.DATA:
            self._full_disk.take()
        reply, fact = change(request, place)
        if fact is not None:
            self._journal.append(fact, room)
            self._gathering.note(fact)
            self._gather(room)
        return reply

    def _gather(self, bytes: int) -> None:
        """Count ``bytes`` of appended facts."""
        gathering = self._gathering
        gathering.appended = True
        gathering.bytes += bytes
        if gathering.bytes > GATHERED_BYTES_MAX and self._throttle is not None:
            self._throttle.pause()
        self.commits.schedule()

    def _waits(
        self, sender: Sender, request: Request, reply: Reply, served: Served | None = None
    ) -> bool:
        """Keep the reply until the versions in it are durable; return whether the reply waits."""
        gathering, syncing = self._gathering, self._syncing
        if gathering.appended and gathering.shown_by(request):
            gathering.keep(sender, reply, self._batch_s, served)
        elif syncing is not None and syncing.shown_by(request):
            syncing.keep(sender, reply, self._batch_s, served)
        else:
            return False
        return True

    def put_for(self, sender: Sender, put: PutData) -> None:
        """Handle a version brought for ``sender`` as if ``sender`` had sent the version."""
        if replies := self.handle(sender, [put]):
            self._respond(sender, replies)

    def _locate(self, sender: Sender, request: Where) -> Reply | None:
        """Answer where a domain is, without waiting for a commit.

        A finalized configuration stays finalized if this server forgets the fact.
        """
        log = self._logs.located(request.domain) if self._logs is not None else None
        return self.replica.handle(request) if log is None else Located(request.call, log)

    def _hand(self, handler: Handler, sender: Sender, request: Any) -> Reply | None:
        """Hand a request about a configuration to the log it is about, or to ``handler``."""
        if self._logs is None or not self._logs.takes(request):
            return handler(sender, request)
        self._logs.handle(sender, request)
        return None

    @property
    def logs_on_disk(self) -> Sequence[tuple[HostedLog, OrderedJournal]]:
        """Return the server's logs with a journal, and their journals."""
        return self._logs.on_disk if self._logs is not None else ()

    def _asked(self) -> int:
        """Return how many tags and values users asked for; 0 without counts."""
        if self._traffic is None:
            return 0
        carried = sum([hosting.carried for hosting in self.replica.hosted.values()])
        return max(0, self._traffic.requests[GetTag] + self._traffic.fetches - carried)

    # -- state -------------------------------------------------------------------------------------

    def vitals(self) -> Vitals:
        """Return the present state, for an observer of the process."""
        description = self._with_vitals(self.replica.describe(Describe(CallId(0), brief=True)))
        return Vitals(
            description,
            holding(self.replica.hosted.values()),
            self._trouble(),
            self._commits_s,
            self._logs.held() if self._logs is not None else None,
            self.replica.ahead.bytes,
        )

    def _describe(self, sender: Sender, request: Describe) -> Description:
        description = self.replica.describe(request)
        if self._logs is not None and not request.brief:
            description = msgspec.structs.replace(
                description, hosted=(*description.hosted, *self._logs.describe())
            )
        if request.usage_of:
            description = msgspec.structs.replace(
                description, usage=self.users.usage(request.usage_of)
            )
        return self._with_vitals(description)

    def _with_vitals(self, description: Description) -> Description:
        replica, unknown_keys, stored = (
            self.replica,
            self._admission.unknown_keys if self._admission is not None else 0,
            None,
        )
        if replica.journaled:
            live = sum(replica.account.live.values())
            full = self._trouble() == DISK_FULL_REFUSAL or (
                self._logs is not None and self._logs.full
            )
            free_bytes = self._journal.free_bytes
            in_logs = self._logs.bytes_on_disk if self._logs is not None else 0
            stored = DiskUsage(
                self._journal.bytes_on_disk + in_logs,
                live + in_logs,
                len(replica.quarantined),
                replica.account.repaired,
                full,
                free_bytes,
                self.log_damage(),
            )
        uptime_s, work = (
            self._loop.time() - self._started,
            self._traffic.work(self._commits_s) if self._traffic is not None else None,
        )
        return msgspec.structs.replace(
            description,
            uptime_s=uptime_s,
            memory_bytes=memory_bytes(),
            unknown_keys=unknown_keys,
            stored=stored,
            work=work,
            core=compiled.CORE_NAME,
            version=version(),
        )

    def _trouble(self) -> str:
        """Return why the server cannot do all of its work; empty if it can."""
        if self.commits.stopped:
            return "its disk failed"
        try:
            return (
                ""
                if self._journal.reserve(_ROOM_BYTES, Use.DATA) is not None
                else DISK_FULL_REFUSAL
            )
        except OSError as error:
            self.commits.fail(error)
            return f"its disk failed: {error.strerror}"

    # -- commits -----------------------------------------------------------------------------------

    def end_turn(self) -> bool:
        """Reclaim space between two commits; return whether facts wait for a commit."""
        if not self.commits.committing and not self._ending:
            step = self._reclaiming.step()
            if step is ReclaimStep.APPENDED:
                self._gathering.appended = True
            elif step is ReclaimStep.LOOKED:
                self.commits.schedule()
        return self._gathering.appended

    def begin_commit(self, done: CommitDone) -> None:
        """Commit the gathered facts; the next commit begins to gather."""
        self._syncing, self._gathering = self._gathering, GroupCommit()
        if self._throttle is not None:
            self._throttle.resume()
        self._commit_begun_s = time.perf_counter()
        self._journal.commit(done)

    def end_commit(self, moved: Sequence[PutData]) -> None:
        """Send the replies that waited for the commit."""
        if self._commits_s is not None:
            self._commits_s.add(time.perf_counter() - self._commit_begun_s)
        self.replica.replace(moved)
        synced, self._syncing = self._syncing, None
        if synced is None:
            return
        for sender, place, served in synced.traced:
            reply: Any = synced.replies[sender][place]
            synced.replies[sender][place] = served.answered(
                reply, time.perf_counter() - served.batch_s
            )
        for sender, replies in synced.portions():
            self._respond(sender, replies)
        self._count(synced)
        for _, _, served in synced.traced:
            self._trace(served)

    def _count(self, synced: GroupCommit) -> None:
        """Count the waiting time of the replies sent just now."""
        if self._traffic is not None:
            now_s = time.perf_counter()
            for came_s, reads, writes in synced.waited:
                self._traffic.count_waited(now_s - came_s, reads, writes)

    @property
    def gathered_bytes(self) -> int:
        """Return the bytes of facts not yet durable."""
        return self._gathering.bytes + (self._syncing.bytes if self._syncing is not None else 0)

    def _stop(self, error: OSError) -> None:
        """Take no more requests after a failure of the disk."""
        self._ending = True
        self._fail(error)

    async def settle(self) -> None:
        """Wait until no work waits for the disk, compaction included."""
        await self.commits.settle()

    async def finish(self) -> None:
        """Take no more requests, as if the network had lost them, and answer the requests taken.

        Unfinished compaction is left to the next start.
        """
        self._ending = True
        await self.settle()

    # -- the state of the store --------------------------------------------------------------------

    def leave(self, place: int, readable: Container[Key] | None = None) -> None:
        """Give up ``place``, whose file is damaged: journal its live facts again from memory.

        ``readable``: see :class:`ares.store.port.ExaminationResult`.
        """
        self._reclaiming.leave(place, readable)
        self.commits.schedule()

    def go_on(self) -> None:
        """Try again to leave damaged places: the disk may have room now, or a place to free."""
        if self.leaving:
            self._reclaiming.look_again()
            self.commits.schedule()

    @property
    def leaving(self) -> int:
        """Return the number of damaged places not yet left."""
        return self._reclaiming.damaged

    @property
    def lacks_room(self) -> bool:
        """Return whether damaged places cannot be left because the disk is full."""
        return self._reclaiming.lacks_room

    def repair(self, put: PutData) -> bool:
        """Take a quarantined element rebuilt from other servers.

        Returns whether the element is present now, and durable soon. An element that is no longer
        missing is not taken.
        """
        if self._ending or not self.replica.is_quarantined(
            (put.configuration, put.object, put.tag)
        ):
            return False
        return isinstance(self._put(None, put), Ack)
