"""docs/fidelity.md and docs/left-for-later.md: generated, about lines and figures that exist."""

import copy
import re
from collections import Counter

import pytest

from ares.testing import published
from tests.fidelity.citations import TRANSCRIPTION, Citation, citations
from tests.fidelity.fidelity_faults import (
    STATEMENT_LINES,
    algorithm_faults,
    citation_faults,
    exists,
    package_faults,
    source_faults,
)
from tests.fidelity.fidelity_page import FIDELITY_PAGE, ROOT, Tables, lines_of, render, tables
from tests.fidelity.later_page import LATER_PAGE, quotation_faults, render_later

CHECKS = (algorithm_faults, citation_faults, source_faults, package_faults, quotation_faults)


@pytest.fixture(scope="module")
def told():
    return tables()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tables_behind_the_page_have_no_fault(told, check):
    assert list(check(told)) == []


def test_the_page_is_the_generated_one(told):
    assert FIDELITY_PAGE.read_text(encoding="utf-8") == render(told), (
        "run python -m tests.fidelity.fidelity_page > docs/fidelity.md"
    )


_INDEXED = re.compile(r"(\d):([\d, -]+)")


def index_of_the_transcription():
    """Yield the rows of the package's index: an algorithm, its lines, and the place."""
    for row in re.findall(r"^\| (\d:.*) \| (.*) \|$", published.__doc__, re.MULTILINE):
        lines, places = (cell.split("; ") for cell in row)
        assert len(lines) == len(places)
        for told, place in zip(lines, places, strict=True):
            algorithm, numbers = _INDEXED.fullmatch(told).groups()
            yield int(algorithm), lines_of(numbers), place


def test_the_index_of_the_transcription_has_every_line_once_and_where_it_is(told):
    indexed = Counter()
    for algorithm, lines, place in index_of_the_transcription():
        indexed.update((algorithm, line) for line in lines)
        file = f"{TRANSCRIPTION}/{place}"
        assert exists(file, ROOT)
        cited = [each for each in told.transcription if each.place == file]
        held = {line for each in cited for line in range(each.first, each.last + 1)}
        assert held & set(lines), f"{place} cites no line of Alg. {algorithm}: {lines}"
    assert indexed == {
        (algorithm["number"], line): 1
        for algorithm in told.algorithms
        for line in range(1, algorithm["lines"] + 1)
    }


def test_the_page_of_work_left_for_later_is_the_generated_one(told):
    assert LATER_PAGE.read_text(encoding="utf-8") == render_later(told.later), (
        "run python -m tests.fidelity.later_page > docs/left-for-later.md"
    )


def test_a_citation_has_the_function_that_holds_it():
    text = (
        '"""Alg. 1:2."""\n\nclass One:\n    """Alg.\n    3:9-22."""\n\n'
        "    def two(self):\n        # Alg. 5:7\n        def three():\n            # Alg. 5:8\n"
        "            pass\n"
    )
    assert list(citations("a.py", text)) == [
        Citation(1, 2, 2, "a.py", ""),
        Citation(3, 9, 22, "a.py", "One"),
        Citation(5, 7, 7, "a.py", "One.two"),
        Citation(5, 8, 8, "a.py", "One.two"),
    ]


def test_each_part_of_a_citation_counts():
    text = "# Alg. 1:17-23, 40-46, 2:1,\n# 3 and 5:6: line 7, Alg. 3:1, 2:99\n"
    assert [each[:3] for each in citations("a.py", text)] == [
        (1, 17, 23),
        (1, 40, 46),
        (2, 1, 1),
        (2, 3, 3),
        (5, 6, 6),
        (3, 1, 1),
        (2, 99, 99),
    ]


def changed(told: Tables, table: str, change) -> Tables:
    rows = copy.deepcopy(getattr(told, table))
    change(rows)
    return told._replace(**{table: rows})


