"""A world in which messages travel as a test tells, and the sequence diagrams of its messages."""

from collections.abc import Mapping
from typing import Any

from ares.engine.effects import Operation
from ares.model.configuration import Successor
from ares.model.identity import ConfigurationId
from ares.model.messages import DataReply, Introduce, ListReply, PutData, TagReply
from ares.model.tag import Tag
from tests.protocol.protocol_world import Pending, ProtocolClient, ProtocolWorld

NAMES = {
    "GetTag": "QUERY-TAG",
    "QueryList": "QUERY-LIST",
    "GetData": "GET-DATA",
    "PutData": "PUT-DATA",
    "ReadConfig": "READ-CONFIG",
    "WriteConfig": "WRITE-CONFIG",
    "CollectConfig": "GC-CONFIG",
}
"""Names of the paper's messages; GET-DATA is the request of this project for QUERY-LIST."""


class Script:
    """A world in which messages travel as told.

    ``places``: the names of the configurations; one alone is not named in the diagrams.
    """

    lines: list[str]
    """The diagram of all messages: an arrow for each request, and an arrow for each reply."""

    decisive: list[str]
    """The diagram of the decisive messages: an arrow for each request, with the reply's meaning."""

    def __init__(self, world: ProtocolWorld, places: Mapping[ConfigurationId, str]) -> None:
        self.world = world
        self.clear()
        self._places = places
        self._names: dict[ProtocolClient, str] = {}
        self.hold_all()

    def clear(self) -> None:
        """Begin both diagrams again."""
        self.lines, self.decisive = [], []

    def hold_all(self) -> None:
        self.world.hold = lambda *_: True

    def join(self, name: str) -> ProtocolClient:
        """Return a new client."""
        client = self.world.client()
        self._names[client] = name
        return client

    def begin(self, client: ProtocolClient, operation: Operation[Any], text: str) -> Pending:
        """Begin an operation; its messages stay on the way."""
        self.say(client, text)
        return client.start(operation)

    def say(self, client: ProtocolClient, text: str) -> None:
        """Add a note to both diagrams."""
        for diagram in (self.lines, self.decisive):
            diagram.append(f"Note over {self._names[client]}: {text}")

    def ask(self, client: ProtocolClient, server: str, kind: type, decisive: bool = False) -> None:
        """Let a server handle a request, and the client hear the reply."""
        request = self._pass(client, server, kind)
        reply = self._pass(server, client, object)
        asked = f"{self._names[client]}->>{server}: {self._question(request)}"
        answer = _answer(request, reply)
        self.lines += [asked, f"{server}-->>{self._names[client]}: {answer}"]
        if decisive:
            self.decisive.append(f"{asked}, reply: {answer}")

    def _pass(self, source: Any, target: Any, kind: type) -> Any:
        passed: list[Any] = []

        def watch(came_from: Any, went_to: Any, message: Any) -> None:
            if not isinstance(message, Introduce):
                passed.append(message)

        self.world.watch = watch
        self.world.hold = lambda came_from, went_to, message: (
            not isinstance(message, Introduce)
            and not (came_from == source and went_to == target and isinstance(message, kind))
        )
        while not passed:
            assert self.world.step(), f"no {kind.__name__} from {source} to {target}"
        self.hold_all()
        self.world.watch = lambda *_: None
        return passed[-1]

    def _question(self, request: Any) -> str:
        parts = [NAMES[type(request).__name__]]
        if isinstance(request, PutData):
            parts.append(_tag(request.tag))
        elif (carried := getattr(request, "successor", None)) is not None:
            parts.append(_next(carried))
        if len(self._places) > 1:
            parts.append(f"in {self._places[request.configuration]}")
        return " ".join(parts)

    def end(self, *pending: Pending) -> None:
        """Let the operations end, with all messages still on the way; draw no more."""
        if not all(each.ended for each in pending):
            self.world.hold = lambda *_: False
            self.world.until(lambda: all(each.ended for each in pending))
            self.hold_all()


def _answer(request: Any, reply: Any) -> str:
    known = f"nextC = {_next(reply.successor)}"
    if isinstance(reply, ListReply):
        shown = ["bottom" if each.element is None else _tag(each.tag) for each in reply.entries]
        return f"{', '.join(shown) or 'an empty List'}, {known}"
    if isinstance(reply, DataReply):
        return f"{', '.join(map(_tag, reply.tags))}, dropped up to {_tag(reply.trimmed)}"
    return f"{_tag(reply.tag)}, {known}" if isinstance(reply, TagReply) else known


def _tag(tag: Tag) -> str:
    return f"t{tag.number}"


def _next(successor: Successor | None) -> str:
    if successor is None:
        return "none"
    return f"(c{successor.configuration.index}, {'F' if successor.finalized else 'P'})"
