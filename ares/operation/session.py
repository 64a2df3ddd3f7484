"""A session runs the operations of one client: it numbers calls, counts answers, sends again and keeps deadlines. No I/O, no clock: ``now`` is given.

The shell around it (ares/client/runner.py, or a simulator) takes ``contacts``, the outbox, ``asks`` and ``hints`` after every call and sees to
them, hands replies to ``receive``, and calls ``tick`` every TICK_S while ``busy``.

An operation that a caller waits for is a job. Its generator is a task, and so is every operation that its Togethers run; a task waits for a round
(a Gather), a pause, an answer of the consensus service, or its own Together. Jobs that share a key run one after the other.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never

from msgspec import Struct

from ares.model.configuration import Configuration, Server
from ares.model.errors import ConfigurationRefused, ElementRefused, NotAuthorized, Superseded, Unavailable, Uncertain
from ares.model.identity import DEFAULT_DOMAIN, NO_DOMAIN, CallId, ConfigurationId, DomainName, ObjectName, ServerId
from ares.model.messages import REPLY_OF, AnyMessage, Introduce, PutData, Question, Reason, Refused
from ares.model.quorum import Outcome, Tally
from ares.operation.effects import Agree, Announce, Gather, Now, Operation, Pause, Report, Together
from ares.operation.readiness import Readiness
from ares.operation.recording import Recording

TICK_S = 0.025
RESEND_S = 0.5
RESEND_S_MAX = 4.0
SEND_BYTES_PER_S_EXPECTED = 50e6
STALL_S = 1.0
HEDGE_USUAL = 3.0
"""A query that takes so many times as long as queries usually do, and at least a tick, is put to the servers that were spared."""

USUAL_ROUNDS = 64
DENIED_S = 0.25
HINT_AGAIN_S = 2.0

Key = tuple[DomainName, ObjectName]


class Task(Struct, eq=False):
    """A running generator: a job's own, or one of those that its Together started (``fan``). ``call``: the round that it waits for.

    ``moving``: its steps put off the deadline of its job, until it pauses to try something again. ``ended``: nothing wakes it any more.
    ``recording``: told of what it does, if somebody wants to know.
    """

    generator: Operation[Any]
    fan: "Fan | None"
    moving: bool
    call: int | None = None
    ended: bool = False
    recording: Recording | None = None

    @property
    def job(self) -> "Job":
        """What it is part of."""
        assert self.fan is not None, "a job's own task is the job"
        return self.fan.job

    def within(self, fan: "Fan") -> bool:
        """Whether ``fan`` started it, or started a task above it."""
        above = self.fan
        while above is not None and above is not fan:
            above = above.parent.fan
        return above is fan


class Job(Task, eq=False, kw_only=True):
    """One operation that a caller waits for, and its first task; ``tasks`` are those that its Togethers run.

    ``done(result, error)`` is called once. ``deadline``: when it fails; with ``idle`` it moves on with every step that is not a retry, so that
    ``timeout_s`` bounds a standstill and not the whole. ``key``: jobs with the same key run one after the other. ``label``: prints as what it is.
    """

    label: object
    timeout_s: float
    deadline: float
    done: Callable[[Any, BaseException | None], None]
    idle: bool = False
    key: Key | None = None
    progress: Callable[[Any], None] | None = None
    tasks: dict[Task, None] = {}

    @property
    def job(self) -> "Job":
        return self

    def put_off(self, now: float) -> None:
        """There is progress."""
        self.deadline = max(self.deadline, now + self.timeout_s)


class Fan(Struct, eq=False):
    """A Together under way: ``parent`` goes on when its operations are exhausted and nothing is ``running`` (task to its place in their order)."""

    job: Job
    parent: Task
    together: Together
    running: dict[Task, int] = {}
    started: int = 0
    filling: bool = False
    broken: bool = False

    @property
    def full(self) -> bool:
        """Whether the next operation has to wait. Never when nothing runs, whatever the window: nobody would begin the rest."""
        if not self.running:
            return False
        window = self.together.window
        occupied = self.started - next(iter(self.running.values())) if self.together.ordered else len(self.running)
        return occupied >= (window if isinstance(window, int) else window())


class Refusal(str):
    """Why a server refuses. ``untouched``: it did nothing for the round. ``proven``: the server said it, not a stranger in the handshake."""

    reason: Reason
    untouched: bool
    proven: bool


class Round(Tally[Any], eq=False, kw_only=True):
    """A Gather under way, and its answers. ``requests`` are kept for sending again; times are the session's.

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

    def request_for(self, server: ServerId) -> Question:
        if isinstance(self.requests, list):
            return self.requests[self.asked.index(server)]
        return self.requests

    def give_up_by(self, at: float) -> None:
        self.give_up_at = min(at, self.give_up_at or at)

    def story(self) -> str:
        """What was going on, for an error message."""
        configuration, what = self.gather.configuration, f"{self.task.job.label}: {self.gather.what}"
        if configuration.domain == NO_DOMAIN:
            return what
        return f"{what} in configuration {configuration.index} of domain {configuration.domain!r}"

    def failure(self, troubles: Mapping[ServerId, str]) -> Uncertain:
        """The error of a round that has no quorum. ``troubles``: why servers cannot be reached, as far as that is known."""
        refusals = {server: why for server, why in self.refusals.items() if isinstance(why, Refusal)}
        untouched = sum(why.untouched for why in refusals.values()) == len(self.asked)
        refused = refusals if self.outcome is Outcome.UNREACHABLE else {}
        denials = {server: why for server, why in refused.items() if why.reason is Reason.NOT_AUTHORIZED}
        proven = {server: why for server, why in denials.items() if why.proven}
        if proven or (denials and len(self.asked) - len(denials) < self.needed):
            server, why = next(iter((proven or denials).items()))
            return NotAuthorized(f"{server}: {why}", self.story(), untouched)
        kind = ElementRefused if any(why.reason is Reason.BAD_ELEMENT for why in refused.values()) else Unavailable
        error = kind(self.needed, len(self.answers), self.missing(troubles), self.story())
        error.untouched = untouched
        return error


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


