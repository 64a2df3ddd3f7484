"""Evaluation of rows to the verdict on a claim.

Pure: equal inputs give equal results, without I/O.

Both sides of a quotient are compared at one point: only the parameters named by the claim differ,
and runs are paired by iteration. The value is the geometric mean of the rounds' quotients of means.
The 95 % interval is Student's, over the logarithms of the rounds' values: rounds are independent
measurements, operations of a round are not. A bootstrap over three or four rounds has too few
values to draw from, and its intervals are too narrow.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import variance
from typing import Any

from msgspec import Struct

from experiments.rounds.ares_protocols import why_untranscribed
from experiments.rounds.scenario import OF_ARES
from experiments.verdicts.claim import (
    AWAITING,
    CONFIRMED,
    NOT_MEASURED,
    NOT_TESTABLE,
    REFUTED,
    TODAYS,
    UNDECIDED,
    Claim,
    ClaimVariant,
    Filters,
    Quotient,
    value_text,
    words_of,
)

STUDENT_T = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""Quantiles 97.5 % of Student's t, by the number of rounds. More rounds have the last."""

JUDGING_RULE = "Student's t, 97.5 %, over the logarithms of rounds paired by iteration"
"""Name of the rule that judges. Another rule takes another name: kept rows carry a digest of it,
and a row that another rule judged loses its verdict."""

ROUNDS_MIN = min(STUDENT_T)
"""Smallest number of rounds for an interval."""

PAUSES = {
    *("interval_s", "operations", "reconfigure_every_s", "fresh_after_s", "timeout_s"),
    "reconfigurations",
}
"""Parameters that are no point; runs are paired by them."""

OF_ARES_ALONE = {"published", "switches"}
"""Parameters of ares alone."""

FREE = PAUSES | {"k", "m", "checked", "check"}
"""Parameters that are no point, and columns that follow from other parameters."""


class FigureRow(Struct, frozen=True):
    """The figures of a kind of operation in a run.

    ``parameters``: of the run, with texts for values other than numbers. ``samples``: the figures
    of each operation, by name. ``run``: the run's directory.
    """

    scenario: str
    algorithm: str
    op: str
    parameters: Mapping[str, Any]
    figures: Mapping[str, float | None]
    iteration: int | None = None
    run: str = ""
    samples: Mapping[str, Sequence[float]] = {}


class Comparison(Struct, frozen=True):
    """A comparison: verdict, value, interval, runs, and operations of the smaller side.

    ``why`` says why a value or an interval is missing.
    """

    label: str
    word: str
    judged: bool = True
    value: float | None = None
    interval: tuple[float, float] | None = None
    runs: frozenset[str] = frozenset()
    operations: int = 0
    why: str = ""

    @property
    def of_today(self) -> bool:
        return self.label.startswith(TODAYS)


class Verdict(Struct, frozen=True):
    """A verdict, with the comparisons behind the word."""

    claim: Claim
    word: str
    comparisons: tuple[Comparison, ...] = ()

    @property
    def judged(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.judged]

    @property
    def measured(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.value is not None]


class MissingData(Exception):
    """The lack of data for a quotient, with the reason."""


class _Measured(Struct):
    """A quotient's value of each round, its runs, and the operations of its smaller side."""

    rounds: list[float]
    runs: set[str]
    operations: int

    @property
    def positive(self) -> bool:
        return min(self.rounds) > 0


_BY_WEIGHT = (REFUTED, NOT_MEASURED, AWAITING, UNDECIDED, CONFIRMED)
"""Words of comparisons, by weight: the heaviest decides on the claim."""


def evaluate(claim: Claim, rows: Sequence[FigureRow]) -> Verdict:
    """Return the verdict on ``claim``.

    The claim is refuted if a comparison refutes it, and confirmed if all comparisons confirm it.
    """
    if claim.test:
        return Verdict(claim, CONFIRMED if claim.confirmed_by else REFUTED)
    if claim.of is None:
        return Verdict(claim, NOT_TESTABLE)
    own = [row for row in rows if row.scenario == claim.scenario]
    comparisons = tuple(_compare(claim, own, variant) for variant in claim.variants())
    words = {each.word for each in comparisons if each.judged}
    word = next(word for word in _BY_WEIGHT if word in words)
    return Verdict(claim, word, comparisons)


