"""Sessions with the buckets: their ends, lost chunks, dead tasks, garbage and litter."""

import asyncio
import gc

import pytest

import ares
from ares.bucket import bucket_session
from ares.bucket.commands import (
    Beat,
    EndSession,
    KeepSnapshot,
    PutObject,
    decode_command,
)
from ares.bucket.fold import BucketFold
from ares.bucket.index_records import OPEN_BLOBS_MAX
from ares.bucket.memory_table import MemoryTable
from ares.bucket.port import RowTableFailed
from ares.client.buckets import bucket_index, buckets
from ares.client.buckets.blob_store import BlobStore
from ares.client.buckets.bucket_domains import SNAPSHOT_DOMAIN
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.upkeep import index_upkeep
from ares.client.buckets.upkeep.bucket_snapshots import BucketSnapshots
from ares.client.buckets.upkeep.index_upkeep import IndexUpkeep
from ares.client.shared_log import Log
from ares.model.configuration import Configuration
from ares.model.errors import AppendUncertain
from ares.platform import tasks
from tests.client.conftest import SERVERS

TWO_CHUNKS = bytes(9_000_000)
LONG_S = 1000.0


async def index_of(bucket):
    return await bucket._buckets.index(10.0)


async def read(bucket, key):
    return await (await bucket.get(key)).read()


async def end_session(bucket, by):
    """End the session of ``bucket``, as its silence would; return its index."""
    ended, other = await index_of(bucket), await index_of(by)
    number = ended.session.number
    while number in other.state.sessions:
        last = other.state.sessions[number].last
        await other.keep_up(EndSession(number, last), 10.0)
    return ended


async def chunks(store):
    return [name async for name in (await store.domain("s3/blobs")).list()]


async def until(condition):
    while not await condition():  # noqa: ASYNC110  # the condition is at servers
        await asyncio.sleep(0.02)


def ended_by_now(index):
    """Return a condition: the life has ended."""

    async def has_ended():
        return index.failure is not None

    return has_ended


# -- ends of sessions ------------------------------------------------------------------------------


async def test_a_session_that_was_ended_is_followed_by_another(bucket, rival):
    await bucket.put("key", b"1")
    ended = await end_session(bucket, rival)
    assert await read(bucket, "key") == b"1"
    await bucket.put("key", b"2", if_absent=False)
    index = await index_of(bucket)
    assert isinstance(ended.failure, ares.SessionEnded)
    assert index.session.number > ended.session.number
    assert index.fold is ended.fold, "the fold goes on"
    assert await read(rival, "key") == b"2"


@pytest.mark.parametrize("ends", [1, 100])
async def test_a_session_ended_at_its_opening_is_followed_by_another(
    cluster, bucket, monkeypatch, ends
):
    lives, opened = [], BucketIndex.open

    async def ended(self, timeout_s):
        await opened(self, timeout_s)
        lives.append(self)
        if len(lives) <= ends:
            self.fail(ares.SessionEnded("at its opening"))
            self.check()

    monkeypatch.setattr(BucketIndex, "open", ended)
    manager = cluster.manager()
    if ends > 1:
        with pytest.raises(ares.SessionEnded):
            await manager.bucket("photos")
        assert len(lives) == buckets.OPENING_ATTEMPTS
    else:
        assert await index_of(await manager.bucket("photos")) is lives[1]
    assert {id(life.fold) for life in lives} == {id(lives[0].fold)}, "the fold goes on"


async def test_a_fold_that_breaks_at_an_opening_is_not_used_again(bucket, rival, monkeypatch):
    await bucket.put("key", b"1")
    ended = await end_session(rival, bucket)
    failed, take = [], BucketFold._take

    def fails_once(self, command):
        if not failed and self is ended.fold:
            failed.append(command)
            raise RuntimeError("half of the rows")
        return take(self, command)

    await asyncio.wait_for(until(ended_by_now(ended)), 30)
    monkeypatch.setattr(BucketFold, "_take", fails_once)
    with pytest.raises(ares.IndexStopped, match="half of the rows"):
        await rival.stat("key")
    assert await read(rival, "key") == b"1"
    again = await end_session(rival, bucket)
    await asyncio.wait_for(until(ended_by_now(again)), 30)
    again.fold._whole = False  # broken behind the end of the session
    assert await read(rival, "key") == b"1"


