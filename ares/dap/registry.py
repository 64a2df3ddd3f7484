"""Which primitives a configuration speaks."""

from collections.abc import Set

from ares.configuration import Configuration
from ares.dap.client import DataAccess
from ares.dap.coding import coding_for
from ares.identity import ServerId


def data_access(configuration: Configuration, suspects: Set[ServerId] = frozenset()) -> DataAccess:
    """The client half. Raises :class:`ares.errors.ConfigurationRefused` if its erasure code is not available here."""
    return DataAccess(configuration, coding_for(configuration), suspects)


def capacity(configuration: Configuration) -> int:
    """How many versions of an object a server keeps: one (ABD), or delta + 1 (EC)."""
    return configuration.delta + 1
