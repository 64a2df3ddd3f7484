"""A simulated gateway: a life of its process, over the real log, the real blobs and the real fold.

The process follows the log, keeps a session alive, answers requests of users, ends silent sessions,
collects, sweeps, and keeps snapshots. It performs the effects of ares/bucket/bucket_requests.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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
from ares.bucket.bucket_state import load_rows
from ares.bucket.commands import (
    Command,
    EndSession,
    KeepSnapshot,
    decode_command,
    encode_command,
)
from ares.bucket.fold import AppliedCommand, BucketFold
from ares.bucket.index_records import Blob
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import Saved
from ares.engine.effects import Operation
from ares.model.errors import Trimmed
from ares.model.identity import ObjectName
from ares.model.value import TOMBSTONE
from ares.registers.coverable import create
from ares.registers.operations import delete, read
from ares.registers.survey import list_objects
from ares.sharedlog.log_operations import Follower
from ares.testing.sim.buckets.bucket_oracle import BucketOracle
from ares.testing.sim.buckets.gateway_ports import STOPPED_LOOK_S, BlobPort, LogPort, PortRun

BEAT_S, SILENCE_S = 0.2, 1.2
"""Seconds between beats, and of silence after which a session is ended."""

EFFECT_PATIENCE_S = 3.0
"""Seconds that a request waits for one of its effects; then its user is told nothing."""

APPEND_PATIENCE_S = 0.2
STOPPED_BODIES = 0.05
"""Share of uploads whose user hangs up: the blob is stored, and no command names it."""

SLOW_READERS, SLOW_READ_S = 0.25, 1.5
"""Share of fetches that wait for a user who reads slowly, and the longest wait."""

LASTING_S = 100_000.0


class GatewayRun(PortRun, Protocol):
    """The parts of a run for a gateway."""

    oracle: BucketOracle

    def connect(self, port: LogPort | BlobPort) -> None: ...


class GatewayTask(NamedTuple):
    """A request under way. ``done`` gets the answer, or None without one.

    ``checked``: the position at which it first looked for an earlier attempt.
    """

    steps: Steps
    done: Callable[[BucketAnswer | None], None]
    session: BucketSession
    checked: int


def name_of(blob: Blob) -> ObjectName:
    return ObjectName(f"{blob.session}/{blob.counter}/{blob.length}")


def blob_of(name: str) -> Blob:
    session, counter, length = map(int, name.split("/"))
    return Blob(session, counter, length)


class GatewayProcess:
    """One life of a gateway. ``stopped``: as by SIGSTOP; nothing happens in the process."""

    def __init__(self, run: GatewayRun, name: str, skew_ms: int) -> None:
        self.name = name
        self.dead = self.stopped = False
        self.idle = True
        self._run = run
        self._world = run.world
        self._skew_ms = skew_ms
        self.fold = BucketFold(MemoryTable(), kept=run.plan.kept)
        self.session = BucketSession(self.fold)
        self._opening = False
        self._log = LogPort(run, f"{name}/log", lambda: self.stopped)
        self._blobs = BlobPort(run, f"{name}/blobs", lambda: self.stopped)
        for port in (self._log, self._blobs):
            run.connect(port)
        self._verifying = False
        self._verifies: list[Callable[[], None]] = []
        self._tails: list[tuple[int, Callable[[], None]]] = []
        self._commits: dict[tuple[int, int], Callable[[Any, Exception | None], None]] = {}
        self._heard: dict[int, tuple[int, float]] = {}
        self._follow(0)
        self._beat()

    def die(self) -> None:
        """Kill the process."""
        self.dead = self._log.dead = self._blobs.dead = True

    @property
    def ms(self) -> int:
        return int(self._world.now * 1000) + self._skew_ms

    def _later(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Act later, if the process lives then; after a stop if it is stopped then."""

        def act() -> None:
            if self.stopped and not self.dead:
                self._world.after(STOPPED_LOOK_S, act)
            elif not self.dead:
                action(*arguments)

        self._world.after(delay_s, act)

    # -- the log -----------------------------------------------------------------------------------

    def _follow(self, position: int) -> None:
        follower = Follower(self._log.session.operations, position)

        def took(found: Any, error: Exception | None) -> None:
            if self.dead:
                return
            if isinstance(error, Trimmed):
                self._look_for_snapshot(error.upto)
            elif error is not None:
                self._later(STOPPED_LOOK_S, take)
            else:
                for entry in found[1]:
                    self._apply(entry)
                take()

        def take() -> None:
            self._log.start(follower.take(), "follow", LASTING_S, took)

        take()

    def _apply(self, entry: bytes) -> None:
        state = self.fold.state
        position = state.position
        applied = self.fold.apply(entry)
        self._run.oracle.applied(position, entry, state.digest)
        if applied is not None:
            self._settle_commits(applied)
        self._check_waiting()

    def _settle_commits(self, applied: AppliedCommand) -> None:
        waiting = self._commits.pop((applied.session, applied.number), None)
        if waiting is not None:
            waiting(applied.result, None)

    def _check_waiting(self) -> None:
        """Go on with the requests whose tail is applied; see whether the session has ended."""
        reached = [act for tail, act in self._tails if tail <= self.fold.state.position]
        self._tails = [wait for wait in self._tails if wait[0] > self.fold.state.position]
        for act in reached:
            act()
        if self.session.has_ended:
            self._world.narrate(f"{self.name}: session {self.session.number} HAS ENDED")
            commits, self._commits = self._commits, {}
            self.session = BucketSession(self.fold)
            for waiting in commits.values():
                waiting(None, SessionEnded("the session ended before its command"))
            self._open()

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
                if data is None or not self._load(snapshot, data):
                    load() if found else take()
                else:
                    self._follow(self.fold.state.position)

            self._fetch(snapshot.blob, fetched)

        take()

    def _load(self, snapshot: KeepSnapshot, data: bytes) -> bool:
        """Begin at a snapshot; commands that were skipped may have a remembered result."""
        if snapshot.position < self.fold.state.position:
            return False
        table, point = MemoryTable(), Saved(snapshot.position, int.from_bytes(snapshot.digest))
        if not load_rows(table, rows_of_snapshot(data), point):
            return False
        self._world.narrate(f"{self.name} BEGINS at the snapshot of {snapshot.position}")
        self.fold = self.session.fold = BucketFold(table, kept=self._run.plan.kept)
        for session, number in list(self._commits):
            result = self.fold.state.result(session, number)
            if result is not None:
                self._commits.pop((session, number))(result, None)
        self._check_waiting()
        return True

    # -- the session -------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open a session; its number is the position of the command."""
        if self._opening:
            return
        self._opening = True
        session = self.session

        def opened(position: int | None, error: Exception | None) -> None:
            if self.dead:
                return
            self._opening = False
            if position is None:
                self._later(BEAT_S, self._open)
            else:
                session.number = position
                self._world.narrate(f"{self.name} OPENED session {position}")
                self._check_waiting()

        self._log.append(encode_command(OPEN_COMMAND), APPEND_PATIENCE_S, opened)

    def _beat(self) -> None:
        """Beat, end silent sessions, and begin a round of upkeep if this gateway is to do it."""
        self._later(BEAT_S, self._beat)
        session = self.session
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
        """Collect, sweep, or keep a snapshot: one task at a time."""
        kept = self.fold.state.snapshots()
        last = kept[-1].position if kept else 0
        if self.fold.state.position - last >= self._run.plan.snapshot_every:
            steps = keep_snapshot(self.session, self.ms)
        elif self._world.rng.random() < 0.7:
            steps = collect(self.session, self.ms)
        else:
            steps = sweep(self.session)
        self.idle = False

        def done(answer: BucketAnswer | None) -> None:
            self.idle = True

        self.begin(steps, done)

    # -- requests ----------------------------------------------------------------------------------

    def begin(self, steps: Steps, done: Callable[[BucketAnswer | None], None]) -> None:
        """Begin a request or a task of upkeep."""
        task = GatewayTask(steps, done, self.session, self.fold.state.position)
        self._advance(task, None, None)

    def _advance(self, task: GatewayTask, value: Any, error: Exception | None) -> None:
        if self.dead:
            return
        try:
            effect = task.steps.send(value) if error is None else task.steps.throw(error)
        except StopIteration as end:
            task.done(end.value)
        except SessionEnded:
            task.done(None)
        else:
            self._perform(task, effect)

    def _perform(self, task: GatewayTask, effect: Effect) -> None:
        gone = [False]

        def resume(value: Any, error: Exception | None = None) -> None:
            if not gone[0]:
                gone[0] = True
                self._advance(task, value, error)

        def failed(result: Any, error: Exception | None) -> None:
            lost = None if error is None else SessionEnded(f"given up: {error}")
            resume(result, lost)

        match effect:
            case Verify():
                self._verify(lambda: resume(None))
            case StoreBlob(blob, data):
                stops = self._world.rng.random() < STOPPED_BODIES
                stopped = SessionEnded("the user hung up") if stops else None
                self._store(blob, data, lambda _, error: failed(None, error or stopped))
            case FetchBlob(blob):
                number = task.session.number

                def fetched(data: bytes | None, error: Exception | None) -> None:
                    if error is None and data is None:
                        self._run.oracle.missing(number, blob)
                    failed(data, error)

                rng = self._world.rng
                slow = rng.random() < SLOW_READERS and not self._run.consensus.healed
                self._later(rng.random() * SLOW_READ_S * slow, self._fetch, blob, fetched)
            case Commit(command):
                self._run.oracle.checked(command, task.checked)
                self._commits[command.session, command.number] = resume
                self._append(encode_command(command), (command.session, command.number))
            case DropBlob(blob):
                self._run.oracle.dropping(blob)
                self._start(delete(self._blobs.view, name_of(blob)), lambda *_: resume(None))
            case ListBlobs():
                self._start(self._list(), failed)
            case TrimLog(upto):
                self._run.oracle.trimming(upto)
                trim = self._log.session.operations.trim(upto)
                self._log.start(trim, "trim", LASTING_S, failed)
        late = SessionEnded("no end of a request's effect in time")
        self._later(EFFECT_PATIENCE_S, resume, None, late)

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
            if tail is not None:
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
                self._run.oracle.stored.add(blob)
            done(tag, error)

        self._start(create(self._blobs.view, name_of(blob), data), stored)

    def _fetch(self, blob: Blob, done: Callable[[bytes | None, Any], None]) -> None:
        def fetched(found: Any, error: Exception | None) -> None:
            absent = error is None and found.value is TOMBSTONE
            done(None if error is not None or absent else found.value, error)

        self._start(read(self._blobs.view, name_of(blob)), fetched)

    def _list(self) -> Operation[list[Blob]]:
        names, after = [], ""
        while True:
            page, following = yield from list_objects(self._blobs.view, after, "")
            names += page
            if following is None:
                return [blob_of(name) for name in names]
            after = following
