"""The text of docs/reproduction.md. Pure: the same verdicts and runs give the same bytes."""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ares.tracing.tree import printable
from experiments.logs import log_load_plan
from experiments.rounds.ares_protocols import TRANSCRIPTIONS
from experiments.rounds.scenario import OF_ARES
from experiments.sites import fog_plan
from experiments.verdicts.claim import (
    AWAITING,
    CONFIRMED,
    NOT_MEASURED,
    OPERATIONS_MIN,
    QUANTITIES,
    REFUTED,
    UNDECIDED,
    VERDICT_WORDS,
    Claim,
    ClaimSource,
    words_of,
)
from experiments.verdicts.earlier_page import (
    CLAIM_COLUMNS,
    MEASURED_COLUMNS,
    OURS_COLUMN,
    VERDICT_COLUMN,
    EarlierPage,
    PageRow,
    claim_digest,
    table,
    with_digests,
    without_digests,
)
from experiments.verdicts.evaluate import ROUNDS_MIN, Comparison, Verdict

_HEAD = """# Reproduction: what the papers claim, and what was measured here

`python -m experiments verdicts` generates this page from the results of rounds
([experiments.md](experiments.md)) and from the claims in `experiments/verdicts/claims`. Every
figure and table of the sources is on the page; each source has a list of figures and tables without
a claim.
"""

_NO_RUN = """
No run is behind this page yet: `make experiments-points` makes one. An earlier run, of today's ares
at the quick scale and judged without intervals, is in
[reproduction-quick.md](reproduction-quick.md).
"""

_MEASURED = """
## What was measured

The page is made in parts: a claim has the figures of the last measurement of its point. A row
carries digests of its claim and its cells, and rows that were changed by hand are not kept.

"""

_READING = f"""
## How to read it

- Machines differ, and seconds do not compare. *Ours* is a ratio: the claim's figure divided by the
  figure of comparison. Both sides are measured at the point that the claim names (*point*: sizes,
  servers, algorithms, switches, blocks) and differ in nothing else. Of several rounds the ratio is
  the geometric mean.
- In brackets is the 95 % interval of the ratio: Student's t over the logarithms of the rounds'
  ratios. It needs {ROUNDS_MIN} rounds: operations of one round are no independent measurements. A
  bootstrap over three or four rounds has too few values to draw from, and its intervals are too
  narrow. Without an interval one operation refutes a claim that no operation does something.
- *Confirmed*: the whole interval lies where the claim says. *Refuted*: the whole interval lies
  elsewhere. *Undecided*: the limit is in the interval, there are fewer than {ROUNDS_MIN} rounds, or
  a side has fewer operations than the claim needs: {OPERATIONS_MIN}, or more if the claim says so.
  *Not measured*: no run has the point; runs at other points never judge a claim. *Not testable*:
  with the reason.
- A claim of several comparisons is refuted by one, and confirmed by all; each has its own word.
- *By a test*: a test of this repository decides, and no figure.
- A published number is printed in the source, or is the mean of the authors' published logs, as the
  same ratio. The condition that confirms a claim was written down before the measurement here. By
  default a difference counts from a tenth on, and the direction decides, not the size.
- A claim about ARES of 2022 or ARES II as printed is judged by a transcription of this algorithm.
  Today's ares stands beside, and judges no such claim; its word is shown if it differs.
  *Awaiting a transcription*: the claim is about a protocol, or about switches, that the algorithm
  as published cannot run.
- All clients and servers share a machine with two cores, which cannot tell the behaviour of a
  network of many machines. Clients pause between operations for a random time, shorter than in the
  papers.
"""


