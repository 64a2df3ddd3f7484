"""The contract of every implementation of the Consensus port."""

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ares.consensus.port import Consensus
from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused
from ares.model.identity import ClientId, DomainName

from .clusters import PATIENCE_S, configuration

ALICE, BOB = ClientId(2**64 - 1), ClientId(2)


async def test_the_first_proposal_is_decided(consensus: Consensus) -> None:
    decided = await consensus.propose(configuration(3), ALICE, PATIENCE_S)
    assert (decided.configuration, decided.proposer) == (configuration(3), ALICE)


async def test_a_later_proposal_gets_the_first(consensus: Consensus) -> None:
    await consensus.propose(configuration(0), ALICE, PATIENCE_S)
    decided = await consensus.propose(configuration(0, servers="s3 s4 s5"), BOB, PATIENCE_S)
    assert (decided.configuration, decided.proposer) == (configuration(0), ALICE)


async def test_a_repeated_proposal_gets_the_same_answer(consensus: Consensus) -> None:
    for _ in range(3):
        decided = await consensus.propose(configuration(0), ALICE, PATIENCE_S)
        assert (decided.configuration, decided.proposer) == (configuration(0), ALICE)


async def test_places_are_independent(consensus: Consensus) -> None:
    places = [
        configuration(0, "a", "s0 s1 s2"),
        configuration(1, "a", "s1 s2 s3"),
        configuration(0, "b", "s2 s3 s4"),
    ]
    for place in places:
        assert (await consensus.propose(place, ALICE, PATIENCE_S)).configuration == place
    async with asyncio.timeout(PATIENCE_S):
        while (decisions := (await consensus.describe(PATIENCE_S))[0].decisions) < len(places):  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)  # a member may hear later of the others' decision
    assert decisions == len(places)


async def test_erasure_coded_configurations_come_back_whole(consensus: Consensus) -> None:
    proposed = Configuration.ec(["s0", "s1", "s2", "s3", "s4"], k=3, delta=5).at(
        DomainName("photos/ü"), 7
    )
    assert (await consensus.propose(proposed, ALICE, PATIENCE_S)).configuration == proposed


async def test_hints_are_per_domain_and_never_go_back(consensus: Consensus) -> None:
    assert await consensus.propose(configuration(0, "a"), ALICE, PATIENCE_S)
    assert await consensus.hint(DomainName("a"), PATIENCE_S) is None
    for index, kept in ((1, 1), (4, 4), (3, 4)):
        await consensus.tell_finalized(configuration(index, "a"), PATIENCE_S)
        assert await consensus.hint(DomainName("a"), PATIENCE_S) == configuration(kept, "a")
    assert await consensus.hint(DomainName("b"), PATIENCE_S) is None


async def test_a_configuration_without_a_place_is_refused(consensus: Consensus) -> None:
    unplaced = Configuration.abd(["s0", "s1", "s2"])
    with pytest.raises(ConfigurationRefused):
        await consensus.propose(unplaced, ALICE, PATIENCE_S)
    with pytest.raises(ConfigurationRefused):
        await consensus.tell_finalized(unplaced, PATIENCE_S)


async def test_closing_twice_is_allowed(consensus: Consensus) -> None:
    await consensus.close()
    await consensus.close()


_fresh = itertools.count()


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=20))
async def test_concurrent_proposers_agree(
    consensus: Consensus, made: list[tuple[int, int]]
) -> None:
    domain = f"example {next(_fresh)}"
    proposed = [
        (configuration(index, domain, f"s0 s1 t{proposer}"), ClientId(proposer))
        for index, proposer in made
    ]
    decided = await asyncio.gather(
        *(consensus.propose(placed, proposer, PATIENCE_S) for placed, proposer in proposed)
    )
    answers: dict[int, set[tuple[bytes, ClientId]]] = {}
    for (placed, _), decision in zip(proposed, decided, strict=True):
        assert (decision.configuration, decision.proposer) in proposed
        assert decision.configuration.index == placed.index
        answers.setdefault(placed.index, set()).add((decision.configuration.id, decision.proposer))
    assert all(len(different) == 1 for different in answers.values())