def cites(algorithm: int, first: int, last: int) -> Citation:
    return Citation(algorithm, first, last, "ares/dap/primitives.py", "DataAccess.get_data")


def without(algorithm: int, line: int):
    """Return a change that drops a line's own citations, and leaves its procedure's."""

    def change(cited: list[Citation]) -> None:
        cited[:] = [
            each
            for each in cited
            if each.algorithm != algorithm
            or not each.first <= line <= each.last
            or each.length >= STATEMENT_LINES
        ]

    return change


@pytest.mark.parametrize(
    ("check", "table", "change", "why"),
    [
        (algorithm_faults, "algorithms", lambda rows: rows[2]["row"].pop(), "Alg. 3:31 has no row"),
        (
            algorithm_faults,
            "algorithms",
            lambda rows: rows[0]["row"].append(rows[0]["row"][0]),
            "Alg. 1:1 has several rows",
        ),
        (
            algorithm_faults,
            "algorithms",
            lambda rows: rows[4]["row"][-1].update(lines="37-43"),
            "Alg. 5:43 is no line",
        ),
        (
            algorithm_faults,
            "algorithms",
            lambda rows: rows[0]["row"][2].update(how=["R99"]),
            "R99, which is no rule",
        ),
        (
            algorithm_faults,
            "algorithms",
            lambda rows: rows[0]["row"][7].update(how="replaced"),
            "has no reason",
        ),
        (algorithm_faults, "code", list.clear, "no function cites a line of Alg. 1:1-6, 25-30"),
        (algorithm_faults, "tests", list.clear, "no test cites a line of Alg. 1:1-6, 25-30"),
        (citation_faults, "code", lambda cited: cited.append(cites(3, 9, 32)), "Alg. 3:9-32"),
        (citation_faults, "tests", lambda cited: cited.append(cites(6, 1, 1)), "Alg. 6:1-1"),
        (
            citation_faults,
            "code",
            lambda cited: cited.extend(citations("a.py", "# Alg. 1:21, 1:99")),
            "Alg. 1:99-99",
        ),
        (citation_faults, "transcription", without(1, 43), "Alg. 1:43 is not in the transcription"),
        (citation_faults, "transcription", without(4, 1), "Alg. 4:1 is not in the transcription"),
        (
            citation_faults,
            "transcription",
            lambda cited: cited.append(cites(5, 13, 13)),
            "Alg. 5:13 is cited as a statement, and told to be none",
        ),
        (
            source_faults,
            "sections",
            lambda rows: rows[0]["row"][0].update(here=["ares/model/configuration.py::Nothing"]),
            "ares/model/configuration.py::Nothing does not exist",
        ),
        (
            source_faults,
            "sections",
            lambda rows: rows[0]["row"][0].update(tests=["tests/unit/test_nothing.py"]),
            "tests/unit/test_nothing.py does not exist",
        ),
        (
            source_faults,
            "sections",
            lambda rows: rows[0]["row"][0].update(tests=[]),
            "has a place and a test",
        ),
        (
            package_faults,
            "packages",
            lambda rows: rows[0].update(how="extra", extra="tracing"),
            "pyzmq is not extra",
        ),
        (
            package_faults,
            "packages",
            lambda rows: rows[4].update(how="default"),
            "opentelemetry-sdk is not default",
        ),
        (
            package_faults,
            "packages",
            lambda rows: rows[5].update(by="jaeger-client"),
            "opentelemetry-exporter-jaeger is not replaced",
        ),
        (
            quotation_faults,
            "later",
            lambda rows: rows[0].update(said="a chain of three took 0.1 s"),
            "docs/autopilot.md does not say",
        ),
        (
            quotation_faults,
            "later",
            lambda rows: rows[1].pop("said"),
            "neither measured nor told to be not measured",
        ),
    ],
)
def test_a_fault_is_noticed(told, check, table, change, why):
    assert any(why in fault for fault in check(changed(told, table, change)))
