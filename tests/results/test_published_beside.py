"""Published runs and figures beside ours on a page: names, matches, and the table of ratios."""

from pathlib import Path

import pytest

from ares.results.published_beside import PUBLISHED_ALGORITHMS, PUBLISHED_SCENARIOS, rename_lines
from ares.results.published_figures import published
from experiments.__main__ import main
from experiments.rounds.scenario import ROUND_PROTOCOLS, scenarios

from . import browser
from .runs_on_disk import line, write_run
from .test_page import data_of, imported, page_of
from .test_page_in_browser import table
from .test_published import SAME, SIZES, write
from .test_published import line as published_line


def both_sides(top: Path) -> Path:
    """Write runs of ABD and the erasure code at two sizes, published and ours.

    The published runs have five clients, ours two; only the published runs have moves.
    """
    for algorithm, folder, begin in (
        ("ABD", "filesizeBig_slow_ABD", "11-5-5"),
        ("ARES_EC", "filesizeBig_slow_ARES_EC", "11-5-5-0"),
    ):
        for size, times in ((2**16, 1), (2**20, 3)):
            seconds = times * (2 if algorithm == "ARES_EC" else 1)
            run = f"{folder}_{size}_{begin}_1"
            write(
                top / "raw_data" / SIZES / folder / f"logs_{run}" / f"client-6-{run}.log",
                published_line("read", 1, seconds),
            )
            here = {"writers": 2, "readers": 2, "parameters": {"switches": ["gc", "batch"]}}
            write_run(
                top / "own" / f"{algorithm}{size}",
                [line("read", "r1", 0, 0.001 * times * (8 if algorithm == "ARES_EC" else 1))],
                scenario="object_size",
                algorithm=algorithm,
                servers=11,
                object_size=size,
                iteration=1,
                **here,
            )
    run = "scalabilityreconfixedlocalRAFT_slow_ARES_EC_11-5-15-3_2"
    write(
        top
        / "raw_data"
        / SAME
        / "Local Raft"
        / "scalabilityreconfixed_slow_ARES_EC"
        / f"logs_{run}"
        / f"client-6-{run}.log",
        published_line("read", 1),
    )
    return top


def test_their_scenarios_have_our_names_where_we_have_them(tmp_path):
    data = data_of(page_of(imported(tmp_path, both_sides(tmp_path / "runs"))))
    assert data["scenarios"] == ["object_size", "recon_same_dap/local_raft"]
    assert {
        (run["algorithm"], run["published"])
        for run in data["runs"]
        if run["scenario"] == "object_size"
    } == {(algorithm, published) for algorithm in ("ABD", "ARES_EC") for published in (True, False)}
    write_run(
        tmp_path / "more",
        [line("read", "r1", 0, 1)],
        scenario="reconfiguration",
        algorithm="ARES_EC",
        parameters={"onto": "all"},
    )
    data = data_of(page_of(imported(tmp_path, tmp_path / "more")))
    assert data["scenarios"] == ["object_size", "reconfiguration"]
    [theirs] = [
        run for run in data["runs"] if run["published"] and run["scenario"] == "reconfiguration"
    ]
    assert (theirs["parameters"]["onto"], theirs["parameters"]["members of consensus"]) == (
        "all",
        "Emulab",
    )


def test_their_runs_stand_beside_the_algorithm_as_published_and_not_beside_todays(tmp_path):
    both_sides(tmp_path / "runs")
    printed = ("ARES_EC (ARES of 2022)", "ARES_EC (ARES II as printed)")
    for algorithm in printed:
        write_run(
            tmp_path / "runs" / algorithm,
            [line("read", "r1", 0, 1)],
            scenario="object_size",
            algorithm=algorithm,
            parameters={"published": "ares"},
        )
    data = data_of(page_of(imported(tmp_path, tmp_path / "runs")))
    own = [run for run in data["runs"] if run["scenario"] == "object_size"]
    theirs = {run["algorithm"] for run in own if run["published"]}
    assert theirs == {"ABD", "ARES_EC (ARES II as printed)"}
    assert {run["algorithm"] for run in own if not run["published"]} == {"ABD", "ARES_EC", *printed}
    assert "published" not in data["parameters"]
    lines = rename_lines(published(), own)
    assert {each.algorithm for each in lines if each.scenario == "object_size"} >= theirs
    assert "ARES_EC" not in {each.algorithm for each in lines if each.scenario == "object_size"}


def test_every_counterpart_is_one_of_our_scenarios_and_protocols():
    assert {other.scenario for other in PUBLISHED_SCENARIOS.values()} <= scenarios().keys()
    assert set(PUBLISHED_ALGORITHMS.values()) <= set(ROUND_PROTOCOLS)
    assert {line.scenario for line in published()} <= PUBLISHED_SCENARIOS.keys()


