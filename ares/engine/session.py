"""The session of a client: it numbers calls, counts answers, sends again and keeps deadlines.

No I/O, no clock: ``now`` is given. The shell around the session (ares/client/runner.py, or a
simulator) takes ``contacts``, the outbox, ``asks`` and ``hints`` after every call and sees to them,
hands replies to ``receive``, and calls ``tick`` every SESSION_TICK_S while ``busy``.

An operation for which a caller waits is a job. The job's generator is a task, and likewise every
operation run by a Together of the job; a task waits for a round (a Gather), a pause, an answer of
the consensus service, or the end of a Together. Jobs with a common key run in sequence.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, assert_never, cast

from ares.engine.effects import Agree, Announce, Gather, Now, Operation, Pause, Report, Together
from ares.engine.jobs import Job, Key, OperationRecorder, ParallelGroup, Refusal, Round, Task, begin
from ares.engine.phases import CONSENSUS, PAUSE, QUEUE
from ares.engine.port import FastPath, Letter, NoFastPath
from ares.engine.quorum import QuorumState
from ares.engine.readiness import Readiness
from ares.engine.takeover import FastOperation, job_of, rounds_of
from ares.model.codec import Frame, decode_replies, decode_requests
from ares.model.configuration import Configuration, Server
from ares.model.errors import ConfigurationRefused, Superseded, Unavailable, Uncertain
from ares.model.identity import (
    DEFAULT_DOMAIN,
    NO_DOMAIN,
    CallId,
    ConfigurationId,
    DomainName,
    ServerId,
)
from ares.model.messages import AnyMessage, Introduce, PutData, Reason, Refused

SESSION_TICK_S = 0.025
ROUND_RESEND_S_MAX = 4.0
ROUND_STALL_S = 1.0
HEDGE_USUAL = 3.0
"""Multiple of the usual time after which a query goes to the spared servers, and at least a tick.
"""

USUAL_ROUNDS = 64
DENIED_S = 0.25
HINT_AGAIN_S = 2.0
ASK_GRACE_S = 0.5
"""Extra seconds of the consensus service, which has as long as the job, and begins later."""


class Session:
    """All operations of a client.

    No code here iterates over a set: a run with the same events is the same run.

    ``asks``: for the consensus service, answered by ``resume`` or ``fail``. ``hints``: domains
    whose hint is wanted, answered by ``hinted``. ``contacts``: servers of configurations not spoken
    to before. ``readiness``: the servers likely to answer soonest. ``troubles``: reasons why
    servers cannot be reached, ``connected_s``: the times of connections, both where known.
    ``receiving``: whether a reply of a server is arriving now, which need not be asked again.
    ``sending``: whether the request of a call has not wholly left for a server.
    ``earlier``: for a log, the configurations introduced together with a configuration.

    ``fast_path``: runs small operations as the session would. ``now``: time of the last event.
    ``jobs``: operations that have not ended, and ``queues``: of these, the operations with a key,
    in sequence. ``last_call``: the highest number of a call, and ``rounds``: the rounds under way
    by call. ``met``: configurations whose servers were spoken to. ``usual_round_s``: average time
    of the rounds that spare servers.
    """

    def __init__(
        self,
        turn: int = 0,
        earlier: Callable[[Configuration], tuple[Configuration, ...]] = lambda configuration: (),
        fast_path: FastPath | None = None,
    ) -> None:
        self.fast_path: FastPath = fast_path or NoFastPath()
        self._earlier = earlier
        self.asks: list[tuple[Agree | Announce, Task]] = []
        self.hints: list[DomainName] = []
        self.contacts: list[Server] = []
        self.readiness = Readiness(turn)
        self.troubles: Mapping[ServerId, str] = {}
        self.connected_s: Mapping[ServerId, float] = {}
        self.receiving: Callable[[ServerId], bool] = lambda server: False
        self.sending: Callable[[ServerId, CallId], bool] = lambda server, call: False
        self.now = 0.0
        self._pauses: list[tuple[float, int, Task]] = []
        self._pause_count = 0
        self.queues: dict[Key, list[Job]] = {}
        self.jobs: dict[Job, None] = {}
        self.outbox: defaultdict[ServerId, list[AnyMessage]] = defaultdict(list)
        self.last_call = 0
        self.rounds: dict[int, Round] = {}
        self.met: set[ConfigurationId] = set()
        self._hints_wanted: set[DomainName] = set()
        self._hint_again_at: dict[DomainName, float] = {}
        self.usual_round_s = 0.0

    @property
    def busy(self) -> bool:
        return self.under_way > 0

    @property
    def under_way(self) -> int:
        """Return the number of operations that have not ended.

        Counted, too: operations that wait for another operation on their object.
        """
        return len(self.jobs) + self.fast_path.under_way

    @property
    def has_orders(self) -> bool:
        """Return whether the shell has orders to take, or a time to wake the session."""
        return bool(self.outbox or self.asks or self.hints or self._pauses)

    @property
    def wakes_at(self) -> float | None:
        """Return the end of the next pause."""
        return self._pauses[0][0] if self._pauses else None

    # -- jobs --------------------------------------------------------------------------------------

    def start(  # noqa: PLR0913  # a struct of them costs 0.9 us an operation
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
        recording: OperationRecorder | None = None,
    ) -> Job:
        """Begin ``operation``; see :class:`Job` for the arguments."""
        self.now = now
        if key is not None:
            self.fast_path.hand_over_writes(self, *key)
        job = Job(
            operation,
            None,
            idle,
            label=label,
            timeout_s=timeout_s,
            deadline=now + timeout_s,
            done=done,
            idle=idle,
            key=key,
            progress=progress,
        )
        job.recording = recording
        self.jobs[job] = None
        if key is not None:
            queue = self.queues.get(key)
            if queue is not None:
                if recording is not None:
                    recording.waits(job, QUEUE)
                queue.append(job)
                return job
            self.queues[key] = [job]
        self._step(job, None)
        return job

    def cancel(self, job: Job) -> None:
        """End the job without a call of ``done``: the caller no longer waits."""
        if not job.ended:
            self._end(job)

    def cancel_small(self, done: object) -> None:
        """Run :meth:`cancel` for an operation of the fast path, identified by its ``done``."""
        self.fast_path.hand_over_for(self, done)
        job = next((job for job in self.jobs if job.begun_for is done), None)
        if job is not None:
            self.cancel(job)

    def take_over(self, begun: FastOperation) -> None:
        """Continue an operation of the fast path from its present state.

        An operation not begun begins at once, a write in turn.
        """
        job = job_of(begun)
        self.jobs[job] = None
        queue = [job] if job.key is None else self.queues.setdefault(job.key, [])
        if job.key is not None:
            queue.append(job)
        if not begun.rounds and queue[0] is job:
            self._step(job, None)
        present = rounds_of(begun, job, self.readiness)
        for round, _ in present:
            round.task.call = round.call
            self.rounds[round.call] = round
        for round, ended in present:
            if ended and round.call in self.rounds:  # else another round broke the operation
                if round.gather.settled is not None:
                    round.gather.settled(round.answers)  # it takes the answers in
                self._go_on(round)

    def take_over_all(self) -> None:
        """Take over all operations of the fast path."""
        for call in self.fast_path.calls():
            self.fast_path.hand_over(self, call)

    def close(self, error: Callable[[], Uncertain]) -> None:
        """End every job with an error of its own: no session will continue them.

        Writes under way may take effect or not.
        """
        self.take_over_all()
        self.fast_path.close()
        for job in list(self.jobs):
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
        """Remove an ended job; let the next job of its queue begin."""
        self.jobs.pop(job, None)
        if job.key is None:
            return
        queue = self.queues[job.key]
        first = queue[0] is job
        queue.remove(job)
        if not queue:
            del self.queues[job.key]
        elif first:
            self._step(queue[0], None)

    def wake(self, now: float) -> None:
        """Continue the tasks at the end of their pause.

        A task that pauses again during this call, however shortly, waits for the next call: further
        tasks have their turn.
        """
        self.now = now
        due: list[Task] = []
        while self._pauses and self._pauses[0][0] <= now:
            due.append(heapq.heappop(self._pauses)[2])
        for task in due:
            if not task.ended:
                self._step(task, None)

    def resume(self, task: Task, value: Any, now: float, error: Exception | None = None) -> None:
        """Answer an ask."""
        self.now = now
        task.asking = False
        if not task.ended:
            self._step(task, value, error)

    def fail(self, task: Task, error: Exception, now: float) -> None:
        """Answer an ask with an error, which is thrown into the operation."""
        self.resume(task, None, now, error)

    def _step(self, task: Task, value: Any, error: Exception | None = None) -> None:
        if task.moving:
            task.job.put_off(self.now)
        recording = task.recording
        if recording is not None:
            recording.resumed(task)
        while True:
            try:
                effect = (
                    task.generator.send(value) if error is None else task.generator.throw(error)
                )
            except StopIteration as stop:
                return self._finished(task, stop.value, None)
            except Exception as failure:  # the caller gets any exception of an operation
                return self._finished(task, None, failure)
            value = error = None
            match effect:
                case Gather():
                    return self._ask(task, effect)
                case Report():
                    try:
                        if task.job.progress is not None:
                            task.job.progress(effect.progress)
                    except Exception as failure:  # the caller's own code: a failed report
                        error = failure
                case Pause():
                    if effect.retry:
                        task.moving = False
                    elif task.job.idle:
                        task.job.put_off(self.now + effect.seconds)
                    if recording is not None:
                        recording.waits(task, PAUSE)
                    self._pause_count += 1
                    return heapq.heappush(
                        self._pauses, (self.now + effect.seconds, self._pause_count, task)
                    )
                case Agree() | Announce():
                    if recording is not None:
                        recording.waits(task, CONSENSUS)
                    task.asking = True
                    return self.asks.append((effect, task))
                case Together():
                    return self._fill(ParallelGroup(task.job, task, effect))
                case Now():
                    value = self.now
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

    def _break(self, fan: ParallelGroup, error: Exception) -> None:
        """End every task started by ``fan``, and their tasks; the parent gets ``error``."""
        fan.broken = True
        others = [task for task in fan.job.tasks if task.within(fan)]
        for other in others:
            del fan.job.tasks[other]
        self._stop(others)
        self._step(fan.parent, None, error)

    def _fill(self, fan: ParallelGroup) -> None:
        """Start operations up to the window; continue the parent when none are left."""
        if fan.filling:
            return
        fan.filling = True
        job = fan.job
        while not fan.full:
            try:
                operation = next(fan.together.operations, None)
            except Exception as failure:  # an iterator may load its operations' input
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
        """Throw ``error`` into every waiting task of the job, and end the job in any case.

        A task may add its outcome to the error.
        """
        parents = {task.fan.parent for task in job.tasks if task.fan is not None}
        for task in [task for task in (job, *job.tasks) if task not in parents]:
            if not task.ended:
                self._drop((task,))
                self._step(task, None, error)
        if not job.ended:
            self._end(job)
            job.done(None, error)

    # -- rounds ------------------------------------------------------------------------------------

    def _drop(self, tasks: Iterable[Task]) -> None:
        """Forget the rounds for which these tasks wait."""
        for task in tasks:
            if task.call is not None:
                del self.rounds[task.call]
                task.call = None

    def _ask(self, task: Task, gather: Gather) -> None:
        call = task.call = self.last_call = self.last_call + 1
        round = self.rounds[call] = begin(call, task, gather, self.now)
        if task.recording is not None:
            task.recording.asked(round)
        if gather.configuration.id not in self.met:
            self._meet(gather.configuration, call)
        requests, order = round.requests, gather.order
        letter, outbox = self.fast_path.letter, self.outbox
        if not isinstance(requests, list):
            for server in round.asked if order is None else order.asked:
                letter(outbox, server).append(requests)
        elif order is None:
            for server, request in zip(round.asked, requests, strict=True):
                letter(outbox, server).append(request)
        else:
            for position in order.first:
                letter(outbox, round.asked[position]).append(requests[position])

    def _letter(self, server: ServerId) -> list[AnyMessage]:
        """Return the list of messages for the server, for additions."""
        return self.fast_path.letter(self.outbox, server)

    def _meet(self, configuration: Configuration, call: int) -> None:
        """Introduce a configuration to all its servers at the first contact.

        Servers which this client would not ask soon are to know the configuration, too. Each knows
        c0 by itself.
        """
        self.met.add(configuration.id)
        self.contacts.extend(configuration.servers)
        if configuration.domain != NO_DOMAIN and (configuration.domain, configuration.index) != (
            DEFAULT_DOMAIN,
            0,
        ):
            for server in configuration.server_ids:
                self._letter(server).append(
                    Introduce(CallId(call), configuration, self._earlier(configuration))
                )

    def _ask_rest(self, round: Round) -> None:
        unasked, round.unasked = round.unasked, ()
        if unasked and round.task.recording is not None:
            round.task.recording.asked_rest(round)
        for server in unasked:
            self._letter(server).append(round.request_for(server))

    def take_outbox(self) -> dict[ServerId, list[AnyMessage]]:
        """Return the messages to be posted, and clear the outbox."""
        letters = self.take_letters()
        return {
            server: decode_requests([letter]) if isinstance(letter, bytes) else letter
            for server, letter in letters.items()
        }

    def take_letters(self) -> dict[ServerId, Letter]:
        """Run :meth:`take_outbox`; messages of the fast path alone are encoded already."""
        letters, self.outbox = cast(dict[ServerId, Letter], self.outbox), defaultdict(list)
        sent = self.readiness.sent
        self.fast_path.take(letters, sent)
        for server, messages in letters.items():
            if isinstance(messages, list) and type(messages[-1]) is not Introduce:
                # an introduction has no answer
                sent[server] = messages[-1].call
        self.readiness.next_turn()
        return letters

    def began(self, recording: object, what: str) -> None:
        """Do nothing: every operation of this session is a job, with a recording of its own."""

    def receive_frames(self, server: ServerId, frames: Sequence[Frame], now: float) -> None:
        """Take an undecoded batch of replies.

        Raises :class:`BadMessage`; no part of a bad batch is used.
        """
        if frames:
            self.fast_path.feed(self, server, frames, now)
        else:
            self.receive(server, decode_replies(frames), now)

    def receive(self, server: ServerId, messages: Sequence[AnyMessage], now: float) -> None:
        """Take replies from a server; late, doubled and unexpected replies are dropped."""
        self.now = now
        if messages:
            self.readiness.heard(server, messages[-1].call)
        if self.fast_path.under_way:
            for message in messages:
                self.fast_path.hand_over(self, message.call)
        self.take(server, messages)

    def take(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        """Take replies to rounds of jobs: from a server, a batch or a part of it."""
        rounds = self.rounds
        for message in messages:
            round = rounds.get(message.call)
            if round is None:
                if isinstance(message, Refused) and message.call == 0:
                    # it could not read a whole batch: it refuses every round that waits for it
                    for waiting in [
                        waiting for waiting in self._all_rounds() if server in waiting.asked
                    ]:
                        if waiting.call in rounds:
                            self._refused(waiting, server, message)
            elif type(message) is round.expected:
                if round.task.recording is not None:
                    connected_s = self.connected_s.get(server)
                    round.task.recording.heard(round, server, message, connected_s)
                if round.answer(server, message):
                    self._look(round)
            elif isinstance(message, Refused):
                self._refused(round, server, message)

    def _all_rounds(self) -> list[Round]:
        """Return all rounds in the order of their calls, after taking over the fast path's."""
        self.take_over_all()
        return [self.rounds[call] for call in sorted(self.rounds)]

    def _look(self, round: Round) -> None:
        """Continue after a quorum, unless the round wants more."""
        gather = round.gather
        if gather.settled is None or gather.settled(round.answers) or round.complete:
            self._conclude(round)
        elif round.patient_until is None and gather.patience_s is not None:
            round.patient_until = self.now + gather.patience_s(
                round.answers, self.now - round.started
            )
            self._ask_rest(round)

    def _conclude(self, round: Round) -> None:
        if round.gather.order is not None:
            self.usual_round_s += (self.now - round.started - self.usual_round_s) / USUAL_ROUNDS
        self._go_on(round)

    def _go_on(self, round: Round) -> None:
        del self.rounds[round.call]
        task = round.task
        task.call = None
        if task.recording is not None:
            task.recording.concluded(round)
        self._step(task, round.answers)

    def _throw(self, round: Round, error: Exception | None = None) -> None:
        """End a round with an error, by default the error of a round without a quorum."""
        del self.rounds[round.call]
        task = round.task
        task.call = None
        error = error or round.failure(self.troubles)
        if task.recording is not None:
            task.recording.concluded(round, error)
        self._step(task, None, error)

    def _refused(self, round: Round, server: ServerId, refusal: Refused) -> None:
        reason, configuration = refusal.reason, round.gather.configuration
        if reason is Reason.CONFLICTING_SUCCESSOR:
            self._throw(
                round,
                ConfigurationRefused(
                    f"{server} refuses a second decision: {refusal.detail}. Nothing was changed "
                    "there"
                ),
            )
            return
        if server in round.refusals or server in round.answers:
            # it answered, and lost its memory afterwards: a doubled request does not count
            return
        if reason is Reason.UNKNOWN_CONFIGURATION:
            introduction = Introduce(
                CallId(round.call), configuration, self._earlier(configuration)
            )
            self._letter(server).extend((introduction, round.request_for(server)))
            return
        why = Refusal(refusal.detail)
        why.reason, why.proven = reason, refusal.call != 0
        # the first wait is not over
        asked_once = round.resend_at - round.started <= 1.5 * round.resend_after_s
        why.untouched = refusal.call == round.call and asked_once
        round.refuse(server, why)
        if round.task.recording is not None:
            round.task.recording.refused(round, server)
        self._ask_rest(round)
        if round.outcome is QuorumState.REACHED:
            self._look(round)
        elif reason is Reason.NOT_AUTHORIZED:
            self._denied(round)
        elif round.outcome is QuorumState.UNREACHABLE:
            if reason is Reason.OTHER_CLUSTER:
                self._throw(round, ConfigurationRefused(f"{server} refuses: {refusal.detail}"))
            else:
                self._want_hint(configuration.domain, urgent=True)

    def _denied(self, round: Round) -> None:
        """Give up a round which no quorum will serve for this client.

        The round ends when all servers have refused, or soon after: a server that is down never
        answers. Where the refusals are not proven, the servers may have been replaced, and
        strangers may be at their addresses: the hint decides.
        """
        unreachable = round.outcome is QuorumState.UNREACHABLE
        unproven = any(
            isinstance(why, Refusal) and why.reason is Reason.NOT_AUTHORIZED and not why.proven
            for why in round.refusals.values()
        )
        if round.complete and not (unreachable and unproven):
            self._throw(round)
        elif unreachable:
            round.give_up_by(self.now + DENIED_S)
            if unproven:
                self._want_hint(round.gather.configuration.domain, urgent=True)

    def _want_hint(self, domain: DomainName, urgent: bool = False) -> None:
        if domain not in self._hints_wanted and (
            urgent or self.now >= self._hint_again_at.get(domain, 0.0)
        ):
            self._hints_wanted.add(domain)
            self.hints.append(domain)

    def hinted(self, domain: DomainName, newer: Configuration | None, now: float) -> None:
        """Take the last finalized configuration of ``domain`` in the consensus service, or None.

        Rounds in older configurations continue in the finalized configuration.
        """
        self._hints_wanted.discard(domain)
        self._hint_again_at[domain] = now + HINT_AGAIN_S
        if newer is not None:
            self.redirect(domain, newer, now)
        self.now = now
        for round in self._all_rounds():
            if (
                round.call in self.rounds
                and round.gather.configuration.domain == domain
                and round.outcome is QuorumState.UNREACHABLE
            ):
                if isinstance(round.request_for(round.asked[0]), PutData) and not round.complete:
                    # whether a server stored the element is known when all have refused
                    round.give_up_by(now + DENIED_S)
                else:
                    self._throw(round)

    def redirect(self, domain: DomainName, newer: Configuration, now: float) -> None:
        """Let rounds of ``domain`` in older configurations continue in ``newer``.

        ``newer`` is finalized.
        """
        self.now = now
        for round in self._all_rounds():
            configuration = round.gather.configuration
            is_older = (
                configuration.index < newer.index and configuration.cluster_id == newer.cluster_id
            )
            if round.call in self.rounds and configuration.domain == domain and is_older:
                self._throw(round, Superseded(newer))

    def tick(self, now: float) -> None:
        """Let time pass: end pauses, send again, ask for hints, end overdue rounds and jobs."""
        self.wake(now)
        fast_path = self.fast_path
        for call in sorted((*self.rounds, *fast_path.calls())):
            fast_path.age(self, call, now, self._hedge_after_s)
            if call in self.rounds:
                self._age(self.rounds[call])
        fast_path.hand_over_overdue(self, now)
        for job in [job for job in self.jobs if job.deadline <= now]:
            # No round could be failed for the job: the job pauses, is queued, or asks the consensus
            # service, which may be about to give the reason of its delay.
            if not job.ended and (
                now >= job.deadline + ASK_GRACE_S
                or not any(task.asking for task in (job, *job.tasks))
            ):
                self._abort(
                    job,
                    Unavailable(
                        0, 0, {}, f"{job.label}: it was still waiting after {job.timeout_s:g} s"
                    ),
                )

    @property
    def _hedge_after_s(self) -> float:
        return max(SESSION_TICK_S, HEDGE_USUAL * self.usual_round_s)

    def _age(self, round: Round) -> None:
        now = self.now
        if round.give_up_at is not None and now >= round.give_up_at:
            self._suspect(round)
            self._throw(round)
        elif round.patient_until is not None:
            if now >= round.patient_until:
                self._suspect(round)
                if round.task.recording is not None:
                    round.task.recording.waited_long_enough(round)
                self._conclude(round)
        elif now >= round.task.job.deadline:
            self._throw(round)
        else:
            if round.unasked and now >= round.started + self._hedge_after_s:
                self._ask_rest(round)
            if now >= round.resend_at:
                self._suspect(round)
                if self._asks_in_vain(round):
                    self._throw(round)
                    return
                round.unasked = ()
                round.resend_after_s = min(
                    round.resend_after_s * 2, max(ROUND_RESEND_S_MAX, round.resend_after_s)
                )
                round.resend_at = now + round.resend_after_s
                if round.task.recording is not None:
                    round.task.recording.sent_again(round)
                for server in round.asked:
                    if (
                        server not in round.answers
                        and server not in round.refusals
                        and not self.receiving(server)
                        and not self.sending(server, CallId(round.call))
                    ):
                        self._letter(server).append(round.request_for(server))
            if now - round.started >= ROUND_STALL_S and len(round.answers) < round.needed:
                self._want_hint(round.gather.configuration.domain)

    def _asks_in_vain(self, round: Round) -> bool:
        """Return whether a round asks one server, to which no connection comes about.

        An operation that would wait for a part of its time only can ask another server at once.
        """
        alone = round.give_up_at is not None and len(round.asked) == 1
        return alone and round.asked[0] in self.troubles

    def _suspect(self, round: Round) -> None:
        silent = (
            server
            for server in round.asked
            if server not in round.answers and server not in round.unasked
        )
        self.readiness.suspects.update(server for server in silent if not self.receiving(server))