class Session:
    """All operations of one client. Nothing here iterates over a set: a run with the same events is the same run.

    ``asks``: for the consensus service, to be answered with ``resume`` or ``fail``. ``hints``: domains whose hint is wanted, to be answered with
    ``hinted``. ``contacts``: servers of configurations that were not spoken to before. ``readiness``: which servers are likely to answer soonest.
    ``troubles``: why servers cannot be reached, as far as that is known.
    """

    def __init__(self, turn: int = 0) -> None:
        self.asks: list[tuple[Agree | Announce, Task]] = []
        self.hints: list[DomainName] = []
        self.contacts: list[Server] = []
        self.readiness = Readiness(turn)
        self.troubles: Mapping[ServerId, str] = {}
        self._now = 0.0
        self._pauses: list[tuple[float, int, Task]] = []
        self._pause_count = 0
        self._queues: dict[Key, list[Job]] = {}
        self._jobs: dict[Job, None] = {}
        self._outbox: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        self._last_call = 0
        self._rounds: dict[int, Round] = {}
        self._met: set[ConfigurationId] = set()
        self._hints_wanted: set[DomainName] = set()
        self._hint_again_at: dict[DomainName, float] = {}
        self._usual_s = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @property
    def has_orders(self) -> bool:
        """Whether there is anything for the shell to take, or to wake it for."""
        return bool(self._outbox or self.asks or self.hints or self._pauses)

    @property
    def wakes_at(self) -> float | None:
        """When the next pause is over."""
        return self._pauses[0][0] if self._pauses else None

    # -- jobs -----------------------------------------------------------------------------------------------------------

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
        recording: Recording | None = None,
    ) -> Job:
        """Begin ``operation``; see :class:`Job` for the arguments."""
        self._now = now
        job = Job(operation, None, idle, label=label, timeout_s=timeout_s, deadline=now + timeout_s, done=done, idle=idle, key=key, progress=progress)
        job.recording = recording
        self._jobs[job] = None
        if key is not None:
            queue = self._queues.get(key)
            if queue is not None:
                if recording is not None:
                    recording.waits(job, "queue")
                queue.append(job)
                return job
            self._queues[key] = [job]
        self._step(job, None)
        return job

    def cancel(self, job: Job) -> None:
        """The caller no longer waits: end the job without a word."""
        if not job.ended:
            self._end(job)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every job with an error of its own: nobody will run them on. Writes under way may take effect or not."""
        for job in list(self._jobs):
            if not job.ended:
                self._abort(job, error())

    def _end(self, job: Job) -> None:
        """Stop every task of the job."""
        tasks = [job, *job.tasks]
        job.tasks.clear()
        self._stop(tasks)
        self._leave(job)

    def _stop(self, tasks: Iterable[Task]) -> None:
        self._drop(tasks)
        for task in tasks:
            task.ended = True
            task.generator.close()
            if task.recording is not None:
                task.recording.ended(task)

    def _leave(self, job: Job) -> None:
        """The job has ended: let the next of its queue begin."""
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

    def wake(self, now: float) -> None:
        """Go on with what has paused long enough."""
        self._now = now
        while self._pauses and self._pauses[0][0] <= now:
            _, _, task = heapq.heappop(self._pauses)
            if not task.ended:
                self._step(task, None)

    def resume(self, task: Task, value: Any, now: float, error: Exception | None = None) -> None:
        """Answer an ask."""
        self._now = now
        if not task.ended:
            self._step(task, value, error)

    def fail(self, task: Task, error: Exception, now: float) -> None:
        """Answer an ask with an error, which is thrown into the operation."""
        self.resume(task, None, now, error)

    def _step(self, task: Task, value: Any, error: Exception | None = None) -> None:
        if task.moving:
            task.job.put_off(self._now)
        recording = task.recording
        if recording is not None:
            recording.resumed(task)
        while True:
            try:
                effect = task.generator.send(value) if error is None else task.generator.throw(error)
            except StopIteration as stop:
                return self._finished(task, stop.value, None)
            except Exception as failure:  # the caller gets whatever an operation raises
                return self._finished(task, None, failure)
            value = error = None
            match effect:
                case Gather():
                    return self._ask(task, effect)
                case Report():
                    try:
                        if task.job.progress is not None:
                            task.job.progress(effect.progress)
                    except Exception as failure:  # the caller's own code: thrown into the operation, as if the report had failed
                        error = failure
                case Pause():
                    if effect.retry:
                        task.moving = False
                    elif task.job.idle:
                        task.job.put_off(self._now + effect.seconds)
                    if recording is not None:
                        recording.waits(task, "pause")
                    self._pause_count += 1
                    return heapq.heappush(self._pauses, (self._now + effect.seconds, self._pause_count, task))
                case Agree() | Announce():
                    if recording is not None:
                        recording.waits(task, "consensus")
                    return self.asks.append((effect, task))
                case Together():
                    return self._fill(Fan(task.job, task, effect))
                case Now():
                    value = self._now
                case _:
                    assert_never(effect)

    def _finished(self, task: Task, value: Any, error: Exception | None) -> None:
        if task.ended:  # its report was given to a caller who cancelled it
            return
        task.ended = True
        if task.recording is not None:
            task.recording.ended(task)
        fan = task.fan
        if fan is None:
            job = task.job
            self._leave(job)
            job.done(value, error)
            return
        del fan.job.tasks[task], fan.running[task]
        if error is None:
            self._fill(fan)
        else:
            self._break(fan, error)

    def _break(self, fan: Fan, error: Exception) -> None:
        """End everything that ``fan`` started, and what that started; its parent gets ``error``."""
        fan.broken = True
        others = [task for task in fan.job.tasks if task.within(fan)]
        for other in others:
            del fan.job.tasks[other]
        self._stop(others)
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
            task = Task(operation, fan, job.idle, recording=job.recording)
            fan.running[task] = fan.started
            fan.started += 1
            job.tasks[task] = None
            self._step(task, None)
            if job.ended or fan.broken:
                return
        fan.filling = False
        if not fan.running:
            self._step(fan.parent, None)

    def _abort(self, job: Job, error: Uncertain) -> None:
        """Throw ``error`` into every task of the job that waits, which may add what became of it; then end the job, come what may."""
        parents = {task.fan.parent for task in job.tasks if task.fan is not None}
        for task in [task for task in (job, *job.tasks) if task not in parents]:
            if not task.ended:
                self._drop((task,))
                self._step(task, None, error)
        if not job.ended:
            self._end(job)
            job.done(None, error)

    # -- rounds ---------------------------------------------------------------------------------------------------------

    def _drop(self, tasks: Iterable[Task]) -> None:
        """Forget the rounds that these tasks wait for."""
        for task in tasks:
            if task.call is not None:
                del self._rounds[task.call]
                task.call = None

    def _ask(self, task: Task, gather: Gather) -> None:
        call = task.call = self._last_call = self._last_call + 1
        round = self._rounds[call] = begin(call, task, gather, self._now)
        if task.recording is not None:
            task.recording.asked(round)
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
                if isinstance(message, Refused) and message.call == 0:  # it could not read a whole batch: it refuses every round that waits for it
                    for waiting in [waiting for waiting in rounds.values() if server in waiting.asked]:
                        if waiting.call in rounds:
                            self._refused(waiting, server, message)
            elif type(message) is round.expected:
                if round.task.recording is not None:
                    round.task.recording.heard(round, server, message)
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
        task = round.task
        task.call = None
        if task.recording is not None:
            task.recording.concluded(round)
        self._step(task, round.answers)

    def _throw(self, round: Round, error: Exception | None = None) -> None:
        """End a round with an error; without one given, with that of a round that has no quorum."""
        del self._rounds[round.call]
        task = round.task
        task.call = None
        error = error or round.failure(self.troubles)
        if task.recording is not None:
            task.recording.concluded(round, error)
        self._step(task, None, error)

    def _refused(self, round: Round, server: ServerId, refusal: Refused) -> None:
        reason, configuration = refusal.reason, round.gather.configuration
        if reason is Reason.CONFLICTING_SUCCESSOR:
            self._throw(round, ConfigurationRefused(f"{server} refuses a second decision: {refusal.detail}. Nothing was changed there"))
            return
        if server in round.refusals or server in round.answers:  # it answered, then lost its memory: a doubled request is none to insist on
            return
        if reason is Reason.UNKNOWN_CONFIGURATION:
            self._outbox[server] += [Introduce(CallId(round.call), configuration), round.request_for(server)]
            return
        why = Refusal(refusal.detail)
        why.reason, why.proven = reason, refusal.call != 0
        asked_once = round.resend_at - round.started <= 1.5 * round.resend_after_s  # the first wait is still to end
        why.untouched = refusal.call == round.call and asked_once
        round.refuse(server, why)
        self._ask_rest(round)
        if round.outcome is Outcome.REACHED:
            self._look(round)
        elif reason is Reason.NOT_AUTHORIZED:
            self._denied(round)
        elif round.outcome is Outcome.UNREACHABLE:
            if reason is Reason.OTHER_CLUSTER:
                self._throw(round, ConfigurationRefused(f"{server} refuses: {refusal.detail}"))
            else:
                self._want_hint(configuration.domain, urgent=True)

    def _denied(self, round: Round) -> None:
        """No quorum will do this for this client: give up when all have said so, or soon, for a server that is down says nothing.

        Where that is not proven, the servers may have been replaced, and strangers be at their addresses: the hint tells.
        """
        unreachable = round.outcome is Outcome.UNREACHABLE
        unproven = any(isinstance(why, Refusal) and why.reason is Reason.NOT_AUTHORIZED and not why.proven for why in round.refusals.values())
        if round.complete and not (unreachable and unproven):
            self._throw(round)
        elif unreachable:
            round.give_up_by(self._now + DENIED_S)
            if unproven:
                self._want_hint(round.gather.configuration.domain, urgent=True)

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
                if isinstance(round.request_for(round.asked[0]), PutData) and not round.complete:
                    round.give_up_by(now + DENIED_S)  # whether anything was stored is known when all have said that they refuse
                else:
                    self._throw(round)

    def tick(self, now: float) -> None:
        """Let time pass: go on with what paused, send again, ask for hints, end what took too long."""
        self.wake(now)
        for round in list(self._rounds.values()):
            if round.call in self._rounds:
                self._age(round)
        for job in [job for job in self._jobs if job.deadline <= now]:
            if not job.ended:  # no round could be failed for it: it pauses, asks the consensus service, or waits in a queue
                self._abort(job, Unavailable(0, 0, {}, f"{job.label}: it was still waiting after {job.timeout_s:g} s"))

    def _age(self, round: Round) -> None:
        now = self._now
        if round.give_up_at is not None and now >= round.give_up_at:
            self._suspect(round)
            self._throw(round)
        elif round.patient_until is not None:
            if now >= round.patient_until:
                self._suspect(round)
                self._conclude(round)
        elif now >= round.task.job.deadline:
            self._throw(round)
        else:
            if round.unasked and now >= round.started + max(TICK_S, HEDGE_USUAL * self._usual_s):
                self._ask_rest(round)
            if now >= round.resend_at:
                self._suspect(round)
                round.unasked = ()
                round.resend_after_s = min(round.resend_after_s * 2, max(RESEND_S_MAX, round.resend_after_s))
                round.resend_at = now + round.resend_after_s
                if round.task.recording is not None:
                    round.task.recording.sent_again(round)
                for server in round.asked:
                    if server not in round.answers and server not in round.refusals:
                        self._outbox[server].append(round.request_for(server))
            if now - round.started >= STALL_S and len(round.answers) < round.needed:
                self._want_hint(round.gather.configuration.domain)

    def _suspect(self, round: Round) -> None:
        self.readiness.suspects.update(server for server in round.asked if server not in round.answers and server not in round.unasked)
