"""Versions that a server gets from other servers at the request of a mover.

In this way large values of a moving domain travel past the mover: the ARES paper's optimisation of
state transfer (docs/protocol.md, reconfig).

The mover found the version, by tag, in a configuration named in the request. This server asks the
configuration for its own element, and acts as if the mover had sent the element in a PutData: the
element is verified, journaled, and acknowledged when durable. The server refuses a version which
cannot be brought; the mover carries the version.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from ares.model.configuration import Configuration
from ares.model.element import too_large
from ares.model.errors import BadInput
from ares.model.identity import CallId
from ares.model.messages import Ack, Element, PullElement, PutData, Reason, Refused, Reply
from ares.net.port import Sender
from ares.platform.json_logs import is_worth_a_line
from ares.replica.configuration_state import ConfigurationState
from ares.replica.facts import Key
from ares.replica.replica import Replica

PULLS_AT_ONCE = 4
PULLED_BYTES_AT_ONCE = 64 * 1024 * 1024
"""Limits of versions fetched side by side, and of bytes of values; a single value of any size."""

PULLS_WAITING_MAX, PULL_SENDERS_MAX = 256, 16
"""Limits of waiting versions, and of movers that wait for a version; beyond, a server refuses."""

_log = logging.getLogger(__name__)

Fetch = Callable[[PullElement, Configuration, Callable[[Element | None, str], None]], None]
"""A function which begins to get this server's element of a version, for a configuration.

The last argument is called with the element, or with the reason why the element is missing.
"""


class _Pull(Struct, eq=False):
    request: PullElement
    hosting: ConfigurationState
    waiting: dict[Sender, CallId]


class ElementPuller:
    """The bringing of versions for a server.

    ``put``: handles and answers a PutData of a sender. ``respond``: sends a reply. ``fetch``: asks
    other servers. ``is_crowded``: the disk has too much to do already; no version is fetched until
    :meth:`begin` is called.
    """

    def __init__(
        self,
        replica: Replica,
        put: Callable[[Sender, PutData], None],
        respond: Callable[[Sender, list[Any]], None],
        fetch: Fetch,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._replica = replica
        self._put = put
        self._respond = respond
        self._fetch = fetch
        self._is_crowded = is_crowded
        self._errands: dict[Key, _Pull] = {}
        self._queue: deque[_Pull] = deque()
        self._under_way = 0
        self._bytes = 0
        self._beginning = False
        self._too_large = 0

    def answer(self, sender: Sender, request: PullElement) -> Reply | None:
        """Return the reply, or None if the reply follows.

        An acknowledgement of a present version waits until the version is durable.
        """
        hosting = self._replica.hosted.get(request.configuration)
        if hosting is None:
            return Refused(request.call, Reason.UNKNOWN_CONFIGURATION, "introduce it")
        if hosting.knows(request.object, request.tag):
            return Ack(request.call, hosting.successor)
        if why := _unfit(request, hosting.configuration):
            return Refused(request.call, Reason.BAD_REQUEST, why)
        if request.length > hosting.value_bytes:
            why = too_large(request.length, hosting.value_bytes)
            self._too_large += 1
            if is_worth_a_line(self._too_large):
                _log.warning("no version is fetched (%d so far): %s", self._too_large, why)
            return Refused(request.call, Reason.BAD_ELEMENT, why)
        key = (request.configuration, request.object, request.tag)
        errand = self._errands.get(key)
        if (
            len(self._errands) >= PULLS_WAITING_MAX
            if errand is None
            else len(errand.waiting) >= PULL_SENDERS_MAX and sender not in errand.waiting
        ):
            return Refused(
                request.call,
                Reason.NOT_BROUGHT,
                "it has too much to get from other servers already",
            )
        if errand is None:
            errand = self._errands[key] = _Pull(request, hosting, {})
            self._queue.append(errand)
        errand.waiting[sender] = request.call
        self.begin()
        return None

    def begin(self) -> None:
        """Fetch as many waiting versions as may be under way."""
        if self._beginning:  # a fetch that fails at once calls this method from within
            return
        self._beginning = True
        try:
            while self._queue and self._may_begin(self._queue[0].request):
                self._fetch_for(self._queue.popleft())
        finally:
            self._beginning = False

    def _may_begin(self, request: PullElement) -> bool:
        fits = not self._under_way or self._bytes + request.length <= PULLED_BYTES_AT_ONCE
        return fits and self._under_way < PULLS_AT_ONCE and not self._is_crowded()

    def _fetch_for(self, errand: _Pull) -> None:
        request, done = errand.request, partial(self._fetched, errand)
        self._under_way += 1
        self._bytes += request.length
        if errand.hosting.knows(request.object, request.tag):
            # the mover carried the version and does not wait any more
            done(None, "it is here")
        else:
            self._fetch(request, errand.hosting.configuration, done)

    def _fetched(self, errand: _Pull, element: Element | None, why: str) -> None:
        request = errand.request
        del self._errands[request.configuration, request.object, request.tag]
        self._under_way -= 1
        self._bytes -= request.length
        try:
            for sender, call in errand.waiting.items():
                if element is not None:
                    self._put(
                        sender,
                        PutData(call, request.configuration, request.object, request.tag, element),
                    )
                else:
                    self._respond(sender, [Refused(call, Reason.NOT_BROUGHT, why)])
        finally:  # the next version has its turn after any outcome
            self.begin()


def _unfit(request: PullElement, target: Configuration) -> str:
    """Return why the request is not a mover's; empty if it may be."""
    source = request.source
    if (
        not 0 <= source.index < target.index
        or (source.domain, source.cluster_id) != (target.domain, target.cluster_id)
        or source.dap == "chain"
    ):
        return (
            "data moves only from an earlier configuration of objects, of the same domain and "
            "cluster"
        )
    try:
        source.check_bounds()
    except BadInput as error:
        return str(error)
    return "" if request.length >= 0 else "no value has less than no bytes"
