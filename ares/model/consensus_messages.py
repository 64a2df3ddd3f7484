"""Requests to a consensus member, and its replies (protocol: c.Con, and the hint). Part of the one registry in ares/model/messages.py."""

from ares.model.configuration import Configuration
from ares.model.envelope import Message
from ares.model.identity import ClientId, DomainName, ServerId


class Propose(Message, frozen=True, tag=64):
    """Con.propose (Alg. 5:17): the place is the configuration's own."""

    configuration: Configuration
    proposer: ClientId


class Decided(Message, frozen=True, tag=65):
    """The decision for the place, whosever it was."""

    configuration: Configuration
    proposer: ClientId


class GetHint(Message, frozen=True, tag=66):
    domain: DomainName


class Hint(Message, frozen=True, tag=67):
    """The last configuration of the domain that the service was told is finalized. Never needed for safety."""

    configuration: Configuration | None


class TellFinalized(Message, frozen=True, tag=68):
    configuration: Configuration


class Undecided(Message, frozen=True, tag=69):
    """The member could not reach a decision (no leader, no majority): ask another, or later."""

    why: str


class DescribeConsensus(Message, frozen=True, tag=70):
    pass


class ConsensusDescription(Message, frozen=True, tag=71):
    """``autopilot``: what it does or did last, in one sentence; empty at a member that does not run it."""

    member: ServerId
    leader: str
    term: int
    decisions: int
    members_reachable: int
    members_total: int
    autopilot: str = ""
