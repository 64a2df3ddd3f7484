"""Consensus inside a process: the decision table without replication.

For tests, simulation and trials. Several clients share a :class:`LocalConsensus`. The decisions are
lost with the process.
"""

from ares.model.configuration import Configuration
from ares.model.decision import DecisionTable, require_place
from ares.model.errors import NO_TROUBLES
from ares.model.identity import NO_CALL, ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided

_MEMBER = ServerId("local")


class LocalConsensus:
    """The Consensus port (ares/consensus/port.py), with immediate decisions and without failures.

    Refuses a configuration without a place.
    """

    troubles = NO_TROUBLES

    def __init__(self) -> None:
        self._table: DecisionTable[Configuration] = DecisionTable()

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        require_place(configuration)
        decision = self._table.decide(
            configuration.domain, configuration.index, configuration, proposer
        )
        return Decided(NO_CALL, decision.content, decision.client)

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        return self._table.hint(domain)

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> bool:
        require_place(configuration)
        self._table.tell_finalized(configuration.domain, configuration.index, configuration)
        return True

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        return [ConsensusDescription(NO_CALL, _MEMBER, _MEMBER, 0, self._table.count, 1, 1)]

    async def close(self) -> None:
        """Do nothing: no resource is held."""
