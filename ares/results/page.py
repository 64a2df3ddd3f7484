"""The page of a database of results: a self-contained HTML file.

Looks and behaviour are in the folder `page` beside this module. The content is bounded: of every
run the figures, of its operations at most some hundred points of a line, of its traces a few.
"""

import base64
import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

from ares.platform.release import version
from ares.results import chosen_traces, over_time
from ares.results.load_points import points_of
from ares.results.over_time import shortened
from ares.results.published_beside import rename_lines, rename_runs
from ares.results.published_figures import published
from ares.results.summary import figures_of, measured
from ares.tracing.tree import printable

PAGE_RUNS_MAX = 2000
PARAMETERS_MAX = 16
"""Parameters of a run beside the parameters of every run; twice as many of all runs."""

OBJECT_MAX = 20_000
"""Characters of JSON; longer parameters and provenance are not in the page."""

TRACES_MAX = 48
PAGE_POINTS_MAX = 120_000
"""Points of all lines over time together."""

REJECTED_MAX = 50
"""Files with unreadable lines in the page: the files with most such lines."""

MANY_RUNS = 100
"""Number of runs from which a run has fewer percents, and fewer intervals of quorums."""

TEXT_TOTAL = 1_000_000
"""Characters of the descriptions of all runs."""

OF_A_RUN = (
    "servers",
    "writers",
    "readers",
    "reconfigurers",
    "object_size",
    "topology",
    "clients",
    "k",
    "m",
)
_RUN_COLUMNS = (
    "id",
    "path",
    "name",
    "scenario",
    "algorithm",
    "servers",
    "writers",
    "readers",
    "reconfigurers",
    "object_size",
    "k",
    "m",
    "topology",
    "iteration",
    "level",
)
_SHORT = ", ".join(
    f"substr({name}, 1, 1000)" if name in ("name", "scenario", "algorithm", "topology") else name
    for name in _RUN_COLUMNS
)
_TOO_LONG = '{"note":["too long for a page; the database has it"]}'
_OBJECTS = ", ".join(
    f"iif(length({name}) <= {OBJECT_MAX}, {name}, '{_TOO_LONG}')"
    for name in ("parameters", "provenance")
)
_PHASE_COLUMNS = ("read_config_s", "phase1_s", "p2_read_config_s", "p2_put_data_s", "phase2_s")

Progress = Callable[[int, int, str], None]
"""A function called with the number of runs done, the total, and the name of a run."""


class JudgedClaim(Struct, frozen=True):
    """A claim of a source about the runs of a scenario, and its verdict, as text."""

    scenario: str
    where: str
    claim: str
    published: str
    ours: str
    verdict: str


def render(
    database: sqlite3.Connection, name: str, progress: Progress, claims: Sequence[JudgedClaim] = ()
) -> str:
    """Return the page. ``name``: the name of the database. ``claims``: shown by scenario."""
    data = _data(database, name, progress) | {"claims": claims}
    content = {
        "STYLE": _read("uplot/uPlot.min.css") + _read("report.css"),
        "UPLOT": f"/*!\n{_read('uplot/LICENSE')}*/\n{_read('uplot/uPlot.iife.min.js')}",
    }
    content["SCRIPT"] = "".join(
        _read(part)
        for part in ("base.js", "beside.js", "figures.js", "load.js", "verdict.js", "runs.js")
    )
    content["HASHES"] = " ".join(_hash(content[script]) for script in ("UPLOT", "SCRIPT"))
    page = _read("report.html")
    for place, text in content.items():
        page = page.replace(f"/*{place}*/", text)
    before, after = page.split("/*DATA*/")
    return before + msgspec.json.encode(data).decode().replace("<", "\\u003c") + after


