"""A server with many small objects, without a network: its start, memory and longest pauses.

    python -m experiments.bench.one_server fill DIRECTORY OBJECTS
    python -m experiments.bench.one_server start DIRECTORY OBJECTS

`fill` writes a journal; `start` reads the journal as a starting server does, and prints the figures
as JSON. Names are in no order, as names made of digests. A pause is the time in which the server
answers no other client.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.json import encode as encode_json
from msgspec.msgpack import encode

from ares import compiled
from ares.model.codec import Encoded
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, ObjectName, ServerId
from ares.model.messages import (
    PAGE_OBJECTS_MAX,
    CollectConfig,
    Describe,
    ListObjects,
    ObjectsReply,
    PutData,
)
from ares.model.tag import Tag
from ares.model.units import KIB, MIB
from ares.replica.compaction import USUAL_COMPACTION
from ares.replica.facts import ConfigurationRecord, Fact, fact_bytes_max
from ares.replica.replica import Replica
from ares.server.storage_process import restored
from ares.store.journal.segment_journal import SegmentJournal, open_journal
from ares.store.journal.segments import Owner
from ares.store.port import Use

OBJECT_BYTES = 100
NAME_BYTES = 16
PUTS_AT_ONCE = 2000
NAME_MULTIPLIER = 0x9E37_79B9_7F4A_7C15
"""An odd number: its multiples modulo 2**64 differ, and are in no order."""

MEMBERS = [
    Server(ServerId(f"s{number}"), f"host:{number}", f"{number:032x}") for number in range(3)
]
C0 = Configuration.abd(MEMBERS).at(DEFAULT_DOMAIN, 0)
CALL = CallId(1)
NO_PLACE = 2**31


class ServerFigures(Struct, frozen=True):
    """The figures of a server with ``objects``."""

    objects: int
    start_s: float
    bytes_beside: float
    """Bytes of memory for an object, beside its name and value."""
    memory_mib: float
    listed_per_s: float
    pauses_ms: dict[str, float]
    """The longest step of each kind of work."""


def object_name(number: int) -> ObjectName:
    return ObjectName(f"{number * NAME_MULTIPLIER % 2**64:0{NAME_BYTES}x}")


def put_of(number: int, tag: Tag) -> PutData:
    name, data = object_name(number), number.to_bytes(8) * (OBJECT_BYTES // 8) + bytes(4)
    return PutData(CALL, C0.id, name, tag, sealed(C0.id, name, tag, 0, OBJECT_BYTES, (data,)))


def private_bytes() -> int:
    """Return the resident memory of this process without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * KIB


def opened(directory: Path) -> SegmentJournal:
    return open_journal(directory / "store", Owner(C0.id, MEMBERS[0].id, MEMBERS[0].identity))


async def fill(directory: Path, objects: int) -> None:
    """Write a journal with so many objects."""
    journal = opened(directory)
    assert not list(journal.recover()), "the journal has facts already"
    await _committed(journal, [ConfigurationRecord(C0, None, False)])
    for first in range(0, objects, PUTS_AT_ONCE):
        numbers = range(first, min(first + PUTS_AT_ONCE, objects))
        await _committed(journal, [put_of(number, Tag(1, ClientId(1))) for number in numbers])
    journal.close()


async def _committed(journal: SegmentJournal, facts: list[Fact]) -> None:
    room = sum(map(fact_bytes_max, facts))
    assert journal.reserve(room, Use.DATA) is not None, "the disk is full"
    journal.extend(Encoded(len(facts), b"".join(map(encode, facts))), room)
    done = asyncio.get_running_loop().create_future()
    journal.commit(lambda error, moved: done.set_result(error))
    assert await done is None, "the disk failed"


def longest_ms(steps: Iterator[object]) -> float:
    """Return the time of the longest step."""
    longest_s, before_s = 0.0, time.perf_counter()
    for _ in steps:
        now_s = time.perf_counter()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return max(longest_s, time.perf_counter() - before_s) * 1e3


async def start(directory: Path, objects: int) -> ServerFigures:
    """Start a server from the journal of :func:`fill`, and measure it."""
    before, began_s = private_bytes(), time.perf_counter()
    parts = compiled.replica_parts()
    replica = restored(MEMBERS[0].id, MEMBERS[0].identity, C0, opened(directory), parts)
    start_s, after = time.perf_counter() - began_s, private_bytes()
    pauses = {"listing": longest_ms(_pages(replica))}
    began_s = time.perf_counter()
    listed = sum(map(len, _pages(replica)))
    listed_per_s = listed / (time.perf_counter() - began_s)
    assert listed == objects, f"{listed} objects are listed"
    pauses["status"] = longest_ms(iter([replica.handle(Describe(CALL))]))
    pauses["scrub"] = longest_ms(_slices(replica))
    pauses["collecting"] = longest_ms(_collected(replica))
    beside = (after - before) / objects - NAME_BYTES - OBJECT_BYTES
    return ServerFigures(objects, start_s, beside, after / MIB, listed_per_s, pauses)


def _pages(replica: Replica) -> Iterator[tuple[object, ...]]:
    after = ""
    while True:
        reply = replica.handle(ListObjects(CALL, C0.id, after, PAGE_OBJECTS_MAX))
        assert isinstance(reply, ObjectsReply)
        yield reply.objects
        if not reply.more:
            return
        after = reply.objects[-1].name


def _slices(replica: Replica) -> Iterator[object]:
    """Look for the facts of a damaged place, a slice at a time."""
    facts = replica.held_at(NO_PLACE)
    while some := list(islice(facts, USUAL_COMPACTION.slice_facts)):
        yield some


def _collected(replica: Replica) -> Iterator[object]:
    successor = Successor(C0.at(DEFAULT_DOMAIN, 1, C0.id), Status.FINALIZED)
    yield replica.handle(CollectConfig(CALL, C0.id, successor))
    while more := replica.release():
        yield more


def main() -> None:
    verb, directory, objects = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if verb == "fill":
        directory.mkdir(parents=True, exist_ok=True)
        asyncio.run(fill(directory, objects))
    else:
        print(encode_json(asyncio.run(start(directory, objects))).decode())


if __name__ == "__main__":
    main()
