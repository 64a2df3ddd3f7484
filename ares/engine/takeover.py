"""Operations begun on a session's fast path and continued by the session.

Each operation is made again, and replayed up to its present rounds, with the answers received. The
replay sends no message, and a write keeps the tag already taken.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from ares.engine.effects import Effect, Gather, Operation, Together
from ares.engine.jobs import Job, OperationLabel, ParallelGroup, Round, Task, begin
from ares.engine.readiness import Readiness, ServerOrder
from ares.model.configuration import Configuration
from ares.model.identity import NO_CALL, ClientId, DomainName, ObjectName, ServerId
from ares.model.messages import TagReply
from ares.model.tag import Tag, TakenNumbers


class FastRound(Protocol):
    """A round of an operation of the fast path."""

    configuration: Configuration
    call: int
    order: ServerOrder
    """Order of the servers of the operation's query."""

    unasked: bool
    """State of the spared servers of ``order``: True if they were not asked."""

    answers: dict[ServerId, Any]
    ended: bool
    """State of the round: True once ``answers`` settle the round."""


class FastOperation(Protocol):
    """The state of an operation of the fast path, for the session."""

    make: Callable[[ObjectName, bytes | None], Operation[Any]]
    """Function that makes the operation from ``object`` and ``value``."""

    domain: DomainName
    object: ObjectName
    value: bytes | None
    """Value of a write; None: a read."""

    done: Any
    """The caller's function for the result, or the caller's future."""

    settle: Callable[[Any, Any, BaseException | None], None] | None
    """Function called with the future ``done``, the result and the error; None: call ``done``."""

    timeout_s: float
    deadline: float
    rounds: Sequence[FastRound]
    """Rounds begun together; empty: another write of the object is under way."""

    started: float
    """Beginning of the rounds."""

    taken: TakenNumbers | None
    """Result of ``TagSource.begin`` for a write that has begun."""

    before: int
    """Number of ``taken`` before the write took its own."""

    highest: int | None
    """Highest number found by the get-tag, once the write puts."""


def job_of(begun: FastOperation) -> Job:
    """Return the operation, not begun."""
    name, value = begun.object, begun.value
    return Job(
        begun.make(name, value),
        None,
        False,
        label=OperationLabel("read" if value is None else "write", name),
        timeout_s=begun.timeout_s,
        deadline=begun.deadline,
        done=begun.done if begun.settle is None else partial(begun.settle, begun.done),
        key=None if value is None else (begun.domain, name),
        begun_for=begun.done,
    )


def rounds_of(begun: FastOperation, job: Job, readiness: Readiness) -> list[tuple[Round, bool]]:
    """Replay the generator up to its present rounds; return each, and whether it has ended.

    The caller continues behind the ended rounds: an answer may be an error of the operation.

    Of the get-tag before a put-data only the outcome is known, the highest number: a single reply
    of each configuration with this number stands for all.
    """
    if not begun.rounds:
        return []
    with readiness.recalled((round.configuration, round.order) for round in begun.rounds):
        asking = _asking(job, job.generator.send(None))
    if begun.taken is not None:
        begun.taken.writers -= 1  # it was counted when it first began
    if begun.taken is not None and begun.highest is not None:
        number, begun.taken.number = begun.taken.number, begun.before
        found = TagReply(NO_CALL, Tag(begun.highest, ClientId(0)), None)
        for task, gather in asking:
            effect = _answer(task, {gather.configuration.server_ids[0]: found})
        asking = _asking(job, effect)
        begun.taken.number = number
    present = []
    for (task, gather), given in zip(asking, begun.rounds, strict=True):
        round = begin(given.call, task, gather, begun.started)
        round.answers = given.answers
        if not given.unasked:
            round.unasked = ()
        present.append((round, given.ended))
    return present


def _asking(job: Job, effect: Effect | None) -> list[tuple[Task, Gather]]:
    """Return the round of a replayed effect, or its rounds side by side, with their tasks."""
    if isinstance(effect, Gather):
        return [(job, effect)]
    assert isinstance(effect, Together), "it waits for rounds"
    fan, asking = ParallelGroup(job, job, effect), []
    for operation in effect.operations:
        task = Task(operation, fan, job.idle)
        fan.running[task] = fan.started
        fan.started += 1
        job.tasks[task] = None
        first = operation.send(None)
        assert isinstance(first, Gather), "it waits for a round"
        asking.append((task, first))
    return asking


def _answer(task: Task, answers: dict[ServerId, Any]) -> Effect | None:
    """Answer a replayed get-tag; return the job's next effect, or None before the last one."""
    fan = task.fan
    if fan is None:
        return task.generator.send(answers)
    with suppress(StopIteration):
        task.generator.send(answers)
        raise AssertionError("a get-tag has one round")
    task.ended = True
    del fan.job.tasks[task], fan.running[task]
    return None if fan.running else fan.parent.generator.send(None)
