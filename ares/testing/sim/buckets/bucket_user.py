"""A simulated user of buckets: requests in turn, which the library repeats under an invocation."""

from collections.abc import Callable
from typing import Any, Protocol

from ares.bucket.bucket_requests import BucketAnswer, ChangeRequest, Steps, change, get_object
from ares.bucket.bucket_session import BucketSession
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    AbortUpload,
    BeginUpload,
    ChangingOperation,
    CompleteUpload,
    Conditions,
    CopyObject,
    CopyPart,
    CopySource,
    CreateBucket,
    DeleteBucket,
    DeleteObject,
    NamedPart,
    ObjectBatch,
    PutObject,
    PutPart,
    SetBucket,
    SetTags,
)
from ares.bucket.index_records import Version, Versioning
from ares.testing.sim.buckets.bucket_oracle import AskedRequest, BucketOracle
from ares.testing.sim.buckets.bucket_plan import (
    SIMULATED_BUCKET,
    BucketPlan,
    BucketStep,
    BucketUserPlan,
)
from ares.testing.sim.buckets.gateway_process import GatewayProcess
from ares.testing.sim.world import SimWorld

REQUEST_ATTEMPTS = 6
RETRY_S = 0.1
UNAVAILABLE_OUTCOMES = (CommandOutcome.FENCED, CommandOutcome.SETTLED)
"""Outcomes for which a gateway answers 503: the library sends the request again."""

UNNAMED_OPERATIONS = SetBucket | SetTags | DeleteBucket | CreateBucket
"""Operations without an invocation: a second success would look like the first."""


class UserRun(Protocol):
    """The parts of a run for a user."""

    plan: BucketPlan
    world: SimWorld
    oracle: BucketOracle
    events: list[Any]
    answer_loss: float

    def gateway(self, number: int) -> GatewayProcess | None: ...


