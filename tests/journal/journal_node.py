"""A server with a journal and no network: the test sends requests and triggers commits."""

import os
import random
import weakref
from collections.abc import Iterator
from pathlib import Path

from ares.compiled import replica_parts
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN
from ares.model.messages import (
    REQUEST_KINDS,
    CollectConfig,
    GetData,
    Introduce,
    NeededRoom,
    PutData,
    Request,
    WriteConfig,
)
from ares.model.tag import Tag
from ares.model.units import KIB
from ares.replica.compaction import Compaction
from ares.replica.facts import fact_bytes_max
from ares.replica.port import lists_of
from ares.replica.replica import Replica
from ares.server.storage_process import recovered
from ares.store.journal.disk import Disk
from ares.store.journal.segment_journal import SegmentJournal
from ares.store.journal.segments import Owner
from ares.store.port import Use

MEMBERS = [Server(f"s{number}", f"host:{number}", f"{number:032x}") for number in range(5)]
INITIAL = Configuration.ec(MEMBERS, 3, 1).at(DEFAULT_DOMAIN, 0)
PHOTOS = Configuration.abd(MEMBERS[:3]).at("photos", 0, INITIAL.id)
NEXT = Configuration.abd(MEMBERS[1:4]).at("photos", 1, INITIAL.id)
ME = MEMBERS[1]
OWNER = Owner(INITIAL.id, ME.id, ME.identity)


class AtOnce:
    """The :class:`ares.store.journal.writer.Background` without a thread.

    Jobs are done at a call of :meth:`step`, or when they come.
    """

    def __init__(self, waiting: bool = False) -> None:
        self.waiting = waiting
        self.jobs = []
        self.error: OSError | None = None

    def submit(self, job, done, short):
        self.jobs.append((job, done))
        if not self.waiting:
            self.step()

    def step(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            try:
                job()
            except OSError as error:
                done(error)
            else:
                done(None)

    def close(self) -> None:
        for job, _ in self.jobs:
            job()
        self.jobs.clear()


class ClosingDisk(Disk):
    """A disk which closes forgotten files.

    The system closes the files of a dead server, but not the files of a server forgotten by a test.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: set[int] = set()
        weakref.finalize(self, _close, self._open)

    def create(self, path, size):
        return self._opened(super().create(path, size))

    def open(self, path):
        return self._opened(super().open(path))

    def close(self, descriptor):
        self._open.discard(descriptor)
        super().close(descriptor)

    def _opened(self, descriptor):
        self._open.add(descriptor)
        return descriptor


def _close(descriptors):
    for descriptor in descriptors:
        os.close(descriptor)


def log_journal(
    directory: Path, disk=None, segment_bytes: int = 64 * KIB, background=None
) -> SegmentJournal:
    return SegmentJournal(
        directory, OWNER, background or AtOnce(), disk or ClosingDisk(), segment_bytes
    )


def room_for(replica, request):
    """Return the room reserved by a server for the request."""
    room = REQUEST_KINDS[type(request)].room
    if room is NeededRoom.ELEMENT:
        return replica.put_room(request)
    if room is NeededRoom.DROPPED_NAMES:
        return replica.drop_room(request)
    return 0 if room is NeededRoom.NONE else replica.pointer_room(request)


def change(replica, request, place):
    """Handle the request as a server does; return the reply, and the fact for the journal."""
    room = REQUEST_KINDS[type(request)].room
    if room is NeededRoom.ELEMENT:
        return replica.put(request, place)
    if room is NeededRoom.POINTER:
        return replica.point(request, place)
    if room is NeededRoom.DROPPED_NAMES:
        return replica.drop(request, place)
    return replica.handle(request), None


class Node:
    """A server with a journal.

    ``plain`` is a replica with the same requests, which never restarted.
    """

    def __init__(self, journal) -> None:
        self.journal = journal
        self.replica = recovered(ME.id, ME.identity, INITIAL, journal, replica_parts())
        self.errors = []

    def handle(self, request: Request):
        """Handle and append, in a host's order; return the reply, or `None` without room."""
        room = room_for(self.replica, request)
        if not room:
            return self.replica.handle(request)
        place = self.journal.reserve(room, Use.DATA)
        if place is None:
            return None
        reply, fact = change(self.replica, request, place)
        if fact is not None:
            self.journal.append(fact, fact_bytes_max(fact))
        return reply

    def commit(self) -> None:
        def done(error, moved):
            self.errors.append(error)
            self.replica.replace(moved)

        self.journal.commit(done)

    def compact(self, place: int, between=lambda: None) -> bool:
        """Give a place back with any contents; return False without room."""
        compaction = Compaction(self.replica, place, self.journal.read(place))
        while not compaction.ended:
            room = compaction.look()
            if room:
                target = self.journal.reserve(room, Use.COMPACTION)
                if target is None:
                    return False
                for fact in compaction.move(target):
                    self.journal.append(fact, fact_bytes_max(fact))
                self.commit()
                between()
        self.journal.discard(place)
        self.replica.give_back(place)
        self.commit()
        between()
        return True

    @property
    def state(self):
        return state(self.replica)


def plain(requests) -> Replica:
    replica = Replica(ME.id, ME.identity, INITIAL)
    for request in requests:
        replica.handle(request)
    return replica


def state(replica: Replica):
    """Return all state behind answers."""
    return {
        id: (
            hosting.successor,
            hosting.collected,
            hosting.bytes,
            {
                name: (
                    versions.trimmed,
                    [
                        (tag, element.checksum, b"".join(element.parts))
                        for tag, element, _ in versions.entries
                    ],
                )
                for name, versions in lists_of(hosting.objects)
            },
        )
        for id, hosting in replica.hosted.items()
    }


def put(
    object: str,
    number: int,
    data: bytes = b"",
    configuration: Configuration = INITIAL,
    parts: int = 1,
    writer: int = 1,
) -> PutData:
    tag, index = Tag(number, writer), 1 if configuration.dap == "ec" else 0
    parts = min(parts, 1 + len(data) // KIB)
    step = -(-len(data) // parts) or 1
    pieces = tuple(data[start : start + step] for start in range(0, len(data), step))
    return PutData(
        7,
        configuration.id,
        object,
        tag,
        sealed(configuration.id, object, tag, index, len(data), pieces),
    )


def requests(count: int, seed: int = 1, sizes=(5, 300, 9 * KIB, 20 * KIB)) -> Iterator[Request]:
    """Yield puts of a few objects in two configurations, with repetitions.

    The second configuration is afterwards superseded, and collected.
    """
    rng = random.Random(seed)
    yield Introduce(1, PHOTOS)
    done: list[Request] = []
    for number in range(1, count):
        if number == count * 2 // 3:
            yield GetData(2, PHOTOS.id, "a", True, None, Successor(NEXT, Status.PENDING))
            yield WriteConfig(3, PHOTOS.id, Successor(NEXT, Status.FINALIZED))
            yield CollectConfig(4, PHOTOS.id, Successor(NEXT, Status.FINALIZED))
        if done and rng.random() < 0.2:
            yield rng.choice(done)
            continue
        size = rng.choice(sizes)
        where = rng.choice([INITIAL, INITIAL, PHOTOS])
        done.append(
            put(
                rng.choice("abcd"),
                rng.randint(1, number + 1),
                rng.randbytes(size),
                where,
                rng.choice([1, 2]),
                rng.randint(1, 2),
            )
        )
        yield done[-1]
