"""A session's state: jobs and their tasks, Togethers, and rounds that wait for a quorum."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from ares.engine.effects import Gather, Operation, Together
from ares.engine.quorum import QuorumState, Tally
from ares.model.errors import ElementRefused, NotAuthorized, Unavailable, Uncertain
from ares.model.identity import NO_DOMAIN, DomainName, ObjectName, ServerId, shown
from ares.model.messages import REPLY_OF, PutAhead, PutData, Question, Reason

ROUND_RESEND_S = 0.5
SEND_BYTES_PER_S_EXPECTED = 50e6

Key = tuple[DomainName, ObjectName]


class OperationLabel(Struct, frozen=True, gc=False):
    """The label of an operation on an object, or on a file (its ``kind``), printed in errors."""

    what: str
    name: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.what} of {self.kind}{shown(self.name)}"


class OperationRecorder(Protocol):
    """The port to which a session reports the actions of a job (ares/engine/recording.py)."""

    def resumed(self, task: "Task") -> None: ...

    def asked(self, round: "Round") -> None: ...

    def heard(
        self, round: "Round", server: ServerId, reply: Any, connected_s: float | None
    ) -> None: ...

    def asked_rest(self, round: "Round") -> None: ...

    def refused(self, round: "Round", server: ServerId) -> None: ...

    def sent_again(self, round: "Round") -> None: ...

    def waited_long_enough(self, round: "Round") -> None: ...

    def concluded(self, round: "Round", error: Exception | None = None) -> None: ...

    def waits(self, task: "Task", what: str) -> None: ...

    def ended(self, task: "Task") -> None: ...


class Task(Struct, eq=False):
    """A running generator: a job's own, or an operation started by a Together (``fan``).

    ``call``: the round for which the task waits. ``moving``: the task's steps put off the deadline
    of the job, until the task pauses for another try. ``ended``: no event wakes the task any more.
    ``asking``: the task waits for the consensus service. ``recording``: records the task's actions,
    if set.
    """

    generator: Operation[Any]
    fan: "ParallelGroup | None"
    moving: bool
    call: int | None = None
    ended: bool = False
    asking: bool = False
    recording: OperationRecorder | None = None

    @property
    def job(self) -> "Job":
        """Return the job of this task."""
        assert self.fan is not None, "a job's own task is the job"
        return self.fan.job

    def within(self, fan: "ParallelGroup") -> bool:
        """Return whether ``fan`` started this task, or started a task above."""
        above = self.fan
        while above is not None and above is not fan:
            above = above.parent.fan
        return above is fan


class Job(Task, eq=False, kw_only=True):
    """An operation for which a caller waits, and its first task; ``tasks`` run in its Togethers.

    ``done(result, error)`` is called once. ``deadline``: the time of failure; with ``idle`` every
    step except a retry extends the deadline, hence ``timeout_s`` bounds a standstill and not the
    whole. ``key``: jobs with the same key run in sequence. ``label``: prints as the operation.
    ``begun_for``: for a job begun by the compiled core, the ``done`` given to the core.
    """

    label: object
    timeout_s: float
    deadline: float
    done: Callable[[Any, BaseException | None], None]
    idle: bool = False
    key: Key | None = None
    progress: Callable[[Any], None] | None = None
    tasks: dict[Task, None] = {}
    begun_for: object = None

    @property
    def job(self) -> "Job":
        return self

    def put_off(self, now: float) -> None:
        """Extend the deadline after progress."""
        self.deadline = max(self.deadline, now + self.timeout_s)


class ParallelGroup(Struct, eq=False):
    """A Together under way.

    ``parent`` goes on when the operations are exhausted and no task is ``running`` (task to its
    position among the operations).
    """

    job: Job
    parent: Task
    together: Together
    running: dict[Task, int] = {}
    started: int = 0
    filling: bool = False
    broken: bool = False

    @property
    def full(self) -> bool:
        """Return whether the next operation has to wait.

        Never while no task runs, whatever the window: no task would begin the rest.
        """
        if not self.running:
            return False
        window = self.together.window
        occupied = (
            self.started - next(iter(self.running.values()))
            if self.together.ordered
            else len(self.running)
        )
        return occupied >= (window if isinstance(window, int) else window())


class Refusal(str):
    """The reason of a server's refusal.

    ``untouched``: the server did nothing for the round. ``proven``: the refusal came from the
    server, not from a stranger in the handshake.
    """

    reason: Reason
    untouched: bool
    proven: bool


class Round(Tally[Any], eq=False, kw_only=True):
    """A Gather under way, and its answers.

    ``requests`` are kept for sending again; times are the session's. ``unasked``: servers spared up
    to now.
    """

    call: int
    task: Task
    gather: Gather
    requests: Question | list[Question]
    expected: type
    started: float
    resend_after_s: float
    resend_at: float
    give_up_at: float | None
    unasked: tuple[ServerId, ...]
    patient_until: float | None = None

    def request_for(self, server: ServerId) -> Question:
        if isinstance(self.requests, list):
            return self.requests[self.asked.index(server)]
        return self.requests

    def give_up_by(self, at: float) -> None:
        self.give_up_at = min(at, self.give_up_at or at)

    def story(self) -> str:
        """Describe the action under way, for an error message."""
        configuration, what = (
            self.gather.configuration,
            f"{self.task.job.label}: {self.gather.what}",
        )
        if configuration.domain == NO_DOMAIN:
            return what
        return f"{what} in configuration {configuration.index} of domain {configuration.domain!r}"

    def failure(self, troubles: Mapping[ServerId, str]) -> Uncertain:
        """Return the error of a round without a quorum.

        ``troubles``: known reasons why servers cannot be reached.
        """
        refusals = {
            server: why for server, why in self.refusals.items() if isinstance(why, Refusal)
        }
        untouched = sum(why.untouched for why in refusals.values()) == len(self.asked)
        refused = refusals if self.outcome is QuorumState.UNREACHABLE else {}
        denials = {
            server: why for server, why in refused.items() if why.reason is Reason.NOT_AUTHORIZED
        }
        proven = {server: why for server, why in denials.items() if why.proven}
        if proven or (denials and len(self.asked) - len(denials) < self.needed):
            server, why = next(iter((proven or denials).items()))
            return NotAuthorized(f"{server}: {why}", self.story(), untouched)
        kind = (
            ElementRefused
            if any(why.reason is Reason.BAD_ELEMENT for why in refused.values())
            else Unavailable
        )
        error = kind(self.needed, len(self.answers), self.missing(troubles), self.story())
        error.untouched = untouched
        return error


def begin(call: int, task: Task, gather: Gather, now: float) -> Round:
    """Return the round of a Gather for which ``task`` waits."""
    requests = gather.requests(call, *gather.arguments)
    first = requests[0] if isinstance(requests, list) else requests
    asked = gather.configuration.server_ids if gather.to is None else gather.to
    resend_after_s = ROUND_RESEND_S if gather.resend_s is None else gather.resend_s
    if type(first) is PutData or type(first) is PutAhead:
        resend_after_s += first.element.size * len(asked) / SEND_BYTES_PER_S_EXPECTED
    return Round(
        asked,
        gather.needed or gather.configuration.quorum_size,
        call=call,
        task=task,
        gather=gather,
        requests=requests,
        expected=gather.reply or REPLY_OF[type(first)],
        started=now,
        resend_after_s=resend_after_s,
        resend_at=now + resend_after_s,
        give_up_at=None if gather.give_up_s is None else now + gather.give_up_s,
        unasked=() if gather.order is None else gather.order.spared,
    )
