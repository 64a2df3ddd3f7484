"""What a server or a consensus member says over HTTP of how it is: /health for probes, /metrics for Prometheus.

Who answers is a thread of its own (ares/server/http.py); it asks the event loop, and an event loop that does not answer within a second is
what /health is there to find.
"""

import asyncio
import json
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ares.machine.metrics import DISK_S, LAG_S, Histogram, Traffic, Vitals
from ares.model.errors import ConsensusUnavailable
from ares.model.messages import ConsensusDescription
from ares.net.batching import BatchListener
from ares.server.http import PLAIN, HttpPage, HttpStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from ares.consensus.member_host import ConsensusHost
    from ares.server.host import Host

LOOK_S = 1.0
"""An event loop that does not answer for so long cannot serve."""

LAG_EVERY_S = 1.0

_JSON = "application/json"
_NO_LEADER = "it knows no leader: is a majority of the members running? Reads and writes do not need one; reconfiguring and creating domains do"

Seen = TypeVar("Seen")


class Subject(Protocol[Seen]):
    """What is watched. ``look`` is called on the event loop of the process, the others are not."""

    kind: str

    async def look(self) -> Seen: ...

    def trouble(self, seen: Seen) -> str:
        """Why it cannot serve; empty if it can."""

    def facts(self, seen: Seen) -> dict[str, object]:
        """For /health."""

    def metrics(self, seen: Seen) -> "Iterable[Metric]": ...


class WatchedServer:
    """A storage server. ``fsyncs``: None where all is in memory."""

    kind = "server"

    def __init__(self, host: "Host", fsyncs: Histogram | None) -> None:
        self._host = host
        self._fsyncs = fsyncs or Histogram(DISK_S)

    async def look(self) -> Vitals:
        return self._host.vitals()

    def trouble(self, seen: Vitals) -> str:
        return seen.trouble

    def facts(self, seen: Vitals) -> dict[str, object]:
        description = seen.description
        return {
            "version": description.version,
            "identity": description.identity,
            "uptime_s": round(description.uptime_s, 3),
            "durable": description.stored is not None,
            "configurations": seen.holding.configurations,
        }

    def metrics(self, seen: Vitals) -> "Iterable[Metric]":
        from ares.server.prometheus import of_server

        return of_server(seen, self._fsyncs)


class WatchedMember:
    """A consensus member."""

    kind = "consensus"

    def __init__(self, host: "ConsensusHost") -> None:
        self._host = host

    async def look(self) -> tuple[ConsensusDescription, int, int]:
        return await self._host.describe()

    def trouble(self, seen: tuple[ConsensusDescription, int, int]) -> str:
        return "" if seen[0].leader else _NO_LEADER

    def facts(self, seen: tuple[ConsensusDescription, int, int]) -> dict[str, object]:
        description = seen[0]
        reachable = description.members_reachable
        return {"leader": description.leader, "term": description.term, "members_reachable": reachable, "members": description.members_total}

    def metrics(self, seen: tuple[ConsensusDescription, int, int]) -> "Iterable[Metric]":
        from ares.server.prometheus import of_member

        return of_member(*seen)


class Monitor(Generic[Seen]):
    """From :meth:`start` on it says that ``id`` starts; that it serves after :meth:`watch`; that it ends after :meth:`ending`.

    ``listener``: what it serves at. Make it, and call everything, on the event loop of the process.
    """

    def __init__(self, id: str, address: str, traffic: Traffic, listener: BatchListener) -> None:
        self._id = id
        self._traffic = traffic
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._lag = Histogram(LAG_S)
        self._subject: Subject[Seen] | None = None
        self._why_not = "it is starting"
        self._under_way: Future[Seen] | None = None
        self._http = HttpStatus(address, {"/health": self._health, "/metrics": self._metrics})

    def start(self) -> None:
        """Raises :class:`ares.BadInput` if the address cannot be listened on."""
        self._http.start()
        self._loop.call_later(LAG_EVERY_S, self._on_time, time.perf_counter() + LAG_EVERY_S)

    def watch(self, subject: Subject[Seen]) -> None:
        self._subject, self._why_not = subject, ""

    def ending(self) -> None:
        self._why_not = "it is stopping"

    def close(self) -> None:
        self._http.close()

    def _on_time(self, due_s: float) -> None:
        now_s = time.perf_counter()
        self._lag.add(max(now_s - due_s, 0.0))
        self._loop.call_later(LAG_EVERY_S, self._on_time, now_s + LAG_EVERY_S)

    # -- on the thread that answers -------------------------------------------------------------------------------------

    async def _look(self, subject: Subject[Seen]) -> tuple[Seen | None, str]:
        """What there is to see, and why the process cannot serve. One look at a time: an event loop that is stuck must not find a queue of them."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.run_coroutine_threadsafe(subject.look(), self._loop)
        try:
            async with asyncio.timeout(LOOK_S):
                seen = await asyncio.shield(asyncio.wrap_future(self._under_way))
        except TimeoutError:
            return None, f"its event loop has not answered for {LOOK_S:g} s: it is stuck, or has far too much to do"
        except ConsensusUnavailable as error:
            return None, error.why
        return seen, self._why_not or subject.trouble(seen)

    async def _health(self) -> HttpPage:
        facts: dict[str, object] = {}
        why = self._why_not
        if self._subject is not None:
            seen, why = await self._look(self._subject)
            facts = self._subject.facts(seen) if seen is not None else {}
        kind = {"kind": self._subject.kind} if self._subject is not None else {}
        content = json.dumps({"id": self._id, **kind, "serving": not why, "why": why, **facts})
        return HttpPage(503 if why else 200, _JSON, content.encode() + b"\n")

    async def _metrics(self) -> HttpPage:
        from ares.server.prometheus import KIND, of_process, of_traffic, render

        if self._subject is None:
            return HttpPage(503, PLAIN, f"{self._why_not}\n".encode())
        seen, why = await self._look(self._subject)
        listener = self._listener
        traffic = of_traffic(self._traffic, listener.bad_batches, len(listener.connections))
        families = [*of_process(self._id, self._subject.kind, not why, self._lag), *traffic]
        return HttpPage(200, KIND, render([*families, *(self._subject.metrics(seen) if seen is not None else ())]))
