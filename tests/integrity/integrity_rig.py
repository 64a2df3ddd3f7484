"""A durable server over real files, with loop and clock of the test, and damage to its disk."""

import errno
import os
import random
from pathlib import Path

from ares.compiled import replica_parts
from ares.model.element import intact
from ares.model.messages import DELETED_LENGTH, GetData, Introduce
from ares.model.units import KIB
from ares.server.storage_process import recovered
from ares.server.storage_server import ServerParts, StorageServer
from ares.store.journal.disk import Disk
from ares.store.journal.format import BATCH_MAGIC, SEGMENT_MAGIC, decode_head, parse_frame, walk
from ares.store.port import ExaminationResult

from ..journal.journal_node import INITIAL, ME, PHOTOS, ClosingDisk, log_journal, put, state

BATCH_MAX = 4


class ManualLoop:
    """A :class:`ares.net.port.Loop` in the test's control."""

    def __init__(self) -> None:
        self._calls = []

    def call_soon(self, callback):
        self._calls.append(callback)

    def time(self):
        return 0.0

    def run(self):
        """Run until the loop is empty."""
        while self._calls:
            self._calls.pop(0)()


class RiggedServer:
    """A server of ``directory``, or of ``journal``."""

    def __init__(self, directory: Path, disk: Disk | None = None, journal=None) -> None:
        self.directory = directory
        self.journal = journal or log_journal(directory, disk)
        self.loop = ManualLoop()
        self.later, self.failures = [], []
        replica = recovered(ME.id, ME.identity, INITIAL, self.journal, replica_parts())
        self.host = StorageServer(
            replica,
            self.journal,
            ServerParts(
                lambda _, replies: self.later.extend(replies), self.failures.append, loop=self.loop
            ),
        )

    def ask(self, *requests):
        """Return the replies, after all facts behind them are durable."""
        replies = self.host.handle("client", list(requests))
        self.loop.run()
        assert not self.failures
        later, self.later[:] = list(self.later), []
        return replies + later

    def examine(self) -> dict[int, ExaminationResult]:
        return {
            place: self.journal.examination(place).run(lambda bytes: None)
            for place in self.journal.durable()
        }

    def scrub(self) -> dict[int, ExaminationResult]:
        """Examine the places, and leave the damaged places; return the verdicts on them."""
        bad = {place: verdict for place, verdict in self.examine().items() if not verdict.whole}
        for place, verdict in bad.items():
            self.host.leave(place, verdict.readable)
        self.loop.run()
        assert not self.failures
        assert not self.host.leaving
        return bad

    @property
    def quarantined(self):
        return set(self.host.replica.quarantined)

    @property
    def state(self):
        return state(self.host.replica)

    def check(self, truth) -> None:
        """Check the answers against ``truth``, (configuration, object, tag) to data.

        A known missing element may have no answer.
        """
        for (id, object, tag), data in truth.items():
            [reply] = self.ask(GetData(1, id, object, True, tag))
            if reply.element is None:
                assert (id, object, tag) in self.quarantined
                continue
            assert intact(id, object, tag, reply.element)
            assert b"".join(reply.element.parts) == data


def puts(count: int, seed: int):
    """Yield small and large puts of two configurations, mostly with an object each.

    Some objects have older versions.
    """
    rng = random.Random(seed)
    for number in range(count):
        size = rng.choice([0, 7, 300, 3 * KIB, 9 * KIB, 20 * KIB])
        yield put(
            f"o{number}",
            5,
            rng.randbytes(size),
            rng.choice([INITIAL, INITIAL, PHOTOS]),
            rng.choice([1, 1, 3]),
        )
        if rng.random() < 0.2:
            yield put(f"o{number}", 4, rng.randbytes(rng.choice([300, 9 * KIB])), INITIAL)


def story(directory: Path, count: int = 40, seed: int = 1):
    """Serve and stop; return the handled requests."""
    server, requests = RiggedServer(directory), [Introduce(1, PHOTOS), *puts(count, seed)]
    rng, position = random.Random(seed), 0
    while position < len(requests):
        some = rng.randint(1, BATCH_MAX)
        server.ask(*requests[position : position + some])
        position += some
    server.journal.close()
    return requests


def truth_of(requests):
    return {
        (it.configuration, it.object, it.tag): b"".join(it.element.parts)
        for it in requests[1:]
        if it.element.length != DELETED_LENGTH
    }


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Flip a bit in the file, which also changes the mapped memory."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, bytes([os.pread(descriptor, 1, at)[0] ^ (1 << bit)]), at)
    finally:
        os.close(descriptor)


class Headless(Exception):
    """A segment without a valid head, new or damaged."""


def anatomy(path: Path) -> dict[str, list[range]]:
    """Return the ranges of a segment: head, metadata of batches, data of large elements.

    Raises Headless.
    """
    view = memoryview(path.read_bytes())
    head = parse_frame(view, 0, int(path.stem))
    if head is None:
        raise Headless(path)
    assert head.magic == SEGMENT_MAGIC
    told = decode_head(head)
    found = {"head": [range(40 + len(head.body))], "metadata": [], "data": []}
    for frame in walk(view, head.end, told.salt, told.first):
        assert frame.magic == BATCH_MAGIC
        found["metadata"].append(
            range(frame.start, frame.start + 40 + 8 * len(frame.parts) + len(frame.body))
        )
        found["data"] += [range(begin, end) for begin, end in frame.parts if end > begin]
    return found


class RottenDisk(ClosingDisk):
    """A disk whose reads past the cache find flipped bits, or fail.

    The mapped memory stays intact. ``flips`` has (name, offset); ``dead`` has (name, block).
    """

    def __init__(self) -> None:
        super().__init__()
        self.flips: set[tuple[str, int]] = set()
        self.dead: set[tuple[str, int]] = set()
        self.opened: dict[int, str] = {}

    def open_past_cache(self, path):
        descriptor = super().open_past_cache(path)
        self.opened[descriptor] = path.name
        return descriptor

    def read_into(self, descriptor, buffer, offset):
        name = self.opened[descriptor]
        if any(
            name == bad and offset <= block * 4096 < offset + len(buffer)
            for bad, block in self.dead
        ):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        read = super().read_into(descriptor, buffer, offset)
        for bad, at in self.flips:
            if bad == name and offset <= at < offset + read:
                buffer[at - offset] ^= 1
        return read
