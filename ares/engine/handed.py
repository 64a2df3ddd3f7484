"""Operations begun by the compiled core (core/src/client.rs) and continued by the session.

Each operation is made again, and replayed up to its present round, with the answers received. The
replay sends no message, and a write keeps the tag already taken.
"""

from functools import partial
from typing import TYPE_CHECKING

from ares.engine.effects import Gather
from ares.engine.jobs import Job, OperationLabel, Round, begin
from ares.engine.readiness import Readiness
from ares.model.identity import NO_CALL, ClientId
from ares.model.messages import TagReply
from ares.model.tag import Tag

if TYPE_CHECKING:
    from ares._core import Handed


def job_of(handed: "Handed") -> Job:
    """Return the operation, not begun."""
    name, value = handed.object, handed.value
    return Job(
        handed.make(name, value),
        None,
        False,
        label=OperationLabel("read" if value is None else "write", name),
        timeout_s=handed.timeout_s,
        deadline=handed.deadline,
        done=handed.done if handed.settle is None else partial(handed.settle, handed.done),
        key=None if value is None else (handed.domain, name),
        begun_for=handed.done,
    )


def round_of(handed: "Handed", job: Job, readiness: Readiness) -> Round:
    """Return the round for which the operation waits."""
    round = begin(handed.call, job, _gone_through(handed, job, readiness), handed.started)
    round.answers = handed.answers
    if not handed.unasked:
        round.unasked = ()
    return round


def _gone_through(handed: "Handed", job: Job, readiness: Readiness) -> Gather:
    """Replay the generator up to the round for which it waits, and return the round.

    Of the get-tag before a put-data only the outcome is known, the highest number: a single reply
    with this number stands for all.
    """
    assert handed.order is not None, "it has begun"
    with readiness.recalled(handed.configuration, handed.order):
        effect = job.generator.send(None)
    if handed.taken is not None:
        handed.taken.writers -= 1  # it was counted when it first began
    if handed.taken is not None and handed.highest is not None:
        number, handed.taken.number = handed.taken.number, handed.before
        found = TagReply(NO_CALL, Tag(handed.highest, ClientId(0)), None)
        effect = job.generator.send({handed.configuration.server_ids[0]: found})
        handed.taken.number = number
    assert isinstance(effect, Gather), "it waits for a round"
    return effect