async def test_a_put_whose_session_was_ended_is_made_once_in_the_next(bucket, rival, monkeypatch):
    create, ends = BlobStore.create, []

    async def ending(self, *arguments):
        await create(self, *arguments)
        if not ends:
            ends.append(await end_session(bucket, rival))

    monkeypatch.setattr(BlobStore, "create", ending)
    stored = await bucket.put("key", TWO_CHUNKS, if_absent=True)
    assert int(stored.version) > ends[0].session.number
    assert (await rival.stat("key")).version == stored.version

    ends.clear()

    async def stream():
        yield TWO_CHUNKS

    with pytest.raises(ares.SessionEnded):
        await bucket.put("stream", stream())


async def test_silent_sessions_are_ended_and_speaking_ones_stay(bucket, rival):
    index, other = await index_of(bucket), await index_of(rival)
    for task in other._tasks.copy():
        if "follower" not in task.get_name():
            other._tasks.discard(task)
            task.remove_done_callback(other._ended)
            task.cancel()
    upkeep, silence_s = IndexUpkeep(index, bucket._buckets.blobs), index_upkeep.SESSION_SILENCE_S

    async def looks(now_s):
        """Look at the silence after a beat of this session, and return the other's life."""
        await index.keep_up(Beat(0, bytes(16), 0, 1, ()), 10.0)
        upkeep.end_silent(now_s)
        await index.keep_up(Beat(0, bytes(16), 0, 1, ()), 10.0)  # behind its commands
        return other.session.number in index.state.sessions

    await asyncio.sleep(0.2)  # its last beat is folded
    assert await looks(0.0)
    assert await looks(silence_s)
    upkeep._own_last = index.state.sessions[index.session.number].last
    upkeep.end_silent(10 * silence_s)  # nothing of the own session came: the log is silent
    assert await looks(11 * silence_s)
    assert not await looks(11.1 * silence_s)
    assert index.session.is_live, "it speaks"


async def test_a_closed_client_ends_its_session(cluster, bucket):
    other = cluster.manager()
    number = (await index_of(await other.bucket("photos"))).session.number
    await other.close()
    index = await index_of(bucket)
    await index.verified(10.0)
    assert number not in index.state.sessions
    with pytest.raises(ares.Uncertain):
        await other.bucket("photos")


# -- reads -----------------------------------------------------------------------------------------


async def test_a_read_waits_for_every_change_that_was_answered(bucket, rival, monkeypatch):
    index, held = await index_of(rival), []
    apply = index._apply
    monkeypatch.setattr(index, "_apply", lambda *entry: held.append(entry))
    stored = await bucket.put("key", b"1")
    reads = [asyncio.ensure_future(read) for read in (rival.stat("key"), anext(rival.list()))]
    await asyncio.sleep(0.1)
    assert not any(each.done() for each in reads)
    monkeypatch.undo()
    for entry in held:
        apply(*entry)
    assert [each.version for each in await asyncio.gather(*reads)] == [stored.version] * 2


async def test_a_reader_keeps_the_version_that_is_overwritten(store, bucket, rival):
    await bucket.put("key", TWO_CHUNKS)
    found = await bucket.get("key")
    await rival.delete("key")
    index = await index_of(rival)
    assert len(index.state.garbage(10)) == 1
    await asyncio.sleep(0.3)  # several beats and collections
    assert len(await chunks(store)) == 2
    assert await found.read() == TWO_CHUNKS

    async def collected():
        return await chunks(store) == []

    await asyncio.wait_for(until(collected), 30)
    assert index.state.garbage(10) == [] or await until(collected) is None


async def test_a_reader_that_is_forgotten_keeps_nothing(store, bucket):
    await bucket.put("key", TWO_CHUNKS)
    found = await bucket.get("key")
    session = (await index_of(bucket)).session
    assert len(session._reads) == 1
    del found
    gc.collect()
    await asyncio.sleep(0)
    assert session._reads == {}


async def test_a_reader_that_stands_still_keeps_no_data_and_is_told(store, bucket, monkeypatch):
    await bucket.put("key", bytes(60_000_000))
    still, busy = await bucket.get("key"), await bucket.get("key")
    await anext(busy.chunks())
    monkeypatch.setattr(bucket_session, "READ_STILL_S", 0.0)
    await bucket.delete("key")

    async def collected():
        return await chunks(store) == []

    await asyncio.wait_for(until(collected), 30)
    for each in (still, still, busy):  # again and again: an empty answer would be the end
        with pytest.raises(ares.SessionEnded, match="stood still"):
            await each.read()
    (await index_of(bucket)).check_live()


