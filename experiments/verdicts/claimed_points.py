"""The scale `points`: rounds of the points that claims name, derived from the claims.

A point is a round for each of :data:`POINT_ROUNDS` iterations, or of `iterations` of the scenario's
table `points`. Parameters that a claim does not name are those of the tables `fixed`, `paper` and
`points`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from ares.model.errors import BadInput
from experiments.logs.log_load_plan import LOG_STUDY, LOG_THREADS, LogLoadRun
from experiments.rounds.scenario import Parameters, Scenario, ScenarioRound
from experiments.sites.fog_plan import FOG_STUDY
from experiments.verdicts.claim import Claim, Filters, sources
from experiments.verdicts.evaluate import ROUNDS_MIN, untranscribed

POINT_ROUNDS = ROUNDS_MIN

LONGEST_POINT_MIN = 10.0
"""Longest work of a round of the scale `points`, in minutes, unless the user says otherwise."""


def claims() -> list[Claim]:
    """Return the claims of all sources."""
    return [claim for source in sources() for claim in source.claim]


def sides_of(told: Iterable[Claim], scenario: str) -> Iterator[Filters]:
    """Yield what the claims name of a scenario: the filters of each side of each comparison.

    Sides which the algorithm as published cannot run are left out.
    """
    for claim in told:
        if claim.of is not None and claim.scenario == scenario:
            for variant in claim.variants():
                for side in variant.sides:
                    if untranscribed(side) is None:
                        yield side


def point_rounds(
    scenario: Scenario, told: Iterable[Claim], protocols: Sequence[str] = ()
) -> Iterator[ScenarioRound]:
    """Yield the rounds of the points of a scenario. Raises BadInput for an impossible point."""
    seen: dict[tuple[str, Parameters], ScenarioRound] = {}
    for side in sides_of(told, scenario.name):
        protocol = side["algorithm"]
        if protocol not in scenario.protocols:
            raise BadInput(f"scenario {scenario.name} has no protocol {protocol}")
        named = {name: side[name] for name in Parameters.__struct_fields__ if name in side}
        round = scenario.round(protocol, *scenario.one_point(named), 1)
        seen.setdefault((protocol, round.parameters), round)
    for iteration in range(1, scenario.points.get("iterations", POINT_ROUNDS) + 1):
        for round in seen.values():
            if not protocols or round.protocol in protocols:
                yield msgspec.structs.replace(round, iteration=iteration)


def too_long(scenario: Scenario, claim: Claim) -> list[float]:
    """Return the minutes of the rounds of a claim that take too long for a night."""
    minutes = [round.parameters.work_s / 60 for round in point_rounds(scenario, [claim])]
    return [each for each in minutes if each > LONGEST_POINT_MIN]


def fog_points(told: Iterable[Claim]) -> dict[tuple[str, int], set[str]]:
    """Return the tests of each store with a number of sites that the claims name."""
    points: dict[tuple[str, int], set[str]] = {}
    for side in sides_of(told, FOG_STUDY):
        points.setdefault((side["algorithm"], side["sites"]), set()).add(side["test"])
    return points


def log_runs(told: Collection[Claim]) -> list[LogLoadRun]:
    """Return the runs of the shared log's points."""
    windows: dict[LogLoadRun, set[int]] = {}
    for side in (*sides_of(told, LOG_STUDY), *sides_of(told, LOG_THREADS)):
        shape = [side[name] for name in ("servers", "object_size", "read_share", "interval")]
        threads = (side.get("logs", 1), side.get("processors", 0))
        run = LogLoadRun(side["algorithm"], *shape, (), *threads)
        windows.setdefault(run, set()).add(side["clients"])
    replace = msgspec.structs.replace
    return [replace(run, windows=tuple(sorted(found))) for run, found in windows.items()]
