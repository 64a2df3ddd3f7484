"""Points of load: the content of `load.json` in the directory of a run.

A generator of load writes this file instead of a line for each operation. The file is a line of
JSON. A point is the experience of clients of a store during some seconds; the clients waited for
answers (mode "closed"), or operations arrived at their own pace ("open").
"""

import sqlite3
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ares.tracing.tree import printable

LOAD_FILE = "load.json"
LOAD_POINTS_MAX = 1000
LOAD_POINTS_SHOWN_MAX = 60
"""Points of a run that a page shows."""

CURVE_STEPS_MAX = 400
"""Steps of a curve in a page; a longer curve is averaged."""

LOAD_NAME_MAX = 80
_Count = Annotated[int, Meta(ge=0, le=2**62)]
_Figure = Annotated[float, Meta(ge=0, le=1e18)]
_Name = Annotated[str, Meta(max_length=1000)]


class LoadLatency(Struct, frozen=True):
    """Latencies of successful operations of a kind. ``count``: their number.

    In a closed loop from the begin of an operation, in an open loop from its due time.
    """

    count: _Count
    p50_s: _Figure
    p99_s: _Figure
    mean_s: _Figure


class Spread(Struct, frozen=True):
    """A median and a 99th percentile of times."""

    p50_s: _Figure
    p99_s: _Figure


class LoadPoint(Struct, frozen=True, omit_defaults=True):
    """A point of load.

    Of an open loop: ``offered_per_s`` were due, waited ``wait`` until they began, and took
    ``service`` from the begin; ``missed`` never began. ``longest_pause_s``: the longest time
    without a finished operation of any client; after a fault, if the run has a fault. ``kept``: the
    throughput under the fault divided by the throughput before. ``curve``: operations a second for
    every 0.1 s. ``pauses``: (seconds from the begin, length). ``began``: ISO 8601, with a zone.
    ``server_cpu``: processors, by server. ``figures``: further figures, by name with unit.
    """

    clients: _Count
    mode: Literal["closed", "open"] = "closed"
    offered_per_s: _Figure | None = None
    read_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    seconds: _Figure | None = None
    per_s: _Figure | None = None
    read: LoadLatency | None = None
    write: LoadLatency | None = None
    wait: Spread | None = None
    service: Spread | None = None
    failed: _Count = 0
    missed: _Count = 0
    longest_pause_s: _Figure | None = None
    kept: _Figure | None = None
    curve: Annotated[list[_Figure], Meta(max_length=100_000)] | None = None
    server_cpu: dict[_Name, _Figure] | None = None
    figures: dict[_Name, _Figure] = {}
    began: str | None = None
    pauses: list[tuple[_Figure, _Figure]] | None = None


class LoadFile(Struct, frozen=True, omit_defaults=True):
    """The content of `load.json`.

    ``peer``: the store. ``workload``: in a few words. ``fault``: as in "a killed leader".
    ``wrong``: reads of values that no client wrote.
    """

    points: Annotated[list[LoadPoint], Meta(max_length=LOAD_POINTS_MAX)]
    peer: _Name = ""
    workload: _Name = ""
    fault: _Name | None = None
    wrong: list[str] = []


_decode = msgspec.json.Decoder(LoadFile).decode

_LOAD_FIELDS_SHOWN = (
    *("clients", "mode", "offered_per_s", "read_share", "seconds", "per_s"),
    *(
        "read_count",
        "read_p50_s",
        "read_p99_s",
        "read_mean_s",
        "write_count",
        "write_p50_s",
        "write_p99_s",
        "write_mean_s",
    ),
    *(
        "wait_p50_s",
        "wait_p99_s",
        "service_p50_s",
        "service_p99_s",
        "failed",
        "missed",
        "longest_pause_s",
        "kept",
    ),
)
"""Columns of the table `load_points` that a page shows."""


def read_points(line: bytes) -> list[tuple[Any, ...]]:
    """Return the rows of a file, each from its number on.

    Raises ValueError if the file has no points.
    """
    try:
        file = _decode(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no points of load: {error}") from error
    return [_row(number, file, point) for number, point in enumerate(file.points, 1)]


def _row(number: int, file: LoadFile, point: LoadPoint) -> tuple[Any, ...]:
    peer, workload, fault = (
        None if name is None else printable(name)[:LOAD_NAME_MAX]
        for name in (file.peer, file.workload, file.fault)
    )
    latencies = [
        (each.count, each.p50_s, each.p99_s, each.mean_s) if each else (0, None, None, None)
        for each in (point.read, point.write)
    ]
    spreads = [
        (each.p50_s, each.p99_s) if each else (None, None) for each in (point.wait, point.service)
    ]
    servers = (
        {"processors of all servers": sum(point.server_cpu.values())} if point.server_cpu else {}
    )
    figures = {
        printable(name)[:LOAD_NAME_MAX]: value for name, value in (point.figures | servers).items()
    }
    texts = [
        msgspec.json.encode(each).decode() if each else None for each in (point.curve, figures)
    ]
    asked = (
        point.clients,
        point.mode,
        point.offered_per_s,
        point.read_share,
        point.seconds,
        point.per_s,
    )
    rest = (point.failed, point.missed, point.longest_pause_s, point.kept, *texts)
    return (
        number,
        peer,
        workload,
        fault,
        len(file.wrong),
        *asked,
        *latencies[0],
        *latencies[1],
        *spreads[0],
        *spreads[1],
        *rest,
    )


def points_of(database: sqlite3.Connection, run: int) -> dict[str, Any] | None:
    """Return a page's data of the points of a run, or None for a run without points."""
    asked = (
        f"SELECT peer, workload, fault, wrong, {', '.join(_LOAD_FIELDS_SHOWN)}, curve, figures "
        "FROM load_points"
    )
    of_run = "file_id IN (SELECT id FROM files WHERE run_id = ? AND kind = 'load')"
    rows = database.execute(
        f"{asked} WHERE {of_run} ORDER BY file_id, number LIMIT ?", (run, LOAD_POINTS_SHOWN_MAX)
    ).fetchall()
    if not rows:
        return None
    points = []
    for _, _, _, _, *values, curve, figures in rows:
        point = {
            name: _shortened(value)
            for name, value in zip(_LOAD_FIELDS_SHOWN, values, strict=True)
            if value is not None
        }
        point |= {"curve": _thinned(msgspec.json.decode(curve))} if curve else {}
        points.append(
            point
            | {
                "figures": {
                    name: _shortened(value)
                    for name, value in msgspec.json.decode(figures or "{}").items()
                }
            }
        )
    peer, workload, fault, wrong = rows[0][:4]
    return {
        "peer": peer,
        "workload": workload or "load",
        "fault": fault,
        "wrong": wrong,
        "points": points,
    }


def _thinned(curve: list[float]) -> list[float]:
    """Return the seconds between two steps, followed by the steps."""
    group = -(-len(curve) // CURVE_STEPS_MAX)
    parts = [curve[begin : begin + group] for begin in range(0, len(curve), group)]
    return [0.1 * group, *(float(f"{sum(part) / len(part):.4g}") for part in parts)]


def _shortened(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value