async def test_a_chunk_dropped_after_the_end_of_its_read_is_not_lost(bucket, monkeypatch):
    await bucket.put("key", TWO_CHUNKS)
    found = await bucket.get("key")

    async def dropped(self, part, timeout_s):
        (await index_of(bucket)).session._reads.clear()
        raise ares.ObjectNotFound(part.name, "s3/blobs")

    monkeypatch.setattr(BlobStore, "fetch", dropped)
    again = await bucket.get("key")
    for each in (again, found):
        with pytest.raises(ares.SessionEnded, match="stood still"):
            await each.read()


async def test_a_chunk_that_is_gone_is_told_and_never_a_missing_object(store, bucket):
    await bucket.put("key", TWO_CHUNKS)
    await bucket._buckets.blobs.drop((await chunks(store))[1:], 10.0)
    found = await bucket.get("key")
    with pytest.raises(ares.ChunkLost, match="of 'key' in bucket 'photos'"):
        await found.read()


async def test_a_reader_whose_session_was_ended_is_told(store, bucket, rival):
    await bucket.put("key", bytes(60_000_000))
    found = await bucket.get("key")
    await end_session(bucket, rival)
    await rival.delete("key")

    async def collected():
        return await chunks(store) == []

    await asyncio.wait_for(until(collected), 30)
    with pytest.raises(ares.SessionEnded, match="try again"):
        await found.read()


# -- failures of this process ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["follower of the index of buckets", "beat of the session"])
async def test_the_death_of_a_task_is_told_to_waiting_calls(bucket, name):
    index = await index_of(bucket)
    waiting = asyncio.gather(index.reach(10**6, 10.0), index.verified(10.0), return_exceptions=True)
    await asyncio.sleep(0)
    next(task for task in index._tasks if task.get_name().startswith(name)).cancel()
    assert [type(error) for error in await waiting] == [ares.IndexStopped] * 2
    with pytest.raises(ares.IndexStopped, match=f"the {name}.* was cancelled"):
        index.check()
    await bucket.put("key", b"1")
    assert await index_of(bucket) is not index


@pytest.mark.parametrize("failure", [RuntimeError, RowTableFailed])
async def test_a_put_goes_on_when_an_entry_could_not_be_applied(bucket, monkeypatch, failure):
    """The index is opened again, and the second attempt at the put is no rival of the first."""
    index, before = await index_of(bucket), tasks.failures.total
    take, failed = BucketFold._take, []

    def fails_once(self, command):
        if not failed and isinstance(command.operation, PutObject):
            failed.append(command.number)
            raise failure("half of the rows")
        return take(self, command)

    monkeypatch.setattr(BucketFold, "_take", fails_once)
    stored = await bucket.put("key", b"1", if_absent=True)
    assert "half of the rows" in str(index.failure)
    assert (await index_of(bucket)).fold is not index.fold
    assert int(stored.version) < (await index_of(bucket)).session.number, "of the first attempt"
    assert (await bucket.stat("key")).version == stored.version
    assert (tasks.failures.total > before) == (failure is RuntimeError), "foreseen ones are no bugs"


async def test_an_error_after_an_attempt_without_an_answer_is_uncertain(bucket, monkeypatch):
    def failing(self, command):
        raise RowTableFailed("the disk is full")

    async def closed(self, last, timeout_s):
        raise ares.Unavailable(0, 0, {}, "too few servers")

    await bucket.put("key", b"1")
    monkeypatch.setattr(BucketFold, "_take", failing)
    monkeypatch.setattr(buckets.Buckets, "_open", closed)
    with pytest.raises(ares.ChangeUncertain, match="too few servers"):
        await bucket.put("key", b"2")
    with pytest.raises(ares.Unavailable):
        await bucket.put("key", b"3")  # nothing of it was sent


async def test_a_second_attempt_is_never_told_an_early_failure(bucket, monkeypatch):
    """The first attempt's command may come at any moment, and is no rival."""
    log, lost = (await index_of(bucket))._log, []
    append, verified = Log.append, BucketIndex.verified

    def losing(self, entry, **options):
        command = decode_command(entry)
        if lost or command is None or not isinstance(command.operation, PutObject):
            return append(self, entry, **options)
        lost.append(entry)
        bucket._buckets._index.fail(ares.IndexStopped("a test"))
        gone = asyncio.get_running_loop().create_future()
        gone.set_exception(AppendUncertain("the answer was lost"))
        return gone

    async def late(self, timeout_s):
        if lost:
            await append(log, lost[0])
        await verified(self, timeout_s)

    monkeypatch.setattr(Log, "append", losing)
    monkeypatch.setattr(BucketIndex, "verified", late)
    stored = await bucket.put("key", b"1", if_absent=True)
    assert (await bucket.stat("key")).version == stored.version


