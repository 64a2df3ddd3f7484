"""A claim of a paper as its file says it (claims/*.toml). What confirms it was written down before it was measured here."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ares.model.errors import BadInput

DIRECTORY = Path(__file__).parent / "claims"

CONFIRMED, NOT_CONFIRMED, CANNOT = "confirmed", "not confirmed", "cannot be tested here"

BOUNDS = {"less": 0.9, "more": 1.1, "about": 1.25}
"""What confirms a claim that names no ``bound``: differences below a tenth are none that two busy processors can tell."""

Filters = dict[str, Any]
"""What rows have to be: `algorithm`, `op`, and parameters by their names.

A value is itself, or `smallest`, `largest`, `second smallest` or `second largest` of what was measured; for `switches` it is words like `+gc` and
`-batch`. `statistic` names a figure other than the claim's.
"""


class Quotient(Struct, frozen=True, forbid_unknown_fields=True):
    """The statistic of the rows ``of``, divided by that of the rows ``to``; by nothing if ``to`` is absent."""

    of: Filters
    to: Filters | None = None
    op: str | None = None


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """One of three kinds: measured (``scenario`` and ``of``), shown (``verdict``, ``shown_by``, ``why``), or one that ``cannot`` be tested.

    ``at``: figures and tables of the source. ``claim``: in our words. ``published``: what it gives as numbers. ``where``: filters of both sides.
    ``beside``: the quotient is divided by this one. ``each``: it has to hold of each of these algorithms, on those sides that name none;
    ``each_op``: with each of these operations; ``each_where``: at each of these points; ``each_to``: against each of these; ``each_pair``: of the
    first algorithm to the second.
    ``confirms``: the value is at most ``bound``, at least, or between it and its reciprocal. ``scale``: the smallest that has the rounds.
    ``cannot``: why there may be no rounds. ``note``: what a reader has to know.
    """

    id: str
    at: tuple[str, ...]
    claim: str
    published: str
    scenario: str = ""
    op: str = ""
    statistic: str = "mean_s"
    where: Filters = {}
    of: Filters | None = None
    to: Filters | None = None
    beside: Quotient | None = None
    each: tuple[str, ...] = ()
    each_op: tuple[str, ...] = ()
    each_where: tuple[Filters, ...] = ()
    each_to: tuple[Filters, ...] = ()
    each_pair: tuple[tuple[str, str], ...] = ()
    confirms: Literal["less", "more", "about"] = "less"
    bound: float | None = None
    scale: Literal["quick", "paper"] = "quick"
    cannot: str = ""
    note: str = ""
    verdict: Literal["", "confirmed", "not confirmed"] = ""
    shown_by: str = ""
    why: str = ""

    @property
    def limit(self) -> float:
        return BOUNDS[self.confirms] if self.bound is None else self.bound

    def holds(self, value: float) -> bool:
        """Whether ``value`` confirms it. Equal to the limit is enough."""
        if self.confirms == "about":
            return 1 / self.limit <= value <= self.limit
        return value <= self.limit if self.confirms == "less" else value >= self.limit

    @property
    def condition(self) -> str:
        """In words."""
        if self.confirms == "about":
            return f"A ratio of {1 / self.limit:.2g} to {self.limit:.3g}"
        kind = "A ratio of" if self.to is not None else "A value of"
        return f"{kind} {self.limit:.3g}{f' or {self.confirms}' if self.limit or self.confirms == 'more' else ''}"


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of one source. ``no_claim``: figures and tables that claim nothing, with what they are."""

    name: str
    short: str
    claim: tuple[Claim, ...]
    no_claim: dict[str, str] = {}


def sources(directory: Path = DIRECTORY) -> list[Source]:
    """All, in the order of their files' names. Raises :class:`BadInput` for a file, or a claim, that is none."""
    found = []
    for path in sorted(directory.glob("*.toml")):
        try:
            source = msgspec.toml.decode(path.read_bytes(), type=Source)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise BadInput(f"{path}: {error}") from error
        for claim in source.claim:
            if why := _fault(claim):
                raise BadInput(f"{path}: claim {claim.id}: {why}")
        found.append(source)
    ids = [claim.id for source in found for claim in source.claim]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise BadInput(f"{directory}: two claims are called {', '.join(twice)}")
    return found


def _fault(claim: Claim) -> str:
    measured, shown = claim.of is not None, bool(claim.verdict)
    if not (claim.at and claim.claim and claim.published):
        return "it needs the figures, the sentence and what was published"
    if measured and (not claim.scenario or not (claim.op or claim.each_op)):
        return "what is measured needs a scenario and an operation"
    if shown and not (claim.shown_by and claim.why):
        return "a verdict needs what shows it, and why"
    if measured == shown and not (claim.cannot and not measured):
        return "it is either measured, or shown, or cannot be tested"
    return (
        ""
        if claim.to is not None or not (claim.each_to or claim.each_pair)
        else "there is nothing that it is compared with"
    )
