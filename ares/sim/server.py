"""A simulated server: the real replica over a disk that syncs late.

The replica is a deterministic function of the requests it handled, so its durable state is the synced prefix of the requests that changed
something; a restart handles them again. Nothing is answered before what was handled so far is synced, reads included: they may show what is not.
"""

from collections.abc import Callable

from ares.codec import decode
from ares.configuration import Configuration
from ares.messages import AnyMessage, CollectConfig, Describe, GetData, GetTag, Introduce, ListObjects, PutData, ReadConfig, Request, WriteConfig
from ares.server.replica import Replica
from ares.sim.invariants import ServerWatch
from ares.sim.plan import member
from ares.sim.world import World

Respond = Callable[[str, str, list[AnyMessage]], None]


class SimServer:
    """``respond(server, client, replies)`` puts replies on the network."""

    def __init__(self, world: World, number: int, c0: Configuration, watch: ServerWatch, respond: Respond) -> None:
        self.number = number
        self.name = f"s{number}"
        self.up = True
        self.life = 0
        self._world = world
        self._c0 = c0
        self._watch = watch
        self._respond = respond
        self._log: list[Request] = []
        self._synced = 0
        self._syncing = False
        self._waiting: list[tuple[str, list[AnyMessage]]] = []
        self.replica = self._born()

    def _born(self) -> Replica:
        server = member(self.number, self.life)
        return Replica(server.id, server.identity, self._c0)

    def receive(self, client: str, frames: list[bytes]) -> None:
        if not self.up:
            return
        replies: list[AnyMessage] = []
        for request in decode(frames):
            assert isinstance(request, Request)
            reply = self.replica.handle(request)
            if reply is not None:
                replies.append(reply)
            if changes(request):
                self._log.append(request)
                self._watch.look(self.replica, request)
        if replies:
            self._waiting.append((client, replies))
            self._commit()

    def _commit(self) -> None:
        if self._synced == len(self._log):
            waiting, self._waiting = self._waiting, []
            for client, replies in waiting:
                self._respond(self.name, client, replies)
        elif not self._syncing:
            self._syncing = True
            self._world.after(self._world.chances.sync_s * self._world.rng.random(), self._sync, self.life, len(self._log))

    def _sync(self, life: int, length: int) -> None:
        if self.up and life == self.life and self._syncing:
            self._syncing = False
            self._synced = max(self._synced, min(length, len(self._log)))
            self._commit()

    def crash(self, lose_unsynced: bool) -> None:
        """The process dies; so does what it did not sync, or only some of that."""
        if self.up:
            self.up = False
            self._syncing = False
            self._waiting.clear()
            if not lose_unsynced:
                self._synced = self._world.rng.randint(self._synced, len(self._log))

    def restart(self) -> None:
        """Back with what was synced."""
        if self.up:
            return
        self.up = True
        del self._log[self._synced :]
        self.replica = self._born()
        for request in self._log:
            self.replica.handle(request)
        self._watch.restarted(self.replica)

    def lose_disk(self) -> None:
        """Everything is gone; the server comes back as somebody else."""
        self.up = False
        self._syncing = False
        self._waiting.clear()
        self._log.clear()
        self._synced = 0
        self.life += 1
        self.restart()


def changes(request: Request) -> bool:
    """Whether handling it may change what the replica holds."""
    match request:
        case PutData() | WriteConfig() | CollectConfig() | Introduce():
            return True
        case GetData() | ListObjects():
            return request.successor is not None
        case GetTag() | ReadConfig() | Describe():
            return False


