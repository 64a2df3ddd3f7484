"""The spread of a run's operations over latencies, over time, and over answering servers.

SQLite counts and sorts; the returned data are bounded for a run of any size.
"""

import itertools
import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from ares.tracing.tree import printable

FEW_PERCENTS = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)
ALL_PERCENTS = (*range(100), 99.5, 99.9, 100)
QUORUMS_MAX = 100_000
"""Largest number of quorums of a run that are looked at; of more, every n-th."""

SERVERS_SHOWN_MAX = 32
KINDS_MAX = 8
"""Kinds of operations of a run: read, write and recon, and a few more."""

EVENTS_MAX = 200

OF_RUN = (
    "operations WHERE file_id IN (SELECT id FROM files WHERE run_id = :run AND kind = 'main') AND "
    "(level = :level OR op IN ('put', 'get', 'list'))"
)
"""The operations of a run from which figures are taken."""

OUTCOME = 'CASE WHEN ok THEN 0 WHEN more LIKE \'%"outcome":"unknown"%\' THEN 2 ELSE 1 END'


class Detail(Struct, frozen=True):
    """The amount of a run's data in a page.

    The points of a line, the percents of a distribution, the intervals of time in which quorums are
    counted.
    """

    points: int
    percents: Sequence[float]
    quorum_bins: int


