"""Spans as a person reads them: a tree with bars, and one sentence that says where the time went."""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ares.model.errors import BadInput
from ares.tracing.spans import CLIENT, INTERNAL, SERVER, Span

BAR = 30
_KINDS = {2: SERVER, 3: CLIENT}


def read_spans(lines: Iterable[bytes], where: str) -> Iterator[Span]:
    """The spans in lines of OTLP's JSON. Raises :class:`BadInput` for a line that is none; a last one that was cut off is passed over."""
    previous = b""
    for number, line in enumerate(lines, 1):
        if previous:
            raise BadInput(f"{where}, line {number - 1}: not a line of a trace, as OTEL_TRACES_EXPORTER=file:PATH writes them")
        try:
            told = json.loads(line)
            spans = [_span(span) for resource in told["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            previous = line
            continue
        yield from spans
    if previous.endswith(b"\n"):
        raise BadInput(f"{where}: the last line is no line of a trace, as OTEL_TRACES_EXPORTER=file:PATH writes them")


def _span(told: dict[str, Any]) -> Span:
    trace, id, parent = (bytes.fromhex(told.get(key, "")) for key in ("traceId", "spanId", "parentSpanId"))
    began_ns, ended_ns = (int(told[key]) for key in ("startTimeUnixNano", "endTimeUnixNano"))
    attributes = {attribute["key"]: _value(attribute["value"]) for attribute in told.get("attributes", ())}
    status = told.get("status", {})
    error = (status.get("message") or "failed") if status.get("code") == 2 else ""
    return Span(str(told["name"]), trace, id, parent, began_ns, ended_ns, _KINDS.get(told.get("kind", 0), INTERNAL), attributes, error)


def _value(told: dict[str, Any]) -> Any:
    [(kind, value)] = told.items()
    match kind:
        case "intValue":
            return int(value)
        case "arrayValue":
            return [_value(item) for item in value.get("values", ())]
        case "bytesValue":
            return base64.b64decode(value)
    return value


class Tree:
    """The spans of one trace. ``roots``: those whose parent is not here."""

    def __init__(self, spans: Sequence[Span]) -> None:
        known = {span.id for span in spans}
        self._below: dict[bytes, list[Span]] = defaultdict(list)
        self.roots: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.began_ns, -span.ended_ns)):
            (self._below[span.parent] if span.parent in known else self.roots).append(span)

    def lines(self) -> Iterator[str]:
        """A line for each span: its name, how long it took, a bar that shows when, and what is worth knowing."""
        for root in self.roots:
            rows = list(self._rows(root, 0))
            width = max(2 * depth + len(span.name) for depth, span in rows)
            for depth, span in rows:
                name = "  " * depth + span.name
                yield f"{name:<{width}}  {_ms(span):>9}  {_bar(span, root)}  {_remark(span)}".rstrip()

    def _rows(self, span: Span, depth: int) -> Iterator[tuple[int, Span]]:
        yield depth, span
        for below in self._below[span.id]:
            yield from self._rows(below, depth + 1)

    def sentence(self) -> str:
        """Where the time of the first operation went."""
        root = self.roots[0]
        path, longest = self._longest(root)
        whole, part = root.ended_ns - root.began_ns, longest.ended_ns - longest.began_ns
        share = f"{part / 1e6:.1f} of {whole / 1e6:.1f} ms"
        if longest.name == "CommunicationLatency":
            return f"{share} went into {_of(path)}: {_waited(longest, self._below[longest.id])}."
        return f"{share} went into {_of([*path, longest])}."

    def _longest(self, root: Span) -> tuple[list[Span], Span]:
        """The longest of what a client's time is made of, and what it is part of."""
        best: tuple[list[Span], Span] = ([], root)
        todo: list[tuple[list[Span], Span]] = [([], root)]
        length = -1
        while todo:
            path, span = todo.pop()
            below = [child for child in self._below[span.id] if child.kind != SERVER]
            if not below and span.ended_ns - span.began_ns > length:
                best, length = (path, span), span.ended_ns - span.began_ns
            todo += [([*path, span], child) for child in below]
        return best


def _of(path: Sequence[Span]) -> str:
    return " of ".join(span.name for span in reversed(path[-3:])) or "the operation itself"


def _waited(round: Span, servers: Sequence[Span]) -> str:
    """Whom a round waited for, and who was not there."""
    about = round.attributes
    quorum, times, asked = about.get("ares.quorum", []), about.get("ares.quorum.ms", []), about.get("ares.asked", [])
    silent = [server for server in asked if server not in quorum]
    if not quorum:
        return f"nobody answered of {', '.join(asked)}"
    needed = min(about.get("ares.needed", len(quorum)), len(quorum))
    last, spent = quorum[needed - 1], about.get("ares.quorum.server_ms", [])
    told = f"{last} made the quorum of {needed}, after {times[needed - 1]:.1f} ms"
    if len(spent) >= needed:
        told += f", of which it worked {spent[needed - 1]:.1f} ms"
        commit = next((span for span in servers if span.name == "Commit" and span.attributes.get("ares.server") == last), None)
        told += f" ({_ms(commit)} for its disk)" if commit is not None else ""
    if silent and len(quorum) < about.get("ares.needed", 0):
        told += f"; {', '.join(silent)} did not answer"
    return told


def _ms(span: Span) -> str:
    return f"{(span.ended_ns - span.began_ns) / 1e6:.2f} ms"


def _bar(span: Span, root: Span) -> str:
    whole = max(root.ended_ns - root.began_ns, 1)
    begin = min(max(round(BAR * (span.began_ns - root.began_ns) / whole), 0), BAR - 1)
    end = min(max(round(BAR * (span.ended_ns - root.began_ns) / whole), begin + 1), BAR)
    return " " * begin + "█" * (end - begin) + " " * (BAR - end)


def _remark(span: Span) -> str:
    about = span.attributes
    if span.error:
        return f"failed: {span.error}"
    if "ares.quorum" in about:
        waits = " ".join(f"{server} {ms:.1f}" for server, ms in zip(about["ares.quorum"], about["ares.quorum.ms"], strict=True))
        again = f"; sent again {about['ares.sent_again']} times" if about.get("ares.sent_again") else ""
        return f"{about.get('ares.round', '')}: {waits}{again}"
    return str(about.get("ares.server", ""))
