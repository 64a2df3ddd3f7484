"""A log with a full disk: it refuses data, passes trims on, and continues after them.

See docs/log.md, On a disk.
"""

import random
from pathlib import Path
from unittest.mock import patch

import pytest

from ares.model.configuration import CHAIN_RULE, Status, Successor
from ares.model.identity import ClientId
from ares.model.log_messages import (
    Append,
    Appended,
    AppendOutcome,
    Committed,
    Forward,
    GivenBack,
    LogRecord,
    ReadLog,
    Trim,
    TrimDone,
    seal_of,
)
from ares.model.messages import Introduce, Reason, Refused, WriteConfig
from ares.server.hosted_log import LOG_PLACE_BYTES, HostedLog
from ares.server.hosted_logs import HostedLogs, LogsParts
from ares.sharedlog.chain_node import ASK_BACK_AGAIN_S
from ares.store.journal.segment_journal import SegmentJournal, reserves_of_log
from ares.testing.sim.model_disk import ModelDisk
from ares.testing.sim.shared_log.log_disk_server import SimLinks

from . import chains
from .chains import CLIENT, call, chain
from .hosted import OWNER, InTime

PLACE_BYTES = 16 * 1024
ENTRY = 1000 * b"x"


@pytest.fixture(autouse=True, params=["", CHAIN_RULE], ids=["earlier rule", "side by side"])
def rule(request, monkeypatch):
    """Run every test with chains of both rules."""
    monkeypatch.setattr(chains, "default_rule", request.param)
    return request.param


def record(first):
    """Return a record of one entry at ``first``."""
    named = (first, CLIENT, first + 1, first + 1, (ENTRY,))
    return LogRecord(*named, seal_of(*named))


class FullServer:
    """A server of a log, on a disk with room for some places.

    ``messages`` has the sent messages, with receivers.
    """

    def __init__(self, room, servers, place_bytes=PLACE_BYTES):
        self.place_bytes = place_bytes
        self.disk, self.later, self.failures, self.messages = (
            ModelDisk(random.Random(1)),
            [],
            [],
            [],
        )
        self.disk.room = room
        self.background = InTime()
        self.chain = chain(0, 0, servers)
        links = SimLinks(lambda server, messages: self.messages.extend(messages))
        self.logs = HostedLogs(
            LogsParts(
                "s0",
                "s0",
                self.chain,
                self.respond,
                self.failures.append,
                self,
                links,
                self,
                place_bytes,
            )
        )
        self.ask(Introduce(call(), self.chain))

    def respond(self, sender, messages):
        self.messages.extend(messages)

    def call_soon(self, callback):
        self.later.append(callback)

    def time(self):
        return 0.0

    def there(self):
        return []

    def open(self, name):
        disk = self.disk
        if self.logs.nodes:  # the model has a single directory
            disk = ModelDisk(random.Random(1))
            disk.room = 0
        reserves = reserves_of_log(self.place_bytes)
        return SegmentJournal(Path("log"), OWNER, self.background, disk, self.place_bytes, reserves)

    def ask(self, *messages):
        self.messages.clear()
        for message in messages:
            self.logs.handle(("client",), message)
        while self.later or self.background.jobs:
            while self.later:
                self.later.pop(0)()
            if self.background.jobs:
                self.background.step()
        assert not self.failures
        return list(self.messages)

    def append(self, number):
        return self.ask(
            Append(
                call(number),
                self.chain.id,
                CLIENT,
                number,
                number,
                self.logs.nodes[0].state.trimmed,
                (ENTRY,),
            )
        )


@pytest.fixture
def alone():
    return FullServer(8 * PLACE_BYTES, ("s0",))


def fill(server, number=1):
    """Append until a refusal; return the refused append and the answer."""
    while True:
        (reply,) = server.append(number)
        if isinstance(reply, Refused):
            return number, reply
        assert reply.outcome is AppendOutcome.DONE
        number += 1


def test_appends_are_refused_in_words_and_taken_again_after_a_trim(alone):
    number, reply = fill(alone)
    for _ in range(3):
        assert (reply.reason, "its disk is full" in reply.detail) == (Reason.STORAGE, True)
        upto = alone.logs.nodes[0].state.segments[alone.chain.id].length
        (done,) = alone.ask(Trim(call(), alone.chain.id, upto))
        assert isinstance(done, TrimDone)
        assert done.done
        before = number
        number, reply = fill(alone, number)
        assert number > before + 20, "next to nothing was given back"


