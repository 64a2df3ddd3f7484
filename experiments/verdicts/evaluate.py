"""Evaluation of rows to the verdict on a claim.

Pure: equal inputs give equal results, without I/O.

Both sides of a quotient are compared at the same point: runs are paired by iteration and by every
parameter that varies on both sides. The value is the geometric mean over the pairs of the quotient
of their figures.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from experiments.verdicts.claim import CANNOT, CONFIRMED, NOT_CONFIRMED, Claim, Filters, Quotient

FEW = 30
"""Number of operations on a side below which a claim is marked."""

EXTREMES = {"smallest": 0, "second smallest": 1, "second largest": -2, "largest": -1}


class FigureRow(Struct, frozen=True):
    """The figures of a kind of operation in a run.

    ``parameters`` are the run's, with texts for values that are no numbers. ``run`` is the run's
    directory.
    """

    scenario: str
    algorithm: str
    op: str
    parameters: Mapping[str, Any]
    figures: Mapping[str, float | None]
    iteration: int | None = None
    run: str = ""


class Comparison(Struct, frozen=True):
    """A value, its label, its runs, and the number of operations of the smaller side.

    ``missing`` says why a value is missing.
    """

    label: str
    value: float | None = None
    holds: bool = False
    runs: frozenset[str] = frozenset()
    operations: int = 0
    at: str = ""
    missing: str = ""


class Verdict(Struct, frozen=True):
    """A verdict. ``word`` is empty for a claim without measurements."""

    claim: Claim
    word: str
    comparisons: tuple[Comparison, ...] = ()

    @property
    def measured(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.value is not None]

    @property
    def few(self) -> bool:
        return any(each.operations < FEW for each in self.measured)


class MissingData(Exception):
    """The lack of data for a quotient, with the reason."""


def evaluate(claim: Claim, rows: Sequence[FigureRow]) -> Verdict:
    """Return the verdict on ``claim``.

    The claim is confirmed if every possible comparison confirms it, and at least a single
    comparison is possible.
    """
    if claim.of is None:
        return Verdict(claim, claim.verdict or CANNOT)
    own = [row for row in rows if row.scenario == claim.scenario]
    if not own:
        return Verdict(claim, "")
    comparisons = tuple(_compare(claim, own, *variant) for variant in _variants(claim))
    known = [each for each in comparisons if each.value is not None]
    word = (
        (CONFIRMED if all(each.holds for each in known) else NOT_CONFIRMED)
        if known
        else CANNOT
        if claim.cannot
        else ""
    )
    return Verdict(claim, word, comparisons)


def _variants(claim: Claim) -> Iterator[tuple[str, Filters, Quotient, Quotient | None]]:
    """Yield the quotients of the claim.

    Each has a label, the filters of both sides, the quotient, and the quotient beside it.
    """
    assert claim.of is not None
    for op, algorithm, within, against, pair in itertools.product(
        claim.each_op or (claim.op,),
        claim.each or (None,),
        claim.each_where or ({},),
        claim.each_to or (None,),
        claim.each_pair or (None,),
    ):
        of, to = (
            {"op": op} | claim.of,
            None if claim.to is None else {"op": op} | claim.to | (against or {}),
        )
        if pair is not None and to is not None:
            of, to = of | {"algorithm": pair[0]}, to | {"algorithm": pair[1]}
        beside = claim.beside
        if beside is not None:
            other = beside.op or op
            beside = Quotient(
                {"op": other} | beside.of, None if beside.to is None else {"op": other} | beside.to
            )
        if algorithm is not None:
            given = {"algorithm": algorithm}
            of, to = given | of, None if to is None else given | to
            beside = beside and Quotient(
                given | beside.of, None if beside.to is None else given | beside.to
            )
        words = (
            op if claim.each_op else "",
            algorithm or "",
            _words(within),
            _words(against or {}),
            " : ".join(pair or ()),
        )
        yield ", ".join(filter(None, words)), claim.where | within, Quotient(of, to), beside


def _compare(
    claim: Claim,
    rows: Sequence[FigureRow],
    label: str,
    where: Filters,
    quotient: Quotient,
    beside: Quotient | None,
) -> Comparison:
    try:
        value, used, at = _value(rows, where, claim.statistic, quotient)
        sides = list(used)
        if beside is not None:
            other, more, _ = _value(rows, where, claim.statistic, beside)
            sides += more
            if not other:
                raise MissingData("the figure that it is compared with is 0")
            value /= other
    except MissingData as missing:
        return Comparison(label, missing=str(missing))
    operations = min(sum(int(row.figures.get("operations") or 0) for row in side) for side in sides)
    return Comparison(
        label,
        value,
        claim.holds(value),
        frozenset(row.run for side in sides for row in side),
        operations,
        at,
    )


def _value(
    rows: Sequence[FigureRow], where: Filters, statistic: str, quotient: Quotient
) -> tuple[float, list[list[FigureRow]], str]:
    """Return the quotient, the rows of its sides, and its values of parameters.

    Raises :class:`MissingData`.
    """
    both = [quotient.of] if quotient.to is None else [quotient.of, quotient.to]
    shared, at = _shared_extremes(rows, where, both)
    statistics = [filters.get("statistic", statistic) for filters in both]
    sides, found = [], []
    for filters, figure in zip(both, statistics, strict=True):
        chosen, extremes = _choose(rows, shared | filters)
        known = [row for row in chosen if _figure(row, figure) is not None]
        if not known:
            raise MissingData(f"no figure {figure} of {_words(shared | filters)}")
        sides.append(known)
        found.append(extremes)
    if quotient.to is None:
        return _mean(sides[0], statistics[0]), sides, _at(at | found[0])
    for key, value in found[0].items():
        if value == found[1].get(key) and both[0][key] != both[1][key]:
            raise MissingData(f"only one value of {key} was measured")
    at |= {
        key: value if found[1].get(key, value) == value else (value, found[1][key])
        for key, value in found[0].items()
    }
    pairs = _pairs(*sides)
    if not pairs:
        raise MissingData("no two runs that were made with the same parameters")
    ratios = [
        _ratio(_mean(first, statistics[0]), _mean(second, statistics[1])) for first, second in pairs
    ]
    value = math.exp(sum(map(math.log, ratios)) / len(ratios)) if min(ratios) > 0 else 0.0
    return value, [[row for pair in pairs for row in pair[side]] for side in (0, 1)], _at(at)


def _ratio(first: float, second: float) -> float:
    if not second:
        raise MissingData("the figure that it is compared with is 0")
    return first / second


def _mean(rows: Sequence[FigureRow], statistic: str) -> float:
    values = [value for row in rows if (value := _figure(row, statistic)) is not None]
    return sum(values) / len(values)


def _figure(row: FigureRow, statistic: str) -> float | None:
    value = row.figures.get(statistic)
    return None if value is None or not math.isfinite(value) else float(value)


def _shared_extremes(
    rows: Sequence[FigureRow], where: Filters, both: Sequence[Filters]
) -> tuple[Filters, Filters]:
    """Return ``where`` with each extreme replaced by a value.

    Extremes are of the values that both sides have.
    """
    fixed, found = {key: value for key, value in where.items() if value not in EXTREMES}, {}
    for key, value in where.items():
        if value in EXTREMES:
            sides = [
                {row.parameters.get(key) for row in rows if _fits(row, fixed | _literal(filters))}
                for filters in both
            ]
            if empty := [
                filters for filters, values in zip(both, sides, strict=True) if not values
            ]:
                raise MissingData(f"no run of {_words(fixed | _literal(empty[0]))}")
            fixed[key] = found[key] = _extreme(key, set.intersection(*sides), value)
    return fixed, found


def _choose(rows: Sequence[FigureRow], filters: Filters) -> tuple[list[FigureRow], Filters]:
    chosen, found = [row for row in rows if _fits(row, _literal(filters))], {}
    if not chosen:
        raise MissingData(f"no run of {_words(_literal(filters))}")
    for key, value in filters.items():
        if value in EXTREMES:
            found[key] = _extreme(key, {row.parameters.get(key) for row in chosen}, value)
            chosen = [row for row in chosen if row.parameters.get(key) == found[key]]
    return chosen, found


def _extreme(key: str, values: set[Any], which: str) -> Any:
    numbers = sorted(value for value in values if isinstance(value, int | float))
    if len(numbers) < (2 if which.startswith("second") else 1):
        raise MissingData(
            f"no run says its {key}" if not numbers else f"only one value of {key} was measured"
        )
    return numbers[EXTREMES[which]]


def _literal(filters: Filters) -> Filters:
    return {
        key: value for key, value in filters.items() if value not in EXTREMES and key != "statistic"
    }


def _fits(row: FigureRow, filters: Filters) -> bool:
    return all(_is(row, key, wanted) for key, wanted in filters.items())


def _is(row: FigureRow, key: str, wanted: Any) -> bool:
    value = (
        row.algorithm if key == "algorithm" else row.op if key == "op" else row.parameters.get(key)
    )
    if key == "switches":
        on = str(value or "").split("+")
        return value is not None and all(
            (word[1:] in on) == (word[0] == "+") for word in str(wanted).split()
        )
    return bool(value == wanted)


def _pairs(
    first: Sequence[FigureRow], second: Sequence[FigureRow]
) -> list[tuple[list[FigureRow], list[FigureRow]]]:
    """Return pairs of rows with equal iterations and equal values of each varying parameter.

    A parameter counts if it varies on either side.
    """
    varying = sorted(_varying(first) | _varying(second))
    groups: tuple[dict[Any, list[FigureRow]], dict[Any, list[FigureRow]]] = (
        defaultdict(list),
        defaultdict(list),
    )
    for side, group in zip((first, second), groups, strict=True):
        for row in side:
            group[row.iteration, *(row.parameters.get(key) for key in varying)].append(row)
    return [(rows, groups[1][key]) for key, rows in groups[0].items() if key in groups[1]]


def _varying(rows: Sequence[FigureRow]) -> set[str]:
    keys = {key for row in rows for key in row.parameters}
    return {key for key in keys if len({row.parameters.get(key) for row in rows}) > 1}


def _words(filters: Filters) -> str:
    return ", ".join(f"{key} {value}" for key, value in filters.items() if key != "statistic")


def _at(where: Filters) -> str:
    listed = {key: each if isinstance(each, tuple) else (each,) for key, each in where.items()}
    return ", ".join(
        f"{key} {' : '.join(_said(key, each) for each in values)}" for key, values in listed.items()
    )


def _said(key: str, value: Any) -> str:
    if key in ("object_size", "block_min") and isinstance(value, int) and value >= 1024:
        return f"{value / 2**20:g} MiB" if value >= 2**20 else f"{value / 2**10:g} KiB"
    return str(value)
