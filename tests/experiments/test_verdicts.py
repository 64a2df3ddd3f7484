"""Verdicts: claims as files, the evaluator on invented rows, and the page."""

import itertools
import math
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.results.summary import SUMMARY_COLUMNS
from experiments.__main__ import main
from experiments.logs import log_load_plan
from experiments.rounds.scenario import ROUND_PROTOCOLS, SCALES, Parameters, scenarios
from experiments.sites import fog_plan
from experiments.sites.store_table import SITE_STORES
from experiments.verdicts.claim import (
    CANNOT,
    CONFIRMED,
    NOT_CONFIRMED,
    Claim,
    ClaimSource,
    Quotient,
    sources,
)
from experiments.verdicts.evaluate import EXTREMES, FigureRow, evaluate
from experiments.verdicts.reproduction import FEW_MARK, NOT_YET, _ours, number, render
from experiments.verdicts.rows import parameters_of, read_rows
from experiments.verdicts.verdict_commands import check, scale_of
from tests.results.operation_logs import imported, write

ROOT = Path(__file__).parents[2]
CLAIMS = [claim for source in sources() for claim in source.claim]


def numbered(word: str, last: int) -> set[str]:
    return {f"{word} {number}" for number in range(1, last + 1)}


IN_THE_SOURCES = {
    "Report": numbered("Fig.", 34) | {"Table of KPIs", "Table of variables", "Table of topologies"},
    "ARES II": numbered("Fig.", 16)
    | numbered("Table", 3)
    | {"Theorem 3", "Theorem 4", "Theorem 16"}
    | {"Section 4.3.2", *(f"Section 5.{n}" for n in (1, 2, 3))},
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
    | {"Section 5.1", "Section 5.2", "Section 5.4", "Section 5.5"},
    "Fog study": numbered("Fig.", 7) | {"Table I", "Table II", "Table III"},
}
"""Figures and tables by the numbers of their sources.

The register report has no numbers, so the entries say what the figures show.
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
        test, _, name = claim.shown_by.partition("::")
        assert not test or f"def {name}(" in (ROOT / test).read_text()
        return
    others = {log_load_plan.LOG_STUDY: log_load_plan.LOG_PROTOCOLS, fog_plan.FOG_STUDY: SITE_STORES}
    protocols = (
        others[claim.scenario]
        if claim.scenario in others
        else scenarios()[claim.scenario].protocols
    )
    quotients = [
        Quotient(claim.where | claim.of, claim.to),
        *([claim.beside] if claim.beside else []),
    ]
    filters = [each for quotient in quotients for each in (quotient.of, quotient.to) if each] + [
        *claim.each_where,
        *claim.each_to,
    ]
    algorithms = {each["algorithm"] for each in filters if "algorithm" in each} | {
        *claim.each,
        *(name for pair in claim.each_pair for name in pair),
    }
    assert (
        algorithms
        <= set(protocols)
        <= {*ROUND_PROTOCOLS, *log_load_plan.LOG_PROTOCOLS, *SITE_STORES}
    )
    known = {
        *Parameters.__struct_fields__,
        *log_load_plan.LogLoadRun("CR").parameters(),
        *(name for each in fog_plan.tests() for name in each),
        "algorithm",
        "op",
        "statistic",
        "k",
        "m",
        "topology",
        "clients",
        "mode",
    }
    assert {key for each in filters for key in each} <= known
    words = [
        value
        for each in filters
        for key, value in each.items()
        if isinstance(value, str) and key in NUMBERS
    ]
    assert set(words) <= set(EXTREMES)


NUMBERS = {
    name
    for name, default in msgspec.to_builtins(Parameters()).items()
    if isinstance(default, int | float)
} | {"k", "m"}


STATISTICS = {claim.statistic for claim in CLAIMS} | {"p50_s", "p99_s", "operations"}
STATISTICS |= {
    side["statistic"]
    for claim in CLAIMS
    for side in (claim.of, claim.to)
    if side and "statistic" in side
}


def rows_of(scale):
    """Return rows of each operation of every round of the scale, and four points of each load."""
    for scenario in scenarios().values():
        for each in scenario.rounds(scale):
            settings = msgspec.to_builtins(each.parameters) | {"load": None}
            told = parameters_of(
                {"parameters": settings} | dict.fromkeys(SUMMARY_COLUMNS) | {"k": each.parameters.k}
            )
            points = (
                [{}]
                if each.parameters.load is None
                else [{"clients": 2**number, "mode": "closed"} for number in range(4)]
            )
            for op, point in itertools.product(("read", "write", "recon", "all"), points):
                yield FigureRow(
                    each.scenario,
                    each.protocol,
                    op,
                    told | point,
                    dict.fromkeys(STATISTICS, 1.0),
                    each.iteration,
                    each.name,
                )
    for each in log_load_plan.runs(scale):
        for op, window in itertools.product(("read", "write", "all"), each.windows):
            told = each.parameters() | {"clients": window, "mode": "closed"}
            yield FigureRow(
                log_load_plan.LOG_STUDY,
                each.protocol,
                op,
                told,
                dict.fromkeys(STATISTICS, 1.0),
                1,
                each.name,
            )
    for store, told in itertools.product(SITE_STORES, fog_plan.tests()):
        yield FigureRow(
            fog_plan.FOG_STUDY,
            store,
            "all",
            told,
            dict.fromkeys(STATISTICS, 1.0),
            1,
            f"{store} {told}",
        )


@pytest.mark.parametrize("scale", SCALES)
def test_the_rounds_of_a_scale_measure_every_claim_that_says_so(scale):
    """Otherwise `--check` after a whole run would never pass."""
    rows = list(rows_of(scale))
    measured = [
        claim for claim in CLAIMS if claim.of is not None and claim.scale in ("quick", scale)
    ]
    assert [claim.id for claim in measured if not evaluate(claim, rows).word] == []


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


@pytest.mark.parametrize(
    ("confirms", "bound", "mean_s", "word"),
    [
        ("less", None, 0.5, CONFIRMED),
        ("less", None, 0.95, NOT_CONFIRMED),
        ("less", 0.5, 0.5, CONFIRMED),
        ("less", 0.5, 0.500001, NOT_CONFIRMED),
        ("more", None, 1.1, CONFIRMED),
        ("more", None, 1.05, NOT_CONFIRMED),
        ("about", 1.25, 0.8, CONFIRMED),
        ("about", 1.25, 1.25, CONFIRMED),
        ("about", 1.25, 1.26, NOT_CONFIRMED),
        ("about", 1.25, 0.79, NOT_CONFIRMED),
    ],
)
def test_a_ratio_confirms_or_not_and_a_tie_with_the_limit_does(confirms, bound, mean_s, word):
    verdict = evaluate(claim(confirms=confirms, bound=bound), [row(mean_s=mean_s), row("B", 1.0)])
    assert (verdict.word, value(verdict)) == (word, round(mean_s, 6))


@pytest.mark.parametrize("figure", [None, math.nan, math.inf])
def test_what_is_no_number_is_no_figure(figure):
    verdict = evaluate(claim(), [row(mean_s=figure), row("B")])
    assert (verdict.word, value(verdict)) == ("", None)
    assert "no figure mean_s of op read, algorithm A" in verdict.comparisons[0].missing


def test_without_runs_a_claim_is_not_measured_and_where_there_can_be_none_it_cannot_be():
    assert evaluate(claim(cannot="no such machine"), []).word == ""
    assert evaluate(claim(cannot="no such machine"), [row()]).word == CANNOT
    assert evaluate(claim(cannot="no such machine"), [row(), row("B", 4.0)]).word == CONFIRMED
    assert (
        evaluate(
            Claim("one", ("Fig. 1",), "A sentence.", "-", cannot="no such machine"), [row()]
        ).word
        == CANNOT
    )


def test_a_divisor_of_zero_is_told():
    verdict = evaluate(claim(), [row(), row("B", 0.0)])
    assert verdict.comparisons[0].missing == "the figure that it is compared with is 0"


def test_one_operation_is_few_and_is_marked():
    verdict = evaluate(claim(), [row(mean_s=0.5, operations=1), row("B")])
    assert (verdict.word, verdict.few, verdict.measured[0].operations) == (CONFIRMED, True, 1)
    page = render([], [verdict], [], "quick")
    assert "Claims that rest on few operations" in page
    assert "Fig. 1 (1; one)" in page
    assert not evaluate(claim(), [row(), row("B")]).few


def test_runs_are_paired_by_iteration_and_by_what_varies():
    """The ratio is 2 for 1 reader, and 8 for 9 readers: 4 is their geometric mean.

    Rows without a counterpart do not count.
    """
    rows = [
        row(mean_s=2, readers=1),
        row("B", 1, readers=1),
        row(mean_s=24, readers=9),
        row("B", 3, readers=9),
        row("B", 1e6, readers=99),
    ]
    assert value(evaluate(claim(), rows)) == 4
    assert value(evaluate(claim(), [*rows, row(mean_s=1e9, iteration=2, readers=1)])) == 4
    assert (
        evaluate(claim(), [row(iteration=1), row("B", iteration=2)])
        .comparisons[0]
        .missing.startswith("no two runs")
    )
    assert (
        value(
            evaluate(
                claim(),
                [row(mean_s=2, readers=1), row("B", 1, readers=1), row(mean_s=24, readers=9)],
            )
        )
        == 2
    ), "9 varies on one side only"


def test_extremes_are_of_what_both_sides_have():
    rows = [
        row(mean_s=2, size=1),
        row("B", 1, size=1),
        row(mean_s=6, size=4),
        row("B", 2, size=4),
        row(mean_s=99, size=8),
    ]
    verdict = evaluate(claim(where={"size": "largest"}), rows)
    assert (value(verdict), verdict.comparisons[0].at) == (3, "size 4")
    grown = evaluate(
        claim(where={"algorithm": "A"}, of={"size": "largest"}, to={"size": "smallest"}), rows
    )
    assert (value(grown), grown.comparisons[0].at) == (49.5, "size 8 : 1")
    last = evaluate(
        claim(where={"algorithm": "A"}, of={"size": "largest"}, to={"size": "second largest"}), rows
    )
    assert value(last) == 16.5
    alone = evaluate(
        claim(where={"algorithm": "B"}, of={"size": "largest"}, to={"size": "smallest"}), rows[1:2]
    )
    assert alone.comparisons[0].missing == "only one value of size was measured"
    assert (
        "no run says its nothing"
        in evaluate(claim(where={"nothing": "largest"}), rows).comparisons[0].missing
    )


def test_a_quotient_beside_divides():
    rows = [row(mean_s=8, size=2), row(mean_s=2, size=1), row("B", 2, size=2), row("B", 1, size=1)]
    of, to = {"size": "largest"}, {"size": "smallest"}
    verdict = evaluate(
        claim(
            where={},
            of={"algorithm": "A"} | of,
            to={"algorithm": "A"} | to,
            beside=Quotient({"algorithm": "B"} | of, {"algorithm": "B"} | to),
        ),
        rows,
    )
    assert value(verdict) == 2


@pytest.mark.parametrize(
    ("confirms", "mean_s", "told"),
    [
        ("about", 0.1, "Ours lies below."),
        ("about", 9, "Ours lies above."),
        ("less", 9, "The opposite was seen."),
        ("more", 1.01, "No difference that this machine can tell."),
    ],
)
def test_the_page_says_what_was_seen_instead(confirms, mean_s, told):
    source = ClaimSource("A paper", "P", (claim(confirms=confirms),))
    verdict = evaluate(source.claim[0], [row(mean_s=mean_s), row("B")])
    wanted = {"about": "0.8 to 1.25", "less": "0.9 or less"}.get(confirms, "1.1 or more")
    page = render([source], [verdict], [], "quick")
    assert f"*not confirmed* | A ratio of {wanted}" in page
    assert told in page


def test_switches_are_on_or_off():
    rows = [
        row(mean_s=2, switches=""),
        row(mean_s=1, switches="gc+piggyback"),
        row(mean_s=7, switches="gc"),
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


def test_a_claim_of_several_holds_if_it_holds_of_each_that_was_measured():
    several = claim(of={}, each=("A", "C", "D"), each_op=("read", "write"))
    rows = [
        row(name, mean_s, op)
        for name, mean_s in (("A", 0.5), ("C", 0.5), ("B", 1.0))
        for op in ("read", "write")
    ]
    verdict = evaluate(several, rows)
    assert (verdict.word, [each.label for each in verdict.measured]) == (
        CONFIRMED,
        ["read, A", "read, C", "write, A", "write, C"],
    )
    assert [each.label for each in verdict.comparisons if each.missing] == ["read, D", "write, D"]
    worse = evaluate(several, [*rows, row("D", 0.99)])
    assert worse.word == NOT_CONFIRMED
    page = render([], [worse], [], "quick")
    assert "not confirmed" in page


def test_a_round_is_counted_once_however_many_comparisons_it_is_in():
    rows = [
        msgspec.structs.replace(row(name, 0.5, op), run=name)
        for name in ("A", "B")
        for op in ("read", "write")
    ]
    assert "2 rounds, " in _ours(evaluate(claim(each_op=("read", "write")), rows))


def test_a_figure_without_a_baseline_is_taken_itself():
    verdict = evaluate(
        claim(statistic="failed", of={}, to=None, bound=0.0),
        [row(figures={"failed": 0.0}), row("B", figures={"failed": 0.0})],
    )
    assert (verdict.word, value(verdict)) == (CONFIRMED, 0)
    assert (
        evaluate(
            claim(statistic="failed", of={}, to=None, bound=0.0), [row(figures={"failed": 0.01})]
        ).word
        == NOT_CONFIRMED
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
            yield told | {"message": "READ-COMPLETE", "op": "get"}
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
    assert figures["ARES_EC", "write"]["short_acks"] == 0.5
    assert (
        "dead_in_quorums" not in figures["COARES_EC_F", "read block"]
    )  # s9 was in no quorum before its crash either
    assert {op for algorithm, op in figures if algorithm == "COARES_EC_F"} == {
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
    assert next(row for row in rows if row.op == "all").parameters["clients"] == 4
    assert (
        next(row for row in rows if row.algorithm == "ARES_EC").parameters["switches"]
        == "piggyback+gc+batch+fast_read+optimised"
    )
    assert {run["scenario"] for run in runs} >= {"piggyback"}


@pytest.mark.parametrize("scale", SCALES)
def test_the_scale_is_that_of_the_rounds(scale):
    parameters = next(scenarios()["piggyback"].rounds(scale)).parameters
    run = {"scenario": "piggyback", "parameters": msgspec.to_builtins(parameters)}
    assert scale_of([run]) == scale
    assert scale_of([run | {"parameters": {}}]) == "of rounds that no scenario has now"


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
        "| scale | quick |",
        "abc",
        "a machine",
        "2026-11-22",
        "| rounds | 4 |",
        "`python -m experiments run node_crashes`",
    ):
        assert told in text
    assert all(at in text for at in IN_THE_SOURCES["ARES II"])
    assert FEW_MARK in text
    assert main(["verdicts", "--results", str(results), "--check"]) == 1
    assert f"{NOT_YET}: report-crash-interruption" in capsys.readouterr().out


def test_a_check_passes_where_only_the_other_scale_lacks_data(capsys):
    small, large = claim(), claim(scale="paper")
    measured = evaluate(small, [row(mean_s=0.5), row("B")])
    assert check([measured, evaluate(large, [])], "quick") == 0
    assert "1 more need --scale paper" in capsys.readouterr().out
    assert check([measured, evaluate(large, [])], "paper") == 1
    assert check([evaluate(small, [])], "quick") == 1


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
            "either measured, or shown",
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
            'verdict="confirmed"',
            "its evidence",
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
