"""The session's bookkeeping: jobs, the tasks they consist of, and the rounds those wait for. Data only.

Jobs and the generators they consist of: starting, stepping, ending them, one after the other where they share a key, side by side in a Together.

What an effect asks of the world is left to the subclass (ares/operation/session.py).

A session runs operations: it numbers the calls, tallies the answers, sends again, keeps deadlines. No I/O, no clock: ``now`` is an argument.

The shell around it (ares/client/runner.py, or a simulator) takes ``contacts``, the outbox, ``asks`` and ``hints`` after every call and sees to
them, hands replies to ``receive``, and calls ``tick`` every TICK_S while ``busy``.
"""

import heapq
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never

from ares.model.configuration import Configuration, Server
from ares.model.errors import ConfigurationRefused, ElementRefused, NotAuthorized, Superseded, Unavailable, Uncertain
from ares.model.identity import DEFAULT_DOMAIN, NO_DOMAIN, CallId, ConfigurationId, DomainName, ObjectName, ServerId
from ares.model.messages import (
    Ack,
    AnyMessage,
    CollectConfig,
    DataReply,
    Describe,
    Description,
    GetData,
    GetTag,
    Introduce,
    ListObjects,
    ObjectsReply,
    PutData,
    Question,
    ReadConfig,
    Reason,
    Refused,
    TagReply,
    WriteConfig,
)
from ares.model.quorum import Outcome, Tally
from ares.operation.effects import Agree, Announce, Gather, Now, Operation, Pause, Report, Together
from ares.operation.readiness import Readiness

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