async def test_rows_that_differ_from_those_of_others_are_folded_again(bucket, rival):
    index, other = await index_of(bucket), await index_of(rival)
    await index.verified(10.0)
    wrong = Beat(index.state.position, bytes(16), 0, 1, ())
    other.give(other.session.upkeep(wrong, 0))

    async def stopped():
        return index.failure is not None

    await asyncio.wait_for(until(stopped), 30)
    assert "differ from those of session" in str(index.failure)
    await bucket.put("key", b"1")
    assert (await index_of(bucket)).fold is not index.fold


async def all_agree(*indexes):
    """Wait until each process has heard of the same rows from each other one."""

    async def agreed():
        return all(len(index._agreed_s) == len(indexes) - 1 for index in indexes)

    await asyncio.wait_for(until(agreed), 30)


async def test_most_processes_go_on_beside_one_with_different_rows(cluster, bucket, rival, caplog):
    third = await cluster.manager().bucket("photos")
    index, other, wrong = [await index_of(each) for each in (bucket, rival, third)]
    await all_agree(index, other, wrong)
    wrong.fold.digest_at = lambda position: 0

    def beat(ms):
        told = Beat(wrong.state.position, bytes(16), 0, 1, ())
        return wrong.session.upkeep(told, ms)

    wrong.session.beat = beat
    wrong.give(beat(0))

    async def stopped():
        return wrong.failure is not None and wrong.session.number not in index.state.sessions

    await asyncio.wait_for(until(stopped), 30)
    assert "differ from those of session" in str(wrong.failure)
    assert (index.failure, other.failure) == (None, None)
    assert caplog.text.count(f"those of session {wrong.session.number}: the process") == 2
    await bucket.put("key", b"1")
    assert await read(third, "key") == b"1"
    assert await index_of(bucket) is index


async def test_an_old_agreement_does_not_speak_for_rows(cluster, bucket, rival, monkeypatch):
    """A process of three that agreed is silent, and has not been ended yet."""
    monkeypatch.setattr(bucket_index, "AGREEMENT_S", 0.3)
    monkeypatch.setattr(index_upkeep, "SESSION_SILENCE_S", LONG_S)
    third = await cluster.manager().bucket("photos")
    index, silent, wrong = [await index_of(each) for each in (bucket, rival, third)]
    await all_agree(index, silent, wrong)
    silent.give = lambda command: None
    wrong.fold.digest_at = lambda position: 0
    await asyncio.wait_for(until(ended_by_now(wrong)), 20)
    assert "differ from those of session" in str(wrong.failure)


async def test_a_snapshot_of_different_rows_stops_each_process(cluster, bucket, rival):
    third = await cluster.manager().bucket("photos")
    index, other, wrong = [await index_of(each) for each in (bucket, rival, third)]
    await all_agree(index, other, wrong)
    snapshot = KeepSnapshot(wrong.state.position, bytes(16), wrong.session.blob(1, 1))
    wrong.give(wrong.session.upkeep(snapshot, 0))

    async def stopped():
        return index.failure is not None and other.failure is not None

    await asyncio.wait_for(until(stopped), 30)


async def test_an_uncertain_append_is_made_again_and_counts_once(bucket, monkeypatch):
    index = await index_of(bucket)
    append, uncertain = index._log.append, []

    def losing_answers(entry, **options):
        position = append(entry, **options)
        if len(uncertain) >= 2:
            return position
        uncertain.append(entry)
        lost = asyncio.get_running_loop().create_future()
        lost.set_exception(AppendUncertain("the answer was lost"))
        return lost

    monkeypatch.setattr(index._log, "append", losing_answers)
    stored = await bucket.put("key", b"1", if_absent=True)
    assert (await bucket.stat("key")).version == stored.version


