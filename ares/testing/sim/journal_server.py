"""A simulated server over the real store: the host, the state, and the journal of a durable server.

The store runs on a model of a disk. The journal's thread does a commit's work at once, some time
after the request, and reports later still. A crash in between leaves the state of a random moment
of the work: a random number of the changes to the disk, and a part of a write.

A scrubber is ares/server/scrub.py in virtual time; examination, reclaiming and repairs are the real
code.
"""

import contextlib
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from msgspec import structs

from ares.model.codec import Frame, Outgoing
from ares.model.configuration import Configuration
from ares.model.element import intact
from ares.model.errors import BadInput, StoreDamaged
from ares.model.identity import NO_CALL
from ares.model.messages import Description, Element, PullElement, PutData, Request
from ares.net.port import Sender
from ares.registers.repair import rebuild_element
from ares.replica.compaction import CompactionLimits
from ares.replica.facts import Key
from ares.server.storage_process import recovered
from ares.server.storage_server import ServerParts, StorageServer
from ares.store.journal.segment_journal import SegmentJournal
from ares.store.journal.segments import SEGMENT_SUFFIX, Owner
from ares.testing.sim.asker import Asker, Post
from ares.testing.sim.invariants import PromiseBroken, ServerWatch, SimPromises
from ares.testing.sim.model_disk import ModelDisk, PowerLost
from ares.testing.sim.plan import member
from ares.testing.sim.simulated_server import (
    Respond,
    SimServer,
    answered,
    changes,
    decoded,
)
from ares.testing.sim.world import SimWorld

STORE_DIRECTORY = Path("store")

CHANGES_MAX = (2, 2, 12)
"""The most disk changes of a commit's work: in most cases a write and a sync."""

ROTTEN_SHARE = 0.5
"""The share of full places that get a flipped bit."""

CACHED_SHARE = 0.7
"""The share of flipped bits that memory still has right."""

CRASHES_AGAIN_SHARE = 0.15
"""The probability that the power fails while a server starts."""

STORE_LEFT_BYTES_MAX = 8 * 1024
"""Free bytes of a full disk, at most."""

REPORT_SHARE = 0.5
"""The longest delay of a commit's report, in units of a sync's duration."""

SCRUB_EVERY_S = 0.4


def disk_changes(rng: Random) -> int:
    """Draw the number of disk changes that a commit or a start completes before the power fails."""
    return rng.randint(0, rng.choice(CHANGES_MAX))


def _is_broken(error: BaseException | None) -> bool:
    """Return whether a broken disk raises this error; others are faults of the journal."""
    return isinstance(error, OSError) and error.errno == errno.EIO


class SimProcess:
    """The surroundings of a server's process: an event loop, and a thread for the journal.

    After the process died, no callback runs any more.
    """

    def __init__(self, world: SimWorld, disk: ModelDisk) -> None:
        self.alive = True
        self._world = world
        self._disk = disk
        self._busy = False
        self._jobs: list[tuple[Callable[[], None], Callable[[OSError | None], None]]] = []

    def call_soon(self, callback: Callable[[], None], /) -> None:
        self._world.after(0.0, self._call, callback)

    def time(self) -> float:
        return self._world.now

    def submit(
        self, job: Callable[[], None], done: Callable[[OSError | None], None], short: bool
    ) -> None:
        self._jobs.append((job, done))
        if not self._busy:
            self._begin()

    def close(self) -> None:
        pass

    def _begin(self) -> None:
        self._busy = True
        self._world.after(self._world.chances.sync_s * self._world.rng.random(), self._work)

    def _work(self) -> None:
        if not self.alive:
            return
        job, done = self._jobs.pop(0)
        error = None
        try:
            job()
        except OSError as raised:
            error = raised
        self._world.after(
            self._world.chances.sync_s * REPORT_SHARE * self._world.rng.random(),
            self._finished,
            done,
            error,
        )

    def _finished(self, done: Callable[[OSError | None], None], error: OSError | None) -> None:
        if self.alive:
            self._busy = False
            done(error)
            if self._jobs and not self._busy:
                self._begin()

    def _call(self, callback: Callable[[], None]) -> None:
        if self.alive:
            callback()

    def die(self) -> None:
        """Die, in the middle of work on the disk if work is under way."""
        self.alive = False
        for job, _ in self._jobs[:1]:
            self._disk.patience = disk_changes(self._world.rng)
            with contextlib.suppress(PowerLost, OSError):
                job()
        self._disk.lose_process()


