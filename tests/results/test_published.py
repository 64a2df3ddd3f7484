"""The collection published by the authors of ARES: the sample, and a run for each trap."""

import csv
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ares.cli.main import app
from ares.results.run_description import describe
from ares.results.summary import SUMMARY_COLUMNS, cell
from tests.results.operation_logs import DATA, INVENTORY, figures, imported, line, rows, write


@pytest.mark.skipif(
    not (DATA / "ngi_sample.tar.xz").is_file(),
    reason=f"{DATA} has no sample of the published collection",
)
def test_every_figure_of_the_sample_is_the_expected_one(tmp_path: Path) -> None:
    with tarfile.open(DATA / "ngi_sample.tar.xz") as sample:
        sample.extractall(tmp_path / "made", filter="data")
    report = imported(tmp_path / "results.db", tmp_path / "made")
    assert (report.malformed.count, report.unfinished.count, report.unreadable.count) == (0, 0, 0)
    told = CliRunner().invoke(app, ["results", "summary", str(tmp_path / "results.db"), "--csv"])
    with (DATA / "ngi_sample_expected.csv").open(encoding="utf-8", newline="") as file:
        expected = list(csv.reader(file))
    found = list(csv.reader(told.stdout.splitlines()))
    assert found[0] == expected[0] == list(SUMMARY_COLUMNS)
    assert found[1:] == expected[1:]
    assert imported(tmp_path / "results.db", tmp_path / "made").operations == 0


def test_clients_are_counted_once_and_preparations_left_out(tmp_path: Path) -> None:
    run = (
        tmp_path
        / "raw_data"
        / PARTICIPATION
        / "scalability_slow_ARES_EC"
        / "logs_scalability_slow_ARES_EC_3-1-2-0_2"
    )
    name = "scalability_slow_ARES_EC_3-1-2-0_2"
    write(run / "ansible-hosts", INVENTORY)
    write(run / "config.ini", "[Parameters]\nf = 1\nprotocol = ARES\n")
    write(
        run / f"client-1-{name}.log",
        line("write", 1, 0.5),
        line("write", 3, 1.5),
        line("write", 4, 9.0, status="UNSUCCESS"),
    )
    write(
        run / f"user-1-{name}.log",
        {"message": "Connecting to servers"},
        line("write", 1, 0.6, dsmm=False),
        line("write", 3, 1.6, dsmm=False),
    )
    write(run / f"client-1-{name}_phase1.log", line("write", 0, 3.0))
    write(
        run / f"user-1-{name}_phase1.log",
        line("write", 0, 3.1, dsmm=False),
        line("list", 0, dsmm=False),
    )
    write(run / "client-1-read_file.log", line("read", 2, 9.0))
    write(
        run / f"client-2-{name}.log",
        line("read", 1, 1.0),
        line("read", 2, 2.0),
        line("read", 3, 3.0),
    )
    write(run / f"client-3-{name}.log")
    write(run / "user-Andria-exp7.log")
    report = imported(tmp_path / "results.db", tmp_path)
    assert (report.runs, report.passed_over, report.unreadable.count) == (1, 1, 0)
    written, read = figures(tmp_path / "results.db")
    shared = ["scalability", "ARES_EC", 3, 1, 2, 0, 2**20, 2, 1, "2E+1U w=0E1U r=1E1U", 2, "client"]
    assert [written[name] for name in SUMMARY_COLUMNS[1:13]] == shared
    assert written["run_dir"] == f"raw_data/{PARTICIPATION}/scalability_slow_ARES_EC/logs_{name}"
    said = (
        "write 1 2 1 1.000000000 1.000000000 1.000000000 1.490000000 0.500000000 1.500000000 "
        "0.800000000 1 2 1.100000000"
    )
    assert " ".join(cell(written[name]) for name in SUMMARY_COLUMNS[13:]) == said
    assert [
        cell(read[name])
        for name in (
            "n_clients",
            "n_ops",
            "n_ops_excluded_phase1_readfile",
            "user_level_n_ops",
            "user_level_mean_s",
        )
    ] == [
        *("1", "3", "1", "0", ""),
    ]


