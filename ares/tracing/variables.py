"""OpenTelemetry's standard variables, which win over the table [tracing] of the cluster file."""

import logging
from collections.abc import Mapping

from msgspec.structs import replace

from ares.cluster.tables import TracingSettings, is_exporter

_log = logging.getLogger(__name__)

SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)


def tracing_of(settings: TracingSettings, environment: Mapping[str, str]) -> TracingSettings:
    """Return ``settings`` with the changes given by the variables.

    The variables may be meant for another program: an unknown value is passed over, with a line in
    the log.
    """

    def value_of(name: str) -> str:
        return environment.get(name, "").strip()

    exporter = settings.exporter
    if named := value_of("OTEL_TRACES_EXPORTER"):
        known = [name for name in map(str.strip, named.split(",")) if is_exporter(name)]
        exporter = known[0] if known else "none"
        if [exporter] != known or "," in named:
            _log.warning(
                "OTEL_TRACES_EXPORTER: %r; of these, traces go to %s (ares has otlp, console, "
                "none and file:PATH)",
                named,
                exporter,
            )
    if exporter == "none" or value_of("OTEL_SDK_DISABLED").lower() == "true":
        return replace(settings, exporter="none")
    share, parent, sampler = settings.share, settings.parent, value_of("OTEL_TRACES_SAMPLER")
    if sampler in SAMPLERS:
        parent, kind = sampler.startswith("parentbased_"), sampler.removeprefix("parentbased_")
        share = (
            _share(value_of("OTEL_TRACES_SAMPLER_ARG") or "1")
            if kind == "traceidratio"
            else float(kind == "always_on")
        )
    elif sampler:
        _log.warning(
            "OTEL_TRACES_SAMPLER: %r is passed over; ares has %s", sampler, ", ".join(SAMPLERS)
        )
    return replace(
        settings,
        exporter=exporter,
        share=share,
        parent=parent,
        service=value_of("OTEL_SERVICE_NAME") or settings.service,
    )


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        _log.warning(
            "OTEL_TRACES_SAMPLER_ARG: %r is no share of the operations, 0 to 1: all are traced",
            text,
        )
        return 1.0
    return share
