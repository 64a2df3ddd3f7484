"""A transport within an event loop, for tests.

The batches are encoded and decoded as usual, and travel over ``loop.call_soon`` instead of sockets.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ares.model.codec import Frame
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.messages import AnyMessage
from ares.net.batching import BatchConnections, BatchListener, batches
from ares.net.port import Handle, Sender


class _Origin(NamedTuple):
    """The sender of a batch: a client, and its name for the server."""

    client: "InprocConnections"
    server: ServerId

    @property
    def site(self) -> str:
        return self.client.site


class InprocNetwork:
    """The listeners by address.

    A stopped address loses incoming and outgoing messages until a restart.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, InprocListener] = {}
        self._stopped: set[str] = set()

    def stop(self, address: str) -> None:
        self._stopped.add(address)

    def restart(self, address: str) -> None:
        self._stopped.discard(address)

    def attach(self, address: str, listener: "InprocListener") -> None:
        """Attach a listener. Raises :class:`BadInput` if the address is taken."""
        if address in self._listeners:
            raise BadInput(
                f"cannot listen on {address}: another listener has this address; close it or "
                "choose another"
            )
        self._listeners[address] = listener

    def detach(self, address: str) -> None:
        self._listeners.pop(address, None)

    def carry_request(self, address: str, origin: _Origin, frames: Sequence[Frame]) -> None:
        listener = self._listeners.get(address)
        if listener is not None and address not in self._stopped:
            listener.take(origin, frames)

    def carry_reply(self, address: str, origin: _Origin, frames: Sequence[Frame]) -> None:
        if address not in self._stopped:
            origin.client.take(origin.server, frames)


class InprocConnections(BatchConnections):
    """The :class:`ares.net.port.Connections` over an :class:`InprocNetwork`.

    ``site`` is the client's site.
    """

    def __init__(self, network: InprocNetwork, site: str = "") -> None:
        super().__init__()
        self._network = network
        self.site = site

    def _send(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        for _, frames in batches(messages):
            self._loop.call_soon(
                self._network.carry_request, self._addresses[server], _Origin(self, server), frames
            )

    def take(self, server: ServerId, frames: Sequence[Frame]) -> None:
        if self._opened:
            self._receive(server, frames)

    async def close(self) -> None:
        self._opened = False


class InprocListener(BatchListener):
    """A :class:`ares.net.port.Listener` at any string of an :class:`InprocNetwork`."""

    def __init__(self, network: InprocNetwork, address: str) -> None:
        super().__init__()
        self._network = network
        self._wanted = address
        self._held: deque[tuple[_Origin, Sequence[Frame]]] = deque()

    async def serve(self, handle: Handle) -> str:
        self._network.attach(self._wanted, self)
        self._start(handle, self._wanted)
        return self.address

    def take(self, origin: _Origin, frames: Sequence[Frame]) -> None:
        self._held.append((origin, frames))
        self._drain()

    def _drain(self) -> None:
        while self._held and self._serving and not self._paused:
            origin, frames = self._held.popleft()
            self._receive(origin, [frames])

    def _send_batch(self, sender: Sender, frames: Sequence[Frame]) -> None:
        assert isinstance(sender, _Origin)
        # as a wire would: a client never shares memory with a server's mapped store
        copied = [bytes(frame) for frame in frames]
        self._loop.call_soon(self._network.carry_reply, self.address, sender, copied)

    async def close(self) -> None:
        if self._serving:
            self._serving = False
            self._network.detach(self.address)
