"""The repairs of a server: records come from other nodes, while the log goes on."""

import asyncio
import contextlib
import errno
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ares.cli.status_command import _warnings
from ares.cli.upkeep_commands import _sentence
from ares.model.configuration import Status, Successor
from ares.model.log_messages import Fetch, Fetched
from ares.model.messages import Description, DiskUsage, Scrub, ScrubReply
from ares.server import log_scrub, scrub
from ares.server.log_scrub import SCRUB_RETRY_S, SCRUB_RETRY_S_MAX, LogRepairs, RepairTurns
from ares.server.scrub import Scrubber, ScrubPlan
from ares.sharedlog import earlier_chains, stored_entries
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
async def log(monkeypatch):
    """Make a log with a mark for each batch."""
    monkeypatch.setattr(stored_entries, "RECORD_INDEX_BYTES", 1)
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


def unreadable(log):
    """Return the positions that cannot be read."""
    entries = log.live.entries
    return {at for at in range(200) if log.state.read(entries, at, at + 1, 1)[2]}


@pytest.fixture
def run():
    with ThreadPoolExecutor(1) as threads:
        yield lambda *call: asyncio.get_running_loop().run_in_executor(threads, *call)


async def test_a_place_is_repaired_from_other_servers(log, run, caplog):
    caplog.set_level(logging.INFO)
    before = seen(log.state)
    damage_batch(log, PLACE, 2)
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged
    assert "repaired place 3 of a log, with 1 fetched records" in caplog.text
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before


async def test_without_an_answer_the_repair_is_tried_again(log, run, caplog, monkeypatch):
    monkeypatch.setattr(earlier_chains, "REFETCH_AGAIN_S", 0.1)
    before = seen(log.state)
    damage_batch(log, PLACE, 2)
    repairs, log.silent = LogRepairs(unpaced), True
    await repairs.repair(log.hosted, PLACE, run)
    assert list(repairs.damaged) == [(log.hosted, PLACE)]
    await repairs.try_again(100.0, run)
    assert caplog.text.count("come from no other server") == 1
    log.silent = False
    await repairs.try_again(101.0, run)
    assert repairs.damaged, "it is not due"
    await repairs.try_again(106.0, run)
    assert not repairs.damaged
    assert seen(log.state) == before


async def test_a_silent_log_is_asked_for_one_of_its_places(log, run, monkeypatch):
    """The scrub, which repairs the elements of objects, too, does not wait for each place."""
    monkeypatch.setattr(earlier_chains, "REFETCH_AGAIN_S", 0.1)
    repairs, log.silent, looks = LogRepairs(unpaced), True, []
    for place in (PLACE, PLACE + 2):
        damage_batch(log, place, 2)
        await repairs.repair(log.hosted, place, run)
    assert len(repairs.damaged) == 2
    mend = repairs._mend

    def looked(hosted, journal, place, run):
        looks.append(place)
        return mend(hosted, journal, place, run)

    monkeypatch.setattr(repairs, "_mend", looked)
    await repairs.try_again(100.0, run)
    assert looks == [PLACE]
    log.silent = False
    await repairs.try_again(1000.0, run)
    assert not repairs.damaged


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (state of a task)
            await asyncio.sleep(0.01)


def scrubber_of(log, tmp_path, bytes_per_s=1 << 30):
    """Make the scrub of a server with this log, and without objects."""
    host = SimpleNamespace(
        logs_on_disk=[(log.hosted, log.journal)],
        leaving=0,
        replica=SimpleNamespace(quarantined=[], account=SimpleNamespace(repaired=0)),
        go_on=lambda: None,
    )
    objects = SimpleNamespace(durable=dict)
    return Scrubber(host, objects, ScrubPlan(0.0, bytes_per_s, tmp_path / "time"))


async def test_the_rate_of_a_request_holds_for_its_round(log, run, tmp_path, monkeypatch):
    scrubber, rates = scrubber_of(log, tmp_path, 1 << 30), []
    pace = type(scrubber._pace).__call__

    def noted(self, bytes):
        rates.append(self.bytes_per_s)
        pace(self, bytes)

    monkeypatch.setattr(type(scrubber._pace), "__call__", noted)
    scrubber.answer(Scrub(1, True, 1 << 40))
    await scrubber._work(run)
    assert set(rates) == {1 << 40}
    rates.clear()
    damage_batch(log, PLACE, 2)
    log.hosted.shelf.suspects.add(PLACE)
    verified = scrubber._pace.bytes
    await scrubber._work_on_logs(run)
    assert not scrubber._log_repairs.damaged
    assert set(rates) == {1 << 30}
    assert scrubber._pace.bytes == verified > 0, "the progress of a round counts no repair"


