"""The session's bookkeeping: jobs, the tasks they consist of, and the rounds those wait for. Data only."""

from collections.abc import Callable
from typing import Any

from ares.model.identity import NO_DOMAIN, DomainName, ObjectName, ServerId
from ares.model.messages import REPLY_OF, PutData, Question
from ares.model.quorum import Tally
from ares.operation.effects import Gather, Operation, Together

RESEND_S = 0.5
RESEND_S_MAX = 4.0
SEND_BYTES_PER_S_EXPECTED = 50e6

Key = tuple[DomainName, ObjectName]


class Task:
    """A running generator: a job's own, or one of those its Together started (``fan``). ``call``: the round that it waits for.

    ``moving``: its steps put off the deadline of its job, until it pauses to try something again. ``ended``: nothing wakes it any more.
    """

    __slots__ = ("call", "ended", "fan", "generator", "moving")

    def __init__(self, generator: Operation[Any], fan: "Fan") -> None:
        self.generator = generator
        self.fan: Fan | None = fan
        self.call: int | None = None
        self.moving = fan.job.idle
        self.ended = False

    @property
    def job(self) -> "Job":
        """What it is part of."""
        assert self.fan is not None, "a job's own task is the job"
        return self.fan.job

    def within(self, fan: "Fan") -> bool:
        """Whether ``fan`` started it, or what started it."""
        above = self.fan
        while above is not None and above is not fan:
            above = above.parent.fan
        return above is fan


class Job(Task):
    """One operation that somebody waits for, and its first task; ``tasks`` are those that its Togethers run.

    ``done(result, error)`` is called once. ``deadline``: when it fails; with ``idle`` it moves on with every step that is not a retry, so that
    ``timeout_s`` bounds a standstill and not the whole. ``key``: jobs with the same key run one after the other. ``label``: prints as what it is.
    """

    __slots__ = ("deadline", "done", "idle", "key", "label", "progress", "tasks", "timeout_s")

    def __init__(
        self,
        generator: Operation[Any],
        label: object,
        timeout_s: float,
        deadline: float,
        done: Callable[[Any, BaseException | None], None],
        idle: bool,
        key: Key | None,
        progress: Callable[[Any], None] | None,
    ) -> None:
        self.generator = generator
        self.fan = None
        self.call = None
        self.moving = idle
        self.ended = False
        self.label = label
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.done = done
        self.idle: bool = idle
        self.key = key
        self.progress = progress
        self.tasks: dict[Task, None] = {}

    @property
    def job(self) -> "Job":
        return self

    def put_off(self, now: float) -> None:
        """There is progress."""
        self.deadline = max(self.deadline, now + self.timeout_s)


class Fan:
    """A Together under way: ``parent`` goes on when its operations are exhausted and nothing is ``running`` (task to its place in their order)."""

    __slots__ = ("broken", "filling", "job", "parent", "running", "started", "together")

    def __init__(self, parent: Task, together: Together) -> None:
        self.job = parent.job
        self.parent = parent
        self.together = together
        self.running: dict[Task, int] = {}
        self.started = 0
        self.filling = False
        self.broken = False

    @property
    def full(self) -> bool:
        """Whether the next operation has to wait. Never when nothing runs, whatever the window: nobody would begin the rest."""
        if not self.running:
            return False
        window = self.together.window
        occupied = self.started - next(iter(self.running.values())) if self.together.ordered else len(self.running)
        return occupied >= (window if isinstance(window, int) else window())


class Refusal(str):
    """Why a server refuses. ``untouched``: it certainly did nothing for the round."""

    untouched: bool


class Unfit(Refusal):
    """Why a server refuses what was to be stored."""


class Denial(Refusal):
    """Why a server refuses this client."""


class Unproven(Denial):
    """The same, said in the handshake: anybody may have said it who answers at the server's address, or is on the way there."""


class Round(Tally[Any], eq=False, kw_only=True):
    """A Gather under way, and who has answered it. ``requests`` are kept for sending again; times are the session's.

    ``unasked``: servers that were spared so far.
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

    @property
    def resent(self) -> bool:
        """Whether a server was asked more than once. Until then the first wait is still to end."""
        return self.resend_at - self.started > 1.5 * self.resend_after_s

    @property
    def storing(self) -> bool:
        """Whether it is put-data."""
        return isinstance(self.request_for(self.asked[0]), PutData)

    def request_for(self, server: ServerId) -> Question:
        if isinstance(self.requests, list):
            return self.requests[self.asked.index(server)]
        return self.requests

    def story(self) -> str:
        """What was going on, for an error message."""
        configuration, what = self.gather.configuration, f"{self.task.job.label}: {self.gather.what}"
        if configuration.domain == NO_DOMAIN:
            return what
        return f"{what} in configuration {configuration.index} of domain {configuration.domain!r}"


def begin(call: int, task: Task, gather: Gather, now: float) -> Round:
    """The round for a Gather that ``task`` waits for."""
    requests = gather.requests(call, *gather.arguments)
    first = requests[0] if isinstance(requests, list) else requests
    asked = gather.configuration.server_ids if gather.to is None else gather.to
    resend_after_s = RESEND_S
    if type(first) is PutData:
        resend_after_s += first.element.size * len(asked) / SEND_BYTES_PER_S_EXPECTED
    return Round(
        asked,
        gather.needed or gather.configuration.quorum_size,
        call=call,
        task=task,
        gather=gather,
        requests=requests,
        expected=REPLY_OF[type(first)],
        started=now,
        resend_after_s=resend_after_s,
        resend_at=now + resend_after_s,
        give_up_at=None if gather.give_up_s is None else now + gather.give_up_s,
        unasked=() if gather.order is None else gather.order.spared,
    )
