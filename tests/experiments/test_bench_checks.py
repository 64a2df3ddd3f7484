"""The bench's checks of reads: values name their write, and false values are found.

See experiments/bench.
"""

import asyncio
import math
import random

import msgspec
import pytest

from ares.model.errors import BadInput
from experiments.bench.__main__ import arguments, chosen, write
from experiments.bench.closed_loop import ClosedLoop, LoopWork, Record
from experiments.bench.figures import BenchReport, points
from experiments.bench.load import MeasuredWorkload
from experiments.bench.measured_points import longest_pause_s
from experiments.bench.patterns import YCSB_MIXES, pattern_maker
from experiments.bench.peers import Ares
from experiments.bench.points import BenchTurn
from experiments.bench.redis_client import RedisConnection
from experiments.bench.store_clients import Coroutines
from experiments.bench.values import PRELOADER, BegunWrites, Values
from experiments.bench.workload import FULL_WORKLOADS, Workload

KEYS = 50
SIZE = 40


def test_a_value_tells_its_writer_and_which_write_it_is():
    values = Values(SIZE)
    for writer in (PRELOADER, 1, 300):
        for number in range(KEYS):
            value = values.make(writer, number, number + 7)
            assert len(value) == SIZE
            assert values.writer_of(value, number + 7) == (writer, number)