def test_many_appends_of_one_turn_that_do_not_all_fit_are_refused_one_by_one(alone):
    appends = [
        Append(call(number), alone.chain.id, ClientId(number), 1, 1, 0, (ENTRY,))
        for number in range(1, 200)
    ]
    replies = alone.ask(*appends)
    refused = sum(isinstance(reply, Refused) for reply in replies)
    assert 0 < refused < 199
    assert alone.logs.nodes[0].state.segments[alone.chain.id].length == 199 - refused


def test_pointers_take_the_last_room_and_are_refused_then(alone):
    """A pointer without room ended the server; a known pointer needs no room."""
    fill(alone)
    length = alone.logs.nodes[0].state.segments[alone.chain.id].length
    known = None
    for index in range(1, 3000):
        later = Successor(chain(index, length, ("s0",)), Status.FINALIZED)
        (reply,) = alone.ask(WriteConfig(call(), alone.chain.id, later))
        if isinstance(reply, Refused):
            break
        known = later
    assert (reply.reason, "its disk is full" in reply.detail) == (Reason.STORAGE, True)
    assert known is not None
    (again,) = alone.ask(WriteConfig(call(), alone.chain.id, known))
    assert again.successor == known
    (read,) = alone.ask(ReadLog(call(), alone.chain.id, 0, 1, 10_000, False, 0.0))
    assert read.entries == (ENTRY,)


def test_another_log_is_refused_and_the_server_goes_on(alone):
    number, _ = fill(alone)
    other = chain().__class__("chain", alone.chain.servers).at("other", 0, b"cluster")
    (reply,) = alone.ask(Introduce(call(), other))
    assert (reply.reason, "no room for one more log" in reply.detail) == (Reason.STORAGE, True)
    assert len(alone.logs.nodes) == 1
    assert isinstance(alone.append(number)[0], Refused)


def test_a_log_refused_for_lack_of_room_takes_none():
    server = FullServer(400 << 10, ("s0",), LOG_PLACE_BYTES)
    (refused,) = server.messages
    assert (refused.reason, server.logs.nodes) == (Reason.STORAGE, [])
    assert server.disk.used < 64 << 10
    server.disk.room = 2 << 20
    server.ask(Introduce(call(), server.chain))
    assert isinstance(server.append(1)[0], Appended)


def test_many_trims_of_one_turn_on_a_full_disk_are_counted(alone):
    """A trim is a fact: more trims than the room left ended the server."""
    number, _ = fill(alone)
    replies = alone.ask(*(Trim(call(), alone.chain.id, upto) for upto in range(1, number)))
    assert {type(reply) for reply in replies} == {TrimDone, Refused}
    alone.ask(Trim(call(), alone.chain.id, number - 1))
    assert isinstance(alone.append(number)[0], Appended)


def test_a_small_log_on_a_full_disk_is_freed_by_a_trim():
    """Only closed places are given back: a trim closes the only place."""
    server = FullServer(2 << 20, ("s0",), LOG_PLACE_BYTES)
    number, _ = fill(server)
    assert number > 1000, "the reserves take most of the disk"
    server.ask(Trim(call(), server.chain.id, number - 1))
    again, _ = fill(server, number)
    assert again - number > 500, "next to nothing was given back"
    later = Successor(chain(1, again - 1, ("s0",)), Status.FINALIZED)
    (reply,) = server.ask(WriteConfig(call(), server.chain.id, later))
    assert reply.successor == later


def test_a_trim_after_each_entry_frees_places_of_a_full_disk():
    """The reserve has room for fewer trims than a place has entries."""
    server = FullServer(12 << 20, ("s0",), LOG_PLACE_BYTES)
    number, _ = fill(server)
    for upto in range(1, number):
        (reply,) = server.ask(Trim(call(), server.chain.id, upto))
        assert isinstance(reply, TrimDone)
    assert isinstance(server.append(number)[0], Appended)


def test_a_trim_that_changes_nothing_needs_no_room(alone):
    number, _ = fill(alone)
    with patch.object(HostedLog, "has_room", lambda *arguments: False):
        for upto in (0, number + 1000):
            assert isinstance(alone.ask(Trim(call(), alone.chain.id, upto))[0], TrimDone)
        (refused,) = alone.ask(Trim(call(), alone.chain.id, 1))
    assert isinstance(refused, Refused)


