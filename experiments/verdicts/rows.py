"""Rows for the evaluator: the figures of each run of RESULTS/results.db.

Rows are by operation and by point of load.
"""

import itertools
import json
import sqlite3
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ares.model.errors import BadInput
from ares.results.database import opened
from ares.results.summary import summarise
from experiments.rounds.correctness import WRONG
from experiments.verdicts.evaluate import FigureRow

DATABASE = "results.db"

_SETTING_COLUMNS = ("servers", "writers", "readers", "reconfigurers", "object_size", "k", "m")
_SECONDS = ("mean_s", "p50_s", "p99_s")
_OPERATIONS = (
    "files f CROSS JOIN operations o ON o.file_id = f.id WHERE f.run_id = :run AND f.kind = 'main'"
)
_READ_CONFIG = "(read_config_s + coalesce(p2_read_config_s, 0))"
_LEVEL = "(o.level = :level OR o.op IN ('put', 'get', 'list'))"
_SAMPLES = {
    "mean_s": "CASE WHEN ok THEN latency_s END",
    "read_config_s": f"CASE WHEN ok THEN {_READ_CONFIG} END",
    "read_config_share": f"CASE WHEN ok THEN {_READ_CONFIG} / nullif(latency_s, 0) END",
    "encode_s": "CASE WHEN ok THEN nullif(json_extract(more, '$.encode_latency'), 0) END",
    "decode_s": "CASE WHEN ok THEN nullif(json_extract(more, '$.decode_latency'), 0) END",
    "fast_s": "CASE WHEN ok AND NOT json_extract(more, '$.prop') THEN latency_s END",
    "slow_s": "CASE WHEN ok AND json_extract(more, '$.prop') THEN latency_s END",
    "over_transfer": "CASE WHEN ok THEN latency_s / :transfer_s END",
    "failed": "NOT ok",
    "short_acks": """CASE WHEN json_extract(more, '$.wait') = 'Yes' THEN
        coalesce(json_extract(more, '$.wait_acks'), 0) < json_extract(more, '$.majority') END""",
}
"""Figures of each operation: expressions of SQL.

An operation that moves no data encodes and decodes none, and has no such time.
"""

_OF_RUN = f"SELECT op, {', '.join(_SAMPLES.values())} FROM {_OPERATIONS} AND {_LEVEL}"
_ENDS = f"""SELECT began_s + latency_s, ok FROM {_OPERATIONS} AND {_LEVEL}
    AND began_s IS NOT NULL AND op IN ('read', 'write', 'get', 'put') ORDER BY 1"""
_QUORUMS = f"""SELECT op, began_s, json_extract(more, '$.quorum_phase1_servers')
    FROM {_OPERATIONS} AND ok AND began_s IS NOT NULL
    AND json_extract(more, '$.quorum_phase1_servers') IS NOT NULL"""
_OF_LOAD = (
    *("clients", "mode", "read_share", "per_s", "kept", "longest_pause_s", "figures"),
    *(f"{op}_{name}" for op in ("read", "write") for name in ("count", *_SECONDS)),
)
_OF_LOAD_FILES = (
    "file_id IN (SELECT id FROM files WHERE run_id = ? AND kind = 'load') ORDER BY file_id, number"
)
CRASH_FELT_S = 1.0
"""Seconds after a crash in which the interruption by the crash must begin."""

_OF_FILES = {"get": "read", "put": "write"}
"""Names of a fragmented algorithm's operations on the whole object.

Operations on the blocks become `read block`, `write block`.
"""


def read_rows(results: Path) -> tuple[list[FigureRow], list[dict[str, Any]]]:
    """Return all rows in a reproducible order, and all runs.

    A run has name, scenario, parameters and provenance. Raises :class:`BadInput` without a
    database.
    """
    if not (results / DATABASE).is_file():
        raise BadInput(
            f"there are no results in {results}: `python -m experiments run` makes some, `python "
            "-m experiments report` imports them"
        )
    with opened(results / DATABASE) as database:
        runs = _runs(database)
        rows = [
            row
            for run, summaries in _summaries(database)
            if run in runs
            for row in _of_run(database, runs[run], summaries)
        ]
        rows += [row for run in runs.values() for row in _of_load(database, run)]
    rows += _not_linearizable(results)
    return sorted(
        rows, key=lambda row: (row.scenario, row.run, row.op, str(row.parameters.get("clients")))
    ), list(runs.values())


