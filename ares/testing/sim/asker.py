"""A simulated server as a client: the server asks peers for elements, to repair or take over."""

from collections.abc import Callable
from typing import Any

from ares.engine.effects import Operation
from ares.engine.session import Session
from ares.model.codec import decode_replies, encode
from ares.model.configuration import Configuration
from ares.model.errors import AresError
from ares.model.identity import ServerId
from ares.model.messages import Element, PullElement
from ares.registers.repair import bring_element
from ares.testing.sim.simulated_server import SimServer
from ares.testing.sim.world import SimWorld

ASKER_TICK_S = 0.1
ASKER_PATIENCE_S = 30.0


def element_trouble(error: BaseException | None) -> str:
    """Return the reason why an element cannot be had. Raises errors other than AresError."""
    if error is not None and not isinstance(error, AresError):
        raise error
    return str(error or "")


Post = Callable[[str, str, list[bytes]], None]
"""A function that sends the frames of a message: names of the sender and of a server, frames."""


class Asker:
    """The client side of ``server``. ``name``: the name of this client."""

    def __init__(self, world: SimWorld, post: Post, server: SimServer, what: str = "asker") -> None:
        self.name = f"{server.name}'s {what}"
        self._world = world
        self._post = post
        self._server = server
        self._session = Session()
        self._ticking = False

    def fetch(
        self,
        request: PullElement,
        target: Configuration,
        done: Callable[[Element | None, str], None],
    ) -> None:
        """Fetch an element, as :data:`ares.server.element_puller.Fetch` says."""
        own = self._server.replica.server
        self.ask(
            bring_element(request, target, own),
            lambda element, error: done(element, element_trouble(error)),
        )

    def ask(
        self,
        operation: Operation[Element | None],
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        self._session.start(operation, self.name, self._world.now, ASKER_PATIENCE_S, done)
        self._flush()

    def receive(self, server: str, frames: list[bytes]) -> None:
        self._session.receive(ServerId(server), decode_replies(frames), self._world.now)
        self._flush()

    def _flush(self) -> None:
        for server, messages in self._session.take_outbox().items():
            self._post(self.name, server, encode(messages))
        self._session.contacts.clear()
        self._session.hints.clear()
        if self._session.busy and not self._ticking:
            self._ticking = True
            self._world.after(ASKER_TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self._session.tick(self._world.now)
        self._flush()