def test_a_report_imports_the_published_logs_beside_the_rounds(tmp_path, capfd):
    both_sides(tmp_path)
    (tmp_path / "results").mkdir()
    rounds = (tmp_path / "own").rename(tmp_path / "results" / "object_size")
    for round in rounds.iterdir():
        (round / "outcome.json").write_text("{}")
    write_run(
        rounds / "not_ended", [line("read", "r1", 0, 1)], scenario="object_size", algorithm="ABD"
    )
    assert (
        main(
            [
                "report",
                "--results",
                str(tmp_path / "results"),
                "--published",
                str(tmp_path / "nowhere"),
            ]
        )
        == 2
    )
    assert "nowhere" in capfd.readouterr().err
    assert (
        main(
            [
                "report",
                "--results",
                str(tmp_path / "results"),
                "--published",
                str(tmp_path / "raw_data"),
            ]
        )
        == 0
    )
    assert "report.html" in capfd.readouterr().out
    data = data_of((tmp_path / "results" / "report.html").read_text())
    assert [sum(run["published"] is side for run in data["runs"]) for side in (True, False)] == [
        5,
        4,
    ]


def run(scenario, switches="none", algorithm="ARES_EC"):
    ours = {"scenario": scenario, "algorithm": algorithm, "published": False}
    return ours | {"parameters": {"switches": switches}}


def test_printed_figures_are_those_of_our_switches():
    runs = [
        run("piggyback", "optimised+gc+batch"),
        run("piggyback", "piggyback+optimised+gc+batch"),
        run("chain", "none"),
        run("chain", "piggyback+gc"),
    ]
    lines = rename_lines(published(), runs)
    piggyback = {
        (line.algorithm, line.at["switches"]): line.points[0][1]
        for line in lines
        if line.scenario == "piggyback"
    }
    assert piggyback["COARES_EC_F", "optimised+gc+batch"] == 0.149
    assert piggyback["COARES_EC_F", "piggyback+optimised+gc+batch"] == 0.142
    chain = {
        (line.algorithm, line.at["switches"]): line.points[0][1]
        for line in lines
        if line.scenario == "chain"
    }
    assert (chain["ARES_MIXED", "none"], chain["ARES_MIXED", "piggyback+gc"]) == (0.159, 0.119)
    assert len(chain) == 6  # ours never had the piggyback alone
    assert {line.at["pending"] for line in lines if line.scenario == "garbage_collection"} == {11}
    assert rename_lines(published(), []) == published()


def test_printed_figures_of_pending_configurations_stand_beside_runs_with_as_many():
    one, many = run("chain"), run("chain")
    many["parameters"]["pending"] = 11
    renamed = rename_lines(published(), [one, many])
    lines = [line for line in renamed if line.algorithm == "COARES_MIXED"]
    assert {(line.at["pending"], line.points[0][1]) for line in lines} == {(11, 0.162), (0, 0.163)}
    few = rename_lines(published(), [one, {**many, "parameters": {"pending": 3}}])
    assert {line.at["pending"] for line in few if line.scenario == "garbage_collection"} == {11}


def test_printed_figures_have_the_switches_of_the_algorithm_beside_them():
    printed = "ARES_EC (ARES II as printed)"
    runs = [
        run("piggyback", "none", "ARES_EC (ARES of 2022)"),
        run("piggyback", "optimised+gc+batch", printed),
        run("piggyback", "optimised+gc+batch+piggyback", printed),
    ]
    lines = rename_lines(published(), runs)
    assert {line.at["switches"] for line in lines if line.algorithm == printed} == {
        "optimised+gc+batch",
        "optimised+gc+batch+piggyback",
    }


@pytest.mark.skipif(browser.program() is None, reason=browser.MISSING)
def test_the_table_has_theirs_ours_and_the_ratio_of_the_ratios(tmp_path):
    page = tmp_path / "report.html"
    page.write_text(page_of(imported(tmp_path, both_sides(tmp_path / "runs"))))
    with browser.tab(tmp_path / "chromium") as tab:
        tab.open(page, "#scenario=object_size&op=read")
        assert table(tab, "beside-table") == [
            ["64 KiB", "ABD", "1 s", "1 ms", "1", "1", "–"],
            ["64 KiB", "ARES_EC", "2 s", "8 ms", "2", "8", "4"],
            ["1 MiB", "ABD", "3 s", "3 ms", "1", "1", "–"],
            ["1 MiB", "ARES_EC", "6 s", "24 ms", "2", "8", "4"],
        ]
        told = tab.text("#beside-differences")
        assert "writers (W) 2 (published: 5)" in told
        assert "readers (R) 2 (published: 5)" in told
        assert {"ABD", "ABD, published runs", "ABD, published figures"} <= set(
            tab.value(
                "[...document.querySelectorAll('#legend button')].map((one) => one.textContent)"
            )
        )
        tab.select("choose-base", "the first point of each algorithm")
        assert [row[4:] for row in table(tab, "beside-table")] == [
            ["1", "1", "–"],
            ["1", "1", "–"],
            ["3", "3", "1"],
            ["3", "3", "1"],
        ]
        tab.open(page, "#scenario=recon_same_dap/local_raft")
        assert tab.value("document.getElementById('beside').hidden")
        assert tab.complaints == []