async def test_a_damaged_place_is_repaired_while_the_round_goes_on(log, tmp_path, monkeypatch):
    """A round may take days."""
    monkeypatch.setattr(scrub, "SCRUB_LOOK_S", 0.01)
    scrubber, before, repaired = scrubber_of(log, tmp_path), seen(log.state), asyncio.Event()
    damage_batch(log, PLACE, 2)
    verify, order = scrubber._verify, []

    async def held(journal, place, *more):
        order.append(place)
        if place == PLACE + 1:
            await repaired.wait()
        return await verify(journal, place, *more)

    monkeypatch.setattr(scrubber, "_verify", held)
    running = asyncio.create_task(scrubber.run())
    await asyncio.sleep(0)
    scrubber.answer(Scrub(1, True, 1 << 40))
    await until(lambda: PLACE + 1 in order and not scrubber._log_repairs.damaged)
    assert scrubber.answer(Scrub(2, False, 0)).running
    assert not unreadable(log)
    repaired.set()
    await until(lambda: not scrubber.answer(Scrub(3, False, 0)).running)
    running.cancel()
    await asyncio.wait([running])
    assert seen(log.state) == before


async def test_a_place_noted_during_the_attempts_is_new_damage(log, run, monkeypatch):
    damage_batch(log, PLACE, 2)
    damage_batch(log, PLACE + 2, 2)
    repairs, mend = LogRepairs(unpaced), LogRepairs._mend

    async def noting(self, hosted, journal, place, run):
        repairs.note(log.hosted, PLACE + 2)
        await mend(self, hosted, journal, place, run)

    monkeypatch.setattr(LogRepairs, "_mend", noting)
    repairs.note(log.hosted, PLACE)
    await repairs.try_again(100.0, run)
    assert list(repairs.damaged) == [(log.hosted, PLACE + 2)]
    await repairs.try_again(100.0, run)
    assert not repairs.damaged


async def test_a_round_asks_a_silent_log_for_one_of_its_places(log, run, monkeypatch, tmp_path):
    monkeypatch.setattr(earlier_chains, "REFETCH_AGAIN_S", 0.1)
    scrubber = scrubber_of(log, tmp_path)
    log.silent = True
    for place in (PLACE, PLACE + 2):
        damage_batch(log, place, 2)
    await scrubber._round(run)
    assert scrubber._log_repairs.damaged.keys() == {(log.hosted, PLACE), (log.hosted, PLACE + 2)}
    [told] = [why for why in scrubber._log_repairs.damaged.values() if why]
    assert "come from no other server" in told
    log.silent = False
    await scrubber._round(run)
    assert not scrubber._log_repairs.damaged


async def test_a_mistake_in_a_repair_is_noted_and_ends_no_other(log, run, monkeypatch, caplog):
    damage_batch(log, PLACE, 2)
    damage_batch(log, PLACE + 2, 2)
    repairs, repair = LogRepairs(unpaced), log.journal.repair

    def failing(place, *more):
        if place == PLACE:
            raise ValueError("made up")
        return repair(place, *more)

    monkeypatch.setattr(log.journal, "repair", failing)
    for place in (PLACE, PLACE + 2):
        repairs.note(log.hosted, place)
    await repairs.try_again(100.0, run)
    assert repairs.damaged == {(log.hosted, PLACE): "a mistake in ares: ValueError('made up')"}
    assert "the repair of a place of a log failed" in caplog.text


async def test_a_place_given_back_counts_no_more_before_the_next_repair(log, run):
    repairs = LogRepairs(unpaced)
    repairs.note(log.hosted, max(log.journal.durable()) + 1)
    await repairs.try_again(100.0, run)
    assert not repairs.damaged


async def test_a_fetch_whose_timer_fails_ends_the_repair(log, run, monkeypatch):
    monkeypatch.setattr(log_scrub, "REFETCH_LOOKS_MAX", 3)
    monkeypatch.setattr(log.hosted.node.refetch, "go_on", lambda now: None)
    damage_batch(log, PLACE, 2)
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, run)
    assert "do not come soon enough" in repairs.damaged[log.hosted, PLACE]