def untranscribed(side: Filters) -> str | None:
    """Return why the algorithm as published cannot run ``side``, or `None`."""
    on = [word[1:] for word in str(side.get("switches", "")).split() if word[0] == "+"]
    reconfigurers = int(side.get("reconfigurers", 0) or 0)
    return why_untranscribed(side.get("algorithm", ""), side["published"], on, reconfigurers)


def _compare(claim: Claim, rows: Sequence[FigureRow], variant: ClaimVariant) -> Comparison:
    both = filter(None, (variant.quotient, variant.beside))
    try:
        quotients = [_measure(rows, quotient, claim.statistic) for quotient in both]
        value = _estimate(quotients)
    except MissingData as missing:
        why = next(filter(None, map(untranscribed, variant.sides)), None)
        word = AWAITING if why else NOT_MEASURED
        return Comparison(variant.label, word, variant.judged, why=why or str(missing))
    operations = min(each.operations for each in quotients)
    rounds = min(len(each.rounds) for each in quotients)
    word, interval, why = UNDECIDED, None, ""
    if claim.confirms == "none" and value > claim.limit:  # one operation refutes it
        word = REFUTED
    elif operations < claim.operations:
        why = f"{operations:,} operations on a side, and {claim.operations:,} are needed"
    elif claim.confirms == "none":
        word = CONFIRMED
    elif rounds < ROUNDS_MIN:
        why = f"an interval needs {ROUNDS_MIN} rounds; rounds with the figure: {rounds}"
    elif not value and len(variant.sides) > 1:
        why = "a ratio of 0 has no interval"
    else:
        interval = _interval(value, quotients)
        word = claim.word(*interval)
    runs = frozenset[str]().union(*(each.runs for each in quotients))
    return Comparison(variant.label, word, variant.judged, value, interval, runs, operations, why)


def _measure(rows: Sequence[FigureRow], quotient: Quotient, statistic: str) -> _Measured:
    """Return the value of each round of a quotient. Raises :class:`MissingData`."""
    sides, statistics = [], [side.get("statistic", statistic) for side in quotient.sides]
    for filters, figure in zip(quotient.sides, statistics, strict=True):
        chosen = [row for row in rows if _fits(row, filters)]
        if not chosen:
            raise MissingData(_elsewhere(rows, filters))
        known = [row for row in chosen if _samples(row, figure)]
        if not known:
            raise MissingData(f"no figure {figure} of {words_of(filters)}")
        sides.append(known)
    named = {key for filters in quotient.sides for key in filters}
    if open_ := sorted(_varying(list(itertools.chain(*sides))) - named - FREE):
        raise MissingData(f"runs differ in what the claim does not name: {', '.join(open_)}")
    pairs = _pairs(sides, named)
    if not pairs:
        raise MissingData("no two runs that were made with the same parameters")
    means = [
        [_mean(_joined(side, figure)) for side, figure in zip(pair, statistics, strict=True)]
        for pair in pairs
    ]
    return _Measured(
        [each[0] if len(each) == 1 else _ratio(*each) for each in means],
        {row.run for pair in pairs for side in pair for row in side},
        min(
            sum(_operations(row, figure) for pair in pairs for row in pair[number])
            for number, figure in enumerate(statistics)
        ),
    )


def _elsewhere(rows: Sequence[FigureRow], filters: Filters) -> str:
    """Return the parameters in which the nearest run differs from the claim."""
    same = {key: filters.get(key) for key in ("algorithm", "op")}
    own = [row for row in rows if _fits(row, same)]
    if not own:
        return f"no run of {filters.get('algorithm')}, {filters.get('op')}"
    named = [key for key in filters if key not in (*same, "statistic")]
    others = [[key for key in named if not _is(row, key, filters[key])] for row in own]
    nearest = min(range(len(own)), key=lambda number: len(others[number]))
    if others[nearest] == ["published"]:
        return "no run of the algorithm as published"
    there = {key: value_text(key, _value(own[nearest], key)) for key in others[nearest]}
    told = (f"{key} {there[key]} instead of {value_text(key, filters[key])}" for key in there)
    return f"measured elsewhere: {'; '.join(told)}"


