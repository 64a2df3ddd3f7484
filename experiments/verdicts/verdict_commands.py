"""The command `verdicts` of `python -m experiments`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ares.model.errors import BadInput
from experiments.command_options import add_results
from experiments.rounds.scenario import scenarios
from experiments.verdicts.claim import NOT_MEASURED, sources
from experiments.verdicts.claimed_points import too_long
from experiments.verdicts.earlier_page import EarlierPage, read_earlier
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
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n"
        "  python -m experiments verdicts --check\n"
        "  python -m experiments verdicts --results results/experiments-points --add",
    )
    add_results(judging)
    page, words = REPRODUCTION_PAGE, "the page, written wholly or not at all"
    words += f" (default: {page})"
    judging.add_argument("--out", type=Path, default=page, metavar="FILE", help=words)
    for flag, words in (
        ("--check", "write nothing; say which claims lack data, and end with 1 if there are any"),
        ("--no-results", "make the page without results: all measured claims are not measured"),
        ("--add", "keep the page's rows of claims without enough figures in DIR"),
    ):
        judging.add_argument(flag, action="store_true", help=words)
    judging.set_defaults(run=judge)


def judge(arguments: argparse.Namespace) -> int:
    """Write the page, or name the claims without data."""
    rows, runs = ([], []) if arguments.no_results else read_rows(arguments.results)
    told = sources()
    verdicts = [evaluate(claim, rows) for source in told for claim in source.claim]
    if arguments.check:
        return check(verdicts)
    earlier = _earlier(arguments.out) if arguments.add else None
    known = scenarios()
    long = {
        claim.id: too_long(known[claim.scenario], claim)
        for source in told
        for claim in source.claim
        if claim.scenario in known
    }
    page = render(told, verdicts, runs, earlier, long)
    write_whole(arguments.out, page.encode())
    print(f"{arguments.out}: {page.split('**')[1]}")
    return 0


def _earlier(page: Path) -> EarlierPage:
    """Return the rows of the page. Raises :class:`BadInput` if the page cannot be read."""
    try:
        return read_earlier(page.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--add keeps rows of {page}, which cannot be read: {error}") from error


def check(verdicts: Sequence[Verdict]) -> int:
    """Print a line for each claim without data. Return 1 if one is printed.

    A claim awaiting a transcription is left out.
    """
    lacking = [verdict.claim for verdict in verdicts if verdict.word == NOT_MEASURED]
    for claim in lacking:
        print(f"{NOT_MEASURED}: {claim.id} ({', '.join(claim.at)}): {command(claim)}")
    print(f"{len(verdicts)} claims, {len(lacking)} lack data")
    return 1 if lacking else 0
