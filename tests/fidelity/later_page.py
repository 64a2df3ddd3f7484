"""A writer of docs/left-for-later.md, from later.toml.

python -m tests.fidelity.later_page > docs/left-for-later.md
"""

import sys
from collections.abc import Iterable, Iterator

from .fidelity_page import ROOT, Row, Tables, table, tables

LATER_PAGE = ROOT / "docs" / "left-for-later.md"

_INTRODUCTION = """# Left for later by the sources

The sources end with work for later. Each line is such a work, its place in ares, and a measurement
of it: a quotation from the named page, which has the machine and the method. *Not measured* says
that no page has a figure for the work; a quotation behind these words is the nearest one.

"""

_ENDING = """
`python -m tests.fidelity.later_page` generates this page. A test fails if a named page does not
have a quotation, word for word. [Fidelity](fidelity.md) has the algorithms of the sources, line by
line.
"""


def render_later(rows: Iterable[Row]) -> str:
    """Return the page."""
    heads = ("left by", "work", "in ares", "measured", "page and script")
    return _INTRODUCTION + table(heads, map(_cells, rows)) + _ENDING


def _cells(row: Row) -> list[str]:
    script = f", `{row['script']}`" if "script" in row else ""
    page = f"[{row['page']}]({row['page']}){script}" if "page" in row else ""
    return [row["source"], row["left"], row["here"], _measured(row), page]


def _measured(row: Row) -> str:
    told = "“{}”".format(row["said"].replace(" | ", ", ")) if "said" in row else ""
    if "reading" in row:
        told += f" ({row['reading']})"
    if "unmeasured" not in row:
        return told
    return f"*not measured*. {row['unmeasured']}: {told}" if told else "*not measured*"


def quotation_faults(told: Tables) -> Iterator[str]:
    """Yield quotations absent from the named page, and rows silent about a measurement."""
    for row in told.later:
        if "said" not in row:
            if "unmeasured" not in row:
                yield f"{row['left']}: neither measured nor told to be not measured"
            continue
        page = " ".join((ROOT / "docs" / row["page"]).read_text(encoding="utf-8").split())
        if " ".join(row["said"].split()) not in page:
            yield f"docs/{row['page']} does not say: {row['said']}"


if __name__ == "__main__":
    sys.stdout.write(render_later(tables().later))
