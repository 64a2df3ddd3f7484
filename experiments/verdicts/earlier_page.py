"""The rows of an earlier page, for claims of scenarios without new rounds.

All rounds of the scale `points` take a night, and the repository keeps no results. Therefore a page
can be made in parts. The evaluator judges the scenarios with rounds in the results; the row of any
other claim stays, if figure, sentence, published number and point of the claim are the same. Pure.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

PageRow = tuple[str, ...]
"""The cells of a row of a table, without escapes."""

CLAIM_COLUMNS = ("where", "claim", "published", "point", "ours", "verdict", "why")
OF_A_CLAIM = CLAIM_COLUMNS.index("ours")
"""Number of the columns that describe the claim. The other columns have its measurement."""

MEASURED_COLUMNS = (
    *("scenarios", "rounds", "measured", "commit", "testbed"),
    *("peers and interpreter", "machine"),
)


class EarlierPage(Struct, frozen=True):
    """The rows of a page: of claims, by the cells that describe the claim, and of measurements."""

    claims: dict[PageRow, PageRow] = {}
    measured: tuple[PageRow, ...] = ()

    def measured_without(self, again: Collection[str]) -> Iterator[PageRow]:
        """Yield the rows of measurements, without the scenarios that were run again.

        A row that lost a scenario has a part of its rounds: *of* this number.
        """
        for scenarios, rounds, *others in self.measured:
            names = scenarios.split(", ")
            left = [name for name in names if name not in again]
            if left != names:
                rounds = f"of {rounds.removeprefix('of ')}"
            if left:
                yield (", ".join(left), rounds, *others)


def read_earlier(text: str) -> EarlierPage:
    """Return the rows of the page ``text``; other tables are ignored."""
    claims: dict[PageRow, PageRow] = {}
    measured: list[PageRow] = []
    heads: PageRow = ()
    for line in text.splitlines():
        if not line.startswith("| "):
            heads = ()
            continue
        row = _cells(line)
        if not heads:
            heads = row
        elif heads == CLAIM_COLUMNS and len(row) == len(heads) and row[0] != "---":
            claims[row[:OF_A_CLAIM]] = row
        elif heads == MEASURED_COLUMNS and len(row) == len(heads) and row[0] != "---":
            measured.append(row)
    return EarlierPage(claims, tuple(measured))


def table(heads: Sequence[str], rows: Iterator[PageRow] | Sequence[PageRow]) -> str:
    """Return a table of Markdown. Inverse of :func:`read_earlier` for its rows."""
    lines = [tuple(heads), ("---",) * len(heads), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def _cells(line: str) -> PageRow:
    inner = line.strip().removeprefix("| ").removesuffix(" |")
    return tuple(cell.replace("\\|", "|") for cell in re.split(r" \| ", inner))
