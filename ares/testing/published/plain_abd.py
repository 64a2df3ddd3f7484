"""Plain ABD, the register report's system: many writers, no reconfiguration, always two phases."""

from ares.engine.effects import Operation
from ares.engine.phases import READ_OBJECT, WRITE_OBJECT, phase
from ares.model.configuration import Configuration
from ares.model.identity import ClientId, ObjectName
from ares.model.tag import Tag
from ares.model.value import Value
from ares.testing.published.abd_dap import AbdDap
from ares.testing.published.ares_2022 import maximum
from ares.testing.published.data_access import Found


class AbdClient:
    """A reader and writer of a configuration that never changes."""

    def __init__(self, client: ClientId, c0: Configuration) -> None:
        self.id = client
        self._dap = AbdDap(c0)

    @phase(WRITE_OBJECT)
    def write(self, object: ObjectName, val: Value) -> Operation[Tag]:
        """Ask a quorum for its tags, put ``val`` under a higher tag, and return that tag."""
        tau_max, _ = yield from self._dap.get_tag(object)
        tau = Tag(tau_max.number + 1, self.id)
        yield from self._dap.put_data(object, tau, val)
        return tau

    @phase(READ_OBJECT)
    def read(self, object: ObjectName) -> Operation[Found]:
        """Ask a quorum for its pairs, put the maximum, and return the maximum."""
        pair, _ = yield from self._dap.get_data(object)
        tau_max, v_max = maximum([pair])
        yield from self._dap.put_data(object, tau_max, v_max)
        return tau_max, v_max
