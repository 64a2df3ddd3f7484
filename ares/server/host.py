"""A storage server on the asyncio event loop: requests from a listener, through the replica, back."""

import asyncio
import logging
import resource
from collections.abc import Sequence

import msgspec

from ares.configuration import Configuration
from ares.identity import ServerId
from ares.messages import AnyMessage, Description, Introduce, Question, Reason, Refused
from ares.runtime.ports import Listener, Sender
from ares.server.replica import Replica

log = logging.getLogger(__name__)

REQUESTS = Question | Introduce


class Host:
    """Serves one replica. What comes in one batch is answered in one batch."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()

    def handle(self, sender: Sender, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        """The replies to a batch of requests; what is no request of a storage server is refused."""
        replies: list[AnyMessage] = []
        handle = self._replica.handle
        for message in messages:
            if not isinstance(message, REQUESTS):
                replies.append(Refused(message.call, Reason.BAD_REQUEST, f"{type(message).__name__} is no request to a storage server"))
                continue
            reply = handle(message)
            if isinstance(reply, Description):
                reply = self._with_vitals(reply)
            if reply is not None:
                replies.append(reply)
        return replies

    def _with_vitals(self, description: Description) -> Description:
        return msgspec.structs.replace(description, uptime_s=self._loop.time() - self._started, memory_bytes=memory_bytes())


def memory_bytes() -> int:
    """Resident memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


async def run_server(server: ServerId, identity: str, initial: Configuration, listener: Listener, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set. ``initial``: c0 of the cluster file. Raises :class:`ares.errors.BadInput` if the address cannot be bound."""
    host = Host(Replica(server, identity, initial))
    address = await listener.serve(host.handle)
    log.info("serving", extra={"address": address, "identity": identity})
    await stop.wait()
    await listener.close()
    log.info("stopped")
