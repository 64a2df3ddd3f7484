"""The faults of the tables behind docs/fidelity.md, a sentence for each fault."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from .citations import Citation, defined
from .fidelity_page import ROOT, Row, Tables, closest, lines_of

RULE_HEADING = re.compile(r"^### (R\d+)\.", re.MULTILINE)
STATEMENT_LINES = 3
"""The most lines of a statement as printed; a citation of more lines is of a whole procedure."""

_requirement = re.compile(r"[\w-]+")


def algorithm_faults(told: Tables, root: Path = ROOT) -> Iterator[str]:
    """Yield lines without a row of their own, and unfilled rows."""
    rules = set(RULE_HEADING.findall((root / "docs/protocol.md").read_text(encoding="utf-8")))
    for algorithm in told.algorithms:
        number, all_lines = algorithm["number"], range(1, algorithm["lines"] + 1)
        rows = Counter(line for row in algorithm["row"] for line in lines_of(row["lines"]))
        yield from (f"Alg. {number}:{line} has no row" for line in all_lines if not rows[line])
        yield from (f"Alg. {number}:{line} has several rows" for line in rows if rows[line] > 1)
        yield from (f"Alg. {number}:{line} is no line" for line in rows if line not in all_lines)
        for row in algorithm["row"]:
            where = f"Alg. {number}:{row['lines']}"
            yield from _row_faults(where, row, rules)
            if not closest(told.code, number, lines_of(row["lines"])):
                yield f"no function cites a line of {where}"
            if not closest(told.tests, number, lines_of(row["lines"])):
                yield f"no test cites a line of {where}"


def _row_faults(where: str, row: Row, rules: set[str]) -> Iterator[str]:
    if isinstance(row["how"], list):
        yield from (f"{where} names {rule}, which is no rule" for rule in {*row["how"]} - rules)
    elif row["how"] not in ("as published", "replaced"):
        yield f"{where} is {row['how']!r}"
    if row["how"] != "as published" and not row.get("why"):
        yield f"{where} has no reason"


def citation_faults(told: Tables) -> Iterator[str]:
    """Yield cited lines absent from the algorithms, and lines absent from the transcription."""
    lines = {algorithm["number"]: algorithm["lines"] for algorithm in told.algorithms}
    for each in (*told.code, *told.tests, *told.transcription):
        if not 1 <= each.first <= each.last <= lines.get(each.algorithm, 0):
            lines_cited = f"Alg. {each.algorithm}:{each.first}-{each.last}"
            yield f"{each.place} cites {lines_cited}, which do not exist"
    for algorithm in told.algorithms:
        yield from _lacking(algorithm, told.transcription)


def _lacking(algorithm: Row, cited: Sequence[Citation]) -> Iterator[str]:
    """Yield statements without a short citation, and lines of the frame with a short citation."""
    number, frame = algorithm["number"], lines_of(algorithm["frame"])
    of_statements = [each for each in cited if each.length < STATEMENT_LINES]
    for line in range(1, algorithm["lines"] + 1):
        found = bool(closest(of_statements, number, [line]))
        if not found and line not in frame:
            yield f"Alg. {number}:{line} is not in the transcription"
        if found and line in frame:
            yield f"Alg. {number}:{line} is cited as a statement, and told to be none"


def source_faults(told: Tables, root: Path = ROOT) -> Iterator[str]:
    """Yield the names of missing places and tests, and unfilled rows."""
    for row in (row for section in told.sections for row in section["row"]):
        places, absent = [*row["here"], *row["tests"]], row["how"] == "not here"
        yield from (f"{place} does not exist" for place in places if not exists(place, root))
        if row["how"] not in ("same", "changed", "not here"):
            yield f"{row['part']}: {row['how']!r}"
        if row["how"] != "same" and not row.get("why"):
            yield f"{row['part']}: no reason"
        if absent == bool(places) or (row["here"] and not row["tests"]):
            yield f"{row['part']}: a part that is here has a place and a test, another one has none"


def exists(place: str, root: Path) -> bool:
    """Return whether a checkout has a file, or a name in a file."""
    path, _, name = place.partition("::")
    file = root / path
    return file.exists() and (not name or name in defined(file.read_text(encoding="utf-8")))


def package_faults(told: Tables, root: Path = ROOT) -> Iterator[str]:
    """Yield packages with different entries in pyproject.toml and in the table."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    default = _packages(project["dependencies"])
    extras = {name: _packages(each) for name, each in project["optional-dependencies"].items()}
    for row in told.packages:
        name = row.get("package", row["name"])
        in_extras = {extra for extra, packages in extras.items() if name in packages}
        right = {
            "default": name in default,
            "extra": name not in default and row.get("extra") in in_extras,
            "replaced": name not in default
            and not in_extras
            and any(row.get("by") in packages for packages in (default, *extras.values())),
        }
        if not right.get(row["how"]):
            yield f"{name} is not {row['how']} in pyproject.toml"
        if not exists(row["here"], root):
            yield f"{row['here']} does not exist"


def _packages(requirements: Sequence[str]) -> set[str]:
    return {found[0] for each in requirements if (found := _requirement.match(each))}
