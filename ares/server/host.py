"""A storage server on the asyncio event loop: requests from a listener, through the replica, back."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeGuard, get_args

import msgspec

from ares.machine.logs import set_level
from ares.machine.memory import memory_bytes
from ares.machine.metrics import Histogram, Vitals, holding
from ares.model.configuration import Configuration
from ares.model.errors import BadInput
from ares.model.identity import CallId, ServerId
from ares.model.messages import AnyMessage, Describe, Description, Done, Keyed, Reason, Refused, Reply, Request, Scrub, SetLogLevel
from ares.net.port import Handle, Listener, Loop, Sender
from ares.replica.hosting import Hosting
from ares.replica.replica import Replica
from ares.security.roles import Admission

log = logging.getLogger(__name__)

REQUESTS: frozenset[type[AnyMessage]] = frozenset(get_args(Request))
"""What a replica answers."""
KEYED: frozenset[type[AnyMessage]] = frozenset(get_args(Keyed))
"""Nearly all of them."""


def for_replica(message: AnyMessage) -> TypeGuard[Request]:
    """Whether a replica answers it."""
    return type(message) in REQUESTS


class Host:
    """Serves one replica. What comes in one batch is answered in one batch.

    ``admission``: what each client may ask; None: everything. ``loop``: where it is called; None: asyncio's, which is running.
    """

    def __init__(self, replica: Replica, admission: Admission | None = None, loop: Loop | None = None) -> None:
        self.replica = replica
        self._admission = admission
        self._loop = loop or asyncio.get_running_loop()
        self._started = self._loop.time()

    @property
    def handler(self) -> Handle:
        """For a listener: :meth:`handle` of what is admitted."""
        admission, handle, hosted = self._admission, self.handle, self.replica.hosted
        if admission is None:
            return handle

        def handle_admitted(sender: Sender, messages: Iterable[AnyMessage]) -> Sequence[AnyMessage]:
            admitted, refused = admission.admit(sender, messages, hosted)
            replies = handle(sender, admitted)
            return [*refused, *replies] if refused else replies

        return handle_admitted

    def handle(self, sender: Sender, messages: Iterable[AnyMessage]) -> list[AnyMessage]:
        """The replies to a batch of requests; what is no request of a storage server is refused."""
        replies: list[AnyMessage] = []
        answer = self.replica.answer
        for message in messages:
            if type(message) in KEYED:
                replies.append(answer(message))  # type: ignore[arg-type]
            elif (reply := self._other(message)) is not None:
                replies.append(reply)
        return replies

    def _other(self, message: AnyMessage) -> Reply | None:
        """The reply to what is not about one configuration."""
        if not for_replica(message):
            return self._upkeep(message)
        reply = self.replica.handle(message)
        return self._with_vitals(reply) if type(reply) is Description else reply

    def _upkeep(self, message: AnyMessage) -> Reply:
        """The reply to what is no request of the replica's: upkeep, or a message that is for somebody else."""
        match message:
            case SetLogLevel():
                try:
                    set_level(message.level)
                except BadInput as error:
                    return Refused(message.call, Reason.BAD_REQUEST, str(error))
                return Done(message.call)
            case Scrub():
                return self._scrub(message)
        return Refused(message.call, Reason.BAD_REQUEST, f"{type(message).__name__} is no request to a storage server")

    def _scrub(self, request: Scrub) -> Reply:
        return Refused(request.call, Reason.BAD_REQUEST, "this server keeps everything in memory: there is nothing on a disk to verify")

    def vitals(self) -> Vitals:
        """How it is now, for whoever watches the process."""
        description = self._with_vitals(self.replica.describe(Describe(CallId(0), brief=True)))
        return Vitals(description, holding(self.replica.hosted.values()), self._trouble(), self._commits())

    def _commits(self) -> Histogram | None:
        """How long group commits took, if there are any."""
        return None

    def _trouble(self) -> str:
        """Why it cannot do all that it is for; empty if it can."""
        return ""

    def _with_vitals(self, description: Description) -> Description:
        unknown_keys = self._admission.unknown_keys if self._admission is not None else 0
        uptime_s = self._loop.time() - self._started
        return msgspec.structs.replace(description, uptime_s=uptime_s, memory_bytes=memory_bytes(), unknown_keys=unknown_keys)


async def run_server(
    server: ServerId,
    identity: str,
    initial: Configuration,
    listener: Listener,
    stop: asyncio.Event,
    admission: Admission | None = None,
    serving: Callable[[Host], None] = lambda host: None,
) -> None:
    """Serve until ``stop`` is set, and send the replies to what was taken. ``initial``: c0 of the cluster file. ``serving`` is told of the host.

    Raises :class:`ares.BadInput` if the address cannot be bound.
    """
    host = Host(Replica(server, identity, initial, partial(Hosting, clock=time.time)), admission)
    address = await listener.serve(host.handler)
    log.info("serving", extra={"address": address, "identity": identity})
    serving(host)
    await stop.wait()
    await listener.close()
    log.info("stopped")
