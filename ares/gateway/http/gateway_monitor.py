"""The health and numbers of a gateway's process, over HTTP on an address of their own."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ares.client.buckets.buckets import Buckets
from ares.gateway.http.gateway_admission import GatewayAdmission
from ares.gateway.http.gateway_listener import GatewayListener
from ares.metrics import GatewayTraffic
from ares.model.errors import AresError
from ares.platform.release import version
from ares.server.monitor import LOOP_ANSWER_S, Condition, ProcessMonitor

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

VERIFIED_S = 0.8 * LOOP_ANSWER_S
"""Time in which a healthy log tells its tail."""


class WatchedGateway:
    """A watched gateway: it serves while the index of the buckets is at a tail of the log."""

    kind = "gateway"

    def __init__(
        self, buckets: Buckets, listener: GatewayListener, admission: GatewayAdmission
    ) -> None:
        self._buckets = buckets
        self._listener = listener
        self._admission = admission

    async def look(self) -> Condition:
        trouble, position = "", None
        try:
            async with asyncio.timeout(VERIFIED_S):
                index = await self._buckets.verified(VERIFIED_S)
            position = index.state.position
        except TimeoutError:
            trouble = f"the log of the buckets has not told its tail for {VERIFIED_S:g} s"
        except AresError as error:
            trouble = str(error)
        at_work, connections = self._admission.at_work, self._listener.connections
        facts: dict[str, object] = {
            "version": version(),
            "position": position,
            "rows_distrusted": self._buckets.distrusted,
            "connections": connections,
            "at_work": at_work,
        }
        return Condition(trouble, facts, (connections, at_work, self._admission.memory_bytes))


class GatewayMonitor(ProcessMonitor):
    """The monitor of a gateway's process."""

    def __init__(self, id: str, address: str, traffic: GatewayTraffic) -> None:
        super().__init__(id, address, traffic.queueing)
        self._traffic = traffic

    def _traffic_families(self) -> "Iterator[Metric]":
        from ares.server.prometheus import of_gateway_traffic

        return of_gateway_traffic(self._traffic)
