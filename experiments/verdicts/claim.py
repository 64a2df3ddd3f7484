"""A claim of a paper as its file describes it (claims/*.toml).

The condition of each claim was written down before the measurement here.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ares.model.errors import BadInput

CLAIMS_DIRECTORY = Path(__file__).parent / "claims"

CONFIRMED, NOT_CONFIRMED, CANNOT = "confirmed", "not confirmed", "cannot be tested here"

BOUNDS = {"less": 0.9, "more": 1.1, "about": 1.25}
"""Bounds of claims without ``bound``: two busy processors cannot show differences below a tenth."""

Filters = dict[str, Any]
"""Conditions on rows: `algorithm`, `op`, and parameters by their names.

A value is literal, or `smallest`, `largest`, `second smallest` or `second largest` of the measured
values; for `switches` a value is words like `+gc` and `-batch`. `statistic` names a figure other
than the claim's.
"""


class Quotient(Struct, frozen=True, forbid_unknown_fields=True):
    """The statistic of the rows ``of``, divided by the statistic of the rows ``to`` if present."""

    of: Filters
    to: Filters | None = None
    op: str | None = None


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """A claim: measured, shown, or impossible to test.

    A measured claim has ``scenario`` and ``of``; a shown claim has ``verdict``, ``shown_by`` and
    ``why``; an untestable claim has ``cannot``.

    ``at`` names figures and tables of the source. ``claim`` is in our words. ``published`` has the
    source's numbers. ``where`` has filters of both sides. The quotient is divided by the quotient
    ``beside``. The claim must hold for each algorithm in ``each``, on the sides that name no
    algorithm; with each operation in ``each_op``; at each point in ``each_where``; against each
    filter in ``each_to``; and, of the first algorithm to the second, for each pair in
    ``each_pair``.

    ``confirms`` says whether the value must be at most ``bound``, at least ``bound``, or between
    ``bound`` and its reciprocal. ``scale`` is the smallest scale with the rounds. ``cannot`` says
    why the rounds may be missing. ``note`` has caveats for readers.
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
        """Return whether ``value`` confirms the claim. Equality with the limit is enough."""
        if self.confirms == "about":
            return 1 / self.limit <= value <= self.limit
        return value <= self.limit if self.confirms == "less" else value >= self.limit

    @property
    def condition(self) -> str:
        """Return the condition in words."""
        if self.confirms == "about":
            return f"A ratio of {1 / self.limit:.2g} to {self.limit:.3g}"
        kind = "A ratio of" if self.to is not None else "A value of"
        more = f" or {self.confirms}" if self.limit or self.confirms == "more" else ""
        return f"{kind} {self.limit:.3g}{more}"


class ClaimSource(Struct, frozen=True, forbid_unknown_fields=True):
    """The claims of a source. ``no_claim`` describes figures and tables without claims."""

    name: str
    short: str
    claim: tuple[Claim, ...]
    no_claim: dict[str, str] = {}


def sources(directory: Path = CLAIMS_DIRECTORY) -> list[ClaimSource]:
    """Return all sources, in the order of their files' names.

    Raises :class:`BadInput` for an invalid file or claim.
    """
    found = []
    for path in sorted(directory.glob("*.toml")):
        try:
            source = msgspec.toml.decode(path.read_bytes(), type=ClaimSource)
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
        return "it needs the figures, the sentence and the published result"
    if measured and (not claim.scenario or not (claim.op or claim.each_op)):
        return "a measured claim needs a scenario and an operation"
    if shown and not (claim.shown_by and claim.why):
        return "a verdict needs its evidence, and a reason"
    if measured == shown and not (claim.cannot and not measured):
        return "it is either measured, or shown, or cannot be tested"
    return (
        ""
        if claim.to is not None or not (claim.each_to or claim.each_pair)
        else "the figure that it is compared with is missing"
    )
