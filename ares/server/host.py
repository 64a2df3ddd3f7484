"""A storage server on the asyncio event loop: requests from a listener, through the replica, back."""

import asyncio
import logging
import resource
from collections.abc import Callable, Sequence

import msgspec

from ares.configuration import Configuration
from ares.identity import ServerId
from ares.messages import AnyMessage, Description, Introduce, Question, Reason, Refused
from ares.runtime.ports import Listener, Sender
from ares.server.admission import Admission
from ares.server.replica import Replica

log = logging.getLogger(__name__)

REQUESTS = Question | Introduce


class Host:
    """Serves one replica. What comes in one batch is answered in one batch. ``admission``: what each client may ask; None: everything."""

    def __init__(self, replica: Replica, admission: Admission | None = None) -> None:
        self.replica = replica
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._started = self._loop.time()

    @property
    def handler(self) -> Callable[[Sender, Sequence[AnyMessage]], Sequence[AnyMessage]]:
        """For a listener: :meth:`handle` of what is admitted."""
        admission, handle, hosted = self._admission, self.handle, self.replica.hosted
        if admission is None:
            return handle

        def handle_admitted(sender: Sender, messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
            admitted, refused = admission.admit(sender, messages, hosted)
            return [*refused, *handle(sender, admitted)]

        return handle_admitted

    def handle(self, sender: Sender, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        """The replies to a batch of requests; what is no request of a storage server is refused."""
        replies: list[AnyMessage] = []
        handle = self.replica.handle
        for message in messages:
            if not isinstance(message, REQUESTS):
                replies.append(no_request(message))
                continue
            reply = handle(message)
            if isinstance(reply, Description):
                reply = self._with_vitals(reply)
            if reply is not None:
                replies.append(reply)
        return replies

    def _with_vitals(self, description: Description) -> Description:
        unknown_keys = self._admission.unknown_keys if self._admission is not None else 0
        uptime_s = self._loop.time() - self._started
        return msgspec.structs.replace(description, uptime_s=uptime_s, memory_bytes=memory_bytes(), unknown_keys=unknown_keys)


def no_request(message: AnyMessage) -> Refused:
    """What is answered to a message that is for somebody else."""
    return Refused(message.call, Reason.BAD_REQUEST, f"{type(message).__name__} is no request to a storage server")


def memory_bytes() -> int:
    """Resident memory of this process now."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


async def run_server(
    server: ServerId, identity: str, initial: Configuration, listener: Listener, stop: asyncio.Event, admission: Admission | None = None
) -> None:
    """Serve until ``stop`` is set. ``initial``: c0 of the cluster file. Raises :class:`ares.errors.BadInput` if the address cannot be bound."""
    host = Host(Replica(server, identity, initial), admission)
    address = await listener.serve(host.handler)
    log.info("serving", extra={"address": address, "identity": identity})
    await stop.wait()
    await listener.close()
    log.info("stopped")