def render(
    sources: Sequence[ClaimSource],
    verdicts: Sequence[Verdict],
    runs: Sequence[dict[str, Any]],
    earlier: EarlierPage | None = None,
    too_long: Mapping[str, Sequence[float]] | None = None,
) -> str:
    """Return the page.

    ``verdicts`` has a verdict for each claim. ``runs`` has scenario and provenance of each run. A
    claim without a verdict keeps its row of the page ``earlier``. ``too_long`` has the minutes of
    the rounds that the scale `points` leaves out, by the id of the claim.
    """
    earlier, too_long, kept = earlier or EarlierPage(), too_long or {}, set[str]()
    lines: dict[str, PageRow] = {}
    for verdict in verdicts:
        claim = verdict.claim
        lines[claim.id] = line_of(verdict, too_long.get(claim.id, ()))
        before = earlier.claims.get(claim_digest(claim))
        if before is not None and _keeps(verdict, lines[claim.id], before):
            lines[claim.id] = before
            kept.add(claim.scenario)
    measured = [*_measured(runs), *earlier.measured_of(kept)]
    parts = [_HEAD, _MEASURED + table(MEASURED_COLUMNS, measured) if measured else _NO_RUN]
    parts += [_totals(list(lines.values())), _READING]
    for source in sources:
        parts.append(f"\n## {source.name}\n\n")
        parts.append(table(CLAIM_COLUMNS, [lines[claim.id] for claim in source.claim]))
        if source.no_claim:
            unclaimed = "; ".join(f"{at} ({content})" for at, content in source.no_claim.items())
            parts.append(f"\n{_paragraph(f'Without a claim: {unclaimed}.')}\n")
    return "".join(parts)


def _keeps(verdict: Verdict, line: PageRow, before: PageRow) -> bool:
    """Return whether a claim keeps its earlier row, as new figures do not suffice for a verdict.

    The cells about the claim must be today's: another name of the quantity or of the point may be
    another quantity or point.
    """
    told = slice(OURS_COLUMN)
    lacking = verdict.word in (NOT_MEASURED, AWAITING)
    return lacking and without_digests(line)[told] == without_digests(before)[told]


def _measured(runs: Sequence[dict[str, Any]]) -> Iterator[PageRow]:
    """Yield a row for the scenarios with the same provenance."""
    of_scenario: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        of_scenario.setdefault(str(run["scenario"]), []).append(run["provenance"])
    alike: dict[PageRow, dict[str, int]] = {}
    for scenario, provenances in sorted(of_scenario.items()):
        alike.setdefault(_provenance(provenances), {})[scenario] = len(provenances)
    for cells, scenarios in alike.items():
        yield (", ".join(scenarios), str(sum(scenarios.values())), *cells)


def _provenance(provenances: Sequence[dict[str, Any]]) -> PageRow:
    began = sorted(str(each["began"])[:10] for each in provenances if each.get("began"))
    versions = [item for each in provenances for item in (each.get("versions") or {}).items()]
    return (
        " to ".join(dict.fromkeys((began[0], began[-1]))) if began else "not told",
        _set(each.get("commit") for each in provenances),
        _set(each.get("testbed") for each in provenances),
        # the commit tells the version of ares
        _set(f"{name} {version}" for name, version in versions if name != "ares"),
        _set(each.get("machine") for each in provenances),
    )


def _set(values: Iterable[object]) -> str:
    return printable(", ".join(sorted({str(value) for value in values if value})) or "not told")


def _totals(lines: Sequence[PageRow]) -> str:
    counts = Counter(line[VERDICT_COLUMN].split("*")[1] for line in lines)
    words = [f"{counts[word]} {word}" for word in VERDICT_WORDS if counts[word]]
    return f"\n**{len(lines)} claims: {', '.join(words)}.**\n"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def line_of(verdict: Verdict, too_long: Sequence[float]) -> PageRow:
    claim = verdict.claim
    cells = (
        ", ".join(claim.at),
        claim.claim,
        claim.published,
        point(claim),
        measured_text(verdict),
        f"*{verdict.word}*" + (" (by a test)" if claim.test else ""),
        " ".join(filter(None, (_why(verdict, too_long), claim.note if verdict.measured else ""))),
    )
    line = tuple(map(printable, cells))
    return with_digests(claim, line) if verdict.measured else line


