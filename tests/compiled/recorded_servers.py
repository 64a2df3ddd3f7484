"""Recorded input of servers that listen on loopback, and a replay to twins.

The input keeps its order; see tests/compiled/server_twins.py.
"""

import asyncio
from collections import defaultdict
from functools import partial

from ares.compiled import replica_parts
from ares.model.codec import decode_replies
from ares.model.messages import Description
from ares.net.native import ZmtpListener
from ares.replica.port import lists_of
from ares.replica.replica import USUAL_PARTS, Replica
from ares.server.storage_server import ServerParts, StorageServer
from ares.store.journal.segment_journal import SEGMENT_BYTES
from tests.compiled.server_twins import Half

LONG = 2
"""Flag of a ZMTP frame with a length of eight bytes."""


class ServerCourse:
    """The events and the output of a server.

    ``events`` has reads as (client, batches, whether raw), or the name of another event: "loop",
    "disk". ``sent`` has the server's answers, batch by batch.
    """

    def __init__(self, server, initial, admission=None, journaled=False) -> None:
        self.server = server
        self.initial = initial
        self.admission = admission
        self.journaled = journaled
        self.events, self.sent = [], []

    @property
    def reads(self):
        """Return the reads from clients, as (client, batches)."""
        return [event[:2] for event in self.events if not isinstance(event, str)]

    def replica(self, compiled=True) -> Replica:
        parts = replica_parts() if compiled else USUAL_PARTS
        server = self.server
        return Replica(server.id, server.identity, self.initial, self.journaled, parts)

    def half(self, compiled, server=None) -> Half:
        return Half(compiled, self.replica(compiled), self.admission, server, SEGMENT_BYTES)


class RecordedListener(ZmtpListener):
    """A listener that records each read.

    A read is kept raw if the compiled core served the connection's bytes, and otherwise as its
    batches.
    """

    def __init__(self, address, lock, course: ServerCourse) -> None:
        super().__init__(address, lock)
        self._course = course

    def _served(self, sender, came) -> bool:
        served = super()._served(sender, came)
        if served and isinstance(came, memoryview):
            self._course.events.append((sender, [[frame] for frame in _divided(bytes(came))], True))
        return served

    def _receive(self, sender, came) -> None:
        self._course.events.append((sender, [list(map(bytes, frames)) for frames in came], False))
        super()._receive(sender, came)

    def _send_batch(self, sender, frames) -> None:
        self._course.sent.append((sender, list(map(bytes, frames))))
        super()._send_batch(sender, frames)


def _divided(read):
    """Return the only frame of each message."""
    while read:
        start = 9 if read[0] & LONG else 2
        end = start + int.from_bytes(read[1:start])
        yield read[start:end]
        read = read[end:]


class RecordedLoop:
    """The event loop in a server's view."""

    def __init__(self, course: ServerCourse) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = course.events
        self.time = self._loop.time

    def call_soon(self, callback) -> None:
        self._loop.call_soon(self._call, callback)

    def _call(self, callback) -> None:
        self._events.append("loop")
        callback()


class RecordedJournal:
    """A journal that records the ends of its commits."""

    def __init__(self, journal, course: ServerCourse) -> None:
        self._journal = journal
        self._events = course.events

    def __getattr__(self, name):
        return getattr(self._journal, name)

    def commit(self, done) -> None:
        self._journal.commit(partial(self._committed, done))

    def _committed(self, done, error, moved) -> None:
        self._events.append("disk")
        done(error, moved)


def recorded_host(course: ServerCourse, listener: RecordedListener, journal=None) -> StorageServer:
    """Make a host as in a process, with a recorded course."""
    recorded = None if journal is None else RecordedJournal(journal, course)
    host = StorageServer(
        course.replica(),
        recorded,
        ServerParts(
            listener.reply, admission=course.admission, loop=RecordedLoop(course), sites=["here"]
        ),
    )
    listener.seen, listener.core = host.users.seen, host.core
    return host


def replay(course: ServerCourse, compiled: Half, pure: Half):
    """Replay to both halves; return the sent frames as (client, frames).

    After each event both halves have sent the same, and at the end both hold the same.
    """
    sent = []
    for event in course.events:
        for half in (compiled, pure):
            match event:
                case "loop":
                    half.loop.step()
                case "disk":
                    half.disk.step()
                case sender, batches, raw:
                    half.receive_batches(sender, batches, raw)
        assert compiled.sent == pure.sent, f"after event {len(sent)}"
        sent.append(pure.sent)
        compiled.sent, pure.sent = [], []
    for half in (compiled, pure):
        half.take_steps()
    assert (compiled.sent, compiled.state) == (pure.sent, pure.state)
    return [batch for batches in [*sent, pure.sent] for batch in batches]


def answers(sent):
    """Return the replies to each client, in order.

    Descriptions of the process, and answers to invalid batches, are left out.
    """
    replies = defaultdict(list)
    for sender, frames in sent:
        if isinstance(frames, list):
            replies[sender] += [
                reply
                for reply in decode_replies(frames)
                if not isinstance(reply, Description) and reply.call != 0
            ]
    return replies


def holds(replica):
    """Return all state that a server answers from, by any path."""
    return {
        id: (
            hosting.describe(),
            {name: _versions(each) for name, each in lists_of(hosting.objects)},
        )
        for id, hosting in replica.hosted.items()
    }


def _versions(versions):
    return versions.trimmed, [tuple(entry)[:2] for entry in versions.entries]
