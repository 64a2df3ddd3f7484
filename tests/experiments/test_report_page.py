"""The page of results with the claims that were judged from the same runs."""

import pytest

from ares.model.errors import BadInput
from experiments.rounds.scenario import Parameters
from experiments.verdicts.claim import REFUTED
from experiments.verdicts.report_page import judged_claims, write_report

from .test_verdicts import measured_directory, rounds_of_claim


def test_measured_claims_alone_are_shown_with_their_verdicts():
    def times(side):
        return 0.5 if side.get("readers") == 250 else 1.0

    claim, rows = rounds_of_claim("report-cassandra-slower", times)
    shown = {each.claim: each for each in judged_claims(rows)}[claim.claim]
    assert (shown.scenario, shown.published) == (claim.scenario, claim.published)
    assert shown.where.endswith(", ".join(claim.at))
    assert shown.verdict == REFUTED
    assert "0.5" in shown.ours
    assert "*" not in shown.ours
    assert judged_claims([]) == []


def test_the_report_is_written_whole_or_not_at_all(tmp_path):
    results = measured_directory(tmp_path, Parameters())
    page = write_report(results)
    assert '"claims":[' in page.read_text()
    page.unlink()
    page.mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(results)