async def test_a_fetch_that_takes_too_long_says_so(log, run, monkeypatch):
    monkeypatch.setattr(earlier_chains, "REFETCH_S_MAX", 0.1)
    damage_batch(log, PLACE, 2)
    repairs, log.silent = LogRepairs(unpaced), True
    await repairs.repair(log.hosted, PLACE, run)
    assert "do not come soon enough" in repairs.damaged[log.hosted, PLACE]


class SlowAnswers:
    """Answers of a single record, ``most`` in an attempt; ``asked`` has the asked positions."""

    def __init__(self, log, monkeypatch, most=1):
        self.asked, self.left, self.most = [], most, most
        for name in ("REFETCH_AGAIN_S", "REFETCH_AGAIN_S_MAX"):
            monkeypatch.setattr(earlier_chains, name, 0.05)
        monkeypatch.setattr(log, "deliver", self.deliver)
        self.hand = log.hosted.hand

    def deliver(self, server, reply):
        self.asked.append(reply.first)
        if self.left > 0:
            self.left -= 1
            self.hand(server, replace(reply, records=reply.records[:1]))

    async def attempt(self, repairs, hosted, place, run):
        """Try to repair a place; return whether it was repaired."""
        self.left = self.most
        await repairs.repair(hosted, place, run)
        return (hosted, place) not in repairs.damaged


async def test_a_slow_fetch_goes_on_where_it_ended(log, run, monkeypatch):
    slow, repairs, before = SlowAnswers(log, monkeypatch), LogRepairs(unpaced), seen(log.state)
    count = len(log.frames(PLACE)) - 2
    damage_batch(log, PLACE, *range(1, count))
    attempts = 0
    while not await slow.attempt(repairs, log.hosted, PLACE, run):
        attempts += 1
        assert attempts < count
        assert len(repairs._begun.found[next(iter(repairs._begun.found))]) == attempts
        assert not log.hosted.node.refetch.found, "only one server-wide copy is kept"
    assert attempts == count - 2
    assert repairs._begun == log_scrub.BegunFetch()
    assert not unreadable(log)
    assert seen(log.state) == before


async def test_the_records_of_each_loss_are_kept(log, run, monkeypatch):
    slow, repairs = SlowAnswers(log, monkeypatch), LogRepairs(unpaced)
    damage_batch(log, PLACE, 1, 3)
    assert not await slow.attempt(repairs, log.hosted, PLACE, run)
    assert await slow.attempt(repairs, log.hosted, PLACE, run)
    assert len([first for first in slow.asked if first == slow.asked[0]]) == 1


async def test_the_records_of_a_single_place_are_kept_while_they_grow(log, run, monkeypatch):
    slow, repairs = SlowAnswers(log, monkeypatch), LogRepairs(unpaced)
    places = (PLACE, PLACE + 2)
    for place in places:
        damage_batch(log, place, 1, 2, 3)
    for place in places:
        assert not await slow.attempt(repairs, log.hosted, place, run)
        assert repairs._begun.where == (log.hosted, PLACE)
    slow.most = 0
    assert not await slow.attempt(repairs, log.hosted, PLACE, run)
    assert repairs._begun.where == (log.hosted, PLACE), "it is kept until another place has some"
    slow.most = 1
    assert not await slow.attempt(repairs, log.hosted, PLACE + 2, run)
    assert repairs._begun.where == (log.hosted, PLACE + 2)


async def test_a_place_without_answers_is_tried_behind_the_others(log, run, monkeypatch):
    """The records may exist at no node; further places of this log are not tried afterwards."""
    slow, repairs = SlowAnswers(log, monkeypatch, most=9), LogRepairs(unpaced)
    damage_batch(log, PLACE, 2)
    damage_batch(log, PLACE + 2, 2)
    for place in (PLACE, PLACE + 2):
        repairs.note(log.hosted, place)
    [lost], hand = log.begun_repair(PLACE).look(unpaced), slow.hand
    slow.hand = lambda server, reply: reply.first == lost.first or hand(server, reply)
    await repairs.try_all(run)
    assert list(repairs.damaged) == [(log.hosted, PLACE + 2), (log.hosted, PLACE)]
    slow.left = 9
    await repairs.try_all(run)
    assert list(repairs.damaged) == [(log.hosted, PLACE)]


async def test_a_record_that_no_server_has_whole_is_left(log, run):
    damage_batch(log, PLACE, 2)
    for peer in log.peers.values():
        [segment] = peer.state.segments.values()
        segment.entries.drop(199)
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, run)
    assert list(repairs.damaged) == [(log.hosted, PLACE)]


