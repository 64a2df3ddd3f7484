"""A simulated gateway: a life of its process, over the real log, the real blobs and the real fold.

The process follows the log, keeps a session alive, answers requests of users, ends silent sessions,
collects, sweeps, and keeps snapshots, by the effects of ares/bucket/bucket_requests.py. A full disk
breaks the index, and the process opens the index again from the last save.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from ares.bucket.bucket_requests import (
    BucketAnswer,
    Commit,
    DropBlob,
    Effect,
    FetchBlob,
    ListBlobs,
    SessionEnded,
    Steps,
    StoreBlob,
    TrimLog,
    Verify,
    collect,
    keep_snapshot,
    rows_of_snapshot,
    sweep,
)
from ares.bucket.bucket_session import OPEN_COMMAND, BucketSession
from ares.bucket.bucket_state import ContentGone, load_rows
from ares.bucket.commands import (
    Beat,
    Command,
    EndSession,
    KeepSnapshot,
    decode_command,
    encode_command,
)
from ares.bucket.fold import AppliedCommand, BrokenIndex, BucketFold
from ares.bucket.index_records import Blob
from ares.bucket.port import RowTableFailed, Saved
from ares.engine.effects import Operation
from ares.model.errors import BadInput, LeftBehind, ObjectNotFound, Trimmed
from ares.model.identity import ObjectName
from ares.registers.write_once import create, drop, fetch, list_names, members
from ares.sharedlog.log_operations import Follower
from ares.testing.sim.buckets.bucket_model import MODEL_BOUNDS
from ares.testing.sim.buckets.bucket_oracle import BucketOracle
from ares.testing.sim.buckets.gateway_ports import STOPPED_LOOK_S, BlobPort, LogPort, PortRun
from ares.testing.sim.buckets.simulated_table import SimTable
from ares.testing.sim.invariants import PromiseBroken

BEAT_S, SILENCE_S = 0.2, 1.2
"""Seconds between beats, and of silence after which a session is ended."""

EFFECT_PATIENCE_S = 3.0
"""Seconds that a request waits for an effect; afterwards the user gets no answer."""

APPEND_PATIENCE_S = 0.2
STOPPED_BODIES = 0.05
"""Share of uploads with a user who hangs up: the blob is stored, and no command names the blob."""

SLOW_USERS, SLOW_USER_S = 0.25, 1.5
"""Share of fetches and stores that wait for a slow user, and the longest wait."""

SLOW_JUDGEMENTS, SLOW_JUDGEMENT_S = 0.25, 0.5
"""Share of looks at the tail that are used later, as after a judgement, and the longest wait."""

LASTING_S = 100_000.0
SAVED_EVERY = 8
"""Positions between saves of the rows."""

Course = Callable[[BucketSession], Steps]
"""A request or a task of upkeep, as steps in a session."""


class GatewayRun(PortRun, Protocol):
    """The parts of a run for a gateway."""

    oracle: BucketOracle

    def connect(self, port: LogPort | BlobPort) -> None: ...


class GatewayTask:
    """A request under way. ``done`` gets the answer, or None.

    ``checked``: the position of the first look for an earlier attempt.
    """

    def __init__(
        self,
        course: Course,
        done: Callable[[BucketAnswer | None], None],
        session: BucketSession,
    ) -> None:
        self.course = course
        self.steps = course(session)
        self.done = done
        self.session = session
        self.checked = session.state.position
        self.waits = 0

    def waiting(self) -> int:
        """Begin to wait for an effect; return the number of the wait."""
        self.waits += 1
        return self.waits


def name_of(blob: Blob) -> ObjectName:
    return ObjectName(f"{blob.session}/{blob.counter}/{blob.length}")


def blob_of(name: str) -> Blob:
    session, counter, length = map(int, name.split("/"))
    return Blob(session, counter, length)


class GatewayProcess:
    """A life of a gateway. ``stopped``: as by SIGSTOP, all events of the process wait."""

    def __init__(
        self, run: GatewayRun, name: str, skew_ms: int, lag_s: float, table: SimTable
    ) -> None:
        self.name = name
        self.dead = self.stopped = False
        self.idle = True
        self._run = run
        self._world = run.world
        self._skew_ms, self._lag_s = skew_ms, lag_s
        self._opening = False
        self._log = LogPort(run, f"{name}/log", lambda: self.stopped)
        self._blobs = BlobPort(run, f"{name}/blobs", lambda: self.stopped)
        for port in (self._log, self._blobs):
            run.connect(port)
        self._verifying = False
        self._verifies: list[Callable[[], None]] = []
        self._tails: list[tuple[int, Callable[[], None]]] = []
        self._commits: dict[tuple[int, int], tuple[GatewayTask, int]] = {}
        self._again: list[GatewayTask] = []
        self._skipped = 0
        self._heard: dict[int, tuple[int, float]] = {}
        self._follower = 0
        self._open_index(table)
        self._beat()

    def _open_index(self, table: SimTable) -> None:
        """Begin at the last save of the rows, with a new session."""
        self.table = table
        self.fold = BucketFold(table, kept=self._run.plan.kept, **MODEL_BOUNDS)
        self.session = BucketSession(self.fold)
        self.idle = True
        self._follow(self.fold.state.position)

    def _open_index_again(self) -> None:
        """Give up all requests, and open the index again when the disk has room."""
        if self.table.full:
            self._later(STOPPED_LOOK_S, self._open_index_again)
            return
        self._world.narrate(f"{self.name} OPENS its index again at {self.table.saved().position}")
        self._open_index(self.table.reopened())
        self._open()

    @property
    def position(self) -> int:
        """Return the position of the index; 0 for a broken index."""
        return 0 if self.table.failed else self.fold.state.position

    @property
    def serves(self) -> bool:
        """Return whether requests are taken: the own OpenSession was folded."""
        return not self.table.failed and self.session.is_live

    def die(self) -> None:
        """Kill the process."""
        self.dead = self._log.dead = self._blobs.dead = True

    @property
    def ms(self) -> int:
        return int(self._world.now * 1000) + self._skew_ms

    def _later(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Act later if the process lives, and after the end of a stop."""

        def act() -> None:
            if self.stopped and not self.dead:
                self._world.after(STOPPED_LOOK_S, act)
            elif not self.dead:
                action(*arguments)

        self._world.after(delay_s, act)

    # -- the log -----------------------------------------------------------------------------------

    def _follow(self, position: int) -> None:
        """Apply the log from a position on, in place of an earlier follower."""
        follower = Follower(self._log.session.operations, position)
        self._follower += 1
        number, arrived = self._follower, deque[Sequence[bytes]]()

        def took(found: Any, error: Exception | None) -> None:
            if self.dead or number != self._follower:
                return
            if isinstance(error, Trimmed):
                self._look_for_snapshot(error.upto)
            elif error is not None:
                self._later(STOPPED_LOOK_S, take)
            else:
                arrived.append(found[1])
                if self._lag_s:
                    self._later(self._lag_s, apply)
                else:
                    apply()
                take()

        def apply() -> None:
            if number != self._follower:
                return
            try:
                for entry in arrived.popleft():
                    self._apply(entry)
            except RowTableFailed:
                self._break()

        def take() -> None:
            if number == self._follower:
                self._log.start(follower.take(), "follow", LASTING_S, took)

        take()

    def _apply(self, entry: bytes) -> None:
        position = self.fold.state.position
        applied = self.fold.apply(entry)
        state = self.fold.state
        self._run.oracle.applied(position, entry, state.digest)
        if state.position % SAVED_EVERY == 0:
            self.fold.save()
        if applied is not None:
            self._compare(applied)
            self._settle_commits(applied)
        self._check_waiting()

    def _compare(self, applied: AppliedCommand) -> None:
        """Compare the digest of a beat with the own digest at the position."""
        beat = applied.operation
        if isinstance(beat, Beat) and applied.result.done:
            known = self.fold.digest_at(beat.position)
            if known not in (None, int.from_bytes(beat.digest)):
                raise PromiseBroken(f"{self.name} and session {applied.session} differ")

    def _break(self) -> None:
        """Give up all requests to an unfinished index."""
        self._world.narrate(f"{self.name}: its index is BROKEN, the disk is full")
        self._follower += 1
        self._tails, self._verifies, self._again = [], [], []
        commits, self._commits = self._commits, {}
        for task, wait in commits.values():
            self._resume(task, wait, None, SessionEnded("the index is broken"))
        self._open_index_again()

    def _settle_commits(self, applied: AppliedCommand) -> None:
        waiting = self._commits.pop((applied.session, applied.number), None)
        if waiting is not None:
            self._resume(*waiting, applied.result, None)

    def _check_waiting(self) -> None:
        """Go on with the requests whose tail is applied; see whether the session has ended."""
        if self.session.has_ended:
            self._end_session()
        elif self.session.is_live:
            again, self._again = self._again, []
            for task in again:
                self.begin(task.course, task.done)
        reached = [act for tail, act in self._tails if tail <= self.fold.state.position]
        self._tails = [wait for wait in self._tails if wait[0] > self.fold.state.position]
        for act in reached:
            act()

    def _end_session(self) -> None:
        """Begin a new session after the own end was folded.

        A command not met up to the end changed no row, and the request begins again. A process that
        skipped positions of the log cannot know.
        """
        number, knows = self.session.number, self.knows_all_since(self.session)
        self._world.narrate(f"{self.name}: session {number} HAS ENDED")
        commits, self._commits = self._commits, {}
        self.session = BucketSession(self.fold)
        for task, wait in commits.values():
            if knows and task.waits == wait:
                task.waiting()
                task.steps.close()
                self._again.append(task)
            else:
                self._resume(task, wait, None, SessionEnded("the session has ended"))
        self._open()

    def knows_all_since(self, session: BucketSession) -> bool:
        """Return whether this process folded every position since the beginning of a session."""
        return session.number is not None and session.number >= self._skipped

    def _look_for_snapshot(self, position: int) -> None:
        """Read the log from a trim on, up to a snapshot that can be loaded."""
        self._world.narrate(f"{self.name} LOOKS for a snapshot from {position} on")
        follower = Follower(self._log.session.operations, position)
        found: list[KeepSnapshot] = []

        def took(read_: Any, error: Exception | None) -> None:
            if self.dead:
                return
            if isinstance(error, Trimmed):
                self._look_for_snapshot(error.upto)
                return
            for entry in read_[1] if error is None else ():
                command = decode_command(entry)
                if command is not None and isinstance(command.operation, KeepSnapshot):
                    found.append(command.operation)
            load() if found else take()

        def take() -> None:
            self._log.start(follower.take(), "look for a snapshot", LASTING_S, took)

        def load() -> None:
            snapshot = found.pop(0)

            def fetched(data: bytes | None, error: Exception | None) -> None:
                if self.dead:
                    return
                if data is None or not self._load(snapshot, data, position):
                    load() if found else take()
                else:
                    self._follow(self.fold.state.position)

            self._fetch(snapshot.blob, fetched)

        take()

    def _load(self, snapshot: KeepSnapshot, data: bytes, trimmed: int) -> bool:
        """Begin at a snapshot; skipped commands may have a remembered result.

        A snapshot below the trim is of a late command, which the fold did not take.
        """
        if snapshot.position < max(self.fold.state.position, trimmed):
            return False
        table, point = SimTable(), Saved(snapshot.position, int.from_bytes(snapshot.digest))
        if not load_rows(table, rows_of_snapshot(data), point):
            return False
        self._world.narrate(f"{self.name} BEGINS at the snapshot of {snapshot.position}")
        self.table, self._skipped = table, snapshot.position
        self.fold = self.session.fold = BucketFold(table, kept=self._run.plan.kept, **MODEL_BOUNDS)
        for session, number in list(self._commits):
            result = self.fold.state.result(session, number)
            if result is not None:
                self._resume(*self._commits.pop((session, number)), result, None)
        self._check_waiting()
        return True

    # -- the session -------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open a session; its number is the position of the command."""
        if self._opening or self.session.number is not None:
            return
        self._opening = True
        session = self.session

        def opened(position: int | None, error: Exception | None) -> None:
            if self.dead:
                return
            self._opening = False
            if position is None or session is not self.session:
                self._later(BEAT_S, self._open)
            else:
                session.number = position
                self._world.narrate(f"{self.name} OPENED session {position}")
                if not self.table.failed:
                    self._check_waiting()

        self._log.append(encode_command(OPEN_COMMAND), APPEND_PATIENCE_S, opened)

    def _beat(self) -> None:
        """Beat, end silent sessions, and begin a round of upkeep if this gateway is to do it."""
        self._later(BEAT_S, self._beat)
        session = self.session
        if self.table.failed:
            return
        if session.number is None:
            self._open()
        if not session.is_live:
            return
        self._give(session.beat(self.ms))
        for number, entry in list(self.fold.state.sessions.items()):
            last, since = self._heard.get(number, (-1, 0.0))
            if entry.last != last:
                self._heard[number] = (entry.last, self._world.now)
            elif self._world.now - since > SILENCE_S and number != session.number:
                self._give(session.upkeep(EndSession(number, entry.last), self.ms))
        if self.idle and session.number == min(self.fold.state.sessions):
            self._keep_up()

    def _give(self, command: Command) -> None:
        """Append a command whose result nobody waits for."""
        self._log.append(encode_command(command), APPEND_PATIENCE_S, lambda *_: None)

    def _keep_up(self) -> None:
        """Collect, sweep, or keep a snapshot: one task at a time.

        Snapshots end with the chaos, because each makes garbage of an earlier snapshot.
        """
        kept = self.fold.state.snapshots()
        last = kept[-1].position if kept else 0
        every = self._run.plan.snapshot_every
        if self.fold.state.position - last >= every and not self._run.consensus.healed:
            task: Course = partial(keep_snapshot, ms=self.ms)
        elif self._world.rng.random() < 0.7:
            task = partial(collect, ms=self.ms)
        else:
            task = sweep
        self.idle = False

        def done(answer: BucketAnswer | None) -> None:
            self.idle = True

        self.begin(task, done)

    # -- requests ----------------------------------------------------------------------------------

    def begin(self, course: Course, done: Callable[[BucketAnswer | None], None]) -> None:
        """Begin a request or a task of upkeep."""
        self._advance(GatewayTask(course, done, self.session), None, None)

    def _advance(self, task: GatewayTask, value: Any, error: Exception | None) -> None:
        if self.dead:
            return
        try:
            effect = task.steps.send(value) if error is None else task.steps.throw(error)
        except StopIteration as end:
            task.done(end.value)
        except ContentGone:
            self._run.oracle.missing(task.session.number, "a content")
            task.done(None)
        except (SessionEnded, BrokenIndex):
            task.done(None)
        else:
            self._perform(task, task.waiting(), effect)

    def _resume(self, task: GatewayTask, wait: int, value: Any, error: Exception | None) -> None:
        """Go on with a task if the effect is still awaited."""
        if task.waits == wait:
            task.waiting()
            lost = None if error is None else SessionEnded(f"given up: {error}")
            self._advance(task, value, lost)

    def _perform(self, task: GatewayTask, wait: int, effect: Effect) -> None:
        def done(result: Any, error: Exception | None = None) -> None:
            self._resume(task, wait, result, error)

        match effect:
            case Verify():
                rng = self._world.rng
                slow_s = rng.random() * SLOW_JUDGEMENT_S * (rng.random() < SLOW_JUDGEMENTS)
                self._verify(lambda: self._later(slow_s, done, None))
            case StoreBlob(blob, data):
                stops = self._world.rng.random() < STOPPED_BODIES
                stopped = SessionEnded("the user hung up") if stops else None

                def stored(_: Any, error: Exception | None) -> None:
                    done(None, error or stopped)

                self._later(self._slow_user_s(), self._store, blob, data, stored)
            case FetchBlob(blob):
                number = task.session.number

                def fetched(data: bytes | None, error: Exception | None) -> None:
                    if error is None and data is None and task.waits == wait:
                        self._run.oracle.missing(number, blob)
                    done(data, error)

                self._later(self._slow_user_s(), self._fetch, blob, fetched)
            case Commit(command):
                self._run.oracle.checked(command, task.checked)
                self._commits[command.session, command.number] = task, wait
                self._append(encode_command(command), (command.session, command.number))
            case DropBlob(blob):
                self._run.oracle.dropping(blob)
                self._start(drop(self._blobs.view, [name_of(blob)]), lambda *_: done(None))
            case ListBlobs():
                self._start(self._list(), done)
            case TrimLog(upto):
                self._run.oracle.trimming(upto)
                trim = self._log.session.operations.trim(upto)
                self._log.start(trim, "trim", LASTING_S, done)
        late = SessionEnded("no end of a request's effect in time")
        self._later(EFFECT_PATIENCE_S, self._resume, task, wait, None, late)

    def _slow_user_s(self) -> float:
        """Draw the time until a user has taken, or given, the data."""
        rng = self._world.rng
        slow = rng.random() < SLOW_USERS and not self._run.consensus.healed
        return rng.random() * SLOW_USER_S * slow

    def _verify(self, act: Callable[[], None]) -> None:
        """Wait for a tail that is asked for from now on; waiting requests share it."""
        self._verifies.append(act)
        if self._verifying:
            return
        self._verifying = True
        waiting, self._verifies = self._verifies, []

        def found(tail: int | None, error: Exception | None) -> None:
            self._verifying = False
            if self.dead:
                return
            if tail is not None and not self.table.failed:
                self._tails += [(tail, each) for each in waiting]
                self._check_waiting()
            if self._verifies:
                self._verify(self._verifies.pop())

        tail = self._log.session.operations.tail()
        self._log.start(tail, "tail", EFFECT_PATIENCE_S, found)

    def _append(self, entry: bytes, name: tuple[int, int]) -> None:
        """Append a command, again while the index has no result; the session's end ends it."""

        def appended(position: int | None, error: Exception | None) -> None:
            if not self.dead and error is not None and name in self._commits:
                self._later(STOPPED_LOOK_S, self._append, entry, name)

        self._log.append(entry, APPEND_PATIENCE_S, appended)

    # -- blobs -------------------------------------------------------------------------------------

    def _start(self, operation: Operation[Any], done: Callable[[Any, Any], None]) -> None:
        self._blobs.start(operation, "blob", LASTING_S, done)

    def _store(self, blob: Blob, data: bytes, done: Callable[[Any, Any], None]) -> None:
        def stored(tag: Any, error: Exception | None) -> None:
            if error is None:
                self._run.oracle.stored[blob] = data
            done(tag, error)

        self._start(create(self._blobs.view, name_of(blob), data), stored)

    def _fetch(self, blob: Blob, done: Callable[[bytes | None, Any], None]) -> None:
        def fetched(found: Any, error: Exception | None) -> None:
            absent = isinstance(error, ObjectNotFound | LeftBehind)
            done(found, None if absent else error)

        self._start(fetch(self._blobs.view, name_of(blob)), fetched)

    def _list(self) -> Operation[list[Blob]]:
        """Return the blobs of every server of the last finalized configuration that answers."""
        names: set[ObjectName] = set()
        for server in (yield from members(self._blobs.view)):
            after: str | None = ""
            while after is not None:
                try:
                    page = yield from list_names(self._blobs.view, server, after)
                except BadInput:  # a move took the server away
                    break
                names.update(page.names)
                after = page.after
        return [blob_of(name) for name in sorted(names)]
