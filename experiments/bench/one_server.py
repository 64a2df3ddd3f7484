"""A server with many small objects, without a network: its start, memory and longest pauses.

Each function is a measurement in a process of its own (alone.py). `fill` writes a journal; `start`
reads the journal as a starting server does. `churn` creates names of a write-once domain (rule R25)
and drops most of them, with the compaction of the journal, and measures the memory and the disk
that they leave behind. Names are in no order, as names made of digests. A pause is the processor
time in which the server answers no other client: no step waits for a disk, and other work of the
machine does not count.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from msgspec.msgpack import encode

from ares import compiled
from ares.model.codec import Encoded
from ares.model.configuration import Configuration, Server, Status, Successor
from ares.model.element import sealed
from ares.model.identity import DEFAULT_DOMAIN, CallId, ClientId, DomainName, ObjectName, ServerId
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
from experiments.bench.alone import Figures

LONGEST_MS_OF = "longest ms of "
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


async def fill(directory: Path, objects: int) -> Figures:
    """Write a journal with so many objects; there are no figures."""
    journal = opened(directory)
    assert not list(journal.recover()), "the journal has facts already"
    await _committed(journal, [ConfigurationRecord(C0, None, False)])
    for first in range(0, objects, PUTS_AT_ONCE):
        numbers = range(first, min(first + PUTS_AT_ONCE, objects))
        await _committed(journal, [put_of(number, Tag(1, ClientId(1))) for number in numbers])
    journal.close()
    return {}


async def _committed(journal: SegmentJournal, facts: list[Fact]) -> None:
    room = sum(map(fact_bytes_max, facts))
    assert journal.reserve(room, Use.DATA) is not None, "the disk is full"
    journal.extend(Encoded(len(facts), b"".join(map(encode, facts))), room)
    done = asyncio.get_running_loop().create_future()
    journal.commit(lambda error, moved: done.set_result(error))
    assert await done is None, "the disk failed"


def longest_ms(steps: Iterator[object]) -> float:
    """Return the processor time of the longest step."""
    longest_s, before_s = 0.0, time.thread_time()
    for _ in steps:
        now_s = time.thread_time()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return max(longest_s, time.thread_time() - before_s) * 1e3


async def start(directory: Path, objects: int) -> Figures:
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
    pauses["status"] = longest_ms(_described(replica))
    pauses["scrub"] = longest_ms(_slices(replica))
    pauses["collecting"] = longest_ms(_collected(replica))
    return {
        "s to start": start_s,
        "bytes beside name and value": (after - before) / objects - NAME_BYTES - OBJECT_BYTES,
        "MiB": after / MIB,
        "names listed/s": listed_per_s,
        **{f"{LONGEST_MS_OF}{work}": pause for work, pause in pauses.items()},
    }


async def churn(directory: Path, names: int) -> Figures:
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
    return {
        "names/s": names / taken_s,
        "MiB": memory[-1],
        "MiB with the staying names": memory[0],
        "MiB at most": max(memory),
        "MiB of disk": disk[-1],
        "MiB of disk at most": max(disk),
        "s to start": start_s,
    }


def _pages(replica: Replica) -> Iterator[tuple[object, ...]]:
    after = ""
    while True:
        reply = replica.handle(ListObjects(CALL, C0.id, after, PAGE_OBJECTS_MAX))
        assert isinstance(reply, ObjectsReply)
        yield reply.objects
        if not reply.more:
            return
        after = reply.objects[-1].name


def _described(replica: Replica) -> Iterator[object]:
    yield replica.handle(Describe(CALL))


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