def test_a_value_that_no_write_of_the_key_wrote_is_told_apart():
    values = Values(SIZE)
    key = 3
    one, other = values.make(1, 0, key), values.make(1, 1, key)
    assert values.writer_of(one, key + 1) is None
    assert values.writer_of(one[:-1], key) is None
    assert values.writer_of(one[: SIZE // 2] + other[SIZE // 2 :], key) is None
    assert values.writer_of(one[:-1] + bytes([one[-1] ^ 1]), key) is None


def test_a_write_that_was_never_begun_is_told_apart():
    begun = BegunWrites({1: 3}, {1: 2})
    assert begun.unwritten() == {}
    begun.add(BegunWrites({2: 1}, {1: 3, 2: 0}))
    assert begun.unwritten() == {1: 3}


def test_values_too_small_to_tell_their_writer_are_refused():
    with pytest.raises(ValueError, match="10 bytes at least"):
        Values(9)


class Shelf:
    """A store in this process; with ``wrong``, a read returns the last written value of any key."""

    def __init__(self, wrong: bool, values: Values, workload: Workload) -> None:
        self._wrong = wrong
        self._kept = {
            workload.key(number): values.make(PRELOADER, number, number)
            for number in range(workload.first_written)
        }
        self._last = self._kept[workload.key(0)]
        self.asked: list[tuple[str, str]] = []

    async def read(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        self.asked.append(("read", key))
        return self._last if self._wrong else self._kept.get(key)

    async def write(self, key: str, value: bytes) -> None:
        await asyncio.sleep(0)
        self.asked.append(("write", key))
        self._last = self._kept[key] = value

    async def close(self) -> None:
        """Do nothing."""


async def loaded(shelf: Shelf, workload: Workload, most: int) -> Record:
    """Run the workload's clients, each with ``most`` operations, and return their record."""
    record, values = Record(), Values(workload.value_bytes)
    record.begun.writes[PRELOADER] = workload.first_written
    keys = [workload.key(number) for number in range(workload.keys)]
    make = pattern_maker(workload.pattern, workload.read_share)
    common = LoopWork(
        make(random.Random(1), workload.first_written, workload.keys),
        keys,
        values,
        record,
        end_s=math.inf,
        most=most,
        written=workload.first_written,
        clients=workload.clients,
    )
    loops = [ClosedLoop(writer, common) for writer in range(1, workload.clients + 1)]
    await Coroutines(shelf, (), shelf.close).run(loops)
    return record


@pytest.mark.parametrize("wrong", [False, True], ids=["a store", "one that mixes up keys"])
@pytest.mark.parametrize("pattern", ["even", *(f"YCSB {name}" for name in YCSB_MIXES)])
async def test_the_load_finds_a_store_that_returns_wrong_values(wrong, pattern):
    workload = Workload(4, SIZE, 2 * KEYS, written=KEYS, pattern=pattern)
    record = await loaded(Shelf(wrong, Values(SIZE), workload), workload, 500)
    assert len(record.operations) == 4 * 500
    assert bool(record.wrong) is wrong
    assert record.begun.unwritten() == {}


@pytest.mark.parametrize("name", YCSB_MIXES)
async def test_a_workload_of_ycsb_asks_a_store_for_its_operations(name):
    mix, workload = YCSB_MIXES[name], Workload(4, SIZE, 2000, written=1000, pattern=f"YCSB {name}")
    shelf = Shelf(False, Values(SIZE), workload)
    record = await loaded(shelf, workload, 1000)
    read = sum(reading for *_, reading in record.operations) / len(record.operations)
    assert read == pytest.approx(mix.read + mix.scan, abs=0.03)
    written = [key for kind, key in shelf.asked if kind == "write"]
    inserted = [key for key in written if key >= workload.key(1000)]
    assert len(inserted) / 4000 == pytest.approx(mix.insert, abs=0.03)
    assert len(set(inserted)) == len(inserted), "clients insert side by side"
    requests = len(shelf.asked) / 4000
    assert requests == pytest.approx(1 + mix.modify + 0.95 * 49.5 * bool(mix.scan), rel=0.1)
    if mix.modify:
        before = {("write", key): ("read", key) for key in written}
        places = [at for at, each in enumerate(shelf.asked) if each in before]
        assert all(before[shelf.asked[at]] in shelf.asked[:at] for at in places)


PLUGIN = """
class Last:
    def __init__(self, chance, records, room):
        self._records = records

    def draw(self, there):
        return "modify", self._records - 1, 1
"""


async def test_a_class_of_a_file_is_a_workload(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    (workload,) = chosen(arguments(["--only", "ares-abd", "--pattern", f"{file}:Last"]), {})[1]
    shelf = Shelf(False, Values(workload.value_bytes), workload)
    record = await loaded(shelf, workload, 2)
    assert {key for _, key in shelf.asked} == {workload.key(workload.first_written - 1)}
    assert len(record.operations) == 2 * workload.clients == len(shelf.asked) / 2


def turn(wrong: dict[str, int]) -> BenchTurn:
    measured = MeasuredWorkload(
        100.0, {0: 50}, {0: 50}, {}, {}, 0, [0.5], {"s0": 0.5}, 0.0, 0.0, 1.0, {100: 100}, {}, wrong
    )
    return BenchTurn("ares-abd", FULL_WORKLOADS[0].name, 0, measured, 2**20)


def test_a_wrong_read_is_told_in_every_output(tmp_path):
    found = points(
        [turn({"a read of k returned nothing": 1})],
        [Ares("ares-abd")],
        [FULL_WORKLOADS[0].name],
    )
    report = BenchReport("here", "once", found, {}, {})
    assert report.wrong == ["ares-abd, 10 B, 1 client: a read of k returned nothing"]
    assert "WRONG READ: ares-abd" in write(report, tmp_path)
    assert (
        msgspec.json.decode((tmp_path / "bench.json").read_bytes(), type=BenchReport).wrong
        == report.wrong
    )


def test_the_longest_pause_is_found_where_nothing_is_done():
    slots = dict.fromkeys([*range(100), *range(350, 1000)], 1)
    measured = msgspec.structs.replace(turn({}).measured, slots=slots)
    assert longest_pause_s(measured.pauses()) == pytest.approx(0.251)
    assert longest_pause_s(measured.pauses(), 0.2, 0.3) == pytest.approx(0.1)
    assert measured.rate(0.1, 0.3) == 0


class Wire(asyncio.Transport):
    """A transport with a memory of the sent data."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: "list[bytes]") -> None:
        self.sent += b"".join(parts)


class Script:
    """A loop with given requests, which keeps the results."""

    def __init__(self, asks: "list[tuple[str, bytes | None]]") -> None:
        self._asks = iter(asks)
        self.calls: list[object] = []

    def ask(self) -> "tuple[str, bytes | None] | None":
        return next(self._asks, None)

    def answered(self, value: bytes | None = None) -> None:
        self.calls.append(value)

    def failed(self, why: str) -> None:
        self.calls.append(why)


@pytest.mark.parametrize("piece", [1, 3, 1000])
async def test_answers_of_redis_are_understood_however_they_are_cut(piece):
    wire, connection = Wire(), RedisConnection(wait=2)
    script = Script(
        [("k", None), ("k", b"v\r\n"), ("k", None), ("k", b"w"), ("k", b"x"), ("k", None)]
    )
    connection.connection_made(wire)
    connection.go(script)
    answers = [
        b"$3\r\n\r\nv\r\n",
        b"+OK\r\n:4\r\n",
        b"$-1\r\n",
        b"+OK\r\n:1\r\n",
        b"-OOM no memory\r\n:0\r\n",
        b"-LOADING\r\n",
    ]
    for answer in answers:
        for begin in range(0, len(answer), piece):
            connection.data_received(answer[begin : begin + piece])
    assert script.calls == [
        b"\r\nv",
        None,
        None,
        "WAIT 2 ended with 1",
        "-OOM no memory",
        "-LOADING",
    ]
    assert connection.over.done()
    assert wire.sent.startswith(
        b"*2\r\n"
        b"$3\r\n"
        b"GET\r\n"
        b"$1\r\n"
        b"k\r\n"
        b"*3\r\n"
        b"$3\r\n"
        b"SET\r\n"
        b"$1\r\n"
        b"k\r\n"
        b"$3\r\n"
        b"v\r\n"
        b"\r\n"
        b"*3\r\n"
        b"$4\r\n"
        b"WAIT\r\n"
        b"$1\r\n"
        b"2\r\n"
    )


def test_what_is_unknown_is_refused(tmp_path):
    (tmp_path / "mine.py").touch()
    for name in ("YCSB G", "nothing.py:A", f"{tmp_path}/mine.py:A"):
        with pytest.raises(BadInput, match="is no workload"):
            chosen(arguments(["--pattern", name]), {})
    with pytest.raises(SystemExit, match="unknown: nonsense; known: ares-abd"):
        chosen(arguments(["--only", "nonsense"]), {})
    with pytest.raises(SystemExit, match="no workload begins with '3 B'"):
        chosen(arguments(["--workloads", "3 B"]), {})


def test_what_is_not_installed_is_named_with_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    missing: dict[str, str] = {}
    peers, _ = chosen(arguments(["--only", "ares-abd,redis-wait,etcd,cassandra"]), missing)
    assert [peer.name for peer in peers] == ["ares-abd"]
    assert "apt-get install redis-server" in missing["redis-wait"]
    assert "apt-get install etcd-server" in missing["etcd"]
    assert "apt-get install openjdk" in missing["cassandra"]
