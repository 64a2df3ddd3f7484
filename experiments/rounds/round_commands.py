"""The commands `list`, `run` and `report` of `python -m experiments`."""

import argparse
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import structs

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments.rounds.engine import Engine
from experiments.rounds.round_testbeds import MADE, RESERVED_BEDS
from experiments.rounds.scenario import SCALES, Scenario, ScenarioRound, protocols_of, scenarios
from experiments.verdicts.claimed_points import LONGEST_POINT_MIN, claims, point_rounds
from experiments.verdicts.report_page import write_report
from experiments.verdicts.rows import DATABASE

RESULTS = Path("results/experiments")
POINTS = "points"
"""The scale whose rounds are the points that claims name."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to the program's commands."""
    listing = commands.add_parser("list", help="scenarios, their parameters, and their duration")
    listing.set_defaults(run=show)
    _add_run(commands)
    reporting = commands.add_parser("report", help="import results and make a page of them")
    reporting.add_argument("--results", type=Path, default=RESULTS, metavar="DIR")
    reporting.add_argument(
        "--published",
        type=Path,
        metavar="DIR",
        help="the logs that the authors of ARES published: theirs are drawn beside ours",
    )
    reporting.set_defaults(run=report)


def _add_run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    running = commands.add_parser(
        "run",
        help="carry out the rounds of scenarios",
        epilog="Example: python -m experiments run scalability --scale quick",
    )
    running.add_argument(
        "scenario", nargs="*", metavar="NAME", help="which scenarios (default: all)"
    )
    running.add_argument("--scale", choices=(*SCALES, POINTS), default="quick")
    running.add_argument(
        "--protocol",
        metavar="A,B",
        help="only these: ARES, ABD, Cassandra, Redis, RedisW, etcd, or names as `list` has them",
    )
    running.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another value of a parameter or of a switch; may be repeated",
    )
    running.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help=f"where they go (default: {RESULTS})",
    )
    running.add_argument(
        "--check",
        action="store_true",
        help="judge the answers of readers and writers: a round that is not linearizable fails",
    )
    running.add_argument(
        "--resume",
        action="store_true",
        help="leave out rounds that are in DIR already, and repeat failed rounds",
    )
    running.add_argument(
        "--testbed",
        choices=(*MADE, *RESERVED_BEDS),
        default="processes",
        help="where the rounds run (default: processes of this machine)",
    )
    running.add_argument(
        "--inventory",
        type=Path,
        metavar="FILE",
        help=f"of {', '.join(RESERVED_BEDS)}: made by `python -m experiments inventory`",
    )
    running.add_argument(
        "--clients-per-host",
        type=int,
        default=250,
        metavar="N",
        help="on hosts that are made for it (default: 250)",
    )
    running.add_argument(
        "--longest",
        type=float,
        metavar="MIN",
        help=f"leave out rounds with more minutes of work (default: {LONGEST_POINT_MIN:.0f} with "
        f"--scale {POINTS}, else none)",
    )
    running.add_argument("--seed", type=int, default=1)
    running.set_defaults(run=carry_out)


def show(arguments: argparse.Namespace) -> int:
    """Print every scenario in a few lines."""
    for name, scenario in scenarios().items():
        print(
            "\n  ".join(
                filter(
                    None,
                    (
                        f"{name}: {scenario.title}",
                        scenario.seen_in,
                        ", ".join(scenario.protocols),
                        scenario.note,
                    ),
                )
            )
        )
        for scale in SCALES:
            rounds = list(scenario.rounds(scale))
            varied = (
                "; ".join(
                    f"{key} {_values(values)}" for key, values in scenario.varies(scale).items()
                )
                or "nothing varies"
            )
            print(f"  {scale}: {len(rounds)} rounds, about {_minutes(rounds)}: {varied}")
        if rounds := list(point_rounds(scenario, claims())):
            print(f"  {POINTS}: {len(rounds)} rounds, about {_minutes(rounds)}: see the claims")
    return 0


def _values(values: list[Any]) -> str:
    return ", ".join(
        "+".join(value) or "none" if isinstance(value, list) else str(value) for value in values
    )


