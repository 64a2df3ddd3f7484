"""Evaluation of rows to the verdict on a claim.

Pure: equal inputs give equal results, without I/O.

Both sides of a quotient are compared at one point: they differ in nothing but the parameters that
the claim names, and runs are paired by iteration. The value is the geometric mean over the rounds
of the quotient of their means. Its interval has 95 % of the values of rounds, and of operations of
each round, that are drawn anew with replacement.
"""

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from experiments.rounds.scenario import OF_ARES
from experiments.verdicts.claim import (
    CONFIRMED,
    NOT_MEASURED,
    NOT_TESTABLE,
    REFUTED,
    UNDECIDED,
    Claim,
    ClaimVariant,
    Filters,
    Quotient,
    value_text,
    words_of,
)

RESAMPLES = 1000
ROUNDS_MIN = 3
"""Smallest number of rounds for an interval of figures that a round has once."""

PAUSES = {
    *("interval_s", "operations", "reconfigure_every_s", "fresh_after_s", "timeout_s"),
    "reconfigurations",
}
"""Parameters that are no point; runs are paired by them."""

FREE = PAUSES | {"k", "m", "topology", "checked", "check"}
"""Parameters that are no point, and columns that follow from other parameters."""


class FigureRow(Struct, frozen=True):
    """The figures of a kind of operation in a run.

    ``parameters`` are the run's, with texts for values that are no numbers. ``samples`` has the
    figures that each operation has, by name. ``run`` is the run's directory.
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


Sample = tuple[Sequence[float], Sequence[float] | None]
"""The figures of both sides in a round."""


class _Measured(Struct):
    """A quotient's samples by round, and the runs and operations of each side."""

    rounds: list[Sample]
    of_operations: bool
    runs: set[str]
    operations: int


def evaluate(claim: Claim, rows: Sequence[FigureRow]) -> Verdict:
    """Return the verdict on ``claim``.

    The claim is refuted if a comparison refutes it, and confirmed if all comparisons confirm it.
    """
    if claim.test:
        return Verdict(claim, CONFIRMED if claim.confirmed_by else REFUTED)
    if claim.of is None:
        return Verdict(claim, NOT_TESTABLE if claim.cannot else NOT_MEASURED)
    own = [row for row in rows if row.scenario == claim.scenario]
    comparisons = tuple(_compare(claim, own, variant) for variant in claim.variants())
    words = {each.word for each in comparisons if each.judged}
    word = next(word for word in (REFUTED, NOT_MEASURED, UNDECIDED, CONFIRMED) if word in words)
    return Verdict(claim, word, comparisons)


def _compare(claim: Claim, rows: Sequence[FigureRow], variant: ClaimVariant) -> Comparison:
    try:
        quotients = [
            _measure(rows, quotient, claim.statistic)
            for quotient in (variant.quotient, variant.beside)
            if quotient is not None
        ]
        value = _divided([each.rounds for each in quotients])
    except MissingData as missing:
        return Comparison(variant.label, NOT_MEASURED, variant.judged, why=str(missing))
    operations = min(each.operations for each in quotients)
    interval, why = None, ""
    if operations < claim.operations:
        word = UNDECIDED
        why = f"{operations:,} operations on a side, and {claim.operations:,} are needed"
    elif claim.confirms == "none":
        word = claim.word(value, value)
    elif few := [
        len(each.rounds)
        for each in quotients
        if not each.of_operations and len(each.rounds) < ROUNDS_MIN
    ]:
        word = UNDECIDED
        why = f"{min(few)} rounds have the figure, and an interval needs {ROUNDS_MIN}"
    else:
        interval = _interval([each.rounds for each in quotients], f"{claim.id} {variant.label}")
        word = claim.word(*interval)
    runs = frozenset[str]().union(*(each.runs for each in quotients))
    return Comparison(variant.label, word, variant.judged, value, interval, runs, operations, why)


