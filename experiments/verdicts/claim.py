"""A claim of a paper as its file describes it (claims/*.toml).

The condition of each claim was written down before the measurement here.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ares.model.errors import BadInput
from experiments.rounds.scenario import OF_ARES

CLAIMS_DIRECTORY = Path(__file__).parent / "claims"

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "undecided"
NOT_MEASURED, NOT_TESTABLE = "not measured", "not testable"
AWAITING = "awaiting a transcription"
TODAYS = "today's"
"""Beginning of the label of a comparison of today's ares, beside the algorithm as published."""

VERDICT_WORDS = (CONFIRMED, REFUTED, UNDECIDED, NOT_MEASURED, AWAITING, NOT_TESTABLE)

BOUNDS = {"less": 0.9, "more": 1.1, "about": 1.25, "none": 0.0}
"""Bounds of claims without ``bound``: two busy processors cannot show differences below a tenth."""

OPERATIONS_MIN = 30
"""Smallest number of operations on each side for a verdict."""

QUANTITIES = {
    "mean_s": "time per operation",
    "p50_s": "median time",
    "p99_s": "99th percentile of the time",
    "read_config_s": "time in read-config",
    "read_config_share": "share of the time in read-config",
    "encode_s": "time to encode",
    "decode_s": "time to decode",
    "over_transfer": "time per operation, in times to transfer the object over a link",
    "failed": "share of failed operations",
    "wrong": "share of rounds that are not linearizable",
    "short_acks": "share of writes with too few acknowledgements",
    "dead_in_quorums": "share of quorums with a crashed server",
    "throughput": "operations a second of a client",
    "per_s": "operations a second",
    "busiest_per_s": "operations per processor-second of the busiest server",
    "states_per_read": "questions to the tail per read",
    "kept": "throughput after the fault to before",
    "longest_pause_s": "longest pause",
    "crash_pause_s": "longest pause by a crash",
    "lost": "acknowledged entries that are lost",
    "sent": "values sent to servers per operation",
    "received": "values received from servers per read",
    "stored": "values that servers keep",
    "fast_s": "time without a second phase",
    "slow_s": "time with a second phase",
    "read_all_s": "time until all reads are done",
    "write_all_s": "time until all writes are done",
    "first_all_s": "time of all first remote reads",
    "second_all_s": "time of all second remote reads",
    "read_between_share": "bytes between sites to bytes read",
    "write_between_share": "bytes between sites to bytes written",
    "write_between_bytes": "bytes between sites",
    "metadata_bytes": "bytes of metadata between sites",
    "idle_B_s": "bytes a second between idle sites",
    "inside_kept": "share of operations at the isolated site that succeed",
    "new_inside": "new users of the isolated site",
    "last_over_local": "a read in the end to a local read",
}
"""Names of statistics for readers."""

Filters = dict[str, Any]
"""Conditions on rows: `algorithm`, `op`, and parameters by their names, with literal values.

For `switches` a value is words like `+gc` and `-batch`. `statistic` names a figure other than the
claim's.
"""


class Quotient(Struct, frozen=True, forbid_unknown_fields=True):
    """The statistic of the rows ``of``, divided by the statistic of the rows ``to`` if present."""

    of: Filters
    to: Filters | None = None
    op: str | None = None

    @property
    def sides(self) -> list[Filters]:
        return [self.of] if self.to is None else [self.of, self.to]

    def within(self, filters: Filters) -> "Quotient":
        """Return the quotient with these filters on both sides, which win over the given."""
        return Quotient(filters | self.of, None if self.to is None else filters | self.to)


