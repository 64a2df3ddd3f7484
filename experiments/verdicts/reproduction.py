"""The text of docs/reproduction.md. Pure: the same verdicts and runs give the same bytes."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ares.tracing.tree import printable
from experiments.logs import log_load_plan
from experiments.sites import fog_plan
from experiments.verdicts.claim import CANNOT, CONFIRMED, NOT_CONFIRMED, Claim, ClaimSource
from experiments.verdicts.evaluate import FEW, Comparison, Verdict

NOT_YET = "not measured yet"
FEW_MARK = "†"

_HEAD = """# Reproduction: what the papers claim, and what was measured here

`python -m experiments verdicts` generates this page from the results of rounds
([experiments.md](experiments.md)) and from the claims in `experiments/verdicts/claims`. Every
figure and table of the sources is on the page; each source has a list of figures and tables without
a claim.
"""

_READING = f"""
## How to read it

- Machines differ, and seconds do not compare. *Ours* is a ratio within one run of the rounds: the
  claim's figure divided by the figure of comparison at the same point (the same parameters and
  iteration). With several points, the ratio is the geometric mean of their ratios.
- A published number is printed in the source, or is the mean of the authors' published logs, as the
  same ratio.
- *Confirmed*: every ratio lies where the claim says. The condition that confirms a claim was
  written down before the measurement on this machine. By default a difference counts from a tenth
  on, and the direction decides, not the size. *Not confirmed*: at least one ratio lies elsewhere,
  or the sentence is wrong. *Cannot be tested here*: with the reason. *{NOT_YET.capitalize()}*: with
  the command of the measurement.
- {FEW_MARK}: a side of the ratio rests on fewer than {FEW} operations. All clients and servers
  share a machine with two cores, which cannot tell the behaviour of a network of many machines.
- Clients pause between operations for a random time from 0 to the interval of the round; the
  papers' wait at least a second. At the quick scale a round is carried out once: a ratio near its
  limit may lie beyond the limit the next time.
