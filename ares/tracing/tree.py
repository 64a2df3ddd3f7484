"""Spans as a person reads them: a tree with bars, and one sentence that says where the time went."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ares.tracing.spans import CLIENT, INTERNAL, SERVER, Span

BAR = 30
DEPTH_SHOWN = 20
TEXT_MAX = 1000
NS_MAX = 2**63 - 1
_KINDS = {2: SERVER, 3: CLIENT}


def printable(text: str) -> str:
    """Without what a terminal would obey, and not endless."""
    return "".join(character if character.isprintable() else "?" for character in text[:TEXT_MAX])


def read_spans(lines: Iterable[bytes], bad: list[int]) -> Iterator[Span]:
    """The spans in lines of OTLP's JSON. The numbers of lines that are none, or were cut off, are added to ``bad``."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
            yield from [
                _span(span)
                for resource in told["resourceSpans"]
                for scope in resource["scopeSpans"]
                for span in scope["spans"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            bad.append(number)


def _span(told: dict[str, Any]) -> Span:
    trace, id, parent = (
        bytes.fromhex(told.get(key, "")) for key in ("traceId", "spanId", "parentSpanId")
    )
    began_ns, ended_ns = (int(told[key]) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    if not (0 <= began_ns <= NS_MAX and 0 <= ended_ns <= NS_MAX):
        raise ValueError("no time")
    attributes = {
        printable(str(attribute["key"])): _value(attribute["value"])
        for attribute in told.get("attributes", ())
    }
    status = told.get("status", {})
    error = printable(str(status.get("message") or "failed")) if status.get("code") == 2 else ""
    kind, name = _KINDS.get(told.get("kind", 0), INTERNAL), printable(str(told["name"]))
    return Span(name, trace, id, parent, began_ns, max(began_ns, ended_ns), kind, attributes, error)


def _value(told: dict[str, Any]) -> Any:
    [(kind, value)] = told.items()
    match kind:
        case "intValue":
            return int(value)
        case "doubleValue":
            return float(value)
        case "arrayValue":
            return tuple([_value(item) for item in value.get("values", ())])
    return printable(str(value))


class Tree:
    """The spans of one trace. ``roots``: those whose parent is not here."""

    def __init__(self, spans: Sequence[Span]) -> None:
        known = {span.id for span in spans}
        self._below: dict[bytes, list[Span]] = defaultdict(list)
        self.roots: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.began_ns, -span.ended_ns)):
            (self._below[span.parent] if span.parent in known else self.roots).append(span)
        if not self.roots:  # each says that it is part of another: a file that somebody made
            self.roots = [min(spans, key=lambda span: span.began_ns)]

    def lines(self) -> Iterator[str]:
        """A line for each span: its name, how long it took, a bar that shows when, and what is worth knowing."""
        for root in self.roots:
            rows = list(self.rows(root))
            width = max(2 * depth + len(span.name) for depth, span in rows)
            for depth, span in rows:
                name = "  " * depth + span.name
                yield f"{name:<{width}}  {_ms(span):>9}  {_bar(span, root)}  {remark(span)}".rstrip()

    def rows(self, root: Span, depth: int = 0) -> Iterator[tuple[int, Span]]:
        """The spans at and below ``root``, each after the one that it is part of, with how deep it is."""
        seen: set[bytes] = set()
        todo = [(depth, root)]
        while todo:
            depth, span = todo.pop()
            yield depth, span
            if span.id not in seen:
                seen.add(span.id)
                todo += [
                    (min(depth + 1, DEPTH_SHOWN), below) for below in reversed(self._below[span.id])
                ]

    def sentence(self) -> str:
        """Where the time of the first operation went."""
        root = self.roots[0]
        path, longest = self._longest(root)
        whole, part = root.ended_ns - root.began_ns, longest.ended_ns - longest.began_ns
        share = f"{part / 1e6:.1f} of {whole / 1e6:.1f} ms"
        if longest.name == "CommunicationLatency":
            return f"{share} went into {_of(path)}: {_waited(longest)}."
        return f"{share} went into {_of([*path, longest])}."

    def _longest(self, root: Span) -> tuple[list[Span], Span]:
        """The longest of what a client's time is made of, and what it is part of."""
        best: tuple[list[Span], Span] = ([], root)
        path: list[Span] = []
        for depth, span in self.rows(root):
            path = [*path[:depth], span]
            is_made_of_others = any(below.kind != SERVER for below in self._below[span.id])
            is_longer = (
                best[1] is root
                or span.ended_ns - span.began_ns > best[1].ended_ns - best[1].began_ns
            )
            if span.kind != SERVER and not is_made_of_others and is_longer:
                best = (path[:-1], span)
        return best


def _of(path: Sequence[Span]) -> str:
    return " of ".join(span.name for span in reversed(path[-3:])) or "the operation itself"


def _replies(round: Span) -> list[tuple[str, float, float | None]]:
    """Who answered, after how many milliseconds, and how many of these the server says it needed."""
    about: Any = round.attributes
    servers, times, spent = (about.get(f"ares.quorum{what}") for what in ("", ".ms", ".server_ms"))
    if not (isinstance(servers, list | tuple) and _are_numbers(times)):
        return []
    own = spent if _are_numbers(spent) and len(spent) == len(times) else [None] * len(times)
    return [
        (str(server), ms, needed) for server, ms, needed in zip(servers, times, own, strict=False)
    ]


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(
        isinstance(value, int | float) for value in values
    )


def _waited(round: Span) -> str:
    """Whom a round waited for, and who was not there."""
    replies, asked, needed = (
        _replies(round),
        round.attributes.get("ares.asked"),
        round.attributes.get("ares.needed"),
    )
    answered = {server for server, _, _ in replies}
    silent = (
        ", ".join(str(server) for server in asked if server not in answered)
        if isinstance(asked, list | tuple)
        else ""
    )
    if not isinstance(needed, int) or not 1 <= needed <= len(replies):
        return f"{len(replies)} answered of the {needed} needed" + (
            f"; no answer that counts came from {silent}" if silent else ""
        )
    server, ms, spent = replies[needed - 1]
    own = f", of which it had the request for {spent:.1f} ms" if spent is not None else ""
    return f"{server} made the quorum of {needed}, after {ms:.1f} ms{own}"


def _ms(span: Span) -> str:
    return f"{(span.ended_ns - span.began_ns) / 1e6:.2f} ms"


def _bar(span: Span, root: Span) -> str:
    whole = max(root.ended_ns - root.began_ns, 1)
    begin = min(max(round(BAR * (span.began_ns - root.began_ns) / whole), 0), BAR - 1)
    end = min(max(round(BAR * (span.ended_ns - root.began_ns) / whole), begin + 1), BAR)
    return " " * begin + "█" * (end - begin) + " " * (BAR - end)


def remark(span: Span) -> str:
    """What is worth knowing of a span: its error, or who answered and when."""
    about = span.attributes
    if span.error:
        return f"failed: {span.error}"
    if replies := _replies(span):
        waits = " ".join(f"{server} {ms:.1f}" for server, ms, _ in replies)
        again = (
            f"; sent again {about['ares.sent_again']} times" if about.get("ares.sent_again") else ""
        )
        return f"{about.get('ares.round', '')}: {waits}{again}"
    return str(about.get("ares.server", ""))
