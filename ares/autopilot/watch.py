"""Which servers are present and which are gone, from repeated looks at them. Time is an argument.

A member of a configuration is a server *and* the identity that the configuration names: one that answers under another identity has lost what it
held, and is as gone as one that is silent. Absence counts only while the autopilot looks, and looks for that
member: a watcher that stood still itself, or has only just learnt of a member, must not take it for gone.
"""

from collections.abc import Iterable, Mapping

from ares.model.configuration import Server
from ares.model.identity import ServerId

Member = tuple[ServerId, str]
"""A server and its identity."""


class Watch:
    """A member that was absent for ``after_s`` is gone; a server that answered without a break for so long may be relied on.

    ``gap_s``: how much of the time between two looks counts at most. A member counts as absent since it last answered, or since it is
    asked for without a break, if that is later; one that the last look did not ask for is not absent, as far as is known.
    """

    def __init__(self, after_s: float, gap_s: float) -> None:
        self._after_s = after_s
        self._gap_s = gap_s
        self._looked_at: float | None = None
        self._watched_s = 0.0
        self._answers: Mapping[ServerId, str] = {}
        self._since_s: dict[Member, float] = {}
        self._absent_since_s: dict[Member, float] = {}

    def look(self, now: float, answers: Mapping[ServerId, str], asked: Iterable[Server]) -> None:
        """At ``now`` these servers answered, each under its identity, and no others. ``asked``: the members that were to answer."""
        if self._looked_at is not None:
            self._watched_s += min(max(now - self._looked_at, 0.0), self._gap_s)
        self._looked_at = now
        self._answers = dict(answers)
        self._since_s = {member: self._since_s.get(member, self._watched_s) for member in answers.items()}
        members = ((server.id, server.identity) for server in asked)
        self._absent_since_s = {
            (id, identity): self._watched_s if answers.get(id) == identity else self._absent_since_s.get((id, identity), self._watched_s)
            for id, identity in members
        }

    def is_here(self, server: Server) -> bool:
        """Whether it answered the last look, as the one that is meant."""
        return self._answers.get(server.id) == server.identity

    def absent_s(self, server: Server) -> float:
        """For how long it has not answered as the one that is meant, although it was asked for; 0 if it did, or was not."""
        return 0.0 if self.is_here(server) else self._watched_s - self._absent_since_s.get((server.id, server.identity), self._watched_s)

    def is_gone(self, server: Server) -> bool:
        """Whether that is too long."""
        return not self.is_here(server) and self.absent_s(server) >= self._after_s

    def is_returning(self, server: Server) -> bool:
        """Whether it answers under another identity, and may soon be relied on. Not for ever: one that starts over and over is no help."""
        return server.id in self._answers and not self.is_here(server) and self.absent_s(server) < 2 * self._after_s

    def steady(self) -> dict[ServerId, str]:
        """The servers that may be relied on, and the identities under which they answered the last look."""
        return {id: identity for (id, identity), since_s in self._since_s.items() if self._watched_s - since_s >= self._after_s}
