"""Which primitives a configuration speaks."""

from ares.configuration import Configuration
from ares.dap.client import DataAccess
from ares.dap.coding import coding_for
from ares.readiness import Readiness


def data_access(configuration: Configuration, readiness: Readiness | None = None) -> DataAccess:
    """The client half. Raises :class:`ares.errors.ConfigurationRefused` if its erasure code is not available here."""
    return DataAccess(configuration, coding_for(configuration), readiness or Readiness())


def capacity(configuration: Configuration) -> int:
    """How many versions of an object a server keeps: one (ABD), or delta + 1 (EC)."""
    return configuration.delta + 1
