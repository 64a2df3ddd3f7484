"""Servers that scrub their disks: rotten elements are found, left, and rebuilt from other servers.

No reader ever notices (ares/server/scrub.py).
"""

import asyncio
import contextlib
import random
import threading
import time
from types import SimpleNamespace

import pytest

from ares.model.errors import AresError
from ares.model.messages import GetData, Scrub
from ares.model.units import KIB
from ares.registers import repair as repairing
from ares.server import scrub as scrubbing
from ares.server.scrub import _Ended, _Pace
from tests.inproc.network import InprocConnections

from .integrity_cluster import WAIT_S_MAX, IntegrityCluster
from .integrity_rig import Headless, anatomy, flip

SIZES = [0, 10, 5 * KIB, 30 * KIB, 90 * KIB]


@pytest.fixture(params=["abd", "ec"])
async def cluster(request, tmp_path):
    cluster = IntegrityCluster(tmp_path, request.param)
    await cluster.start()
    yield cluster
    await cluster.close()


async def filled(store, count=40, seed=1):
    """Write some objects, half of them twice; return their values."""
    rng = random.Random(seed)
    values = {}
    for number in range(count + count // 2):
        values[f"key {number % count}"] = rng.randbytes(rng.choice(SIZES))
        await store.write(f"key {number % count}", values[f"key {number % count}"])
    return values


def damage(directory, rng, count):
    """Flip bits everywhere in a server's files."""
    flips = 0
    for path in sorted(directory.glob("*.log")):
        with contextlib.suppress(FileNotFoundError, Headless):
            # a place may be released during this, or begun
            spots = [place for kind in anatomy(path).values() for place in kind if len(place)]
            for _ in range(count):
                flip(path, rng.choice(rng.choice(spots)), rng.randrange(8))
                flips += 1
    return flips


def data_in(path):
    """Return the ranges of data of large elements in a segment; empty for a missing segment."""
    try:
        return anatomy(path)["data"]
    except (FileNotFoundError, Headless):
        return []


async def check(cluster, values):
    """Read with a new client; with each server down in turn, all values must still exist."""
    for down in ("", "s4", "s2"):
        if down:
            await cluster.stop(down)
        store = cluster.manager()
        assert (
            dict(zip(values, await asyncio.gather(*map(store.read, values)), strict=True)) == values
        )
        if down:
            await cluster.start(down)


async def test_hundreds_of_flips_in_one_server_after_the_other(cluster):
    store, rng = cluster.manager(), random.Random(2)
    values = await filled(store)
    await cluster.settled()
    flips = repaired = 0
    for name in cluster.book:
        flips += damage(cluster.store(name), rng, 40)
        reply = await cluster.scrubbed(name)
        assert reply.damaged
        assert (reply.quarantined, reply.leaving, reply.running, reply.rounds) == (0, 0, False, 1)
        assert reply.checked_bytes == reply.total_bytes > 0
        repaired += reply.repaired
        reply = await cluster.scrubbed(name)
        assert (reply.damaged, reply.quarantined, reply.rounds) == (0, 0, 2)
    assert flips >= 200
    assert repaired >= 20
    await check(cluster, values)


async def test_what_others_lack_too_is_kept_for_later(cluster, monkeypatch):
    """Too many servers have a rotten element to decode it.

    No value is ever wrong, and the element heals as soon as a good server is back.
    """
    monkeypatch.setattr(repairing, "REPAIR_ASK_S", 0.1)
    store, rng = cluster.manager(1.0), random.Random(3)
    values = await filled(store)
    await cluster.settled()
    has_it = "s4"
    await cluster.stop(has_it)
    rotten = [name for name in cluster.book if name != has_it][
        : 4 if cluster.initial.dap == "abd" else 2
    ]
    for name in rotten:
        for path in sorted(cluster.store(name).glob("*.log")):
            for place in anatomy(path)["data"]:
                flip(path, rng.choice(place))
    lost = [(await cluster.scrubbed(name)).quarantined for name in rotten]
    assert all(lost)
    said = await asyncio.gather(*map(store.read, values), return_exceptions=True)
    assert all(
        answer == value or isinstance(answer, AresError)
        for answer, value in zip(said, values.values(), strict=True)
    )
    assert any(isinstance(answer, AresError) for answer in said)
    await cluster.start(has_it)
    for name in rotten:
        assert (await cluster.scrubbed(name)).quarantined == 0
    await check(cluster, values)


async def test_what_a_reader_runs_into_is_repaired_without_being_asked_for(cluster, monkeypatch):
    monkeypatch.setattr(scrubbing, "SCRUB_LOOK_S", 0.01)
    value, reader = b"v" * 200 * KIB, InprocConnections(cluster.network)
    await cluster.manager().write("key", value)
    reader.open(lambda _, replies: None)
    reader.learn("s1", cluster.book["s1"].address)
    async with asyncio.timeout(WAIT_S_MAX):
        path = cluster.store("s1") / "00000001.log"
        while not (places := data_in(path)):  # noqa: ASYNC110 (a thread writes it)
            await asyncio.sleep(0.01)
        flip(path, places[0].start)
        while cluster.hosts["s1"].replica.account.repaired == 0:
            reader.post("s1", [GetData(1, cluster.initial.id, "key", True)])
            await asyncio.sleep(0.01)
    await reader.close()
    assert await cluster.manager().read("key") == value
    assert not cluster.hosts["s1"].replica.quarantined
    assert (await cluster.scrubbed("s1")).damaged == 0


async def test_writing_goes_on_meanwhile(cluster):
    store, rng, done = cluster.manager(), random.Random(4), asyncio.Event()
    values = await filled(store)

    async def write():
        number = 0
        while not done.is_set():
            number += 1
            key = f"key {number % 40}"
            values[key] = rng.randbytes(rng.choice(SIZES))
            await store.write(key, values[key])
            await asyncio.sleep(0)

    writing = asyncio.create_task(write())
    for _ in range(2):
        for name in ("s0", "s3"):
            damage(cluster.store(name), rng, 10)
            assert (await cluster.scrubbed(name)).leaving == 0
    done.set()
    await writing
    for name in ("s0", "s3"):
        reply = await cluster.scrubbed(name)  # including damage from before durability
        assert (reply.quarantined, reply.leaving) == (0, 0)
    await check(cluster, values)


async def test_a_round_that_is_asked_for_twice_is_one(cluster):
    await filled(cluster.manager(), 5)
    host = cluster.hosts["s0"]
    before = host.scrub(Scrub(1, False))
    assert (before.running, before.rounds, before.total_bytes) == (False, 0, 0)
    first, second = host.scrub(Scrub(1, True)), host.scrub(Scrub(2, True))
    assert first.running
    assert second.running
    assert (await cluster.scrubbed("s0")).rounds == 1
    assert (cluster.directory / "s0.scrubbed").exists()


async def test_a_failure_of_our_own_ends_no_server(cluster, monkeypatch, caplog):
    await filled(cluster.manager(), 5)
    await cluster.settled()
    monkeypatch.setattr(scrubbing.Scrubber, "_verify", None)
    assert (await cluster.scrubbed("s0")).rounds == 0
    assert "looking after the store failed" in caplog.text
    monkeypatch.undo()
    assert (await cluster.scrubbed("s0")).rounds == 1


class Clock:
    """A clock that advances by waiting only."""

    def __init__(self):
        self.now_s = 100.0
        self.during = lambda: None

    def wait(self, seconds):
        self.now_s += seconds
        self.during()
        return False


def paced(monkeypatch, bytes_per_s):
    clock = Clock()
    monkeypatch.setattr(scrubbing.time, "monotonic", lambda: clock.now_s)
    pace = _Pace(bytes_per_s)
    monkeypatch.setattr(pace, "_ended", threading.Event())
    monkeypatch.setattr(pace._ended, "wait", clock.wait)
    return pace, clock


def test_no_faster_than_it_was_told_to(monkeypatch):
    pace, clock = paced(monkeypatch, 1000)
    for _ in range(3):
        pace.verify(500)
    assert clock.now_s == pytest.approx(101.0)
    clock.now_s += 10
    pace.verify(500)
    assert clock.now_s == pytest.approx(111.0)
    assert pace.bytes == 2000


def test_another_rate_counts_at_once_and_a_new_round_owes_nothing(monkeypatch):
    pace, clock = paced(monkeypatch, 5)
    pace(1_000_000)
    clock.during = lambda: setattr(pace, "bytes_per_s", 10**9)
    pace(1)
    assert clock.now_s < 102
    clock.during = lambda: None
    pace.bytes_per_s = 5
    pace(1_000_000)
    pace.begin()
    before_s = clock.now_s
    pace.verify(1)
    assert (clock.now_s, pace.bytes) == (before_s, 1)


async def test_an_element_that_is_missed_during_the_repairs_is_newly_missing():
    """Else it waits with the elements that were tried, up to a quarter of an hour."""
    missing, asked = ["a"], []

    async def pull(configuration, object, tag, length):
        asked.append(object)
        if object == "a" and "b" not in missing:
            missing.append("b")
        else:
            missing.remove(object)

    class MissingElements(SimpleNamespace):
        @property
        def quarantined(self):
            return [(b"c", object, 1) for object in missing]

    replica = MissingElements(
        missing_bytes=lambda key: 1,
        is_quarantined=lambda key: key[1] in missing,
        hosted={b"c": SimpleNamespace(configuration=SimpleNamespace(k=1), value_bytes=10)},
    )
    repairs = scrubbing._Repairs(SimpleNamespace(replica=replica), pull)
    for _ in range(2):
        await repairs.try_again(100.0)
    assert asked == ["a", "a", "b"]
    assert not missing


def test_a_thread_that_is_held_back_ends_when_it_is_told_to():
    pace = _Pace(1)
    pace(1)
    pace.end()
    with pytest.raises(_Ended):
        pace(1)


async def test_it_begins_by_itself_when_it_is_time(tmp_path, monkeypatch):
    """The scrub starts an hour after the last, which an earlier run of the server finished.

    With scrubs turned off, no scrub starts.
    """
    monkeypatch.setattr(scrubbing, "SCRUB_LOOK_S", 0.01)
    monkeypatch.setattr(scrubbing, "FIRST_AFTER_S", 0.0)
    cluster, begun_s = IntegrityCluster(tmp_path, "abd", every_s=3600.0), int(time.time())

    def noted_s(server):
        noted = tmp_path / f"{server}.scrubbed"
        return float(noted.read_text() or 0) if noted.exists() else 0.0

    for server, ago_s in (("s0", 3601.0), ("s1", 3000.0), ("s2", -(10**6))):
        (tmp_path / f"{server}.scrubbed").write_text(f"{time.time() - ago_s}\n")
    await cluster.start()
    await filled(cluster.manager(), 5)
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            rounds = [host.scrub(Scrub(1, False)).rounds for host in cluster.hosts.values()]
            if rounds[0] and all(begun_s <= noted_s(server) for server in ("s0", "s3", "s4")):
                break
            await asyncio.sleep(0.01)
    assert rounds == [1, 0, 0, 0, 0]
    await cluster.close()
