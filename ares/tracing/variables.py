"""OpenTelemetry's standard variables, which win over the table [tracing] of the cluster file."""

from collections.abc import Mapping

from msgspec.structs import replace

from ares.cluster.tables import TracingSettings, is_exporter
from ares.model.errors import BadInput

SAMPLERS = ("always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")


def tracing_of(settings: TracingSettings, environment: Mapping[str, str]) -> TracingSettings:
    """``settings`` as far as the variables do not say otherwise. Raises :class:`BadInput`, naming the variable."""

    def said(name: str, otherwise: str = "") -> str:
        return environment.get(name, "").strip() or otherwise

    exporter = said("OTEL_TRACES_EXPORTER", settings.exporter)
    if not is_exporter(exporter):
        raise BadInput(f"OTEL_TRACES_EXPORTER: expected otlp, console, none or file:PATH, found {exporter!r}")
    if said("OTEL_SDK_DISABLED").lower() == "true":
        exporter = "none"
    share, parent, sampler = settings.share, settings.parent, said("OTEL_TRACES_SAMPLER")
    if sampler:
        if sampler not in SAMPLERS:
            raise BadInput(f"OTEL_TRACES_SAMPLER: expected one of {', '.join(SAMPLERS)}, found {sampler!r}")
        parent, kind = sampler.startswith("parentbased_"), sampler.removeprefix("parentbased_")
        share = _share(said("OTEL_TRACES_SAMPLER_ARG", "1")) if kind == "traceidratio" else float(kind == "always_on")
    return replace(settings, exporter=exporter, share=share, parent=parent, service=said("OTEL_SERVICE_NAME") or settings.service)


def _share(said: str) -> float:
    try:
        share = float(said)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise BadInput(f"OTEL_TRACES_SAMPLER_ARG: expected a share of the operations, 0 to 1, found {said!r}")
    return share
