"""Verdicts: claims as files, the evaluator on invented rows, and the page."""

import hashlib
import itertools
import math
import random
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.platform.interpreter import python
from ares.results.summary import SUMMARY_COLUMNS
from experiments.__main__ import main
from experiments.logs import log_load_plan
from experiments.rounds.scenario import Parameters, scenarios
from experiments.sites import fog_plan
from experiments.sites.store_table import SITE_STORES
from experiments.verdicts import reproduction
from experiments.verdicts.claim import (
    AWAITING,
    CONFIRMED,
    NOT_MEASURED,
    NOT_TESTABLE,
    QUANTITIES,
    REFUTED,
    TODAYS,
    UNDECIDED,
    Claim,
    ClaimSource,
    Quotient,
    sources,
)
from experiments.verdicts.claimed_points import (
    LONGEST_POINT_MIN,
    POINT_ROUNDS,
    log_runs,
    point_rounds,
    sides_of,
    too_long,
)
from experiments.verdicts.earlier_page import (
    CLAIM_COLUMNS,
    OURS_COLUMN,
    VERDICT_COLUMN,
    claim_digest,
    page_rows,
    read_earlier,
    without_digests,
)
from experiments.verdicts.evaluate import JUDGING_RULE, FigureRow, evaluate
from experiments.verdicts.reproduction import measured_text, number, point, render
from experiments.verdicts.rows import interruption_s, parameters_of, read_rows
from experiments.verdicts.verdict_commands import check
from tests.results.operation_logs import imported, write

ROOT = Path(__file__).parents[2]
CLAIMS = [claim for source in sources() for claim in source.claim]


def numbered(word: str, last: int) -> set[str]:
    return {f"{word} {number}" for number in range(1, last + 1)}


IN_THE_SOURCES = {
    "Report": numbered("Fig.", 34)
    | {"Section 2", "Table of KPIs", "Table of variables", "Table of topologies"},
    "ARES II": numbered("Fig.", 16)
    | numbered("Table", 3)
    | {"Theorem 3", "Theorem 4", "Theorem 16"}
    | {"Section 4.1", "Section 4.3.2", "Section 7.1", *(f"Section 5.{n}" for n in (1, 2, 3))},
    "Register report": {
        *("Hardware", "Latencies and bandwidth", "Testing Correctness"),
        *("Plots of latency and throughput", "Percentiles", "Graph of QPS"),
    },
    "Ikaria": {
        "Fig. 2.1",
        "Fig. 4.1",
        *(f"Fig. 3.{n}" for n in range(1, 10)),
        *(f"Fig. 5.{n}" for n in range(1, 9)),
    }
    | {"Section 3.3", "Section 5.1", "Section 5.2", "Section 5.4", "Section 5.5"},
    "Fog study": numbered("Fig.", 7) | {"Table I", "Table II", "Table III"},
}
"""Figures and tables by the numbers of their sources.

The register report has no numbers, hence the entries describe the figures.
"""

DRAWINGS = {
    "Report": numbered("Fig.", 4),
    "ARES II": {"Fig. 1", "Fig. 15", "Fig. 16"},
    "Register report": set(),
    "Ikaria": {"Fig. 2.1", "Fig. 4.1", *(f"Fig. 3.{n}" for n in range(1, 10))},
    "Fog study": numbered("Fig.", 5),
}
"""Drawings of architecture, of configurations, and screens of other programs."""


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.short)
def test_every_figure_and_table_is_covered(source):
    claimed = {at for claim in source.claim for at in claim.at}
    assert claimed | set(source.no_claim) == IN_THE_SOURCES[source.short]
    assert not claimed & set(source.no_claim)
    assert DRAWINGS[source.short] <= set(source.no_claim)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_a_claim_names_what_there_is(claim):
    if claim.of is None:
        test, _, name = claim.test.partition("::")
        assert not test or f"def {name}(" in (ROOT / test).read_text()
        return
    logs = (log_load_plan.LOG_STUDY, log_load_plan.LOG_THREADS, log_load_plan.LOG_FAULTS)
    others = dict.fromkeys(logs, log_load_plan.LOG_PROTOCOLS) | {fog_plan.FOG_STUDY: SITE_STORES}
    protocols = others.get(claim.scenario) or scenarios()[claim.scenario].protocols
    known = {
        *Parameters.__struct_fields__,
        *log_load_plan.LogLoadRun("CR", processors=1).parameters(),
        *log_load_plan.FAULT_RUNS[0].parameters(),
        *(name for each in fog_plan.tests() for name in each),
        *("algorithm", "op", "statistic", "published", "clients", "mode"),
    }
    for variant in claim.variants():
        for side in variant.sides:
            assert side["algorithm"] in protocols
            assert side.keys() <= known


def rows_of_points():
    """Return rows of each operation of every round of the points, with their operations."""
    for scenario in scenarios().values():
        for each in point_rounds(scenario, CLAIMS):
            yield from rows_of_round(each)
    for each, iteration in itertools.product(log_runs(CLAIMS), range(1, POINT_ROUNDS + 1)):
        for op, window in itertools.product(("read", "write", "all"), each.windows):
            told = each.parameters() | {"clients": window, "mode": "closed"}
            figures = dict.fromkeys(QUANTITIES, 1.0) | {"operations": 1000}
            yield FigureRow(each.scenario, each.protocol, op, told, figures, iteration, each.name)
    for each in log_load_plan.FAULT_RUNS:
        figures = {"lost": 0.0, "operations": 1000}
        yield FigureRow("log_faults", "CRAQ", "write", each.parameters(), figures, 1, each.victim)
    for store, told, trial in itertools.product(SITE_STORES, fog_plan.tests(), range(3)):
        figures = dict.fromkeys(QUANTITIES, 1.0) | {"operations": 1000}
        yield FigureRow("fog", store, "all", told, figures, trial, f"{store} {told}")


