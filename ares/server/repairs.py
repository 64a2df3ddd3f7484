"""Having quarantined elements rebuilt from those of other servers, and taking them back: at once, and again as long as some are missing."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.model.identity import ConfigurationId, ObjectName
from ares.model.messages import Element, PutData
from ares.model.tag import Tag
from ares.replica.places import NO_CALL, Key
from ares.server.durable_host import DurableHost

log = logging.getLogger(__name__)

RETRY_S = 5.0
RETRY_S_MAX = 900.0
AT_ONCE = 16
AT_ONCE_BYTES = 64 * 1024 * 1024
"""So many elements are asked for side by side, and values of so many bytes."""

FAILURES_MAX = 3
"""After so many elements of a configuration of which too few servers answered, the others are left for the next time."""

Pull = Callable[[Configuration, ObjectName, Tag, int], Awaitable[Element | None]]
"""This server's element of a version (of a value of so many bytes), rebuilt from those of the others; None if it cannot be had.

Raises :class:`ares.AresError`.
"""


class Repairs:
    """Of what ``host`` misses. ``pull``: None where there is nobody to ask."""

    def __init__(self, host: DurableHost, pull: Pull | None) -> None:
        self._host = host
        self._pull = pull
        self._missed: frozenset[Key] = frozenset()
        self._retry_s = RETRY_S
        self._retry_at_s = 0.0

    async def try_again(self, now_s: float) -> None:
        """Try all, if some are new or it is time to."""
        missed = frozenset(self._host.outlasting.quarantined)
        if missed - self._missed:
            self._retry_s = RETRY_S
        elif not missed or now_s < self._retry_at_s:
            return
        self._retry_at_s = now_s + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)
        await self.try_all()

    async def try_all(self) -> None:
        """Try each quarantined element once, some at a time."""
        failures: dict[ConfigurationId, int] = {}
        for some in self._together(self._host.outlasting.quarantined):
            await asyncio.gather(*(self._try(key, failures) for key in some))
        self._missed = frozenset(self._host.outlasting.quarantined)
        if self._missed:
            log.warning("elements that could not be repaired yet: %d; they are tried again", len(self._missed))

    def _together(self, keys: list[Key]) -> Iterator[list[Key]]:
        waiting = deque(keys)
        while waiting:
            some = [waiting.popleft()]
            bytes = self._host.outlasting.missing_bytes(some[0])
            while waiting and len(some) < AT_ONCE and (bytes := bytes + self._host.outlasting.missing_bytes(waiting[0])) <= AT_ONCE_BYTES:
                some.append(waiting.popleft())
            yield some

    async def _try(self, key: Key, failures: dict[ConfigurationId, int]) -> None:
        id, object, tag = key
        if self._pull is None or failures.get(id, 0) >= FAILURES_MAX or not self._host.outlasting.is_quarantined(key):
            return
        configuration, length = self._host.replica.hosted[id].configuration, self._host.outlasting.missing_bytes(key)
        extra = {"object": object, "tag": str(tag)}
        try:
            element = await self._pull(configuration, object, tag, length)
        except AresError as error:
            failures[id] = failures.get(id, 0) + 1
            log.warning("an element cannot be repaired yet: %s", error, extra=extra)
            return
        if element is not None and self._host.repair(PutData(NO_CALL, id, object, tag, element)):
            log.info("repaired an element from other servers", extra=extra)