def _samples(row: FigureRow, statistic: str) -> Sequence[float]:
    if statistic in row.samples:
        return row.samples[statistic]
    value = row.figures.get(statistic)
    return () if value is None or not math.isfinite(value) else (float(value),)


def _operations(row: FigureRow, statistic: str) -> int:
    if statistic in row.samples:
        return len(row.samples[statistic])
    return int(row.figures.get("operations") or 0)


def _joined(rows: Sequence[FigureRow], statistic: str) -> list[float]:
    return [value for row in rows for value in _samples(row, statistic)]


def _fits(row: FigureRow, filters: Filters) -> bool:
    return all(_is(row, key, wanted) for key, wanted in filters.items() if key != "statistic")


def _value(row: FigureRow, key: str) -> Any:
    own = {"algorithm": row.algorithm, "op": row.op}
    return own[key] if key in own else row.parameters.get(key)


def _is(row: FigureRow, key: str, wanted: Any) -> bool:
    value = _value(row, key)
    if key == "published":
        return row.algorithm not in OF_ARES or (value or "") == wanted
    if key == "switches":
        on = str(value or "").split("+")
        return value is not None and all(
            (word[1:] in on) == (word[0] == "+") for word in str(wanted).split()
        )
    return bool(value == wanted)


def _pairs(sides: Sequence[Sequence[FigureRow]], named: set[str]) -> list[list[list[FigureRow]]]:
    """Return for each round the rows of each side: with equal iteration and free parameters.

    Parameters that the claim names may differ.
    """
    keys = sorted((_varying(list(itertools.chain(*sides))) & PAUSES) - named)
    groups: list[dict[Any, list[FigureRow]]] = []
    for side in sides:
        groups.append(defaultdict(list))
        for row in side:
            groups[-1][row.iteration, *(row.parameters.get(key) for key in keys)].append(row)
    shared = [key for key in groups[0] if all(key in group for group in groups)]
    return [[group[key] for group in groups] for key in shared]


def _varying(rows: Sequence[FigureRow]) -> set[str]:
    own = [row for row in rows if row.algorithm in OF_ARES]
    found = {key: {row.parameters.get(key) for row in own} for key in OF_ARES_ALONE}
    keys = {key for row in rows for key in row.parameters} - OF_ARES_ALONE
    found |= {key: {row.parameters.get(key) for row in rows} for key in keys}
    return {key for key, values in found.items() if len(values) > 1}


def _estimate(quotients: Sequence[_Measured]) -> float:
    """Return the first quotient, divided by the second if there are two.

    A quotient is the geometric mean of its rounds' values, or the mean if a value is 0.
    """
    means = [
        math.prod(each.rounds) ** (1 / len(each.rounds)) if each.positive else _mean(each.rounds)
        for each in quotients
    ]
    return means[0] if len(means) == 1 else _ratio(*means)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _ratio(first: float, second: float) -> float:
    if not second:
        raise MissingData("the figure that it is compared with is 0")
    return first / second


def _interval(value: float, quotients: Sequence[_Measured]) -> tuple[float, float]:
    """Return the 95 % interval of ``value`` from the spread of rounds.

    The interval of positive values comes from logarithms. The quotient with fewer rounds gives the
    quantile, so the interval is rather too wide than too narrow.
    """
    positive = all(each.positive for each in quotients)
    rounds = [[math.log(each) for each in q.rounds] if positive else q.rounds for q in quotients]
    error = math.sqrt(sum(variance(each) / len(each) for each in rounds))
    half = STUDENT_T[min(max(STUDENT_T), *map(len, rounds))] * error
    if positive:
        return value / math.exp(half), value * math.exp(half)
    return value - half, value + half
