"""Plain ABD, the register report's system: many writers, no reconfiguration, always two phases."""

from ares.dap.coding import MakeCoding, coding_for
from ares.engine.effects import Operation
from ares.engine.phases import PHASE_1, PHASE_2, READ_OBJECT, WRITE_OBJECT, phase
from ares.model.configuration import Configuration
from ares.model.identity import ClientId, ObjectName
from ares.model.tag import Tag
from ares.model.value import Value
from ares.testing.published.abd_dap import AbdDap
from ares.testing.published.ares_2022 import maximum
from ares.testing.published.data_access import Found, Measure, unmeasured


class AbdClient:
    """A reader and writer of a configuration without successors."""

    def __init__(
        self,
        client: ClientId,
        c0: Configuration,
        coding: MakeCoding = coding_for,
        measure: Measure = unmeasured,
    ) -> None:
        self.id = client
        self._dap = AbdDap(c0, coding, measure)

    @phase(WRITE_OBJECT)
    def write(self, object: ObjectName, val: Value) -> Operation[Tag]:
        """Ask a quorum for tags, put ``val`` under a higher tag, and return this tag."""
        tau = yield from self._next_tag(object)
        yield from self._put(object, tau, val)
        return tau

    @phase(READ_OBJECT)
    def read(self, object: ObjectName) -> Operation[Found]:
        """Ask a quorum for pairs, put the maximum, and return the maximum."""
        tau_max, v_max = yield from self._ask_data(object)
        yield from self._put(object, tau_max, v_max)
        return tau_max, v_max

    @phase(PHASE_1)
    def _next_tag(self, object: ObjectName) -> Operation[Tag]:
        tau_max, _ = yield from self._dap.get_tag(object)
        return Tag(tau_max.number + 1, self.id)

    @phase(PHASE_1)
    def _ask_data(self, object: ObjectName) -> Operation[tuple[Tag, Value]]:
        pair, _ = yield from self._dap.get_data(object)
        return maximum([pair])

    @phase(PHASE_2)
    def _put(self, object: ObjectName, tau: Tag, val: Value) -> Operation[None]:
        yield from self._dap.put_data(object, tau, val)
