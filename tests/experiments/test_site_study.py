"""The fog study: YCSB's distributions, orders to clients, figures, Table I; and a real small run.

The real run needs root.
"""

import asyncio
import itertools
import random
import subprocess
import time
from argparse import ArgumentTypeError
from collections import Counter

import msgspec
import pytest
from msgspec import structs

from ares.model.errors import BadInput
from ares.platform.interpreter import python
from ares.testing import namespaces
from experiments import ENVIRONMENT
from experiments.bench import patterns
from experiments.bench.patterns import YCSB_MIXES, Mix, ScrambledZipfian, Zipfian, fnv
from experiments.bench.store_processes import ProgramNotStarted
from experiments.bench.workload import RECORD_BYTES
from experiments.command_options import chosen
from experiments.histogram import counted, latency_of
from experiments.sites import ares_store, disturbances, fog_plan, outcome
from experiments.sites.__main__ import SITE_PARTS, SITE_TESTS
from experiments.sites.access_times import measure_local, measure_remote
from experiments.sites.fog_network import FogNetwork, bed, obstacle
from experiments.sites.fog_scene import FogScene, pair
from experiments.sites.orders import FinishedOperation, Operation, Order, is_whole, value_of
from experiments.sites.outcome import NO, PARTIALLY, UNKNOWN, YES, Measurement, table, table_text
from experiments.sites.site_store import OperationFailed, site_of
from experiments.sites.site_users import user
from experiments.sites.store_table import SITE_STORES, module_of
from experiments.sites.user_worker import UserWorker
from experiments.sites.ycsb import operations
from experiments.verdicts.claimed_points import claims, fog_points
from experiments.verdicts.rows import read_rows

COUNT = 20_000


@pytest.fixture
def random_of_seed():
    return random.Random(5)


# -- YCSB ------------------------------------------------------------------------------------------


def test_the_hash_is_that_of_ycsb():
    """The expected names are of YCSB's first three records."""
    assert [fnv(number) for number in range(3)] == [
        6284781860667377211,
        8517097267634966620,
        1820151046732198393,
    ]


def test_zipfian_numbers_come_in_proportion_to_a_power_of_their_rank(random_of_seed):
    zipfian = Zipfian(1000, random_of_seed)
    drawn = Counter(zipfian.below(1000) for _ in range(COUNT))
    zeta = sum((rank + 1) ** -patterns.ZIPFIAN for rank in range(1000))
    for rank in (0, 1):
        assert drawn[rank] / COUNT == pytest.approx((rank + 1) ** -patterns.ZIPFIAN / zeta, rel=0.1)
    assert sum(drawn[rank] for rank in range(10)) / COUNT == pytest.approx(
        sum((rank + 1) ** -patterns.ZIPFIAN for rank in range(10)) / zeta, rel=0.1
    )
    assert set(drawn) <= set(range(1000))
    assert len(drawn) > 500


def test_a_zipfian_that_grows_is_one_of_the_larger_count(random_of_seed):
    grown = Zipfian(10, random_of_seed)
    grown.below(10)
    drawn = Counter(grown.below(1000) for _ in range(COUNT))
    assert max(drawn) > 100
    assert drawn[0] / COUNT == pytest.approx(
        1 / sum((rank + 1) ** -patterns.ZIPFIAN for rank in range(1000)), rel=0.1
    )


def test_scrambled_numbers_are_as_popular_and_lie_apart(random_of_seed):
    scrambled = ScrambledZipfian(random_of_seed)
    drawn = Counter(scrambled.below(1000) for _ in range(COUNT))
    most, second = drawn.most_common(2)
    assert most[0] == fnv(0) % 1000
    assert most[1] / COUNT == pytest.approx(1 / 26.469, rel=0.15)
    assert abs(most[0] - second[0]) > 1
    assert len(drawn) > 900


@pytest.mark.parametrize("name", YCSB_MIXES)
def test_a_workload_has_its_shares_and_asks_for_what_is_there(name):
    mix, records = YCSB_MIXES[name], 200
    done = list(operations(mix, "a", records, COUNT, 7))
    kinds = Counter(each.kind for each in done)
    inserted = [
        each.names[0]
        for each in done
        if each.kind == "put" and int(each.names[0].removeprefix("a/user")) >= records
    ]
    assert len(done) == COUNT
    assert kinds["get"] / COUNT == pytest.approx(mix.read, abs=0.02)
    assert kinds["scan"] / COUNT == pytest.approx(mix.scan, abs=0.02)
    assert kinds["modify"] / COUNT == pytest.approx(mix.modify, abs=0.02)
    assert len(inserted) / COUNT == pytest.approx(mix.insert, abs=0.02)
    assert inserted == [f"a/user{records + number}" for number in range(len(inserted))]
    there = {f"a/user{number}" for number in range(records)}
    for each in done:
        if each.kind != "put":
            assert set(each.names) <= there, "it reads a record that nobody has inserted"
        there.update(each.names)
    assert {each.size for each in done if each.kind in ("put", "modify")} <= {RECORD_BYTES}


