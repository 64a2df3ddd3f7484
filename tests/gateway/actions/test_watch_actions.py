"""Watches over HTTP: order, resumption, gaps, the end of a bucket, bounds, MinIO's form."""

import asyncio
import json
from contextlib import aclosing
from urllib.parse import unquote_plus

import pytest

from ares.client.buckets.bucket_watch import WATCH_MARK_S
from ares.gateway.actions import watch_actions
from ares.gateway.s3.s3_errors import S3Error
from tests.gateway.actions.test_delete_actions import document

PUT, DELETE = "PutObject", "DeleteObject"


def parsed(piece):
    """Return the kind, the id and the data of an event of a server."""
    fields = dict(line.split(": ", 1) for line in piece.decode().splitlines() if line)
    return fields["event"], fields.get("id"), json.loads(fields["data"])


async def taken(body, count):
    """Return the next events that are no marks."""
    found = []
    while len(found) < count:
        event = parsed(await asyncio.wait_for(anext(body), 60))
        if event[0] != "mark":
            found.append(event)
    return found


async def test_changes_come_in_order_and_from_any_position(gateway, rival):
    answer = await rival.response("Watch", "photos", query={"watch": "", "prefix": "a/"})
    assert dict(answer.headers)["Content-Type"] == "text/event-stream"
    kind, start, data = parsed(await anext(answer.body))
    assert (kind, data["events"]) == ("mark", [])
    await gateway(PUT, "photos", "a/1", b"1")
    await gateway(PUT, "photos", "b", b"1")
    await gateway(PUT, "photos", "a/2", b"22")
    await gateway("DeleteObjects", "photos", body=document("a/1", "a/2"))
    async with aclosing(answer.body) as body:
        found = await taken(body, 3)
    assert [[(e["kind"], e["key"]) for e in data["events"]] for _, _, data in found] == [
        [("put", "a/1")],
        [("put", "a/2")],
        [("delete", "a/1"), ("delete", "a/2")],
    ]
    assert [int(position) for _, position, _ in found] == [d["position"] for _, _, d in found]
    for query, headers, rest in (
        ({"from": start}, {}, found),
        ({"from": found[0][1]}, {}, found[1:]),
        ({"from": start}, {"last-event-id": found[1][1]}, found[2:]),
    ):
        query |= {"watch": "", "prefix": "a/"}
        again = await gateway.response("Watch", "photos", query=query, headers=headers)
        async with aclosing(again.body) as body:
            await anext(body)
            assert await taken(body, len(rest)) == rest


async def test_a_watch_that_cannot_begin(gateway, store):
    assert (await gateway("Watch", "absent")).error == "NoSuchBucket"
    put = await gateway(PUT, "photos", "k", b"1")
    beyond = str(int(put.headers["x-ares-position"]) + 1000)
    for position in ("odd", "-1", beyond):
        answer = await gateway("Watch", "photos", query={"from": position})
        assert (answer.status, answer.error) == (400, "InvalidArgument")
    await gateway.services.buckets.log.trim(2, timeout_s=10.0)
    gone = await gateway("Watch", "photos", query={"from": "1"})
    assert (gone.status, gone.error, gone.headers["x-ares-position"]) == (410, "Gone", "2")


async def test_the_end_of_the_bucket_ends_the_watch(gateway):
    answer = await gateway.response("Watch", "photos")
    await anext(answer.body)
    await gateway("DeleteBucket", "photos")
    pieces = [piece async for piece in answer.body]
    assert parsed(pieces[-1])[0] == "deleted"


async def test_watches_are_bounded(gateway, monkeypatch):
    monkeypatch.setattr(watch_actions, "WATCHES_MAX", 3)
    monkeypatch.setattr(watch_actions, "WATCHES_OF_KEY_MAX", 2)
    open_watches = [await gateway.response("Watch", "photos") for _ in range(2)]
    await anext(open_watches[0].body)
    with pytest.raises(S3Error, match="SlowDown") as busy:
        await gateway.response("Watch", "photos")
    assert (busy.value.code.status, busy.value.headers["Retry-After"]) == (503, "1")
    gateway.access_key = "OTHER"
    open_watches.append(await gateway.response("Watch", "photos"))
    gateway.access_key = "THIRD"
    with pytest.raises(S3Error, match="SlowDown"):
        await gateway.response("Watch", "photos")
    while open_watches:  # begun or not
        await open_watches.pop().body.aclose()
    again = await gateway.response("Watch", "photos")
    await anext(again.body)
    await again.body.aclose()


async def test_marks_come_without_changes(gateway, monkeypatch):
    monkeypatch.setattr("ares.client.buckets.bucket_watch.WATCH_MARK_S", 0.0)
    assert WATCH_MARK_S > 0
    answer = await gateway.response("Watch", "photos")
    async with aclosing(answer.body) as body:
        marks = [parsed(await asyncio.wait_for(anext(body), 60)) for _ in range(3)]
    assert [kind for kind, _, _ in marks] == ["mark"] * 3
    positions = [int(position) for _, position, _ in marks]
    assert positions == sorted(set(positions))


async def test_minios_lines(gateway):
    query = {"events": "s3:ObjectCreated:*,s3:ObjectAccessed:*", "prefix": "a", "suffix": ".txt"}
    answer = await gateway.response("ListenNotification", "photos", query=query)
    assert (await anext(answer.body)).strip() == b""
    await gateway(PUT, "photos", "a b/é.txt", b"123")
    await gateway(PUT, "photos", "a.png", b"1")
    await gateway(DELETE, "photos", "a b/é.txt")
    await gateway(PUT, "photos", "a.txt", b"1")
    records = []
    async with aclosing(answer.body) as body:
        while len(records) < 2:
            for line in (await asyncio.wait_for(anext(body), 60)).split(b"\n"):
                if line.strip():
                    records += json.loads(line)["Records"]
    assert [unquote_plus(each["s3"]["object"]["key"]) for each in records] == [
        "a b/é.txt",
        "a.txt",
    ]
    first = records[0]
    assert first["eventName"] == "s3:ObjectCreated:Put"
    assert (first["s3"]["bucket"]["name"], first["s3"]["object"]["size"]) == ("photos", 3)
    odd = await gateway("ListenNotification", "photos", query={"events": "odd"})
    assert odd.error == "InvalidArgument"