def test_a_standing_without_room_leaves_the_spare_file():
    """The next place must have room for all chains, or the present place goes on."""
    server = FullServer(8 * PLACE_BYTES, ("s0",))
    fill(server)
    hosted = server.logs._logs[0]
    spare = hosted.journal._spare_bytes
    assert spare
    assert not hosted.journal.seal(hosted.place, spare)
    assert hosted.journal._spare_bytes == spare
    assert hosted.journal.seal(hosted.place)


def test_a_known_introduction_needs_no_room(alone):
    """A client introduces the chain at its first contact, also for reads."""
    with patch.object(HostedLog, "has_room", lambda *arguments: False):
        assert alone.ask(Introduce(call(), alone.chain)) == []
        (refused,) = alone.ask(Introduce(call(), chain(1, 0, ("s0",)), (alone.chain,)))
    assert refused.reason is Reason.STORAGE


def test_an_introduction_without_room_leaves_no_log():
    with patch.object(HostedLog, "fitting", lambda self, message: None):
        server = FullServer(8 * PLACE_BYTES, ("s0",))
    (refused,) = server.messages
    assert (refused.reason, server.logs.nodes) == (Reason.STORAGE, [])
    server.ask(Introduce(call(), server.chain))
    assert len(server.logs.nodes) == 1


def test_answers_to_calls_never_made_change_nothing(alone):
    for number in (-1, -(2**63), 0, 2**62):
        alone.logs.receive("s1", [Refused(call(number), Reason.UNKNOWN_CONFIGURATION, "")])
    alone.logs._logs.clear()  # as before the server hosted a log
    alone.logs.receive("s1", [Refused(call(-1), Reason.UNKNOWN_CONFIGURATION, "")])


def test_a_full_node_takes_the_trim_of_a_forward_and_not_its_records():
    server = FullServer(8 * PLACE_BYTES, ("s1", "s0", "s2"))
    state = server.logs.nodes[0].state

    def forward(trimmed):
        length = state.segments[server.chain.id].length
        news = (trimmed, length + 7, True, 1, 1)
        server.ask(Forward(call(), server.chain.id, "s1", length, (record(length),), *news))
        return state.segments[server.chain.id].length - length

    while forward(0):
        pass
    length = state.segments[server.chain.id].length
    assert forward(length) == 0
    assert state.trimmed == length
    assert forward(length) == 1
    server.ask(Committed(call(), server.chain.id, "s2", length + 1, length + 1, length, False, 1))
    assert state.segments[server.chain.id].committed == length + 1


def test_a_full_tail_commits_the_records_that_it_has(rule):
    """The news of a forward count although the disk has no room for its records."""
    server = FullServer(8 * PLACE_BYTES, ("s1", "s0"))
    segment = server.logs.nodes[0].state.segments[server.chain.id]
    length = -1
    while length < segment.length:
        length = segment.length
        news = (0, length - 1, True, 1, 1)
        server.ask(Forward(call(), server.chain.id, "s1", length, (record(length),), *news))
    assert segment.committed == (length - 1 if rule else length)
    news = (0, length, True, 1, 1)
    server.ask(Forward(call(), server.chain.id, "s1", length, (record(length),), *news))
    assert (segment.length, segment.committed) == (length, length)


@pytest.mark.parametrize("rule", [CHAIN_RULE], indirect=True)
@pytest.mark.parametrize("lost", [0, 1])
def test_a_returning_head_with_a_full_disk_is_trimmed_and_takes_back(lost):
    server = FullServer(8 * PLACE_BYTES, ("s0", "s1"))
    segment = server.logs.nodes[0].state.segments[server.chain.id]

    def behind(length, trimmed):
        done = Committed(call(), server.chain.id, "s1", length, length, trimmed, False, 1)
        return server.ask(done)

    while not any(isinstance(reply, Refused) for reply in server.append(segment.length + 1)):
        behind(segment.length, 0)
    length = segment.length
    segment.took_back = False  # as after a restart
    records = (record(length),) * lost
    given = GivenBack(call(), server.chain.id, "s1", 1, 1, records, length + lost)
    server.ask(given)
    assert (segment.length, segment.returning) == (length, bool(lost))
    assert (segment.resend_at == ASK_BACK_AGAIN_S) == bool(lost)
    server.ask(Trim(call(), server.chain.id, length))
    (done,) = [reply for reply in behind(length, length) if isinstance(reply, TrimDone)]
    assert done.done
    server.ask(given)
    assert (segment.length, segment.returning) == (length + lost, False)
