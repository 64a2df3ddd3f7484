"""A small world without I/O: replicas and sessions with the real codec between them.

A seed chooses the order of messages.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

from ares.engine.effects import Agree, Operation
from ares.engine.session import SESSION_TICK_S, Session
from ares.model.codec import decode, encode
from ares.model.configuration import Configuration, Server
from ares.model.decision import DecisionTable
from ares.model.identity import CallId, ClientId, DomainName, ServerId
from ares.model.messages import AnyMessage, Decided, Element, PullElement
from ares.reconfig.view import Switches, View
from ares.registers.repair import bring_element
from ares.replica.replica import Replica
from ares.server.element_puller import ElementPuller
from ares.testing.sim.asker import element_trouble

IDENTITY = "{:032x}"

CARRIED = Switches(ahead=False)
"""Switches for a move with work after the decision: copies ahead leave nothing to interrupt."""


def servers(*numbers: int) -> tuple[Server, ...]:
    return tuple(
        Server(ServerId(f"s{number}"), f"host{number}:1", IDENTITY.format(number))
        for number in numbers
    )


class ProtocolClient:
    def __init__(
        self,
        world: "ProtocolWorld",
        number: int,
        switches: Switches,
        initial: Configuration | None = None,
    ) -> None:
        self.world = world
        self.id = ClientId(number)
        self.session = Session()
        self.view = View(self.id, initial or world.initial, switches, self.session.readiness)
        self.dead = False

    def start(self, operation: Operation[Any], timeout_s: float = 30.0, **more: Any) -> "Pending":
        pending = Pending()
        pending.job = self.session.start(
            operation, "an operation", self.world.now, timeout_s, pending.settle, **more
        )
        self.world.collect(self)
        return pending

    def run(self, operation: Operation[Any], timeout_s: float = 30.0, **more: Any) -> Any:
        """Start an operation, and run the world until the operation's end."""
        pending = self.start(operation, timeout_s, **more)
        self.world.until(lambda: pending.ended)
        return pending.result()


class Pending:
    def __init__(self) -> None:
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.job: Any = None

    def settle(self, value: Any, error: BaseException | None) -> None:
        assert not self.ended, "an operation ended twice"
        self.ended, self.value, self.error = True, value, error

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class ProtocolWorld:
    """A world of servers and clients.

    Servers in ``down`` hear no messages. If ``hold(source, target, message)`` is true, the message
    stays in flight for now. ``watch`` sees each arriving message. ``askers`` are servers as clients
    of other servers, for pulled elements. ``switches``: of clients by default.
    """

    def __init__(
        self,
        initial: Configuration,
        numbers: range,
        seed: int = 0,
        switches: Switches | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.switches = switches or Switches()
        self.now = 0.0
        self.initial = initial
        self.replicas = {
            server.id: Replica(server.id, server.identity, initial) for server in servers(*numbers)
        }
        self.decisions: DecisionTable[Configuration] = DecisionTable()
        self.clients: list[ProtocolClient] = []
        self.flights: list[tuple[Any, Any, list[bytes]]] = []
        self.down: set[ServerId] = set()
        self.hold: Callable[[Any, Any, AnyMessage], bool] = lambda *_: False
        self.watch: Callable[[Any, Any, AnyMessage], None] = lambda *_: None
        self.consensus_up = True
        self.askers: dict[ServerId, ProtocolClient] = {}
        self.bringing = {server: self._bringing(server) for server in self.replicas}

    def client(
        self, switches: Switches | None = None, initial: Configuration | None = None
    ) -> ProtocolClient:
        client = ProtocolClient(self, len(self.clients) + 1, switches or self.switches, initial)
        self.clients.append(client)
        return client

    def collect(self, client: ProtocolClient) -> None:
        """Take the unsent messages of a session; each message travels separately."""
        session = client.session
        for server, messages in session.take_outbox().items():
            self.flights.append((client, server, encode(messages)))
        while session.asks or session.hints:
            asks, session.asks = session.asks, []
            for what, task in asks:
                if isinstance(what, Agree):
                    session.resume(task, self._decide(what.configuration, client.id), self.now)
                else:
                    self.decisions.tell_finalized(
                        what.configuration.domain, what.configuration.index, what.configuration
                    )
                    session.resume(task, True, self.now)
            hints, session.hints = session.hints, []
            for domain in hints:
                session.hinted(domain, self._hint(domain), self.now)
            for server, messages in session.take_outbox().items():
                self.flights.append((client, server, encode(messages)))

    def _decide(self, configuration: Configuration, proposer: ClientId) -> Decided:
        decision = self.decisions.decide(
            configuration.domain, configuration.index, configuration, proposer
        )
        return Decided(CallId(0), decision.content, ClientId(decision.proposer))

    def _hint(self, domain: DomainName) -> Configuration | None:
        return self.decisions.hint(domain) if self.consensus_up else None

    def step(self) -> bool:
        """Deliver a random batch in flight; return False if no batch can travel."""
        ready = [
            flight
            for flight in self.flights
            if not any(self.hold(flight[0], flight[1], message) for message in decode(flight[2]))
        ]
        if not ready:
            return False
        flight = self.rng.choice(ready)
        self.flights.remove(flight)
        source, target, frames = flight
        for message in decode(frames):
            self.watch(source, target, message)
        if isinstance(source, ProtocolClient):
            if target in self.down:
                return True
            self.answer(target, source, decode(frames))
        elif not target.dead:
            target.session.receive(source, decode(frames), self.now)
            self.collect(target)
        return True

    def answer(
        self, server: ServerId, client: ProtocolClient, requests: Sequence[AnyMessage]
    ) -> None:
        """Handle the requests, and send the replies."""
        replica, bringing = self.replicas[server], self.bringing[server]
        answers = [
            bringing.answer(client, request)
            if isinstance(request, PullElement)
            else replica.handle(request)
            for request in requests
        ]
        if replies := [reply for reply in answers if reply is not None]:
            self.flights.append((server, client, encode(replies)))

    def _bringing(self, server: ServerId) -> ElementPuller:
        asker = self.askers[server] = ProtocolClient(self, 1000 + len(self.askers), Switches())

        def fetch(
            request: PullElement, target: Configuration, done: Callable[[Element | None, str], None]
        ) -> None:
            operation = bring_element(request, target, server)
            asker.session.start(
                operation,
                "bringing",
                self.now,
                30.0,
                lambda element, error: done(element, element_trouble(error)),
            )
            self.collect(asker)

        def respond(client: ProtocolClient, replies: Sequence[AnyMessage]) -> None:
            self.flights.append((server, client, encode(replies)))

        return ElementPuller(
            self.replicas[server],
            lambda client, put: self.answer(server, client, [put]),
            respond,
            fetch,
        )

    def tick(self) -> None:
        self.now += SESSION_TICK_S
        for client in (*self.clients, *self.askers.values()):
            if not client.dead:
                client.session.tick(self.now)
                self.collect(client)

    def until(self, done: Callable[[], bool], ticks_max: int = 10_000) -> None:
        for _ in range(ticks_max):
            while not done() and self.step():
                pass
            if done():
                return
            self.tick()
        raise AssertionError("the world came to a standstill")
