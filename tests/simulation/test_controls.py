"""Deliberately broken variants, each of which the simulator catches."""

import pytest

from ares.replica.ahead_copies import AheadCopies
from ares.testing.sim.plan import draw
from ares.testing.sim.run import run_plan
from tests.simulation.ahead_controls import unchecked
from tests.simulation.controls import CONTROLS, consensus_that_decides_twice, hunt
from tests.simulation.coverable_controls import puts_remembered_for_every_configuration
from tests.simulation.test_log_controls import LOG_VARIANTS, RUNS_MAX

pytestmark = pytest.mark.slow

FIRST = {
    "published piggyback (no R1)": 11980,
    "ARES II as printed": 2300,
    "collections beside readers without piggyback": 135,
    "no put-config before moving on (no R3)": 420,
    "Lists of one": 90,
    "Lists that forget what they trimmed": 50,
    "early answers that count": 245,
    "a mover that asks the newest source first": 2150,
    "configurations named before they are final": 20,
    "overtaken writes that are not told": 35,
    "collectors that leave orphans": 18,
    "recovery that trusts what a failed sync left": 45,
    "recovery that shows what is not durable": 470,
    "torn elements taken for whole": 180,
    "rotten elements that are forgotten": 58,
    "elements that are not rebuilt": 33,
    "anchors that do not tell how long a segment was": 34,
    "gaps that are not told": 270,
    "places gone before their copies are durable": 112,
}
"""First seeds of the hunts for rare controls: a few before the seed that notices."""


@pytest.mark.parametrize("name", [name for name in CONTROLS if name not in LOG_VARIANTS])
def test_a_broken_variant_is_caught(name):
    caught = next(hunt(name, FIRST.get(name, 0), RUNS_MAX), None)
    assert caught is not None, f"{name}: {RUNS_MAX} runs noticed nothing"


def test_copies_without_the_checks_of_a_put_break_nothing_by_themselves():
    """The baseline of the controls which give servers wrong copies."""
    with unchecked(AheadCopies.take):
        assert [seed for seed in range(60) if run_plan(draw(seed, "ahead")).violation] == []


def test_with_r2_a_consensus_service_that_decides_twice_breaks_no_promise_to_readers_and_writers():
    """Rule R2 contains the fault.

    A domain may come to a standstill, but no completed write is lost and no read goes back.
    """
    with consensus_that_decides_twice():
        verdicts = [run_plan(draw(seed, "reconfigure")) for seed in range(60)]
    said = [verdict.violation for verdict in verdicts if verdict.violation is not None]
    assert any("two configurations for index" in violation for violation in said), (
        "it did not happen"
    )
    harmless = ("two configurations for index", "did not finish", "could not read")
    assert [
        violation for violation in said if not any(words in violation for words in harmless)
    ] == []


def test_a_put_skipped_for_a_version_remembered_in_another_configuration_breaks_no_promise():
    """A version that was completed once is found ever after.

    Remembering the configuration with the version is therefore a precaution.
    """
    with puts_remembered_for_every_configuration():
        assert [
            seed for seed in range(100) if run_plan(draw(seed, "coverable")).violation is not None
        ] == []