class BucketUser:
    """A user. ``asked``: the number of requests. ``seen``: the etag last seen of each key."""

    def __init__(self, run: UserRun, plan: BucketUserPlan) -> None:
        self.name = plan.name
        self.dead = False
        self._run = run
        self._world = run.world
        self._steps = list(plan.steps)
        self._ids = plan.ids
        self._busy = False
        self._asked = 0
        self._seen: dict[str, str] = {}
        self.next()

    @property
    def done(self) -> bool:
        return not self._steps and not self._busy

    def extend(self, steps: list[BucketStep]) -> None:
        self._steps += steps
        self.next()

    def next(self) -> None:
        """Take the next step of the plan, after a pause."""
        if self._steps and not self._busy and not self.dead:
            self._busy = True
            step = self._steps.pop(0)
            self._world.after(step.pause_s, self._start, step)

    def die(self) -> None:
        self.dead = True

    def _start(self, step: BucketStep) -> None:
        if self.dead:
            return
        if step.kind in ("multipart", "multipart-copy"):
            self._upload(step)
        elif step.kind == "drop":
            again = lambda _: self._ask(  # noqa: E731
                step, CreateBucket(SIMULATED_BUCKET), b"", lambda _: self._ended()
            )
            self._ask(step, DeleteBucket(SIMULATED_BUCKET), b"", again)
        elif step.kind == "get":
            self._ask(step, None, b"", lambda answer: self._ended())
        else:
            operation, data = self._operation(step)
            self._ask(step, operation, data, lambda answer: self._ended())

    def _ended(self) -> None:
        self._busy = False
        self.next()

    def _content(self) -> tuple[str, bytes]:
        """Return a new etag, and the content that it names."""
        etag = f"{self.name}-{self._asked}"
        data = self._run.oracle.contents[etag] = etag.encode() * 3
        return etag, data

    def _operation(self, step: BucketStep) -> tuple[ChangingOperation, bytes]:
        key, seen = step.key, self._seen.get(step.key, "")
        new = Conditions(absent=True)
        same = Conditions(etags=(seen,)) if seen else Conditions(present=True)
        match step.kind:
            case "create":
                return CreateBucket(SIMULATED_BUCKET), b""
            case "delete":
                return DeleteObject(SIMULATED_BUCKET, key), b""
            case "delete-if":
                return DeleteObject(SIMULATED_BUCKET, key, conditions=same), b""
            case "delete-null":
                return DeleteObject(SIMULATED_BUCKET, key, null=True), b""
            case "tags":
                return SetTags(SIMULATED_BUCKET, key, f"{self.name} {self._asked}".encode()), b""
            case "versioning":
                kept = self._world.rng.choice([Versioning.ON, Versioning.SUSPENDED])
                return SetBucket(SIMULATED_BUCKET, versioning=kept), b""
            case "quota":
                return SetBucket(SIMULATED_BUCKET, quota=self._world.rng.choice([0, 5, 20])), b""
            case "copy" | "copy-new":
                source = CopySource(SIMULATED_BUCKET, step.other)
                conditions = new if step.kind == "copy-new" else Conditions()
                return CopyObject(SIMULATED_BUCKET, key, source, conditions), b""
            case "rename" if key != step.other:
                source = CopySource(SIMULATED_BUCKET, key)
                moved = CopyObject(SIMULATED_BUCKET, step.other, source, new)
                return ObjectBatch((moved, DeleteObject(SIMULATED_BUCKET, key)), atomic=True), b""
            case "batch" | "rename":
                etag, data = self._content()
                source = CopySource(SIMULATED_BUCKET, key)
                return ObjectBatch(
                    (
                        PutObject(SIMULATED_BUCKET, key, data, etag, same),
                        DeleteObject(SIMULATED_BUCKET, step.other, conditions=same),
                        CopyObject(SIMULATED_BUCKET, step.other, source, new),
                    )
                ), b""
            case _:
                etag, data = self._content()
                conditions = {"put-new": new, "put-if": same}.get(step.kind, Conditions())
                return PutObject(SIMULATED_BUCKET, key, b"", etag, conditions), data

    def _upload(self, step: BucketStep) -> None:
        """Begin an upload, make the parts, and complete the upload by two requests.

        A part of "multipart-copy" is a range of another object.
        """
        etag, data = self._content()

        def begun(answer: BucketAnswer | None) -> None:
            if answer is None or answer.result.version is None or not answer.result.done:
                self._ended()
                return
            upload: Version = answer.result.version
            parts: list[tuple[ChangingOperation, bytes]] = [
                (PutPart(SIMULATED_BUCKET, step.key, upload, 1, b"", etag), data)
            ]
            if step.kind == "multipart-copy":
                source = CopySource(SIMULATED_BUCKET, step.other)
                copied = CopyPart(SIMULATED_BUCKET, step.key, upload, 2, source, "c", 2, 5)
                parts.append((copied, b""))
            named = [NamedPart(1, etag), NamedPart(2, "c")][: len(parts)]
            whole = CompleteUpload(
                *(SIMULATED_BUCKET, step.key, upload, tuple(named), f"{etag}-{len(parts)}")
            )
            again = lambda _: self._ask(step, whole, b"", lambda _: self._ended())  # noqa: E731

            def made(answer: BucketAnswer | None) -> None:
                if answer is None or not answer.result.done:
                    self._abort(step, upload)
                elif parts:
                    self._ask(step, *parts.pop(0), made)
                else:
                    self._ask(step, whole, b"", again)

            self._ask(step, *parts.pop(0), made)

        self._ask(step, BeginUpload(SIMULATED_BUCKET, step.key), b"", begun)

    def _abort(self, step: BucketStep, upload: Version) -> None:
        """End an upload after the failure of a part; now and then leave the upload."""
        if self._world.rng.random() < 0.3:
            self._ended()
            return
        ending = AbortUpload(SIMULATED_BUCKET, step.key, upload)
        self._ask(step, ending, b"", lambda _: self._ended())

    # -- a request ---------------------------------------------------------------------------------

    def _ask(
        self,
        step: BucketStep,
        operation: ChangingOperation | None,
        data: bytes,
        done: Callable[[BucketAnswer | None], None],
    ) -> None:
        """Send a request until it is answered, REQUEST_ATTEMPTS times at most."""
        self._asked += 1
        name = invocation = f"{self.name}?{self._asked}".encode()
        first = operation.items[0] if isinstance(operation, ObjectBatch) else operation
        if isinstance(first, PutObject):
            name = first.etag.encode()
            invocation = b"one" if self._ids == "one" else invocation
        if self._ids == "none" or isinstance(operation, UNNAMED_OPERATIONS):
            invocation, name = b"", name if isinstance(first, PutObject) else b""
        conditions = getattr(operation, "conditions", Conditions())
        asked = AskedRequest(
            *(name, self._run.oracle.floor, _kind_of(operation, step), step.key),
            conditions,
        )
        self._run.events.append(asked)
        request = UserRequest(step, operation, data, asked, invocation)
        self._attempt(request, 1, done)

    def _attempt(
        self, request: "UserRequest", number: int, done: Callable[[BucketAnswer | None], None]
    ) -> None:
        """Send an attempt. The connection of an earlier attempt is closed."""
        if request.ended or self.dead:
            return
        request.attempt = number
        repeats = request.invocation or isinstance(request.operation, CreateBucket)
        if number > (REQUEST_ATTEMPTS if repeats else 1):
            self._end(request, None, done)
            return
        world, rng, asked = self._world, self._world.rng, request.asked
        gateways = len(self._run.plan.skews_ms)
        place = request.step.gateway if number == 1 else rng.randrange(gateways)
        world.narrate(f"{self.name} SENDS {asked.name!r} {asked.kind} {asked.key} to {place}")

        def told(answer: BucketAnswer | None, known: int) -> None:
            if answer is None or answer.result.outcome in UNAVAILABLE_OUTCOMES:
                return
            if request.attempt == number and not request.ended and not self.dead:
                self._run.oracle.told(asked, answer, known)
                self._end(request, answer, done)

        def arrive() -> None:
            gateway = self._run.gateway(place)
            if gateway is not None and gateway.stopped:
                world.after(RETRY_S, arrive)
            elif gateway is not None and gateway.serves:
                self._serve(gateway, request, number, told)

        delay_s = world.chances.delay_s * rng.paretovariate(2)
        world.after(delay_s, arrive)
        wait_s = request.step.patience_s + RETRY_S * rng.random()
        world.after(wait_s, self._attempt, request, number + 1, done)

    def _serve(
        self,
        gateway: GatewayProcess,
        request: "UserRequest",
        number: int,
        told: Callable[[BucketAnswer | None, int], None],
    ) -> None:
        """Let a gateway serve an attempt; the answer may be lost."""
        world, rng, run = self._world, self._world.rng, self._run

        session = gateway.session

        def answered(answer: BucketAnswer | None) -> None:
            if answer is not None:
                run.oracle.looked(session.number, answer.position)
            if rng.random() >= run.answer_loss:
                known = gateway.position
                world.after(world.chances.delay_s, told, answer, known)

        ms, key = gateway.ms, request.step.key

        def steps(session: BucketSession) -> Steps:
            if request.operation is None:
                return get_object(session, SIMULATED_BUCKET, key)
            wanted = ChangeRequest(
                *(request.operation, request.data, ms, request.invocation, number)
            )
            return change(session, wanted)

        gateway.begin(steps, answered)

    def _end(
        self,
        request: "UserRequest",
        answer: BucketAnswer | None,
        done: Callable[[BucketAnswer | None], None],
    ) -> None:
        """Keep the etag for the next conditional request, and go on."""
        request.ended = True
        self._world.narrate(f"{self.name} ENDS {request.asked.name!r} with {answer}")
        key, operation = request.step.key, request.operation
        if answer is not None and answer.entry is not None:
            self._seen[key] = answer.entry.etag
        elif answer is not None and answer.result.done and isinstance(operation, PutObject):
            self._seen[key] = operation.etag
        done(answer)


class UserRequest:
    """A request under way. ``attempt``: the number of the last attempt."""

    def __init__(
        self,
        step: BucketStep,
        operation: ChangingOperation | None,
        data: bytes,
        asked: AskedRequest,
        invocation: bytes,
    ) -> None:
        self.invocation = invocation
        self.step = step
        self.operation = operation
        self.data = data
        self.asked = asked
        self.attempt = 0
        self.ended = False


def _kind_of(operation: ChangingOperation | None, step: BucketStep) -> str:
    match operation:
        case None:
            return "get"
        case BeginUpload():
            return "begin"
        case PutPart() | CopyPart() | AbortUpload():
            return "part"
        case SetTags() | SetBucket() | DeleteBucket() | CreateBucket():
            return "tags"
        case _:
            return "delete" if isinstance(operation, DeleteObject) else step.kind
