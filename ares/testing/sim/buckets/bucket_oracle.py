"""The oracle of the scenario `bucket`: a model beside the fold, and the promises to users.

The oracle judges each command by :class:`BucketModel`, and knows the live sessions, the effects of
each request, and the stored and dropped names. Oracle and fold share no rule.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

from ares.bucket.bucket_listing import ListRequest, list_versions
from ares.bucket.bucket_requests import BucketAnswer
from ares.bucket.bucket_state import BucketState
from ares.bucket.command_results import CommandOutcome, CommandResult
from ares.bucket.commands import (
    Beat,
    Command,
    Conditions,
    EndSession,
    ObjectBatch,
    OpenSession,
    PutObject,
    UpkeepOperation,
    decode_command,
)
from ares.bucket.fold import BucketFold
from ares.bucket.index_records import Blob, ObjectEntry, Version
from ares.bucket.memory_table import MemoryTable
from ares.testing.sim.buckets.bucket_model import (
    MODEL_BOUNDS,
    BucketModel,
    ModelVersion,
    holds,
)
from ares.testing.sim.buckets.bucket_plan import SIMULATED_BUCKET
from ares.testing.sim.buckets.index_audit import audit_index
from ares.testing.sim.invariants import PromiseBroken

AUDIT_EVERY = 40
TOLD_FAILURES = (
    *(CommandOutcome.CONDITION_FAILED, CommandOutcome.NO_SUCH_KEY, CommandOutcome.NO_SUCH_SOURCE),
    *(CommandOutcome.NO_SUCH_BUCKET, CommandOutcome.NO_SUCH_UPLOAD, CommandOutcome.OVER_QUOTA),
    *(CommandOutcome.BATCH_FAILED, CommandOutcome.BAD_RANGE, CommandOutcome.BAD_PART),
)
CHANGED_NOTHING = (
    *(CommandOutcome.FENCED, CommandOutcome.SETTLED, CommandOutcome.NOT_TAKEN),
    *(CommandOutcome.MALFORMED, CommandOutcome.BUSY),
)


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
    """Return the name of the request of a command.

    Every put has a new etag, and every batch begins with a put or has an invocation. Further
    requests have an invocation; a request without an invocation has a single attempt, hence a
    single number.
    """
    operation = command.operation
    first = operation.items[0] if isinstance(operation, ObjectBatch) else operation
    if isinstance(first, PutObject):
        return first.etag.encode()
    return command.invocation or f"{command.session}.{command.number}".encode()


def _told_version(
    state: BucketState, entry: ObjectEntry, stored: dict[Blob, bytes]
) -> ModelVersion:
    """Return a version by the index, with the bytes."""
    data = None if entry.marker else b""
    for piece in state.leaves(entry.content):
        whole = piece.data if piece.blob is None else stored.get(piece.blob, b"")
        data = (data or b"") + whole[piece.start : piece.start + piece.length]
    return ModelVersion(entry.version, entry.etag, data, entry.null, entry.tags)


class BucketOracle:
    """The truth of a run. ``floor``: the position that a request which begins now must know."""

    def __init__(self, kept: int) -> None:
        self.truth = BucketFold(MemoryTable(), kept=kept, **MODEL_BOUNDS)
        self.floor = 0
        self.contents: dict[str, bytes] = {}
        self.model = BucketModel(self.contents)
        self.stored: dict[Blob, bytes] = {}
        self.dropped: set[Blob] = set()
        self._entries: list[bytes] = []
        self._digests: list[int] = [0]
        self._history: defaultdict[str, list[tuple[int, ModelVersion | None]]] = defaultdict(list)
        self._sessions: dict[int, int] = {}
        self._lowest: Counter[int] = Counter()
        self._results: dict[tuple[int, int], CommandResult] = {}
        self._first: dict[bytes, tuple[int, CommandResult]] = {}
        self._effects: Counter[bytes] = Counter()
        self._made: dict[int, bytes] = {}
        self._forgotten: set[bytes] = set()
        self._kept = kept
        self._failed: set[bytes] = set()

    def checked(self, command: Command, position: int) -> None:
        """Note an attempt that was checked when the request's first result was forgotten.

        A library that sends a request again too late is told the truth of a new request.
        """
        request = name_of_command(command)
        if request in self._first and self._first[request][0] + self._kept <= position:
            self._forgotten.add(request)

    # -- the log -----------------------------------------------------------------------------------

    def applied(self, position: int, entry: bytes, digest: int) -> None:
        """Check an entry applied by a gateway, and the digest afterwards."""
        if position == len(self._entries):
            self._entries.append(entry)
            self._apply(position, entry)
            self._digests.append(self.truth.state.digest)
        if position > len(self._entries):
            raise PromiseBroken(f"position {position} was applied, and {len(self._entries)} not")
        if self._entries[position] != entry:
            raise PromiseBroken(f"two entries at position {position}")
        if self._digests[position + 1] != digest:
            raise PromiseBroken(f"two digests at position {position}")

    def _apply(self, position: int, entry: bytes) -> None:
        state, command = self.truth.state, decode_command(entry)
        digest = state.digest
        applied = self.truth.apply(entry)
        if command is None or applied is None:
            raise PromiseBroken(f"position {position}: a gateway gave what is no command")
        operation, result = command.operation, applied.result
        if isinstance(operation, OpenSession):
            self._judge_open(position, command)
            return
        if command.session not in self._sessions:
            if state.digest != digest or result.outcome is not CommandOutcome.FENCED:
                raise PromiseBroken(f"position {position}: a command of an ended session applied")
            return
        settled = command.number < self._lowest[command.session]
        if settled != (result.outcome is CommandOutcome.SETTLED):
            raise PromiseBroken(f"position {position}: {result}, settled: {settled}")
        if settled:
            if state.digest != digest:
                raise PromiseBroken(f"position {position}: a settled command changed something")
            return
        self._lowest[command.session] = max(self._lowest[command.session], command.lowest)
        self._sessions[command.session] = position
        if isinstance(operation, EndSession):
            self._judge_end(position, command.session, operation)
        elif isinstance(operation, Beat):
            told = int.from_bytes(operation.digest)
            if result.done and told != self._digests[operation.position]:
                raise PromiseBroken(f"position {position}: a beat with another digest")
        elif not isinstance(operation, UpkeepOperation):
            self._judge(position, command, result)
        if position % AUDIT_EVERY == 0:
            self._audit()

    def _judge_open(self, position: int, command: Command) -> None:
        """Begin a session; the position is the number."""
        self._sessions[position] = position

    def _judge_end(self, position: int, by: int, operation: EndSession) -> None:
        """Check that a session ends by itself, or after silence."""
        last = self._sessions.get(operation.of)
        if last is not None and (last <= operation.last or operation.of == by):
            del self._sessions[operation.of]
        elif last is not None and operation.of not in self.truth.state.sessions:
            raise PromiseBroken(f"position {position} ended a session that spoke")
        if operation.of in self.truth.state.sessions and operation.of not in self._sessions:
            raise PromiseBroken(f"position {position} did not end a silent session")

    def _judge(self, position: int, command: Command, result: CommandResult) -> None:
        """Check a result: that of the first copy, of the first attempt, or the model's."""
        name = name_of_command(command)
        copy = self._results.setdefault((command.session, command.number), result)
        if copy is not result:
            if copy != result:
                raise PromiseBroken(f"position {position}: {result}, and {copy} to the first copy")
            self._check_versions(position, command)
            return
        if command.invocation and name in self._first:
            first, known = self._first[name]
            if first + self._kept > position and known != result:
                raise PromiseBroken(f"position {position}: {result}, and {known} to {name!r}")
            if known == result:
                self._check_versions(position, command)
                return
        self._first[name] = position, result
        if result.outcome in CHANGED_NOTHING:
            raise PromiseBroken(f"position {position}: {result} to a command of a live session")
        wanted = self.model.apply(position, command.operation)
        told = [result.outcome, *(item.outcome for item in result.items if result.done)]
        if told != wanted:
            raise PromiseBroken(f"position {position}: {told}, and {wanted} by the model")
        self._made[position] = name
        self._check_versions(position, command)
        self._count_effect(name, result)

    def _count_effect(self, name: bytes, result: CommandResult) -> None:
        """Check for a single effect of a request, and for no effect after a failure was told."""
        self._effects[name] += result.done
        if name not in self._forgotten:
            if self._effects[name] > 1:
                raise PromiseBroken(f"request {name!r} took effect twice")
            if self._effects[name] and name in self._failed:
                raise PromiseBroken(f"request {name!r} was told a failure, and succeeded")

    def _check_versions(self, position: int, command: Command) -> None:
        """Check the versions of a command's keys by the model, and the blobs of these versions."""
        operation = command.operation
        items = operation.items if isinstance(operation, ObjectBatch) else (operation,)
        keys = {item.key for item in items if hasattr(item, "key")}
        bucket = self.model.buckets.get(SIMULATED_BUCKET)
        for key in sorted(keys):
            newest = self.model.newest(SIMULATED_BUCKET, key)
            if self.version(key, position + 1) != newest:
                self._history[key].append((position + 1, newest))
            self._check_key(position, key, [] if bucket is None else bucket.keys.get(key, []))

    def _check_key(self, position: int, key: str, wanted: list[ModelVersion]) -> None:
        state = self.truth.state
        page = list_versions(state, ListRequest(SIMULATED_BUCKET, key))
        entries = [each.entry for each in page.results if each.entry and each.key == key]
        for entry in entries:
            for piece in state.leaves(entry.content):
                if piece.blob is not None and piece.blob not in self.stored:
                    raise PromiseBroken(f"{key} names {piece.blob} before it is at a quorum")
                if piece.blob in self.dropped:
                    raise PromiseBroken(f"{key} names {piece.blob}, which was dropped")
        told = [_told_version(state, entry, self.stored) for entry in entries]
        if told != wanted:
            raise PromiseBroken(f"position {position}: {key} has {told}, {wanted} by the model")

    def _audit(self) -> None:
        """Check the whole index: the counters, and the buckets beside the model."""
        state = self.truth.state
        audit_index(state)
        model = self.model.buckets.get(SIMULATED_BUCKET)
        bucket = state.bucket(SIMULATED_BUCKET)
        told = None if bucket is None else (bucket.bytes + bucket.part_bytes, bucket.uploads)
        wanted = None if model is None else (model.size, len(model.uploads))
        if told != wanted:
            raise PromiseBroken(f"the bucket has {told}, and {wanted} by the model")

    def version(self, key: str, position: int) -> ModelVersion | None:
        """Return the newest version of a key in the index at a position."""
        found = None
        for since, version in self._history[key]:
            if since <= position:
                found = version
        return found

    # -- blobs and the log's trim ------------------------------------------------------------------

    def dropping(self, blob: Blob) -> None:
        """Check a drop of a name against all entries so far."""
        place = self.truth.state.place(blob)
        if place is not None and place.uses:
            raise PromiseBroken(f"{blob} is dropped, and the index names it")
        self.dropped.add(blob)

    def missing(self, session: int | None, lost: object) -> None:
        """Check a read that found no chunk, or no content: its session must have ended."""
        if session in self._sessions:
            raise PromiseBroken(f"session {session} is live, and {lost} is missing in its read")

    def trimming(self, upto: int) -> None:
        """Check a trim: a snapshot at or above it is stored and kept."""
        kept = self.truth.state.snapshots()
        if not any(snapshot.position >= upto and snapshot.blob in self.stored for snapshot in kept):
            raise PromiseBroken(f"the log is trimmed below {upto} without a snapshot")

    def looked(self, session: int | None, position: int) -> None:
        """Check that an answer is from an index that had the gateway's own OpenSession."""
        if session is None or position <= session:
            raise PromiseBroken(f"session {session} answers from position {position}")

    # -- answers to users --------------------------------------------------------------------------

    def told(self, request: AskedRequest, answer: BucketAnswer, known: int) -> None:
        """Check an answer; ``known``: the position of the gateway that tells it."""
        outcome, version = answer.result.outcome, answer.result.version
        if request.kind == "get":
            self._told_read(request, answer)
        elif outcome is CommandOutcome.DONE:
            items = [item.version for item in answer.result.items[:1] if item.done]
            told = [each for each in (version, *items) if each is not None]
            for each in told if request.kind not in ("delete", "part", "tags") else ():
                self._told_change(request, each, known)
        elif outcome in TOLD_FAILURES:
            self._told_failure(request, answer)
        self.floor = max(self.floor, answer.position)

    def _told_change(self, request: AskedRequest, version: Version, known: int) -> None:
        """Check a version in an answer: made by this request, and known to the gateway."""
        if version.position >= known:
            raise PromiseBroken(f"the result of position {version.position} is told at {known}")
        if request.name and self._made.get(version.position) != request.name:
            raise PromiseBroken(f"{request} is told the result of another request")
        if version.position < request.floor:
            raise PromiseBroken(f"{request} took effect before it began")

    def _told_read(self, request: AskedRequest, answer: BucketAnswer) -> None:
        if answer.position < request.floor:
            raise PromiseBroken(f"a read answers at {answer.position}, below {request.floor}")
        there = self.version(request.key, answer.position)
        wanted = (None, None) if there is None else (there.etag, there.data)
        found = (None if answer.entry is None else answer.entry.etag, answer.data)
        if found != wanted:
            raise PromiseBroken(
                f"a read of {request.key} at {answer.position} found {found}, not {wanted}"
            )

    def _told_failure(self, request: AskedRequest, answer: BucketAnswer) -> None:
        if request.name:
            self._failed.add(request.name)
            if self._effects[request.name] and request.name not in self._forgotten:
                raise PromiseBroken(f"{request} succeeded, and is told {answer.result.outcome!r}")
        if answer.early:
            if answer.position < request.floor:
                raise PromiseBroken(f"an early failure at {answer.position}, of {request}")
            there = self.version(request.key, answer.position)
            wanted = holds(request.conditions, there)
            if answer.result.outcome is not wanted:
                raise PromiseBroken(f"an early failure without a reason, of {request}")

    def last_look(self, present: set[Blob]) -> None:
        """Check the end of a run: the index is sound, and every blob left has a place."""
        self._audit()
        for blob in sorted(present, key=repr):
            if self.truth.state.place(blob) is None:
                raise PromiseBroken(f"{blob} is left, and nothing names it")
