"""Flipped bits in the files of running servers: `ares-cli scrub` finds and repairs them.

All data is as before, with a restart and without.
"""

import random
import subprocess
from pathlib import Path

import pytest

import ares
from ares.tracing.tree import read_spans

from ..process.command_line import Cli
from ..process.warm_start import ares_cli
from .integrity_rig import anatomy, flip

pytestmark = pytest.mark.process

FLIPS = 40


@pytest.fixture(params=[pytest.param("abd", marks=pytest.mark.slow), "ec"])
def cluster(request, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", f"file:{tmp_path}/%p.spans")
    directory = tmp_path / "c"
    init = [
        "init",
        directory,
        "--servers",
        "5",
        "--consensus",
        "0",
        "--dap",
        request.param,
        "--base-port",
        "0",
    ]
    for words in (init, ["up", directory, "--detach"]):
        subprocess.run(ares_cli(*words), check=True, timeout=240)
    yield Cli(directory)
    subprocess.run(ares_cli("down", directory), capture_output=True, check=True, timeout=240)


def damage(directory: Path, rng: random.Random) -> int:
    for path in sorted(directory.glob("*.log")):
        found = anatomy(path)
        places = [*found["head"], *found["metadata"], *found["data"]]
        for place in [*found["data"], *rng.choices(places, k=FLIPS)]:
            flip(path, rng.choice(place), rng.randrange(8))
    return FLIPS


def test_scrub_finds_and_repairs_damage_of_processes(cluster, tmp_path):
    rng = random.Random(1)
    values = {
        f"key {number}": rng.randbytes(size)
        for number, size in enumerate([0, 10, 3000, 50_000, 300_000, 3_000_000])
    }
    with ares.connect_blocking(cluster.settings.path) as store:
        for key, value in values.items():
            store.write(key, value)
    before = cluster.json("scrub")
    assert before["whole"]
    assert {server["damaged"] for server in before["servers"].values()} == {0}
    for name in ("s1", "s3"):
        damage(cluster.directory / "data" / name / "journal", rng)
    said = cluster.ok("scrub", "--rate", "50MiB", "--server", "s1").decode()
    assert said.startswith("s1: ")
    assert "1 file damaged, and written anew" in said
    assert "repaired from other servers" in said
    after = cluster.json("scrub")["servers"]
    assert after["s1"]["damaged"] == 0
    assert after["s3"]["repaired"] >= 2, (
        "by this scrub, or when the other server asked it for elements that it found damaged"
    )
    cluster.kill("s4")  # repairs asked s0 first, and a killed server loses its last spans
    check(cluster, values)
    cluster.ok("down", cluster.directory)
    cluster.ok("up", cluster.directory, "--detach")
    assert {server["quarantined"] for server in cluster.json("scrub")["servers"].values()} == {0}
    check(cluster, values)
    traced = b"".join(path.read_bytes() for path in tmp_path.glob("*.spans"))
    spans = list(read_spans(traced.splitlines(), []))
    repairs = {span.trace for span in spans if span.name == "repair"}
    assert repairs
    assert any(span.name == "GetData" and span.trace in repairs for span in spans)
    assert b"ares-repair" in traced


def check(cluster, values):
    with ares.connect_blocking(cluster.settings.path) as store:
        assert {key: store.read(key) for key in values} == values


def test_what_cannot_be_repaired_is_said(cluster):
    cluster.ok("write", "key", "-", stdin=bytes(100_000))
    damaged = 0  # a write ends with a quorum's answers, so some servers may lack it
    for name in ("s0", "s1", "s2", "s3", "s4"):
        for path in (cluster.directory / "data" / name / "journal").glob("*.log"):
            for place in anatomy(path)["data"]:
                flip(path, place.start)
                damaged += 1
    report = cluster.json("scrub", status=1)
    assert not report["whole"]
    assert damaged >= 3
    assert sum(server["quarantined"] for server in report["servers"].values()) == damaged
    assert (
        "not repaired yet"
        in cluster.run("scrub", "--server", "s0", "--server", "s1").stdout.decode()
    )
    cluster.kill("s2")
    assert cluster.json("scrub", status=1)["servers"]["s2"] == {
        "reachable": False,
        "why": "connection refused: is it running?",
    }


def test_there_is_nothing_on_a_disk_to_verify(tmp_path):
    words = [
        "init",
        tmp_path / "c",
        "--servers",
        "3",
        "--consensus",
        "0",
        "--durability",
        "memory",
        "--base-port",
        "0",
    ]
    subprocess.run(ares_cli(*words), check=True, timeout=240)
    cli = Cli(tmp_path / "c")
    assert b"no disk holds data" in cli.ok("scrub")
    assert cli.json("scrub") == {"servers": {}, "whole": True}
    assert "s9" in cli.fails(2, "scrub", "--server", "s9")
    assert "is a number of bytes" in cli.fails(2, "scrub", "--rate", "fast")
