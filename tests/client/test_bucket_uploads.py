"""Multipart uploads on real servers in an event loop; retries of senders; broken bodies."""

import asyncio
import hashlib
from functools import partial

import pytest

import ares
from ares.bucket.command_results import CommandOutcome
from ares.bucket.commands import (
    AbortUpload,
    BeginUpload,
    Conditions,
    CopyPart,
    CopySource,
    DeleteObject,
    PutObject,
    PutPart,
)
from ares.bucket.fold import BucketFold
from ares.client.buckets import buckets
from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.index_changes import ClientRequest
from tests.client.test_bucket_sessions import chunks, end_session, index_of, read, until

FIRST, SECOND = b"1" * 5000, b"2" * 10_000
LIMIT_S = 30.0


class BadDigest(Exception):
    """The error of a body whose digest is wrong at its end."""


@pytest.fixture(autouse=True)
def short_parts(monkeypatch):
    """Let parts of 5,000 bytes suffice."""
    monkeypatch.setattr(buckets, "BucketFold", partial(BucketFold, part_bytes_min=5000))


async def parts_of(upload):
    return [(part.number, part.size) async for part in upload.parts()]


async def pieces(*given, error=None):
    for piece in given:
        yield piece
    if error is not None:
        raise error


def put_of(key, **options):
    return PutObject("photos", key, b"", "", **options)


# -- uploads ---------------------------------------------------------------------------------------


async def test_parts_of_several_processes_become_an_object(bucket, rival):
    upload = await bucket.begin_upload("movie", content_type="video/mp4", tags={"by": "me"})
    elsewhere = rival.upload("movie", upload.id)
    second, first = await asyncio.gather(elsewhere.put(2, pieces(SECOND)), upload.put(1, FIRST))
    assert (second.number, second.size, second.etag) == (
        *(2, len(SECOND)),
        hashlib.md5(SECOND).hexdigest(),
    )
    assert await parts_of(upload) == [(1, 5000), (2, 10_000)]
    (begun,) = [each async for each in rival.uploads("mo")]
    assert (begun.id, begun.metadata, begun.tags) == (
        *(upload.id, {"content-type": "video/mp4"}),
        {"by": "me"},
    )
    made = await elsewhere.complete([first, second])
    digests = hashlib.md5(FIRST).digest() + hashlib.md5(SECOND).digest()
    assert made.etag == f"{hashlib.md5(digests).hexdigest()}-2"
    assert (made.size, made.content_type, made.tags) == (15_000, "video/mp4", {"by": "me"})
    assert await read(bucket, "movie") == FIRST + SECOND
    assert [each async for each in bucket.uploads()] == []
    for late in (upload.put(1, FIRST), upload.complete([first]), upload.abort(), upload.info()):
        with pytest.raises(ares.UploadNotFound, match="completed or aborted"):
            await late


async def test_a_range_of_an_object_becomes_a_part_without_bytes(store, bucket):
    source = await bucket.put("source", FIRST + SECOND)
    before = await chunks(store)
    upload = await bucket.begin_upload("copy")
    part = await upload.copy(1, "source", start=3000, length=6000)
    whole = await upload.copy(2, "source", version=source.version)
    assert (part.size, whole.size, whole.etag) == (6000, 15_000, source.etag)
    assert part.etag not in (whole.etag, (await upload.copy(3, "source", start=3000)).etag)
    with pytest.raises(ares.ChangeRefused, match="range"):
        await upload.copy(4, "source", start=14_999, length=2)
    with pytest.raises(ares.ObjectNotFound, match="'absent'"):
        await upload.copy(4, "absent")
    await upload.complete([part, whole])
    assert await read(bucket, "copy") == (FIRST + SECOND)[3000:9000] + FIRST + SECOND
    assert await chunks(store) == before


