"""Operations that the compiled core began (core/src/client.rs), and that the session is to go on with: each is made again, and gone through up to the
round that it waits for, with the answers that it had. Nothing is sent for that, and a write takes the tag that it had taken.
"""

from functools import partial
from typing import TYPE_CHECKING

from ares.model.identity import NO_CALL, ClientId
from ares.model.messages import TagReply
from ares.model.tag import Tag
from ares.operation.effects import Gather
from ares.operation.jobs import About, Job, Round, begin
from ares.operation.readiness import Readiness

if TYPE_CHECKING:
    from ares._core import Handed


def job_of(handed: "Handed") -> Job:
    """The operation, not begun."""
    name, value = handed.object, handed.value
    return Job(
        handed.make(name, value),
        None,
        False,
        label=About("read" if value is None else "write", name),
        timeout_s=handed.timeout_s,
        deadline=handed.deadline,
        done=handed.done if handed.settle is None else partial(handed.settle, handed.done),
        key=None if value is None else (handed.domain, name),
        begun_for=handed.done,
    )


def round_of(handed: "Handed", job: Job, readiness: Readiness) -> Round:
    """The round that it waits for."""
    round = begin(handed.call, job, _gone_through(handed, job, readiness), handed.started)
    round.answers = handed.answers
    if not handed.unasked:
        round.unasked = ()
    return round


def _gone_through(handed: "Handed", job: Job, readiness: Readiness) -> Gather:
    """The round that the generator waits for. Of the get-tag before a put-data only its outcome is known, the highest number: one reply that says so
    stands for all."""
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
