"""Spans of OpenTelemetry's SDK, for its exporters.

The only module that imports the SDK; ares/tracing/callers_span.py imports the API.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from requests import Session

from ares.model.errors import BadInput
from ares.platform.release import version
from ares.tracing.collector_replies import BoundedReplies
from ares.tracing.spans import CLIENT_KIND, SERVER_KIND, SITE, Span
from ares.tracing.tracer import THREAD, Export

_SPAN_KINDS = {SERVER_KIND: SpanKind.SERVER, CLIENT_KIND: SpanKind.CLIENT}
_SCOPE = InstrumentationScope("ares", version())
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_PROVIDER = "CREDENTIAL_PROVIDER"
"""End of the names of the variables by which OpenTelemetry gets a session from a package."""


class NotExported(Exception):
    """The collector did not take the spans."""


class _Hushed(logging.Filter):
    """A filter for an exporter's log lines about repeated attempts in the tracer's threads.

    The tracer reports them once. ``reason``: the last such line.
    """

    reason = "it did not take them"

    def filter(self, record: logging.LogRecord) -> bool:
        if not (record.threadName or "").startswith(THREAD):
            return True
        self.reason = record.getMessage().partition(", retrying in")[0]
        return False


def sdk_export(exporter: str, service: str, site: str | None) -> tuple[Export, Callable[[], None]]:
    """Return the export of the SDK's exporter, and a function that ends its tries.

    ``exporter``: ``otlp`` or ``console``; the rest of OpenTelemetry's variables are read by the
    exporter itself. Raises :class:`BadInput`.
    """
    resource = Resource.create(
        {"service.name": service, "service.version": version(), **({SITE: site} if site else {})}
    )
    replies = BoundedReplies()
    to = ConsoleSpanExporter(out=sys.stderr) if exporter == "console" else _otlp(replies)
    hushed = _Hushed()
    for module in {kind.__module__ for kind in type(to).__mro__}:
        logging.getLogger(module).addFilter(hushed)

    def export(spans: Iterable[Span]) -> None:
        replies.refused = ""
        done = to.export([_readable(span, resource) for span in spans])
        if done is not SpanExportResult.SUCCESS or replies.refused:
            raise NotExported(replies.refused or hushed.reason)

    return export, to.shutdown


def _otlp(replies: BoundedReplies) -> SpanExporter:
    """Return the exporter of the variables; over HTTP, ``replies`` reads the replies."""
    protocol = (
        os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        if any(name.startswith("OTEL_") and name.endswith(_PROVIDER) for name in os.environ):
            return Http()
        session = Session()
        session.mount("http://", replies)
        session.mount("https://", replies)
        return Http(session=session)
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        return Grpc()
    raise BadInput(
        f"OTEL_EXPORTER_OTLP_PROTOCOL: {protocol!r} is not spoken here; http/protobuf and grpc are"
    )


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.id),
        parent=_context(span.trace, span.parent) if span.parent else None,
        resource=resource,
        attributes=span.attributes,
        kind=_SPAN_KINDS.get(span.kind, SpanKind.INTERNAL),
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.began_ns,
        end_time=span.ended_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(trace: bytes, id: bytes) -> SpanContext:
    return SpanContext(int.from_bytes(trace, "big"), int.from_bytes(id, "big"), False, _SAMPLED)
