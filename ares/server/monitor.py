"""The state of a server or consensus member over HTTP.

/health is for probes, /metrics for Prometheus. A thread of their own makes the pages
(ares/server/http_pages.py): /health must find an event loop which does not answer this thread
within a second. The pages show no secrets, and change no state.
"""

import abc
import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ares.metrics import Histogram, ListenerTraffic
from ares.model.errors import ConsensusUnavailable
from ares.net.batching import BatchListener
from ares.server.http_pages import PLAIN_TYPE, HttpPage, HttpStatus

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from ares.consensus.member_host import ConsensusHost
    from ares.server.storage_server import StorageServer

LOOP_ANSWER_S = 1.0
"""Seconds without an answer after which an event loop counts as unable to serve."""

_JSON_TYPE = "application/json"
_NO_LEADER = (
    "it knows no leader: is a majority of the members running? Reads and writes do not need one; "
    "reconfiguring and creating domains do"
)
# -- subjects ----------------------------------------------------------------------------------


class Condition(Struct, frozen=True):
    """The condition of a process at a look. ``trouble``: why it cannot serve; empty if it can.

    ``facts``: for /health. ``numbers``: for /metrics, the arguments of the functions in OF_KIND
    (ares/server/prometheus.py).
    """

    trouble: str
    facts: dict[str, object]
    numbers: tuple[Any, ...]


class WatchedServer:
    """A watched storage server, looked at on the event loop of the process."""

    kind = "server"

    def __init__(self, host: "StorageServer", fsyncs: Histogram) -> None:
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
    """A watched consensus member, looked at on the event loop of the process."""

    kind = "consensus"

    def __init__(self, host: "ConsensusHost") -> None:
        self._host = host

    async def look(self) -> Condition:
        numbers = await self._host.describe()
        shown = numbers[0]
        reachable, members = shown.members_reachable, shown.members_total
        facts: dict[str, object] = {
            "version": shown.version,
            "leader": shown.leader,
            "term": shown.term,
            "members_reachable": reachable,
            "members": members,
        }
        return Condition("" if shown.leader else _NO_LEADER, facts, numbers)


class Subject(Protocol):
    """A watched part of a process."""

    kind: str

    async def look(self) -> Condition: ...


class ProcessMonitor(abc.ABC):
    """The monitor of the process ``id``.

    From :meth:`start` on the monitor reports the process as starting, after :meth:`watch` as
    serving, after :meth:`ending` as ending. Make the monitor, and call every method, on the event
    loop of the process.
    """

    def __init__(self, id: str, address: str, queueing: Histogram, site: str = "") -> None:
        self._id = id
        self._site = site
        self._queueing = queueing
        self._loop = asyncio.get_running_loop()
        self._subject: Subject | None = None
        self._why_not: Callable[[], str] = lambda: "it is starting"
        self._under_way: Future[Condition] | None = None
        self._http = HttpStatus(address, {"/health": self._health, "/metrics": self._metrics})

    def start(self) -> None:
        """Start to answer. Raises :class:`ares.BadInput` if the address cannot be listened on."""
        self._http.start()

    def starting(self, reason: Callable[[], str]) -> None:
        """Report ``reason()``, which any thread may call, until the process serves."""
        self._why_not = reason

    def watch(self, subject: Subject) -> None:
        self._subject, self._why_not = subject, lambda: ""

    def ending(self) -> None:
        self._why_not = lambda: "it is stopping"

    def close(self) -> None:
        self._http.close()

    # -- on the thread that answers ----------------------------------------------------------------

    async def _look(self, subject: Subject) -> tuple[Condition | None, str]:
        """Return the condition of the process, and why the process cannot serve.

        Looks do not overlap: a stuck event loop must not find a queue of looks.
        """
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.run_coroutine_threadsafe(subject.look(), self._loop)
        try:
            async with asyncio.timeout(LOOP_ANSWER_S):
                seen = await asyncio.shield(asyncio.wrap_future(self._under_way))
        except TimeoutError:
            return (
                None,
                f"its event loop has not answered for {LOOP_ANSWER_S:g} s: it is stuck, or has "
                "far too much to do",
            )
        except ConsensusUnavailable as error:
            return None, error.why
        return seen, self._why_not() or seen.trouble

    async def _health(self) -> HttpPage:
        seen, why, kind = None, self._why_not(), {}
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
        return HttpPage(503 if why else 200, _JSON_TYPE, content.encode() + b"\n")

    async def _metrics(self) -> HttpPage:
        from ares.server.prometheus import KIND, OF_KIND, of_process, render

        if self._subject is None:
            return HttpPage(503, PLAIN_TYPE, f"{self._why_not()}\n".encode())
        seen, why = await self._look(self._subject)
        kind = self._subject.kind
        process = of_process(self._id, kind, not why, self._queueing, self._site)
        found = OF_KIND[kind](*seen.numbers) if seen is not None else ()
        return HttpPage(200, KIND, render([*process, *self._traffic_families(), *found]))

    @abc.abstractmethod
    def _traffic_families(self) -> "Iterator[Metric]":
        """Yield the numbers of the traffic, which need no look at the event loop."""


class Monitor(ProcessMonitor):
    """The monitor of a storage server or a consensus member. ``listener``: of the process."""

    def __init__(
        self,
        id: str,
        address: str,
        traffic: ListenerTraffic,
        listener: BatchListener,
        site: str = "",
    ) -> None:
        super().__init__(id, address, traffic.queueing, site)
        self._traffic = traffic
        self._listener = listener

    def _traffic_families(self) -> "Iterator[Metric]":
        from ares.server.prometheus import of_traffic

        listener = self._listener
        return of_traffic(self._traffic, listener.bad_batches, len(listener.connections))
