"""The claims of the papers in the page of results, beside the runs of their scenario."""

import pytest

from ares.results.database import opened
from ares.results.page import JudgedClaim, render

from . import browser
from .test_page import imported, quiet
from .test_results_verdict import MARKUP, write_runs

pytestmark = pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)


def shown(tab: browser.Tab, tmp_path, *claims: JudgedClaim) -> str:
    """Open the page of runs of the scenario `sizes` with these claims, and return their table."""
    write_runs(tmp_path / "runs", {"ABD": {1: 0.01, 2: 0.02}})
    path = tmp_path / "report.html"
    with opened(imported(tmp_path, tmp_path / "runs")) as database:
        path.write_text(render(database, "results.db", quiet, claims))
    tab.open(path)
    return tab.text("#claims")


def test_the_claims_of_a_scenario_are_in_a_table_as_text(tab, tmp_path):
    one = JudgedClaim("sizes", "Fig. 1", f"Reads {MARKUP}", "2", "1.9 [1.8, 2]", "confirmed")
    other = JudgedClaim("crashes", "Fig. 2", "Nobody waits.", "0", "0", "refuted")
    told = shown(tab, tmp_path, one, other)
    assert [part in told for part in ("Fig. 1", MARKUP, "1.9 [1.8, 2]", "confirmed")] == [True] * 4
    assert "Fig. 2" not in told
    assert tab.value("window.executed") is None
    assert tab.value("getComputedStyle(document.getElementById('claims')).display") == "block"


def test_a_scenario_without_claims_has_no_table(tab, tmp_path):
    shown(tab, tmp_path, JudgedClaim("crashes", "Fig. 2", "Nobody waits.", "0", "0", "refuted"))
    assert tab.value("getComputedStyle(document.getElementById('claims')).display") == "none"