"""


def render(
    sources: Sequence[ClaimSource],
    verdicts: Sequence[Verdict],
    runs: Sequence[dict[str, Any]],
    scale: str,
) -> str:
    """Return the page.

    ``verdicts`` has a verdict for each claim. ``runs`` has scenario and provenance of each run.
    ``scale`` is the scale of the runs.
    """
    of = {verdict.claim.id: verdict for verdict in verdicts}
    parts = [_HEAD, _measured(runs, scale), _totals(verdicts), _READING]
    for source in sources:
        parts.append(f"\n## {source.name}\n\n")
        parts.append(
            _table(
                ("where", "claim", "published", "ours", "verdict", "why"),
                (_line(of[claim.id]) for claim in source.claim),
            )
        )
        if source.no_claim:
            told = "; ".join(f"{at} ({content})" for at, content in source.no_claim.items())
            parts.append(f"\n{_paragraph(f'Without a claim: {told}.')}\n")
    parts.append(_few(verdicts))
    return "".join(parts)


def _measured(runs: Sequence[dict[str, Any]], scale: str) -> str:
    told = [run["provenance"] for run in runs]
    began = sorted(str(each["began"])[:10] for each in told if each.get("began"))
    versions = {
        f"{name} {version}"
        for each in told
        for name, version in (each.get("versions") or {}).items()
    }
    lines = [
        ("scale", scale),
        ("rounds", str(len(runs))),
        ("scenarios", ", ".join(sorted({str(run["scenario"]) for run in runs})) or "none"),
        ("machine", _set(each.get("machine") for each in told)),
        ("testbed", _set(each.get("testbed") for each in told)),
        ("commit", _set(each.get("commit") for each in told)),
        ("versions", _set(versions)),
        ("measured", " to ".join(dict.fromkeys((began[0], began[-1]))) if began else "not told"),
    ]
    return "\n## What was measured\n\n" + _table(("", ""), lines)


def _set(values: Iterable[object]) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or "not told"


def _totals(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdict.word or NOT_YET for verdict in verdicts)
    words = [
        f"{counts[word]} {word}"
        for word in (CONFIRMED, NOT_CONFIRMED, CANNOT, NOT_YET)
        if counts[word]
    ]
    return f"\n**{len(verdicts)} claims: {', '.join(words)}.**\n"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(_cell(cell) for cell in row)} |\n" for row in rows)


def _paragraph(text: str) -> str:
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")


def _line(verdict: Verdict) -> tuple[str, ...]:
    claim = verdict.claim
    word = f"*{verdict.word or NOT_YET}*" + (f" {FEW_MARK}" if verdict.few else "")
    return (
        ", ".join(claim.at),
        claim.claim,
        claim.published,
        _ours(verdict),
        word,
        " ".join(filter(None, (_why(verdict), claim.note if verdict.measured else ""))),
    )


def _ours(verdict: Verdict) -> str:
    if verdict.claim.shown_by:
        return f"`{verdict.claim.shown_by}`"
    if not verdict.measured:
        return "–"
    values = [
        f"{f'{each.label}: ' if each.label else ''}**{number(each.value)}**"
        + (f" ({each.at})" if each.at else "")
        for each in verdict.measured
    ]
    at = {each.at for each in verdict.measured}
    if len(at) == 1 and len(values) > 1:
        values = [f"{each.label}: **{number(each.value)}**" for each in verdict.measured] + (
            [f"at {each}" for each in at if each]
        )
    rounds, operations = (
        len(frozenset[str]().union(*(each.runs for each in verdict.measured))),
        min(each.operations for each in verdict.measured),
    )
    return (
        f"{'; '.join(values)}. {_plural(rounds, 'round')}, {_plural(operations, 'operation')} or "
        "more on each side"
    )


def number(value: float | None) -> str:
    """Format a number with three digits."""
    return "–" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _why(verdict: Verdict) -> str:
    claim = verdict.claim
    if claim.of is None:
        return claim.why or claim.cannot
    missing = [
        f"{f'{each.label}: ' if each.label else ''}{each.missing}"
        for each in verdict.comparisons
        if each.missing
    ]
    if not verdict.measured:
        return (
            claim.cannot
            if verdict.word == CANNOT
            else f"`{command(claim)}`" + (f" ({missing[0]})" if missing else "")
        )
    held = [each for each in verdict.measured if each.holds]
    words = [f"{claim.condition} confirms it."]
    if verdict.word != CONFIRMED:
        others = [each for each in verdict.measured if not each.holds]
        words.append(f"{len(held)} of {len(verdict.measured)} hold." if held else "")
        words.append(_otherwise(claim, others))
    if missing:
        words.append(f"Without: {'; '.join(missing)}.")
    return " ".join(filter(None, words))


def _otherwise(claim: Claim, others: Sequence[Comparison]) -> str:
    """Return the finding that contradicts the claim."""
    if claim.to is None:
        return ""
    if claim.confirms == "about":
        sides = {
            "below" if each.value < 1 else "above" for each in others if each.value is not None
        }
        return f"Ours lies {' and '.join(sorted(sides))}."
    opposite = [
        each
        for each in others
        if each.value is not None
        and (each.value > 1 if claim.confirms == "less" else each.value < 1)
        and abs(each.value - 1) >= 0.1
    ]
    if not opposite:
        return "No difference that this machine can tell."
    return (
        "The opposite was seen."
        if len(opposite) == len(others)
        else f"The opposite was seen of {', '.join(each.label for each in opposite)}."
    )


def command(claim: Claim) -> str:
    """Return the command that measures ``claim``."""
    if claim.scenario == fog_plan.FOG_STUDY:
        return (
            f"python -m experiments.sites --{'paper-scale' if claim.scale == 'paper' else 'quick'}"
        )
    words = (
        "python -m experiments.logs --only figures"
        if claim.scenario == log_load_plan.LOG_STUDY
        else f"python -m experiments run {claim.scenario}"
    )
    return words + (" --scale paper" if claim.scale == "paper" else "")


def _few(verdicts: Sequence[Verdict]) -> str:
    few = [verdict for verdict in verdicts if verdict.few]
    if not few:
        return ""
    words = [
        (
            f"{', '.join(verdict.claim.at)} ({min(each.operations for each in verdict.measured)}; "
            f"{verdict.claim.id})"
        )
        for verdict in few
    ]
    text = _paragraph(f"Fewer than {FEW} on one side: {'; '.join(words)}.")
    return f"\n## Claims that rest on few operations\n\n{text}\n"