def rows_of_round(each):
    p = each.parameters
    settings = msgspec.to_builtins(p) | {"load": None}
    told = parameters_of({"parameters": settings} | dict.fromkeys(SUMMARY_COLUMNS))
    counts = {
        "read": p.readers * p.operations,
        "write": p.writers * p.operations,
        "recon": p.reconfigurers * p.reconfigurations,
    }
    counts |= {"read block": counts["read"], "write block": counts["write"]}
    counts["all"] = counts["read"] + counts["write"]
    windows = [{}]
    if p.load is not None:
        counts = dict.fromkeys(("all", "read", "write"), p.load.operations)
        doubled = (p.load.clients << power for power in range(20))
        windows = [
            {"clients": clients, "mode": "closed"}
            for clients in doubled
            if clients <= p.load.clients_max
        ]
    for (op, count), window in itertools.product(counts.items(), windows):
        figures = dict.fromkeys(QUANTITIES, 1.0) | {"operations": count}
        yield FigureRow(
            each.scenario, each.protocol, op, told | window, figures, each.iteration, each.name
        )


def test_the_points_measure_every_claim_about_what_runs_today_with_enough_operations():
    """A claim without rounds would keep `--check` from passing after a whole run."""
    rows = list(rows_of_points())
    verdicts = [evaluate(claim, rows) for claim in CLAIMS if claim.of is not None]
    lacking = [
        (verdict.claim.id, each.label, each.why)
        for verdict in verdicts
        for each in verdict.comparisons
        if each.why and each.word != AWAITING
    ]
    assert lacking == []


def test_points_are_rounds_of_what_claims_name_at_the_papers_sizes():
    scenario = scenarios()["block_size"]
    rounds = list(point_rounds(scenario, CLAIMS))
    assert {(each.protocol, each.parameters.block_min) for each in rounds} == {
        ("COARES_EC_F", 2 << 20),
        ("COARES_EC_F", 64 << 20),
    }
    assert {each.parameters.object_size for each in rounds} == {512 << 20}
    assert [each.iteration for each in rounds] == [1, 1, 2, 2, 3, 3]
    assert len({each.name for each in rounds}) == len(rounds)
    assert not list(point_rounds(scenario, CLAIMS, ["ARES_ABD"]))


def test_a_scenario_with_short_rounds_may_have_more_of_them():
    scenario = scenarios()["steps"]
    more = {each.iteration for each in point_rounds(scenario, CLAIMS)}
    assert max(more) == scenario.points["iterations"] > POINT_ROUNDS


def test_all_points_fit_into_a_night():
    rounds = [each for scenario in scenarios().values() for each in point_rounds(scenario, CLAIMS)]
    possible = [each for each in rounds if each.parameters.work_s <= 60 * LONGEST_POINT_MIN]
    assert sum(each.expected_s for each in possible) < 8 * 3600
    assert len(possible) > 0.9 * len(rounds)


def test_rounds_longer_than_the_longest_are_left_out_and_named(tmp_path, capsys):
    words = ["--scale", "points", "--longest", "0.01", "--results", str(tmp_path)]
    assert main(["run", "block_size", *words]) == 1
    told = capsys.readouterr()
    assert told.out.count("left out: block_size/COARES_EC_F") == 2
    assert told.out.count(f": {POINT_ROUNDS} rounds of about") >= 2
    assert "longer than --longest; nothing was begun" in told.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({"algorithm": "COARES_EC_F"}, "a point names block_min"),
        ({"algorithm": "ETCD", "block_min": 1}, "has no protocol ETCD"),
        (
            {"algorithm": "COARES_EC_F", "block_min": 1, "switches": "+nothing"},
            "fits 0 of its switches",
        ),
    ],
)
def test_a_claim_that_names_no_point_is_refused(of, why):
    told = claim(scenario="block_size", of=of, to=None)
    with pytest.raises(BadInput, match=why):
        list(point_rounds(scenarios()["block_size"], [told]))


def test_sides_that_no_transcription_can_run_are_no_points():
    told = claim(transcription="abd", of={}, to={"algorithm": "REDIS_W"})
    told = msgspec.structs.replace(told, each=("ABD", "COARES_EC_F"))
    found = [(side["algorithm"], side["published"]) for side in sides_of([told], "s")]
    assert found == [
        *(("ABD", "abd"), ("REDIS_W", "abd"), ("REDIS_W", "abd")),
        *(("ABD", ""), ("REDIS_W", ""), ("COARES_EC_F", ""), ("REDIS_W", "")),
    ]
    fast = claim(transcription="ares2", of={"algorithm": "ARES_EC", "switches": "+fast_read"})
    assert [side["published"] for side in sides_of([fast], "s")] == ["ares2", "", ""]


def test_points_of_an_algorithm_as_published_are_rounds_of_it_beside_todays():
    """Another store has one round for both, and ABD is plain ABD."""
    rounds = list(point_rounds(scenarios()["topology"], CLAIMS))
    kinds = {(each.protocol, each.parameters.published) for each in rounds}
    assert kinds == {
        *((protocol, name) for protocol in ("ABD", "ARES_ABD", "ARES_EC") for name in ("ares", "")),
        *((store, "") for store in ("CASSANDRA", "REDIS", "REDIS_W")),
    }
    assert len({each.name for each in rounds}) == len(rounds)


def test_the_bound_of_eleven_servers_and_parity_five():
    """ceil((11 + 6) / 2) = 9 servers must answer: two crashes, not five. ABD survives five."""
    servers = [f"s{number}" for number in range(11)]
    assert (
        Configuration.ec(servers, 6).quorum_size,
        Configuration.ec(servers, 6).crashes_survived,
    ) == (9, 2)
    assert (
        Configuration.ec(servers, 7).quorum_size,
        Configuration.ec(servers, 7).crashes_survived,
    ) == (9, 2)
    assert (
        Configuration.abd(servers).quorum_size,
        Configuration.abd(servers).crashes_survived,
    ) == (6, 5)


def claim(**more):
    return Claim(
        "one",
        ("Fig. 1",),
        "A sentence.",
        "0.5",
        **{"scenario": "s", "op": "read", "of": {"algorithm": "A"}, "to": {"algorithm": "B"}}
        | more,
    )


def row(
    algorithm="A",
    mean_s=1.0,
    op="read",
    iteration=1,
    operations=100,
    figures=None,
    **parameters,
):
    name = f"{algorithm} {op} {iteration} {parameters}"
    return FigureRow(
        "s",
        algorithm,
        op,
        parameters,
        {"mean_s": mean_s, "operations": operations} | (figures or {}),
        iteration,
        name,
    )


