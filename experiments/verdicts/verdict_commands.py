"""The command `verdicts` of `python -m experiments`."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ares.model.errors import BadInput
from ares.platform.replacement import replace_file
from experiments.rounds.round_commands import RESULTS
from experiments.rounds.scenario import SCALES, Parameters, scenarios
from experiments.verdicts.claim import sources
from experiments.verdicts.evaluate import Verdict, evaluate
from experiments.verdicts.reproduction import NOT_YET, command, render
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
    judging.set_defaults(run=judge)


def judge(arguments: argparse.Namespace) -> int:
    """Write the page, or say which claims lack data.

    Claims without rounds at the scale of the results lack no data.
    """
    rows, runs = read_rows(arguments.results)
    told = sources()
    verdicts = [evaluate(claim, rows) for source in told for claim in source.claim]
    scale = scale_of(runs)
    if arguments.check:
        return check(verdicts, scale)
    write_whole(arguments.out, render(told, verdicts, runs, scale).encode())
    print(
        f"{arguments.out}: {len(verdicts)} claims, "
        f"{sum(not verdict.word for verdict in verdicts)} of them {NOT_YET}"
    )
    return 0


def check(verdicts: Sequence[Verdict], scale: str) -> int:
    """Print a line for each claim that lacks data.

    Return 1 if results of this ``scale`` should have the data of such a claim.
    """
    lacking = [
        verdict.claim
        for verdict in verdicts
        if not verdict.word and (verdict.claim.scale == "quick" or scale != "quick")
    ]
    for claim in lacking:
        print(f"{NOT_YET}: {claim.id} ({', '.join(claim.at)}): {command(claim)}")
    later = sum(not verdict.word for verdict in verdicts) - len(lacking)
    print(
        f"{len(verdicts)} claims, {len(lacking)} lack data"
        + (f"; {later} more need --scale paper" if later else "")
    )
    return 1 if lacking else 0


def scale_of(runs: Sequence[dict[str, Any]]) -> str:
    """Return the scale whose rounds have the parameters of the runs.

    For a mixture, return both words.
    """
    if not runs:
        return "none"
    known, found = scenarios(), set()
    for run in runs:
        if (scenario := known.get(run["scenario"])) is not None:
            with suppress(
                msgspec.ValidationError
            ):  # the run was made with a table with other names
                own = msgspec.convert(
                    {
                        name: value
                        for name, value in run["parameters"].items()
                        if name in Parameters.__struct_fields__
                    },
                    Parameters,
                )
                found |= {
                    scale
                    for scale in SCALES
                    if any(each.parameters == own for each in scenario.rounds(scale))
                }
    return (
        " and ".join(scale for scale in SCALES if scale in found)
        or "of rounds that no scenario has now"
    )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole. Raises :class:`BadInput` on failure, and leaves the old content."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror}; it is as it was. Name another file "
            "with --out"
        ) from error
