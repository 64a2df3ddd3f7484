"""The rows of an earlier page, for claims without new figures.

All rounds of the scale `points` take a night, and the repository keeps no results. Therefore a page
can be made in parts. A claim with enough figures in the results is judged; any further claim keeps
the row if the claim is the same to the letter, but for the notes, and has the same rule. A row
carries a digest of claim and rule and a digest of the cells, as a comment: a verdict written by
hand is not kept. Pure.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from experiments.verdicts.claim import Claim
from experiments.verdicts.evaluate import JUDGING_RULE

PageRow = tuple[str, ...]
"""The cells of a row of a table, without escapes."""

CLAIM_COLUMNS = ("where", "claim", "published", "point", "ours", "verdict", "why")
OURS_COLUMN, VERDICT_COLUMN = CLAIM_COLUMNS.index("ours"), CLAIM_COLUMNS.index("verdict")

MEASURED_COLUMNS = (
    *("scenarios", "rounds", "measured", "commit", "testbed"),
    *("peers and interpreter", "machine"),
)

_ROW_DIGESTS = re.compile(r" <!-- ([0-9a-f]{12}) ([0-9a-f]{12}) -->$")


class EarlierPage(Struct, frozen=True):
    """The rows of a page: of claims, by the digest of the claim, and of measurements."""

    claims: dict[str, PageRow] = {}
    measured: tuple[PageRow, ...] = ()

    def measured_of(self, scenarios: Collection[str]) -> Iterator[PageRow]:
        """Yield the rows of measurements, reduced to the given scenarios.

        A row that lost a scenario has a part of its rounds: *of* this number.
        """
        for names, rounds, *others in self.measured:
            left = [name for name in names.split(", ") if name in scenarios]
            if len(left) < len(names.split(", ")):
                rounds = f"of {rounds.removeprefix('of ')}"
            if left:
                yield (", ".join(left), rounds, *others)


def with_digests(claim: Claim, row: PageRow) -> PageRow:
    """Return the row with the digests of claim and cells in its first cell."""
    return (f"{row[0]} <!-- {claim_digest(claim)} {_digest(*row[OURS_COLUMN:])} -->", *row[1:])


def claim_digest(claim: Claim) -> str:
    """Return a digest of all that decides on a verdict, and of all sentences but notes.

    The rule and its bound decide, too, also where the claim leaves the bound to the rule.
    """
    told = msgspec.structs.replace(claim, note="", why="", bound=claim.limit)
    return _digest(JUDGING_RULE, msgspec.json.encode(told).decode())


def without_digests(row: PageRow) -> PageRow:
    """Return the cells of a row without its digests."""
    return (_ROW_DIGESTS.sub("", row[0]), *row[1:])


def read_earlier(text: str) -> EarlierPage:
    """Return the rows of the page ``text``; other tables are ignored.

    Rows of claims without digests, or with cells that differ from their digest, are left out.
    """
    claims: dict[str, PageRow] = {}
    measured: list[PageRow] = []
    for heads, row in page_rows(text):
        if heads == MEASURED_COLUMNS and len(row) == len(heads):
            measured.append(row)
        elif heads == CLAIM_COLUMNS and len(row) == len(heads):
            found = _ROW_DIGESTS.search(row[0])
            if found is not None and found[2] == _digest(*row[OURS_COLUMN:]):
                claims[found[1]] = row
    return EarlierPage(claims, tuple(measured))


def page_rows(text: str) -> Iterator[tuple[PageRow, PageRow]]:
    """Yield the heads of the table and the cells of each row."""
    heads: PageRow = ()
    for line in text.splitlines():
        if not line.startswith("| "):
            heads = ()
            continue
        inner = line.strip().removeprefix("| ").removesuffix(" |")
        row = tuple(cell.replace("\\|", "|") for cell in re.split(r" \| ", inner))
        if not heads:
            heads = row
        elif row[0] != "---":
            yield heads, row


def table(heads: Sequence[str], rows: Iterable[PageRow]) -> str:
    """Return a table of Markdown. Inverse of :func:`read_earlier` for its rows."""
    lines = [tuple(heads), ("---",) * len(heads), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