def _minutes(rounds: list[ScenarioRound]) -> str:
    minutes = sum(round.expected_s for round in rounds) / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def carry_out(arguments: argparse.Namespace) -> int:
    """Run the rounds, and make the database and the page. Return 1 if a round or import failed."""
    chosen = _chosen(arguments.scenario, arguments.set)
    rounds = list(_rounds_of(chosen, arguments))
    if arguments.check:
        rounds = [
            structs.replace(
                round,
                parameters=structs.replace(round.parameters, check=round.parameters.load is None),
            )
            for round in rounds
        ]
    rounds = list(_short_enough(rounds, arguments))
    if not rounds:
        raise BadInput(
            "no round is left: the scenarios have none of these protocols, or all their rounds "
            "are longer than --longest; nothing was begun"
        )
    left = [
        round
        for round in rounds
        if not (
            arguments.resume
            and (arguments.results / round.scenario / round.name / "outcome.json").exists()
        )
    ]
    print(f"{len(left)} of {len(rounds)} rounds to do, about {_minutes(left)}", flush=True)
    if arguments.clients_per_host < 1:
        raise BadInput("a host has at least one client; nothing was begun")
    hosts = (arguments.testbed, arguments.inventory, arguments.clients_per_host)
    failed = Engine(
        arguments.results, arguments.seed, lambda line: print(line, flush=True), *hosts
    ).run(rounds, arguments.resume)
    unreported = report(arguments)
    for name in failed:
        print(
            f"failed: {name}; its files are under {arguments.results}/failed, and --resume does "
            "it again"
        )
    return 1 if failed or unreported else 0


def _rounds_of(chosen: list[Scenario], arguments: argparse.Namespace) -> Iterator[ScenarioRound]:
    protocols = protocols_of(arguments.protocol)
    if arguments.scale == POINTS and arguments.set:
        raise BadInput("points are what claims name: --set is for the other scales")
    for scenario in chosen:
        if arguments.scale == POINTS:
            yield from point_rounds(scenario, claims(), protocols)
        else:
            yield from scenario.rounds(arguments.scale, protocols)


def _short_enough(
    rounds: list[ScenarioRound], arguments: argparse.Namespace
) -> Iterator[ScenarioRound]:
    """Yield the rounds without long work; print a line for each other point."""
    longest = arguments.longest
    if longest is None:
        longest = LONGEST_POINT_MIN if arguments.scale == POINTS else math.inf
    left_out: dict[str, list[float]] = {}
    for round in rounds:
        minutes = round.parameters.work_s / 60
        if minutes <= longest:
            yield round
        else:
            point = f"{round.scenario}/{round.name.removesuffix(f'_{round.iteration}')}"
            left_out.setdefault(point, []).append(minutes)
    for point, each in left_out.items():
        print(
            f"left out: {point}: {len(each)} rounds of about {each[0]:.0f} min of work "
            f"(--longest {longest:g})"
        )


def _chosen(names: list[str], given: list[str]) -> list[Scenario]:
    """Return the scenarios of these names, with the given values of parameters.

    Without names, all scenarios are returned.
    """
    known = scenarios()
    if unknown := [name for name in names if name not in known]:
        raise BadInput(f"there is no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name].changed(given) for name in names or known]


def report(arguments: argparse.Namespace) -> int:
    """Import all new rounds, and make the page again from all rounds."""
    runs = [
        path.parent
        for path in sorted(arguments.results.glob("[!.]*/*/outcome.json"))
        if path.parts[-3] != "failed"
    ]
    if not runs:
        raise BadInput(
            f"there are no rounds in {arguments.results}: `python -m experiments run` makes some"
        )
    if (published := getattr(arguments, "published", None)) is not None:
        runs.append(published)
    words = ["results", "import", *runs, "--into", arguments.results / DATABASE]
    if status := subprocess.run(python("-m", "ares", *words), check=False).returncode:
        return status
    print(f"{write_report(arguments.results)}: open it in a browser")
    return 0
