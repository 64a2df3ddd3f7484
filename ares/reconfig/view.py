"""What one client knows and remembers of one domain, shared by all its operations on it."""

from msgspec import Struct

from ares.configuration import Configuration
from ares.dap.client import DataAccess
from ares.dap.memory import Memory
from ares.dap.registry import data_access
from ares.identity import ClientId, ConfigurationId, ObjectName
from ares.readiness import Readiness
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
    """``spent``: for objects with a write of unknown outcome, the number of the tag it used.

    A later write of this client must not take that tag again: a quorum that missed the first attempt would give the same maximum, and one tag would
    stand for two values. (The papers have such a client crash.)
    """

    def __init__(self, client: ClientId, first: Configuration, switches: Switches, readiness: Readiness | None = None) -> None:
        self.client = client
        self.domain = first.domain
        self.switches = switches
        self.sequence = ConfigurationSequence(first)
        self.spent: dict[ObjectName, int] = {}
        self.memory = Memory()
        self._readiness = readiness or Readiness()
        self._daps: dict[ConfigurationId, DataAccess] = {}

    def dap(self, configuration: Configuration) -> DataAccess:
        """The primitives of a configuration. Raises :class:`ares.errors.ConfigurationRefused` if they are not available here."""
        dap = self._daps.get(configuration.id)
        if dap is None:
            active = {known.id for known in self.sequence.active}
            self._daps = {id: known for id, known in self._daps.items() if id in active}
            dap = self._daps[configuration.id] = data_access(configuration, self._readiness)
        return dap