def test_what_the_configuration_and_the_inventory_say_is_taken_exactly(tmp_path: Path) -> None:
    """A parity of 0 counts; a host in a comment does not.

    A host may be named without any text before it.
    """
    run = tmp_path / "logs_scalability_slow_ARES_EC_3-1-0-0_1"
    write(run / "config.ini", "[Parameters]\nf = 0\n")
    hosts = ["genirack.nyu.edu", "instageni.idre.ucla.edu", "193.190.127.1"]
    write(
        run / "ansible-hosts",
        "[servers]\n",
        *(f"server{number} ansible_ssh_host={host}\n" for number, host in enumerate(hosts)),
    )
    write(
        run / "ansible-hosts",
        "# server3 ansible_ssh_host=193.190.127.2\n ;server4 ansible_ssh_host=193.190.127.3\n",
        mode="a",
    )
    write(run / "client-1-x.log", line("write", 1))
    [row] = figures_of(tmp_path)
    assert (row["k"], row["m"], row["topology"]) == (3, 0, "1E+2U w=0E0U r=0E0U")


def test_a_mean_is_that_of_the_clients_means(tmp_path: Path) -> None:
    run = tmp_path / "logs_scalability_slow_ABD_3-2-0_1"
    write(run / "client-1-x.log", line("write", 1, 1.0))
    write(run / "client-2-x.log", *(line("write", number, 2.0) for number in range(2, 5)))
    [row] = figures_of(tmp_path)
    assert (row["mean_s"], row["mean_over_ops_s"], row["n_clients"], row["topology"], row["k"]) == (
        1.5,
        1.75,
        2,
        None,
        None,
    )


def test_statuses_that_are_lists_or_absent_are_successes(tmp_path: Path) -> None:
    run = tmp_path / "logs_throughputCassandrasEU3US0wEU1US0rEU0US1_3-1-1_1"
    listed = [
        line("write", 1, status=["SUCCESS", None], dsmm=False),
        line("write", 2, status=["UNSUCCESS", None], dsmm=False),
    ]
    write(run / "user-1-x.log", *listed, line("reconfig", 3, status=..., file_size=..., dsmm=False))
    write(
        run / "user-2-x.log",
        line("read", 1, None, status="UNSUCCESS", file_size=..., dsmm=False),
        line("read", 1, 600.0, status="UNSUCCESS", dsmm=False),
    )
    written, read, moved = figures_of(tmp_path)
    assert (
        written["scenario"],
        written["algorithm"],
        written["level"],
        written["object_size"],
    ) == ("topology1", "CASSANDRA", "user", 32)
    assert written["topology"] == "3E+0U w=E r=U"
    assert [
        (row["n_ops"], row["n_unsuccessful"], row["n_clients"], row["mean_s"])
        for row in (written, read, moved)
    ] == [
        *((1, 1, 1, 0.5), (0, 2, 0, None), (1, 0, 1, 0.5)),
    ]


def test_clocks_in_other_time_zones_are_put_right(tmp_path: Path) -> None:
    """The correction covers every file of a client.

    This includes files from its start or end, at another time of the day.
    """
    run = tmp_path / "logs_scalability_slow_ABD_3-1-2_1"
    write(run / "client-1-x.log", line("write", 10, 1.0))
    write(run / "client-2-x.log", line("read", 11, 1.0, hour=3))
    write(run / "client-2-x_phase1.log", line("read", 0, 1.0, hour=2))
    write(run / "client-3-x.log", line("read", 12, 1.0, hour=19))
    imported(tmp_path / "results.db", tmp_path)
    first, *others = [
        began_s
        for (began_s,) in rows(
            tmp_path / "results.db", "SELECT began_s FROM operations ORDER BY file_id"
        )
    ]
    assert [began_s - first for began_s in others] == [1, 2, -3610]
    write(run / "client-3-x.log", line("read", 20, 1.0, hour=19), mode="a")
    write(run / "user-3-x.log", line("read", 21, 1.0, hour=19, dsmm=False))
    imported(tmp_path / "results.db", tmp_path)
    later = [
        began_s
        for (began_s,) in rows(
            tmp_path / "results.db",
            "SELECT began_s FROM operations WHERE began_s > (SELECT min(began_s) FROM operations) "
            "+ 3617",
        )
    ]
    assert sorted(began_s - first for began_s in later) == [10, 11]