def value(verdict):
    [comparison] = verdict.comparisons
    return comparison.value if comparison.value is None else round(comparison.value, 6)


def measured(algorithm, mean_s, spread=0.0, count=100, **more):
    """Return a row with a time for each of ``count`` operations, around ``mean_s``."""
    times = [mean_s * (1 + spread * (-1) ** number) for number in range(count)]
    given = row(algorithm, mean_s, **more)
    return msgspec.structs.replace(given, samples={"mean_s": times})


def thrice(*rows):
    """Return each row in three rounds that are alike."""
    return [
        msgspec.structs.replace(each, iteration=number, run=f"{each.run} {number}")
        for each in rows
        for number in range(3)
    ]


def spread(algorithm, *means):
    """Return a round for each mean."""
    return [measured(algorithm, mean_s, iteration=n) for n, mean_s in enumerate(means)]


@pytest.mark.parametrize(
    ("confirms", "bound", "mean_s", "word"),
    [
        ("less", None, 0.85, CONFIRMED),
        ("less", None, 0.95, REFUTED),
        ("less", 0.5, 0.499, CONFIRMED),
        ("less", 0.5, 0.501, REFUTED),
        ("more", None, 1.15, CONFIRMED),
        ("more", None, 1.05, REFUTED),
        ("about", 1.25, 0.81, CONFIRMED),
        ("about", 1.25, 1.24, CONFIRMED),
        ("about", 1.25, 1.26, REFUTED),
        ("about", 1.25, 0.79, REFUTED),
    ],
)
def test_an_interval_confirms_or_refutes(confirms, bound, mean_s, word):
    rows = thrice(measured("A", mean_s), measured("B", 1.0))
    verdict = evaluate(claim(confirms=confirms, bound=bound), rows)
    assert (verdict.word, value(verdict)) == (word, round(mean_s, 6))


@pytest.mark.parametrize(
    ("ratio", "word"), [(0.21, REFUTED), (0.2, CONFIRMED), (0.15, CONFIRMED), (0.12, REFUTED)]
)
def test_a_claim_of_about_a_number_names_the_number(ratio, word):
    told = claim(confirms="about", near=1 / 6)
    rows = thrice(measured("A", ratio), measured("B", 1.0))
    assert evaluate(told, rows).word == word
    assert told.condition == "A ratio of 0.13 to 0.208 confirms it"


@pytest.mark.parametrize("confirms", ["less", "more", "about"])
def test_a_tie_with_the_limit_confirms(confirms):
    told = claim(confirms=confirms)
    assert told.word(told.limit, told.limit) == CONFIRMED


@pytest.mark.parametrize(
    ("confirms", "mean_s"), [("less", 0.9), ("more", 1.1), ("about", 1.25), ("about", 0.8)]
)
def test_a_limit_within_the_interval_is_undecided(confirms, mean_s):
    rows = spread("A", 0.9 * mean_s, mean_s, mean_s / 0.9) + spread("B", 1.0, 1.0, 1.0)
    verdict = evaluate(claim(confirms=confirms), rows)
    low, high = verdict.comparisons[0].interval
    assert verdict.word == UNDECIDED
    assert low < mean_s < high


def test_an_interval_of_three_rounds_is_wider_than_their_extremes():
    """The logarithms are -1, 0 and 1: 4.303 times the square root of 1/3 is 2.484."""
    rows = spread("A", *(math.exp(-each) for each in (1, 0, -1))) + spread("B", 1.0, 1.0, 1.0)
    low, high = evaluate(claim(), rows).comparisons[0].interval
    assert (math.log(low), math.log(high)) == pytest.approx((-2.484, 2.484), abs=0.001)


def test_an_interval_of_positive_values_is_positive_and_of_others_around_the_mean():
    told = claim(of={"algorithm": "A"}, to=None)
    [compared] = evaluate(told, spread("A", 1.0, 2.0, 4.0)).comparisons
    assert compared.value == pytest.approx(2.0)
    assert compared.interval == pytest.approx((2 / 5.597, 2 * 5.597), rel=0.001)
    [compared] = evaluate(told, spread("A", 0.0, 1.0, 2.0)).comparisons
    assert compared.value == pytest.approx(1.0)
    assert compared.interval == pytest.approx((1 - 2.484, 1 + 2.484), abs=0.001)


def test_an_interval_has_its_level_for_three_to_twenty_rounds():
    """Intervals of rounds with a known mean contain the mean in about 95 % of the cases."""
    chance = random.Random(1)
    for count in (3, 5, 20):
        inside = 0
        for _ in range(1000):
            means = [math.exp(chance.gauss(0, 0.2)) for _ in range(count)]
            rows = spread("A", *means) + spread("B", *[1.0] * count)
            low, high = evaluate(claim(), rows).comparisons[0].interval
            inside += low <= 1 <= high
        assert 930 <= inside <= 980


def test_an_interval_of_a_quotient_beside_has_the_spread_of_both():
    named = claim(
        of={"algorithm": "A"},
        to={"algorithm": "B"},
        beside=Quotient({"algorithm": "C"}, {"algorithm": "B"}),
    )
    ones = spread("B", 1.0, 1.0, 1.0)
    means = [math.exp(each) for each in (-1, 0, 1)]
    rows = spread("A", *means) + ones + spread("C", *means)
    high = evaluate(named, rows).comparisons[0].interval[1]
    assert math.log(high) == pytest.approx(2.484 * math.sqrt(2), abs=0.001)


def test_a_ratio_of_zero_has_no_interval():
    verdict = evaluate(claim(), thrice(measured("A", 0.0), measured("B", 1.0)))
    assert (verdict.word, value(verdict)) == (UNDECIDED, 0)
    assert verdict.comparisons[0].why == "a ratio of 0 has no interval"


def test_fewer_operations_than_the_claim_says_never_judge():
    few = thrice(measured("A", 0.5, count=9), measured("B", 1.0))
    verdict = evaluate(claim(), few)
    assert verdict.word == UNDECIDED
    assert verdict.comparisons[0].why == "27 operations on a side, and 30 are needed"
    more = thrice(measured("A", 0.5), measured("B", 1.0))
    assert evaluate(claim(), more).word == CONFIRMED
    assert evaluate(claim(operations=301), more).word == UNDECIDED


