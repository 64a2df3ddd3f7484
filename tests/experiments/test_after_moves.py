"""The order of a round's reads and reconfigurations."""

import json

import pytest

from experiments.rounds.after_moves import not_fresh
from experiments.rounds.scenario import Parameters

FRESH = Parameters(fresh_after_s=8.0, reconfigurers=1)


def log(directory, client, op, ended, latency_s=0.5, **more):
    path = directory / "logs" / "host" / f"client-{client}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "asctime": f"2026-11-22T12:00:{ended:09.6f}+00:00",
        "op": op,
        "op_latency": latency_s,
        "newTag": [1, "w"],
    } | more
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("op", ["read", "get"])
def test_reads_after_the_last_reconfiguration_are_what_was_asked_for(tmp_path, op):
    log(tmp_path, 1, "write", 1.0)
    log(tmp_path, 3, "reconfigure", 7.0)
    log(tmp_path, 2, op, 9.0, latency_s=1.5)
    assert not_fresh(tmp_path, FRESH) is None


def test_a_read_that_began_before_is_told_with_what_to_do(tmp_path):
    log(tmp_path, 2, "read", 9.0, latency_s=2.5)
    log(tmp_path, 3, "reconfigure", 8.0)
    told = not_fresh(tmp_path, FRESH)
    assert (
        told
        == "readers began 1.5 s before the last reconfiguration had ended: is the machine busy? "
        "A larger fresh_after_s waits longer"
    )
    assert not_fresh(tmp_path, Parameters(reconfigurers=1)) is None


def test_half_a_line_is_passed_over(tmp_path):
    log(tmp_path, 2, "read", 9.0)
    log(tmp_path, 3, "reconfigure", 7.0)
    with (tmp_path / "logs" / "host" / "client-3.log").open("a") as file:
        file.write('{"op": "reconf')
    assert not_fresh(tmp_path, FRESH) is None


def test_a_round_without_reconfigurations_tells_nothing_of_them(tmp_path):
    log(tmp_path, 2, "read", 9.0)
    assert not_fresh(tmp_path, FRESH) == "the round left no reconfigurations"


@pytest.mark.parametrize(
    ("switches", "found", "wrong"),
    [((), 4, False), ((), 3, False), (("piggyback",), 2, True), (("piggyback", "gc"), 2, False)],
)
def test_readers_find_every_uncollected_configuration(tmp_path, switches, found, wrong):
    log(tmp_path, 3, "reconfigure", 7.0, confs_no=2)
    log(tmp_path, 2, "read", 9.0, confs_no=4)
    log(tmp_path, 2, "read", 9.5, confs_no=found)
    told = not_fresh(
        tmp_path,
        Parameters(fresh_after_s=8.0, reconfigurers=1, reconfigurations=3, switches=switches),
    )
    assert (
        told is not None and "3 reconfigurations were to be found, and a read found 2" in told
    ) is wrong


def test_of_a_file_the_reads_of_blocks_do_not_count(tmp_path):
    """The first block leads to the last configuration, where the reads of later blocks begin."""
    log(tmp_path, 3, "reconfigure", 7.0)
    log(tmp_path, 1, "read", 7.5, confs_no=1)
    log(tmp_path, 2, "read", 9.0, confs_no=1)
    log(tmp_path, 2, "get", 9.5, confs_no=4)
    told = Parameters(fresh_after_s=8.0, reconfigurers=1, reconfigurations=3, switches=())
    assert not_fresh(tmp_path, told) is None
    log(tmp_path, 2, "get", 9.9, confs_no=2)
    assert "a read found 2" in str(not_fresh(tmp_path, told))