class JournalServer(SimServer):
    """A server with a real journal.

    ``segment_bytes``: of the journal. A store that is refused because of rot, or lacks files, is
    given up: the server begins again, with a new identity. ``host``, ``journal``: of the present
    process, or the last.
    """

    _disk: ModelDisk
    _promises: SimPromises

    def __init__(
        self,
        world: SimWorld,
        number: int,
        c0: Configuration,
        watch: ServerWatch,
        respond: Respond,
        segment_bytes: int,
    ) -> None:
        super().__init__(world, number, c0, watch, respond)
        self._segment_bytes = segment_bytes
        self._limits = CompactionLimits(segment_bytes // 4, segment_bytes // 4, 20)
        self._healed = False
        self._erase()
        self._begin()

    def fill(self) -> None:
        """Fill the disk: almost no bytes are free any more."""
        self._disk.room = self._disk.used + self._world.rng.randint(0, STORE_LEFT_BYTES_MAX)

    def empty(self) -> None:
        """Make room on the disk."""
        self._disk.room = None

    def break_down(self) -> None:
        """Make the next sync fail, which ends the process."""
        self._disk.failing = True

    def rot(self) -> None:
        """Flip bits in full places: damage in the last place may look like the trace of a crash."""
        rng, files = self._world.rng, self._disk.files
        for name in sorted(name for name in files if name.endswith(SEGMENT_SUFFIX))[:-1]:
            if rng.random() < ROTTEN_SHARE:
                self._promises.rotten = True
                self._disk.flip(
                    name,
                    rng.randrange(len(files[name])),
                    rng.randrange(8),
                    rng.random() < CACHED_SHARE,
                )

    def lose_segments(self) -> None:
        """Crash, and lose segments: all, the newest, or a random one.

        The crash may also cut the newest segment short.
        """
        rng = self._world.rng
        self.crash(rng.random() < 0.5)
        names = sorted(name for name in self._disk.files if name.endswith(SEGMENT_SUFFIX))
        if not names:
            return
        self._robbed = True
        some = rng.choice(
            [names, names[-1:], names[-rng.randint(1, len(names)) :], [rng.choice(names)], []]
        )
        for name in some:
            self._disk.lose_file(name)
        if not some:
            self._disk.cut(names[-1], rng.randrange(len(self._disk.files[names[-1]])))

    def heal(self) -> None:
        self.empty()
        self._disk.failing = False
        self._healed = True
        super().heal()

    def _begin(self) -> None:
        while not self._began():
            self._world.narrate(f"{self.name} ENDS while it starts")

    def _began(self) -> bool:
        """Start, and return whether the server runs; the power or the disk may fail meanwhile."""
        server = member(self.number, self.life)
        self._process = SimProcess(self._world, self._disk)
        owner = Owner(self._c0.id, server.id, server.identity)
        journal = SegmentJournal(
            STORE_DIRECTORY, owner, self._process, self._disk, self._segment_bytes
        )
        if self._world.rng.random() < CRASHES_AGAIN_SHARE:
            self._disk.patience = disk_changes(self._world.rng)
        try:
            self.replica = recovered(server.id, server.identity, self._c0, journal, self._parts())
        except PowerLost:
            self._disk.lose_power()
            return False
        except (StoreDamaged, BadInput) as error:
            if (self._promises.rotten or self._robbed) and isinstance(error, StoreDamaged):
                self.life += 1
                self._erase()
                return False
            if not _is_broken(error.__cause__):
                raise PromiseBroken(f"{self.name} does not start: {error}") from error
            self._disk.lose_process()
            return False
        self._disk.patience = None
        self.journal = journal
        self._promises.kept(self.replica)
        self.host = StorageServer(
            self.replica,
            journal,
            ServerParts(self._reply, self._fail, loop=self._process, limits=self._limits),
        )
        self.host.bring = self._bringing().answer
        return True

    def _take(
        self, client: str, requests: list[Request | PullElement], frames: Sequence[Frame] = ()
    ) -> None:
        self._promises.asked(client, requests)
        served = self.host.serve(client, [frames]) if frames else None
        replies: Sequence[Outgoing] = (
            self.host.handle(client, requests) if served is None else answered(served)
        )
        for request in requests:
            if not isinstance(request, PullElement) and changes(request):
                self._watch.look(self.replica, request)
        if replies:
            self._reply(client, replies)

    def _reply(self, client: Sender, replies: Sequence[Outgoing]) -> None:
        self._promises.check_replies(str(client), decoded(replies))
        # the memory of the simulator's process differs from run to run
        told = [
            structs.replace(reply, memory_bytes=0) if isinstance(reply, Description) else reply
            for reply in replies
        ]
        self._respond(self.name, str(client), told)

    def _fail(self, error: OSError) -> None:
        if not _is_broken(error):
            raise PromiseBroken(f"the store of {self.name} failed: {error}") from error
        self._world.narrate(f"{self.name} ENDS because of its disk")
        self.crash(False)
        if self._healed:
            self.restart()

    def _die(self, lose_unsynced: bool) -> None:
        self._process.die()
        if lose_unsynced:
            self._disk.lose_power()

    def _erase(self) -> None:
        self._robbed = False
        self._disk = ModelDisk(self._world.rng)
        self._promises = SimPromises(self.name)


class SimScrubber(Asker):
    """The scrubber of ``server``."""

    _server: JournalServer

    def __init__(self, world: SimWorld, post: Post, server: JournalServer) -> None:
        super().__init__(world, post, server, "scrub")
        self._pulling: set[Key] = set()
        self._world.after(SCRUB_EVERY_S * self._world.rng.random(), self._look)

    def done(self, servers: Sequence[SimServer]) -> bool:
        """Return whether all repairable damage is repaired.

        Damage is repairable if ``servers`` have enough elements to rebuild.
        """
        own = self._server
        return not own.up or not (
            own.host.leaving
            or any(self._can_rebuild(key, servers) for key in own.host.replica.quarantined)
        )

    def _can_rebuild(self, key: Key, servers: Sequence[SimServer]) -> bool:
        """Return whether an element can be rebuilt.

        If another server says that the successor is finalized, the element is not needed any more,
        though this server may not know.
        """
        id, object, tag = key
        held = 0
        for server in servers:
            hosting = (
                server.replica.hosted.get(id) if server.up and server is not self._server else None
            )
            if (
                hosting is not None
                and hosting.successor is not None
                and hosting.successor.finalized
            ):
                return False
            version = hosting.objects.version(object, tag) if hosting is not None else None
            held += version is not None and intact(id, object, tag, version[1])
        return held >= self._server.replica.hosted[id].configuration.k

    def _look(self) -> None:
        self._world.after(SCRUB_EVERY_S, self._look)
        server = self._server
        if not server.up:
            return
        for place in sorted(server.journal.durable()):
            examination = server.journal.examination(place)
            verdict = examination.run(lambda bytes: None) if examination is not None else None
            if verdict is not None and not verdict.whole:
                self._world.narrate(f"{server.name} LEAVES place {place} of its store")
                server.host.leave(place, verdict.readable)
        for key in server.host.replica.quarantined:
            if key not in self._pulling:
                self._pull(server.host, key)

    def _pull(self, host: StorageServer, key: Key) -> None:
        id, object, tag = key
        self._pulling.add(key)
        configuration = host.replica.hosted[id].configuration
        operation = rebuild_element(
            configuration, object, tag, host.replica.missing_bytes(key), host.replica.server
        )

        def done(element: Element | None, error: BaseException | None) -> None:
            self._pulling.discard(key)
            if (
                element is not None
                and host is self._server.host
                and self._server.up
                and host.repair(PutData(NO_CALL, id, object, tag, element))
            ):
                self._world.narrate(
                    f"{self._server.name} REPAIRS {object} {tag.number}.{tag.writer}"
                )

        self.ask(operation, done)
