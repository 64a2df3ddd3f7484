"""Simulated servers: the real replica over a disk.

A crash takes unsynced changes, told to no client. :class:`LateServer` is quick: the server keeps
the requests. The replica is a deterministic function of the handled requests, therefore the durable
state is the synced prefix of the requests with changes; a restart handles these again. No reply
leaves before all handled requests are synced, reads included: a read may show unsynced changes. The
variant with a real journal: ares/testing/sim/journal_server.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from msgspec import structs

from ares.compiled import ServedTurn, replica_parts, server_core
from ares.model.codec import Encoded, Frame, Outgoing, decode_replies, decode_requests, encode
from ares.model.configuration import Configuration
from ares.model.messages import (
    REQUEST_KINDS,
    Adopt,
    AnyMessage,
    Carrier,
    Description,
    GetAhead,
    PullElement,
    PutAhead,
    PutData,
    Reply,
    Request,
)
from ares.net.port import Sender
from ares.replica.replica import Replica, ReplicaParts
from ares.server.element_puller import ElementPuller, Fetch
from ares.testing.sim.invariants import PromiseBroken, ServerWatch
from ares.testing.sim.plan import member
from ares.testing.sim.world import SimWorld

Respond = Callable[[str, str, Sequence[Outgoing]], None]

SIM_REPLICA_PARTS = replica_parts()


class SimServer(ABC):
    """A simulated server.

    ``respond(server, client, replies)`` puts replies on the network. ``replica``: the present
    state, for inspection. ``fetch``: asks peers for the elements that a mover wants here.
    """

    replica: Replica
    fetch: Fetch

    def __init__(
        self, world: SimWorld, number: int, c0: Configuration, watch: ServerWatch, respond: Respond
    ) -> None:
        self.number = number
        self.name = f"s{number}"
        self.up = True
        self.life = 0
        self._world = world
        self._c0 = c0
        self._watch = watch
        self._respond = respond

    def receive(self, client: str, frames: list[bytes]) -> None:
        if self.up:
            self._take(
                client,
                [
                    request
                    for request in decode_requests(frames)
                    if isinstance(request, Request | PullElement)
                ],
                frames,
            )

    def crash(self, lose_unsynced: bool) -> None:
        """Kill the process, and lose all unsynced changes, or only a part."""
        if self.up:
            self.up = False
            self._die(lose_unsynced)

    def restart(self) -> None:
        """Start again with the synced state."""
        if not self.up:
            self.up = True
            self._begin()
            self._watch.restarted(self.replica)

    def lose_disk(self) -> None:
        """Lose the whole disk; the server comes back with a new identity."""
        self.crash(True)
        self.life += 1
        self._erase()
        self.restart()

    def heal(self) -> None:
        """Repair the disk, and start the server."""
        self.restart()

    @abstractmethod
    def _begin(self) -> None:
        """Make the replica from the disk."""

    @abstractmethod
    def _take(
        self, client: str, requests: list[Request | PullElement], frames: Sequence[Frame] = ()
    ) -> None:
        """Handle the requests of a batch. ``frames``: as received; empty without a network."""

    def _parts(self) -> ReplicaParts:
        """Return the parts of the new process; its lists of changes get numbers of their own."""
        return structs.replace(
            SIM_REPLICA_PARTS,
            new_epoch=self._world.epochs.__next__,
            changes_kept=self._world.changes_kept,
        )

    def _bringing(self) -> ElementPuller:
        """Return the ElementPuller of the new process; elements are lost after the process ends."""
        process = self.replica

        def put(sender: Sender, put: PutData) -> None:
            if self.up and self.replica is process:
                self._take(str(sender), [put])

        def respond(sender: Sender, replies: Sequence[Outgoing]) -> None:
            if self.up and self.replica is process:
                self._respond(self.name, str(sender), replies)

        return ElementPuller(process, put, respond, lambda *errand: self.fetch(*errand))

    @abstractmethod
    def _die(self, lose_unsynced: bool) -> None:
        """Lose the unsynced changes of a crash."""

    @abstractmethod
    def _erase(self) -> None:
        """Lose all data on the disk."""


class LateServer(SimServer):
    """A server with late syncs, a prefix of the requests at a time."""

    def __init__(
        self, world: SimWorld, number: int, c0: Configuration, watch: ServerWatch, respond: Respond
    ) -> None:
        super().__init__(world, number, c0, watch, respond)
        self._log: list[Request] = []
        self._synced = 0
        self._syncing = False
        self._waiting: list[tuple[str, list[Outgoing]]] = []
        self._begin()

    def _begin(self) -> None:
        del self._log[self._synced :]
        server = member(self.number, self.life)
        self.replica = Replica(server.id, server.identity, self._c0, parts=self._parts())
        for request in self._log:
            self.replica.handle(request)
        self._core = server_core(self.replica.hosted)
        self._brings = self._bringing()

    def _take(
        self, client: str, requests: list[Request | PullElement], frames: Sequence[Frame] = ()
    ) -> None:
        served = None
        if frames and self._core is not None and not self.replica.changes.recording:
            served = self._core.serve([frames], True)
        replies: list[Outgoing] = [] if served is None else answered(served)
        for request in requests:
            reply, changed = None, _changed(request)
            if served is None:
                reply, changed = self._handle(client, request)
            if reply is not None:
                replies.append(reply)
            for change in changed:
                self._log.append(change)
                self._watch.look(self.replica, change)
        self.replica.release()
        if replies:
            self._waiting.append((client, replies))
            self._commit()

    def _handle(
        self, client: str, request: Request | PullElement
    ) -> tuple[Reply | None, list[Request]]:
        """Return the reply, and the requests with the same change of the durable state.

        Copies ahead are in memory only: an adopted copy is durable as a put.
        """
        if isinstance(request, PullElement):
            return self._brings.answer(client, request), []
        if not isinstance(request, Adopt):
            return self.replica.handle(request), _changed(request)
        puts: list[Request] = []

        def put(copy: PutData) -> Reply:
            puts.append(copy)
            return self.replica.answer(copy)

        return self.replica.adopt(request, put), puts

    def _commit(self) -> None:
        if self._synced == len(self._log):
            waiting, self._waiting = self._waiting, []
            for client, replies in waiting:
                self._respond(self.name, client, replies)
        elif not self._syncing:
            self._syncing = True
            self._world.after(
                self._world.chances.sync_s * self._world.rng.random(),
                self._sync,
                self.life,
                len(self._log),
            )

    def _sync(self, life: int, length: int) -> None:
        if self.up and life == self.life and self._syncing:
            self._syncing = False
            self._synced = max(self._synced, min(length, len(self._log)))
            self._commit()

    def _die(self, lose_unsynced: bool) -> None:
        self._syncing = False
        self._waiting.clear()
        if not lose_unsynced:
            self._synced = self._world.rng.randint(self._synced, len(self._log))

    def _erase(self) -> None:
        self._log.clear()
        self._synced = 0


class EarlierServer(LateServer):
    """A server of a release without copies ahead: it cannot read their messages (rule R24)."""

    def _handle(
        self, client: str, request: Request | PullElement
    ) -> tuple[Reply | None, list[Request]]:
        if isinstance(request, GetAhead | PutAhead | Adopt):
            raise PromiseBroken(
                f"{self.name} is of an earlier release, and cannot read {type(request).__name__}"
            )
        reply, changed = super()._handle(client, request)
        if isinstance(reply, Description):
            reply = structs.replace(reply, ahead=False, copying_s=0.0)
        return reply, changed


def changes(request: Request) -> bool:
    """Return whether handling the request may change the replica."""
    return REQUEST_KINDS[type(request)].changes or (
        isinstance(request, Carrier) and request.successor is not None
    )


def _changed(request: Request | PullElement) -> list[Request]:
    return [] if isinstance(request, PullElement) or not changes(request) else [request]


def answered(served: ServedTurn) -> list[Outgoing]:
    """Return the replies that the compiled core gives at once.

    Raises :class:`PromiseBroken` if their bytes differ from the standard encoding.
    """
    if served.reply is None:
        return []
    replies: list[Outgoing] = list(decode_replies([served.reply]))
    if encode(replies) != [served.reply]:
        raise PromiseBroken("the compiled core writes other bytes")
    return replies


def decoded(replies: Sequence[Outgoing]) -> list[AnyMessage]:
    """Return the replies as messages; encoded replies are decoded, without copies of large data."""
    return [
        message
        for reply in replies
        for message in (decode_replies(encode([reply])) if isinstance(reply, Encoded) else [reply])
    ]
