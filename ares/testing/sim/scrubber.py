"""A simulated server looks after its disk: ares/server/scrub.py in virtual time; examination, reclaiming and repairs are the real ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ares.model.codec import decode_replies, encode
from ares.model.element import intact
from ares.model.identity import NO_CALL, ServerId
from ares.model.messages import Element, PutData
from ares.objects.repair import rebuild_element
from ares.operation.session import Session
from ares.replica.facts import Key
from ares.server.host import Host
from ares.testing.sim.journal_server import JournalServer
from ares.testing.sim.simulated_server import SimServer

if TYPE_CHECKING:
    from ares.testing.sim.run import SimRun

EVERY_S = 0.4
TICK_S = 0.1
PATIENCE_S = 30.0


class Scrubber:
    """Of ``server``. ``name``: as a client of the other servers."""

    def __init__(self, run: "SimRun", server: JournalServer) -> None:
        self.name = f"{server.name}'s scrub"
        self._run = run
        self._world = run.world
        self._server = server
        self._session = Session()
        self._pulling: set[Key] = set()
        self._ticking = False
        self._world.after(EVERY_S * self._world.rng.random(), self._look)

    def done(self, servers: Sequence[SimServer]) -> bool:
        """No damaged place is left, and whatever can be rebuilt from what ``servers`` hold is."""
        own = self._server
        return not own.up or not (own.host.leaving or any(self._can_rebuild(key, servers) for key in own.host.replica.quarantined))

    def _can_rebuild(self, key: Key, servers: Sequence[SimServer]) -> bool:
        """Not where another server says that the successor is finalized: then it is not needed any more, though this server may not have heard."""
        id, object, tag = key
        held = 0
        for server in servers:
            hosting = server.replica.hosted.get(id) if server.up and server is not self._server else None
            if hosting is not None and hosting.successor is not None and hosting.successor.finalized:
                return False
            versions = hosting.objects.get(object) if hosting is not None else None
            element = versions.element(tag) if versions is not None else None
            held += element is not None and intact(id, object, tag, element)
        return held >= self._server.replica.hosted[id].configuration.k

    def receive(self, server: str, frames: list[bytes]) -> None:
        """Replies of another server."""
        self._session.receive(ServerId(server), decode_replies(frames), self._world.now)
        self._flush()

    def _look(self) -> None:
        self._world.after(EVERY_S, self._look)
        server = self._server
        if not server.up:
            return
        for place in sorted(server.journal.durable()):
            examination = server.journal.examination(place)
            verdict = examination.run(lambda bytes: None) if examination is not None else None
            if verdict is not None and not verdict.whole:
                self._world.tell(f"{server.name} LEAVES place {place} of its store")
                server.host.leave(place, verdict.readable)
        for key in server.host.replica.quarantined:
            if key not in self._pulling:
                self._pull(server.host, key)
        self._flush()

    def _pull(self, host: Host, key: Key) -> None:
        id, object, tag = key
        self._pulling.add(key)
        configuration = host.replica.hosted[id].configuration
        operation = rebuild_element(configuration, object, tag, host.replica.missing_bytes(key), host.replica.server)

        def done(element: Element | None, error: BaseException | None) -> None:
            self._pulling.discard(key)
            if element is not None and host is self._server.host and self._server.up and host.repair(PutData(NO_CALL, id, object, tag, element)):
                self._world.tell(f"{self._server.name} REPAIRS {object} {tag.number}.{tag.writer}")

        self._session.start(operation, "repair", self._world.now, PATIENCE_S, done)

    def _flush(self) -> None:
        for server, messages in self._session.take_outbox().items():
            self._run.post(self, server, encode(messages))
        self._session.contacts.clear()
        self._session.hints.clear()
        if self._session.busy and not self._ticking:
            self._ticking = True
            self._world.after(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self._session.tick(self._world.now)
        self._flush()
