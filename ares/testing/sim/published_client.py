"""A simulated client of the algorithms as published (ares/testing/published)."""

from typing import Any

from ares.dap.primitives import DataResult
from ares.engine.effects import Operation
from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.model.identity import ObjectName
from ares.model.messages import DELETED_LENGTH
from ares.reconfig.view import Switches, View
from ares.testing.published.ares2 import Ares2Client, Ares2Switches
from ares.testing.published.ares_2022 import AresClient
from ares.testing.sim.plan import ARES_2022, SimStep
from ares.testing.sim.simulated_client import SimClient, data_of


def switches_as_published(seed: int, switches: Switches) -> Ares2Switches:
    """Return the switches of a client in the plan of ``seed``."""
    collected = seed % 2 == 0
    return Ares2Switches(collected or switches.piggyback, collected and switches.gc, r1=True)


class SimPublishedClient(SimClient):
    """A client as published, without compiled core and cache.

    ARES II runs with rule R1, without which it loses writes. The seed of the plan selects a
    variant: all clients piggyback, and some collect by their plans; or no client collects, and some
    piggyback by their plans. A reconfiguration moves all keys of the plan.
    """

    def _see_with(self, view: View) -> None:
        self.view, self._small = view, None
        c0, plan = view.sequence.last_finalized, self._run.plan
        self._ares = (
            AresClient(view.client, c0)
            if plan.published == ARES_2022
            else Ares2Client(view.client, c0, switches_as_published(plan.seed, view.switches))
        )

    @property
    def last_finalized(self) -> Configuration:
        return self._ares.cseq[self._ares.mu].configuration

    def _operation(self, step: SimStep, value: str | None, base: Any) -> Operation[Any]:
        key = ObjectName(step.key)
        if step.operation == "write" and value is not None:
            return self._ares.write(key, data_of(step, value))
        if step.operation == "read":
            return self._read(key)
        if step.operation == "reconfigure":
            return self._reconfigure(step)
        raise BadInput(f"the algorithms as published have no {step.operation}")

    def _read(self, key: ObjectName) -> Operation[DataResult]:
        tag, value = yield from self._ares.read(key)
        length = len(value) if isinstance(value, bytes) else DELETED_LENGTH
        return DataResult(tag, value, length, tag, True, None, self.last_finalized.id)

    def _reconfigure(self, step: SimStep) -> Operation[None]:
        keys = [ObjectName(key) for key in self._run.plan.keys]
        yield from self._ares.reconfig(self._wished(step), keys)
