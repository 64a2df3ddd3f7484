"""The oracle of the scenario `bucket`: a model beside the fold, and the promises to users.

The model knows the etag of each key at each position, the live sessions, the effects of each
request, and the names that were stored and dropped. It shares no rule with the fold.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from ares.bucket.bucket_requests import BucketAnswer
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    Beat,
    Command,
    CompleteUpload,
    Conditions,
    CopyObject,
    DeleteObject,
    EndSession,
    OpenSession,
    PutObject,
    decode_command,
)
from ares.bucket.fold import BucketFold
from ares.bucket.index_records import Blob, Version
from ares.bucket.memory_table import MemoryTable
from ares.testing.sim.buckets.bucket_plan import SIMULATED_BUCKET
from ares.testing.sim.buckets.index_audit import audit_index
from ares.testing.sim.invariants import PromiseBroken

AUDIT_EVERY = 40
TOLD_FAILURES = (
    CommandOutcome.CONDITION_FAILED,
    CommandOutcome.NO_SUCH_KEY,
    CommandOutcome.NO_SUCH_SOURCE,
)
KeyedOperation = PutObject | CopyObject | DeleteObject | CompleteUpload


class AskedRequest(NamedTuple):
    """A request of a user. ``name``: see :func:`name_of_command`; empty if no command has a name.

    ``floor``: the position that the index had to know when it began.
    """

    name: bytes
    floor: int
    kind: str
    key: str
    conditions: Conditions = Conditions()


def name_of_command(command: Command) -> bytes:
    """Return the name of the request that a command belongs to.

    Every put has an etag of its own. Other requests have their invocation; a request without an
    invocation has a single attempt, hence a single number.
    """
    if isinstance(command.operation, PutObject):
        return command.operation.etag.encode()
    return command.invocation or f"{command.session}.{command.number}".encode()


def holds(conditions: Conditions, etag: str | None) -> bool:
    """Return whether the conditions of this scenario hold for a newest version."""
    return not (
        (conditions.absent and etag is not None)
        or (conditions.present and etag is None)
        or (conditions.etags and etag not in conditions.etags)
    )


class BucketOracle:
    """The truth of a run. ``floor``: the position that a request which begins now must know."""

    def __init__(self, kept: int) -> None:
        self.truth = BucketFold(MemoryTable(), kept=kept)
        self.floor = 0
        self.contents: dict[str, bytes] = {}
        self.stored: set[Blob] = set()
        self.dropped: set[Blob] = set()
        self._entries: list[bytes] = []
        self._digests: list[int] = []
        self._history: defaultdict[str, list[tuple[int, str | None]]] = defaultdict(list)
        self._sessions: dict[int, int] = {}
        self._lowest: Counter[int] = Counter()
        self._results: dict[tuple[int, int], CommandResult] = {}
        self._effects: Counter[bytes] = Counter()
        self._made: dict[int, bytes] = {}
        self._forgotten: set[bytes] = set()
        self._completed: set[Version] = set()
        self._kept = kept
        self._failed: set[bytes] = set()

    def checked(self, command: Command, position: int) -> None:
        """Note an attempt that was checked when the request's first effect was forgotten.

        A library that sends a request again so late is told the truth of a new request.
        """
        request = name_of_command(command)
        made = [at for at, name in self._made.items() if name == request]
        if any(at + self._kept <= position for at in made):
            self._forgotten.add(request)

    # -- the log -----------------------------------------------------------------------------------

    def applied(self, position: int, entry: bytes, digest: int) -> None:
        """Check an entry that a gateway applied, and the digest after it."""
        if position == len(self._entries):
            self._entries.append(entry)
            self._apply(position, entry)
            self._digests.append(self.truth.state.digest)
        if position > len(self._entries):
            raise PromiseBroken(f"position {position} was applied, and {len(self._entries)} not")
        if self._entries[position] != entry:
            raise PromiseBroken(f"two entries at position {position}")
        if self._digests[position] != digest:
            raise PromiseBroken(f"two digests at position {position}")

    def _apply(self, position: int, entry: bytes) -> None:
        state, command = self.truth.state, decode_command(entry)
        digest = state.digest
        applied = self.truth.apply(entry)
        if command is None or applied is None:
            return
        operation = command.operation
        if isinstance(operation, OpenSession):
            self._sessions[position] = position
            return
        if command.session not in self._sessions:
            if state.digest != digest:
                raise PromiseBroken(f"position {position}: a command of an ended session applied")
            return
        self._sessions[command.session] = position
        self._check_repeat(position, command, applied.result)
        if isinstance(operation, EndSession):
            last = self._sessions.get(operation.of)
            if last is not None and (last <= operation.last or operation.of == command.session):
                del self._sessions[operation.of]
            elif last is not None and operation.of not in state.sessions:
                raise PromiseBroken(f"position {position} ended a session that spoke")
        elif isinstance(operation, Beat):
            told = int.from_bytes(operation.digest)
            if applied.result.done and told != [0, *self._digests][operation.position]:
                raise PromiseBroken(f"position {position}: a beat with another digest")
        elif isinstance(operation, KeyedOperation):
            self._judge(position, command, operation, applied.result)
        if position % AUDIT_EVERY == 0:
            audit_index(state)

    def _check_repeat(self, position: int, command: Command, result: CommandResult) -> None:
        """Check that a copy of a command has the first result, or does nothing once settled."""
        lowest = max(self._lowest[command.session], command.lowest)
        self._lowest[command.session] = lowest
        settled = result.outcome is CommandOutcome.SETTLED
        if settled != (command.number < lowest):
            raise PromiseBroken(f"position {position}: {result.outcome!r}, lowest is {lowest}")
        if isinstance(command.operation, KeyedOperation) and not settled:
            first = self._results.setdefault((command.session, command.number), result)
            if first != result:
                raise PromiseBroken(f"position {position}: {result}, and {first} to the first copy")

    def _judge(
        self, position: int, command: Command, operation: KeyedOperation, result: CommandResult
    ) -> None:
        """Check a change: its condition one position earlier, its blobs, and that it is the first.

        A change is seen by the etag or the version of the key; a repeated result changes nothing.
        """
        key, newest = operation.key, self.truth.state.newest(SIMULATED_BUCKET, operation.key)
        before = self.etag(key, position)
        etag = None if newest is None else newest.etag
        changed = etag != before or (newest is not None and newest.version.position == position)
        name = name_of_command(command)
        if changed:
            if not result.done or not holds(operation.conditions, before):
                raise PromiseBroken(
                    f"position {position}: {key} was {before}, and {operation} changed it"
                )
            self._effects[name] += 1
            self._made[position] = name
            self._history[key].append((position + 1, etag))
            if isinstance(operation, CompleteUpload):
                if operation.upload in self._completed:
                    raise PromiseBroken(f"position {position} completes an upload again")
                self._completed.add(operation.upload)
        elif result.outcome in TOLD_FAILURES and name not in self._failed:
            failed_source = isinstance(operation, CopyObject) and (
                self.etag(operation.source.key, position) is None
            )
            reason = failed_source or not holds(operation.conditions, before)
            if not self._effects[name] and not reason:
                self._explain(position, command, result)
        if name not in self._forgotten:
            if self._effects[name] > 1:
                raise PromiseBroken(f"request {name!r} took effect twice")
            if self._effects[name] and name in self._failed:
                raise PromiseBroken(f"request {name!r} was told a failure, and succeeded")
        for piece in () if newest is None else self.truth.state.leaves(newest.content):
            if piece.blob is not None and piece.blob not in self.stored:
                raise PromiseBroken(f"{key} names {piece.blob} before it is at a quorum")
            if piece.blob in self.dropped:
                raise PromiseBroken(f"{key} names {piece.blob}, which was dropped")

    def _explain(self, position: int, command: Command, result: CommandResult) -> None:
        """Accept a failure without a reason at its position only as the repeat of an earlier one.

        An earlier attempt at the same request failed at a position where its condition was false.
        """
        earlier = any(
            other is not None and name_of_command(other) == name_of_command(command)
            for other in map(decode_command, self._entries[:position])
        )
        if not earlier:
            raise PromiseBroken(f"position {position}: {result.outcome!r} without a reason")

    def etag(self, key: str, position: int) -> str | None:
        """Return the etag of a key in the index at a position."""
        found = None
        for since, etag in self._history[key]:
            if since <= position:
                found = etag
        return found

    def is_live(self, session: int | None) -> bool:
        return session in self._sessions

    # -- blobs and the log's trim ------------------------------------------------------------------

    def dropping(self, blob: Blob) -> None:
        """Check a drop of a name against all entries so far."""
        place = self.truth.state.place(blob)
        if place is not None and place.uses:
            raise PromiseBroken(f"{blob} is dropped, and the index names it")
        self.dropped.add(blob)

    def missing(self, session: int | None, blob: Blob) -> None:
        """Check a read that found no chunk: its session must have ended."""
        if self.is_live(session):
            raise PromiseBroken(f"session {session} is live, and {blob} is missing in its read")

    def trimming(self, upto: int) -> None:
        """Check a trim: a snapshot at or above it is stored and kept."""
        kept = self.truth.state.snapshots()
        if not any(snapshot.position >= upto and snapshot.blob in self.stored for snapshot in kept):
            raise PromiseBroken(f"the log is trimmed below {upto} without a snapshot")

    # -- answers to users --------------------------------------------------------------------------

    def told(self, request: AskedRequest, answer: BucketAnswer, known: int) -> None:
        """Check an answer; ``known``: the position of the gateway that tells it."""
        outcome, version = answer.result.outcome, answer.result.version
        if request.kind == "get":
            self._told_read(request, answer)
        elif outcome is CommandOutcome.DONE and version is not None:
            if version.position >= known:
                raise PromiseBroken(f"the result of position {version.position} is told at {known}")
            if request.kind not in ("delete", "begin", "part"):
                if request.name and self._made.get(version.position) != request.name:
                    raise PromiseBroken(f"{request} is told the result of another request")
                if version.position < request.floor:
                    raise PromiseBroken(f"{request} took effect before it began")
        elif outcome in TOLD_FAILURES:
            self._told_failure(request, answer)
        self.floor = max(self.floor, answer.position)

    def _told_read(self, request: AskedRequest, answer: BucketAnswer) -> None:
        etag = None if answer.entry is None else answer.entry.etag
        if answer.position < request.floor:
            raise PromiseBroken(f"a read answers at {answer.position}, below {request.floor}")
        if etag != self.etag(request.key, answer.position):
            raise PromiseBroken(f"a read of {request.key} at {answer.position} found {etag}")
        if etag is not None and answer.data != self.contents[etag]:
            raise PromiseBroken(f"a read of {etag} found {answer.data!r}")

    def _told_failure(self, request: AskedRequest, answer: BucketAnswer) -> None:
        if request.name:
            self._failed.add(request.name)
            if self._effects[request.name] and request.name not in self._forgotten:
                raise PromiseBroken(f"{request} succeeded, and is told {answer.result.outcome!r}")
        if answer.early and request.conditions != Conditions():
            if answer.position < request.floor:
                raise PromiseBroken(f"an early failure at {answer.position}, of {request}")
            if holds(request.conditions, self.etag(request.key, answer.position)):
                raise PromiseBroken(f"an early failure without a reason, of {request}")

    def last_look(self, present: set[Blob]) -> None:
        """Check the end of a run: the index is sound, and nothing is left that nobody names."""
        audit_index(self.truth.state)
        for blob in sorted(present, key=repr):
            if self.truth.state.place(blob) is None:
                raise PromiseBroken(f"{blob} is left, and nothing names it")