@pytest.mark.parametrize("made", [row, measured])
def test_an_interval_needs_three_rounds_however_many_operations_they_have(made):
    rows = thrice(made("A", 0.5), made("B", 1.0))
    assert evaluate(claim(), rows).word == CONFIRMED
    verdict = evaluate(claim(), [*rows[:2], *rows[3:5]])
    assert (verdict.word, value(verdict)) == (UNDECIDED, 0.5)
    assert verdict.comparisons[0].why == ("an interval needs 3 rounds; rounds with the figure: 2")


@pytest.mark.parametrize(
    ("share", "operations", "word"),
    [
        (0.0, 100, CONFIRMED),
        (0.01, 100, REFUTED),
        (0.0, 29, UNDECIDED),
        (1.0, 1, REFUTED),
        (1.0, 0, REFUTED),
    ],
)
def test_a_claim_of_no_operation_is_refuted_by_one(share, operations, word):
    told = claim(statistic="failed", of={}, to=None, confirms="none")
    rows = [row(figures={"failed": share, "operations": operations})]
    assert evaluate(told, rows).word == word


@pytest.mark.parametrize("figure", [None, math.nan, math.inf])
def test_what_is_no_number_is_no_figure(figure):
    verdict = evaluate(claim(), [row(mean_s=figure), row("B")])
    assert (verdict.word, value(verdict)) == (NOT_MEASURED, None)
    assert "no figure mean_s of op read, algorithm A" in verdict.comparisons[0].why


def test_without_runs_a_claim_is_not_measured_and_where_there_can_be_none_not_testable():
    told = {"id": "one", "at": ("Fig. 1",), "claim": "A sentence.", "published": "-"}
    assert evaluate(claim(), []).word == NOT_MEASURED
    assert evaluate(Claim(**told, cannot="no such machine"), [row()]).word == NOT_TESTABLE


@pytest.mark.parametrize(("key", "word"), [("confirmed_by", CONFIRMED), ("refuted_by", REFUTED)])
def test_a_test_decides_and_the_page_says_so(key, word):
    told = {"id": "one", "at": ("Fig. 1",), "claim": "A sentence.", "published": "-"}
    by = Claim(**told, why="So it is.", **{key: "tests/a.py::test_b"})
    page = render([ClaimSource("A paper", "P", (by,))], [evaluate(by, [])], [])
    assert f"| `tests/a.py::test_b` | *{word}* (by a test) | So it is. |" in page


def test_a_divisor_of_zero_is_told():
    verdict = evaluate(claim(), [row(), row("B", 0.0)])
    assert verdict.comparisons[0].why == "the figure that it is compared with is 0"


def test_a_run_at_other_parameters_judges_nothing_and_the_page_names_them():
    told = claim(where={"servers": 11, "object_size": 8 << 20, "switches": "+gc"})
    rows = [
        measured(name, 0.5, servers=servers, object_size=size, switches="gc")
        for name in ("A", "B")
        for servers, size in ((5, 8 << 20), (3, 1 << 20))
    ]
    verdict = evaluate(told, rows)
    assert verdict.word == NOT_MEASURED
    assert verdict.comparisons[0].why == "measured elsewhere: servers 5 instead of 11"


def test_sides_that_differ_in_what_the_claim_does_not_name_are_not_compared():
    rows = [measured("A", 0.5, size=1), measured("B", 1.0, size=2)]
    verdict = evaluate(claim(), rows)
    assert verdict.word == NOT_MEASURED
    assert verdict.comparisons[0].why == "runs differ in what the claim does not name: size"
    named = claim(of={"algorithm": "A", "size": 1}, to={"algorithm": "B", "size": 2})
    assert evaluate(named, thrice(*rows)).word == CONFIRMED
    placed = [measured("A", 0.5, topology=name, iteration=n) for n, name in enumerate("xxy")]
    why = evaluate(claim(), [*placed, *spread("B", 1.0, 1.0, 1.0)]).comparisons[0].why
    assert why == "runs differ in what the claim does not name: topology"
    pauses = [measured("A", 0.5, interval_s=1), measured("B", 1.0, interval_s=2)]
    assert evaluate(claim(), pauses).comparisons[0].why.startswith("no two runs")


def test_a_claim_about_a_transcription_is_not_judged_by_todays_which_stands_beside():
    """Other stores have neither switches nor an algorithm as published: these never differ."""
    told = claim(transcription="ares2", of={"algorithm": "ARES_EC"}, to={"algorithm": "REDIS_W"})
    rows = thrice(
        measured("ARES_EC", 0.5, switches="gc", published=""),
        measured("REDIS_W", 1.0, switches="batch", published=""),
    )
    verdict = evaluate(told, rows)
    assert [(each.label, each.word, each.judged) for each in verdict.comparisons] == [
        ("", NOT_MEASURED, True),
        ("today's", CONFIRMED, False),
    ]
    assert verdict.word == NOT_MEASURED
    assert verdict.comparisons[0].why == "no run of the algorithm as published"
    assert measured_text(verdict) == "not measured; today's: **0.5** [0.5, 0.5]."

    def beside(mean_s):
        own = thrice(measured("ARES_EC", mean_s, switches="", published="ares2", count=1000))
        verdict = evaluate(told, [*rows, *own])
        compared, _, counts = measured_text(verdict).partition(". ")
        assert counts == "6 rounds, 300 operations or more on each side"
        return verdict.word, compared

    assert beside(0.5) == (CONFIRMED, "**0.5** [0.5, 0.5] confirmed; today's: **0.5** [0.5, 0.5]")
    words = "**2** [2, 2] refuted; today's: **0.5** [0.5, 0.5] confirmed"
    assert beside(2.0) == (REFUTED, words)


def test_a_claim_that_stands_alone_has_no_comparison_of_todays_ares():
    beside = claim(transcription="ares2", of={"algorithm": "ARES_EC"}, to={"algorithm": "REDIS_W"})
    assert [each.judged for each in beside.variants()] == [True, False]
    alone = msgspec.structs.replace(beside, alone=True)
    assert [each.judged for each in alone.variants()] == [True]
    assert {side["published"] for side in sides_of([alone], "s")} == {"ares2"}


