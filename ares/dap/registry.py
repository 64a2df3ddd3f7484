"""Which primitives a configuration speaks."""

from ares.dap.coding import coding_for
from ares.dap.primitives import DataAccess
from ares.model.configuration import Configuration
from ares.operation.readiness import Readiness


def data_access(configuration: Configuration, readiness: Readiness | None = None) -> DataAccess:
    """The client half. Raises :class:`ares.ConfigurationRefused` if its erasure code is not available here."""
    return DataAccess(configuration, coding_for(configuration), readiness or Readiness())


def capacity(configuration: Configuration) -> int:
    """How many versions of an object a server keeps: one (ABD), or delta + 1 (EC)."""
    return configuration.delta + 1
