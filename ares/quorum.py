"""Gathering a quorum: one value with three outcomes, used by every round there is."""

import enum
from collections.abc import Sequence
from typing import Generic, TypeVar

from ares.identity import ServerId

Answer = TypeVar("Answer")


class Outcome(enum.Enum):
    PENDING = "pending"
    REACHED = "reached"
    UNREACHABLE = "unreachable"


class Tally(Generic[Answer]):
    """Who of ``asked`` has answered, and who cannot be counted on; ``needed`` answers make a quorum.

    A server counts once however often it answers, and its first answer stands; one that refused may still answer later (it was
    introduced to the configuration meanwhile), and then counts.
    """

    __slots__ = ("answers", "asked", "needed", "refusals")

    def __init__(self, asked: Sequence[ServerId], needed: int) -> None:
        self.asked = asked
        self.needed = needed
        self.answers: dict[ServerId, Answer] = {}
        self.refusals: dict[ServerId, str] = {}

    def answer(self, server: ServerId, answer: Answer) -> None:
        if server in self.asked and server not in self.answers:
            self.answers[server] = answer
            self.refusals.pop(server, None)

    def refuse(self, server: ServerId, why: str) -> None:
        if server in self.asked and server not in self.answers:
            self.refusals[server] = why

    @property
    def outcome(self) -> Outcome:
        if len(self.answers) >= self.needed:
            return Outcome.REACHED
        if len(self.asked) - len(self.refusals) < self.needed:
            return Outcome.UNREACHABLE
        return Outcome.PENDING

    @property
    def complete(self) -> bool:
        """Nobody is left to wait for."""
        return len(self.answers) + len(self.refusals) >= len(self.asked)

    def missing(self) -> dict[ServerId, str]:
        """Every server that did not answer, with the reason."""
        return {server: self.refusals.get(server, "no answer") for server in self.asked if server not in self.answers}