def test_a_claim_about_another_protocol_awaits_a_transcription_and_says_why():
    told = claim(transcription="abd", of={}, each=("ABD", "COARES_EC_F"))
    rows = thrice(measured("ABD", 0.5, published="abd"), measured("B", 1.0))
    verdict = evaluate(told, rows)
    assert (verdict.word, [each.word for each in verdict.judged]) == (
        AWAITING,
        [CONFIRMED, AWAITING],
    )
    page = render([ClaimSource("A paper", "P", (told,))], [verdict], [])
    assert "COARES_EC_F: plain ABD is protocol ABD, and not COARES_EC_F. |" in page


def test_a_claim_that_awaits_a_transcription_names_no_command_and_is_counted_apart(capsys):
    awaits = claim(transcription="abd", of={"algorithm": "COARES_EC"}, to={"algorithm": "A"})
    other = msgspec.structs.replace(awaits, id="two", of={"algorithm": "REDIS"})
    verdicts = [evaluate(awaits, []), evaluate(other, [])]
    page = render([ClaimSource("A paper", "P", (awaits, other))], verdicts, [])
    assert "**2 claims: 1 not measured, 1 awaiting a transcription.**" in page
    assert "lain ABD is protocol ABD, and not COARES_EC. |" in page
    assert page.count("python -m experiments run s --scale points") == 1
    assert check(verdicts) == 1
    assert "not measured: two" in capsys.readouterr().out
    assert check(verdicts[:1]) == 0


def test_runs_are_paired_by_iteration():
    """The ratio is 2 in the first round, and 8 in the second: 4 is the geometric mean."""
    rows = [
        measured("A", 2.0, iteration=1),
        measured("B", 1.0, iteration=1),
        measured("A", 24.0, iteration=2),
        measured("B", 3.0, iteration=2),
        measured("B", 1e6, iteration=3),
    ]
    assert value(evaluate(claim(), rows)) == 4
    apart = [row(iteration=1), row("B", iteration=2)]
    assert evaluate(claim(), apart).comparisons[0].why.startswith("no two runs")


def test_a_quotient_beside_divides():
    rows = [
        measured(name, mean_s, size=size)
        for name, mean_s, size in (("A", 8.0, 2), ("A", 2.0, 1), ("B", 2.0, 2), ("B", 1.0, 1))
    ]
    verdict = evaluate(
        claim(
            of={"algorithm": "A", "size": 2},
            to={"algorithm": "A", "size": 1},
            beside=Quotient({"algorithm": "B", "size": 2}, {"algorithm": "B", "size": 1}),
        ),
        rows,
    )
    assert value(verdict) == 2


@pytest.mark.parametrize(
    ("confirms", "mean_s", "told"),
    [
        ("less", 9, "The opposite was seen."),
        ("more", 1.01, "The difference is smaller."),
        ("about", 9, "A ratio of 0.8 to 1.25 confirms it."),
    ],
)
def test_the_page_says_what_was_seen_instead(confirms, mean_s, told):
    source = ClaimSource("A paper", "P", (claim(confirms=confirms),))
    verdict = evaluate(source.claim[0], thrice(measured("A", mean_s), measured("B", 1.0)))
    page = render([source], [verdict], [])
    assert "| *refuted* | " in page
    assert told in page


def test_switches_are_on_or_off():
    rows = [
        measured("A", 2.0, switches=""),
        measured("A", 1.0, switches="gc+piggyback"),
        measured("A", 7.0, switches="gc"),
    ]
    verdict = evaluate(
        claim(
            where={"algorithm": "A"},
            of={"switches": "+piggyback +gc"},
            to={"switches": "-piggyback -gc"},
        ),
        rows,
    )
    assert value(verdict) == 0.5


def test_a_claim_of_several_is_confirmed_by_all_and_each_has_its_word():
    several = claim(of={}, each=("A", "C", "D"), each_op=("read", "write"))
    rows = thrice(
        *(
            measured(name, mean_s, op=op)
            for name, mean_s in (("A", 0.5), ("C", 0.5), ("B", 1.0))
            for op in ("read", "write")
        )
    )
    verdict = evaluate(several, rows)
    assert verdict.word == NOT_MEASURED
    assert [each.label for each in verdict.comparisons if each.why] == ["read, D", "write, D"]
    assert "read, A: **0.5** [0.5, 0.5] confirmed; " in measured_text(verdict)
    assert "; write, D: not measured. " in measured_text(verdict)
    worse = evaluate(several, [*rows, *thrice(measured("D", 0.99))])
    assert worse.word == REFUTED
    whole = [*rows, *thrice(measured("D", 0.5), measured("D", 0.5, op="write"))]
    assert evaluate(several, whole).word == CONFIRMED


def test_what_stands_beside_is_no_part_of_the_verdict():
    verdict = evaluate(
        claim(of={}, each=("A",), also=("C",)),
        thrice(measured("A", 0.5), measured("B", 1.0), measured("C", 5.0)),
    )
    assert verdict.word == CONFIRMED
    assert "A: **0.5** [0.5, 0.5] confirmed; C: **5** [5, 5]. " in measured_text(verdict)


def test_a_round_is_counted_once_however_many_comparisons_it_is_in():
    rows = [
        msgspec.structs.replace(measured(name, 0.5, op=op), run=name)
        for name in ("A", "B")
        for op in ("read", "write")
    ]
    assert "2 rounds, " in measured_text(evaluate(claim(each_op=("read", "write")), rows))


def rounds_of_claim(id, times):
    """Return a claim of the sources and three rounds at its point, with a time for each side."""
    [told] = [claim for claim in CLAIMS if claim.id == id]
    rows = []
    for variant in told.variants():
        for side in variant.sides:
            parameters = {
                key: value for key, value in side.items() if key not in ("algorithm", "op")
            }
            if "switches" in side:
                parameters["switches"] = (
                    side["switches"].replace("+", "") if side["switches"][0] == "+" else ""
                )
            rows += thrice(
                msgspec.structs.replace(
                    measured(side["algorithm"], times(side), op=side["op"], **parameters),
                    scenario=told.scenario,
                )
            )
    return told, rows


