"""What one client knows and remembers of one domain, shared by all its operations on it."""

from msgspec import Struct

from ares.dap.cache import Memory
from ares.dap.primitives import DataAccess
from ares.dap.registry import data_access
from ares.model.configuration import Configuration
from ares.model.identity import ClientId, ConfigurationId
from ares.model.tag import TagSource
from ares.operation.readiness import Readiness
from ares.reconfig.sequence import ConfigurationSequence


class Switches(Struct, frozen=True):
    """ARES II's optimisations (and fast reads), each of which a client can do without. Clients of all combinations share servers.

    ``piggyback``: learn of successors from every reply instead of a read-config round. ``gc``: collect retired configurations.
    ``batch``: move many objects at once. ``fast_read``: a read that finds its version at a quorum does not write it back. ``optimised``: coverable
    objects and files send no value that the other side has (CoARES).
    """

    piggyback: bool = True
    gc: bool = True
    batch: bool = True
    fast_read: bool = True
    optimised: bool = True


class View:
    """``tags``: where the client's writes of objects of this domain get their tags."""

    def __init__(self, client: ClientId, first: Configuration, switches: Switches, readiness: Readiness | None = None) -> None:
        self.client = client
        self.domain = first.domain
        self.switches = switches
        self.sequence = ConfigurationSequence(first)
        self.tags = TagSource(client)
        self.memory = Memory()
        self._readiness = readiness or Readiness()
        self._daps: dict[ConfigurationId, DataAccess] = {}

    def dap(self, configuration: Configuration) -> DataAccess:
        """The primitives of a configuration. Raises :class:`ares.ConfigurationRefused` if they are not available here."""
        dap = self._daps.get(configuration.id)
        if dap is None:
            active = {known.id for known in self.sequence.active}
            self._daps = {id: known for id, known in self._daps.items() if id in active}
            dap = self._daps[configuration.id] = data_access(configuration, self._readiness)
        return dap