async def test_of_rivals_who_complete_an_upload_one_object_comes(bucket, rival):
    upload = await bucket.begin_upload("key")
    part = await upload.put(1, FIRST)
    outcomes = await asyncio.gather(
        *(each.upload("key", upload.id).complete([part]) for each in (bucket, rival) * 4),
        return_exceptions=True,
    )
    made = [each for each in outcomes if isinstance(each, ares.ObjectInfo)]
    assert len(made) == 1
    assert sum(isinstance(each, ares.UploadNotFound) for each in outcomes) == 7
    assert (await bucket.stat("key")).version == made[0].version


async def test_a_part_replaced_meanwhile_is_not_completed(bucket, rival):
    upload = await bucket.begin_upload("key")
    old = await upload.put(1, FIRST)
    new = await rival.upload("key", upload.id).put(1, SECOND)
    with pytest.raises(ares.ChangeRefused, match="was replaced"):
        await upload.complete([old])
    assert (await upload.complete([new])).size == len(SECOND)


async def test_conditions_and_sizes_are_judged_at_the_completion(bucket):
    upload = await bucket.begin_upload("key")
    small, last = await upload.put(1, b"small"), await upload.put(2, b"last")
    with pytest.raises(ares.ChangeRefused, match="5 MiB"):
        await upload.complete([small, last])
    await bucket.put("key", b"rival")
    with pytest.raises(ares.PreconditionFailed):
        await upload.complete([small], if_absent=True)
    await bucket.delete("key")
    assert (await upload.complete([small], if_absent=True)).size == 5


async def test_a_part_beside_an_abort_leaves_no_data(store, bucket, monkeypatch):
    upload = await bucket.begin_upload("key")
    commit, aborted = BucketIndex.commit, []

    async def after_abort(self, operation, *arguments):
        if isinstance(operation, PutPart) and not aborted:
            aborted.append(True)
            await upload.abort()
        return await commit(self, operation, *arguments)

    monkeypatch.setattr(BucketIndex, "commit", after_abort)
    with pytest.raises(ares.UploadNotFound):
        await upload.put(1, SECOND)
    state = (await index_of(bucket)).state
    assert (state.bucket("photos").uploads, state.bucket("photos").part_bytes) == (0, 0)

    async def dropped():
        return not await chunks(store)

    await asyncio.wait_for(until(dropped), 60)


async def test_odd_arguments_are_refused_before_a_message(bucket):
    upload = await bucket.begin_upload("key")
    part = ares.PartInfo(1, "no digest", 5, 0)
    for wrong in (
        upload.put(0, b""), upload.put(10_001, b""), upload.put("1", b""),
        upload.copy(1, "key", start=-1), upload.copy(1, "key", length=0),
        upload.complete([]), upload.complete([part]),
        bucket.begin_upload("key", tags={str(each): "" for each in range(11)}),
        bucket.put("key", b"", tags={"": "text"}),
    ):  # fmt: skip
        with pytest.raises(ares.BadInput):
            await wrong
    with pytest.raises(ares.BadInput, match="a version is"):
        bucket.upload("key", "odd")
    for invocation, attempt in ((b"", 1), (bytes(65), 1), (b"id", 0)):
        with pytest.raises(ares.BadInput):
            ClientRequest(invocation, attempt)


# -- ends in the middle ----------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 9_000_000])
async def test_a_body_that_fails_at_its_end_changes_nothing(store, bucket, size):
    upload = await bucket.begin_upload("key")
    for put in (
        bucket.put("key", pieces(bytes(size), error=BadDigest())),
        upload.put(1, pieces(bytes(size), error=BadDigest())),
    ):
        with pytest.raises(BadDigest):
            await put
    assert [each async for each in bucket.list()] == []
    assert await parts_of(upload) == []

    async def dropped():
        return not await chunks(store)

    await asyncio.wait_for(until(dropped), 60)


async def test_a_checksum_that_cannot_be_told_changes_nothing(store, bucket):
    def wrong():
        raise BadDigest

    for size in (10, 9_000_000):
        with pytest.raises(BadDigest):
            await bucket._buckets.put(put_of("key"), bytes(size), LIMIT_S, checksum=wrong)
    assert [each async for each in bucket.list()] == []

    async def dropped():
        return not await chunks(store)

    await asyncio.wait_for(until(dropped), 60)