async def test_a_place_that_is_given_back_meanwhile_is_forgotten(log, run):
    damage_batch(log, PLACE, 2)

    def trim():
        if PLACE in log.journal.places():
            log.record_fact(LogTrimmed(log.live.length))
            log.sync()
            log.sync()

    log.meanwhile = trim
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, run)
    assert PLACE not in log.journal.places()
    assert not repairs.damaged


async def test_a_move_beside_a_repair_does_no_harm(log, run):
    damage_batch(log, PLACE, 2)
    rotten = log.content(PLACE)

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
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged
    assert log.content(PLACE) != rotten
    before = seen(log.state)
    log.start()
    assert seen(log.state) == before


def failing_syncs(log, monkeypatch, files=0, directories=0):
    """Make the next syncs fail."""
    disk, sync, sync_directory = log.disk, log.disk.sync, log.disk.sync_directory
    left = {"files": files, "directories": directories}

    def sync_file(descriptor):
        if left["files"]:
            left["files"] -= 1
            disk.failing = True
        sync(descriptor)

    def sync_names(directory):
        if left["directories"]:
            left["directories"] -= 1
            raise OSError(errno.EIO, "Input/output error")
        sync_directory(directory)

    monkeypatch.setattr(disk, "sync", sync_file)
    monkeypatch.setattr(disk, "sync_directory", sync_names)


async def test_a_repair_with_a_failed_sync_is_none(log, run, monkeypatch):
    """The old file stays: the bytes look neither better nor worse than they are."""
    monkeypatch.setattr(log.disk, "read_into", cached(log.disk))
    before = seen(log.state)
    damage_batch(log, PLACE, 2, 3)
    rotten, repairs = log.content(PLACE), LogRepairs(unpaced)
    failing_syncs(log, monkeypatch, files=2)
    for _ in range(2):
        await repairs.repair(log.hosted, PLACE, run)
        assert repairs.damaged == {(log.hosted, PLACE): "the disk: Input/output error"}
        assert log.content(PLACE) == rotten
        assert not [name for name in log.disk.files if name.endswith(".new")]
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged
    assert not unreadable(log)
    log.disk.lose_power(1)
    log.start()
    assert seen(log.state) == before


def cached(disk):
    """Return a read that finds bytes in the page cache, as on a file system without O_DIRECT."""

    def read_into(descriptor, buffer, offset):
        data = disk.read(descriptor, offset + len(buffer))[offset:]
        buffer[: len(data)] = data
        return len(data)

    return read_into


async def test_a_new_file_whose_name_may_be_lost_ends_the_server(log, run, monkeypatch):
    """A later sync that succeeds proves no durability, as after any failed sync."""
    ended = []
    monkeypatch.setattr(log.hosted.commits, "_fail", ended.append)
    damage_batch(log, PLACE, 2, 3)
    repairs = LogRepairs(unpaced)
    failing_syncs(log, monkeypatch, directories=1)
    await repairs.repair(log.hosted, PLACE, run)
    assert [error.errno for error in ended] == [errno.EIO]
    assert log.hosted.commits.stopped


async def test_a_rename_that_fails_leaves_the_old_file_and_no_other(log, run, monkeypatch):
    damage_batch(log, PLACE, 2)
    rotten, repairs = log.content(PLACE), LogRepairs(unpaced)

    def failing(old, new):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(log.disk, "rename", failing)
        await repairs.repair(log.hosted, PLACE, run)
    assert log.content(PLACE) == rotten
    assert not [name for name in log.disk.files if name.endswith(".new")]
    assert not log.hosted.commits.stopped
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged


@pytest.mark.parametrize("rots", [False, True], ids=["whole", "damaged again"])
async def test_a_repaired_file_that_could_not_be_opened_is_opened_later(
    log, run, monkeypatch, tmp_path, rots
):
    """The scrub reads the new file as written, while reads still meet the damage."""
    before = seen(log.state)
    damage_batch(log, PLACE, 2)
    rotten, scrubber = log.content(PLACE), scrubber_of(log, tmp_path)
    repairs = scrubber._log_repairs

    def failing(place):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(log.journal, "renew", failing)
        for _ in range(2):
            await repairs.repair(log.hosted, PLACE, run)
            assert repairs.damaged == {(log.hosted, PLACE): "the disk: Too many open files"}
    assert log.content(PLACE) != rotten
    assert unreadable(log)
    await scrubber._verify_log(log.hosted, log.journal, PLACE, run, unpaced)
    if rots:
        damage_batch(log, PLACE, 3)
    await repairs.try_again(100.0, run)
    assert not repairs.damaged
    assert not unreadable(log)
    assert seen(log.state) == before
    log.start()
    assert seen(log.state) == before


