"""A few traces of a run, as rows for a page to draw.

Of each kind of operation: the slowest, the slowest failed, the median and the fastest trace.
"""

import itertools
import sqlite3
from typing import Any

import msgspec

from ares.tracing.spans import INTERNAL_KIND, SERVER_KIND, Span
from ares.tracing.tree import Tree, printable, remark

TRACE_SPANS_MAX = 150
"""Spans drawn of a trace: the longest."""

REMARK_MAX = 160
ATTRIBUTES_MAX = 20_000
"""Characters of a span's attributes; beyond, a span is drawn without attributes."""

TRACE_REASONS = ("slowest", "slowest failed", "median", "fastest")

_SPANS = "spans WHERE file_id IN (SELECT id FROM files WHERE run_id = :run)"

# A trace has the kind of its longest span: SQLite takes the remaining columns of a group from the
# row with the maximum.
_CHOSEN = f"""
WITH traces AS (
    SELECT trace, name, coalesce(error, '') <> '' AS failed, max(ended_ns - began_ns) AS ns,
        count(*) AS spans FROM {_SPANS} GROUP BY trace),
ranked AS (SELECT *, row_number() OVER (PARTITION BY name ORDER BY ns, trace) AS place,
    count(*) OVER (PARTITION BY name) AS number,
    row_number() OVER (PARTITION BY name, failed ORDER BY ns DESC) AS of_its_outcome FROM traces)
SELECT trace, name, ns, spans, number,
    CASE WHEN place = number THEN 0 WHEN failed AND of_its_outcome = 1 THEN 1
        WHEN place = (number + 1) / 2 THEN 2 WHEN place = 1 THEN 3 END AS reason
FROM ranked WHERE reason IS NOT NULL ORDER BY reason, number DESC, name LIMIT :most
"""


def choose(database: sqlite3.Connection, run_id: int, most: int) -> dict[str, Any]:
    """Return ``traces``, at most ``most``, and ``traces_of``, the number of the run's traces.

    A trace has ``kind`` (the name of the operation), ``why`` (the reason of the choice), ``of``
    (the number of traces of the kind), ``ms``, ``sentence``, ``left`` (spans missing in ``rows``)
    and ``rows`` of `[depth, name, begin and length in ms, whose, remark]`.
    """
    [(whole,)] = database.execute(
        f"SELECT count(DISTINCT trace) FROM {_SPANS}", {"run": run_id}
    ).fetchall()
    chosen = database.execute(_CHOSEN, {"run": run_id, "most": most}).fetchall() if whole else []
    traces = [
        {
            "kind": printable(str(name))[:80],
            "why": TRACE_REASONS[reason],
            "of": number,
            "ms": ns / 1e6,
            **_drawn(database, run_id, trace, spans),
        }
        for trace, name, ns, spans, number, reason in sorted(
            chosen, key=lambda row: (str(row[1]), row[5])
        )
    ]
    return {"traces": traces, "traces_of": whole}


def _drawn(database: sqlite3.Connection, run_id: int, trace: bytes, count: int) -> dict[str, Any]:
    rows = database.execute(
        "SELECT id, parent, name, began_ns, ended_ns, kind, iif(length(attributes) <= "
        f"{ATTRIBUTES_MAX}, attributes, NULL), error FROM {_SPANS} AND trace IS :trace ORDER BY "
        "ended_ns - began_ns DESC LIMIT :most",
        {"run": run_id, "trace": trace, "most": TRACE_SPANS_MAX},
    )
    spans = [
        Span(
            printable(str(name)),
            trace,
            id,
            parent or b"",
            began_ns,
            ended_ns,
            kind or INTERNAL_KIND,
            _attributes(attributes),
            error or "",
        )
        for id, parent, name, began_ns, ended_ns, kind, attributes, error in rows
    ]
    tree = Tree(spans)
    begin = min(span.began_ns for span in spans)
    drawn: list[list[Any]] = []
    for depth, span in itertools.chain.from_iterable(map(tree.rows, tree.roots)):
        above = next((row for row in reversed(drawn) if row[0] < depth), None)
        kind_shown = (
            "failed"
            if span.error
            else "server"
            if span.kind == SERVER_KIND or (above and above[4] == "server")
            else "client"
        )
        times = ((span.began_ns - begin) / 1e6, (span.ended_ns - span.began_ns) / 1e6)
        drawn.append([depth, span.name[:80], *times, kind_shown, remark(span)[:REMARK_MAX]])
    return {
        "sentence": tree.sentence()[: 2 * REMARK_MAX],
        "left": count - len(spans),
        "rows": drawn[:TRACE_SPANS_MAX],
    }


def _attributes(text: str | None) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}
