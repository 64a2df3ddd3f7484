"""The repairs of a server: records come from other nodes, while the log goes on."""

import asyncio
import contextlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from ares.cli.status_command import _warnings
from ares.cli.upkeep_commands import _sentence
from ares.model.configuration import Status, Successor
from ares.model.log_messages import Fetch, Fetched
from ares.model.messages import Description, DiskUsage, ScrubReply
from ares.server.log_scrub import LogRepairs
from ares.sharedlog.log_facts import ChainPointed, ChainSealed, LogTrimmed
from ares.sharedlog.node import LogNode

from .chains import chain
from .hosted import ME, seen
from .test_log_repair import RottenLog, damage_batch, of, unpaced

PLACE = 3


class AskingLog(RottenLog):
    """A log whose node asks ``peers``. ``silent``: no peer answers.

    ``meanwhile``: called before an answer is delivered.
    """

    silent = False

    def __init__(self, seed):
        self.peers = {}
        super().__init__(seed)

    def meanwhile(self): ...

    def send(self, messages):
        for to, message in messages:
            if isinstance(message, Fetch) and not self.silent:
                peer = self.peers[to]
                peer.handle(ME, message, time.monotonic())
                for _, reply in peer.take()[1]:
                    if isinstance(reply, Fetched):
                        asyncio.get_running_loop().call_soon(self.deliver, to, reply)

    def deliver(self, server, reply):
        self.meanwhile()
        self.hosted.hand(server, reply)


@pytest.fixture
async def log():
    log = of(200, make=AskingLog)
    log.loop.time = time.monotonic
    for name in ("s1", "s2"):
        log.peers[name] = peer = LogNode(name, name)
        peer.restore(log.facts)
        [segment] = peer.state.segments.values()
        segment.settled(segment.length)

    async def tick():
        while True:
            log.hosted.do(log.hosted.node.tick, time.monotonic())
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    yield log
    ticking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticking


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as threads:
        yield threads


async def test_a_place_is_repaired_from_other_servers(log, threads, caplog):
    caplog.set_level(logging.INFO)
    before = seen(log.state)
    damage_batch(log, PLACE, 2)
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, threads)
    assert (repairs.damaged, repairs.repaired) == ({}, 1)
    assert "repaired place 3 of a log: 1 records from s" in caplog.text
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before


async def test_without_an_answer_the_repair_is_tried_again(log, threads, caplog):
    before = seen(log.state)
    damage_batch(log, PLACE, 2)
    repairs, log.silent = LogRepairs(unpaced), True
    await repairs.repair(log.hosted, PLACE, threads)
    assert list(repairs.damaged) == [(log.hosted, PLACE)]
    assert repairs.repaired == 0
    await repairs.try_again(100.0, threads)
    assert caplog.text.count("no other server gives the records") == 1
    log.silent = False
    await repairs.try_again(101.0, threads)
    assert repairs.damaged, "it is not due"
    await repairs.try_again(106.0, threads)
    assert (repairs.damaged, repairs.repaired) == ({}, 1)
    assert seen(log.state) == before


async def test_a_record_that_no_server_has_whole_is_left(log, threads):
    damage_batch(log, PLACE, 2)
    for peer in log.peers.values():
        [segment] = peer.state.segments.values()
        segment.entries.drop(199)
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, threads)
    assert list(repairs.damaged) == [(log.hosted, PLACE)]


async def test_a_place_that_is_given_back_meanwhile_is_forgotten(log, threads):
    damage_batch(log, PLACE, 2)

    def trim():
        if PLACE in log.journal.places():
            log.record_fact(LogTrimmed(log.live.length))
            log.sync()
            log.sync()

    log.meanwhile = trim
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, threads)
    assert PLACE not in log.journal.places()
    assert (repairs.damaged, repairs.repaired) == ({}, 0)


async def test_a_move_beside_a_repair_does_no_harm(log, threads):
    damage_batch(log, PLACE, 2)

    def move():
        segment = log.live
        if segment is None:
            return
        following = chain(1, segment.length, ("s1", "s2", "s3"))
        log.record_fact(ChainSealed(segment.configuration.id))
        successor = Successor(following, Status.PENDING)
        log.record_fact(ChainPointed(segment.configuration.id, successor, False))
        log.sync()

    log.meanwhile = move
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, threads)
    assert (repairs.damaged, repairs.repaired) == ({}, 1)
    before = seen(log.state)
    log.start()
    assert seen(log.state) == before


async def test_a_read_names_the_place_where_it_found_damage(log):
    damage_batch(log, PLACE, 2)
    entries = log.live.entries
    positions = [at for at in range(200) if log.state.read(entries, at, at + 1, 1)[2]]
    assert positions
    assert log.hosted.shelf.suspects == {PLACE}


def test_scrub_and_status_count_the_files_and_tell_nothing_without_any():
    told = _sentence(ScrubReply(1, False, 1, 5, 5, 0, 0, 0, in_logs=1, logs_repaired=2))
    assert "1 file of logs damaged, and not repaired yet" in told
    assert "2 files of logs repaired from other servers" in told
    assert _sentence(ScrubReply(1, False, 1, 5, 5, 0, 0, 0)).endswith("nothing is damaged")
    for count, warnings in ((0, 0), (2, 1)):
        stored = DiskUsage(1, 1, in_logs=count)
        description = Description(1, "s0", "", b"c", "1", 0.0, 0, (), stored=stored)
        found = [it for it in _warnings("s0", description) if "damaged files of logs" in it]
        assert len(found) == warnings