async def test_a_change_without_an_answer_is_uncertain_and_then_settled(bucket, monkeypatch):
    index = await index_of(bucket)
    append = index._log.append

    def lost(entry, **options):
        gone = asyncio.get_running_loop().create_future()
        gone.set_exception(AppendUncertain("the answer was lost"))
        return gone

    monkeypatch.setattr(index._log, "append", lost)
    with pytest.raises(ares.ChangeUncertain) as told:
        await bucket.put("key", TWO_CHUNKS, timeout_s=0.3)
    assert told.value.may_have_taken_effect
    monkeypatch.setattr(index._log, "append", append)
    assert index.session.lowest == index.session._next, "the next beat settles it"
    assert index.session._open_blobs == set()


# -- garbage and litter ----------------------------------------------------------------------------


async def test_a_put_that_fails_before_its_command_leaves_no_chunks(store, bucket):
    async def broken():
        yield TWO_CHUNKS
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        await bucket.put("key", broken())

    async def collected():
        return await chunks(store) == []

    await asyncio.wait_for(until(collected), 30)


async def test_chunks_without_a_command_are_dropped_in_the_next_life(store, bucket, monkeypatch):
    drop = BlobStore.drop

    async def stuck(self, names, timeout_s):
        await asyncio.sleep(LONG_S if names else 0)

    async def broken():
        yield TWO_CHUNKS
        raise ValueError("the source broke")

    index = await index_of(bucket)
    monkeypatch.setattr(BlobStore, "drop", stuck)
    for _ in range(2):  # one is being dropped when the life ends
        with pytest.raises(ValueError, match="the source broke"):
            await bucket.put("key", broken())
        await asyncio.sleep(0.1)
    index.fail(ares.IndexStopped("a test"))
    monkeypatch.setattr(BlobStore, "drop", drop)
    assert await index_of(bucket) is not index

    async def collected():
        return await chunks(store) == []

    await asyncio.wait_for(until(collected), 30)


async def test_clients_that_live_shortly_collect_what_earlier_ones_left(cluster, monkeypatch):
    monkeypatch.setattr(index_upkeep, "COLLECTION_S", 1000.0)
    writer = cluster.manager()
    await writer.create_bucket_domains(Configuration.ec(SERVERS, 3))
    bucket = await writer.bucket("photos", create=True)
    await bucket.put("key", TWO_CHUNKS)
    await bucket.delete("key")
    await writer.close()
    reader = cluster.manager()
    await reader.bucket("photos")

    async def collected():
        return await chunks(reader) == []

    await asyncio.wait_for(until(collected), 30)


async def test_a_trimmed_log_is_told(cluster, store, bucket):
    await bucket.put("key", b"1")
    await (await store.log("s3/meta/0")).trim(2)
    with pytest.raises((ares.Trimmed, ares.IndexStopped)):
        await cluster.manager().bucket("photos")
    assert await read(bucket, "key") == b"1", "whoever has the index goes on"


async def test_a_sweep_drops_what_processes_that_died_left(cluster, store, bucket, monkeypatch):
    """The dead process has the oldest session, and data under way; no other process lives long."""
    await bucket.put("key", TWO_CHUNKS)
    await bucket.delete("key")
    dead = await index_of(bucket)
    litter = f"{dead.session.number}/{dead.session.take_blob()}/0"
    await bucket._buckets.blobs.create(litter, b"litter", 10.0)
    for task in dead._tasks:
        task.cancel()
    monkeypatch.setattr(index_upkeep, "COLLECTION_S", LONG_S)
    monkeypatch.setattr(index_upkeep, "SESSION_SILENCE_S", 0.5)
    later = cluster.manager()
    await later.bucket("photos")
    assert litter in await chunks(later)
    assert not (await index_of(await later.bucket("photos"))).is_oldest
    swept = await later.sweep_buckets()
    assert (swept.sessions, swept.silent) == (1, ())
    assert await chunks(later) == []
    assert await later.sweep_buckets() == ares.SweepReport(0, 0, 0, ())


async def test_a_sweep_names_the_servers_without_an_answer(cluster, store, bucket, monkeypatch):
    monkeypatch.setattr(index_upkeep, "DROP_S", 0.3)
    cluster.stop("s4")
    assert (await store.sweep_buckets()).silent == ("s4",)


async def test_litter_of_ended_and_of_live_sessions_is_swept(store, bucket, rival):
    await bucket.put("key", TWO_CHUNKS)
    kept = await chunks(store)
    index, blobs = await index_of(bucket), bucket._buckets.blobs
    ended = (await end_session(rival, bucket)).session.number
    open_blob = index.session.take_blob()
    settled = index.session.take_blob()
    index.session.close_blob(settled)
    for session, counter in ((ended, 7), (index.session.number, settled)):
        await blobs.create(f"{session}/{counter}/0", b"litter", 10.0)
    stays = [f"{index.session.number}/{open_blob}/0", "a name of a stranger"]
    for name in stays:
        await blobs.create(name, b"in use", 10.0)
    await index._result(index.session.beat(0), 10.0)
    dropped, silent = await IndexUpkeep(index, blobs).sweep()
    assert (dropped >= 2, silent) == (True, [])
    assert sorted(await chunks(store)) == sorted(kept + stays)


