"""Simulated servers of a log over the real store, on a model of a disk.

Hosted logs and journals run as on a durable server.
"""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from types import coroutine
from typing import Any

from ares.model.codec import decode
from ares.model.errors import BadInput, StoreDamaged
from ares.model.identity import CallId, DomainName, ServerId
from ares.model.messages import Ack, AnyMessage, Describe
from ares.net.port import Sender
from ares.server.hosted_log import HostedLog
from ares.server.hosted_logs import CHAIN_REPLIES, HostedLogs, LogsParts
from ares.server.log_scrub import LogRepairs
from ares.sharedlog.node import LogNode
from ares.store.journal.segment_journal import SegmentJournal, reserves_of_log
from ares.store.journal.segments import SEGMENT_SUFFIX, Owner
from ares.store.port import OrderedJournal
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

ROTTEN_BITS = (1, 1, 2, 16)
"""Numbers of bits that rot at once."""

ROT_RETRY_S = 0.1
"""Seconds until a server tries a repair again, or looks for a closed place again."""


@coroutine
def _sleep(seconds: float) -> Generator[float, None, None]:
    yield seconds


async def _run(action: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work of a thread at once."""
    return action(*arguments)


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
        self._rotten: list[tuple[str, int, int]] = []
        super().__init__(run, number)

    def fill(self) -> None:
        """Fill the disk: almost no bytes are free any more."""
        self._files.room = self._files.used + self._world.rng.randint(0, LOG_LEFT_BYTES_MAX)

    def empty(self) -> None:
        """Make room on the disk."""
        self._files.room = None

    def rot(self, down_s: float) -> None:
        """Flip bits in a closed place, if need be later, and repair the place.

        The power fails behind the repair. Memory has the bits right, and without a repair they are
        right again before a start.
        """
        rng, logs = self._world.rng, self._logs.on_disk if self.up and not self._rotten else []
        places = [(*log, place) for log in logs for place in sorted(log[1].places())]
        if not places:
            self._world.after(ROT_RETRY_S, self.rot, down_s)
            return
        hosted, journal, place = rng.choice(places)
        name, end = f"{place:08}{SEGMENT_SUFFIX}", journal.durable()[place]
        bits = range(rng.choice(ROTTEN_BITS))
        self._rotten = [(name, rng.randrange(end), rng.randrange(8)) for _ in bits]
        self._world.narrate(f"{self.name} ROTS in place {place}")
        self._flip()
        self._go_on(self._life, self._repair(hosted, journal, place, down_s))

    def _flip(self) -> None:
        for name, at, bit in self._rotten:
            with suppress(KeyError):  # given back
                self._files.flip(name, at, bit, True)

    async def _repair(
        self, hosted: HostedLog, journal: OrderedJournal, place: int, down_s: float
    ) -> None:
        repairs = LogRepairs(lambda bytes: None, _sleep)
        await repairs.repair(hosted, place, _run)
        while why := repairs.damaged.get((hosted, place)):
            if why.startswith("the disk"):
                raise PromiseBroken(f"a repair of {self.name} failed: {why}")
            await _sleep(ROT_RETRY_S)
            await repairs.repair(hosted, place, _run)
        if place in journal.durable():  # else given back
            self._rotten = []
        self._world.narrate(f"{self.name} HAS REPAIRED place {place}")
        self.crash(True)
        self._world.after(down_s, self.restart)

    def _go_on(self, life: int, work: Coroutine[float, None, None]) -> None:
        """Go on with a repair until it sleeps, and after the sleep."""
        if self.up and life == self._life:
            with suppress(StopIteration):
                self._world.after(work.send(None), self._go_on, life, work)

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
            self._flip()
            self._rotten = []
            self._process.die()
            if lose_unsynced:
                self._files.lose_power()
            self._begin()
            self._run.watch.restarted(self)
