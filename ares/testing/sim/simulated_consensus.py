"""The consensus service as a client sees it: right, slow, sometimes without a leader, and its answers get lost."""

from collections.abc import Callable

from ares.model.configuration import Configuration
from ares.model.decision import DecisionTable
from ares.model.errors import ConsensusUnavailable
from ares.model.identity import CallId, ClientId, DomainName
from ares.model.messages import Decided
from ares.testing.sim.invariants import Places
from ares.testing.sim.world import World

GIVES_UP = 0.05
"""How often a client gives up on a proposal that is decided nevertheless."""


class SimConsensus:
    """``down_until``: no leader before then; proposals wait."""

    def __init__(self, world: World, places: Places) -> None:
        self.down_until = 0.0
        self.table: DecisionTable[Configuration] = DecisionTable()
        self._world = world
        self._places = places
        self.healed = False

    def propose(
        self, configuration: Configuration, proposer: ClientId, answer: Callable[[Decided], None], refuse: Callable[[Exception], None]
    ) -> None:
        """Decide some time later; answer later still, or have the client give up first."""
        decided_in = self._wait()
        self._world.after(decided_in, self._decide, configuration, proposer, answer)
        if not self.healed and self._world.rng.random() < GIVES_UP:
            self._world.after(decided_in * self._world.rng.random(), refuse, ConsensusUnavailable("the simulated client lost patience"))

    def _decide(self, configuration: Configuration, proposer: ClientId, answer: Callable[[Decided], None]) -> None:
        decision = self.table.decide(configuration.domain, configuration.index, configuration, proposer)
        self._places.see(decision.content)
        self._world.tell(f"consensus DECIDES c{configuration.index} for client {decision.proposer}")
        self._world.after(self._wait(), answer, Decided(CallId(0), decision.content, ClientId(decision.proposer)))

    def tell_finalized(self, configuration: Configuration, answer: Callable[[bool], None]) -> None:
        self.table.tell_finalized(configuration.domain, configuration.index, configuration)
        self._world.after(self._wait(), answer, True)

    def hint(self, domain: DomainName, answer: Callable[[Configuration | None], None]) -> None:
        down = self._world.now < self.down_until
        self._world.after(self._wait() if not down else 0.0, answer, None if down else self.table.hint(domain))

    def _wait(self) -> float:
        wait = self._world.chances.delay_s * 4 * self._world.rng.paretovariate(1.5)
        return min(wait, 2.0) + max(0.0, self.down_until - self._world.now)