def of_claim(id, times):
    return evaluate(*rounds_of_claim(id, times)).word


@pytest.mark.parametrize("id", ["ares2-table2-whole", "ares2-table2-whole-largest"])
@pytest.mark.parametrize(("with_piggyback", "word"), [(2.0, CONFIRMED), (0.7, REFUTED)])
def test_no_gain_from_the_piggyback_is_refuted_by_a_gain_alone(id, with_piggyback, word):
    def times(side):
        return with_piggyback if side["switches"] == "+piggyback" else 1.0

    assert of_claim(id, times) == word


def test_the_claim_on_cassandras_readers_is_no_claim_that_cassandra_becomes_slower():
    def times(side):
        return 0.5 if side["algorithm"] != "CASSANDRA" and side["readers"] == 250 else 1.0

    assert of_claim("report-cassandra-readers", times) == CONFIRMED
    assert of_claim("report-cassandra-slower", times) == REFUTED


def test_the_page_names_quantity_algorithm_and_point():
    told = claim(
        statistic="busiest_per_s",
        transcription="ares",
        where={"servers": 11},
        of={"algorithm": "ARES_EC", "object_size": 8 << 20},
        to={"algorithm": "ARES_EC", "object_size": 64 << 10},
    )
    assert point(told) == (
        "operations per processor-second of the busiest server (read); ARES of 2022; servers 11; "
        "algorithm ARES_EC, object_size 8 MiB : algorithm ARES_EC, object_size 64 KiB"
    )


def test_the_page_names_two_quantities_of_one_point_without_naming_sides():
    told = claim(where={"servers": 3}, of={"statistic": "fast_s"}, to={"statistic": "slow_s"})
    assert point(told) == (
        "time without a second phase to time with a second phase (read); servers 3"
    )


def measured_directory(top: Path, parameters: Parameters) -> Path:
    """Write two runs as the engine does, and points of load.

    A run is of a fragmented algorithm.
    """
    for protocol, mean_s in (("ARES_EC", 2.0), ("COARES_EC_F", 1.0)):
        directory = top / "piggyback" / f"{protocol}_1"
        about = {
            "scenario": "piggyback",
            "algorithm": protocol,
            "servers": 11,
            "object_size": 1048576,
            "iteration": 1,
        }
        origin = {
            "commit": "abc",
            "machine": "a machine",
            "testbed": "processes",
            "began": "2026-11-22T10:00:00+00:00",
            "versions": {"ares": "1"},
        }
        write(
            directory / "run.json",
            about | {"parameters": msgspec.to_builtins(parameters), "provenance": origin},
        )
        write(directory / "client-1.log", *lines(mean_s, fragmented=protocol.endswith("F")))
        write(
            directory / "events.jsonl",
            {
                "time": "2026-11-22T10:00:05+00:00",
                "event": "crash",
                "server": "s0" if protocol == "ARES_EC" else "s9",
            },
        )
    load = {
        "points": [
            {
                "clients": 4,
                "mode": "closed",
                "per_s": 7.0,
                "kept": None,
                "read": {"count": 9, "p50_s": 1.0, "p99_s": 2.0, "mean_s": 1.5},
            }
        ]
    }
    write(
        top / "throughput" / "ETCD_1" / "run.json",
        {
            "scenario": "throughput",
            "algorithm": "ETCD",
            "iteration": 1,
            "parameters": {"read_share": 0.5},
        },
    )
    write(top / "throughput" / "ETCD_1" / "load.json", load)
    judged = {"scenario": "correctness", "algorithm": "ABD", "iteration": 1}
    write(
        top / "correctness" / "ABD_1" / "run.json",
        judged | {"parameters": {"checked": "linearizable (9 operations)"}},
    )
    write(top / "correctness" / "ABD_1" / "client-1.log", *lines(1.0, fragmented=False))
    write(
        top / "failed" / "correctness" / "ABD_1.1" / "run.json",
        judged | {"parameters": {"checked": "NOT LINEARIZABLE"}},
    )
    imported(top / "results.db", *(path for path in sorted(top.iterdir()) if path.name != "failed"))
    return top


def lines(mean_s: float, fragmented: bool) -> Iterable[dict[str, object]]:
    for count, servers in enumerate((["s0", "s1"], ["s1", "s2"], ["s0", "s2"])):
        told = {
            "asctime": f"2026-11-22T10:00:{10 * count:02}+00:00",
            "status": "SUCCESS",
            "clientID": "1",
            "op_latency": mean_s,
        }
        phases = {
            "read_config_latency_total": 0.25 * mean_s,
            "phase1_latency": 0.5,
            "phase2_latency": 0.1,
            "p2_read_config_time_total": 0.25 * mean_s,
        }
        yield (
            told
            | phases
            | {
                "message": "READ-COMPLETE-DSMM",
                "op": "read",
                "quorum_phase1_servers": servers,
                "decode_latency": 0.125,
            }
        )
        if fragmented:
            yield told | {"message": "READ-COMPLETE", "op": "get", "decode_latency": 0.0}
    acknowledged = {
        "wait": "Yes",
        "majority": 2,
        "op": "write",
        "message": "WRITE-COMPLETE-DSMM",
        "clientID": "1",
        "op_latency": 1.0,
    }
    for count in (1, 2):
        yield {
            "asctime": "2026-11-22T10:01:00+00:00",
            "status": "SUCCESS",
            "wait_acks": count,
        } | acknowledged


