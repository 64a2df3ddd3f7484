"""Spans as OpenTelemetry's SDK has them, for its exporters; and the span of whoever calls ares. The only module that imports it."""

import logging
import os
import sys
from collections.abc import Iterable

from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from ares.model.errors import BadInput
from ares.model.version import VERSION
from ares.tracing.spans import CLIENT, SERVER, SITE, Span
from ares.tracing.tracer import THREAD, Export

_KINDS = {SERVER: SpanKind.SERVER, CLIENT: SpanKind.CLIENT}
_SCOPE = InstrumentationScope("ares", VERSION)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class NotExported(Exception):
    """The collector did not take them."""


class _Hushed(logging.Filter):
    """Keeps what an exporter logs of each of its tries in the tracer's threads from the program's log: the tracer tells of it once.

    ``said``: the last of that.
    """

    said = "it did not take them"

    def filter(self, record: logging.LogRecord) -> bool:
        if not (record.threadName or "").startswith(THREAD):
            return True
        self.said = record.getMessage().partition(", retrying in")[0]
        return False


def sdk_export(exporter: str, service: str, site: str | None) -> Export:
    """``exporter``: ``otlp`` or ``console``; the rest of OpenTelemetry's variables are read by the exporter itself. Raises :class:`BadInput`."""
    resource = Resource.create(
        {"service.name": service, "service.version": VERSION, **({SITE: site} if site else {})}
    )
    to = ConsoleSpanExporter(out=sys.stderr) if exporter == "console" else _otlp()
    hushed = _Hushed()
    for module in {kind.__module__ for kind in type(to).__mro__}:
        logging.getLogger(module).addFilter(hushed)

    def export(spans: Iterable[Span]) -> None:
        if to.export([_readable(span, resource) for span in spans]) is not SpanExportResult.SUCCESS:
            raise NotExported(hushed.said)

    return export


def _otlp() -> SpanExporter:
    protocol = (
        os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        return Http()
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
        kind=_KINDS.get(span.kind, SpanKind.INTERNAL),
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
        start_time=span.began_ns,
        end_time=span.ended_ns,
        instrumentation_scope=_SCOPE,
    )


def _context(trace: bytes, id: bytes) -> SpanContext:
    return SpanContext(int.from_bytes(trace, "big"), int.from_bytes(id, "big"), False, _SAMPLED)


def current_span() -> tuple[bytes, bytes, bool] | None:
    """The span around a call of ares: the ids of its trace and its own, and whether it is sampled."""
    if not get_current():  # most callers have none, and that is known at once
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return (
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        context.trace_flags.sampled,
    )
