"""The page of all goals: figures of this run, goals, and figures of the last run kept in git.

    make bench                                                            # ends with the page
    .venv/bin/python -m experiments.bench.performance_page                # of results/bench
    .venv/bin/python -m experiments.bench.performance_page --keep         # keep its figures in git
    .venv/bin/python -m experiments.bench.performance_page --keep elsewhere

Each bench adds its figures that have a goal (goals.toml, in this package) to NAME_figures.json,
with spread, commit, date, machine and command. `--keep` puts them into docs/performance.json beside
the kept figures, and writes the table of goals in docs/performance.md again; a figure of a checkout
with changes is refused. Of several figures of a name the newest counts.
"""

import argparse
import shlex
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs

from ares.model.errors import BadInput
from ares.platform.replacement import replace_file
from experiments import CHECKOUT
from experiments.bench.figures import Figure
from experiments.bench.goals import Goal, goals
from experiments.bench.text import aligned, number, spread
from experiments.rounds.provenance import provenance

BENCH_RESULTS = Path("results/bench")
KEPT_FIGURES = CHECKOUT / "docs/performance.json"
PAGE_OF_GOALS = CHECKOUT / "docs/performance.md"
TABLE_BEGIN = "<!-- from docs/performance.json, by experiments/bench/performance_page.py -->\n"
TABLE_END = "<!-- end of the table of goals -->\n"
UNKNOWN_COMMIT = "an unknown commit"


class GoalFigure(Figure, frozen=True):
    """A figure of a goal, and its origin. A figure of a single round has no spread."""

    commit: str
    date: str
    """Calendar time in UTC, or the day alone."""
    machine: str
    run: str = ""
    """The command that measured it."""

    @property
    def at(self) -> str:
        """Return the commit, the day and the command."""
        return ", ".join(filter(None, (self.commit, self.date[:10], self.run)))


def newest(
    found: Mapping[str, GoalFigure], others: Mapping[str, GoalFigure]
) -> dict[str, GoalFigure]:
    """Return the figures of both; of two figures of a name the newer, or else the second."""
    later = {
        name: figure
        for name, figure in others.items()
        if name not in found or found[name].date <= figure.date
    }
    return dict(found) | later


def _command() -> str:
    """Return the command of this process, from the name of its module on."""
    words = sys.orig_argv
    return shlex.join(words[words.index("-m") + 1 :] if "-m" in words else sys.argv)


def with_origin(found: Mapping[str, Figure]) -> dict[str, GoalFigure]:
    """Return the figures that have a goal, as measured by this process."""
    origin, now = provenance("processes", 0), datetime.now(UTC).isoformat(timespec="seconds")
    commit, machine = str(origin["commit"] or UNKNOWN_COMMIT), str(origin["machine"])
    measured = {}
    for name in found.keys() & goals().keys():
        median, least, most = (float(f"{each:.4g}") for each in structs.astuple(found[name]))
        measured[name] = GoalFigure(median, least, most, commit, now, machine, _command())
    return measured


def read_figures(paths: Iterable[Path]) -> dict[str, GoalFigure]:
    """Return the figures of these files by name; of several of a name the newest."""
    found: dict[str, GoalFigure] = {}
    for path in paths:
        try:
            decoded = msgspec.json.decode(path.read_bytes(), type=dict[str, GoalFigure])
        except msgspec.MsgspecError as error:
            raise BadInput(f"{path} has no figures: {error}") from error
        found = newest(found, decoded)
    return found