async def test_a_copy_that_reads_otherwise_than_written_replaces_nothing(log, run, monkeypatch):
    damage_batch(log, PLACE, 2)
    rotten, repairs = log.content(PLACE), LogRepairs(unpaced)
    with monkeypatch.context() as patch:
        write = log.disk.write

        def rotting(descriptor, buffers, offset):
            write(descriptor, [bytes(len(buffer)) for buffer in buffers], offset)

        patch.setattr(log.disk, "write", rotting)
        await repairs.repair(log.hosted, PLACE, run)
    assert "does not give back" in repairs.damaged[log.hosted, PLACE]
    assert log.content(PLACE) == rotten
    assert not [name for name in log.disk.files if name.endswith(".new")]
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged


async def test_a_repair_without_room_waits(log, run):
    damage_batch(log, PLACE, 2)
    repairs, log.disk.room = LogRepairs(unpaced), log.disk.used
    await repairs.repair(log.hosted, PLACE, run)
    assert "no room for another copy" in repairs.damaged[log.hosted, PLACE]
    log.disk.room = None
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged


async def test_a_place_that_can_be_read_again_is_not_repaired(log, run, caplog):
    """A disk may fail to read a block once."""
    caplog.set_level(logging.INFO)
    repairs = LogRepairs(unpaced)
    await repairs.repair(log.hosted, PLACE, run)
    assert not repairs.damaged
    assert "repaired" not in caplog.text


async def test_a_place_is_read_while_its_new_file_is_written(log, run):
    damage_batch(log, PLACE, 2)
    before, shown = unreadable(log), []

    async def watched(action, *arguments):
        if action.__name__ == "write":
            await run(action, *arguments)
            shown.append(unreadable(log))
            return None
        return await run(action, *arguments)

    await LogRepairs(unpaced).repair(log.hosted, PLACE, watched)
    assert before
    assert shown == [before], "from the old file"
    assert not unreadable(log)


async def test_a_read_names_the_place_where_it_found_damage(log):
    damage_batch(log, PLACE, 2)
    assert unreadable(log)
    assert log.hosted.shelf.suspects == {PLACE}


async def test_reads_that_go_on_failing_do_not_keep_the_server_from_its_scrub(log, tmp_path):
    """Reads of a whole place may fail: each names the place again, also during a look."""
    host = SimpleNamespace(logs_on_disk=[(log.hosted, log.journal)])
    scrubber = Scrubber(host, None, ScrubPlan(0.0, 1 << 30, tmp_path / "time"))
    looks = []

    async def run(action, *arguments):
        looks.append(action)
        log.hosted.shelf.suspects.add(PLACE)
        await asyncio.sleep(0)
        return action(*arguments)

    log.hosted.shelf.suspects.add(PLACE)
    for _ in range(3):
        await asyncio.wait_for(scrubber._look_at_suspects(run), 1.0)
    assert len(looks) == 1
    scrubber._suspects_at_s = 0.0
    await scrubber._look_at_suspects(run)
    assert len(looks) == 2


def test_new_damage_is_looked_at_soon_though_older_damage_stays():
    turns, now = RepairTurns(), 0.0
    for _ in range(20):
        now += SCRUB_RETRY_S_MAX
        assert turns.due({1}, now)
        turns.missed = frozenset({1})
    assert not turns.due({1}, now + SCRUB_RETRY_S_MAX - 1)
    assert turns.due({1, 2}, now)
    turns.missed = frozenset({1, 2})
    assert not turns.due({1, 2}, now + SCRUB_RETRY_S - 1)
    assert turns.due({1, 2}, now + SCRUB_RETRY_S)
    assert not turns.due(set(), now + 10 * SCRUB_RETRY_S_MAX)


def test_scrub_and_status_count_the_files_and_tell_nothing_without_any():
    told = _sentence(ScrubReply(1, False, 1, 5, 5, 0, 0, 0, in_logs=1))
    assert "1 file of logs damaged, and not repaired yet" in told
    assert _sentence(ScrubReply(1, False, 1, 5, 5, 0, 0, 0)).endswith("nothing is damaged")
    for count, warnings in ((0, 0), (2, 1)):
        stored = DiskUsage(1, 1, in_logs=count)
        description = Description(1, "s0", "", b"c", "1", 0.0, 0, (), stored=stored)
        found = [it for it in _warnings("s0", description) if "damaged files of logs" in it]
        assert len(found) == warnings
