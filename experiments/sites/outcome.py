"""Measurements of the study, as lines of JSON; and its Table I.

Each cell of Table I follows from figures by a criterion in this module.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.results.load_points import LoadFile, LoadLatency, LoadPoint
from experiments.kept_runs import import_runs, keep_run
from experiments.sites.fog_plan import FOG_STUDY

FOG_FILE = "fog.jsonl"
YES, PARTIALLY, NO, UNKNOWN = "Yes", "Partially", "No", "not measured"

SHARE_MAX = 0.02
"""Largest share of the bytes of local access that may leave sites.

The study found a smaller share in all three stores.
"""

BYTES_PER_OPERATION_MAX = 200.0
"""Bytes that a local operation may send between sites, beyond the bytes of an idle network."""

IDLE_MAX = 2_000.0
"""Bytes a second that may leave a site of an idle network, a mean over the sites."""

KEPT_MIN = 0.99
OUTCOME_PAUSE_S_MAX = 5.0
NEAR_READ_RATIO = 1.5
"""Largest ratio of a read to the time of reads of the user's own objects."""

CRITERIA = {
    "locality": (
        f"while all sites write and read their own objects, less than {SHARE_MAX:.0%} of their "
        "bytes leave sites, and nothing fails"
    ),
    "containment": (
        f"a local operation sends at most {BYTES_PER_OPERATION_MAX:g} B between sites beyond "
        f"what is sent anyway, and that is at most {IDLE_MAX:g} B/s from a site, on average; "
        "partially: one of the two"
    ),
    "disconnected": (
        f"in a site that is cut off users go on ({KEPT_MIN:.0%} of operations, no pause above "
        f"{OUTCOME_PAUSE_S_MAX:g} s) and new ones come, in the others too, and what was written is "
        "read after the cut; partially: only those users go on who were there"
    ),
    "mobility": (
        f"a user at another site reads, after the first time, at most {NEAR_READ_RATIO:g} times as "
        "slowly as objects of that site, and nothing fails; partially: more slowly"
    ),
}


class Measurement(Struct, frozen=True):
    """A test of a store with a number of sites.

    ``work`` has the parameters. ``figures`` are by name with unit; `wrong` counts reads of values
    that no user wrote. ``read`` and ``write`` are of successful operations. ``why`` is the first
    failure, in the store's words.
    """

    store: str
    sites: int
    trial: int
    test: str
    work: dict[str, int | str]
    figures: dict[str, float]
    read: LoadLatency | None = None
    write: LoadLatency | None = None
    why: str = ""


class Cell(Struct, frozen=True):
    """A word for a property of a store, and the figures behind the word."""

    word: str
    figures: str = ""


def append(path: Path, measurement: Measurement) -> None:
    """Append a line of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(measurement) + b"\n")


def keep(results: Path, measurements: Sequence[Measurement], began: str) -> None:
    """Write a run for each measurement, for verdicts (experiments/verdicts/claims/fog.toml).

    Runs of the same name are replaced. ``began`` is the start of the runner, ISO 8601.
    """
    made = []
    for of in measurements:
        point = LoadPoint(
            clients=int(of.work.get("parallel", 1)),
            read=of.read,
            write=of.write,
            began=began,
            figures=of.figures,
            failed=int(of.figures["failed"]),
        )
        words = [of.store.replace(" ", "-"), of.sites, of.test, *of.work.values(), of.trial]
        name, file = "_".join(map(str, words)), LoadFile([point], of.store, of.test)
        parameters = {"sites": of.sites, "test": of.test} | of.work
        about = {"testbed": "sites", "iteration": of.trial, "parameters": parameters}
        made.append(keep_run(results, FOG_STUDY, name, file, **about))
    if made:
        import_runs(results, made)


def table(measurements: Sequence[Measurement]) -> dict[str, dict[str, Cell]]:
    """Return Table I: for each store a cell for each of CRITERIA.

    A cell is as good as the worst measurement with several sites.
    """
    found = {}
    for store in dict.fromkeys(each.store for each in measurements):
        ours = [each for each in measurements if each.store == store and each.sites > 1]
        judged = {
            "locality": ("local", _locality),
            "containment": ("containment", _containment),
            "disconnected": ("cut", _disconnected),
            "mobility": ("move", _mobility),
        }
        found[store] = {
            name: _worst(judge(each) for each in ours if each.test == test)
            for name, (test, judge) in judged.items()
        }
    return found


def _worst(cells: Iterable[Cell]) -> Cell:
    order = (YES, PARTIALLY, NO)
    return max(cells, key=lambda cell: order.index(cell.word), default=Cell(UNKNOWN))


def _locality(of: Measurement) -> Cell:
    failed = of.figures["failed"]
    share = max(of.figures["write_between_share"], of.figures["read_between_share"])
    word = YES if share < SHARE_MAX and not failed else NO
    return Cell(word, f"{share:.2%} leave, {failed:g} failed")


def _containment(of: Measurement) -> Cell:
    per_op, idle = of.figures["bytes_per_op"], of.figures["idle_B_s"] / of.sites
    met = (per_op <= BYTES_PER_OPERATION_MAX) + (idle <= IDLE_MAX)
    return Cell((NO, PARTIALLY, YES)[met], f"{per_op:.0f} B an operation, idle {idle:.0f} B/s")


def _disconnected(of: Measurement) -> Cell:
    figures = of.figures
    kept, pause_s = figures["inside_kept"], figures["inside_pause_s"]
    stay = kept >= KEPT_MIN and pause_s <= OUTCOME_PAUSE_S_MAX
    new = bool(figures["new_inside"] and figures["new_outside"])
    others = figures["outside_kept"] >= KEPT_MIN and figures["written_in_cut_read"] == 1
    word = YES if stay and new and others else PARTIALLY if stay else NO
    come = "come" if new else "do not come"
    return Cell(word, f"{kept:.0%} of operations, pause {pause_s:.1f} s, new users {come}")


def _mobility(of: Measurement) -> Cell:
    words = ("first", "second", "last")
    slower = {word: of.figures[f"{word}_over_local"] for word in words}
    is_near = min(slower["second"], slower["last"]) <= NEAR_READ_RATIO
    word = NO if of.figures["failed"] else YES if is_near else PARTIALLY
    told = ", ".join(f"{each} {times:.1f}" for each, times in slower.items())
    return Cell(word, f"{told} times local")


def table_text(measurements: Sequence[Measurement]) -> list[str]:
    """Return Table I in lines, with the figures of each cell, and the criteria."""
    found = table(measurements)
    lines = [
        f"{store:16} {name:13} {cell.word:12} {cell.figures}"
        for store, cells in found.items()
        for name, cell in cells.items()
    ]
    return [*lines, "", *(f"{name}: {criterion}" for name, criterion in CRITERIA.items())]