def test_the_workloads_are_those_of_the_plan_and_their_parts_are_one():
    for mix in YCSB_MIXES.values():
        assert mix.read + mix.update + mix.insert + mix.scan + mix.modify == 1


def test_lengths_of_scans_are_uniform():
    lengths = [len(each.names) for each in operations(Mix(scan=1.0), "a", 10**6, COUNT, 3)]
    assert (min(lengths), max(lengths)) == (1, patterns.SCAN_MAX)
    assert sum(lengths) / COUNT == pytest.approx((1 + patterns.SCAN_MAX) / 2, rel=0.02)


def test_the_newest_records_are_read_most():
    records = 1000
    read = Counter(
        int(each.names[0].removeprefix("a/user"))
        for each in operations(Mix(read=1.0, latest=True), "a", records, COUNT, 3)
    )
    assert read.most_common(1)[0][0] == records - 1
    assert sum(count for number, count in read.items() if number >= records - 100) > COUNT / 2


# -- orders ----------------------------------------------------------------------------------------


class Memory:
    """A client of a store of immutable objects in this process.

    Names with `slow`, `lost` and `wrong` behave accordingly.
    """

    def __init__(self):
        self.kept, self.at_once, self.most = {}, 0, 0

    async def put(self, name, value):
        if "lost" in name:
            raise OperationFailed("no room")
        called = f"{name}#{len(self.kept)}"
        self.kept[called] = value
        return called

    async def get(self, name):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(10 if "slow" in name else 0.001)
        self.at_once -= 1
        return b"something else" if "wrong" in name else self.kept[name]


async def test_a_worker_reads_by_the_name_that_a_put_gave():
    worker = UserWorker(Memory())
    answer = await worker.obey(Order(pair("a/x", 100)))
    assert [(each.kind, each.failed) for each in answer.done] == [("put", ""), ("get", "")]
    assert answer.known == {"a/x": "a/x#0"}
    again = await worker.obey(
        Order((Operation("modify", ("a/x",), 100), Operation("scan", ("a/x", "a/x"))))
    )
    assert [each.failed for each in again.done] == ["", ""]
    assert again.known == {"a/x": "a/x#1"}


async def test_a_worker_knows_what_others_wrote():
    memory = Memory()
    written = await UserWorker(memory).obey(Order((Operation("put", ("a/x",), 50),)))
    read = await UserWorker(memory).obey(Order((Operation("get", ("a/x",)),), known=written.known))
    assert [each.failed for each in read.done] == [""]


async def test_what_fails_is_told_and_the_others_go_on():
    order = Order(
        (
            Operation("put", ("a/lost",), 10),
            Operation("get", ("a/slow",)),
            Operation("get", ("a/wrong",)),
            *pair("a/x", 10),
        ),
        timeout_s=0.05,
    )
    answer = await UserWorker(Memory()).obey(order)
    assert [each.failed for each in answer.done] == [
        "no room",
        "no answer in 0.05 s",
        "WRONG: this value was not written",
        "",
        "",
    ]
    assert answer.known == {"a/x": "a/x#0"}


async def test_so_many_operations_are_under_way_as_there_are_lanes():
    memory = Memory()
    worker = UserWorker(memory)
    await worker.obey(Order(tuple(Operation("put", (f"a/{number}",), 10) for number in range(20))))
    answer = await worker.obey(
        Order(tuple(Operation("get", (f"a/{number}",)) for number in range(20)), 5)
    )
    assert (len(answer.done), memory.most) == (20, 5)


async def test_an_order_for_a_time_ends_with_it():
    began_s = time.monotonic()
    answer = await UserWorker(Memory()).obey(Order(pair("a/x", 10), for_s=1.0, pace_s=0.01))
    assert time.monotonic() - began_s >= 1.0
    assert len(answer.done) > 2


def test_a_value_that_changed_is_noticed():
    value = value_of(1000)
    assert is_whole(value)
    assert not is_whole(value[:-1] + bytes([value[-1] ^ 1]))
    assert len({value_of(100) for _ in range(5)}) == 5


