"""Spans for a person: a tree whose times add up, and a sentence about the largest share."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ares.engine.phases import CHAIN, ROUND
from ares.tracing.round_waits import RoundWait, chain_sentence
from ares.tracing.spans import CLIENT_KIND, INTERNAL_KIND, SERVER_KIND, Span

SPAN_BAR_COLUMNS = 30
DEPTH_SHOWN = 20
SPAN_TEXT_MAX = 1000
NS_MAX = 2**63 - 1
_KIND_OF_NUMBER = {2: SERVER_KIND, 3: CLIENT_KIND}

STAGE = "stage"
"""Kind of a span made to show a part of a round's time."""

GAP_NAME = "not accounted for"
GAP_REASON = "this process did other work, or waited for a processor"
GAP_SHARE = 0.01
"""Share of the operation above which a gap has a line."""

TREE_LEGEND = (
    "the times: whole, and without the parts that have a line below; █ critical path, ░ beside it"
)


def printable(text: str) -> str:
    """Return at most SPAN_TEXT_MAX characters of `text`, without control characters."""
    return "".join(
        character if character.isprintable() else "?" for character in text[:SPAN_TEXT_MAX]
    )


def read_spans(lines: Iterable[bytes], bad: list[int]) -> Iterator[Span]:
    """Read spans from lines of OTLP's JSON; add the numbers of unreadable lines to ``bad``."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            yield from [
                _span(span)
                for resource in content["resourceSpans"]
                for scope in resource["scopeSpans"]
                for span in scope["spans"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            bad.append(number)


def _span(content: dict[str, Any]) -> Span:
    trace, id, parent = (
        bytes.fromhex(content.get(key, "")) for key in ("traceId", "spanId", "parentSpanId")
    )
    began_ns, ended_ns = (int(content[key]) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    if not (0 <= began_ns <= NS_MAX and 0 <= ended_ns <= NS_MAX):
        raise ValueError("no time")
    attributes = {
        printable(str(attribute["key"])): _value(attribute["value"])
        for attribute in content.get("attributes", ())
    }
    status = content.get("status", {})
    error = printable(str(status.get("message") or "failed")) if status.get("code") == 2 else ""
    kind, name = (
        _KIND_OF_NUMBER.get(content.get("kind", 0), INTERNAL_KIND),
        printable(str(content["name"])),
    )
    return Span(name, trace, id, parent, began_ns, max(began_ns, ended_ns), kind, attributes, error)


def _value(content: dict[str, Any]) -> Any:
    [(kind, value)] = content.items()
    match kind:
        case "intValue":
            return int(value)
        case "doubleValue":
            return float(value)
        case "arrayValue":
            return tuple([_value(item) for item in value.get("values", ())])
    return printable(str(value))


class Tree:
    """The spans of a trace. ``roots``: the spans whose parent is not present."""

    def __init__(self, spans: Sequence[Span]) -> None:
        known = {span.id for span in spans}
        self._below: dict[bytes, list[Span]] = defaultdict(list)
        self.roots: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.began_ns, -span.ended_ns)):
            (self._below[span.parent] if span.parent in known else self.roots).append(span)
        if not self.roots:  # each span names a parent: a file made by hand
            self.roots = [min(spans, key=lambda span: span.began_ns)]

    def lines(self) -> Iterator[str]:
        """Draw the spans, and the time between them: a line for each.

        A line has the name, the whole time, the time without a line below, and a bar of the period:
        ``█`` on the critical path, ``░`` beside it.
        """
        for root in self.roots:
            full = self._with_gaps(root)
            rows = list(_walk(root, full))
            path = _critical(root, full)
            width = max(2 * depth + len(span.name) for depth, span in rows)
            for depth, span in rows:
                name = "  " * depth + span.name
                own_ns = _length(span) - _covered_ns(span, _inside(span, full))
                times = f"{_ms(_length(span)):>9}  {_ms(own_ns):>9}"
                bar = _bar(span, root, "█" if span.id in path else "░")
                yield f"{name:<{width}}  {times}  {bar}  {remark(span)}".rstrip()

    def rows(self, root: Span) -> Iterator[tuple[int, Span]]:
        """Return the spans at and below ``root``, each after its parent, with its depth."""
        return _walk(root, self._below)

    def _with_gaps(self, root: Span) -> dict[bytes, list[Span]]:
        """Return the spans by parent, with spans for the waits of rounds and for longer gaps.

        The client's time comes first, then the work of servers in it.
        """
        full: dict[bytes, list[Span]] = defaultdict(list)
        for _, span in self.rows(root):
            if span.id in full:
                continue
            stages = list(_stages(span))
            below = full[span.id] = [*stages, *self._below[span.id]]
            if span.kind != SERVER_KIND and any(each.kind != SERVER_KIND for each in below):
                below += _gaps(span, below, (root.ended_ns - root.began_ns) * GAP_SHARE)
                below.sort(key=lambda each: (each.kind == SERVER_KIND, each.began_ns))
        return full

    def sentence(self) -> str:
        """Name the part with the largest share of the first operation's time."""
        root = self.roots[0]
        full = self._with_gaps(root)
        path, longest = self._longest(root, full)
        share = f"{_length(longest) / 1e6:.1f} of {_length(root) / 1e6:.1f} ms"
        if longest.name == ROUND:
            return f"{share} went into {_of(path)}: {RoundWait(longest).sentence()}."
        if longest.name == CHAIN:
            return f"{share} went into {_of(path)}: it waited for {chain_sentence(longest)}."
        if longest.name == GAP_NAME:
            return f"{share} are not accounted for, in {_of(path)}: {GAP_REASON}."
        return f"{share} went into {_of([*path, longest])}."

    def _longest(self, root: Span, full: Mapping[bytes, Sequence[Span]]) -> tuple[list[Span], Span]:
        """Return the longest part of the client's time, and the spans around it."""
        best: tuple[list[Span], Span] = ([], root)
        path: list[Span] = []
        for depth, span in _walk(root, full):
            path = [*path[:depth], span]
            is_made_of_others = any(
                below.kind not in (SERVER_KIND, STAGE) for below in self._below[span.id]
            )
            is_longer = best[1] is root or _length(span) > _length(best[1])
            if span.kind not in (SERVER_KIND, STAGE) and not is_made_of_others and is_longer:
                best = (path[:-1], span)
        return best


