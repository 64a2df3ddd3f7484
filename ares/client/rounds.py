"""The session's bookkeeping: jobs, the tasks they consist of, and the rounds those wait for. Data only."""

from collections.abc import Callable
from typing import Any

from ares.effects import Gather, Operation, Together
from ares.identity import NO_DOMAIN, CallId, DomainName, ObjectName, ServerId
from ares.messages import (
    Ack,
    CollectConfig,
    DataReply,
    Describe,
    Description,
    GetData,
    GetTag,
    ListObjects,
    ObjectsReply,
    PutData,
    Question,
    ReadConfig,
    TagReply,
    WriteConfig,
)
from ares.quorum import Tally

REPLY_OF: dict[type, type] = {
    GetTag: TagReply,
    GetData: DataReply,
    PutData: Ack,
    ReadConfig: Ack,
    WriteConfig: Ack,
    CollectConfig: Ack,
    ListObjects: ObjectsReply,
    Describe: Description,
}

RESEND_S = 0.5
RESEND_S_MAX = 4.0
SEND_BYTES_PER_S_EXPECTED = 50e6

Key = tuple[DomainName, ObjectName]


class Job:
    """One operation that somebody waits for.

    ``done(result, error)`` is called once. ``deadline``: when it fails; with ``idle`` it moves on with every step that is not a retry, so that
    ``timeout_s`` bounds a standstill and not the whole. ``key``: jobs with the same key run one after the other.
    """

    __slots__ = ("deadline", "done", "ended", "idle", "key", "label", "progress", "tasks", "timeout_s")

    def __init__(
        self,
        label: str,
        timeout_s: float,
        deadline: float,
        done: Callable[[Any, BaseException | None], None],
        idle: bool,
        key: Key | None,
        progress: Callable[[Any], None] | None,
    ) -> None:
        self.label = label
        self.timeout_s = timeout_s
        self.deadline = deadline
        self.done = done
        self.idle = idle
        self.key = key
        self.progress = progress
        self.tasks: dict[Task, None] = {}
        self.ended = False


class Task:
    """A running generator: a job's own, or one of those its Together started (``fan``). ``call``: the round that it waits for.

    ``retrying``: it has paused to try something again, so its steps no longer count as progress.
    """

    __slots__ = ("call", "fan", "generator", "job", "retrying")

    def __init__(self, generator: Operation[Any], job: Job, fan: "Fan | None" = None) -> None:
        self.generator = generator
        self.job = job
        self.fan = fan
        self.call: CallId | None = None
        self.retrying = False

    def within(self, fan: "Fan") -> bool:
        """Whether ``fan`` started it, or what started it."""
        above = self.fan
        while above is not None and above is not fan:
            above = above.parent.fan
        return above is fan


class Fan:
    """A Together under way: ``parent`` goes on when its operations are exhausted and nothing is ``running`` (task to its place in their order)."""

    __slots__ = ("broken", "filling", "parent", "running", "started", "together")

    def __init__(self, parent: Task, together: Together) -> None:
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


class Denial(Refusal):
    """Why a server refuses this client."""


class Round:
    """A Gather under way. ``requests`` are kept for sending again; times are the session's. ``unasked``: servers that were spared so far."""

    __slots__ = (
        "call",
        "expected",
        "gather",
        "give_up_at",
        "patient_until",
        "requests",
        "resend_after_s",
        "resend_at",
        "started",
        "tally",
        "task",
        "unasked",
    )

    def __init__(self, call: CallId, task: Task, gather: Gather, requests: Question | list[Question], now: float) -> None:
        self.call = call
        self.task = task
        self.gather = gather
        self.requests = requests
        first = requests[0] if isinstance(requests, list) else requests
        self.expected = REPLY_OF[type(first)]
        asked = gather.to if gather.to is not None else gather.configuration.server_ids
        self.tally: Tally[Any] = Tally(asked, gather.needed or gather.configuration.quorum_size)
        self.started = now
        self.resend_after_s = RESEND_S
        if isinstance(first, PutData):
            self.resend_after_s += first.element.size * len(asked) / SEND_BYTES_PER_S_EXPECTED
        self.resend_at = now + self.resend_after_s
        self.give_up_at = now + gather.give_up_s if gather.give_up_s is not None else None
        self.patient_until: float | None = None
        self.unasked: list[ServerId] = []

    @property
    def resent(self) -> bool:
        """Whether a server was asked more than once. Until then the first wait is still to end."""
        return self.resend_at - self.started > 1.5 * self.resend_after_s

    @property
    def storing(self) -> bool:
        """Whether it is put-data."""
        return isinstance(self.request_for(self.tally.asked[0]), PutData)

    def request_for(self, server: ServerId) -> Question:
        if isinstance(self.requests, list):
            return self.requests[self.tally.asked.index(server)]
        return self.requests

    def story(self) -> str:
        """What was going on, for an error message."""
        configuration, what = self.gather.configuration, f"{self.task.job.label}: {self.gather.what}"
        if configuration.domain == NO_DOMAIN:
            return what
        return f"{what} in configuration {configuration.index} of domain {configuration.domain!r}"
