"""Nodes of a chain, wired by hand: the test delivers or loses each message."""

from typing import Any

from ares.model.configuration import CHAIN_RULE, Configuration, Server
from ares.model.identity import CallId, ClientId, DomainName, ServerId
from ares.model.log_messages import LogRecord, seal_of
from ares.model.messages import AnyMessage
from ares.sharedlog.node import LogNode

CLIENT = ClientId(7)
NAMES = ("s0", "s1", "s2")
default_rule = CHAIN_RULE


def chain(
    index: int = 0, start: int = 0, servers: tuple[str, ...] = NAMES, rule: str | None = None
) -> Configuration:
    """Return a chain, by default with the rule ``default_rule``."""
    rule = default_rule if rule is None else rule
    members = tuple(Server(ServerId(name), f"{name}:1", name) for name in servers)
    placed = Configuration("chain", members, backend=rule, start=start)
    return placed.at(DomainName("events"), index, b"cluster")


class Wired:
    """Nodes by name. ``sent`` has undelivered messages as (from, to, message)."""

    def __init__(self, *names: str) -> None:
        self.nodes = {name: LogNode(ServerId(name), name) for name in names or NAMES}
        self.sent: list[tuple[str, str, AnyMessage]] = []
        self.disks = {name: [] for name in self.nodes}
        self.synced = dict.fromkeys(self.nodes, 0)
        self.now = 0.0

    def hand(self, to: str, message: AnyMessage, sender: str = "client", sync: bool = True) -> None:
        self.nodes[to].handle(sender, message, self.now)
        self.collect(to, sync)

    def collect(self, name: str, sync: bool = True) -> None:
        """Take a node's messages; with ``sync``, store the facts first, until no fact is left."""
        node = self.nodes[name]
        if sync:
            self._store(name)
        while True:
            facts, messages = node.take()
            self.disks[name] += facts
            self.sent += [(name, str(to), message) for to, message in messages]
            if not sync or (not facts and not messages):
                return
            self._store(name)

    def _store(self, name: str) -> None:
        self.synced[name] = len(self.disks[name])
        self.nodes[name].stored(self.synced[name], self.now)

    def run(self, without: tuple[str, ...] = (), sync: bool = True) -> list[AnyMessage]:
        """Deliver all messages among nodes, except to ``without``; return messages to clients."""
        told = []
        while self.sent:
            sender, to, message = self.sent.pop(0)
            if to in self.nodes:
                if to not in without:
                    self.hand(to, message, sender, sync)
            else:
                told.append(message)
        return told

    def tick(self, seconds: float = 1.0, sync: bool = True) -> None:
        self.now += seconds
        for name, node in self.nodes.items():
            node.tick(self.now)
            self.collect(name, sync)

    def restart(self, name: str) -> None:
        life = self.nodes[name].life + 1
        self.nodes[name] = LogNode(ServerId(name), name)
        self.nodes[name].life = life
        self.nodes[name].restore(self.disks[name])

    def crash(self, name: str) -> None:
        """Restart a node with the durable facts alone."""
        del self.disks[name][self.synced.get(name, 0) :]
        self.restart(name)


def call(number: int = 1) -> CallId:
    return CallId(number)


def sealed(record: LogRecord, **changes: Any) -> LogRecord:
    """Return a changed record, sealed as by a head."""
    names = record.__struct_fields__
    fields = {name: getattr(record, name) for name in names} | changes
    fields["seal"] = seal_of(*[fields[name] for name in names[:-1]])
    return LogRecord(**fields)
