"""The span of a gateway's request, above the spans of its client operations."""

import contextlib
import secrets
import time
from collections.abc import Iterator

from opentelemetry import context, trace

from ares.tracing.spans import SERVER_KIND, USER, Span
from ares.tracing.tracer import Tracer

_SAMPLED_FLAGS = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class RequestSpans:
    """The spans of requests of this process. ``tracer``: None without tracing."""

    def __init__(self, tracer: Tracer | None) -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def of_request(self, name: str, bucket: str) -> Iterator[None]:
        """Trace a request of the tracer's choice, with the operations in the block below."""
        if self._tracer is None or not self._tracer.chooses():
            yield
            return
        trace_id, id = secrets.token_bytes(16), secrets.token_bytes(8)
        whole = trace.SpanContext(
            int.from_bytes(trace_id, "big"), int.from_bytes(id, "big"), False, _SAMPLED_FLAGS
        )
        above = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(whole)))
        began_ns, error = time.time_ns(), ""
        try:
            yield
        except BaseException as failed:
            error = type(failed).__name__
            raise
        finally:
            context.detach(above)
            about = {"ares.level": USER, "rpc.method": name}
            if self._tracer.settings.keys:
                about["aws.s3.bucket"] = bucket
            self._tracer.take(
                Span(name, trace_id, id, b"", began_ns, time.time_ns(), SERVER_KIND, about, error)
            )