# -- figures ---------------------------------------------------------------------------------------


def ended(*pairs, failed=""):
    return [
        FinishedOperation("get", began_s, ended_s - began_s, failed) for began_s, ended_s in pairs
    ]


def test_what_was_kept_and_the_longest_pause():
    done = [*ended((0, 1), (10, 11), (12, 13), (19, 21)), *ended((14, 15), failed="no")]
    assert disturbances.kept(done, 10, 20) == 2 / 3, "an operation that ends later does not count"
    assert disturbances.kept(done, 100, 200) == 0
    assert disturbances.longest_pause_s(done, 10, 20) == 7, (
        "from 13 on; what ends after it counts for nothing"
    )
    assert disturbances.longest_pause_s([], 10, 20) == 10


def test_what_a_cut_did():
    across = [
        *ended((8, 9), (9.5, 12)),
        *ended((12, 17), (17, 22), failed="no answer"),
        *ended((22, 23), (23, 24)),
    ]
    figures = disturbances.cut_figures(
        ended((9, 11), (11, 12), (12, 19), (21, 22)), ended((11, 19)), across, 10, 20
    )
    shares = {"inside_kept": 1.0, "outside_kept": 1.0, "across_kept": 0.0, "after_kept": 1.0}
    assert figures == shares | {"inside_pause_s": 7.0, "outside_pause_s": 9.0, "healed_s": 3.0}
    assert "healed_s" not in disturbances.cut_figures(
        [], [], ended((21, 22), failed="no answer"), 10, 20
    )


def test_when_reads_are_near():
    slow, fast = (
        [(float(number), 9.0) for number in range(5)],
        [(5.0 + number, 1.0) for number in range(5)],
    )
    assert disturbances.settled_s([*slow, *fast], 1.5) == 4.0, (
        "the median of three is near one round before the first fast one"
    )
    assert disturbances.settled_s([*fast, *slow], 1.5) is None
    assert disturbances.settled_s(fast, 1.5) == 5.0
    assert disturbances.settled_s([(1.0, 1.0)], 1.5) == 1.0


LOCAL = {"write_between_share": 0.001, "read_between_share": 0.019, "failed": 0.0}
CONTAINMENT = {"bytes_per_op": 10.0, "idle_B_s": 3500.0}
CUT = dict.fromkeys(
    ("inside_kept", "outside_kept", "new_inside", "new_outside", "written_in_cut_read"), 1.0
) | {"inside_pause_s": 0.2}
MOVE = {"first_over_local": 9.0, "second_over_local": 5.0, "last_over_local": 1.2, "failed": 0.0}


def measured(test, figures, sites=7, store="ares x1"):
    return Measurement(store, sites, 1, test, {}, figures)


@pytest.mark.parametrize(
    ("test", "property", "figures", "word"),
    [
        ("local", "locality", LOCAL, YES),
        ("local", "locality", LOCAL | {"read_between_share": 0.02}, NO),
        ("local", "locality", LOCAL | {"failed": 1.0}, NO),
        ("containment", "containment", CONTAINMENT, YES),
        ("containment", "containment", CONTAINMENT | {"bytes_per_op": 201.0}, PARTIALLY),
        ("containment", "containment", CONTAINMENT | {"idle_B_s": 14_001.0}, PARTIALLY),
        ("containment", "containment", {"bytes_per_op": 201.0, "idle_B_s": 14_001.0}, NO),
        ("cut", "disconnected", CUT, YES),
        ("cut", "disconnected", CUT | {"new_inside": 0.0}, PARTIALLY),
        ("cut", "disconnected", CUT | {"written_in_cut_read": 0.9}, PARTIALLY),
        ("cut", "disconnected", CUT | {"outside_kept": 0.5}, PARTIALLY),
        ("cut", "disconnected", CUT | {"inside_kept": 0.98}, NO),
        ("cut", "disconnected", CUT | {"inside_pause_s": 6.0}, NO),
        ("move", "mobility", MOVE, YES),
        ("move", "mobility", MOVE | {"last_over_local": 5.0}, PARTIALLY),
        ("move", "mobility", MOVE | {"last_over_local": 5.0, "second_over_local": 1.1}, YES),
        ("move", "mobility", MOVE | {"failed": 1.0}, NO),
    ],
)
def test_a_cell_of_table_one_follows_from_figures(test, property, figures, word):
    assert table([measured(test, figures)])["ares x1"][property].word == word


