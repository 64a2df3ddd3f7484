"""The bench's checks of reads: values name their write, and false values are found.

See experiments/bench.
"""

import asyncio
import math

import msgspec
import pytest

from experiments.bench.__main__ import arguments, chosen, write
from experiments.bench.closed_loop import ClosedLoop, LoopWork, Record
from experiments.bench.figures import BenchReport, points
from experiments.bench.load import MeasuredWorkload
from experiments.bench.measured_points import longest_pause_s
from experiments.bench.peers import Ares
from experiments.bench.points import BenchTurn
from experiments.bench.redis_client import RedisConnection
from experiments.bench.store_clients import Coroutines
from experiments.bench.values import PRELOADER, BegunWrites, Values, key_of
from experiments.bench.workload import FULL_WORKLOADS, Workload

KEYS = 50
SIZE = 40


def test_a_value_tells_its_writer_and_which_write_it_is():
    values = Values(SIZE, KEYS)
    for writer in (PRELOADER, 1, 300):
        for number in range(KEYS):
            value = values.make(writer, number)
            assert len(value) == SIZE
            assert values.writer_of(value, key_of(writer, number, KEYS)) == (writer, number)


def test_writes_go_to_all_keys():
    assert {key_of(7, number, KEYS) for number in range(20 * KEYS)} == set(range(KEYS))


def test_a_value_that_no_write_of_the_key_wrote_is_told_apart():
    values = Values(SIZE, KEYS)
    one, other = values.make(1, 0), values.make(1, 1)
    key = key_of(1, 0, KEYS)
    assert values.writer_of(values.make(1, 0), (key + 1) % KEYS) is None
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
        Values(9, KEYS)


class Shelf:
    """A store in this process; with ``wrong``, it returns the last written value of any key."""

    def __init__(self, wrong: bool, values: Values, workload: Workload) -> None:
        self._wrong = wrong
        self._kept = {
            workload.key(number): values.make(PRELOADER, number) for number in range(workload.keys)
        }
        self._last = self._kept[workload.key(0)]

    async def read(self, key: str) -> bytes:
        await asyncio.sleep(0)
        return self._last if self._wrong else self._kept[key]

    async def write(self, key: str, value: bytes) -> None:
        await asyncio.sleep(0)
        self._last = self._kept[key] = value

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("wrong", [False, True], ids=["a store", "one that mixes up keys"])
async def test_the_load_finds_a_store_that_returns_wrong_values(wrong):
    workload, record = Workload(4, SIZE, KEYS), Record()
    values = Values(SIZE, KEYS)
    record.begun.writes[PRELOADER] = KEYS
    keys = [workload.key(number) for number in range(KEYS)]
    shelf = Shelf(wrong, values, workload)
    common = LoopWork(0.5, keys, values, record, end_s=math.inf, most=500)
    loops = [ClosedLoop(writer, common) for writer in range(1, 5)]
    await Coroutines(shelf, (), shelf.close).run(loops)
    assert record.operations
    assert bool(record.wrong) is wrong
    assert record.begun.unwritten() == {}


def turn(wrong: dict[str, int]) -> BenchTurn:
    measured = MeasuredWorkload(
        100.0, {0: 50}, {0: 50}, {}, {}, 0, [0.5], {"s0": 0.5}, 0.0, 0.0, 1.0, {100: 100}, {}, wrong
    )
    return BenchTurn("ares-abd", FULL_WORKLOADS[0].name, 0, measured, 2**20)


def test_a_wrong_read_is_told_in_every_output(tmp_path):
    found = points(
        [turn({"a read of k returned nothing": 1})],
        [Ares("ares-abd")],
        {FULL_WORKLOADS[0].name: (10, 1)},
    )
    report = BenchReport("here", "once", found, [], {}, {}, {"ares-abd": "memory"})
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
    """A transport that keeps the sent data."""

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


def test_what_is_unknown_is_refused():
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