def test_rows_are_those_of_the_database_and_of_points_of_load(tmp_path):
    rows, runs = read_rows(measured_directory(tmp_path, Parameters()))
    figures = {(row.algorithm, row.op): row.figures for row in rows}
    assert figures["ARES_EC", "read"]["mean_s"] == 2.0
    assert (
        figures["ARES_EC", "read"]["read_config_s"],
        figures["ARES_EC", "read"]["read_config_share"],
    ) == (1.0, 0.5)
    assert (
        figures["ARES_EC", "read"]["decode_s"],
        figures["ARES_EC", "read"]["dead_in_quorums"],
    ) == (0.125, 0.5)
    [read] = [row for row in rows if (row.algorithm, row.op) == ("ARES_EC", "read")]
    assert read.samples["dead_in_quorums"] == [False, True]  # one read began before the crash
    assert read.figures["operations"] == 3
    assert figures["ARES_EC", "write"]["short_acks"] == 0.5
    assert figures["ARES_EC", "all"]["crash_pause_s"] == 10.0  # the crash is between two reads
    assert "crash_pause_s" not in figures["ABD", "read"]
    assert figures["COARES_EC_F", "read block"]["decode_s"] == 0.125
    assert "decode_s" not in figures["COARES_EC_F", "read"]  # no data, and no decoding
    assert (
        "dead_in_quorums" not in figures["COARES_EC_F", "read block"]
    )  # s9 was in no quorum before its crash either
    assert {op for algorithm, op in figures if algorithm == "COARES_EC_F"} == {
        "all",
        "read",
        "read block",
        "write block",
    }
    assert (
        figures["ETCD", "all"]["per_s"],
        figures["ETCD", "all"]["operations"],
        figures["ETCD", "read"]["p99_s"],
    ) == (7.0, 9, 2.0)
    assert [
        row.figures["wrong"] for row in rows if row.algorithm == "ABD" and row.op == "read"
    ] == [0.0, 1.0]
    [load] = [row for row in rows if (row.algorithm, row.op) == ("ETCD", "all")]
    assert load.parameters["clients"] == 4
    assert (
        next(row for row in rows if row.algorithm == "ARES_EC").parameters["switches"]
        == "piggyback+gc+batch+fast_read+optimised"
    )
    assert {run["scenario"] for run in runs} >= {"piggyback"}


@pytest.mark.parametrize(
    ("ends", "crashes", "until", "pause_s"),
    [
        ([0.0, 1.0, 4.0, 9.0], [2.0], 9.0, 3.0),
        ([0.0, 1.0, 4.0, 9.0], [3.5], 9.0, 5.0),  # 4.0 is within a second after the crash
        ([0.0, 1.0, 4.0, 9.0], [2.5, 8.0], 9.0, 5.0),
        ([0.0, 1.0, 2.0], [1.5, 2.1], 30.0, 28.0),  # no operation succeeds after the last crash
        ([0.0, 1.0, 4.0, 9.0], [9.5], 9.0, None),
    ],
)
def test_an_interruption_is_the_longest_pause_at_a_crash_or_soon_after(
    ends, crashes, until, pause_s
):
    assert interruption_s(ends, crashes, until) == pause_s


def test_time_over_a_link_is_divided_by_the_time_of_a_transfer(tmp_path):
    linked = Parameters(object_size=1048576, rate_mbit=1000.0)
    rows, _ = read_rows(measured_directory(tmp_path, linked))
    [read] = [row for row in rows if (row.algorithm, row.op) == ("ARES_EC", "read")]
    transfer_s = 1048576 * 8 / 1e9
    assert read.samples["over_transfer"] == pytest.approx([2.0 / transfer_s] * 3)


def test_the_page_is_the_same_bytes_for_the_same_results(tmp_path, capsys):
    results = measured_directory(
        tmp_path / "results", next(scenarios()["piggyback"].rounds("quick")).parameters
    )
    pages = []
    for name in ("one.md", "two.md"):
        assert main(["verdicts", "--results", str(results), "--out", str(tmp_path / name)]) == 0
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]
    text = pages[0].decode()
    assert str(tmp_path) not in text
    for told in (
        "abc",
        "a machine",
        "2026-11-22",
        "| piggyback | 2 | 2026-11-22 | abc |",
        "`python -m experiments run topology --scale points`",
    ):
        assert told in text
    assert all(at in text for at in IN_THE_SOURCES["ARES II"])
    assert main(["verdicts", "--results", str(results), "--check"]) == 1
    assert f"{NOT_MEASURED}: report-redis-throughput" in capsys.readouterr().out


def test_a_row_says_why_a_night_has_no_room_for_its_rounds():
    told = next(each for each in CLAIMS if each.id == "ares2-table2-coares-large")
    minutes = too_long(scenarios()[told.scenario], told)
    assert len(minutes) == 2 * POINT_ROUNDS
    assert min(minutes) > LONGEST_POINT_MIN
    source = ClaimSource("A paper", "P", (told,))
    page = render([source], [evaluate(told, [])], [], None, {told.id: minutes})
    assert "--scale points --longest " in page
    assert "A night has no room: 6 rounds of up to " in page
    quick = next(each for each in CLAIMS if each.id == "ares2-steps-abd")
    assert too_long(scenarios()[quick.scenario], quick) == []


def test_a_check_passes_where_only_untestable_claims_lack_data(capsys):
    told = Claim("two", ("Fig. 1",), "A sentence.", "-", cannot="no such machine")
    whole = evaluate(claim(), thrice(measured("A", 0.5), measured("B", 1.0)))
    assert check([whole, evaluate(told, [])]) == 0
    assert "2 claims, 0 lack data" in capsys.readouterr().out
    assert check([whole, evaluate(claim(), [])]) == 1


def test_a_page_without_results_says_so_and_judges_nothing(tmp_path):
    page = tmp_path / "page.md"
    assert main(["verdicts", "--no-results", "--out", str(page)]) == 0
    text = page.read_text()
    assert "No run is behind this page yet" in text
    assert all(f"| *{word}* | " not in text for word in (CONFIRMED, REFUTED, UNDECIDED))


def rows_written_by_hand(page: str) -> list[str]:
    """Return the claims with rows that differ from the rows of the code.

    A row with figures has the code's cells about the claim, digests of the claim and the cells, and
    words that follow from the intervals. Any other row is the row without results.
    """
    known, kept = scenarios(), read_earlier(page).claims
    rows = [row for heads, row in page_rows(page) if heads == CLAIM_COLUMNS]
    found = [] if len(rows) == len(CLAIMS) else ["the number of rows"]
    for told, row in zip(CLAIMS, rows, strict=False):
        long = too_long(known[told.scenario], told) if told.scenario in known else ()
        blank = reproduction.line_of(evaluate(told, []), long)
        if row != blank and not (
            kept.get(claim_digest(told)) == row
            and without_digests(row)[:OURS_COLUMN] == blank[:OURS_COLUMN]
            and follows(told, row)
        ):
            found.append(told.id)
    return found