def shortened(value: float | None, digits: int = 5) -> float | None:
    """Return ``value`` rounded to ``digits`` digits, or None if ``value`` is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def distributions(
    database: sqlite3.Connection,
    run: dict[str, Any],
    counts: dict[str, int],
    percents: Sequence[float],
) -> dict[str, list[float]]:
    """Return for each operation the latencies at ``percents``.

    Between two operations the latency is interpolated, as numpy does. ``counts``: the successful
    operations of each kind.
    """
    ordered = database.execute(
        f"SELECT op, latency_s FROM {OF_RUN} AND ok AND latency_s IS NOT NULL ORDER BY op, "
        "latency_s",
        run,
    )
    return {
        op: _quantiles((latency_s for _, latency_s in rows), counts[op], percents)
        for op, rows in itertools.groupby(ordered, lambda row: str(row[0]))
        if op in counts
    }


def _quantiles(ordered: Iterator[float], count: int, percents: Sequence[float]) -> list[float]:
    places = [percent / 100 * (count - 1) for percent in percents]
    wanted = {int(place) for place in places} | {math.ceil(place) for place in places}
    kept = {rank: latency_s for rank, latency_s in enumerate(ordered) if rank in wanted}
    return [
        kept[int(place)] + (kept[math.ceil(place)] - kept[int(place)]) * (place - int(place))
        for place in places
    ]


def timeline(database: sqlite3.Connection, run: dict[str, Any], detail: Detail) -> dict[str, Any]:
    """Return the course of a run, in seconds since the first operation began.

    ``times`` has for each kind of operation ``each``, a list of `[begin, latency, outcome]`, if the
    operations are few, or else ``bins`` of ``width`` seconds, `[bin, ok, failed, unknown, mean
    latency, slowest]`. Outcomes: 0 ok, 1 failed, 2 unknown. ``untimed``: operations without a known
    time.
    """
    [(first, last, untimed)] = database.execute(
        "SELECT min(began_s), max(began_s + coalesce(latency_s, 0)), sum(began_s IS NULL) FROM "
        f"{OF_RUN}",
        run,
    ).fetchall()
    began = run | {"first": first}
    found: dict[str, Any] = {
        "times": {},
        "length": 0.0,
        "untimed": untimed or 0,
        "quorums": None,
        **_events(database, began),
    }
    if first is None:
        return found
    found["length"] = shortened(last - first) or 1e-3
    counts = database.execute(
        f"SELECT op, count(*) AS n FROM {OF_RUN} AND began_s IS NOT NULL GROUP BY op ORDER BY n "
        f"DESC LIMIT {KINDS_MAX}",
        run,
    ).fetchall()
    for op, count in counts:
        found["times"][printable(str(op))] = _operations(
            database, began | {"op": op}, count, found["length"], detail
        )
    found["quorums"] = _quorums(
        database, began, sum(count for _, count in counts), found["length"], detail.quorum_bins
    )
    return found


def _events(database: sqlite3.Connection, run: dict[str, Any]) -> dict[str, Any]:
    """Return ``events``: `[seconds, what, server or null, detail or null]`.

    Without operations, seconds are since the first event.
    """
    where = "FROM events WHERE file_id IN (SELECT id FROM files WHERE run_id = :run)"
    [(count, first)] = database.execute(
        f"SELECT count(*), coalesce(:first, min(at_s)) {where}", run
    ).fetchall()
    rows = database.execute(
        f"SELECT at_s - :begin, what, server, substr(detail, 1, 300) {where} ORDER BY at_s LIMIT "
        ":most",
        run | {"begin": first, "most": EVENTS_MAX},
    )
    events = [
        [shortened(at_s, 7), *(text and printable(str(text))[:300] for text in texts)]
        for at_s, *texts in rows
    ]
    return {"events": events, "events_left": count - len(events)}


def _operations(
    database: sqlite3.Connection, run: dict[str, Any], count: int, length_s: float, detail: Detail
) -> dict[str, Any]:
    where = f"{OF_RUN} AND op = :op AND began_s IS NOT NULL"
    if count <= detail.points:
        rows = database.execute(
            f"SELECT began_s - :first, latency_s, {OUTCOME} FROM {where} ORDER BY began_s", run
        )
        return {
            "each": [
                [shortened(begin, 6), shortened(latency_s), outcome]
                for begin, latency_s, outcome in rows
            ]
        }
    bins = min(120, max(12, detail.points // 3))
    width = length_s / bins
    numbered = (
        f"SELECT min(CAST((began_s - :first) / :width AS INT), :last) AS bin, {OUTCOME} AS "
        f"outcome, latency_s FROM {where}"
    )
    rows = database.execute(
        "SELECT bin, sum(outcome = 0), sum(outcome = 1), sum(outcome = 2), avg(iif(outcome = 0, "
        f"latency_s, NULL)), max(iif(outcome = 0, latency_s, NULL)) FROM ({numbered}) GROUP BY "
        "bin ORDER BY bin",
        run | {"width": width, "last": bins - 1},
    )
    return {
        "width": width,
        "bins": [
            [*numbers, shortened(mean), shortened(slowest)] for *numbers, mean, slowest in rows
        ],
    }


def _quorums(
    database: sqlite3.Connection, run: dict[str, Any], count: int, length_s: float, bins: int
) -> dict[str, Any] | None:
    """Return the servers of the quorums of phase 1 of reads and writes.

    ``rows`` of `[bin, quorums, [share of each server]]`; None if the logs do not say the quorums.
    This project's logs have names. The published logs number the quorums: :func:`_members`.
    """
    width, step = length_s / bins, count // QUORUMS_MAX + 1
    samples = database.execute(
        f"SELECT min(CAST((began_s - :first) / :width AS INT), :last), more FROM {OF_RUN} AND op "
        "IN ('read', 'write') AND began_s IS NOT NULL AND line % :step = 0 AND more LIKE "
        "'%quorum_phase1%'",
        run | {"width": width, "last": bins - 1, "step": step},
    )
    seen: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    totals: dict[int, int] = defaultdict(int)
    for bin, more in samples:
        if members := _reported_members(json.loads(more), run):
            totals[bin] += 1
            for server in members:
                seen[bin][server] += 1
    names = sorted(
        {server for counts in seen.values() for server in counts},
        key=lambda name: (len(name), name),
    )[:SERVERS_SHOWN_MAX]
    rows = [
        [bin, totals[bin], [round(seen[bin][name] / totals[bin], 3) for name in names]]
        for bin in sorted(totals)
    ]
    return {"bins": bins, "width": width, "servers": names, "rows": rows} if rows else None


def _reported_members(more: dict[str, Any], run: dict[str, Any]) -> Sequence[str]:
    named, number = more.get("quorum_phase1_servers"), more.get("quorum_phase1")
    if isinstance(named, list):
        return [printable(str(server))[:40] for server in named[:SERVERS_SHOWN_MAX]]
    about, servers = more.get("params"), more.get("servers_no", run["servers"])
    about = about if isinstance(about, dict) else {}
    daps = more.get("dap_protocols")
    dap = about.get("dap_protocol") or (next(iter(daps), None) if isinstance(daps, dict) else "ABD")
    parity = about.get("m", run["m"])
    if not (
        isinstance(number, int) and isinstance(servers, int) and 1 <= servers <= SERVERS_SHOWN_MAX
    ):
        return ()
    if dap == "EC" and not (isinstance(parity, int) and 0 <= parity < servers):
        return ()
    return _members(
        number, servers, math.ceil((2 * servers - parity) / 2) if dap == "EC" else servers // 2 + 1
    )


@lru_cache(maxsize=20_000)
def _members(number: int, servers: int, size: int) -> Sequence[str]:
    """Return the servers of the quorum ``number``, or an empty list beyond the last quorum.

    The published logs count the quorums of ``size`` in lexicographic order.
    """
    if not 0 <= number < math.comb(servers, size):
        return ()
    members: list[str] = []
    for server in range(servers):
        with_it = (
            math.comb(servers - server - 1, size - len(members) - 1) if len(members) < size else 0
        )
        if number < with_it:
            members.append(f"server{server}")
        else:
            number -= with_it
    return members
