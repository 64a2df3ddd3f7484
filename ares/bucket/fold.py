"""The fold: applies the entries of the log in order, and tells the result of each command.

The order of the rules matters. A command of an ended session changes no row and is not remembered.
A number below the session's lowest is settled: no row changes, not even the time. A number seen
before has the remembered result, and the blob stays as before. An invocation seen before, in any
session, has the first result, and the new blob is garbage. Any other command is applied.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import (
    COMMAND_BUSY,
    COMMAND_DONE,
    COMMAND_FENCED,
    COMMAND_MALFORMED,
    COMMAND_NOT_TAKEN,
    COMMAND_SETTLED,
    CommandOutcome,
    CommandResult,
)
from ares.bucket.commands import (
    COMMAND_LEVEL,
    CONFIGURATION_NAMES,
    Beat,
    BeginUpload,
    ChangingOperation,
    Collected,
    Command,
    CopyObject,
    CreateBucket,
    DeleteBucket,
    DeleteObject,
    EndSession,
    KeepSnapshot,
    ObjectBatch,
    OfUpload,
    OpenSession,
    Operation,
    PutObject,
    RaiseLevel,
    SetBucket,
    SetTags,
    UpkeepOperation,
    decode_command,
    own_blobs,
    request_print,
)
from ares.bucket.garbage import may_forget
from ares.bucket.index_records import (
    LEFTOVERS_AT_ONCE,
    UPLOADED_PART_BYTES_MIN,
    BucketEntry,
    SessionEntry,
    SnapshotEntry,
    Versioning,
)
from ares.bucket.multipart import begin_upload, change_upload
from ares.bucket.object_changes import change_object, change_objects
from ares.bucket.port import RowTable, Saved
from ares.bucket.row_keys import bucket_row, configuration_row
from ares.model.errors import AresError

INVOCATIONS_KEPT = 2**17
"""Positions for which the first result of a request is remembered, at least."""

INVOCATIONS_FORGOTTEN = 4
"""Invocations forgotten when one is remembered: a backlog ends."""

INVOCATION_BYTES_MAX = 256 * 1024**2
"""Bytes of remembered results of invocations; above, younger results are forgotten, too."""

SESSION_RESULT_BYTES_MAX = 4 * 1024**2
"""Bytes of remembered results with which a session may give a further command."""

SESSIONS_MAX = 1024
"""Sessions at once; one more takes the place of the one that is silent for longest."""

SNAPSHOTS_KEPT = 2
DIGESTS_KEPT = 4096


class UnknownLevel(AresError):
    """A command in the log needs a later release. Nothing is lost: upgrade this process."""


class BrokenIndex(AresError):
    """An entry was applied in part. Open the index again, from the last saved point."""


class AppliedCommand(NamedTuple):
    """A command with its result. ``session``: of an OpenSession, the position."""

    session: int
    number: int
    operation: Operation
    result: CommandResult


class BucketFold:
    """The index as a fold of the log.

    An entry that fails, as on a full disk, may leave half of the rows: from this moment the index
    is broken, and has no state to answer from.

    ``kept``, ``part_bytes_min``, ``leftovers_at_once``: as by default, unless all processes of a
    test say otherwise.
    """

    def __init__(
        self,
        table: RowTable,
        partition: int = 0,
        kept: int = INVOCATIONS_KEPT,
        part_bytes_min: int = UPLOADED_PART_BYTES_MIN,
        leftovers_at_once: int = LEFTOVERS_AT_ONCE,
    ) -> None:
        self._state = BucketState(table)
        self._state.part_bytes_min = part_bytes_min
        self._state.leftovers_at_once = leftovers_at_once
        self._whole = True
        self._partition = partition
        self.kept = kept
        self._digests = deque([self._state.digest], DIGESTS_KEPT)

    @property
    def state(self) -> BucketState:
        """Return the index. Raises :class:`BrokenIndex` after an unfinished entry or save."""
        if not self._whole:
            raise BrokenIndex("an entry of the index was left unfinished: open the index again")
        return self._state

    @contextmanager
    def _unfinished(self) -> Iterator[BucketState]:
        """Let the index be broken unless the block ends without an exception."""
        state, self._whole = self.state, False
        yield state
        self._whole = True

    def save(self) -> None:
        """Keep the rows as those of the position."""
        with self._unfinished() as state:
            state.table.save(Saved(state.position, state.digest))

    def digest_at(self, position: int) -> int | None:
        """Return the digest at a position, of the last :data:`DIGESTS_KEPT`."""
        back = self.state.position - position
        return self._digests[-1 - back] if 0 <= back < len(self._digests) else None

    def apply(self, entry: bytes) -> AppliedCommand | None:
        """Apply the entry at the position; return None if it is no command of this partition.

        Raises :class:`UnknownLevel` for a command of a level that is in force and not known here. A
        level that is not in force is nothing: else any entry could stop every process.
        """
        state = self.state
        level = entry[0] if entry else 0
        if COMMAND_LEVEL < level <= state.totals.level:
            raise UnknownLevel(
                f"position {state.position} of the log has a command of level {level}, and this "
                f"release knows {COMMAND_LEVEL}: nothing is lost, use a later release"
            )
        command = decode_command(entry)
        applied = None
        with self._unfinished():
            if command is None or command.partition != self._partition:
                self._count_malformed()
            else:
                applied = self._take(command)
            state.position += 1
            self._digests.append(state.digest)
        return applied

    def _count_malformed(self) -> None:
        totals = self._state.totals
        self._state.set_totals(replace(totals, malformed=totals.malformed + 1))

    def _take(self, command: Command) -> AppliedCommand:
        """Apply a command by the rules of sessions."""
        state, operation, number = self._state, command.operation, command.number
        if isinstance(operation, OpenSession):
            return AppliedCommand(state.position, 0, operation, self._open(operation))
        session = state.sessions.get(command.session)
        if session is None:
            return AppliedCommand(command.session, number, operation, COMMAND_FENCED)
        if is_settled(number, session.lowest):
            return AppliedCommand(command.session, number, operation, COMMAND_SETTLED)
        state.ms = command.ms
        if command.ms > state.totals.clock_ms:
            state.set_totals(replace(state.totals, clock_ms=command.ms))
        lowest = max(session.lowest, command.lowest)
        state.set_session(command.session, replace(session, last=state.position, lowest=lowest))
        if isinstance(operation, UpkeepOperation):
            result = self._keep_up(command, operation)
        else:
            known = state.result(command.session, number)
            result = known if known is not None else self._change_once(command, operation)
        return AppliedCommand(command.session, number, operation, result)

    def _change_once(self, command: Command, operation: ChangingOperation) -> CommandResult:
        """Apply a command met for the first time, unless the invocation was met before.

        Every result is remembered, a refusal too.
        """
        state = self._state
        fingerprint = request_print(command.invocation, operation)
        known = state.invocation(fingerprint)
        if not self._names_new_blobs(command):
            self._count_malformed()
            result = COMMAND_MALFORMED
        elif known is not None:
            state.lose(own_blobs(operation))
            result = known
        elif not self._has_room_for_result(command):
            state.lose(own_blobs(operation))
            result = COMMAND_BUSY
        else:
            result = self._change(operation)
            if fingerprint:
                state.remember_invocation(fingerprint, result)
        state.remember(command.session, command.number, result)
        return result

    def _has_room_for_result(self, command: Command) -> bool:
        """Forget old invocations; return whether the result of a command may be remembered."""
        state = self._state
        if state.sessions[command.session].result_bytes >= SESSION_RESULT_BYTES_MAX:
            return False
        if not command.invocation:
            return True
        full = state.totals.invocation_bytes >= INVOCATION_BYTES_MAX
        old = state.lowest_reading if full else state.position - self.kept
        state.forget_invocations(min(old, state.lowest_reading), INVOCATIONS_FORGOTTEN)
        return state.totals.invocation_bytes < INVOCATION_BYTES_MAX

    def _names_new_blobs(self, command: Command) -> bool:
        """Return whether all blobs of a command are new blobs of the session, each named once.

        The name of an older blob may have been dropped.
        """
        session = self._state.sessions[command.session]
        blobs = list(own_blobs(command.operation))
        names = {(blob.session, blob.counter) for blob in blobs}
        return len(names) == len(blobs) and all(
            blob.session == command.session
            and session.may_name(blob.counter)
            and self._state.place(blob) is None
            for blob in blobs
        )

    def _change(self, operation: ChangingOperation) -> CommandResult:
        state = self._state
        match operation:
            case PutObject() | CopyObject() | DeleteObject() | SetTags():
                return change_object(state, operation)
            case ObjectBatch():
                return change_objects(state, operation)
            case OfUpload():
                return change_upload(state, operation)
            case BeginUpload():
                return begin_upload(state, operation)
            case CreateBucket():
                return self._create_bucket(operation)
            case DeleteBucket():
                return self._delete_bucket(operation)
            case SetBucket():
                return self._set_bucket(operation)

    # -- sessions and the index itself -------------------------------------------------------------

    def _open(self, operation: OpenSession) -> CommandResult:
        """Begin a session; of too many the one that is silent for longest ends.

        A refusal would last for ever: only a session can end those of processes that died.
        """
        state = self._state
        if operation.level < state.totals.level:
            return COMMAND_NOT_TAKEN
        if len(state.sessions) >= SESSIONS_MAX:
            state.end_session(min(state.sessions, key=lambda each: state.sessions[each].last))
        session = SessionEntry(state.position, 1, state.position + 1, operation.level)
        state.set_session(state.position, session)
        return COMMAND_DONE

    def _keep_up(self, command: Command, operation: UpkeepOperation) -> CommandResult:
        state = self._state
        match operation:
            case Beat():
                return self._beat(command.session, operation)
            case EndSession():
                ending = state.sessions.get(operation.of)
                own = operation.of == command.session
                later = operation.last >= state.position  # no process can have seen it
                if ending is None or ((later or ending.last > operation.last) and not own):
                    return COMMAND_NOT_TAKEN
                state.end_session(operation.of)
                return COMMAND_DONE
            case Collected():
                for blob in operation.blobs:  # the judgement bounds a wrong collector
                    if may_forget(state, blob):
                        state.forget_garbage(blob)
                state.drop_leftovers()
                return COMMAND_DONE
            case KeepSnapshot():
                return self._keep_snapshot(command, operation)
            case RaiseLevel():
                known = min(session.level for session in state.sessions.values())
                if not state.totals.level < operation.level <= known:
                    return COMMAND_NOT_TAKEN
                state.set_totals(replace(state.totals, level=operation.level))
                return COMMAND_DONE
            case OpenSession():
                raise AssertionError("an OpenSession has no session yet")

    def _beat(self, number: int, operation: Beat) -> CommandResult:
        """Take the promises of a session: each holds for ever, also behind a later one."""
        if max(operation.reading_from, operation.position) > self._state.position:
            return COMMAND_NOT_TAKEN
        session = self._state.sessions[number]
        told = replace(session, blobs_from=operation.blobs_from, open_blobs=operation.open_blobs)
        blobs_from = max(session.blobs_from, operation.blobs_from)
        both = {*session.open_blobs, *operation.open_blobs}
        open_blobs = sorted(
            counter
            for counter in both
            if counter < blobs_from and session.may_name(counter) and told.may_name(counter)
        )
        promised = replace(
            session,
            reading_from=max(session.reading_from, operation.reading_from),
            blobs_from=blobs_from,
            open_blobs=tuple(open_blobs),
        )
        self._state.set_session(number, promised)
        return COMMAND_DONE

    def _keep_snapshot(self, command: Command, operation: KeepSnapshot) -> CommandResult:
        state = self._state
        last = max((entry.position for entry in state.snapshots()), default=0)
        if not last < operation.position <= state.position or not self._names_new_blobs(command):
            return COMMAND_NOT_TAKEN
        entry = SnapshotEntry(operation.position, operation.digest, operation.blob)
        state.keep_snapshot(entry, SNAPSHOTS_KEPT)
        return COMMAND_DONE

    # -- buckets -----------------------------------------------------------------------------------

    def _create_bucket(self, operation: CreateBucket) -> CommandResult:
        state = self._state
        if state.bucket(operation.bucket) is not None:
            return CommandResult(CommandOutcome.BUCKET_EXISTS)
        ms = state.ms
        state.set_bucket(operation.bucket, BucketEntry(ms, operation.owner))
        return CommandResult(CommandOutcome.DONE, ms=ms)

    def _delete_bucket(self, operation: DeleteBucket) -> CommandResult:
        state, bucket = self._state, self._state.bucket(operation.bucket)
        if bucket is None:
            return CommandResult(CommandOutcome.NO_SUCH_BUCKET)
        if bucket.versions or bucket.uploads:
            return CommandResult(CommandOutcome.BUCKET_NOT_EMPTY)
        for name in CONFIGURATION_NAMES:
            state.delete(configuration_row(operation.bucket, name))
        state.delete(bucket_row(operation.bucket))
        return COMMAND_DONE

    def _set_bucket(self, operation: SetBucket) -> CommandResult:
        state, bucket = self._state, self._state.bucket(operation.bucket)
        if bucket is None:
            return CommandResult(CommandOutcome.NO_SUCH_BUCKET)
        versioning = bucket.versioning if operation.versioning is None else operation.versioning
        if versioning is Versioning.OFF and bucket.versioning is not Versioning.OFF:
            versioning = Versioning.SUSPENDED  # versions that are kept cannot be without names
        quota = bucket.quota if operation.quota is None else operation.quota
        state.set_bucket(operation.bucket, replace(bucket, versioning=versioning, quota=quota))
        if operation.configuration is not None:
            row = configuration_row(operation.bucket, operation.name)
            if operation.configuration:
                state.put(row, operation.configuration)
            else:
                state.delete(row)
        return COMMAND_DONE


def is_settled(number: int, lowest: int) -> bool:
    """Return whether a command comes too late to do anything: its result may be forgotten."""
    return number < lowest
