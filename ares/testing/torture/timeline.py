"""A page for a person, with all clients and servers over time.

timeline.html beside this file has the style and the few lines of JavaScript. Data goes into the
page as JSON; times are milliseconds since the run began.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import msgspec

from ares.testing.torture.records import RecordedOperation, Seen, Timeline
from ares.testing.torture.verdict import Summary, place_of
from ares.testing.verify.history import Event

TIMELINE_KINDS = ("read", "write", "delete", "append", "tail", "follow", "trim")
OPERATION_OUTCOMES = ("ok", "failed", "unknown", "abandoned")
SERVER_STATES = ("up", "dead", "stopped", "partitioned")
FINDINGS_MAX = 50
SHOWN_ENTRIES_MAX = 3


def render(records: Sequence[RecordedOperation[Seen]], timeline: Timeline, summary: Summary) -> str:
    """Return the page: complete, with no loads from elsewhere."""
    end = max([timeline.end, *(record.ended for record in records)])
    data = {
        "end": _ms(end),
        "heading": f"seed {summary.seed}: {summary.verdict}",
        "ok": summary.ok,
        "facts": _facts(summary),
        "findings": [
            *summary.violations,
            *summary.problems,
            *summary.liveness_failures,
            *summary.undecided,
        ][:FINDINGS_MAX],
        "kinds": TIMELINE_KINDS,
        "outcomes": OPERATION_OUTCOMES,
        "states": SERVER_STATES,
        **_clients(records),
        **_processes(timeline),
        "configurations": _configurations(timeline),
        "marks": [
            [_ms(mark.at), mark.kind, mark.target, mark.detail, int(mark.fault)]
            for mark in timeline.marks
        ],
    }
    page = files(__package__).joinpath("timeline.html").read_text(encoding="utf-8")
    return page.replace("/*DATA*/", msgspec.json.encode(data).decode().replace("<", "\\u003c"))


def _clients(records: Sequence[RecordedOperation[Seen]]) -> dict[str, Any]:
    """Return ``operations``: for each client, a list of operations in order.

    An operation is ``[begin, length, kind, outcome, key, value, error]``; the last two are left out
    if empty.
    """
    names = sorted({record.event.client for record in records})
    operations: dict[str, list[list[Any]]] = {name: [] for name in names}
    for record in records:
        event = record.event
        start = _ms(event.invoked)
        outcome = "abandoned" if record.abandoned else event.outcome
        bar = [
            start,
            round(_ms(record.ended) - start, 2),
            TIMELINE_KINDS.index(event.operation),
            OPERATION_OUTCOMES.index(outcome),
            place_of(event),
        ]
        value = (
            event.value
            if isinstance(event, Event)
            else ", ".join(event.entries[:SHOWN_ENTRIES_MAX]) or None
        )
        bar += [value or "", record.error] if record.error else [value] if value is not None else []
        operations[event.client].append(bar)
    return {"clients": names, "operations": list(operations.values())}


def _processes(timeline: Timeline) -> dict[str, Any]:
    """Return ``spells``: for each process, ``[begin, end, state, life]`` in order."""
    names = sorted(
        {spell.target for spell in timeline.spells},
        key=lambda name: (not name.startswith("s"), len(name), name),
    )
    spells: dict[str, list[list[Any]]] = {name: [] for name in names}
    for spell in timeline.spells:
        spells[spell.target].append(
            [_ms(spell.begin), _ms(spell.end), SERVER_STATES.index(spell.state), spell.life]
        )
    return {"processes": names, "spells": list(spells.values())}


def _configurations(timeline: Timeline) -> list[list[Any]]:
    """Return ``[wished or null, finalized, until, index, text]`` for each configuration."""
    reigns = timeline.reigns
    ends = [*(reign.finalized for reign in reigns[1:]), timeline.end]
    return [
        [
            None if reign.wished is None else _ms(reign.wished),
            _ms(reign.finalized),
            _ms(until),
            reign.index,
            reign.text,
        ]
        for reign, until in zip(reigns, ends, strict=True)
    ]


def _facts(summary: Summary) -> str:
    operations = sum(sum(outcomes.values()) for outcomes in summary.operations.values())
    done = summary.reconfigurations["done"]
    return (
        f"{summary.seconds:g} s · {operations} operations · {sum(summary.faults.values())} "
        f"faults · {done} reconfigurations done · longest pause {summary.longest_pause_s:g} s"
    )


def _ms(at: float) -> float:
    return round(1000 * at, 2)
