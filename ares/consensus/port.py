"""What clients and servers need of a consensus service. Every implementation passes the same tests (tests/consensus/test_contract.py)."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ares.model.configuration import Configuration
from ares.model.identity import ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided


class Consensus(Protocol):
    """One decision for every (domain, index): the first proposal wins, for ever (protocol: ARES II section 3, c.Con).

    Every method raises :class:`ares.ConsensusUnavailable` when ``timeout_s`` passes without an answer; asking again is always safe.
    """

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        """The decision for ``(configuration.domain, configuration.index)``: this proposal, or an earlier one."""

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        """The last finalized configuration that the service was told of. Never needed for safety."""

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> None:
        """Keep ``configuration`` as its domain's hint, unless a later one is kept already."""

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        """Why members cannot be reached, as :attr:`ares.net.port.Connections.troubles` of servers."""

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """What each member that answers says of itself; never raises for silent ones."""

    async def close(self) -> None:
        """Let go of connections; idempotent."""


class Notes(Protocol):
    """Short notes that consensus members tell each other, outside of what they decide.

    A note may be lost, come late or be of another release: it is a hint and nothing else.
    """

    def tell(self, note: bytes) -> None:
        """Send this member's note to each other member, in place of the last one."""

    def told(self) -> Sequence[tuple[bytes, float]]:
        """Return the last note of each other member, with the seconds since it came."""


class Unheard:
    """Notes of a member that is alone."""

    def tell(self, note: bytes) -> None:
        """Drop it."""

    def told(self) -> Sequence[tuple[bytes, float]]:
        """Return nothing."""
        return ()
