"""A session runs operations: it numbers the calls, tallies the answers, sends again, keeps deadlines. No I/O, no clock: ``now`` is an argument.

The shell around it (ares/client/runner.py, or a simulator) takes ``contacts``, the outbox, ``asks`` and ``hints`` after every call and sees to
them, hands replies to ``receive``, and calls ``tick`` every TICK_S while ``busy``.
"""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from ares.client.rounds import RESEND_S_MAX, Fan, Job, Key, Round, Task
from ares.configuration import Configuration, Server
from ares.effects import Agree, Announce, Gather, Operation, Pause, Report, Together
from ares.errors import ConfigurationRefused, Superseded, Unavailable
from ares.identity import CallId, ConfigurationId, DomainName, ServerId
from ares.messages import AnyMessage, Introduce, Reason, Refused
from ares.quorum import Outcome

TICK_S = 0.025
STALL_S = 1.0
HINT_AGAIN_S = 2.0
INTRODUCTIONS_MAX = 3


class Session:
    """All operations of one client. ``asks``: for the consensus service, to be answered with ``resume`` or ``fail``. ``hints``: domains
    whose hint is wanted, to be answered with ``hinted``. ``contacts``: servers of configurations that were not spoken to before."""

    def __init__(self) -> None:
        self._outbox: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        self.asks: list[tuple[Agree | Announce, Task]] = []
        self.hints: list[DomainName] = []
        self.contacts: list[Server] = []
        self.suspects: set[ServerId] = set()
        self._now = 0.0
        self._last_call = 0
        self._rounds: dict[CallId, Round] = {}
        self._pauses: list[tuple[float, int, Task]] = []
        self._pause_count = 0
        self._queues: dict[Key, deque[tuple[Job, Operation[Any]]]] = {}
        self._jobs: set[Job] = set()
        self._met: set[ConfigurationId] = set()
        self._hints_wanted: set[DomainName] = set()
        self._hint_again_at: dict[DomainName, float] = {}

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    # -- jobs -----------------------------------------------------------------------------------------------------------

    def start(
        self,
        operation: Operation[Any],
        label: str,
        now: float,
        timeout_s: float,
        done: Callable[[Any, BaseException | None], None],
        *,
        idle: bool = False,
        key: Key | None = None,
        progress: Callable[[Any], None] | None = None,
    ) -> Job:
        """Begin ``operation``; see :class:`ares.client.rounds.Job` for the arguments."""
        self._now = now
        job = Job(label, timeout_s, now + timeout_s, done, idle, key, progress)
        self._jobs.add(job)
        if key is not None:
            queue = self._queues.setdefault(key, deque())
            queue.append((job, operation))
            if len(queue) > 1:
                return job
        self._launch(job, operation)
        return job

    def cancel(self, job: Job) -> None:
        """The caller no longer waits: end it without a word."""
        if not job.ended:
            self._end(job)

    def _launch(self, job: Job, operation: Operation[Any]) -> None:
        task = Task(operation, job)
        job.tasks.add(task)
        self._step(task, None)

    def _end(self, job: Job) -> None:
        job.ended = True
        self._jobs.discard(job)
        for call in [call for call, round in self._rounds.items() if round.task.job is job] if job.tasks else ():
            del self._rounds[call]
        for task in list(job.tasks):
            task.generator.close()
        job.tasks.clear()
        if job.key is not None:
            self._leave_queue(job, job.key)

    def _leave_queue(self, job: Job, key: Key) -> None:
        queue = self._queues[key]
        first = queue[0][0] is job
        for entry in queue:
            if entry[0] is job:
                queue.remove(entry)
                break
        if not queue:
            del self._queues[key]
        elif first:
            self._launch(*queue[0])

    # -- tasks ----------------------------------------------------------------------------------------------------------

    def resume(self, task: Task, value: Any, now: float) -> None:
        """Answer an ask."""
        self._now = now
        if task in task.job.tasks:
            self._step(task, value)

    def fail(self, task: Task, error: Exception, now: float) -> None:
        """Answer an ask with an error, which is thrown into the operation."""
        self._now = now
        if task in task.job.tasks:
            self._step(task, None, error)

    def _step(self, task: Task, value: Any, error: Exception | None = None) -> None:
        job = task.job
        if job.idle:
            job.deadline = self._now + job.timeout_s
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
                    error = _told(job, effect)
                case Pause():
                    self._pause_count += 1
                    return heapq.heappush(self._pauses, (self._now + effect.seconds, self._pause_count, task))
                case Agree() | Announce():
                    return self.asks.append((effect, task))
                case Together():
                    return self._fill(Fan(task, effect.operations, effect.window))
                case _:
                    assert_never(effect)

    def _finished(self, task: Task, value: Any, error: Exception | None) -> None:
        job, fan = task.job, task.fan
        job.tasks.discard(task)
        if fan is None:
            self._end(job)
            job.done(value, error)
            return
        fan.running.discard(task)
        if error is None:
            self._fill(fan)
            return
        fan.broken = True
        for call in [call for call, round in self._rounds.items() if round.task in fan.running]:
            del self._rounds[call]
        for other in fan.running:
            job.tasks.discard(other)
            other.generator.close()
        self._step(fan.parent, None, error)

    def _fill(self, fan: Fan) -> None:
        """Start operations up to the window; go on with the parent when there are none left."""
        if fan.filling:
            return
        fan.filling = True
        job = fan.parent.job
        while len(fan.running) < fan.window:
            operation = next(fan.waiting, None)
            if operation is None:
                break
            task = Task(operation, job, fan)
            fan.running.add(task)
            job.tasks.add(task)
            self._step(task, None)
            if job.ended or fan.broken:
                return
        fan.filling = False
        if not fan.running:
            self._step(fan.parent, None)

    # -- rounds ---------------------------------------------------------------------------------------------------------

    def _ask(self, task: Task, gather: Gather) -> None:
        self._last_call += 1
        call = CallId(self._last_call)
        requests = gather.requests(call)
        outbox = self._outbox
        round = self._rounds[call] = Round(call, task, gather, requests, self._now)
        if gather.configuration.id not in self._met:
            self._met.add(gather.configuration.id)
            self.contacts.extend(gather.configuration.servers)
        if isinstance(requests, Sequence):
            for server, request in zip(round.tally.asked, requests, strict=True):
                outbox[server].append(request)
        else:
            for server in round.tally.asked:
                outbox[server].append(requests)

    def take_outbox(self) -> dict[ServerId, list[AnyMessage]]:
        """What is to be posted, leaving nothing."""
        outbox, self._outbox = self._outbox, defaultdict(list)
        return outbox

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Replies from a server. Late, doubled and unexpected ones are dropped."""
        self._now = now
        self.suspects.discard(server)
        rounds = self._rounds
        for message in messages:
            round = rounds.get(message.call)
            if round is None:
                if isinstance(message, Refused) and message.call == 0:
                    self._refused_all(server, message)
                continue
            tally = round.tally
            if type(message) is round.expected:
                tally.answer(server, message)
                if len(tally.answers) >= tally.needed:
                    self._look(round)
            elif isinstance(message, Refused):
                self._refused(round, server, message)

    def _look(self, round: Round) -> None:
        """A quorum is there: go on, unless the round wants more."""
        gather, tally = round.gather, round.tally
        if gather.settled is None or gather.settled(tally.answers) or tally.complete:
            self._conclude(round)
        elif round.patient_until is None and gather.patience_s is not None:
            round.patient_until = self._now + gather.patience_s(tally.answers)

    def _conclude(self, round: Round) -> None:
        del self._rounds[round.call]
        self._step(round.task, round.tally.answers)

    def _throw(self, round: Round, error: Exception) -> None:
        del self._rounds[round.call]
        self._step(round.task, None, error)

    def _unavailable(self, round: Round) -> Unavailable:
        return Unavailable(round.tally.needed, len(round.tally.answers), round.tally.missing(), round.story())

    def _refused(self, round: Round, server: ServerId, refusal: Refused) -> None:
        configuration, tally = round.gather.configuration, round.tally
        if refusal.reason is Reason.CONFLICTING_SUCCESSOR:
            self._throw(round, ConfigurationRefused(f"{server} refuses a second decision: {refusal.detail}. Nothing was changed there"))
            return
        if server in tally.refusals:
            return
        introductions = round.introductions.get(server, 0)
        if refusal.reason is Reason.UNKNOWN_CONFIGURATION and introductions < INTRODUCTIONS_MAX:
            round.introductions[server] = introductions + 1
            self._outbox[server].append(Introduce(round.call, configuration))
            self._outbox[server].append(round.request_for(server))
            return
        tally.refuse(server, refusal.detail)
        if tally.outcome is Outcome.REACHED:
            self._look(round)
        elif tally.outcome is Outcome.UNREACHABLE:
            self._want_hint(configuration.domain, urgent=True)

    def _refused_all(self, server: ServerId, refusal: Refused) -> None:
        """A server could not read a whole batch: count it as refusing whatever still waits for it."""
        for round in list(self._rounds.values()):
            if server in round.tally.asked and round.call in self._rounds:
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
            if newer is not None and newer.index > configuration.index:
                self._throw(round, Superseded(newer))
            elif round.tally.outcome is Outcome.UNREACHABLE:
                self._throw(round, self._unavailable(round))

    def tick(self, now: float) -> None:
        """Let time pass: wake pauses, send again, ask for hints, end what took too long."""
        self._now = now
        while self._pauses and self._pauses[0][0] <= now:
            _, _, task = heapq.heappop(self._pauses)
            if task in task.job.tasks:
                self._step(task, None)
        for round in list(self._rounds.values()):
            if round.call in self._rounds:
                self._age(round)
        for job in [job for job in self._jobs if job.deadline <= now]:
            self._expire(job)

    def _age(self, round: Round) -> None:
        now, tally = self._now, round.tally
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
            if now >= round.resend_at:
                self._suspect(round)
                round.resend_after_s = min(round.resend_after_s * 2, max(RESEND_S_MAX, round.resend_after_s))
                round.resend_at = now + round.resend_after_s
                for server in tally.asked:
                    if server not in tally.answers and server not in tally.refusals:
                        self._outbox[server].append(round.request_for(server))
            if now - round.started >= STALL_S and len(tally.answers) < tally.needed:
                self._want_hint(round.gather.configuration.domain)

    def _suspect(self, round: Round) -> None:
        self.suspects.update(server for server in round.tally.asked if server not in round.tally.answers)

    def _expire(self, job: Job) -> None:
        """A job past its deadline that no round could be failed for: it pauses, asks the consensus service, or waits in a queue."""
        error = Unavailable(0, 0, {}, f"{job.label}: it was still waiting after {job.timeout_s:g} s")
        pausing = [entry for entry in self._pauses if entry[2].job is job]
        if pausing:
            self._pauses = [entry for entry in self._pauses if entry[2].job is not job]
            heapq.heapify(self._pauses)
            for _, _, task in pausing:
                if task in job.tasks:
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