async def test_a_sweep_ends_beside_garbage_that_a_session_may_name(store, bucket):
    """More uploads are open than a beat lists, and a later blob is garbage."""
    index = await index_of(bucket)
    slow = [index.session.take_blob() for _ in range(OPEN_BLOBS_MAX + 1)]
    await bucket.put("key", TWO_CHUNKS)
    await bucket.delete("key")
    assert (await asyncio.wait_for(store.sweep_buckets(), 30)).blobs == 0
    assert len(index.state.garbage(10)) == 1
    for counter in slow:
        index.session.close_blob(counter)

    async def collected():
        return await chunks(store) == [] and index.state.garbage(10) == []

    await asyncio.wait_for(until(collected), 30)


async def test_a_process_with_distrusted_rows_sweeps_no_more(store, bucket, rival):
    index, blobs = await index_of(bucket), bucket._buckets.blobs
    ended = (await end_session(rival, bucket)).session.number
    await blobs.create(f"{ended}/7/0", b"in use by the right rows", 10.0)
    index.distrust("a test")
    with pytest.raises(ares.IndexStopped, match="a test"):
        await IndexUpkeep(index, blobs).sweep()
    assert await chunks(store) == [f"{ended}/7/0"]


async def test_no_process_drops_data_while_a_session_has_different_rows(cluster, bucket, rival):
    third = await cluster.manager().bucket("photos")
    index, other, wrong = [await index_of(each) for each in (bucket, rival, third)]
    await all_agree(index, other, wrong)
    assert index.is_oldest
    wrong.fold.digest_at = lambda position: None
    wrong.session.beat = lambda ms: wrong.session.upkeep(
        Beat(wrong.state.position, bytes(16), 0, 1, ()), ms
    )

    async def heard():
        return index._agreed_s[wrong.session.number] is None

    await asyncio.wait_for(until(heard), 30)
    assert (index.failure, index.is_oldest) == (None, False)
    snapshots = BucketSnapshots(BlobStore(await cluster.manager().domain(SNAPSHOT_DOMAIN)))
    with pytest.raises(ares.AresError, match="one of both is wrong"):
        await snapshots.take(index)
    await end_session(third, bucket)
    assert index.is_oldest


@pytest.mark.parametrize(("turn_s", "applied"), [(0.0, 1), (LONG_S, 50)])
async def test_other_work_goes_on_between_entries_that_take_long(monkeypatch, turn_s, applied):
    """A piece of the log has a hundred batches of a thousand deletions: seconds of work."""

    class LogWithEntriesAhead:
        async def follow(self, position):
            for at in range(position, position + 50):
                yield at, b""
            await asyncio.sleep(LONG_S)

    monkeypatch.setattr(bucket_index, "FOLD_TURN_S", turn_s)
    monkeypatch.setattr(bucket_index, "FOLDED_AT_ONCE", 1000)
    index = BucketIndex(LogWithEntriesAhead(), BucketFold(MemoryTable()))
    index.fold.apply(b"")
    index.begin(index._follow(), "follower")
    await asyncio.sleep(0)
    assert index.state.position == 1 + applied
    index.fail(ares.IndexStopped("a test"))


async def test_a_collection_has_a_bound_of_chunks(store, bucket, monkeypatch):
    """Objects of gigabytes have millions of chunks."""
    monkeypatch.setattr(index_upkeep, "CHUNKS_DROPPED", 3)
    drop, dropped = BlobStore.drop, []

    async def counted(self, names, timeout_s):
        dropped.append(len(names))
        await drop(self, names, timeout_s)

    for number in range(4):
        await bucket.put(f"key{number}", TWO_CHUNKS)
    held = await bucket.get("key0")
    for number in range(4):
        await bucket.delete(f"key{number}")
    await asyncio.sleep(0.2)
    monkeypatch.setattr(BlobStore, "drop", counted)
    await held.read()

    async def collected():
        return await chunks(store) == []

    await asyncio.wait_for(until(collected), 30)
    assert max(dropped) == 4