def _walk(root: Span, below: Mapping[bytes, Sequence[Span]]) -> Iterator[tuple[int, Span]]:
    seen: set[bytes] = set()
    todo = [(0, root)]
    while todo:
        depth, span = todo.pop()
        yield depth, span
        if span.id not in seen:
            seen.add(span.id)
            inside = reversed(below.get(span.id, ()))
            todo += [(min(depth + 1, DEPTH_SHOWN), each) for each in inside]


def _stages(span: Span) -> Iterator[Span]:
    """Make spans for the parts of a round's time."""
    if span.name == ROUND:
        for number, (name, began_ms, ended_ms) in enumerate(RoundWait(span).stages()):
            began_ns, ended_ns = (
                span.began_ns + int(1e6 * min(max(ms, 0.0), _length(span) / 1e6))
                for ms in (began_ms, ended_ms)
            )
            yield _made(name, span, b"stage%d" % number, (began_ns, ended_ns), STAGE)


def _gaps(span: Span, below: Sequence[Span], least_ns: float) -> list[Span]:
    """Make spans for the gaps of more than `least_ns` between the spans below."""
    gaps: list[Span] = []
    at_ns = span.began_ns
    for began_ns, ended_ns in [
        *sorted((each.began_ns, each.ended_ns) for each in below if each.kind != SERVER_KIND),
        (span.ended_ns, span.ended_ns),
    ]:
        if min(began_ns, span.ended_ns) - at_ns > least_ns:
            gaps.append(
                _made(GAP_NAME, span, b"gap%d" % len(gaps), (at_ns, began_ns), INTERNAL_KIND)
            )
        at_ns = max(at_ns, ended_ns)
    return gaps


def _made(name: str, span: Span, id: bytes, times: tuple[int, int], kind: str) -> Span:
    return Span(name, span.trace, span.id + id, span.id, *times, kind, {})


def _inside(span: Span, full: Mapping[bytes, Sequence[Span]]) -> list[Span]:
    """Return the spans below that are part of its time. Servers have other clocks."""
    return [
        each
        for each in full.get(span.id, ())
        if span.kind == SERVER_KIND or each.kind != SERVER_KIND
    ]


def _covered_ns(span: Span, below: Iterable[Span]) -> int:
    """Return the nanoseconds of `span` covered by the spans `below` together."""
    covered, at_ns = 0, span.began_ns
    for each in sorted(below, key=lambda each: each.began_ns):
        end_ns = min(each.ended_ns, span.ended_ns)
        covered += max(end_ns - max(each.began_ns, at_ns), 0)
        at_ns = max(at_ns, end_ns)
    return covered


def _critical(root: Span, full: Mapping[bytes, Sequence[Span]]) -> set[bytes]:
    """Return the ids of the spans without which the operation would have ended earlier.

    The path runs from the end of a span back: the inner span that ended last, and likewise before
    the start of this span. Among a round's servers: the server whose reply ended the round.
    """
    path: set[bytes] = set()
    todo = [root]
    while todo:
        span = todo.pop()
        if span.id in path:
            continue
        path.add(span.id)
        until_ns, inside = span.ended_ns, _inside(span, full)
        for each in sorted(inside, key=lambda each: each.ended_ns, reverse=True):
            if each.ended_ns <= until_ns:
                until_ns = each.began_ns
                todo.append(each)
        last = RoundWait(span).last if span.name == ROUND else None
        todo += [
            each
            for each in full.get(span.id, ())
            if last is not None
            and each.kind == SERVER_KIND
            and each.attributes.get("ares.server") == last.server
        ]
    return path


def _of(path: Sequence[Span]) -> str:
    return " of ".join(span.name for span in reversed(path[-3:])) or "the operation itself"


def _length(span: Span) -> int:
    return span.ended_ns - span.began_ns


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.2f} ms"


def _bar(span: Span, root: Span, mark: str) -> str:
    whole = max(_length(root), 1)
    begin = min(
        max(round(SPAN_BAR_COLUMNS * (span.began_ns - root.began_ns) / whole), 0),
        SPAN_BAR_COLUMNS - 1,
    )
    end = min(
        max(round(SPAN_BAR_COLUMNS * (span.ended_ns - root.began_ns) / whole), begin + 1),
        SPAN_BAR_COLUMNS,
    )
    return " " * begin + mark * (end - begin) + " " * (SPAN_BAR_COLUMNS - end)


def remark(span: Span) -> str:
    """Return the error of a span, and the servers of a round with the times of their replies."""
    about = RoundWait(span).remark() if span.name == ROUND else ""
    if span.error:
        return f"failed: {span.error}" + (f"; {about}" if about else "")
    return about or str(span.attributes.get("ares.server", ""))