def test_old_and_new_lines_give_the_same_attributes(tmp_path: Path) -> None:
    run = tmp_path / "logs_scalability_slow_ARES_EC_3-1-0-0_1"
    tags = {"oldTag": None, "maxTag": [0, ""], "wait_acks": "-"}
    phases = {
        "read_config_latency_total": 0.1,
        "phase1_latency": 0.2,
        "phase2_latency": 0.3,
        "p2_read_config_time_total": 0.04,
        "p2_put_data_time_total": 0.05,
    }
    write(
        run / "client-1-x.log",
        line("write", 1, dap_protocols=["EC"], **phases),
        line("write", 2, dap_protocols={"EC": 1}, **tags),
    )
    imported(tmp_path / "results.db", tmp_path)
    old, new = rows(
        tmp_path / "results.db",
        "SELECT more, client, read_config_s, phase1_s, phase2_s, p2_read_config_s, p2_put_data_s "
        "FROM operations",
    )
    assert old == ('{"dap_protocols":{"EC":1}}', "1", 0.1, 0.2, 0.3, 0.04, 0.05)
    assert new[0] == '{"dap_protocols":{"EC":1},"oldTag":null,"maxTag":[0,""],"wait_acks":"-"}'


PARTICIPATION = "Scalability Test – Participation (all algorithms)"
SIZES = "Stress Test – Object Size (all algorithms)"
FRAGMENTS = "Stress Test – Fragmentation Parameter k (only ARES-EC)"
PLACES = "Stress Test – Topology (all algorithms) - Scenario 1"
GROWING = "Stress Test – Topology (all algorithms) - Scenario 2"
CRASHES = "Fault-tolerance Test - Node Crashes (only ARES)"
ALTERNATELY = "Reconfiguring DAP Alternately and Servers randomly"
SAME = "Reconfiguring to the same DAP"


