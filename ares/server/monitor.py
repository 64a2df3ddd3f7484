"""The state of a server or a consensus member over HTTP: /health for probes, /metrics for Prometheus.

The pages are made by a thread of their own (ares/server/http_pages.py): an event loop that does not
answer that thread within a second is what /health is there to find. The pages show no secrets, and
nothing can be changed by them.
"""

import asyncio
import json
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ares.machine.metrics import Histogram, Traffic
from ares.model.errors import ConsensusUnavailable
from ares.net.batching import BatchListener
from ares.server.http_pages import PLAIN, HttpPage, HttpStatus

if TYPE_CHECKING:
    from ares.consensus.member_host import ConsensusHost
    from ares.server.host import Host

LOOK_S = 1.0
"""An event loop that does not answer for so long cannot serve."""

_JSON = "application/json"
_NO_LEADER = "it knows no leader: is a majority of the members running? Reads and writes do not need one; reconfiguring and creating domains do"
# -- what is watched ----------------------------------------------------------------------------------------------------


class Condition(Struct, frozen=True):
    """The condition of a process at one look. ``trouble``: why it cannot serve; empty if it can.

    ``facts``: for /health. ``numbers``: for /metrics, the arguments of what makes them (ares/server/prometheus.py, OF_KIND).
    """

    trouble: str
    facts: dict[str, object]
    numbers: tuple[Any, ...]


class WatchedServer:
    """A storage server; looked at on the event loop of the process."""

    kind = "server"

    def __init__(self, host: "Host", fsyncs: Histogram) -> None:
        self._host = host
        self._fsyncs = fsyncs

    async def look(self) -> Condition:
        vitals = self._host.vitals()
        description = vitals.description
        facts: dict[str, object] = {
            "version": description.version,
            "core": description.core,
            "identity": description.identity,
            "uptime_s": round(description.uptime_s, 3),
            "durable": description.stored is not None,
            "configurations": vitals.holding.configurations,
        }
        return Condition(vitals.trouble, facts, (vitals, self._fsyncs))


class WatchedMember:
    """A consensus member; looked at like a server."""

    kind = "consensus"

    def __init__(self, host: "ConsensusHost") -> None:
        self._host = host

    async def look(self) -> Condition:
        numbers = await self._host.describe()
        told = numbers[0]
        reachable, members = told.members_reachable, told.members_total
        facts: dict[str, object] = {
            "version": told.version,
            "leader": told.leader,
            "term": told.term,
            "members_reachable": reachable,
            "members": members,
        }
        return Condition("" if told.leader else _NO_LEADER, facts, numbers)


Subject = WatchedServer | WatchedMember


class Monitor:
    """From :meth:`start` on it says that ``id``, at ``site``, starts; that it serves after :meth:`watch`; that it ends after :meth:`ending`.

    ``listener``: what it serves at. Make it, and call everything, on the event loop of the process.
    """

    def __init__(
        self, id: str, address: str, traffic: Traffic, listener: BatchListener, site: str = ""
    ) -> None:
        self._id = id
        self._site = site
        self._traffic = traffic
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._subject: Subject | None = None
        self._why_not = "it is starting"
        self._under_way: Future[Condition] | None = None
        self._http = HttpStatus(address, {"/health": self._health, "/metrics": self._metrics})

    def start(self) -> None:
        """Raises :class:`ares.BadInput` if the address cannot be listened on."""
        self._http.start()

    def watch(self, subject: Subject) -> None:
        self._subject, self._why_not = subject, ""

    def ending(self) -> None:
        self._why_not = "it is stopping"

    def close(self) -> None:
        self._http.close()

    # -- on the thread that answers -------------------------------------------------------------------------------------

    async def _look(self, subject: Subject) -> tuple[Condition | None, str]:
        """What there is to see, and why the process cannot serve. One look at a time: an event loop that is stuck must not find a queue of them."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.run_coroutine_threadsafe(subject.look(), self._loop)
        try:
            async with asyncio.timeout(LOOK_S):
                seen = await asyncio.shield(asyncio.wrap_future(self._under_way))
        except TimeoutError:
            return (
                None,
                f"its event loop has not answered for {LOOK_S:g} s: it is stuck, or has far too much to do",
            )
        except ConsensusUnavailable as error:
            return None, error.why
        return seen, self._why_not or seen.trouble

    async def _health(self) -> HttpPage:
        seen, why, kind = None, self._why_not, {}
        if self._subject is not None:
            (seen, why), kind = await self._look(self._subject), {"kind": self._subject.kind}
        content = json.dumps(
            {
                "id": self._id,
                **kind,
                "serving": not why,
                "why": why,
                **(seen.facts if seen is not None else {}),
            }
        )
        return HttpPage(503 if why else 200, _JSON, content.encode() + b"\n")

    async def _metrics(self) -> HttpPage:
        from ares.server.prometheus import KIND, OF_KIND, of_process, of_traffic, render

        if self._subject is None:
            return HttpPage(503, PLAIN, f"{self._why_not}\n".encode())
        seen, why = await self._look(self._subject)
        kind, listener = self._subject.kind, self._listener
        process = of_process(self._id, kind, not why, self._traffic.queueing, self._site)
        traffic = of_traffic(self._traffic, listener.bad_batches, len(listener.connections))
        return HttpPage(
            200,
            KIND,
            render(
                [*process, *traffic, *(OF_KIND[kind](*seen.numbers) if seen is not None else ())]
            ),
        )
