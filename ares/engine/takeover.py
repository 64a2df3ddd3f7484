"""Operations begun on a session's fast path and continued by the session.

Each operation is made again, and replayed up to its present round, with the answers received. The
replay sends no message, and a write keeps the tag already taken.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ares.engine.effects import Gather, Operation
from ares.engine.jobs import Job, OperationLabel, Round, begin
from ares.engine.readiness import Readiness, ServerOrder
from ares.model.configuration import Configuration
from ares.model.identity import NO_CALL, ClientId, DomainName, ObjectName, ServerId
from ares.model.messages import TagReply
from ares.model.tag import Tag, TakenNumbers


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
    call: int
    """Call of the operation's round; 0: another write of the object is under way."""

    configuration: Configuration
    order: ServerOrder | None
    unasked: bool
    """State of the spared servers of ``order``: True if they were not asked."""

    started: float
    """Beginning of the round."""

    answers: dict[ServerId, Any]
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


def round_of(begun: FastOperation, job: Job, readiness: Readiness) -> Round:
    """Return the round for which the operation waits."""
    round = begin(begun.call, job, _gone_through(begun, job, readiness), begun.started)
    round.answers = begun.answers
    if not begun.unasked:
        round.unasked = ()
    return round


def _gone_through(begun: FastOperation, job: Job, readiness: Readiness) -> Gather:
    """Replay the generator up to the round for which it waits, and return the round.

    Of the get-tag before a put-data only the outcome is known, the highest number: a single reply
    with this number stands for all.
    """
    assert begun.order is not None, "it has begun"
    with readiness.recalled(begun.configuration, begun.order):
        effect = job.generator.send(None)
    if begun.taken is not None:
        begun.taken.writers -= 1  # it was counted when it first began
    if begun.taken is not None and begun.highest is not None:
        number, begun.taken.number = begun.taken.number, begun.before
        found = TagReply(NO_CALL, Tag(begun.highest, ClientId(0)), None)
        effect = job.generator.send({begun.configuration.server_ids[0]: found})
        begun.taken.number = number
    assert isinstance(effect, Gather), "it waits for a round"
    return effect