def write_figures(path: Path, found: Mapping[str, GoalFigure]) -> None:
    """Write the figures, sorted, with a line for each: wholly, or not at all."""
    encoded = {name: msgspec.json.encode(found[name]).decode() for name in sorted(found)}
    lines = (f"{msgspec.json.encode(name).decode()}: {each}" for name, each in encoded.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def record(out: Path, bench: str, found: Mapping[str, Figure]) -> str:
    """Add the figures to BENCH_figures.json, and return the page of these figures alone.

    A bench that runs in parts has the figures of all its parts there.
    """
    measured, path = with_origin(found), out / f"{bench}_figures.json"
    write_figures(path, newest(read_figures([path] if path.exists() else []), measured))
    return page(measured, read_figures([KEPT_FIGURES]), measured) if measured else ""


def page(
    measured: Mapping[str, GoalFigure],
    kept: Mapping[str, GoalFigure],
    names: Container[str] | None = None,
) -> str:
    """Return the page as text: a line for every goal, or for the goals of these names."""
    rows = [("goals", "measured", "", "goal", "", "last kept", "")]
    for name, goal in goals().items():
        if names is None or name in names:
            now, before = measured.get(name), kept.get(name)
            last = (number(before.median), f"at {before.commit}") if before else ("-", "")
            at = f"at {now.commit}, {now.date[:10]}" if now else ""
            rows.append((name, _shown(goal, now), at, str(goal), _verdict(goal, now), *last))
    origins = {f"{each.at}: {each.machine}" for each in measured.values()}
    return "\n".join([*aligned(rows), *(f"measured at {each}" for each in sorted(origins))]) + "\n"


def _shown(goal: Goal, figure: GoalFigure | None) -> str:
    if figure is None:
        return "not measured"
    value = number(figure.median) if figure.least == figure.most else spread(figure)
    return f"{value} {goal.unit}".strip()


def _verdict(goal: Goal, figure: GoalFigure | None) -> str:
    return goal.verdict(figure.median) if figure else ""


def table(kept: Mapping[str, GoalFigure]) -> str:
    """Return the table of goals for readers, in Markdown."""
    rows = ["| | goal | kept figure | | measured at |", "|---|---|---|---|---|"]
    for name, goal in goals().items():
        figure = kept.get(name)
        at = figure.at.replace("|", "\\|") if figure else ""
        cells = (goal.sentence, str(goal), _shown(goal, figure), _verdict(goal, figure), at)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def with_table(text: str, kept: Mapping[str, GoalFigure]) -> str:
    """Return the text of docs/performance.md with the table of these figures."""
    before, _, rest = text.partition(TABLE_BEGIN)
    _, _, after = rest.partition(TABLE_END)
    if not after:
        raise ValueError(f"the page has no place for the table: {TABLE_BEGIN}...{TABLE_END}")
    return f"{before}{TABLE_BEGIN}\n{table(kept)}\n{TABLE_END}{after}"


def keep(measured: Mapping[str, GoalFigure]) -> None:
    """Keep the figures in git's files. Raises ValueError for a figure of no commit.

    A kept figure that is newer stays.
    """
    for name, figure in measured.items():
        if figure.commit == UNKNOWN_COMMIT or figure.commit.endswith("-dirty"):
            raise ValueError(f"nothing was kept: {name!r} was measured at {figure.commit}")
    kept = newest(read_figures([KEPT_FIGURES]), measured)
    text = with_table(PAGE_OF_GOALS.read_text(), kept)
    write_figures(KEPT_FIGURES, kept)
    replace_file(PAGE_OF_GOALS, text.encode())


def main(words: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="experiments.bench.performance_page",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    help_ = f"where benches wrote their figures (default: {BENCH_RESULTS})"
    parser.add_argument("results", nargs="?", type=Path, default=BENCH_RESULTS, help=help_)
    parser.add_argument("--keep", action="store_true", help="keep these figures in git's files")
    given = parser.parse_args(words)
    try:
        measured = read_figures(sorted(given.results.rglob("*_figures.json")))
        print(page(measured, read_figures([KEPT_FIGURES])), end="")
        if given.keep:
            keep(measured)
            print(f"kept {len(measured)} figures: {KEPT_FIGURES}, {PAGE_OF_GOALS}")
    except (BadInput, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