def _runs(database: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """Return our own runs, by name."""
    names = ("id", "name", "scenario", "algorithm", "iteration", "level", *_SETTING_COLUMNS)
    names += ("parameters", "provenance")
    found, asked = {}, f"SELECT {', '.join(names)} FROM runs ORDER BY name, id"
    for values in database.execute(asked).fetchall():
        run = dict(zip(names, values, strict=True))
        run |= {name: json.loads(run[name] or "{}") for name in ("parameters", "provenance")}
        if "published" not in run["provenance"]:
            found[run["name"]] = run
    return found


def _summaries(database: sqlite3.Connection) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield the rows of the summary of each run, by operation."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in summarise(database):
        found.setdefault(row["run_dir"], {})[row["op"]] = row
    yield from found.items()


def parameters_of(run: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters for claims: the settings of the round, and columns of the run."""
    settings = {
        key: "+".join(value) if isinstance(value, list | tuple) else value
        for key, value in run["parameters"].items()
        if not isinstance(value, dict)
    }
    settings |= {name: run[name] for name in _SETTING_COLUMNS if run[name] is not None}
    return settings


def _protocol(run: dict[str, Any]) -> str:
    """Return the run's protocol; the parameter `published` tells the algorithm."""
    return str(run["algorithm"] or "").partition(" (")[0]


def _of_run(
    database: sqlite3.Connection, run: dict[str, Any], summaries: dict[str, dict[str, Any]]
) -> Iterator[FigureRow]:
    dead, samples = _dead_in_quorums(database, run["id"]), _samples(database, run)
    counts, checked = Counter[str](), str(run["parameters"].get("checked", ""))
    for op, row in summaries.items():
        own = samples.get(op, {}) | ({"dead_in_quorums": dead[op]} if op in dead else {})
        figures = {name: row[name] for name in _SECONDS}
        figures |= {name: sum(values) / len(values) for name, values in own.items()}
        if checked.startswith(("linearizable", WRONG)):
            figures["wrong"] = float(checked.startswith(WRONG))
        figures["throughput"] = row["throughput_ops_s_per_client"]
        figures["operations"] = row["n_ops"] or 0
        is_block = op in ("read", "write") and not _OF_FILES.keys().isdisjoint(summaries)
        name = f"{op} block" if is_block else _OF_FILES.get(op, op)
        counts[name] = figures["operations"]
        yield _row(run, name, figures, own)
    of_all: dict[str, float | None] = {}
    if counted := run["parameters"].get("counted"):
        of_all |= figures_of_servers(counted, run, counts["read"], counts["write"])
    if crashes := [at_s for at_s, _ in _crashes(database, run["id"])]:
        done = database.execute(_ENDS, _keys(run)).fetchall()
        ends, until = [end for end, ok in done if ok], max((end for end, _ in done), default=0.0)
        of_all |= {"operations": len(ends), "crash_pause_s": interruption_s(ends, crashes, until)}
    if of_all:
        yield _row(run, "all", of_all)


def _row(
    run: dict[str, Any],
    op: str,
    figures: dict[str, float | None],
    samples: dict[str, Any] | None = None,
    **parameters: Any,
) -> FigureRow:
    """Return a row of a run; ``parameters`` win over the run's."""
    known = parameters_of(run) | parameters
    place = run["iteration"], "/".join(Path(run["name"]).parts[-2:])
    return FigureRow(run["scenario"], _protocol(run), op, known, figures, *place, samples or {})


def interruption_s(ends: Sequence[float], crashes: Sequence[float], until: float) -> float | None:
    """Return the longest time without the end of a successful operation that a crash can cause.

    Such a time ends after a crash and begins at most :data:`CRASH_FELT_S` after the crash. ``ends``
    are sorted; the last such time goes on to ``until``, the end of all operations. The answer is
    `None` if no crash was before ``until``.
    """
    return max(
        (
            later - sooner
            for sooner, later in itertools.pairwise([*ends, until])
            if any(sooner - CRASH_FELT_S <= at_s <= later for at_s in crashes)
        ),
        default=None,
    )


def figures_of_servers(
    counted: dict[str, int], run: dict[str, Any], reads: int, writes: int
) -> dict[str, float | None]:
    """Return the bytes that servers counted, in values of the run.

    Messages are divided by the operations; beside moves they belong to no operation. Replies to
    writes carry no value, and the bytes of replies are divided by the reads.
    """
    size, operations = run["object_size"], reads + writes
    figures = {"operations": operations, "stored": counted["kept"] / size}
    if reads and not run["reconfigurers"]:
        figures |= {
            "sent": counted["received"] / size / operations,
            "received": counted["sent"] / size / reads,
        }
    return figures


def _samples(database: sqlite3.Connection, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures of each operation, by kind of operation and name."""
    found: dict[str, dict[str, Any]] = {}
    transfer_s = None
    if rate := run["parameters"].get("rate_mbit"):
        transfer_s = run["object_size"] * 8 / (rate * 1e6)
    for op, *values in database.execute(_OF_RUN, _keys(run) | {"transfer_s": transfer_s}):
        own = found.setdefault(op, {})
        for name, value in zip(_SAMPLES, values, strict=True):
            if value is not None:
                own.setdefault(name, array("d")).append(value)
    return found


def _keys(run: dict[str, Any]) -> dict[str, Any]:
    return {"run": run["id"], "level": run["level"]}


def _crashes(database: sqlite3.Connection, run: int) -> list[tuple[float, str]]:
    """Return time and server of each crash of a run."""
    return database.execute(
        "SELECT at_s, server FROM events WHERE run_id = ? AND what = 'crash'", (run,)
    ).fetchall()


def _dead_in_quorums(database: sqlite3.Connection, run: int) -> dict[str, list[bool]]:
    """Return, by kind of operation, whether each first quorum has a crashed server.

    Only operations that began after the last crash count. Operations whose quorums did not have
    these servers before the crash are left out.
    """
    crashes = _crashes(database, run)
    times, dead = [at_s for at_s, _ in crashes], {server for _, server in crashes}
    before, after = defaultdict[str, list[bool]](list), defaultdict[str, list[bool]](list)
    for op, began_s, servers in database.execute(_QUORUMS, {"run": run}) if crashes else ():
        if not min(times) <= began_s <= max(times):
            (before if began_s < min(times) else after)[op].append(
                not dead.isdisjoint(json.loads(servers))
            )
    return {op: each for op, each in after.items() if any(before[op])}


def _of_load(database: sqlite3.Connection, run: dict[str, Any]) -> Iterator[FigureRow]:
    """Yield the rows `all`, `read` and `write` of each point of load."""
    asked = f"SELECT {', '.join(_OF_LOAD)} FROM load_points WHERE {_OF_LOAD_FILES}"
    for values in database.execute(asked, (run["id"],)).fetchall():
        point = dict(zip(_OF_LOAD, values, strict=True))
        parameters = {name: point[name] for name in ("clients", "mode", "read_share")}
        if "parallel" in run["parameters"]:  # it makes as many clients
            del parameters["clients"]
        others = json.loads(point["figures"] or "{}")
        for op in ("all", "read", "write"):
            figures = others | {name: point[name] for name in ("per_s", "kept", "longest_pause_s")}
            figures |= {name: point.get(f"{op}_{name}") for name in _SECONDS}
            counts = [point[f"{each}_count"] for each in ("read", "write") if op in ("all", each)]
            figures["operations"] = sum(counts) if op == "all" else counts[0]
            yield _row(run, op, figures, **parameters)


def _not_linearizable(results: Path) -> Iterator[FigureRow]:
    """Yield rows for rounds that failed because the answers to clients are not linearizable.

    Results of such rounds are not imported.
    """
    empty = dict.fromkeys((*_SETTING_COLUMNS, "iteration"))
    for path in sorted(results.glob("failed/*/*/run.json")):
        with suppress(OSError, msgspec.MsgspecError):
            run = empty | msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
            if str(run["parameters"].get("checked")).startswith(WRONG):
                yield _row(run | {"name": path.parent}, "read", {"wrong": 1.0, "operations": 0})