def follows(told: Claim, row: tuple[str, ...]) -> bool:
    """Return whether the words of the row follow from the intervals."""
    interval = r"\[([^],]+), ([^],]+)\] "
    judged = [
        re.search(rf"{interval}({CONFIRMED}|{REFUTED}|{UNDECIDED})", part)
        for part in row[OURS_COLUMN].split("; ")
        if not part.startswith(TODAYS)
    ]
    wrong = [
        each for each in judged if each and told.word(float(each[1]), float(each[2])) != each[3]
    ]
    words = {each[3] for each in judged if each}
    verdict = row[VERDICT_COLUMN].strip("*")
    return (
        not wrong
        and (REFUTED not in words or verdict == REFUTED)
        and (verdict not in (CONFIRMED, REFUTED) or verdict in words or not words)
    )


def test_no_verdict_of_the_committed_page_was_written_by_hand():
    assert rows_written_by_hand((ROOT / "docs/reproduction.md").read_text()) == []


@pytest.mark.parametrize(
    ("written", "by_hand"),
    [
        ("| *not measured* |", "| *confirmed* |"),
        ("| – | *not measured* |", "| **0.5** [0.4, 0.6] confirmed | *confirmed* |"),
        ("| *refuted* |", "| *confirmed* |"),
        ("] refuted", "] confirmed"),
        ("ARES of 2022; algorithm", "ARES II; algorithm"),
        ("| *not testable* |", "| *confirmed* |"),
    ],
)
def test_a_row_written_by_hand_is_noticed(written, by_hand):
    page = (ROOT / "docs/reproduction.md").read_text()
    assert written in page
    assert len(rows_written_by_hand(page.replace(written, by_hand, 1))) == 1


def test_a_word_beside_its_interval_is_noticed_though_the_digests_fit():
    told = claim()
    verdict = evaluate(told, thrice(measured("A", 0.5), measured("B", 1.0)))
    row = reproduction.line_of(verdict, ())
    assert follows(told, row)
    forged = (*row[:OURS_COLUMN], row[OURS_COLUMN], f"*{REFUTED}*", row[-1])
    assert not follows(told, forged)
    assert not follows(msgspec.structs.replace(told, bound=0.4), row)


def test_the_name_of_the_rule_changes_with_the_rule():
    """The outcomes of the rule; with different outcomes, give the rule another name."""
    ratios = itertools.product((0.2, 0.85, 1.0), (0.5, 1.4), (3, 5))
    outcomes = []
    for ratio, last, rounds in ratios:
        first = spread("A", *[ratio] * (rounds - 1), ratio * last)
        found = evaluate(claim(), [*first, *spread("B", *[1.0] * rounds)])
        outcomes.append((found.word, measured_text(found)))
    digest = hashlib.sha256(repr(outcomes).encode()).hexdigest()[:12]
    assert {JUDGING_RULE: digest} == {
        "Student's t, 97.5 %, over the logarithms of rounds paired by iteration": "b81ab2dfa451"
    }


def test_the_committed_page_has_todays_claims():
    page = (ROOT / "docs/reproduction.md").read_text()
    assert [claim.id for claim in CLAIMS if f"| {claim.claim} | " not in page] == []


def test_the_commands_of_the_page_know_their_options():
    known = {}
    for command in sorted({reproduction.command(claim) for claim in CLAIMS if claim.scenario}):
        module, *words = command.removeprefix("python -m ").split()
        shown = [*words[:1], "--help"] if words[0] == "run" else ["--help"]
        known[module] = (
            known.get(module)
            or subprocess.run(
                python("-m", module, *shown), capture_output=True, text=True, check=True
            ).stdout
        )
        assert [word for word in words if word[:2] == "--" and word not in known[module]] == []


def test_no_results_and_no_place_for_the_page_are_refused(tmp_path, capsys):
    assert main(["verdicts", "--results", str(tmp_path)]) == 1
    assert "there are no results" in capsys.readouterr().err
    results = measured_directory(tmp_path / "results", Parameters())
    assert (
        main(
            ["verdicts", "--results", str(results), "--out", str(tmp_path / "nowhere" / "page.md")]
        )
        == 1
    )
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('name = "n"\nshort = "s"\nclaim = 3', "Expected"),
        ("not toml", "a.toml"),
        (
            'name="n"\n'
            'short="s"\n'
            "[[claim]]\n"
            'id="a"\n'
            'at=["Fig. 1"]\n'
            'claim="c"\n'
            'published="p"\n'
            'scenario="piggyback"\n'
            "of={}\n"
            "to={}",
            "needs a scenario and an operation",
        ),
        (
            'name="n"\nshort="s"\n[[claim]]\nid="a"\nat=["Fig. 1"]\nclaim="c"\npublished="p"',
            "either measured, or decided by a test",
        ),
        (
            'name="n"\nshort="s"\n[[claim]]\nid="a"\nat=[]\nclaim="c"\npublished="p"\ncannot="x"',
            "needs the figures",
        ),
        (
            'name="n"\n'
            'short="s"\n'
            "[[claim]]\n"
            'id="a"\n'
            'at=["Fig. 1"]\n'
            'claim="c"\n'
            'published="p"\n'
            'confirmed_by="tests/a.py::test_b"',
            "needs a reason",
        ),
        (
            'name="n"\nshort="s"\n[[claim]]\nid="a"\nat=["Fig. 1"]\nclaim="c"\npublished="p"\n'
            'scenario="s"\nop="read"\nof={}\nto={}\nconfirms="less"\nnear=0.5',
            "names the number",
        ),
        (
            'name="n"\nshort="s"\n'
            + 2 * '[[claim]]\nid="a"\nat=["Fig. 1"]\nclaim="c"\npublished="p"\ncannot="x"\n',
            "two claims are called a",
        ),
    ],
)
def test_a_file_that_is_no_claims_is_refused(tmp_path, text, why):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(BadInput, match=why):
        sources(tmp_path)


def test_figures_have_three_digits():
    assert [number(each) for each in (0.12345, 1.0, 12.345, 1234.5, None)] == [
        "0.123",
        "1",
        "12.3",
        "1234",
        "–",
    ]
