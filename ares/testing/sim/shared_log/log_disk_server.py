"""Simulated servers of a log over the real store, on a model of a disk.

Hosted logs and journals run as on a durable server.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path

from ares.model.codec import decode
from ares.model.errors import BadInput, StoreDamaged
from ares.model.identity import CallId, DomainName, ServerId
from ares.model.messages import Ack, AnyMessage, Describe
from ares.net.port import Sender
from ares.server.hosted_logs import CHAIN_REPLIES, HostedLogs, LogsParts
from ares.sharedlog.node import LogNode
from ares.store.journal.segment_journal import SegmentJournal, reserves_of_log
from ares.store.journal.segments import Owner
from ares.testing.sim.invariants import PromiseBroken
from ares.testing.sim.journal_server import CRASHES_AGAIN_SHARE, SimProcess, disk_changes
from ares.testing.sim.model_disk import ModelDisk, PowerLost
from ares.testing.sim.plan import member
from ares.testing.sim.shared_log.log_server import (
    LOG_SERVER_TICK_S,
    LogServer,
    LogServerRun,
    SimSender,
)

LOG_DIRECTORY = Path("log")
LOG_LEFT_BYTES_MAX = 4096


class SimLinks:
    """The :class:`ares.net.port.Connections` of a server."""

    troubles: Mapping[ServerId, str] = {}
    connected_s: Mapping[ServerId, float] = {}
    over_sockets: Set[ServerId] = frozenset()

    def __init__(self, post: Callable[[str, Sequence[AnyMessage]], None]) -> None:
        self._post = post
        self.deliver: Callable[[ServerId, Sequence[AnyMessage]], None] = lambda server, messages: (
            None
        )

    def open(self, deliver: Callable[[ServerId, Sequence[AnyMessage]], None]) -> None:
        self.deliver = deliver

    def learn(self, server: ServerId, address: str) -> None: ...

    def post(self, server: ServerId, messages: Sequence[AnyMessage]) -> None:
        self._post(server, messages)

    def receiving(self, server: ServerId) -> bool:
        return False

    def sending(self, server: ServerId, call: CallId) -> bool:
        return False

    async def close(self) -> None: ...


class DiskLogServer(LogServer):
    """A server of a single log.

    Chance decides which unsynced data survives a power failure; a second failure may follow during
    the start.
    """

    def __init__(self, run: LogServerRun, number: int) -> None:
        self._files = ModelDisk(run.world.rng)
        self._starts = 0
        super().__init__(run, number)

    def fill(self) -> None:
        """Fill the disk: almost no bytes are free any more."""
        self._files.room = self._files.used + self._world.rng.randint(0, LOG_LEFT_BYTES_MAX)

    def empty(self) -> None:
        """Make room on the disk."""
        self._files.room = None

    def _begin(self) -> None:
        while not self._began():
            self._world.narrate(f"{self.name} ENDS while it starts")

    def _began(self) -> bool:
        """Start, and return whether the server runs; the power may fail."""
        own, world = member(self.number), self._world
        self._process, self._links = SimProcess(world, self._files), SimLinks(self._post)
        plan = self._run.plan
        self._logs = HostedLogs(
            LogsParts(
                own.id,
                own.identity,
                plan.first_chain,
                self._respond,
                self._fail,
                self._process,
                self._links,
                self,
                plan.place_bytes,
            )
        )
        if world.rng.random() < CRASHES_AGAIN_SHARE:
            self._files.patience = disk_changes(world.rng)
        try:
            self._logs.restore()
        except PowerLost:
            self._files.lose_power()
            return False
        except (StoreDamaged, BadInput) as error:
            raise PromiseBroken(f"{self.name} does not start: {error}") from error
        self._files.patience = None
        self.node = LogNode(own.id, own.identity)
        self._know()
        return True

    def _know(self) -> None:
        self.node = next(iter(self._logs.nodes), self.node)

    # -- the journals, as :class:`ares.store.port.SharedLogJournals` ---------------------------

    def begin_life(self) -> int:
        self._starts += 1
        return self._starts

    def there(self) -> Iterable[Callable[[], SegmentJournal]]:
        return [self._journal] if self._files.files else []

    def open(self, name: DomainName) -> SegmentJournal:
        return self._journal()

    def _journal(self) -> SegmentJournal:
        own = member(self.number)
        return SegmentJournal(
            LOG_DIRECTORY,
            Owner(b"cluster", own.id, own.identity),
            self._process,
            self._files,
            self._run.plan.place_bytes,
            reserves_of_log(self._run.plan.place_bytes),
        )

    # -- messages ----------------------------------------------------------------------------------

    def receive(self, sender: str, frames: list[bytes]) -> None:
        if not self.up:
            return
        for message in decode(frames):
            if type(message) in CHAIN_REPLIES or isinstance(message, Ack):
                self._links.deliver(ServerId(sender), [message])
            elif isinstance(message, Describe):
                self._describe(sender, message)
            else:
                self._logs.handle(self._client(sender), message)
        self._look()

    def _look(self) -> None:
        self._know()
        self._run.watch.look(self)

    def _respond(self, sender: Sender, messages: Sequence[AnyMessage]) -> None:
        assert isinstance(sender, SimSender)
        self._post(sender.name, messages)

    def _post(self, to: str, messages: Sequence[AnyMessage]) -> None:
        self._know()
        self._run.watch.check_replies(self, messages)
        self._run.post(self.name, to, list(messages))
        self._run.watch.look(self)

    def _tick(self, life: int) -> None:
        if self.up and life == self._life:
            self._logs.tick()
            self._look()
            self._world.after(LOG_SERVER_TICK_S, self._tick, life)

    # -- crashes -----------------------------------------------------------------------------------

    def _fail(self, error: OSError) -> None:
        raise PromiseBroken(f"the store of {self.name} failed: {error}") from error

    def crash(self, lose_unsynced: bool) -> None:
        if self.up:
            self.up = False
            self._life += 1
            self._process.die()
            if lose_unsynced:
                self._files.lose_power()
            self._begin()
            self._run.watch.restarted(self)