def test_a_cell_is_as_good_as_the_worst_measurement_and_one_site_counts_for_none():
    bad = CUT | {"inside_kept": 0.0}
    assert (
        table([measured("cut", CUT), measured("cut", bad, 11)])["ares x1"]["disconnected"].word
        == NO
    )
    cells = table([measured("local", LOCAL, 1), measured("local", LOCAL, 1, "ipfs")])
    assert {cell.word for found in cells.values() for cell in found.values()} == {UNKNOWN}
    assert list(cells) == ["ares x1", "ipfs"]


def test_table_one_says_its_criteria():
    text = table_text([measured("cut", CUT)])
    assert any(
        "disconnected" in line and YES in line and "100% of operations" in line for line in text
    )
    assert all(any(criterion in line for line in text) for criterion in outcome.CRITERIA.values())


def test_measurements_are_kept_and_become_rows_for_verdicts(tmp_path):
    work = {"objects": 10, "object_size": 1_000_000, "parallel": 10}
    one = Measurement(
        "ares x3",
        7,
        1,
        "local",
        work,
        {"write_all_s": 2.5, "failed": 0.0},
        latency_of(counted([0.2, 0.1])),
        latency_of(counted([0.3])),
    )
    other = structs.replace(one, sites=1, figures={"write_all_s": 2.0, "failed": 0.0})
    for each in (one, other):
        outcome.append(tmp_path / "results" / outcome.FOG_FILE, each)
    lines = (tmp_path / "results" / outcome.FOG_FILE).read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Measurement) for line in lines] == [one, other]
    outcome.keep(tmp_path, [one, other], "2026-01-01T00:00:00+00:00")
    rows, _ = read_rows(tmp_path)
    found = {row.parameters["sites"]: row for row in rows if row.op == "all"}
    assert (
        found[7].figures["write_all_s"],
        found[1].figures["write_all_s"],
        found[7].figures["operations"],
    ) == (2.5, 2.0, 3)
    assert (found[7].scenario, found[7].algorithm, found[7].parameters["object_size"]) == (
        fog_plan.FOG_STUDY,
        "ares x3",
        1_000_000,
    )


# -- stores ----------------------------------------------------------------------------------------


def test_stores_are_chosen_by_name():
    assert chosen(SITE_STORES, "ares x1, ares x3") == ["ares x1", "ares x3"]
    assert chosen(SITE_STORES, ",".join(SITE_STORES)) == list(SITE_STORES)
    with pytest.raises(ArgumentTypeError, match=r"there is no 'riak'; there are ares x1, .*ipfs"):
        chosen(SITE_STORES, "ares x1,riak")


@pytest.mark.parametrize("name", SITE_STORES)
def test_every_store_has_a_module_that_says_what_it_needs(name):
    module = module_of(SITE_STORES[name])
    lacking = module.missing()
    assert lacking is None or len(lacking) > 20, "what is not installed, and how to get it"
    assert callable(module.deployment(**SITE_STORES[name].options).start)


def test_an_object_lives_at_the_site_of_its_name():
    assert site_of("nantes/a/b") == "nantes"


def test_processes_of_a_cluster_file_listen_at_their_sites():
    text = (
        "format = 1\n"
        "[[server]]\n"
        'id = "s0"\n'
        'address = "127.0.0.1:1"\n'
        'http = "127.0.0.1:2"\n'
        'site = "a"\n'
    )
    text += '[[consensus]]\nid = "r0"\nraft = "127.0.0.1:3"\n[initial]\nservers = ["s0"]\n'
    told = ares_store.at_homes(text, {"s0": "10.0.0.1", "r0": "10.0.0.2"})
    assert '"10.0.0.1:1"' in told
    assert '"10.0.0.1:2"' in told
    assert '"10.0.0.2:3"' in told
    assert "127.0.0.1" not in told


def test_the_program_refuses_what_it_does_not_have():
    for words, why in (
        (["--stores", "riak"], "--stores: there is no 'riak'"),
        (["--only", "all"], "--only: there is no 'all'"),
        (["--sites", "0"], "numbers from 1 to 30"),
    ):
        done = subprocess.run(
            python("-m", "experiments.sites", *words),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=ENVIRONMENT,
        )
        assert (done.returncode, why in done.stderr) == (2, True)
    assert set(SITE_PARTS) == {"access", "metadata", "containment", "cut", "move", "ycsb"}


# -- real runs -------------------------------------------------------------------------------------

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 9000)) as here:
    while True:
        here.accept()[0].close()
"""
CONNECT = """
import socket, sys, time
began = time.perf_counter()
try:
    socket.create_connection((sys.argv[1], 9000), timeout=float(sys.argv[2])).close()
    print(time.perf_counter() - began)