@pytest.mark.parametrize("size", [10, 5000])
async def test_a_checksum_is_taken_after_the_end_of_the_data(bucket, size):
    seen = []

    async def body():
        yield bytes(size)
        seen.append("end")

    answer = await bucket._buckets.put(
        put_of("key"), body(), LIMIT_S, checksum=lambda: b"after " + seen[0].encode()
    )
    entry = answer.index.state.newest("photos", "key")
    assert (entry.checksum, entry.size) == (b"after end", size)


async def test_a_part_whose_session_was_ended_is_put_in_the_next(bucket, rival, monkeypatch):
    upload = await bucket.begin_upload("key")
    commit, ends = BucketIndex.commit, []

    async def ending(self, operation, *arguments):
        if isinstance(operation, PutPart) and not ends:
            ends.append(await end_session(bucket, rival))
        return await commit(self, operation, *arguments)

    monkeypatch.setattr(BucketIndex, "commit", ending)
    part = await upload.put(1, SECOND)
    assert isinstance(ends[0].failure, ares.SessionEnded)
    await upload.complete([part])
    assert await read(bucket, "key") == SECOND


# -- attempts of a sender --------------------------------------------------------------------------


async def test_a_later_attempt_gets_the_first_result(bucket, rival):
    absent = Conditions(absent=True)
    first, again = (each._buckets for each in (bucket, rival))
    made = await first.put(
        *(put_of("key", conditions=absent), SECOND, LIMIT_S), request=ClientRequest(b"id", 1)
    )
    repeated = await again.put(
        *(put_of("key", conditions=absent), pieces(SECOND), LIMIT_S),
        request=ClientRequest(b"id", 2),
    )
    assert made.result.done
    assert repeated.result == made.result
    for request in (None, ClientRequest(b"other", 1), ClientRequest(b"another", 2)):
        refused = await again.put(
            put_of("key", conditions=absent), SECOND, LIMIT_S, request=request
        )
        assert refused.result.outcome is CommandOutcome.CONDITION_FAILED


async def test_a_first_attempt_alone_fails_before_its_data(bucket):
    await bucket.put("key", b"there")
    taken = []

    async def body():
        taken.append(True)
        yield SECOND

    put = partial(bucket._buckets.put, put_of("key", conditions=Conditions(absent=True)))
    part = partial(
        bucket._buckets.put,
        PutPart("photos", "key", (await index_of(bucket)).state.newest("photos", "key").version,
                1, b"", ""),
    )  # fmt: skip
    for number, (change, outcome) in enumerate(
        ((put, CommandOutcome.CONDITION_FAILED), (part, CommandOutcome.NO_SUCH_UPLOAD))
    ):
        invocation = b"id %d" % number
        for request, reads in (
            (None, False),
            (ClientRequest(invocation, 1), False),
            (ClientRequest(invocation, 2), True),
        ):
            taken.clear()
            answer = await change(body(), LIMIT_S, request=request)
            assert (answer.result.outcome, bool(taken)) == (outcome, reads)


async def test_a_change_without_data_is_made_once_for_all_attempts(bucket, rival):
    request = [ClientRequest(b"begin", attempt) for attempt in (1, 2)]
    begin = BeginUpload("photos", "key")
    begun = await bucket._buckets.give(begin, LIMIT_S, request[0])
    assert (await rival._buckets.give(begin, LIMIT_S, request[1])).result == begun.result
    upload = begun.result.version
    await bucket.put("source", SECOND)
    copy = CopyPart("photos", "key", upload, 1, CopySource("photos", "source"))
    copied = await bucket._buckets.give(copy, LIMIT_S, request[0])
    await bucket._buckets.give(DeleteObject("photos", "source"), LIMIT_S)
    assert (await rival._buckets.give(copy, LIMIT_S, request[1])).result == copied.result
    abort = AbortUpload("photos", "key", upload)
    for attempt in request:
        assert (await rival._buckets.give(abort, LIMIT_S, attempt)).result.done
    refused = await rival._buckets.give(abort, LIMIT_S)
    assert refused.result.outcome is CommandOutcome.NO_SUCH_UPLOAD
