"""What the answers of several configurations amount to: which version is the newest, and does it have to be written back (Alg. 1:37-47)?"""

from typing import TypeVar

from ares.dap.primitives import Found, FoundTag
from ares.model.identity import ConfigurationId
from ares.model.tag import TAG_ZERO

Answer = TypeVar("Answer", Found, FoundTag)


def newest(answers: list[Answer]) -> Answer:
    """The highest version that was not left to a successor (Alg. 1:37). Such an answer has tag t0, and loses ties to later ones."""
    if len(answers) == 1:
        return answers[0]
    return max(reversed(answers), key=lambda found: found.tag)


def at_quorum(answers: list[Found], found: Found) -> ConfigurationId | None:
    """Where ``found``, the newest of ``answers``, is at a quorum in such a way that every operation that begins later finds it, or something newer;
    None: nowhere, as far as is known. The published fast read takes the last configuration for that, if its quorum names no successor. More do:

    Let a quorum Q of a configuration c say that it held the version before it heard of c's successor (``Found.lasting``; who never heard of one says
    that, too). An operation that begins later either asks c, meets Q, and finds the version there; or does not count on c, since something after c is
    finalized. The first configuration after c to be finalized was so when a mover had listed and read c. Each of its requests carries c's successor,
    and a server installs that before it answers (rule R1). So a server of Q, having had the version before it heard of a successor, had it when it
    answered the mover; the mover met Q twice, so it has listed the object, and has put the version, or a newer one, into its target. From there on
    every move takes it along, as it does all that was completed before the move began.

    Without the word "before" that is wrong: the version may have come to a server of Q after the mover had looked there. Random schedules agree: with
    servers that say it of every version, one in twenty of those in tests/protocol/test_lasting.py goes back behind what was read.
    """
    if found.tag == TAG_ZERO:
        return answers[-1].configuration
    for answer in reversed(answers):
        if answer.lasting and answer.tag == found.tag:
            return answer.configuration
    return None