class ClaimVariant(Struct, frozen=True):
    """A comparison of a claim: its label, and the quotients with all filters.

    ``judged`` says whether the verdict counts the comparison; others stand beside.
    """

    label: str
    quotient: Quotient
    beside: Quotient | None
    judged: bool = True

    @property
    def sides(self) -> list[Filters]:
        return self.quotient.sides + ([] if self.beside is None else self.beside.sides)


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """A claim: measured, decided by a test, or impossible to test.

    A measured claim has ``scenario`` and ``of``; a claim decided by a test names the test in
    ``confirmed_by`` or ``refuted_by``, and has ``why``; an untestable claim has ``cannot``.

    ``at`` names figures and tables of the source. ``claim`` is in our words. ``published`` has the
    source's numbers. ``transcription`` is the algorithm of the source: "ares" (of 2022), "ares2",
    "abd", or none for today's and for other stores; where it is not today's, today's stands beside,
    but for a claim that stands ``alone``: rounds of its size take too long at the scale `points`.
    ``where`` has filters of both sides. The quotient is divided by the quotient ``beside``. The
    claim must hold for each algorithm in ``each``, on the sides that name no algorithm; with each
    operation in ``each_op``; at each point in ``each_where``; against each filter in ``each_to``;
    and, of the first algorithm to the second, for each pair in ``each_pair``. Algorithms in
    ``also`` are shown like ``each``, and not judged.

    ``confirms`` says whether the value must be below ``bound``, above ``bound``, ``near`` a number,
    up to the factor ``bound``, or whether there must be no such operation. ``operations`` is the
    smallest number of operations on each side. ``note`` has caveats for readers.
    """

    id: str
    at: tuple[str, ...]
    claim: str
    published: str
    transcription: Literal["", "ares", "ares2", "abd"] = ""
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
    also: tuple[str, ...] = ()
    alone: bool = False
    confirms: Literal["less", "more", "about", "none"] = "less"
    bound: float | None = None
    near: float = 1.0
    operations: int = OPERATIONS_MIN
    cannot: str = ""
    note: str = ""
    confirmed_by: str = ""
    refuted_by: str = ""
    why: str = ""

    @property
    def limit(self) -> float:
        return BOUNDS[self.confirms] if self.bound is None else self.bound

    @property
    def test(self) -> str:
        return self.confirmed_by or self.refuted_by

    def word(self, low: float, high: float) -> str:
        """Return the verdict on an interval: it must lie on one side of the limit."""
        if self.confirms in ("less", "none"):
            return _sided(high <= self.limit, low > self.limit)
        if self.confirms == "more":
            return _sided(low >= self.limit, high < self.limit)
        floor, ceiling = self.near / self.limit, self.near * self.limit
        return _sided(floor <= low and high <= ceiling, high < floor or low > ceiling)

    @property
    def condition(self) -> str:
        """Return the condition in words."""
        if self.confirms == "none":
            return "None of at least " + f"{self.operations:,} operations confirms it"
        if self.confirms == "about":
            floor, ceiling = self.near / self.limit, self.near * self.limit
            return f"A ratio of {floor:.2g} to {ceiling:.3g} confirms it"
        kind = "A ratio of" if self.to is not None else "A value of"
        return f"{kind} {self.limit:.3g} or {self.confirms} confirms it"

    def variants(self) -> Iterator[ClaimVariant]:
        """Yield the comparisons: the judged comparisons, then the others, of today's ares."""
        each, ops = self.each or ("",), self.each_op or (self.op,)
        others = (self.each_where or ({},), self.each_to or ({},), self.each_pair or ((),))
        beside = each + self.also if self.transcription else self.also
        if self.alone or self.where.get("pending"):  # today's finishes each move that it finds
            beside = ()
        kinds = ((self.transcription, each, True), ("", beside, False))
        for transcription, algorithms, judged in kinds:
            for algorithm in algorithms:
                given = {"published": transcription}
                given |= {"algorithm": algorithm} if algorithm else {}
                for product in itertools.product(ops, *others):
                    yield self._variant(given, judged, product)

    def _variant(
        self, given: Filters, judged: bool, product: tuple[str, Filters, Filters, tuple[str, ...]]
    ) -> ClaimVariant:
        op, within, against, pair = product
        name = given.get("algorithm", "")
        beside = self.transcription and not given["published"] and (name or OF_ARES[0]) in OF_ARES
        words = [TODAYS if beside else "", op if self.each_op else "", name]
        words += [words_of(within), words_of(against), " : ".join(pair)]
        given = {"op": op} | self.where | given | within
        first, second = ({"algorithm": name} for name in pair) if pair else ({}, {})
        assert self.of is not None
        to = None if self.to is None else self.to | against | second
        quotient, other = Quotient(self.of | first, to).within(given), self.beside
        if other is not None:
            other = other.within(given | ({"op": other.op} if other.op else {}))
        return ClaimVariant(", ".join(filter(None, words)), quotient, other, judged)


def _sided(confirmed: bool, refuted: bool) -> str:
    return CONFIRMED if confirmed else REFUTED if refuted else UNDECIDED


def words_of(filters: Filters) -> str:
    """Return filters in words."""
    return ", ".join(
        f"{key} {value_text(key, value)}"
        for key, value in filters.items()
        if key not in ("statistic", "published")
    )


def value_text(key: str, value: Any) -> str:
    """Return the value of a parameter in words."""
    if key in ("object_size", "block_min", "block_max") and isinstance(value, int):
        for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
            if value >= unit and value % (unit // 64) == 0:
                return f"{value / unit:g} {name}"
    return "none" if value in ("", None) else str(value)


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
    measured = claim.of is not None
    if not (claim.at and claim.claim and claim.published):
        return "it needs the figures, the sentence and the published result"
    if measured and (not claim.scenario or not (claim.op or claim.each_op)):
        return "a measured claim needs a scenario and an operation"
    if claim.test and not claim.why:
        return "a verdict by a test needs a reason"
    kinds = (measured, claim.confirmed_by, claim.refuted_by, claim.cannot)
    if sum(map(bool, kinds)) != 1:
        return "it is either measured, or decided by a test, or cannot be tested"
    if unknown := _statistics(claim) - set(QUANTITIES):
        return f"there is no quantity {', '.join(sorted(unknown))}"
    if claim.operations < OPERATIONS_MIN:
        return f"a verdict needs {OPERATIONS_MIN} operations on each side"
    if claim.confirms == "none" and claim.to is not None:
        return "a claim of no operation is no ratio"
    if claim.near != 1 and claim.confirms != "about":
        return "only a claim of about a number names the number"
    if claim.to is None and (claim.each_to or claim.each_pair):
        return "the figure that it is compared with is missing"
    return ""


def _statistics(claim: Claim) -> set[str]:
    sides = [claim.of, claim.to, *(claim.beside.sides if claim.beside else ())]
    return {claim.statistic, *(side["statistic"] for side in sides if side and "statistic" in side)}
