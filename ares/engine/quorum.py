"""The gathering of a quorum, with three outcomes, used by every round."""

import enum
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from ares.model.errors import NO_ANSWER, NO_TROUBLES
from ares.model.identity import ServerId

Answer = TypeVar("Answer")


class QuorumState(enum.Enum):
    """The state of a round: undecided, with a quorum, or without hope of a quorum."""

    PENDING = "pending"
    REACHED = "reached"
    UNREACHABLE = "unreachable"


class Tally(Struct, Generic[Answer], eq=False):
    """The answers and refusals of a round; ``needed`` answers of ``asked`` make a quorum.

    A server with several answers counts once, and the first answer stands. A server that refused
    may still answer later (after an introduction to the configuration), and counts from this answer
    on.
    """

    asked: Sequence[ServerId]
    needed: int
    answers: dict[ServerId, Answer] = {}
    refusals: dict[ServerId, str] = {}

    def answer(self, server: ServerId, answer: Answer) -> bool:
        """Count an answer; return whether the answer counted and completed a quorum."""
        answers = self.answers
        if server in answers or server not in self.asked:
            return False
        answers[server] = answer
        if self.refusals:
            self.refusals.pop(server, None)
        return len(answers) >= self.needed

    def refuse(self, server: ServerId, why: str) -> None:
        if server in self.asked and server not in self.answers:
            self.refusals[server] = why

    @property
    def outcome(self) -> QuorumState:
        if len(self.answers) >= self.needed:
            return QuorumState.REACHED
        if len(self.asked) - len(self.refusals) < self.needed:
            return QuorumState.UNREACHABLE
        return QuorumState.PENDING

    @property
    def complete(self) -> bool:
        """Return whether every server has answered or refused."""
        return len(self.answers) + len(self.refusals) >= len(self.asked)

    def missing(self, troubles: Mapping[ServerId, str] = NO_TROUBLES) -> dict[ServerId, str]:
        """Return every server without an answer, with the reason.

        ``troubles``: known reasons why servers cannot be reached.
        """
        silent = {
            server: troubles.get(server, NO_ANSWER)
            for server in self.asked
            if server not in self.answers
        }
        return silent | {server: why for server, why in self.refusals.items() if server in silent}
