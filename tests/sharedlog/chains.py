"""Nodes of a chain, wired by hand: the test delivers or loses each message."""

from ares.model.configuration import Configuration, Server
from ares.model.identity import CallId, ClientId, DomainName, ServerId
from ares.model.messages import AnyMessage
from ares.sharedlog.node import LogNode

CLIENT = ClientId(7)
NAMES = ("s0", "s1", "s2")


def chain(index: int = 0, start: int = 0, servers: tuple[str, ...] = NAMES) -> Configuration:
    members = tuple(Server(ServerId(name), f"{name}:1", name) for name in servers)
    return Configuration("chain", members, start=start).at(DomainName("events"), index, b"cluster")


class Wired:
    """Nodes by name. ``sent`` has undelivered messages as (from, to, message)."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: LogNode(ServerId(name), name) for name in names or NAMES}
        self.sent: list[tuple[str, str, AnyMessage]] = []
        self.disks = {name: [] for name in self.nodes}
        self.now = 0.0

    def hand(self, to: str, message: AnyMessage, sender: str = "client", sync: bool = True) -> None:
        self.nodes[to].handle(sender, message, self.now)
        self.collect(to, sync)

    def collect(self, name: str, sync: bool = True) -> None:
        """Take a node's messages; with ``sync``, store its facts first, until none are left."""
        node = self.nodes[name]
        if sync:
            node.stored(len(self.disks[name]), self.now)
        while True:
            facts, messages = node.take()
            self.disks[name] += facts
            self.sent += [(name, str(to), message) for to, message in messages]
            if not sync or (not facts and not messages):
                return
            node.stored(len(self.disks[name]), self.now)

    def run(self, without: tuple[str, ...] = ()) -> list[AnyMessage]:
        """Deliver all messages among nodes, except to ``without``; return messages to clients."""
        told = []
        while self.sent:
            sender, to, message = self.sent.pop(0)
            if to in self.nodes:
                if to not in without:
                    self.hand(to, message, sender)
            else:
                told.append(message)
        return told

    def tick(self, seconds: float = 1.0) -> None:
        self.now += seconds
        for name, node in self.nodes.items():
            node.tick(self.now)
            self.collect(name)

    def restart(self, name: str) -> None:
        self.nodes[name] = LogNode(ServerId(name), name)
        self.nodes[name].restore(self.disks[name])


def call(number: int = 1) -> CallId:
    return CallId(number)
