"""Draw docs/peers.svg: the rates of small operations beside other stores.

The figures come from docs/performance.md, "Beside other stores", from the table with the compiled
core; the page describes their measurement. `python -m experiments.bench.peer_chart` writes the
drawing again after a change of the page, and a test compares the two.
"""

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from experiments import CHECKOUT

PERFORMANCE_PAGE = CHECKOUT / "docs/performance.md"
DRAWING = CHECKOUT / "docs/peers.svg"
TABLE = "With the compiled core"
ARES_LABEL, ARES_FSYNC_LABEL = "ABD", "ABD, fsync"
PANELS = {
    "in memory, operations a second": {"ares": ARES_LABEL, "Redis, WAIT": ": Redis + WAIT"},
    "on disk (fsync), operations a second": {
        "ares": ARES_FSYNC_LABEL,
        "etcd": ": etcd",
        "Redis, WAIT, AOF": ": Redis + WAIT, AOF",
    },
}

WIDTH, MARGIN, LABELS, WORDS = 560, 16, 116, 176
BAR_WIDTH, BAR_GAP, CHART_HEAD = 15, 14, 34
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.faint { fill: #59636e }
.back { fill: #ffffff }
.ares { fill: #0969da }
.other0 { fill: #8c959f }
.other1 { fill: #c4cbd3 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc }
  .faint { fill: #9198a1 }
  .back { fill: #0d1117 }
  .ares { fill: #4493f8 }
  .other0 { fill: #7d8590 }
  .other1 { fill: #484f58 }
}
"""


class Bar(NamedTuple):
    """A bar: the store, and the store's rate in operations a second."""

    store: str
    rate: float


def bars(page: str) -> dict[str, dict[str, list[Bar]]]:
    """Return, for each panel and load, the rates of ares and its peers.

    The table has a peer's rate as a ratio: the rate of ares with this durability, divided by it.
    """
    table = page.partition(f"\n{TABLE}")[2].split("\n\n")[1].splitlines()
    heads, _, *loads = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    panels: dict[str, dict[str, list[Bar]]] = {title: {} for title in PANELS}
    for title, stores in PANELS.items():
        for load in loads:
            row = dict(zip(heads, load, strict=True))
            own = float(row[stores["ares"]].replace(",", ""))
            panels[title][load[0]] = [
                Bar(store, own if store == "ares" else own / float(row[column]))
                for store, column in stores.items()
            ]
    return panels


def drawing(panels: dict[str, dict[str, list[Bar]]]) -> str:
    """Return the chart as SVG, in the reader's preference for light or dark."""
    body: list[str] = []
    y = MARGIN
    for title, loads in panels.items():
        most = max(bar.rate for group in loads.values() for bar in group)
        y += CHART_HEAD - BAR_GAP
        body.append(f'<text class="title" x="{MARGIN}" y="{y}">{escape(title)}</text>')
        y += BAR_GAP
        for load, group in loads.items():
            body += _group(load, group, most, y)
            y += BAR_WIDTH * len(group) + BAR_GAP
    summary = "; ".join(_sentence(title, loads) for title, loads in panels.items())
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" '
        f'height="{y}" role="img">',
        f"<title>{escape(summary)}</title>\n<style>{STYLE}</style>",
        f'<rect class="back" width="{WIDTH}" height="{y}" rx="6"/>',
        *body,
        "</svg>\n",
    )
    return "\n".join(lines)


def _group(load: str, group: list[Bar], most: float, y: int) -> Iterator[str]:
    yield f'<text class="faint" x="{MARGIN}" y="{y + BAR_WIDTH - 3}">{escape(load)}</text>'
    start = MARGIN + LABELS
    longest = WIDTH - start - MARGIN - WORDS
    for place, bar in enumerate(group):
        kind = "ares" if bar.store == "ares" else f"other{place - 1}"
        top, length = y + place * BAR_WIDTH, max(round(longest * bar.rate / most, 1), 1)
        yield (
            f'<rect class="{kind}" x="{start}" y="{top}" width="{length}" height="{BAR_WIDTH - 2}" '
            'rx="2"/>'
        )
        words = f"{_rounded(bar.rate)}  {bar.store}"
        yield f'<text x="{start + length + 6}" y="{top + BAR_WIDTH - 3}">{escape(words)}</text>'


def _sentence(title: str, loads: dict[str, list[Bar]]) -> str:
    load, group = list(loads.items())[-1]
    return f"{title}, {load}: " + ", ".join(f"{bar.store} {_rounded(bar.rate)}" for bar in group)


def _rounded(rate: float) -> str:
    """Return the rate with three digits: the ratios of the page have no more."""
    return f"{float(f'{rate:.3g}'):,.0f}"


def main() -> None:
    """Write the drawing."""
    DRAWING.write_text(drawing(bars(PERFORMANCE_PAGE.read_text())))


if __name__ == "__main__":
    main()
