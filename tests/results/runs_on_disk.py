"""Directories of runs for tests of results: operation logs, faults and traces.

The files are in the form that programs write.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from .operation_logs import write

BEGIN = datetime(2026, 11, 22, 10, tzinfo=UTC)


def line(
    operation: str, client: str, begin_s: float, latency_s: float, outcome: str = "ok", **more: Any
) -> dict[str, Any]:
    """Return a line of an operation log."""
    return {
        "asctime": (BEGIN + timedelta(seconds=begin_s + latency_s)).isoformat(),
        "message": f"{'RECONFIG' if operation == 'recon' else operation.upper()}-COMPLETE-DSMM",
        "status": "SUCCESS" if outcome == "ok" else "UNSUCCESS",
        "outcome": outcome,
        "clientID": client,
        "op_latency_start": begin_s,
        "op_latency_end": begin_s + latency_s,
        "op_latency": latency_s,
        **(
            {
                "phase1_latency": 0.4 * latency_s,
                "phase2_latency": 0.5 * latency_s,
                "read_config_latency_total": 0.1 * latency_s,
            }
            if operation != "recon"
            else {}
        ),
        **more,
    }


def write_run(
    directory: Path,
    lines: list[dict[str, Any]],
    events: Sequence[dict[str, Any]] = (),
    spans: Sequence[object] = (),
    **about: Any,
) -> None:
    """Write a run; ``about`` is the content of run.json.

    An event has ``at`` seconds; a span is in OTLP's form.
    """
    write(directory / "run.json", about)
    write(directory / "operations.log", *lines)
    write(
        directory / "events.jsonl",
        *(
            {"time": (BEGIN + timedelta(seconds=event["at"])).isoformat(), **event}
            for event in events
        ),
    )
    write(
        directory / "t.otlp.jsonl",
        *([{"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}] if spans else []),
    )


def span(
    ids: tuple[int, int, int],
    name: str,
    begin_ms: float,
    length_ms: float,
    kind: int = 1,
    error: str = "",
) -> dict[str, Any]:
    """Return a span in OTLP's form.

    ``ids`` are the trace's, the span's and the parent's, 0 without a parent. ``kind`` 2 is a
    server's.
    """
    trace, id, parent = ids
    begin_ns = int(1e6 * begin_ms) + 10**18
    return {
        "traceId": f"{trace:032x}",
        "spanId": f"{id:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(begin_ns),
        "endTimeUnixNano": str(begin_ns + int(1e6 * length_ms)),
        **({"status": {"code": 2, "message": error}} if error else {}),
    }


def some_runs(top: Path) -> None:
    """Write runs of two algorithms at two sizes, with two writers and two readers.

    A run has failures, faults, reconfigurations and traces.
    """
    chance = random.Random(14)
    for algorithm, size in [
        (algorithm, size) for algorithm in ("AresABD", "AresEC") for size in (2**16, 2**20)
    ]:
        first = (algorithm, size) == ("AresEC", 2**16)
        lines = [
            line(
                op,
                f"{op[0]}{client}",
                place + chance.random() / 2,
                chance.lognormvariate(-3, 0.5),
                quorum_phase1_servers=["s0", "s1"] if place < 10 else ["s0", "s2"],
            )
            for op in ("read", "write")
            for client in (1, 2)
            for place in range(20)
        ]
        if first:
            lines += [
                line("recon", "g1", 5.0, 1.5),
                line("read", "r1", 10.2, 5.0, "failed"),
                line("write", "w1", 10.3, 5.0, "unknown"),
            ]
        events = (
            [
                {"at": 10.0, "event": "crash", "server": "s1", "detail": "SIGKILL"},
                {"at": 15.0, "event": "join", "server": "s3"},
            ]
            if first
            else []
        )
        spans = [
            *(
                span((1, 1, 0), "read", 0, 30),
                span((1, 2, 1), "Phase1", 1, 20),
                span((1, 3, 2), "GetData", 2, 8, kind=2),
                span((1, 4, 3), "Commit", 3, 4),
            ),
            *(span((trace, 10 * trace, 0), "read", 0, trace) for trace in range(2, 7)),
            *(
                span((7, 70, 0), "write", 0, 9),
                span((8, 80, 0), "write", 0, 5, error="Unavailable: too few answered"),
            ),
        ]
        write_run(
            top / f"{algorithm}_{size}",
            lines,
            events,
            spans if first else [],
            scenario="object_size",
            algorithm=algorithm,
            servers=3,
            writers=2,
            readers=2,
            object_size=size,
            iteration=1,
            parameters={"delay_ms": 20},
            provenance={"commit": "0123456789", "seed": 14},
        )