@pytest.mark.parametrize(
    ("folder", "experiment", "run", "said"),
    [
        (
            PARTICIPATION,
            "scalabilityRedisW",
            "11-20-250_3",
            "scalability REDIS_W 11 20 250 0 1048576 - - 3 user",
        ),
        (
            PARTICIPATION,
            "scalability_slow_ARES_ABD",
            "3-5-5-0_1",
            "scalability ARES_ABD 3 5 5 0 1048576 - - 1 client",
        ),
        (
            SIZES,
            "filesizeBig_slow_ARES_EC",
            "33554432_11-5-5_2",
            "object_size ARES_EC 11 5 5 0 33554432 6 5 2 client",
        ),
        (
            SIZES,
            "filesizeBig_slow_ABD",
            "65536_11-5-5_2",
            "object_size ABD 11 5 5 0 65536 - - 2 client",
        ),
        (
            SIZES,
            "filesizeCassandra",
            "65536_11-5-5_2",
            "object_size CASSANDRA 11 5 5 0 65536 - - 2 user",
        ),
        (
            FRAGMENTS,
            "differentk_slow_ARES_EC",
            "10_11-5-5_1",
            "fragmentation_k ARES_EC 11 5 5 0 4194304 10 1 1 client",
        ),
        (
            PLACES,
            "throughputRedissEU0US3wEU0US0rEU0US1",
            "3-0-1_5",
            "topology1 REDIS 3 0 1 0 32 - - 5 user",
        ),
        (
            PLACES,
            "throughputRedisWsEU3US0wEU1US0rEU1US0",
            "3-1-1_5",
            "topology1 REDIS_W 3 1 1 0 32 - - 5 user",
        ),
        (
            PLACES,
            "throughputsEU3US0wEU1US0rEU1US0_slow_ARES_EC",
            "3-1-1-0_5",
            "topology1 ARES_EC 3 1 1 0 32 2 1 5 client",
        ),
        (
            GROWING,
            "throughput_slow_ARES_EC",
            "15-1-1-0_5",
            "topology2 ARES_EC 15 1 1 0 32 - - 5 client",
        ),
        (GROWING, "throughputCassandra", "7-1-1_5", "topology2 CASSANDRA 7 1 1 0 32 - - 5 user"),
        (
            CRASHES,
            "scalabilityreconchangingterminate_slow_ARES",
            "11-5-15-5_3",
            "node_crashes ARES_MIXED 11 5 15 5 1048576 - - 3 client",
        ),
        (
            f"{ALTERNATELY}/RPI Raft",
            *("scalabilityreconserverschanging_slow_ARES", "11-5-15-1_1"),
            "recon_alternate_random_servers/rpi_raft ARES_MIXED 11 5 15 1 1048576 - - 1 client",
        ),
        (
            f"{ALTERNATELY}/Local Raft",
            *("scalabilityreconserverschanginglocalRAFT_slow_ARES", "11-5-15-1_1"),
            "recon_alternate_random_servers/local_raft ARES_MIXED 11 5 15 1 1048576 - - 1 client",
        ),
        (
            f"{SAME}/Local Raft",
            *("scalabilityreconfixedlocalRAFT_slow_ARES_ABD", "11-5-15-3_2"),
            "recon_same_dap/local_raft ARES_ABD 11 5 15 3 1048576 - - 2 client",
        ),
        (
            f"{SAME}/RPI Raft",
            *("scalabilityreconfixed_slow_ARES_EC", "11-5-15-3_2"),
            "recon_same_dap/rpi_raft ARES_EC 11 5 15 3 1048576 6 5 2 client",
        ),
    ],
)
def test_a_path_says_what_a_run_was(folder: str, experiment: str, run: str, said: str) -> None:
    """Check a path with its folders, and the name of the run alone."""
    name = f"logs_{experiment}_{run}" if folder != FRAGMENTS else f"logs_differentkslowARESEC_{run}"
    path = f"raw_data/{folder}/{experiment}/{name}"
    for directory in (Path("/x", path), Path("/elsewhere", name)):
        found = describe(directory, set(), lambda name, why: None)
        columns = [getattr(found, name) for name in (*SUMMARY_COLUMNS[1:10], "iteration", "level")]
        assert " ".join("-" if value is None else str(value) for value in columns) == said
    assert describe(Path("/x", path), set(), lambda name, why: None).name == path


def test_a_placement_without_a_client_says_so() -> None:
    run = describe(
        Path("/x/logs_throughputRedissEU0US3wEU0US0rEU0US1_3-0-1_5"), set(), lambda name, why: None
    )
    assert run.topology == "0E+3U w=- r=U"


@pytest.mark.parametrize(
    ("text", "k"),
    [
        ("[Parameters]\nf = None\n", 2),
        ("[Parameters]\nf = 2\n", 1),
        ("garbage", 2),
        ("[Parameters\nf=1", 2),
    ],
)
def test_the_parity_is_that_of_the_configuration(tmp_path: Path, text: str, k: int) -> None:
    run = tmp_path / "logs_scalability_slow_ARES_EC_3-1-1-0_1"
    write(run / "config.ini", text)
    told: list[str] = []
    assert describe(run, {"config.ini"}, lambda name, why: told.append(why)).k == k
    assert bool(told) == ("Parameters]" not in text)


def figures_of(directory: Path) -> list[dict[str, object]]:
    imported(directory / "results.db", directory)
    return figures(directory / "results.db")
