"""The requirements of clients and servers on a consensus service.

Every implementation passes the same tests (tests/consensus/test_consensus_contract.py).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ares.model.configuration import Configuration
from ares.model.identity import ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided


class Consensus(Protocol):
    """A decision for every (domain, index): the first proposal wins, for ever.

    Protocol: ARES II section 3, c.Con. Every method raises :class:`ares.ConsensusUnavailable` when
    ``timeout_s`` passes without an answer; asking again is always safe.
    """

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        """Return the decision for ``(configuration.domain, configuration.index)``.

        This is the proposal, or an earlier one.
        """

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        """Return the last configuration reported as finalized. Never needed for safety."""

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> bool:
        """Keep ``configuration`` as its domain's hint, unless a later hint is kept already.

        Return whether the answering member understands chains that commit side by side.
        """

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        """Return why members cannot be reached, as :attr:`ares.net.port.Connections.troubles`."""

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        """Return the self-description of each answering member; never raises for silent members."""

    async def close(self) -> None:
        """Close the connections; idempotent."""


class Notes(Protocol):
    """Short notes between consensus members, apart from the decisions.

    A note may be lost, come late or be of another release: a note is only a hint.
    """

    def send_note(self, note: bytes) -> None:
        """Send this member's note to each other member, in place of the last note."""

    def received_notes(self) -> Sequence[tuple[bytes, float]]:
        """Return the last note of each other member, with the seconds since its arrival."""


class NoNotes:
    """Notes of a member without other members."""

    def send_note(self, note: bytes) -> None:
        """Drop the note."""

    def received_notes(self) -> Sequence[tuple[bytes, float]]:
        """Return nothing."""
        return ()
