"""A server with many small objects, without a network: its start, memory and longest pauses.

    python -m experiments.bench.one_server fill DIRECTORY OBJECTS
    python -m experiments.bench.one_server start DIRECTORY OBJECTS
    python -m experiments.bench.one_server churn DIRECTORY OBJECTS

`fill` writes a journal; `start` reads the journal as a starting server does, and prints the figures
as JSON. `churn` creates names of a write-once domain (rule R25) and drops most of them, with the
compaction of the journal, and prints the memory and the disk that they leave behind. Names are in
no order, as names made of digests. A pause is the time in which the server answers no other client.
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
from ares.model.identity import (
    DEFAULT_DOMAIN,
    CallId,
    ClientId,
    DomainName,
    ObjectName,
    ServerId,
)
from ares.model.messages import (
    DROPPED_MAX,
    PAGE_OBJECTS_MAX,
    CollectConfig,
    Describe,
    Drop,
    Introduce,
    ListObjects,
    ObjectsReply,
    PutData,
)
from ares.model.tag import WRITE_ONCE_TAG, Tag
from ares.model.units import KIB, MIB
from ares.replica.compaction import USUAL_COMPACTION
from ares.replica.facts import ConfigurationRecord, Fact, fact_bytes_max
from ares.replica.replica import Replica
from ares.server.storage_process import restored
from ares.server.storage_server import ServerParts, StorageServer
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
BLOBS = Configuration.abd(MEMBERS, write_once=True).at(DomainName("blobs"), 0, C0.id)
NAMES_STAYING = 3000
CHURNED_AT_ONCE = 2048
"""Names created, and then dropped, between two measurements."""


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


class ChurnFigures(Struct, frozen=True):
    """The figures of a server that created ``names`` and dropped all except NAMES_STAYING."""

    names: int
    per_s: float
    """Names created and dropped in a second."""
    memory_mib: float
    """Memory at the end; ``fresh_mib``: with the staying names alone; ``most_mib``: at most."""
    fresh_mib: float
    most_mib: float
    disk_mib: float
    """Disk at the end; ``most_disk_mib``: at most."""
    most_disk_mib: float
    start_s: float
    """Seconds of a start afterwards."""


def object_name(number: int) -> ObjectName:
    return ObjectName(f"{number * NAME_MULTIPLIER % 2**64:0{NAME_BYTES}x}")


def put_of(number: int, tag: Tag, configuration: Configuration = C0) -> PutData:
    name, data = object_name(number), number.to_bytes(8) * (OBJECT_BYTES // 8) + bytes(4)
    element = sealed(configuration.id, name, tag, 0, OBJECT_BYTES, (data,))
    return PutData(CALL, configuration.id, name, tag, element)


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


async def churn(directory: Path, names: int) -> ChurnFigures:
    """Create ``names`` and drop them, except a staying name now and then."""
    journal, failed = opened(directory), list[OSError]()
    replica = restored(MEMBERS[0].id, MEMBERS[0].identity, C0, journal, compiled.replica_parts())
    host = StorageServer(replica, journal, ServerParts(lambda *_: None, failed.append))
    host.handle("client", [Introduce(CALL, BLOBS)])
    staying = names // NAMES_STAYING
    memory, disk, began_s = list[float](), list[float](), time.perf_counter()
    for first in range(0, names, CHURNED_AT_ONCE):
        numbers = range(first, min(first + CHURNED_AT_ONCE, names))
        host.handle("client", [put_of(number, WRITE_ONCE_TAG, BLOBS) for number in numbers])
        await host.settle()
        going = [object_name(number) for number in numbers if number % staying]
        parts = range(0, len(going), DROPPED_MAX)
        drops = [Drop(CALL, BLOBS.id, tuple(going[at : at + DROPPED_MAX])) for at in parts]
        host.handle("client", drops)
        await host.settle()
        memory.append(private_bytes() / MIB)
        disk.append(journal.bytes_on_disk / MIB)
    taken_s = time.perf_counter() - began_s
    assert not failed, "the disk failed"
    held = len(replica.hosted[BLOBS.id].objects)
    journal.close()
    again = opened(directory)
    began_s = time.perf_counter()
    restarted = restored(MEMBERS[0].id, MEMBERS[0].identity, C0, again, compiled.replica_parts())
    start_s = time.perf_counter() - began_s
    assert len(restarted.hosted[BLOBS.id].objects) == held == len(range(0, names, staying))
    again.close()
    figures = memory[-1], memory[0], max(memory), disk[-1], max(disk)
    return ChurnFigures(names, names / taken_s, *figures, start_s)


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
        return
    measure = start if verb == "start" else churn
    directory.mkdir(parents=True, exist_ok=True)
    print(encode_json(asyncio.run(measure(directory, objects))).decode())


if __name__ == "__main__":
    main()
