"""A run of ARES II as printed in which a completed write is lost, message by message.

The servers are s0, s1 and s2. The write is stored at {s1, s2}, the mover tells {s0, s1} of the next
configuration, and asks {s0, s2} for the data.
"""

from typing import Any

from ares.engine.effects import Operation
from ares.model.configuration import Configuration, Successor
from ares.model.identity import DEFAULT_DOMAIN, ObjectName
from ares.model.messages import (
    CollectConfig,
    Introduce,
    ListReply,
    PutData,
    QueryList,
    TagReply,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.model.value import TOMBSTONE
from ares.testing.published.ares2 import Ares2Client, Ares2Switches
from tests.protocol.protocol_world import Pending, ProtocolClient, ProtocolWorld, servers

C0 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 0)
C1 = Configuration.abd(servers(0, 1, 2)).at(DEFAULT_DOMAIN, 1, C0.id)
X = ObjectName("x")
NAMES = {
    "GetTag": "QUERY-TAG",
    "QueryList": "QUERY-LIST",
    "PutData": "PUT-DATA",
    "ReadConfig": "READ-CONFIG",
    "WriteConfig": "WRITE-CONFIG",
    "CollectConfig": "GC-CONFIG",
}
"""Names of the paper's messages."""


class Script:
    """A world in which messages travel as told. ``lines``: the diagram of the messages so far."""

    def __init__(self, switches: Ares2Switches) -> None:
        self.world = ProtocolWorld(C0, range(3))
        self.lines: list[str] = []
        self._switches = switches
        self._names: dict[ProtocolClient, str] = {}
        self._seen: list[tuple[Any, Any, Any]] = []
        self.world.hold = lambda *_: True

    def join(self, name: str) -> tuple[ProtocolClient, Ares2Client]:
        """Return a new client, and its state by the paper."""
        client = self.world.client()
        self._names[client] = name
        return client, Ares2Client(client.id, C0, self._switches)

    def begin(self, client: ProtocolClient, operation: Operation[Any], text: str) -> Pending:
        """Begin an operation; its messages stay on the way."""
        self.say(client, text)
        return client.start(operation)

    def say(self, client: ProtocolClient, text: str) -> None:
        self.lines.append(f"Note over {self._names[client]}: {text}")

    def ask(self, client: ProtocolClient, server: str, kind: type) -> None:
        """Let a server handle a request, and the client hear the reply."""
        self._pass(client, server, kind)
        self._pass(server, client, object)

    def _pass(self, source: Any, target: Any, kind: type) -> None:
        passed: list[Any] = []

        def watch(came_from: Any, went_to: Any, message: Any) -> None:
            if not isinstance(message, Introduce):
                passed.append(message)
                self._draw(came_from, went_to, message)

        self.world.watch = watch
        self.world.hold = lambda came_from, went_to, message: (
            not isinstance(message, Introduce)
            and not (came_from == source and went_to == target and isinstance(message, kind))
        )
        while not passed:
            assert self.world.step(), f"no {kind.__name__} from {source} to {target}"
        self.world.hold = lambda *_: True
        self.world.watch = lambda *_: None

    def _draw(self, source: Any, target: Any, message: Any) -> None:
        if isinstance(source, ProtocolClient):
            place = "c0" if message.configuration == C0.id else "c1"
            name = NAMES[type(message).__name__]
            self.lines.append(
                f"{self._names[source]}->>{target}: {name} {_content(message)}in {place}"
            )
        else:
            self.lines.append(f"{source}-->>{self._names[target]}: {_answer(message)}")


def _content(message: Any) -> str:
    if isinstance(message, PutData):
        return f"{_tag(message.tag)} "
    carried = getattr(message, "successor", None)
    return "" if carried is None else f"{_next(carried)} "


def _answer(reply: Any) -> str:
    known = f"nextC = {_next(reply.successor)}"
    if isinstance(reply, ListReply):
        shown = ["bottom" if each.element is None else _tag(each.tag) for each in reply.entries]
        return f"{', '.join(shown) or 'an empty List'}, {known}"
    return f"{_tag(reply.tag)}, {known}" if isinstance(reply, TagReply) else known


def _tag(tag: Tag) -> str:
    return "t0" if tag.number == 0 else "t1"


def _next(successor: Successor | None) -> str:
    if successor is None:
        return "none"
    return f"(c{successor.configuration.index}, {'F' if successor.finalized else 'P'})"


def losing_run(r1: bool) -> tuple[Any, list[str]]:
    """Return the value read after a completed write of b"new", and the diagram's lines.

    ARES II has all its modifications, gc-config too.
    With rule R1 the same schedule goes on in the order of sending where the decisive messages end.
    """
    script = Script(Ares2Switches(r1=r1))
    (w, writer), (g, mover), (r, reader) = map(script.join, "wgr")
    writing = w.start(writer.write(X, b"new"))
    moving = g.start(mover.reconfig(C1, [X]))
    _first_rounds(script, w, g)
    script.lines.clear()
    script.say(w, "has asked s0 and s1: t0, no successor")
    script.say(g, "has asked s0 and s1: no successor. Decided: c1")
    script.ask(w, "s1", PutData)
    for server in ("s0", "s1"):
        script.ask(g, server, WriteConfig)
    for server in ("s0", "s2"):
        script.ask(g, server, QueryList)
    for kind in (QueryList, PutData):
        for server in ("s0", "s1"):
            script.ask(g, server, kind)
    script.ask(w, "s2", PutData)
    if writing.ended:
        script.say(w, "the write is complete at s1 and s2")
    for kind in (WriteConfig, CollectConfig):
        for server in ("s0", "s1"):
            script.ask(g, server, kind)
    assert moving.ended
    script.say(g, "the reconfiguration is complete")
    _rest(script, writing)
    reading = script.begin(r, reader.read(X), "a read begins")
    for kind in (QueryList, WriteConfig, QueryList):
        for server in ("s0", "s1"):
            script.ask(r, server, kind)
    lines = list(script.lines)
    _rest(script, reading)
    value = reading.result()[1]
    old = value is TOMBSTONE
    return value, [
        *lines,
        f"Note over r: returns {'v0, the value before the write' if old else 'v1'}",
    ]


def _first_rounds(script: Script, w: ProtocolClient, g: ProtocolClient) -> None:
    """Let the writer ask for tags, and the mover for the sequence."""
    for client in (w, g):
        for server in ("s0", "s1"):
            script.ask(client, server, object)


def _rest(script: Script, *pending: Pending) -> None:
    """Let the operations end, whatever is still on the way; draw no more."""
    if not all(each.ended for each in pending):
        script.world.hold = lambda *_: False
        script.world.until(lambda: all(each.ended for each in pending))
        script.world.hold = lambda *_: True
