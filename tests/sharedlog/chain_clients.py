"""A client's session and the nodes of two chains, by hand."""

from itertools import count

from ares.engine.effects import Agree
from ares.model.decision import DecisionTable
from ares.model.identity import CallId, ClientId
from ares.model.messages import Decided, Describe, Description
from ares.sharedlog.log_session import LogSession

from .chains import NAMES, Wired, chain

C0 = chain()
SOON_S = 5.0


class ClientLog:
    """A client and the nodes, by hand.

    ``cut`` servers hear no messages; ``early`` servers run an early release, and with
    ``early_consensus`` the consensus service does. ``slow`` servers describe themselves later.
    """

    def __init__(self, first_id=1, first=C0, **options) -> None:
        ids = count(first_id)
        self.nodes = Wired(*NAMES, "s3", "s4", "s5")
        self.session = LogSession(first, lambda: ClientId(next(ids)), **options)
        self.table = DecisionTable()
        self.cut = self.early = self.slow = ()
        self.early_consensus = False
        self._later = []
        self.asked = []

    def step(self) -> None:
        session, now = self.session, self.nodes.now
        for server, messages in session.take_letters().items():
            for message in messages if server not in self.cut else ():
                self.asked.append((server, message))
                if isinstance(message, Describe):
                    described = Description(
                        *(message.call, server, server, b"", "1.0", 0.0, 0, ()),
                        side_by_side=server not in self.early,
                    )
                    if server in self.slow:
                        self._later.append((server, described))
                    else:
                        session.receive(server, [described], now)
                else:
                    self.nodes.hand(server, message)
        session.session.contacts.clear()
        asks, session.session.asks = session.session.asks, []
        for what, task in asks:
            place = what.configuration
            answer = (
                self.table.decide(place.domain, place.index, place, 1)
                if isinstance(what, Agree)
                else None
            )
            session.session.resume(
                task,
                not (self.early_consensus and what.must)
                if answer is None
                else Decided(CallId(0), answer.content, ClientId(1)),
                now,
            )
        for name in list(self.nodes.nodes):
            told = [
                (sender, message)
                for sender, to, message in self.nodes.sent
                if to == "client" and sender == name
            ]
            self.nodes.sent = [each for each in self.nodes.sent if each[:2] != (name, "client")]
            for sender, message in told:
                session.receive(sender, [message], now)
        among = [each for each in self.nodes.sent if each[1] in self.nodes.nodes]
        self.nodes.sent = [each for each in self.nodes.sent if each[1] not in self.nodes.nodes]
        for sender, to, message in among:
            if to not in self.cut:
                self.nodes.hand(to, message, sender)

    def until(self, ended) -> None:
        for _ in range(2000):
            if ended:
                break
            self.step()
            if not (
                self.session.session.outbox or self.session.appender.has_orders or self.nodes.sent
            ):
                self.nodes.tick(0.03)
                self.session.tick(self.nodes.now)
                for server, described in self._later:
                    self.session.receive(server, [described], self.nodes.now)
                self._later.clear()
        (result, error) = ended[0]
        if error is not None:
            raise error
        self.result = result

    def do(self, operation, timeout_s=SOON_S):
        ended = []
        self.session.session.start(
            operation,
            "test",
            self.nodes.now,
            timeout_s,
            lambda result, error: ended.append((result, error)),
        )
        self.until(ended)
        return self.result

    def append(self, *entries, at=None):
        ended = []
        self.session.append(
            lambda result, error: ended.append((result, error)), self.nodes.now, entries, at, SOON_S
        )
        self.until(ended)
        return self.result
