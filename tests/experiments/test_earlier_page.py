"""A page made in parts: rows of an earlier page stay for scenarios that were not run again."""

import msgspec
import pytest

from experiments.__main__ import main
from experiments.verdicts import earlier_page
from experiments.verdicts.claim import BOUNDS, QUANTITIES, Claim, ClaimSource
from experiments.verdicts.earlier_page import EarlierPage, read_earlier
from experiments.verdicts.evaluate import FigureRow, evaluate
from experiments.verdicts.reproduction import render

PROVENANCE = {
    "began": "2026-01-02T03:04:05Z",
    "commit": "abcdef01",
    "machine": "a | machine",
    "testbed": "local",
    "versions": {"ares": "1.0", "cpython": "3.11.7"},
}


def claim(name, scenario, **changes):
    told = {
        "id": name,
        "at": ("Fig. 1",),
        "claim": f"Sentence | of {name}.",
        "published": "0.5",
        "scenario": scenario,
        "confirms": "less",
        "of": {"algorithm": "A", "op": "read"},
        "to": {"algorithm": "B", "op": "read"},
    }
    return Claim(**told | changes)


def rows(scenario, ratio):
    return [
        FigureRow(scenario, name, "read", {}, {"mean_s": mean_s, "operations": 99}, number)
        for number in (1, 2, 3)
        for name, mean_s in (("A", ratio), ("B", 1.0))
    ]


def page(claims, figures, scenarios, earlier=None):
    runs = [{"scenario": name, "provenance": PROVENANCE} for name in scenarios]
    verdicts = [evaluate(each, figures) for each in claims]
    return render([ClaimSource("A paper", "P", tuple(claims))], verdicts, runs, earlier)


CLAIMS = [claim("one", "first"), claim("two", "second")]


def test_a_claim_of_a_scenario_without_rounds_keeps_its_row():
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    assert "**2 claims: 1 confirmed, 1 not measured.**" in before
    after = page(CLAIMS, rows("second", 2.0), ["second"], read_earlier(before))
    assert "**2 claims: 1 confirmed, 1 refuted.**" in after
    assert "Sentence \\| of one. | 0.5 |" in after
    assert "| first | 1 | 2026-01-02 | abcdef01 | local | cpython 3.11.7 | a \\| machine |" in after
    assert "| second | 1 | 2026-01-02 |" in after


def test_a_page_without_new_rounds_is_the_earlier_page():
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    assert page(CLAIMS, [], [], read_earlier(before)) == before


def test_a_scenario_that_was_run_again_is_judged_anew():
    before = page(CLAIMS, rows("first", 0.5) + rows("second", 0.5), ["first", "second"])
    assert "| first, second | 2 |" in before
    after = page(CLAIMS, rows("first", 2.0), ["first"], read_earlier(before))
    assert "**2 claims: 1 confirmed, 1 refuted.**" in after
    assert "| second | of 2 |" in after
    again = page(CLAIMS, rows("first", 2.0), ["first"], read_earlier(after))
    assert "| second | of 2 |" in again


@pytest.mark.parametrize(
    "changes",
    [
        {"claim": "Another sentence."},
        {"published": "0.6"},
        {"at": ("Fig. 2",)},
        {"where": {"object_size": 32}},
        {"transcription": "ares2", "of": {"algorithm": "ARES_EC", "op": "read"}},
        {"bound": 0.4},
        {"confirms": "more"},
        {"operations": 60},
        {"each_op": ("read", "write")},
        {"each_to": ({"algorithm": "C"},)},
    ],
)
def test_a_row_of_a_claim_that_changed_is_not_kept(changes):
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    changed = [msgspec.structs.replace(CLAIMS[0], **changes), CLAIMS[1]]
    after = page(changed, [], [], read_earlier(before))
    assert "**2 claims: 2 not measured.**" in after


def test_a_row_that_another_rule_judged_is_not_kept(monkeypatch):
    monkeypatch.setattr(earlier_page, "JUDGING_RULE", "a bootstrap over operations")
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    assert "**2 claims: 1 confirmed, 1 not measured.**" in before
    monkeypatch.undo()
    assert "**2 claims: 2 not measured.**" in page(CLAIMS, [], [], read_earlier(before))


def test_a_row_judged_with_another_usual_bound_is_not_kept(monkeypatch):
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    monkeypatch.setitem(BOUNDS, "less", 0.4)
    assert "**2 claims: 2 not measured.**" in page(CLAIMS, [], [], read_earlier(before))


def test_a_row_of_a_quantity_with_another_name_is_not_kept(monkeypatch):
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    monkeypatch.setitem(QUANTITIES, "mean_s", "time per successful operation")
    assert "**2 claims: 2 not measured.**" in page(CLAIMS, [], [], read_earlier(before))


def test_figures_of_a_part_of_a_claim_leave_the_earlier_verdict():
    """One of two comparisons was measured again, which says nothing about the claim."""
    both = claim("one", "first", each_where=({"object_size": 32}, {"object_size": 64}))
    small, large = (
        [
            msgspec.structs.replace(row, parameters={"object_size": size})
            for row in rows("first", 0.5)
        ]
        for size in (32, 64)
    )
    before = page([both], small + large, ["first"])
    assert "**1 claims: 1 confirmed.**" in before
    assert "**1 claims: 1 confirmed.**" in page([both], small, ["first"], read_earlier(before))


def test_a_changed_note_keeps_the_row():
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    noted = [msgspec.structs.replace(CLAIMS[0], note="A caveat."), CLAIMS[1]]
    assert "1 confirmed" in page(noted, [], [], read_earlier(before))


@pytest.mark.parametrize(
    "by_hand", [("*confirmed*", "*refuted*"), ("**0.5**", "**0.4**"), (" <!--", " (seen) <!--")]
)
def test_a_row_that_was_changed_by_hand_is_not_kept(by_hand):
    before = page(CLAIMS, rows("first", 0.5), ["first"])
    after = page(CLAIMS, [], [], read_earlier(before.replace(*by_hand)))
    assert "**2 claims: 2 not measured.**" in after


def test_a_claim_without_figures_keeps_its_row_though_its_scenario_was_run_again():
    claims = [claim("one", "first", where={"object_size": 32}), claim("two", "first")]
    small, other = (
        [
            msgspec.structs.replace(row, parameters={"object_size": size})
            for row in rows("first", 0.5)
        ]
        for size in (32, 64)
    )
    before = page(claims[:1], small, ["first"])
    after = page(claims, other, ["first"], read_earlier(before))
    assert "**2 claims: 2 confirmed.**" in after
    assert after.count("| first | 1 |") == 2


def test_a_claim_on_which_a_test_decides_is_never_kept():
    by = claim("one", "", of=None, to=None, confirmed_by="tests/a.py::test_b", why="Yes.")
    before = page([by], [], [])
    other = msgspec.structs.replace(by, confirmed_by="", refuted_by="tests/a.py::test_b")
    assert "**1 claims: 1 refuted.**" in page([other], [], [], read_earlier(before))


def test_other_tables_of_a_page_are_ignored():
    assert read_earlier("| a | b |\n| --- | --- |\n| 1 | 2 |\n") == EarlierPage()


def test_add_without_a_page_is_refused(tmp_path, capsys):
    out = tmp_path / "none.md"
    assert main(["verdicts", "--no-results", "--add", "--out", str(out)]) == 1
    assert "--add keeps rows of" in capsys.readouterr().err
    assert not out.exists()
