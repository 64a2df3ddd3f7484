"""The decisions of a consensus service: for every (domain, index) the first proposal, for ever.

See ARES II section 3, c.Con; Alg. 5:17. A single table serves all implementations of the port. The
table never looks into its content (a configuration, or the bytes of a configuration): replicas of
different releases which apply the same commands in the same order hold the same table. The tables
are msgspec Structs of plain values: encoding a table is taking its snapshot.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused
from ares.model.identity import ClientId

Content = TypeVar("Content")


class Decision(Struct, Generic[Content], frozen=True, array_like=True):
    """The content decided for a place, and the client id of its proposer."""

    content: Content
    proposer: int

    @property
    def client(self) -> ClientId:
        """Return the id of the proposer.

        0 if an earlier release took a number outside the range of client ids.
        """
        return ClientId(max(self.proposer, 0))


class Finalized(Struct, Generic[Content], frozen=True, array_like=True):
    """The content last known to be finalized in a domain, and its index in that domain."""

    index: int
    content: Content


class DecisionTable(Struct, Generic[Content]):
    """Decisions by domain and index, and a hint for each domain.

    Decisions never change; hints move to higher indices only.
    """

    decisions: dict[str, dict[int, Decision[Content]]] = msgspec.field(default_factory=dict)
    hints: dict[str, Finalized[Content]] = msgspec.field(default_factory=dict)

    def decide(self, domain: str, index: int, content: Content, proposer: int) -> Decision[Content]:
        """Return the decision for the place: the recorded one, or this proposal as the first."""
        return self.decisions.setdefault(domain, {}).setdefault(index, Decision(content, proposer))

    def tell_finalized(self, domain: str, index: int, content: Content) -> Content:
        """Record a hint for the domain, and return the kept hint.

        A kept hint of at least this index stays.
        """
        kept = self.hints.get(domain)
        if kept is None or index > kept.index:
            kept = self.hints[domain] = Finalized(index, content)
        return kept.content

    def hint(self, domain: str) -> Content | None:
        """Return the domain's last hint, or None."""
        kept = self.hints.get(domain)
        return None if kept is None else kept.content

    @property
    def count(self) -> int:
        """Return the number of decided places."""
        return sum(map(len, self.decisions.values()))


def require_place(configuration: Configuration) -> None:
    """Raise :class:`ConfigurationRefused` for a configuration without a place.

    Without a place no decision is possible.
    """
    if configuration.index < 0:
        raise ConfigurationRefused(
            f"{configuration.describe()}: it has no place in the sequence of domain "
            f"{configuration.domain!r} (its index is {configuration.index}), so it cannot be "
            "proposed or finalized; nothing was sent"
        )
