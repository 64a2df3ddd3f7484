"""The decisions of a consensus service, and the messages to and from its members.

For every (domain, index) the first proposal is decided, for ever.

See ARES II section 3, c.Con; Alg. 5:17. A single table serves all implementations of the port. The
table never looks into its content (a configuration, or the bytes of a configuration): replicas of
different releases which apply the same commands in the same order hold the same table. The tables
are msgspec Structs of plain values: encoding a table is taking its snapshot.
"""

from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused
from ares.model.identity import ClientId, DomainName, ServerId
from ares.model.message import Message
from ares.model.numbers import Count
from ares.model.work import CONFIGURATION_WORK

USAGES_MAX = 100
"""Domains in a question about usage, and in a member's report of domains that follow their users.
"""

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


# -- messages to a consensus member, and from it ---------------------------------------------------


class Propose(Message, frozen=True, tag=64):
    """Con.propose (Alg. 5:17): the place is the configuration's own."""

    configuration: Configuration
    proposer: ClientId

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK


class Decided(Message, frozen=True, tag=65):
    """The decision for the place, from any proposer."""

    configuration: Configuration
    proposer: ClientId


class GetHint(Message, frozen=True, tag=66):
    """A question for the last configuration of a domain reported as finalized."""

    domain: DomainName


class Hint(Message, frozen=True, tag=67):
    """The last configuration of the domain reported as finalized to the service.

    Never needed for safety. ``side_by_side``: in the answer to :class:`TellFinalized`, the member
    understands chains that commit side by side; False from a release without this field.
    """

    configuration: Configuration | None
    side_by_side: bool = False


class TellFinalized(Message, frozen=True, tag=68):
    """A report that a configuration is finalized, for the hint of its domain."""

    configuration: Configuration

    @property
    def bulk(self) -> int:
        return CONFIGURATION_WORK


class Undecided(Message, frozen=True, tag=69):
    """A failure of the member to reach a decision (no leader, no majority).

    The client asks another member, or later.
    """

    why: str


class DescribeConsensus(Message, frozen=True, tag=70):
    """A question for the state of a consensus member."""


class FollowReport(Struct, frozen=True, array_like=True):
    """The autopilot's decision about a domain which follows its users.

    The domain lives at ``site`` (empty: at several sites, or unknown). ``decision``: a word of
    ares/autopilot/following.py. ``why``: a sentence.
    """

    domain: DomainName
    site: str
    decision: str
    why: str


class ConsensusDescription(Message, frozen=True, tag=71):
    """A member's state.

    ``autopilot``: its present or last action, in a sentence; empty at a member without autopilot.
    ``followed``: the first domains which follow their users.
    """

    member: ServerId
    leader: str
    term: Count
    decisions: Count
    members_reachable: Count
    members_total: Count
    autopilot: str = ""
    followed: Annotated[tuple[FollowReport, ...], Meta(max_length=USAGES_MAX)] = ()
    version: str = ""
    """Version of the member's program; empty from a release without this field."""
