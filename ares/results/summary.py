"""The figures of each run and operation: means, percentiles, throughput, and failures."""

import sqlite3
from collections.abc import Iterator
from typing import Any

SUMMARY_COLUMNS = (
    *(
        "run_dir",
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
    ),
    *(
        "op",
        "n_clients",
        "n_ops",
        "n_unsuccessful",
        "mean_s",
        "mean_over_ops_s",
        "p50_s",
        "p99_s",
        "min_s",
        "max_s",
        "throughput_ops_s_per_client",
    ),
    *("n_ops_excluded_phase1_readfile", "user_level_n_ops", "user_level_mean_s"),
)
_ORDER = ("write", "read", "recon")

_CLIENTS_QUERY = """
    SELECT o.level, o.op, sum(ok) n, sum(1 - ok) bad, avg(iif(ok, latency_s, NULL)) mean,
        total(iif(ok, latency_s, 0)) whole,
        min(iif(ok, latency_s, NULL)) least, max(iif(ok, latency_s, NULL)) most,
        max(iif(ok, coalesce(clock_s, began_s) + latency_s, NULL))
            - min(iif(ok, coalesce(clock_s, began_s), NULL)) span_s
    FROM files f CROSS JOIN operations o ON o.file_id = f.id
    WHERE f.run_id = ? AND f.kind = 'main' GROUP BY o.level, o.op, o.client"""
_FIGURES_QUERY = f"""
    SELECT level, op, sum(n > 0) n_clients, sum(n) n_ops, sum(bad) n_unsuccessful,
        avg(mean) mean_s, sum(whole) / nullif(sum(n), 0) mean_over_ops_s,
        min(least) min_s, max(most) max_s, avg(n / nullif(span_s, 0)) throughput_ops_s_per_client
    FROM ({_CLIENTS_QUERY}) GROUP BY level, op"""
_LATENCIES_QUERY = """
    SELECT latency_s FROM files f CROSS JOIN operations o ON o.file_id = f.id
    WHERE f.run_id = ? AND f.kind = 'main' AND o.level = ? AND o.op = ? AND ok ORDER BY latency_s"""
_EXCLUDED_QUERY = """
    SELECT count(*) FROM files f CROSS JOIN operations o ON o.file_id = f.id
    WHERE f.run_id = ? AND f.kind IN ('phase1', 'read_file') AND o.level = ? AND o.op = ?"""


def summarise(database: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    """Yield a row for each run and operation, by SUMMARY_COLUMNS.

    Runs in the order of names; writes before reads before reconfigurations before any other kind.
    """
    of_run = SUMMARY_COLUMNS[1 : SUMMARY_COLUMNS.index("op")]
    for id, *values in database.execute(
        f"SELECT id, coalesce(name, path), {', '.join(of_run)} FROM runs ORDER BY name, id"
    ).fetchall():
        run = dict(zip(("run_dir", *of_run), values, strict=True))
        figures = figures_of(database, id)
        for level, op in measured(figures, run["level"]):
            [(excluded,)] = database.execute(_EXCLUDED_QUERY, (id, level, op)).fetchall()
            user = (
                figures.get(("user", op), {"n_ops": 0, "mean_s": None}) if level == "client" else {}
            )
            row = (
                run
                | figures[level, op]
                | percentiles(database, id, level, op, figures[level, op]["n_ops"])
            )
            row |= {
                "n_ops_excluded_phase1_readfile": excluded,
                "user_level_n_ops": user.get("n_ops"),
                "user_level_mean_s": user.get("mean_s"),
            }
            yield {name: row[name] for name in SUMMARY_COLUMNS}


def figures_of(database: sqlite3.Connection, run: int) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the figures by level and kind of operation, without percentiles."""
    cursor = database.execute(_FIGURES_QUERY, (run,))
    names = [column[0] for column in cursor.description]
    return {row[:2]: dict(zip(names, row, strict=True)) for row in cursor}


def measured(
    figures: dict[tuple[str, str], dict[str, Any]], level: str | None
) -> list[tuple[str, str]]:
    """Return the levels and kinds of operations by which a run of ``level`` is judged.

    In the order in which they are shown.
    """
    found = [key for key in figures if key[0] == level or key[1] in ("put", "get", "list")]
    return sorted(
        found, key=lambda key: (_ORDER.index(key[1]) if key[1] in _ORDER else len(_ORDER), key[1])
    )


def percentiles(
    database: sqlite3.Connection, run: int, level: str, op: str, count: int
) -> dict[str, float | None]:
    """Return percentiles of all successful operations together.

    With straight lines between neighbours (type 7 of Hyndman and Fan, numpy's default).
    """
    places = {"p50_s": 0.50 * (count - 1), "p99_s": 0.99 * (count - 1)}
    wanted = (
        {int(place) + more: None for place in places.values() for more in (0, 1)} if count else {}
    )
    found: dict[int, float] = {}
    for position, (latency_s,) in enumerate(
        database.execute(_LATENCIES_QUERY, (run, level, op)) if wanted else ()
    ):
        if position in wanted:
            found[position] = latency_s
    result: dict[str, float | None] = {}
    for name, place in places.items():
        low = int(place)
        result[name] = (
            None
            if not count
            else found[low] + (place - low) * (found.get(low + 1, found[low]) - found[low])
        )
    return result


def cell(value: Any) -> str:
    """Return a value as text: times and rates with nine decimals, nothing for an unknown value."""
    return "" if value is None else f"{value:.9f}" if isinstance(value, float) else str(value)