class Jobs(ABC):
    """``asks``: for the consensus service, to be answered with ``resume`` or ``fail``. Nothing here or below it iterates over a set: a run with
    the same events is the same run."""

    def __init__(self) -> None:
        self.asks: list[tuple[Agree | Announce, Task]] = []
        self._now = 0.0
        self._pauses: list[tuple[float, int, Task]] = []
        self._pause_count = 0
        self._queues: dict[Key, list[Job]] = {}
        self._jobs: dict[Job, None] = {}

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @abstractmethod
    def _ask(self, task: Task, gather: Gather) -> None:
        """Begin a round for ``task``, which waits for it."""

    @abstractmethod
    def _drop(self, tasks: Iterable[Task]) -> None:
        """Forget the rounds that these tasks wait for."""

    def start(
        self,
        operation: Operation[Any],
        label: object,
        now: float,
        timeout_s: float,
        done: Callable[[Any, BaseException | None], None],
        *,
        idle: bool = False,
        key: Key | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> Job:
        """Begin ``operation``; see :class:`ares.operation.session.Job` for the arguments."""
        self._now = now
        job = Job(operation, label, timeout_s, now + timeout_s, done, idle, key, progress)
        self._jobs[job] = None
        if key is not None:
            queue = self._queues.get(key)
            if queue is not None:
                queue.append(job)
                return job
            self._queues[key] = [job]
        self._step(job, None)
        return job

    def cancel(self, job: Job) -> None:
        """The caller no longer waits: end it without a word."""
        if not job.ended:
            self._end(job)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every job with an error of its own: nobody will run them on. Writes under way may take effect or not."""
        for job in list(self._jobs):
            if not job.ended:
                self._abort(job, error())

    def _end(self, job: Job) -> None:
        """Whatever of it runs runs no more."""
        tasks = [job, *job.tasks]
        self._drop(tasks)
        for task in tasks:
            task.ended = True
            task.generator.close()
        job.tasks.clear()
        self._leave(job)

    def _leave(self, job: Job) -> None:
        """It has ended: let the next of its queue begin."""
        self._jobs.pop(job, None)
        if job.key is None:
            return
        queue = self._queues[job.key]
        first = queue[0] is job
        queue.remove(job)
        if not queue:
            del self._queues[job.key]
        elif first:
            self._step(queue[0], None)

    @property
    def wakes_at(self) -> float | None:
        """When the next pause is over."""
        return self._pauses[0][0] if self._pauses else None

    def wake(self, now: float) -> None:
        """Go on with what has paused long enough."""
        self._now = now
        while self._pauses and self._pauses[0][0] <= now:
            _, _, task = heapq.heappop(self._pauses)
            if not task.ended:
                self._step(task, None)

    def resume(self, task: Task, value: Any, now: float) -> None:
        """Answer an ask."""
        self._now = now
        if not task.ended:
            self._step(task, value)

    def fail(self, task: Task, error: Exception, now: float) -> None:
        """Answer an ask with an error, which is thrown into the operation."""
        self._now = now
        if not task.ended:
            self._step(task, None, error)

    def _step(self, task: Task, value: Any, error: Exception | None = None) -> None:
        if task.moving:
            task.job.put_off(self._now)
        while True:
            try:
                effect = task.generator.send(value) if error is None else task.generator.throw(error)
            except StopIteration as stop:
                return self._finished(task, stop.value, None)
            except Exception as failure:  # whatever an operation raises is for whoever waits for it
                return self._finished(task, None, failure)
            value = error = None
            match effect:
                case Gather():
                    return self._ask(task, effect)
                case Report():
                    error = _told(task.job, effect)
                case Pause():
                    if effect.retry:
                        task.moving = False
                    elif task.job.idle:
                        task.job.put_off(self._now + effect.seconds)
                    self._pause_count += 1
                    return heapq.heappush(self._pauses, (self._now + effect.seconds, self._pause_count, task))
                case Agree() | Announce():
                    return self.asks.append((effect, task))
                case Together():
                    return self._fill(Fan(task, effect))
                case Now():
                    value = self._now
                case _:
                    assert_never(effect)

    def _finished(self, task: Task, value: Any, error: Exception | None) -> None:
        if task.ended:  # by what its report was given to
            return
        task.ended = True
        fan = task.fan
        if fan is None:
            job = task.job
            self._leave(job)
            job.done(value, error)
            return
        del fan.job.tasks[task]
        del fan.running[task]
        if error is None:
            self._fill(fan)
        else:
            self._break(fan, error)

    def _break(self, fan: Fan, error: Exception) -> None:
        """End everything that ``fan`` started, and what that started; its parent gets ``error``."""
        fan.broken = True
        tasks = fan.job.tasks
        others = [task for task in tasks if task.within(fan)]
        self._drop(others)
        for other in others:
            del tasks[other]
            other.ended = True
            other.generator.close()
        self._step(fan.parent, None, error)

    def _fill(self, fan: Fan) -> None:
        """Start operations up to the window; go on with the parent when there are none left."""
        if fan.filling:
            return
        fan.filling = True
        job = fan.job
        while not fan.full:
            try:
                operation = next(fan.together.operations, None)
            except Exception as failure:  # an iterator may load what its operations need
                self._break(fan, failure)
                return
            if operation is None:
                break
            task = Task(operation, fan)
            fan.running[task] = fan.started
            fan.started += 1
            job.tasks[task] = None
            self._step(task, None)
            if job.ended or fan.broken:
                return
        fan.filling = False
        if not fan.running:
            self._step(fan.parent, None)

    def _expire(self, job: Job) -> None:
        """A job past its deadline that no round could be failed for: it pauses, asks the consensus service, or waits in a queue."""
        if not job.ended:
            self._abort(job, Unavailable(0, 0, {}, f"{job.label}: it was still waiting after {job.timeout_s:g} s"))

    def _abort(self, job: Job, error: Uncertain) -> None:
        """Throw ``error`` into whatever of the job waits, which may add what became of it; then end the job, come what may."""
        parents = {task.fan.parent for task in job.tasks if task.fan is not None}
        for task in [task for task in (job, *job.tasks) if task not in parents]:
            if not task.ended:
                self._drop((task,))
                self._step(task, None, error)
        if not job.ended:
            self._end(job)
            job.done(None, error)


def _told(job: Job, report: Report) -> Exception | None:
    """Pass progress on; an exception of the callback is thrown into the operation, as if the report had failed."""
    if job.progress is None:
        return None
    try:
        job.progress(report.progress)
    except Exception as failure:  # the caller's own code: its error goes back to the caller
        return failure
    return None


TICK_S = 0.025
STALL_S = 1.0
HEDGE_USUAL = 3.0
"""A query that takes so many times as long as queries usually do, and at least a tick, is put to the servers that were spared."""

USUAL_ROUNDS = 64
DENIED_S = 0.25
HINT_AGAIN_S = 2.0


_KINDS: dict[Reason, type[Refusal]] = {Reason.NOT_AUTHORIZED: Denial, Reason.BAD_ELEMENT: Unfit}


class Session(Jobs):
    """All operations of one client. ``hints``: domains whose hint is wanted, to be answered with ``hinted``. ``contacts``: servers of
    configurations that were not spoken to before. ``readiness``: which servers are likely to answer soonest. ``troubles``: why servers cannot be
    reached, as far as that is known."""

    def __init__(self, turn: int = 0) -> None:
        super().__init__()
        self.hints: list[DomainName] = []
        self.contacts: list[Server] = []
        self.readiness = Readiness(turn)
        self.troubles: Mapping[ServerId, str] = {}
        self._outbox: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        self._last_call = 0
        self._rounds: dict[int, Round] = {}
        self._met: set[ConfigurationId] = set()
        self._hints_wanted: set[DomainName] = set()
        self._hint_again_at: dict[DomainName, float] = {}
        self._usual_s = 0.0

    @property
    def has_orders(self) -> bool:
        """Whether there is anything for the shell to take, or to wake it for."""
        return bool(self._outbox or self.asks or self.hints or self._pauses)

    # -- rounds ---------------------------------------------------------------------------------------------------------

    def _drop(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if task.call is not None:
                del self._rounds[task.call]
                task.call = None

    def _ask(self, task: Task, gather: Gather) -> None:
        call = task.call = self._last_call = self._last_call + 1
        round = self._rounds[call] = begin(call, task, gather, self._now)
        if gather.configuration.id not in self._met:
            self._meet(gather.configuration, call)
        requests, order, outbox = round.requests, gather.order, self._outbox
        if not isinstance(requests, list):
            for server in round.asked if order is None else order.asked:
                outbox[server].append(requests)
        elif order is None:
            for server, request in zip(round.asked, requests, strict=True):
                outbox[server].append(request)
        else:
            for position in order.first:
                outbox[round.asked[position]].append(requests[position])

    def _meet(self, configuration: Configuration, call: int) -> None:
        """First contact: all servers are to know the configuration, those too that this client would not ask soon. Each knows c0 by itself."""
        self._met.add(configuration.id)
        self.contacts.extend(configuration.servers)
        if configuration.domain != NO_DOMAIN and (configuration.domain, configuration.index) != (DEFAULT_DOMAIN, 0):
            for server in configuration.server_ids:
                self._outbox[server].append(Introduce(CallId(call), configuration))

    def _ask_rest(self, round: Round) -> None:
        unasked, round.unasked = round.unasked, ()
        for server in unasked:
            self._outbox[server].append(round.request_for(server))

    def take_outbox(self) -> dict[ServerId, list[AnyMessage]]:
        """What is to be posted, leaving nothing."""
        outbox, self._outbox = self._outbox, defaultdict(list)
        sent = self.readiness.sent
        for server, messages in outbox.items():
            if type(messages[-1]) is not Introduce:  # nobody answers that
                sent[server] = messages[-1].call
        self.readiness.next_turn()
        return outbox

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Replies from a server. Late, doubled and unexpected ones are dropped."""
        self._now = now
        if messages:
            self.readiness.heard(server, messages[-1].call)
        rounds = self._rounds
        for message in messages:
            round = rounds.get(message.call)
            if round is None:
                if isinstance(message, Refused) and message.call == 0:
                    self._refused_all(server, message)
                continue
            if type(message) is round.expected:
                if round.answer(server, message):
                    self._look(round)
            elif isinstance(message, Refused):
                self._refused(round, server, message)

    def _look(self, round: Round) -> None:
        """A quorum is there: go on, unless the round wants more."""
        gather = round.gather
        if gather.settled is None or gather.settled(round.answers) or round.complete:
            self._conclude(round)
        elif round.patient_until is None and gather.patience_s is not None:
            round.patient_until = self._now + gather.patience_s(round.answers)
            self._ask_rest(round)

    def _conclude(self, round: Round) -> None:
        if round.gather.order is not None:
            self._usual_s += (self._now - round.started - self._usual_s) / USUAL_ROUNDS
        del self._rounds[round.call]
        round.task.call = None
        self._step(round.task, round.answers)

    def _throw(self, round: Round, error: Exception) -> None:
        del self._rounds[round.call]
        round.task.call = None
        self._step(round.task, None, error)

    def _denied(self, round: Round) -> None:
        """No quorum will do this for this client: give up when all have said so, or soon, for a server that is down says nothing.

        Where that is not proven, the servers may have been replaced by others, and somebody else be at their addresses: the hint tells.
        """
        if round.outcome is Outcome.REACHED:
            self._look(round)
        elif round.outcome is Outcome.UNREACHABLE and any(isinstance(why, Unproven) for why in round.refusals.values()):
            self._give_up_soon(round)
            self._want_hint(round.gather.configuration.domain, urgent=True)
        elif round.complete:
            self._throw(round, self._unavailable(round))
        elif round.outcome is Outcome.UNREACHABLE:
            self._give_up_soon(round)

    def _give_up_soon(self, round: Round) -> None:
        round.give_up_at = min(self._now + DENIED_S, round.give_up_at or self._now + DENIED_S)

    def _unavailable(self, round: Round) -> Uncertain:
        untouched = sum(isinstance(why, Refusal) and why.untouched for why in round.refusals.values()) == len(round.asked)
        denials = {server: why for server, why in round.refusals.items() if isinstance(why, Denial)}
        proven = {server: why for server, why in denials.items() if not isinstance(why, Unproven)}
        if round.outcome is Outcome.UNREACHABLE and (proven or len(round.asked) - len(denials) < round.needed):
            server, why = next(iter((proven or denials).items()))
            return NotAuthorized(f"{server}: {why}", round.story(), untouched)
        unfit = round.outcome is Outcome.UNREACHABLE and any(isinstance(why, Unfit) for why in round.refusals.values())
        kind = ElementRefused if unfit else Unavailable
        error = kind(round.needed, len(round.answers), round.missing(self.troubles), round.story())
        error.untouched = untouched
        return error

    def _refused(self, round: Round, server: ServerId, refusal: Refused) -> None:
        configuration = round.gather.configuration
        if refusal.reason is Reason.CONFLICTING_SUCCESSOR:
            self._throw(round, ConfigurationRefused(f"{server} refuses a second decision: {refusal.detail}. Nothing was changed there"))
            return
        if server in round.refusals or server in round.answers:  # it answered, then lost its memory: a doubled request is none to insist on
            return
        if refusal.reason is Reason.UNKNOWN_CONFIGURATION:
            self._outbox[server].append(Introduce(CallId(round.call), configuration))
            self._outbox[server].append(round.request_for(server))
            return
        denied = refusal.reason is Reason.NOT_AUTHORIZED
        kind = _KINDS.get(refusal.reason, Refusal)
        why = (Unproven if denied and not refusal.call else kind)(refusal.detail)
        why.untouched = refusal.call == round.call and not round.resent
        round.refuse(server, why)
        self._ask_rest(round)
        if denied:
            self._denied(round)
            return
        if round.outcome is Outcome.REACHED:
            self._look(round)
        elif round.outcome is Outcome.UNREACHABLE:
            if refusal.reason is Reason.OTHER_CLUSTER:
                self._throw(round, ConfigurationRefused(f"{server} refuses: {refusal.detail}"))
            else:
                self._want_hint(configuration.domain, urgent=True)

    def _refused_all(self, server: ServerId, refusal: Refused) -> None:
        """A server could not read a whole batch: count it as refusing whatever still waits for it."""
        for round in list(self._rounds.values()):
            if server in round.asked and round.call in self._rounds:
                self._refused(round, server, refusal)

    # -- stalls ---------------------------------------------------------------------------------------------------------

    def _want_hint(self, domain: DomainName, urgent: bool = False) -> None:
        if domain not in self._hints_wanted and (urgent or self._now >= self._hint_again_at.get(domain, 0.0)):
            self._hints_wanted.add(domain)
            self.hints.append(domain)

    def hinted(self, domain: DomainName, newer: Configuration | None, now: float) -> None:
        """The last finalized configuration that the consensus service knows of ``domain``, if any: rounds in older ones go on there."""
        self._now = now
        self._hints_wanted.discard(domain)
        self._hint_again_at[domain] = now + HINT_AGAIN_S
        for round in list(self._rounds.values()):
            configuration = round.gather.configuration
            if round.call not in self._rounds or configuration.domain != domain:
                continue
            if newer is not None and newer.index > configuration.index and newer.cluster_id == configuration.cluster_id:
                self._throw(round, Superseded(newer))
            elif round.outcome is Outcome.UNREACHABLE:
                if round.storing and not round.complete:  # whether anything was stored is known when all have said that they refuse
                    self._give_up_soon(round)
                else:
                    self._throw(round, self._unavailable(round))

    def tick(self, now: float) -> None:
        """Let time pass: wake pauses, send again, ask for hints, end what took too long."""
        self.wake(now)
        for round in list(self._rounds.values()):
            if round.call in self._rounds:
                self._age(round)
        for job in [job for job in self._jobs if job.deadline <= now]:
            self._expire(job)

    def _age(self, round: Round) -> None:
        now = self._now
        if round.give_up_at is not None and now >= round.give_up_at:
            self._suspect(round)
            self._throw(round, self._unavailable(round))
        elif round.patient_until is not None:
            if now >= round.patient_until:
                self._suspect(round)
                self._conclude(round)
        elif now >= round.task.job.deadline:
            self._throw(round, self._unavailable(round))
        else:
            if round.unasked and now >= round.started + max(TICK_S, HEDGE_USUAL * self._usual_s):
                self._ask_rest(round)
            if now >= round.resend_at:
                self._suspect(round)
                round.unasked = ()
                round.resend_after_s = min(round.resend_after_s * 2, max(RESEND_S_MAX, round.resend_after_s))
                round.resend_at = now + round.resend_after_s
                for server in round.asked:
                    if server not in round.answers and server not in round.refusals:
                        self._outbox[server].append(round.request_for(server))
            if now - round.started >= STALL_S and len(round.answers) < round.needed:
                self._want_hint(round.gather.configuration.domain)

    def _suspect(self, round: Round) -> None:
        silent = (server for server in round.asked if server not in round.answers and server not in round.unasked)
        self.readiness.suspects.update(silent)
