"""The span of the calling program, through OpenTelemetry's API, which every installation has."""

from opentelemetry import trace
from opentelemetry.context import get_current


def current_span() -> tuple[bytes, bytes, bool] | None:
    """Return the caller's span around a call of ares, or None.

    The result has the id of the trace, the id of the span, and True for a sampled span.
    """
    if not get_current():  # most callers have no span, and this test is quick
        return None
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return (
        context.trace_id.to_bytes(16, "big"),
        context.span_id.to_bytes(8, "big"),
        context.trace_flags.sampled,
    )