def _read(part: str) -> str:
    return files("ares.results").joinpath(f"page/{part}").read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash that lets a browser run this script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _data(database: sqlite3.Connection, name: str, progress: Progress) -> dict[str, Any]:
    [(count,)] = database.execute("SELECT count(*) FROM runs").fetchall()
    rows = database.execute(
        f"SELECT {_SHORT}, {_OBJECTS} FROM runs ORDER BY name, id LIMIT ?", (PAGE_RUNS_MAX,)
    ).fetchall()
    [(with_traces,)] = database.execute(
        "SELECT count(DISTINCT run_id) FROM files WHERE kind = 'trace'"
    ).fetchall()
    points = min(400, max(20, PAGE_POINTS_MAX // (3 * len(rows) or 1)))
    percents = over_time.ALL_PERCENTS if len(rows) <= MANY_RUNS else over_time.FEW_PERCENTS
    detail = over_time.Detail(points, percents, quorum_bins=40 if len(rows) <= MANY_RUNS else 12)
    text_max = min(4000, TEXT_TOTAL // (len(rows) or 1))
    names = Counter(
        _shown(columns[_RUN_COLUMNS.index("name")], columns[_RUN_COLUMNS.index("path")])
        for columns in rows
    )
    runs, traces = [], TRACES_MAX
    for done, (*columns, parameters, provenance) in enumerate(rows):
        row = dict(zip(_RUN_COLUMNS, columns, strict=True))
        progress(done, len(rows), _shown(row["name"], row["path"]))
        run = _described(row, _object(parameters), _object(provenance), text_max)
        if (
            names[run["path"]] > 1
        ):  # the same collection from two places; the page tells runs apart by path
            run["path"] = f"{_shown(row['path'], None)[-280:]} ({row['id']})"
        database.execute("BEGIN")  # the data of a run are consistent, also during an import
        run["operations"] = _operations(database, row, detail)
        run["load"] = points_of(database, row["id"])
        run |= over_time.timeline(
            database,
            {"run": row["id"], "level": row["level"], "servers": row["servers"], "m": row["m"]},
            detail,
        )
        run |= chosen_traces.choose(
            database, row["id"], min(traces, max(4, TRACES_MAX // (with_traces or 1)))
        )
        database.execute("ROLLBACK")
        traces -= len(run["traces"])
        runs.append(run)
    rename_runs(runs)
    malformed, rejected = _rejected(database)
    operations = [operation for run in runs for operation in run["operations"].values()]
    totals = {
        "runs": count,
        "operations": sum(each["ok"] + each["failed"] for each in operations),
        "failed": sum(each["failed"] for each in operations),
        "points": sum(len(run["load"]["points"]) for run in runs if run["load"]),
    }
    return {
        "file": printable(name),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version(),
        "totals": totals | malformed,
        "rejected": rejected,
        "percents": percents,
        "scenarios": sorted({run["scenario"] for run in runs}),
        "parameters": _varied(runs),
        "runs": runs,
        "published": rename_lines(published(), runs),
        "notes": _notes(runs, count, malformed, totals["failed"]),
    }


def _rejected(database: sqlite3.Connection) -> tuple[dict[str, int], list[list[Any]]]:
    """Count the unreadable lines and their files.

    Returns:
        The totals, and of the files with most such lines: path, lines, number of the first line
        and its reason.
    """
    [(lines, of_files)] = database.execute(
        "SELECT coalesce(sum(malformed), 0), coalesce(sum(malformed > 0), 0) FROM files"
    ).fetchall()
    rows = database.execute(
        "SELECT f.path, f.malformed, min(b.line), b.why FROM files f LEFT JOIN bad_lines b"
        " ON b.file_id = f.id WHERE f.malformed > 0 GROUP BY f.id"
        " ORDER BY f.malformed DESC, f.path LIMIT ?",
        (REJECTED_MAX,),
    ).fetchall()
    rows_shown = [
        [_shown(None, path)[-300:], count, first, printable(why or "")[:300]]
        for path, count, first, why in rows
    ]
    return {"malformed": lines, "rejected_files": of_files}, rows_shown


def _varied(runs: list[dict[str, Any]]) -> list[str]:
    """Return the names of parameters from which a reader chooses.

    First the parameters of every run, followed by the most frequent further parameters.
    """
    counts = Counter(key for run in runs for key in run["parameters"])
    others = [key for key, _ in counts.most_common() if key not in OF_A_RUN]
    return [*(key for key in OF_A_RUN if key in counts), *sorted(others[: 2 * PARAMETERS_MAX])]


def _object(text: str | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}


def _shown(name: str | None, path: str | None) -> str:
    return printable(str(name or path))[:300]


def _described(
    row: dict[str, Any], settings: dict[str, Any], provenance: dict[str, Any], text_max: int
) -> dict[str, Any]:
    """Return the description of a run.

    Settings with a single value are parameters, too; all settings are in ``settings`` as text.
    """
    parameters = {key: row[key] for key in OF_A_RUN if row.get(key) is not None}
    if (places := row["topology"]) and " " in places:
        parameters["topology"], parameters["clients"] = (
            printable(part)[:60] for part in places.split(" ", 1)
        )
    for key, value in [
        (key, value)
        for key, value in settings.items()
        if key not in (*_RUN_COLUMNS, *OF_A_RUN, "published")  # the algorithm's name has it
    ][:PARAMETERS_MAX]:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = "+".join(value) or "none"
        if isinstance(value, bool | int | float | str):
            parameters[printable(key)[:40]] = (
                printable(value)[:60]
                if isinstance(value, str)
                else value
                if isinstance(value, int | float)
                else str(value)
            )
    texts = [_lines(each, text_max // 2) for each in (settings, provenance)]
    return {
        "path": _shown(row["name"], row["path"]),
        "scenario": printable(str(row["scenario"] or "(no scenario)"))[:80],
        "algorithm": printable(str(row["algorithm"] or "(no algorithm)"))[:60],
        "iteration": row["iteration"],
        "level": row["level"],
        "published": "published" in provenance,
        "parameters": parameters,
        "settings": texts[0],
        "provenance": texts[1],
    }


def _lines(values: dict[str, Any], most: int) -> str:
    """Return a line for each key."""
    lines = [
        printable(
            f"{key}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        )
        for key, value in values.items()
    ]
    text = "\n".join(lines)
    return text if len(text) <= most else f"{text[:most]} ... (cut off)"


def _operations(
    database: sqlite3.Connection, row: dict[str, Any], detail: over_time.Detail
) -> dict[str, Any]:
    """Return figures, distribution and phases for each kind of operation.

    The figures are the figures of `results summary`.
    """
    found = figures_of(database, row["id"])
    rows_shown = [found[key] for key in measured(found, row["level"])][: over_time.KINDS_MAX]
    run = {"run": row["id"], "level": row["level"]}
    spread = over_time.distributions(
        database, run, {each["op"]: each["n_ops"] for each in rows_shown}, detail.percents
    )
    averages = ", ".join(
        f"avg(iif(ok AND phase1_s IS NOT NULL, {column}, NULL))"
        for column in ("latency_s", *_PHASE_COLUMNS)
    )
    counts = f"sum({over_time.OUTCOME} = 2), sum(ok AND phase1_s IS NOT NULL)"
    more = {
        op: values
        for op, *values in database.execute(
            f"SELECT op, {_WAITED}, {counts}, {averages} FROM {over_time.OF_RUN} GROUP BY op", run
        )
    }
    return {
        each["op"]: {
            "clients": each["n_clients"],
            "ok": each["n_ops"],
            "failed": each["n_unsuccessful"],
            **{name: shortened(each[column], 9) for name, column in _FIGURE_COLUMNS.items()},
            "quantiles": (quantiles := spread.get(each["op"]))
            and [shortened(latency_s) for latency_s in quantiles],
            **{
                name: quantiles and shortened(quantiles[detail.percents.index(percent)], 9)
                for name, percent in (("p50", 50), ("p99", 99))
            },
            "waited": shortened(more[each["op"]][0]),
            **_phases(*more[each["op"]][1:]),
        }
        for each in rows_shown
    }


_FIGURE_COLUMNS = {
    "mean": "mean_s",
    "min": "min_s",
    "max": "max_s",
    "throughput": "throughput_ops_s_per_client",
}


_WAITED = (
    "avg(iif(ok AND more LIKE '%\"waited\"%' AND json_valid(more), json_extract(more, "
    "'$.waited'), NULL))"
)
"""Mean seconds from an operation's due time to its begin, from lines of open loops."""


def _phases(
    unknown: int, timed: int, latency_s: float | None, *parts: float | None
) -> dict[str, Any]:
    """Return ``phases``, mean seconds: read-config, phase 1, the parts of phase 2, the rest.

    The parts of phase 2: read-config, put-data and the rest of the phase.
    """
    read_config, phase1, again, put, phase2 = (part or 0.0 for part in parts)
    phases = (
        read_config,
        phase1,
        again,
        put,
        max(0.0, phase2 - again - put),
        max(0.0, (latency_s or 0.0) - read_config - phase1 - phase2),
    )
    return {
        "unknown": unknown,
        "timed": timed,
        "phases": [shortened(round(phase, 9)) for phase in phases] if timed else None,
    }


def _notes(
    runs: list[dict[str, Any]], count: int, rejected: dict[str, int], failed: int
) -> list[str]:
    """Return sentences about missing data and data left out."""
    empty = [run["path"] for run in runs if not (run["operations"] or run["load"])]
    wrong = [run["path"] for run in runs if run["load"] and run["load"]["wrong"]]
    without = [run for run in runs if run["untimed"]]
    cut = sum(bool(run["traces_of"]) and not run["traces"] for run in runs)
    return [
        *(
            [
                (
                    f"{failed} operations failed. They are counted wherever they are left out of a "
                    "figure."
                )
            ]
            if failed
            else []
        ),
        *(
            [
                (
                    f"{rejected['malformed']} lines of {rejected['rejected_files']} files could "
                    "not be read, and are in no figure."
                )
            ]
            if rejected["malformed"]
            else []
        ),
        *(
            [
                (
                    f"Of {count} runs the first {len(runs)} by their names are here. Import "
                    "fewer runs into another file to see the rest."
                )
            ]
            if count > len(runs)
            else []
        ),
        *(
            [(f"Reads under load returned values that no write stored, for example in {wrong[0]}.")]
            if wrong
            else []
        ),
        *([f"{len(empty)} runs have no operations, for example {empty[0]}."] if empty else []),
        *(
            [f"{len(without)} runs have operations without a time; they are in no timeline."]
            if without
            else []
        ),
        *(
            [f"{cut} more runs have traces that are not here: a page has at most {TRACES_MAX}."]
            if cut
            else []
        ),
    ]
