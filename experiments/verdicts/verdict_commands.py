"""The command `verdicts` of `python -m experiments`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.rounds.round_commands import RESULTS
from experiments.verdicts.claim import AWAITING, NOT_MEASURED, sources
from experiments.verdicts.evaluate import Verdict, evaluate
from experiments.verdicts.report_page import write_whole
from experiments.verdicts.reproduction import command, render
from experiments.verdicts.rows import read_rows

REPRODUCTION_PAGE = Path("docs/reproduction.md")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the program's commands."""
    judging = commands.add_parser(
        "verdicts",
        help="the papers' claims beside the results: writes docs/reproduction.md",
        epilog="Example: python -m experiments verdicts --check",
    )
    judging.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help=f"where the rounds are (default: {RESULTS})",
    )
    judging.add_argument(
        "--out",
        type=Path,
        default=REPRODUCTION_PAGE,
        metavar="FILE",
        help=f"the page, written wholly or not at all (default: {REPRODUCTION_PAGE})",
    )
    judging.add_argument(
        "--check",
        action="store_true",
        help="write nothing; say which claims lack data, and end with 1 if there are any",
    )
    judging.add_argument(
        "--no-results",
        action="store_true",
        help="make the page without results: all measured claims are not measured",
    )
    judging.set_defaults(run=judge)


def judge(arguments: argparse.Namespace) -> int:
    """Write the page, or name the claims without data."""
    rows, runs = ([], []) if arguments.no_results else read_rows(arguments.results)
    told = sources()
    verdicts = [evaluate(claim, rows) for source in told for claim in source.claim]
    if arguments.check:
        return check(verdicts)
    write_whole(arguments.out, render(told, verdicts, runs).encode())
    lacking = [
        f"{sum(verdict.word == word for verdict in verdicts)} {word}"
        for word in (NOT_MEASURED, AWAITING)
    ]
    print(f"{arguments.out}: {len(verdicts)} claims, {', '.join(lacking)}")
    return 0


def check(verdicts: Sequence[Verdict]) -> int:
    """Print a line for each claim without data. Return 1 if one is printed.

    A claim awaiting a transcription is left out.
    """
    lacking = [verdict.claim for verdict in verdicts if verdict.word == NOT_MEASURED]
    for claim in lacking:
        print(f"{NOT_MEASURED}: {claim.id} ({', '.join(claim.at)}): {command(claim)}")
    print(f"{len(verdicts)} claims, {len(lacking)} lack data")
    return 1 if lacking else 0