def _measure(rows: Sequence[FigureRow], quotient: Quotient, statistic: str) -> _Measured:
    """Return the samples of a quotient. Raises :class:`MissingData`."""
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
    pairs = _pairs(sides)
    if not pairs:
        raise MissingData("no two runs that were made with the same parameters")
    return _Measured(
        [
            (
                _joined(pair[0], statistics[0]),
                _joined(pair[1], statistics[1]) if len(pair) > 1 else None,
            )
            for pair in pairs
        ],
        all(
            figure in row.samples
            for pair in pairs
            for side, figure in zip(pair, statistics, strict=True)
            for row in side
        ),
        {row.run for pair in pairs for side in pair for row in side},
        min(
            sum(_operations(row, figure) for pair in pairs for row in pair[number])
            for number, figure in enumerate(statistics)
        ),
    )


def _elsewhere(rows: Sequence[FigureRow], filters: Filters) -> str:
    """Return which parameters of the nearest run are not those of the claim."""
    own = [
        row for row in rows if all(_is(row, key, filters.get(key)) for key in ("algorithm", "op"))
    ]
    if not own:
        return f"no run of {filters.get('algorithm')}, {filters.get('op')}"
    named = [key for key in filters if key not in ("algorithm", "op", "statistic")]
    others = [[key for key in named if not _is(row, key, filters[key])] for row in own]
    nearest = min(range(len(own)), key=lambda number: len(others[number]))
    if others[nearest] == ["published"]:
        return "no run of the algorithm as published"
    return "measured elsewhere: " + "; ".join(
        f"{key} {value_text(key, _value(own[nearest], key))} "
        f"instead of {value_text(key, filters[key])}"
        for key in others[nearest]
    )


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


def _pairs(sides: Sequence[Sequence[FigureRow]]) -> list[list[list[FigureRow]]]:
    """Return for each round the rows of each side: with equal iteration and free parameters."""
    keys = sorted(_varying(list(itertools.chain(*sides))) & PAUSES)
    groups: list[dict[Any, list[FigureRow]]] = []
    for side in sides:
        group = defaultdict(list)
        for row in side:
            group[row.iteration, *(row.parameters.get(key) for key in keys)].append(row)
        groups.append(group)
    return [
        [group[key] for group in groups]
        for key in groups[0]
        if all(key in group for group in groups)
    ]


def _varying(rows: Sequence[FigureRow]) -> set[str]:
    keys = {key for row in rows for key in row.parameters}
    return {key for key in keys if len({row.parameters.get(key) for row in rows}) > 1}


def _divided(quotients: Sequence[Sequence[Sample]]) -> float:
    """Return the first quotient, divided by the second if there are two."""
    values = [_estimate(rounds) for rounds in quotients]
    return values[0] if len(values) == 1 else _ratio(*values)


def _estimate(rounds: Sequence[Sample]) -> float:
    """Return the geometric mean of the rounds' ratios, or the mean of the rounds' values."""
    values = [_mean(of) if to is None else _ratio(_mean(of), _mean(to)) for of, to in rounds]
    if rounds[0][1] is None:
        return _mean(values)
    return math.prod(values) ** (1 / len(values))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _ratio(first: float, second: float) -> float:
    if not second:
        raise MissingData("the figure that it is compared with is 0")
    return first / second


def _interval(quotients: Sequence[Sequence[Sample]], seed: str) -> tuple[float, float]:
    """Return the 95 % interval. Draws follow from ``seed``, so the interval is reproducible."""
    chance = random.Random(seed)
    values = []
    for _ in range(RESAMPLES):
        drawn = [
            [
                (_drawn(of, chance.choices), None if to is None else _drawn(to, chance.choices))
                for of, to in chance.choices(rounds, k=len(rounds))
            ]
            for rounds in quotients
        ]
        try:
            values.append(_divided(drawn))
        except MissingData:  # a divisor of 0 was drawn
            values.append(math.inf)
    values.sort()
    return values[round(0.025 * RESAMPLES)], values[round(0.975 * RESAMPLES) - 1]


def _drawn(values: Sequence[float], choices: Callable[..., list[float]]) -> Sequence[float]:
    return values if len(values) == 1 else choices(values, k=len(values))
