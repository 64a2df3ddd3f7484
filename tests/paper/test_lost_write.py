"""The write that ARES II as published loses: one run, all schedules, and the page about both."""

import re
from pathlib import Path

import pytest

from ares.model.value import TOMBSTONE
from tests.paper.losing_run import losing_run
from tests.paper.small_scopes import count
from tests.simulation.counterexample import SEARCHES, TEXT, page, row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/piggyback-counterexample.md"
TRANSCRIPTION = ROOT / "ares/testing/published"


def test_the_run_loses_a_completed_write_and_with_r1_it_does_not():
    run = losing_run(r1=False)
    assert run.value is TOMBSTONE
    assert "Note over w: the write is complete at s1 and s2" in run.lines
    assert any("GC-CONFIG" in line for line in run.lines)
    assert sum("->>" in line for line in run.decisive) == 10
    mended = losing_run(r1=True)
    assert mended.value == b"new"
    assert mended.lines[-1] == "Note over r: returns v1"


@pytest.mark.parametrize("gc", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_of_all_schedules_the_published_piggyback_loses_some_and_rule_r1_none(gc):
    (published, states), (mended, _) = count(False, gc), count(True, gc)
    assert states > 100_000
    assert published.schedules > published.broken > 0
    assert mended.schedules > mended.broken == 0


def test_the_page_names_every_line_that_the_transcription_reads_otherwise():
    """Compare the page's list with the comments and docstrings that say "read as"."""
    lines = re.compile(r"\b\d:\d+(?:-\d+)?")
    listed = re.findall(r"^- Alg\. (.*?): ", TEXT, re.MULTILINE)
    read_otherwise = {
        found
        for file in TRANSCRIPTION.glob("*.py")
        for told in re.findall(r"Alg\. (.*)\bread as\b", file.read_text(encoding="utf-8"))
        for found in lines.findall(told)
    }
    assert read_otherwise == {found for told in listed for found in lines.findall(told)}
    assert len(read_otherwise) > 6


def test_the_page_is_what_the_runs_say_and_the_searches_without_gc():
    text = PAGE.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ARES II ")]
    assert text == page(rows)
    assert rows[2:] == [row(name) for name, (_, gc) in SEARCHES.items() if not gc]


@pytest.mark.slow
def test_the_page_is_what_all_searches_say():
    assert PAGE.read_text(encoding="utf-8") == page(map(row, SEARCHES))
