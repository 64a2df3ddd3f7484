"""What came to servers that listen on loopback, in the order in which it came; and the same done to twins (tests/compiled/server_twins.py)."""

import asyncio
from collections import defaultdict
from functools import partial

from ares.model.codec import decode_replies
from ares.model.messages import Description
from ares.net.native import ZmtpListener
from ares.replica.replica import Replica
from ares.server.host import Host
from ares.store.journal.log import SEGMENT_BYTES
from tests.compiled.server_twins import Half

LONG = 2
"""In the flags of a ZMTP frame: its length takes eight bytes."""


class ServerCourse:
    """``events``: what one read brought as (client, batches, whether they came as they are), or the name of what else went on: "loop", "disk".
    ``sent``: what the server answered, batch by batch."""

    def __init__(self, server, initial, admission=None, journaled=False) -> None:
        self.server = server
        self.initial = initial
        self.admission = admission
        self.journaled = journaled
        self.events, self.sent = [], []

    @property
    def reads(self):
        """What was read from a client at a time, as (client, batches)."""
        return [event[:2] for event in self.events if not isinstance(event, str)]

    def replica(self) -> Replica:
        return Replica(self.server.id, self.server.identity, self.initial, journaled=self.journaled)

    def half(self, compiled, server=None) -> Half:
        return Half(compiled, self.replica(), self.admission, server, SEGMENT_BYTES)


class RecordedListener(ZmtpListener):
    """Each read once: as it is where the compiled core served it from the connection's bytes, and otherwise as the batches that were in it."""

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
    """The only frame of each message."""
    while read:
        start = 9 if read[0] & LONG else 2
        end = start + int.from_bytes(read[1:start])
        yield read[start:end]
        read = read[end:]


class RecordedLoop:
    """The event loop, as a server sees it."""

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
    """A journal, and when its commits end."""

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


def recorded_host(course: ServerCourse, listener: RecordedListener, journal=None) -> Host:
    """A host that is as it is made in a process, but for what its course is told."""
    recorded = None if journal is None else RecordedJournal(journal, course)
    host = Host(
        course.replica(),
        recorded,
        listener.reply,
        admission=course.admission,
        loop=RecordedLoop(course),
        sites=["here"],
    )
    listener.seen, listener.core = host.users.seen, host.core
    return host


def replay(course: ServerCourse, compiled: Half, pure: Half):
    """To both halves; after each event they have sent the same, and in the end they hold the same. Returns what was sent, as (client, frames)."""
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
    """The replies to each client, in order, but for those that tell how a process is, and what is told of a batch that is none."""
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
    """All that a server answers from, whatever became of it on the way."""
    return {
        id: (hosting.describe(), {name: _versions(each) for name, each in hosting.objects.items()})
        for id, hosting in replica.hosted.items()
    }


def _versions(versions):
    return versions.trimmed, [tuple(entry)[:2] for entry in versions.entries]
