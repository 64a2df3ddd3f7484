"""Jobs and the generators they consist of: starting, stepping, ending them, one after the other where they share a key, side by side in a Together.

What an effect asks of the world is left to the subclass (ares/operation/session.py).
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, assert_never

from ares.model.errors import Unavailable, Uncertain
from ares.operation.effects import Agree, Announce, Gather, Now, Operation, Pause, Report, Together
from ares.operation.rounds import Fan, Job, Key, Task


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
        """Begin ``operation``; see :class:`ares.operation.rounds.Job` for the arguments."""
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
