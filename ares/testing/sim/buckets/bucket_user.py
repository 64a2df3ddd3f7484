"""A simulated user of buckets: requests in turn, sent again by its library under one invocation."""

from collections.abc import Callable
from typing import Any, Protocol

from ares.bucket.bucket_requests import BucketAnswer, ChangeRequest, change, get_object
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    BeginUpload,
    ChangingOperation,
    CompleteUpload,
    Conditions,
    CopyObject,
    CopySource,
    CreateBucket,
    DeleteObject,
    NamedPart,
    PutObject,
    PutPart,
)
from ares.bucket.index_records import Version
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


class UserRun(Protocol):
    """The parts of a run for a user."""

    plan: BucketPlan
    world: SimWorld
    oracle: BucketOracle
    events: list[Any]
    answer_loss: float

    def gateway(self, number: int) -> GatewayProcess | None: ...


class BucketUser:
    """A user. ``asked``: the number of its requests. ``seen``: the etag last seen of each key."""

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
        if step.kind == "multipart":
            self._upload(step)
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
            case "copy" | "copy-new":
                source = CopySource(SIMULATED_BUCKET, step.other)
                conditions = new if step.kind == "copy-new" else Conditions()
                return CopyObject(SIMULATED_BUCKET, key, source, conditions), b""
            case _:
                etag, data = self._content()
                conditions = {"put-new": new, "put-if": same}.get(step.kind, Conditions())
                return PutObject(SIMULATED_BUCKET, key, b"", etag, conditions), data

    def _upload(self, step: BucketStep) -> None:
        """Begin an upload, put a part, and complete it; complete it again, in a new request."""
        etag, data = self._content()

        def begun(answer: BucketAnswer | None) -> None:
            if answer is None or answer.result.version is None or not answer.result.done:
                self._ended()
                return
            upload: Version = answer.result.version
            part = PutPart(SIMULATED_BUCKET, step.key, upload, 1, b"", etag)

            def put(answer: BucketAnswer | None) -> None:
                if answer is None or not answer.result.done:
                    self._ended()
                    return
                named = (NamedPart(1, etag),)
                whole = CompleteUpload(SIMULATED_BUCKET, step.key, upload, named, etag)
                again = lambda _: self._ask(step, whole, b"", lambda _: self._ended())  # noqa: E731
                self._ask(step, whole, b"", again)

            self._ask(step, part, data, put)

        self._ask(step, BeginUpload(SIMULATED_BUCKET, step.key), b"", begun)

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
        if isinstance(operation, PutObject):
            name = operation.etag.encode()
            invocation = b"one" if self._ids == "one" else invocation
        if self._ids == "none":
            invocation, name = b"", name if isinstance(operation, PutObject) else b""
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
        """Send an attempt; an answer to an earlier attempt finds a closed connection."""
        if request.ended or self.dead:
            return
        request.attempt = number
        if number > (REQUEST_ATTEMPTS if request.invocation else 1):
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
            elif gateway is not None and gateway.session.is_live:
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
        """Let a gateway serve an attempt; its answer may be lost."""
        world, rng, run = self._world, self._world.rng, self._run

        def answered(answer: BucketAnswer | None) -> None:
            if rng.random() >= run.answer_loss:
                known = gateway.fold.state.position
                world.after(world.chances.delay_s, told, answer, known)

        if request.operation is None:
            steps = get_object(gateway.session, SIMULATED_BUCKET, request.step.key)
        else:
            wanted = ChangeRequest(
                *(request.operation, request.data, gateway.ms, request.invocation, number)
            )
            steps = change(gateway.session, wanted)
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
        case PutPart():
            return "part"
        case _:
            return "delete" if isinstance(operation, DeleteObject) else step.kind
