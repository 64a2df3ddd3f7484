"""A writer of docs/fidelity.md: the tables beside this module, and the citations in code and tests.

python -m tests.fidelity.fidelity_page > docs/fidelity.md
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from experiments.rounds.scenario import SCENARIOS_DIRECTORY, Parameters

from .citations import TRANSCRIPTION, Citation, cited_in

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FIDELITY_PAGE = ROOT / "docs" / "fidelity.md"

_test = re.compile(r"tests/(?!architecture/).*/test_\w+\.py::test_\w+$")

Row = dict[str, Any]

_INTRODUCTION = """# Fidelity: the sources, line by line

`python -m tests.fidelity.fidelity_page` generates this page from the citations in code and tests,
and from the tables in `tests/fidelity`. A test fails if a line of an algorithm has no row, if the
transcription (`ares/testing/published`) does not cite each statement where it stands, if a cited
line, a named function or a named test does not exist, or if the page differs from the generated
text. R1, R2, ... are the rules of [protocol.md](protocol.md).
"""

_CITED_LINES = """
## The algorithms of ARES II

A row names the functions and tests which cite its lines, and of these the closest: with the fewest
further lines. The simulator (`ares/testing/sim`) tries all lines together.
"""

_PARAMETERS = """
### Parameters of the deliverable

The values of the scale `paper` in `experiments/rounds/scenarios`, which may have further values.
"""

_PACKAGES = """
## Packages

*Default*: `pip install ares-storage` installs the package. *Extra*: the named extra does.
*Replaced*: another package does its work.
"""

_LATER = """
## Left for later by the sources

[A page of its own](left-for-later.md) has the work that the sources leave for later, and its
measurements.
"""


class Tables(NamedTuple):
    """The tables behind the page, and the citations."""

    algorithms: list[Row]
    sections: list[Row]
    parameters: list[Row]
    packages: list[Row]
    later: list[Row]
    code: list[Citation]
    tests: list[Citation]
    transcription: list[Citation]


def tables(root: Path = ROOT) -> Tables:
    """Read the tables, and find the citations in a checkout."""
    in_code = cited_in(root, "ares")
    return Tables(
        _read("algorithms", "algorithm"),
        _read("sources", "section"),
        _read("parameters", "parameter"),
        _read("packages", "package"),
        _read("later", "later"),
        [each for each in in_code if not each.path.startswith(TRANSCRIPTION)],
        [each for each in cited_in(root, "tests") if _test.match(each.place)],
        [each for each in in_code if each.path.startswith(TRANSCRIPTION)],
    )


def _read(file: str, name: str) -> list[Row]:
    rows: list[Row] = tomllib.loads((HERE / f"{file}.toml").read_text(encoding="utf-8"))[name]
    return rows


def lines_of(told: str) -> list[int]:
    """Return the lines that a text tells, such as ``1-6, 25-30``."""
    found = []
    for part in told.split(", "):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def closest(cited: Iterable[Citation], algorithm: int, lines: Iterable[int]) -> list[Citation]:
    """Return for each line the citations of the fewest lines, each place once.

    A module counts where none of its functions cites the line.
    """
    of = [each for each in cited if each.algorithm == algorithm]
    found: dict[str, Citation] = {}
    for line in lines:
        holding = [each for each in of if each.first <= line <= each.last]
        holding = [each for each in holding if each.name] or holding
        least = min((each.length for each in holding), default=0)
        found |= {each.place: each for each in holding if each.length == least}
    return list(found.values())


def render(told: Tables) -> str:
    """Return the page."""
    parts = [_INTRODUCTION, _CITED_LINES]
    for algorithm in told.algorithms:
        parts.append(f"\n### Algorithm {algorithm['number']}: {algorithm['title']}\n\n")
        parts.append(_algorithm(algorithm, told))
    for section in told.sections:
        parts.append(f"\n## {section['title']}\n\n")
        parts.append(
            table(
                ("part", "in ares", "difference", "tests"),
                (_source_row(row) for row in section["row"]),
            )
        )
        if section["title"].startswith("The deliverable"):
            parts.append(f"{_PARAMETERS}\n")
            heads = ("variable", "published", "in ares", "difference")
            parts.append(table(heads, map(_parameter_row, told.parameters)))
    parts.append(f"{_PACKAGES}\n")
    parts.append(
        table(("package", "installed", "reason", "used in"), map(_package_row, told.packages))
    )
    parts.append(_LATER)
    return "".join(parts)


def _algorithm(algorithm: Row, told: Tables) -> str:
    heads = ["lines", "as printed", "difference", "functions", "transcription", "tests"]
    rows = []
    for row in algorithm["row"]:
        number, lines = algorithm["number"], lines_of(row["lines"])
        cells = [
            row["lines"],
            row["published"],
            _told(row["how"], row.get("why", "")),
            _names(each.name or each.path for each in closest(told.code, number, lines)),
            _names(each.name for each in closest(told.transcription, number, lines)),
            _names(each.place for each in closest(told.tests, number, lines)),
        ]
        rows.append(cells)
    return table(heads, rows)


def _told(how: str | list[str], why: str) -> str:
    said = how if isinstance(how, str) else f"changed by {', '.join(how)}"
    joint = ", because " if how == "replaced" else ". "
    return f"*{said}*{joint if why else ''}{why}"


def _source_row(row: Row) -> list[str]:
    return [
        row["part"],
        _names(row["here"]),
        _told(row["how"], row.get("why", "")),
        _names(row["tests"]),
    ]


def _parameter_row(row: Row) -> list[str]:
    here = parameter_here(row)
    lacking = [value for value in row["published"] if value not in here]
    return [
        row["name"],
        _values(row["published"]),
        f"`{row['scenario']}`: `{row['here']}`",
        f"changed: {_values(here)}" if lacking else "all published values",
    ]


def parameter_here(row: Row) -> list[Any]:
    """Return the values of a parameter at the paper's scale: of a scenario, or by default."""
    file = SCENARIOS_DIRECTORY / f"{row['scenario']}.toml"
    scenario = tomllib.loads(file.read_text(encoding="utf-8"))
    given = scenario.get("fixed", {}) | scenario["paper"]
    found = given.get(row["here"], getattr(Parameters(), row["here"]))
    return found if isinstance(found, list) else [found]


def _values(values: list[Any]) -> str:
    return ", ".join(map(str, values))


def _package_row(row: Row) -> list[str]:
    kind = {"extra": f" `[{row.get('extra')}]`", "replaced": f" by `{row.get('by')}`"}
    return [
        f"`{row['name']}`",
        f"*{row['how']}*{kind.get(row['how'], '')}",
        row["why"],
        f"`{row['here']}`",
    ]


def _names(names: Iterable[str]) -> str:
    return "<br>".join(f"`{name}`" for name in dict.fromkeys(names))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table of Markdown."""
    heads = list(heads)
    made = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in made)


if __name__ == "__main__":
    sys.stdout.write(render(tables()))
