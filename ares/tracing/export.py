"""The destinations of spans: OTLP over HTTP or gRPC, the console, or a file of JSON lines.

OTLP and the console take OpenTelemetry's SDK, the extra `tracing`; the file does without.
The lines are OTLP's own JSON, as written by its file exporter: collectors read the file.
"""

import base64
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _text
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ares.cluster.tables import TracingSettings
from ares.model.errors import BadInput
from ares.platform.release import version
from ares.tracing.operation_log import OperationLog
from ares.tracing.spans import CLIENT_KIND, INTERNAL_KIND, SERVER_KIND, SITE, Span
from ares.tracing.tracer import Export, Tracer

_log = logging.getLogger(__name__)

_NUMBER_OF_KIND = {INTERNAL_KIND: 1, SERVER_KIND: 2, CLIENT_KIND: 3}
_ERROR_STATUS = 2
_NO_NUMBERS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def tracer_of(
    settings: TracingSettings,
    service: str,
    log: OperationLog | None = None,
    site: str | None = None,
) -> Tracer | None:
    """Return the tracer of a process at ``site`` named ``service``; None without tracing and log.

    The settings may give another name. The tracer logs operations to ``log``. Without a usable
    exporter the program's log gives the reason, and no operation is traced.
    """
    if settings.exporter != "none":
        try:
            export, stop = _export_to(settings, service, site)
            from ares.tracing.callers_span import current_span

            return Tracer(settings, export, current_span, log, stop)
        except (
            Exception
        ) as error:  # any exception of the SDK and its exporters about the variables they read
            _log.warning("nothing is traced: %s", error)
    return (
        None
        if log is None
        else Tracer(replace(settings, share=0.0, parent=False), lambda spans: None, log=log)
    )


def _export_to(
    settings: TracingSettings, service: str, site: str | None
) -> tuple[Export, Callable[[], None]]:
    """Return the export of the settings, and a function that ends its tries."""
    service = settings.service or service
    if settings.exporter.startswith("file:"):
        path = Path(settings.exporter.removeprefix("file:").replace("%p", str(os.getpid())))
        return to_file(path, service, site), lambda: None
    try:
        from ares.tracing.opentelemetry import sdk_export

        return sdk_export(settings.exporter, service, site)
    except ModuleNotFoundError as error:
        why = (
            f"traces are to go to {settings.exporter}, and {error.name} is not installed here: "
            "pip install 'ares-storage[tracing]'"
        )
        raise BadInput(why) from error


def to_file(path: Path, service: str, site: str | None = None) -> Export:
    """Return an export that adds lines of OTLP's JSON to a file."""
    resource = {
        "service.name": service,
        "service.version": version(),
        "process.pid": os.getpid(),
        **({SITE: site} if site else {}),
    }
    scope = f'{{"name":"ares","version":{_text(version())}}}'
    begin = (
        f'{{"resourceSpans":[{{"resource":{{"attributes":[{_attributes(resource)}]}},'
        f'"scopeSpans":[{{"scope":{scope},"spans":['
    )

    def export(spans: Iterable[Span]) -> None:
        line = f"{begin}{','.join(map(_as_json, spans))}]}}]}}]}}\n".encode()
        with path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                # a line was cut off: the new line must not continue it
                file.write(b"\n")
            file.write(line)

    return export


def as_otlp(span: Span) -> dict[str, Any]:
    """Return the span in OTLP's JSON."""
    content: dict[str, Any] = json.loads(_as_json(span))
    return content


def _as_json(span: Span) -> str:
    """Return the span as text; a dictionary for each attribute would take several times as long."""
    status = (
        f',"status":{{"code":{_ERROR_STATUS},"message":{_text(span.error)}}}' if span.error else ""
    )
    return (
        f'{{"traceId":"{span.trace.hex()}","spanId":"{span.id.hex()}","parentSpanId":"{span.parent.hex()}","name":{_text(span.name)},'
        f'"kind":{_NUMBER_OF_KIND[span.kind]},"startTimeUnixNano":"{span.began_ns}","endTimeUnixNano":"{span.ended_ns}",'
        f'"attributes":[{_attributes(span.attributes)}]{status}}}'
    )


def _attributes(attributes: Mapping[str, Any]) -> str:
    return ",".join(map(_attribute, attributes.keys(), attributes.values()))


@lru_cache(2048, typed=True)
def _attribute(name: str, value: Any) -> str:
    """Return the text of an attribute, cached: most attributes repeat an earlier value."""
    return f'{{"key":{_text(name)},"value":{_value(value)}}}'


def _value(value: Any) -> str:
    match value:
        case str():
            return f'{{"stringValue":{_text(value)}}}'
        case float():
            return f'{{"doubleValue":{value if isfinite(value) else _NO_NUMBERS[str(value)]}}}'
        case bool():
            return f'{{"boolValue":{"true" if value else "false"}}}'
        case int():
            return f'{{"intValue":"{value}"}}'
        case bytes():
            return f'{{"bytesValue":"{base64.b64encode(value).decode()}"}}'
        case tuple():
            return f'{{"arrayValue":{{"values":[{",".join(map(_value, value))}]}}}}'
    return f'{{"stringValue":{_text(str(value))}}}'
