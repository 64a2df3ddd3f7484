"""The commands `list`, `run` and `report` of `python -m experiments`."""

import argparse
import math
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from experiments.command_options import POINTS, add_results
from experiments.rounds.engine import Engine
from experiments.rounds.round_testbeds import MADE, RESERVED_BEDS
from experiments.rounds.scenario import SCALES, Scenario, ScenarioRound, protocols_of, scenarios
from experiments.verdicts.claimed_points import LONGEST_POINT_MIN, claims, point_rounds
from experiments.verdicts.report_page import write_report
from experiments.verdicts.rows import DATABASE


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to the program's commands."""
    listing = commands.add_parser("list", help="scenarios, their parameters, and their duration")
    listing.set_defaults(run=show)
    _add_run(commands)
    reporting = commands.add_parser("report", help="import results and make a page of them")
    add_results(reporting)
    words = "the logs that the authors of ARES published: theirs are drawn beside ours"
    reporting.add_argument("--published", type=Path, metavar="DIR", help=words)
    reporting.set_defaults(run=report)


def _add_run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    example = "Example: python -m experiments run scalability --scale quick"
    running = commands.add_parser("run", help="carry out the rounds of scenarios", epilog=example)
    words = "which scenarios (default: all)"
    running.add_argument("scenario", nargs="*", metavar="NAME", help=words)
    running.add_argument("--scale", choices=(*SCALES, POINTS), default="quick")
    words = "only these: ARES, ABD, Cassandra, Redis, RedisW, etcd, or names as `list` has them"
    running.add_argument("--protocol", metavar="A,B", help=words)
    words = "another value of a parameter or of a switch; may be repeated"
    running.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=words)
    add_results(running)
    words = "judge the answers of readers and writers: a round that is not linearizable fails"
    running.add_argument("--check", action="store_true", help=words)
    words = "leave out rounds that are in DIR already, and repeat failed rounds"
    running.add_argument("--resume", action="store_true", help=words)
    words, beds = "where the rounds run (default: processes)", (*MADE, *RESERVED_BEDS)
    running.add_argument("--testbed", choices=beds, default="processes", help=words)
    words = f"of {', '.join(RESERVED_BEDS)}: made by `python -m experiments inventory`"
    running.add_argument("--inventory", type=Path, metavar="FILE", help=words)
    words = "on hosts that are made for it (default: 250)"
    running.add_argument("--clients-per-host", type=int, default=250, metavar="N", help=words)
    usual = f"{LONGEST_POINT_MIN:.0f} with --scale {POINTS}, else none"
    words = f"leave out rounds with more minutes of work (default: {usual})"
    running.add_argument("--longest", type=float, metavar="MIN", help=words)
    running.add_argument("--seed", type=int, default=1)
    running.set_defaults(run=carry_out)


def show(arguments: argparse.Namespace) -> int:
    """Print every scenario in a few lines."""
    for name, scenario in scenarios().items():
        about = (scenario.seen_in, ", ".join(scenario.protocols), scenario.note)
        print("\n  ".join(filter(None, (f"{name}: {scenario.title}", *about))))
        for scale in SCALES:
            rounds, varies = list(scenario.rounds(scale)), scenario.varies(scale).items()
            varied = "; ".join(f"{key} {_values(values)}" for key, values in varies)
            print(f"  {scale}: {_extent(rounds)}: {varied or 'nothing varies'}")
        if rounds := list(point_rounds(scenario, claims())):
            print(f"  {POINTS}: {_extent(rounds)}: see the claims")
    return 0


def _extent(rounds: list[ScenarioRound]) -> str:
    return f"{len(rounds)} rounds, about {_minutes(rounds)}"


def _values(values: list[Any]) -> str:
    return ", ".join(
        "+".join(value) or "none" if isinstance(value, list) else str(value) for value in values
    )


def _minutes(rounds: list[ScenarioRound]) -> str:
    minutes = sum(round.expected_s for round in rounds) / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def carry_out(arguments: argparse.Namespace) -> int:
    """Run the rounds, and make the database and the page. Return 1 if a round or import failed."""
    results, resume = arguments.results, arguments.resume
    rounds = list(_rounds_of(_chosen(arguments.scenario, arguments.set), arguments))
    if arguments.check:
        rounds = [
            structs.replace(each, parameters=structs.replace(own, check=own.load is None))
            for each in rounds
            for own in (each.parameters,)
        ]
    rounds = list(_short_enough(rounds, arguments))
    if not rounds:
        raise BadInput(
            "no round is left: the scenarios have none of these protocols, or all their rounds "
            "are longer than --longest; nothing was begun"
        )
    done = [(results / each.scenario / each.name / "outcome.json").exists() for each in rounds]
    left = [each for each, is_done in zip(rounds, done, strict=True) if not (resume and is_done)]
    print(f"{len(left)} of {len(rounds)} rounds to do, about {_minutes(left)}", flush=True)
    if arguments.clients_per_host < 1:
        raise BadInput("a host has at least one client; nothing was begun")
    hosts = (arguments.testbed, arguments.inventory, arguments.clients_per_host)
    tell = partial(print, flush=True)
    failed = Engine(results, arguments.seed, tell, *hosts).run(rounds, resume)
    unreported = report(arguments)
    for name in failed:
        print(f"failed: {name}; its files are under {results}/failed, and --resume does it again")
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
            continue
        point = f"{round.scenario}/{round.name.removesuffix(f'_{round.iteration}')}"
        left_out.setdefault(point, []).append(minutes)
    for point, each in left_out.items():
        extent = f"{len(each)} rounds of about {each[0]:.0f} min of work"
        print(f"left out: {point}: {extent} (--longest {longest:g})")


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
    ended = sorted(arguments.results.glob("[!.]*/*/outcome.json"))
    runs = [path.parent for path in ended if path.parts[-3] != "failed"]
    if not runs:
        raise BadInput(
            f"there are no rounds in {arguments.results}: `python -m experiments run` makes some"
        )
    published = getattr(arguments, "published", None)
    runs += [published] if published is not None else []
    words = ["results", "import", *runs, "--into", arguments.results / DATABASE]
    if status := subprocess.run(python("-m", "ares", *words), check=False).returncode:
        return status
    print(f"{write_report(arguments.results)}: open it in a browser")
    return 0
