"""Mirrors on the command line, against real processes: made, read and removed."""

import subprocess
import time
from collections.abc import Iterator

import pytest

from .command_line import Cli
from .warm_start import ares_cli

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    directory = tmp_path_factory.mktemp("mirrors") / "cluster"
    words = (
        "--durability",
        "memory",
        "--sites",
        "nantes:3,rennes:3,lyon:2",
        "--consensus",
        "3",
        "--base-port",
        "0",
        "--autopilot",
    )
    for command in (["init", directory, *words], ["up", directory, "--detach"]):
        done = subprocess.run(
            ares_cli(*command), capture_output=True, text=True, check=False, timeout=240
        )
        assert done.returncode == 0, done.stderr
        text = (directory / "cluster.toml").read_text()
        (directory / "cluster.toml").write_text(
            text.replace("mirror_every_s = 10\n", "mirror_every_s = 0.5\n")
        )
    try:
        yield Cli(directory)
    finally:
        subprocess.run(ares_cli("down", directory), capture_output=True, check=True, timeout=240)


def complete_since(cli: Cli, moment: float, domain: str = "photos") -> None:
    """Wait until the domain's mirror has all data completed before that moment."""
    for _ in range(200):
        [photos] = [
            each for each in cli.json("domain", "ls")["domains"] if each["domain"] == domain
        ]
        [mirror] = photos["mirrors"]
        if mirror["age_s"] is not None and time.time() - mirror["age_s"] > moment:
            return
    raise AssertionError("the mirror was never complete")


def stale(cli: Cli, *more: str) -> subprocess.CompletedProcess[bytes]:
    return cli.run("read", "k", "--domain", "photos", "--stale-ok", "--site", "rennes", *more)


def test_a_mirror_from_its_beginning_to_its_end(cli: Cli) -> None:
    cli.ok("domain", "create", "photos", "--site", "nantes")
    cli.ok("write", "k", "--domain", "photos", stdin=b"first")
    made = cli.json("domain", "mirror", "photos", "--site", "rennes")
    assert (made["domain"], made["site"], set(made["mirror"]["servers"])) == (
        "photos",
        "rennes",
        {"s3", "s4", "s5"},
    )
    complete_since(cli, time.time())
    done = stale(cli)
    assert (done.returncode, done.stdout) == (0, b"first")
    assert done.stderr.decode().strip().endswith(" s old, from the mirror at rennes")
    assert "mirror at rennes, " in cli.ok("domain", "ls").decode()
    assert "1 mirror, the oldest complete as of" in cli.ok("status").decode()
    cli.ok("write", "k", "--domain", "photos", stdin=b"second")
    complete_since(cli, time.time())
    told = cli.json(
        "read", "k", "--domain", "photos", "--stale-ok", "--max-age", "1000", "--site", "rennes"
    )
    assert (told["mirror"], told["base64"]) == ("rennes", "c2Vjb25k")
    assert 0 <= told["age_s"] < 1000
    assert b"at most 0 s were asked for" in stale(cli, "--max-age", "0").stderr
    done = cli.run("read", "k", "--domain", "photos", "--stale-ok", "--site", "lyon")
    assert (done.stdout, done.stderr) == (b"second", b"latest\n")
    assert "has a mirror at rennes already" in cli.fails(
        1, "domain", "mirror", "photos", "--site", "rennes"
    )
    assert "exclude each other" in cli.fails(
        2, "domain", "mirror", "photos", "--site", "rennes", "--remove", "--allow-no-faults"
    )
    assert cli.json("domain", "mirror", "photos", "--site", "rennes", "--remove")["removed"]
    assert stale(cli).stderr == b"latest\n"
    assert "has no mirror at 'rennes'" in cli.fails(
        1, "domain", "mirror", "photos", "--site", "rennes", "--remove"
    )


def test_what_cannot_be_is_refused_before_anything_is_decided(cli: Cli) -> None:
    cli.ok("log", "create", "events", "--servers", "s0,s1,s2")
    cli.ok("domain", "mirror", "default", "--site", "rennes")
    refused = {
        ("default", "brest"): "known sites: nantes, rennes, lyon",
        ("default", "nantes"): "lives at site 'nantes' itself",
        ("events", "rennes"): "is a log",
        ("mirror/rennes/1/default", "nantes"): "is a mirror itself",
    }
    for (domain, site), why in refused.items():
        assert why in cli.fails(2, "domain", "mirror", domain, "--site", site)
    assert "one crash stops it" in cli.fails(1, "domain", "mirror", "default", "--site", "lyon")
    assert "no domain 'nothing'" in cli.fails(1, "domain", "mirror", "nothing", "--site", "rennes")
    for words in (("write", "k", "--domain"), ("domain", "create")):
        assert "are names of mirrors" in cli.fails(2, *words, "mirror/rennes/1/default")
    assert "stays at its site" in cli.fails(
        2, "domain", "move", "mirror/rennes/1/default", "--site", "nantes"
    )
    assert "belongs to --stale-ok" in cli.fails(2, "read", "k", "--max-age", "3")
    assert [each["site"] for each in cli.json("domain", "ls")["domains"][0]["mirrors"]] == [
        "rennes"
    ]


def test_a_new_client_makes_stale_reads_when_the_site_of_the_domain_is_gone(cli: Cli) -> None:
    cli.ok("domain", "create", "maps", "--site", "nantes")
    cli.ok("write", "k", "--domain", "maps", stdin=b"v")
    cli.ok("domain", "mirror", "maps", "--site", "rennes")
    complete_since(cli, time.time(), "maps")
    for server in ("s0", "s1", "s2"):
        cli.kill(server)
    words = ("read", "k", "--domain", "maps", "--site", "rennes", "--timeout", "20")
    done = cli.run(*words, "--stale-ok")
    assert (done.returncode, done.stdout) == (0, b"v"), done.stderr
    assert b"from the mirror at rennes" in done.stderr
    cli.fails(1, *words[:-1], "2")
