"""Asking processes of a cluster something about themselves, each by itself: no quorum, no configuration."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

from ares.client.connect import connections_of
from ares.cluster.settings import Settings
from ares.model.errors import BadInput
from ares.model.identity import CallId, ServerId
from ares.model.messages import AnyMessage, Upkeep
from ares.model.quorum import NO_ANSWER
from ares.security.keys import keyed

Reply = AnyMessage | str
"""Text: why there is none."""

AGAIN_S = 0.7
"""Without an answer for so long, the request is sent again: it must be one that does no harm twice."""


async def ask_each(settings: Settings, processes: Iterable[ServerId], request: Callable[[CallId], Upkeep], timeout_s: float) -> dict[ServerId, Reply]:
    """What each of ``processes`` (servers, consensus members) replies to ``request`` within ``timeout_s``, in their order.

    Raises :class:`BadInput` if one is not in the cluster file; then nobody was asked.
    """
    addresses = {process.id: keyed(process.address, process.public_key) for process in settings.processes()}
    replies: dict[ServerId, Reply] = dict.fromkeys(processes, NO_ANSWER)
    unknown = [process for process in replies if process not in addresses]
    if unknown:
        raise BadInput(f"{settings.path} has no server or consensus member {', '.join(map(repr, unknown))}; known: {', '.join(addresses)}")
    connections, answered, message = connections_of(settings), asyncio.Event(), request(CallId(1))

    def deliver(process: ServerId, messages: Sequence[AnyMessage]) -> None:
        replies[process] = messages[0]
        answered.set()

    connections.open(deliver)
    for process in replies:
        connections.learn(process, addresses[process])
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while silent := [process for process, reply in replies.items() if isinstance(reply, str)]:
                    for process in silent:
                        connections.post(process, [message])
                    answered.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(AGAIN_S):
                            while any(isinstance(reply, str) for reply in replies.values()):
                                await answered.wait()
                                answered.clear()
    finally:
        await connections.close()
    return {process: connections.troubles.get(process, reply) if isinstance(reply, str) else reply for process, reply in replies.items()}
