"""What a consensus service decides: for every (domain, index), the first proposal, for ever (ARES II section 3, c.Con; Alg. 5:17).

One table serves all implementations of the port. It never looks into the content that it keeps (a configuration, or the bytes of one), so that
replicas of different releases that apply the same commands in the same order hold the same table. The tables are msgspec Structs of plain values:
encoding one is taking its snapshot.
"""

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused
from ares.model.identity import ClientId

Content = TypeVar("Content")


class Decision(Struct, Generic[Content], frozen=True, array_like=True):
    """What was decided for one place, and whose proposal it was (a client id)."""

    content: Content
    proposer: int

    @property
    def client(self) -> ClientId:
        """The id of the proposer; 0 if an earlier release took a number that is no client's id."""
        return ClientId(max(self.proposer, 0))


class Finalized(Struct, Generic[Content], frozen=True, array_like=True):
    """The content last known to be finalized in a domain, and its index there."""

    index: int
    content: Content


class DecisionTable(Struct, Generic[Content]):
    """Decisions by domain and index, and one hint per domain. Decisions never change; hints move to higher indices only."""

    decisions: dict[str, dict[int, Decision[Content]]] = msgspec.field(default_factory=dict)
    hints: dict[str, Finalized[Content]] = msgspec.field(default_factory=dict)

    def decide(self, domain: str, index: int, content: Content, proposer: int) -> Decision[Content]:
        """The decision for the place: this proposal if it is the first, else the one recorded."""
        return self.decisions.setdefault(domain, {}).setdefault(index, Decision(content, proposer))

    def tell_finalized(self, domain: str, index: int, content: Content) -> Content:
        """The domain's hint from now on: this content, unless one of at least its index is kept already."""
        kept = self.hints.get(domain)
        if kept is None or index > kept.index:
            kept = self.hints[domain] = Finalized(index, content)
        return kept.content

    def hint(self, domain: str) -> Content | None:
        """What was last told, or None."""
        kept = self.hints.get(domain)
        return None if kept is None else kept.content

    @property
    def count(self) -> int:
        """How many places are decided."""
        return sum(map(len, self.decisions.values()))


def require_place(configuration: Configuration) -> None:
    """Raise :class:`ConfigurationRefused` for a configuration without a place: there is nothing to decide about it."""
    if configuration.index < 0:
        raise ConfigurationRefused(
            f"{configuration.describe()}: it has no place in the sequence of domain {configuration.domain!r} (its index is {configuration.index}), "
            "so it cannot be proposed or finalized; nothing was sent"
        )