def point(claim: Claim) -> str:
    """Return the quantity, the algorithm and the parameters that the claim names."""
    if claim.of is None:
        return "–"
    sides = [claim.of] if claim.to is None else [claim.of, claim.to]
    names = dict.fromkeys(QUANTITIES[side.get("statistic", claim.statistic)] for side in sides)
    words = [" to ".join(names)]
    if claim.op and claim.op != "all":
        words[0] += f" ({claim.op})"
    judged = [variant for variant in claim.variants() if variant.judged]
    if any(side.get("algorithm") in OF_ARES for each in judged for side in each.sides):
        words.append(TRANSCRIPTIONS[claim.transcription])
    words.append(words_of(claim.where))
    told = [words_of(side) for side in sides]
    words.append(" : ".join(each or "the others" for each in told if any(told)))
    if claim.beside is not None:
        other = " : ".join(words_of(side) for side in claim.beside.sides)
        words.append(f"divided by the same of {other}")
    return "; ".join(filter(None, words))


def measured_text(verdict: Verdict) -> str:
    """Return the ratios that were measured, with their intervals, or the name of a test."""
    if verdict.claim.test:
        return f"`{verdict.claim.test}`"
    if not verdict.measured:
        return "–"
    compared = "; ".join(_compared(each, verdict) for each in verdict.comparisons)
    judging = [each for each in verdict.judged if each.value is not None]
    if not judging:
        return f"{compared}."
    rounds = _plural(len(frozenset[str]().union(*(each.runs for each in judging))), "round")
    operations = _plural(min(each.operations for each in judging), "operation")
    return f"{compared}. {rounds}, {operations} or more on each side"


def _compared(each: Comparison, verdict: Verdict) -> str:
    """Return a comparison; today's ares has a word if it differs from the verdict."""
    label = f"{each.label}: " if each.label else ""
    if each.value is None:
        return f"{label}{each.word}"
    decided = (CONFIRMED, REFUTED)
    differs = each.of_today and each.word in decided and verdict.word in (*decided, UNDECIDED)
    differs = differs and each.word != verdict.word
    word = each.word if each.judged or differs else ""
    between = ""
    if each.interval is not None:
        between = f" [{', '.join(map(number, each.interval))}]"
    return f"{label}**{number(each.value)}**{between} {word}".rstrip()


def number(value: float | None) -> str:
    """Format a number with three digits."""
    return "–" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _why(verdict: Verdict, too_long: Sequence[float]) -> str:
    claim = verdict.claim
    if claim.of is None:
        return claim.why or claim.cannot
    missing = [each for each in verdict.comparisons if each.why and each.judged]
    reasons = dict.fromkeys(
        f"{each.label}: {each.why}" if each.label and verdict.measured else each.why
        for each in missing
    )
    told = [f"{reason[0].upper()}{reason[1:]}." for reason in list(reasons)[:3]]
    if verdict.word == NOT_MEASURED and too_long:
        longest = math.ceil(max(too_long))
        return (
            f"`{command(claim)} --longest {longest}`. A night has no room: {len(too_long)} rounds "
            f"of up to {longest} min, {sum(too_long) / 60:.1f} hours in all."
        )
    if verdict.word == NOT_MEASURED:
        return " ".join((f"`{command(claim)}`.", *told))
    return " ".join(filter(None, (f"{claim.condition}.", _otherwise(verdict), *told)))


def _otherwise(verdict: Verdict) -> str:
    """Return the finding that contradicts a claim of a direction."""
    claim = verdict.claim
    found = [(each, each.interval) for each in verdict.judged if each.word == REFUTED]
    refuting = [(each, interval) for each, interval in found if interval]
    if not refuting or claim.to is None or claim.confirms not in ("less", "more"):
        return ""
    less = claim.confirms == "less"
    opposite = [each for each, (low, high) in refuting if (low > 1.1 if less else high < 0.9)]
    if not opposite:
        return "The difference is smaller."
    of = "" if len(opposite) == len(verdict.judged) else " of "
    return f"The opposite was seen{of}{', '.join(each.label for each in opposite) if of else ''}."


def command(claim: Claim) -> str:
    """Return the command that measures ``claim``."""
    if claim.scenario == fog_plan.FOG_STUDY:
        return "python -m experiments.sites --points"
    if claim.scenario in (log_load_plan.LOG_STUDY, log_load_plan.LOG_THREADS):
        return "python -m experiments.logs --only figures --scale points"
    if claim.scenario == log_load_plan.LOG_FAULTS:
        return "python -m experiments.logs --only faults --scale points"
    return f"python -m experiments run {claim.scenario} --scale points"
