"""Where spans go: OTLP over HTTP or gRPC, or the console (by OpenTelemetry's SDK, the extra `tracing`), or a file of JSON lines, which needs nothing.

The lines are OTLP's own JSON, as its file exporter writes it: collectors read it.
"""

import base64
import logging
import os
from collections.abc import Sequence
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ares.cluster.tables import TracingSettings
from ares.model.errors import BadInput
from ares.model.version import VERSION
from ares.tracing.operation_log import OperationLog
from ares.tracing.spans import CLIENT, SERVER, Span
from ares.tracing.tracer import Export, Parent, Tracer

_log = logging.getLogger(__name__)

_KINDS = {SERVER: 2, CLIENT: 3}
_INTERNAL_KIND = 1
_ERROR = 2


def tracer_of(settings: TracingSettings, service: str, log: OperationLog | None = None) -> Tracer | None:
    """What traces a process that is called ``service``, unless the settings say otherwise, and logs operations; None where nothing of that is wanted.

    Where the exporter cannot be had, the program's log says why, and nothing is traced.
    """
    if settings.exporter != "none":
        try:
            return Tracer(settings, _export_to(settings, service), _parent_of_caller(), log)
        except Exception as error:  # whatever the SDK and its exporters raise for the variables that they read
            _log.warning("nothing is traced: %s", error)
    return None if log is None else Tracer(replace(settings, share=0.0, parent=False), lambda spans: None, log=log)


def _export_to(settings: TracingSettings, service: str) -> Export:
    service = settings.service or service
    if settings.exporter.startswith("file:"):
        return to_file(Path(settings.exporter.removeprefix("file:").replace("%p", str(os.getpid()))), service)
    try:
        from ares.tracing.opentelemetry import sdk_export

        return sdk_export(settings.exporter, service)
    except ModuleNotFoundError as error:
        why = f"traces are to go to {settings.exporter}, and {error.name} is not installed here: pip install 'ares-storage[tracing]'"
        raise BadInput(why) from error


def _parent_of_caller() -> Parent:
    """How to find the caller's own span; without OpenTelemetry nobody has one."""
    try:
        from ares.tracing.opentelemetry import current_span
    except ModuleNotFoundError:
        return lambda: None
    return current_span


def to_file(path: Path, service: str) -> Export:
    """Adds lines of OTLP's JSON to a file."""
    resource = {"attributes": [_attribute("service.name", service), _attribute("service.version", VERSION), _attribute("process.pid", os.getpid())]}

    def export(spans: Sequence[Span]) -> None:
        scope = {"scope": {"name": "ares", "version": VERSION}, "spans": [as_otlp(span) for span in spans]}
        with path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":  # a line was cut off: this one is not to go on with it
                file.write(b"\n")
            file.write(msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}) + b"\n")

    return export


def as_otlp(span: Span) -> dict[str, Any]:
    """The span in OTLP's JSON."""
    told = {
        "traceId": span.trace.hex(),
        "spanId": span.id.hex(),
        "parentSpanId": span.parent.hex(),
        "name": span.name,
        "kind": _KINDS.get(span.kind, _INTERNAL_KIND),
        "startTimeUnixNano": str(span.began_ns),
        "endTimeUnixNano": str(span.ended_ns),
        "attributes": [_attribute(name, value) for name, value in span.attributes.items()],
    }
    return told | {"status": {"code": _ERROR, "message": span.error}} if span.error else told


def _attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": _value(value)}


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value if isfinite(value) else "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"}
        case bytes():
            return {"bytesValue": base64.b64encode(value).decode()}
        case list() | tuple():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}