except OSError:
    print("nothing")
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
def test_sites_are_apart_are_counted_and_can_be_cut():
    with bed(["a", "b", "c"]) as made:
        for site in made.sites:
            made.start(site, f"listen-{site}", *python("-c", LISTEN, made.address(site)))

        def connects(command, site, patience_s=60.0):
            done = subprocess.run(
                [*command, *python("-c", CONNECT, made.address(site), str(patience_s))],
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            )
            return None if done.stdout.strip() == "nothing" else float(done.stdout)

        deadline_s = time.monotonic() + 60
        while connects(made.among_users("a"), "a") is None:
            assert time.monotonic() < deadline_s
        assert connects(made.among_users("a"), "a") >= 0.010
        assert set(made.left().values()) == {0}, (
            "what users say to their own site's servers does not leave it"
        )
        assert connects(made.among_users("a"), "b") >= 0.060
        assert float(made.run("a", *python("-c", CONNECT, made.address("c"), "60"))) >= 0.050
        left = made.left()
        assert all(40 < left[site] < 2000 for site in made.sites), left
        made.cut("a")
        assert connects(made.among_users("a"), "a") is not None
        assert connects(made.among_users("a"), "b", 1.0) is None
        assert connects(made.among_users("b"), "a", 1.0) is None
        assert connects(made.among_users("b"), "c") is not None
        made.heal("a")
        assert connects(made.among_users("a"), "b") is not None
        with pytest.raises(ProgramNotStarted, match="failed: no such thing"):
            made.run("a", *python("-c", "raise SystemExit('no such thing')"))
        directory = made.directory
    assert not directory.exists()
    assert made.among_users("a")[-1] not in namespaces.run("ip", "netns", "list").split()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(obstacle() is not None, reason=obstacle() or "")
async def test_ares_at_two_sites(monkeypatch):
    """Each part runs once, in small.

    Local traffic stays at its site, remote traffic does not, and a site that is cut off continues.
    """
    monkeypatch.setattr("experiments.sites.access_times.WORKS", (fog_plan.FogWork(3, 50_000, 3),))
    monkeypatch.setattr(disturbances, "_BEFORE_S", 0.5)
    monkeypatch.setattr(disturbances, "_DISTURBED_OPERATION_S", 1.0)
    extent = fog_plan.FogExtent(1, 0.2, 0.5, 2.0, 1.0, 10, 20, accessed=6)
    noted: list[Measurement] = []
    deployment = ares_store.deployment()
    with bed(["a", "b"]) as made:
        try:
            await deployment.start(made, 1)
            scene = FogScene(made, "ares x1", deployment, extent, 1, noted.append)
            for measure in (measure_local, measure_remote, disturbances.measure_cut):
                await measure(scene)
            async with user(made, "ares x1", deployment, "b") as one:
                lost = await one.do(Order((Operation("get", ("a/nothing",)),)))
        finally:
            await deployment.stop()
    local, remote, cut = noted
    assert all(not each.figures["wrong"] for each in noted)
    assert local.figures["failed"] == remote.figures["failed"] == 0
    assert local.figures["read_between_share"] < 0.5 < 1 <= remote.figures["first_between_share"]
    assert local.read.count == local.write.count == 2 * 6
    assert (remote.read.count, remote.write.count) == (2 * 6, 6)
    assert cut.figures["inside_kept"] == cut.figures["outside_kept"] == 1
    assert cut.figures["across_kept"] == 0
    assert cut.figures["written_in_cut_read"] == 1
    assert "a/nothing" in lost.done[0].failed


def test_a_bed_has_one_to_thirty_sites_of_different_names():
    for sites in ([], ["a", "a"], [f"s{number}" for number in range(31)]):
        with pytest.raises(BadInput, match="nothing was made"):
            FogNetwork(sites)


def test_the_points_are_tests_that_claims_name():
    points = fog_points(claims())
    assert points["cassandra x1", 11] == {"containment"}
    assert points["rados x1", 1] == {"local"}
    assert {"rados x1", "cassandra x1", "ipfs"} <= {store for store, _ in points}
    assert set().union(*points.values()) <= set(SITE_TESTS)
    for work in fog_plan.WORKS:
        assert fog_plan.FOG_EXTENTS["points"].repeats(work.objects) * work.objects >= 10


def test_each_part_of_the_plan_is_named_once():
    told = [tuple(sorted(each.items())) for each in fog_plan.tests()]
    assert all(first != second for first, second in itertools.combinations(told, 2))
