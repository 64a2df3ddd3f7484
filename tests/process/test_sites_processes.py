"""Domains at sites on the command line, against real processes: made and moved."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import ares
from ares.cluster.tables import SITES_BEAT_S
from ares.platform.interpreter import python
from ares.reconfig.mover import Progress

from .command_line import Cli, running_cluster
from .warm_start import ares_cli

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    yield from running_cluster(
        tmp_path_factory.mktemp("sites") / "cluster",
        "--durability",
        "memory",
        "--sites",
        "nantes:4,rennes:3,lyon:2",
    )


def test_a_domain_is_made_at_a_site_and_moves_with_what_it_holds(cli: Cli) -> None:
    made = cli.json("domain", "create", "photos", "--site", "rennes", "--dap", "ec")
    assert (made["servers"], made["k"]) == (
        sorted(made["servers"], key=["s4", "s5", "s6", "s4", "s5"].index),
        1,
    )
    assert set(made["servers"]) == {"s4", "s5", "s6"}
    cli.ok("write", "k", "--domain", "photos", stdin=b"value")
    assert cli.json("domain", "move", "photos", "--site", "nantes", "--dry-run")["dry_run"]
    assert {each["domain"]: each["site"] for each in cli.json("domain", "ls")["domains"]} == {
        "default": "nantes",
        "photos": "rennes",
    }
    moved = cli.json("domain", "move", "photos", "--site", "nantes")
    assert (moved["moved"], moved["after"]["dap"], moved["after"]["k"]) == (1, "ec", 1)
    assert set(moved["after"]["servers"]) < {"s0", "s1", "s2", "s3"}
    assert cli.ok("read", "k", "--domain", "photos") == b"value"
    assert "nothing to do" in cli.ok("domain", "move", "photos", "--site", "nantes").decode()


def test_members_are_spread_over_the_sites(cli: Cli) -> None:
    sites = [member.site for member in cli.settings.members.values()]
    assert sites == ["nantes", "rennes", "lyon"]
    assert cli.settings.beat_s == SITES_BEAT_S


def test_a_log_moves_too(cli: Cli) -> None:
    cli.ok("log", "create", "events", "--servers", "s0,s1,s2")
    cli.ok("log", "append", "events", stdin=b"entry")
    assert set(cli.json("domain", "move", "events", "--site", "rennes")["after"]["servers"]) == {
        "s4",
        "s5",
        "s6",
    }
    assert cli.ok("log", "read", "events", "0") == b"entry"
    assert "always travel from server to server" in cli.fails(
        2, "domain", "move", "events", "--site", "nantes", "--transfer", "servers"
    )


def test_what_cannot_be_is_refused_before_anything_is_decided(cli: Cli) -> None:
    assert "known sites: nantes, rennes, lyon" in cli.fails(
        2, "domain", "create", "x", "--site", "brest"
    )
    assert "one crash stops it" in cli.fails(1, "domain", "create", "x", "--site", "lyon")
    assert "exclude each other" in cli.fails(
        2, "domain", "create", "x", "--site", "lyon", "--servers", "s0,s1,s2"
    )
    assert "known sites" in cli.fails(2, "read", "k", "--site", "brest")
    cli.environment["ARES_SITE"] = "brest"
    assert "this client is at site 'brest'" in cli.fails(2, "ls")
    assert cli.ok("ls", "--site", "lyon") == b""
    del cli.environment["ARES_SITE"]
    assert "x" not in {each["domain"] for each in cli.json("domain", "ls")["domains"]}


def test_status_top_and_metrics_say_where_things_are(cli: Cli) -> None:
    shown = cli.ok("status", "--site", "rennes").decode()
    assert "at site nantes, remote from rennes" in shown
    assert (
        "remote"
        not in cli.ok("status", "--site", "nantes")
        .decode()
        .partition("default:")[2]
        .partition("\n\n")[0]
    )
    status = cli.json("status")
    assert (status["servers"]["s5"]["site"], status["domains"][0]["site"]) == (
        "rennes",
        "nantes",
    )
    seen = cli.json("top", "--once")
    assert {server["id"]: server["site"] for server in seen["servers"]}["s8"] == "lyon"
    assert seen["domains"][0]["site"] == "nantes"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{cli.settings.servers['s4'].http}/metrics", timeout=10.0) as page:
        assert 'id="s4"' in (
            info := next(
                line for line in page.read().decode().splitlines() if line.startswith("ares_info{")
            )
        )
        assert 'site="rennes"' in info


@pytest.mark.parametrize("more", [("--servers", "4"), ("--spares", "2")])
def test_sites_say_how_many_servers_there_are(tmp_path: Path, more: tuple[str, str]) -> None:
    done = subprocess.run(
        ares_cli("init", tmp_path / "c", "--sites", "a:3", *more),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (done.returncode, f"give no {more[0]}" in done.stderr) == (2, True)
    assert not (tmp_path / "c/cluster.toml").exists()


@pytest.mark.parametrize(
    "sites",
    [
        "nantes",
        "nantes:0",
        "nantes:3,nantes:3",
        ":3",
        "nantes:3,",
        "nan tes:3",
        "nantes:99999",
        "a:b:3",
    ],
)
def test_sites_that_cannot_be_are_refused(tmp_path: Path, sites: str) -> None:
    done = subprocess.run(
        ares_cli("init", tmp_path / "c", "--sites", sites),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "c/cluster.toml").exists()


@pytest.fixture
def two_sites(tmp_path: Path) -> Iterator[Cli]:
    """Make a cluster with consensus members and `default` at the first site."""
    yield from running_cluster(
        tmp_path / "cluster", "--durability", "memory", "--sites", "far:3,near:3"
    )


@contextmanager
def cut_off(cli: Cli, *ids: str) -> Iterator[None]:
    """Silence these processes as if the link to them was cut."""
    pids = [int((cli.directory / f"run/{id}.pid").read_text()) for id in ids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


FAR = ("s0", "s1", "s2", "r0", "r1", "r2")
NEAR = ("s3", "s4", "s5")


@pytest.mark.slow
def test_a_move_to_a_site_that_is_cut_off_says_what_stops(two_sites: Cli) -> None:
    cli = two_sites
    cli.ok("domain", "create", "photos", "--site", "far")
    cli.ok("write", "k", "--domain", "photos", stdin=b"value")
    before = cli.ok("domain", "move", "photos", "--site", "near", "--dry-run").decode()
    assert "all 3 of its servers answer now; 2 make a quorum" in before
    assert "reads and writes fail; nothing is lost" in before

    async def move() -> None:
        async with contextlib.AsyncExitStack() as silence:

            def silent_from_now_on(progress: Progress) -> None:
                if progress.stage == "update-config":
                    silence.enter_context(cut_off(cli, *NEAR))

            client = replace(cli.settings.client, ahead=False)  # objects move after the decision
            async with ares.connect(replace(cli.settings, client=client)) as store:
                photos = await store.domain("photos")
                for number in range(30):
                    await photos.write(f"k{number}", b"value")
                target = ares.Configuration.abd(NEAR)
                with pytest.raises(
                    ares.Unavailable, match="nothing is lost, reads and writes need"
                ):
                    await photos.reconfigure(
                        target, progress=silent_from_now_on, timeout_s=2.0, bytes_per_s=20_000
                    )
            for words in (("read", "k"), ("write", "k")):
                cli.fails(1, *words, "--domain", "photos", "--timeout", "2")
            shown = cli.run("status").stdout.decode()
            assert (
                "reads and writes fail until a quorum of its servers answers: s3, s4, s5 must"
                in shown
            )

    asyncio.run(move())
    assert cli.ok("read", "k", "--domain", "photos") == b"value"
    assert cli.json("domain", "move", "photos", "--site", "near")["after"]["index"] == 1
    assert "to follow" not in cli.ok("status").decode()


@pytest.mark.slow
def test_nothing_moves_to_a_site_that_does_not_answer(two_sites: Cli) -> None:
    cli = two_sites
    cli.ok("domain", "create", "photos", "--site", "far")
    with cut_off(cli, *NEAR):
        for more in ((), ("--dry-run",)):
            done = cli.run("domain", "move", "photos", "--site", "near", *more)
            assert (done.returncode, b"Nothing was changed" in done.stderr) == (1, True)
    assert cli.json("domain", "ls")["domains"][1]["pending"] == []


@pytest.mark.slow
def test_new_clients_of_a_site_that_is_cut_off_find_read_and_write_its_domains(
    two_sites: Cli,
) -> None:
    cli = two_sites
    cli.environment["ARES_SITE"] = "near"
    cli.ok("domain", "create", "photos", "--site", "near")
    cli.ok("domain", "create", "films", "--site", "far")
    cli.ok("log", "create", "events", "--servers", "s0,s1,s2")
    cli.ok("log", "append", "events", stdin=b"entry")
    cli.ok("domain", "move", "events", "--site", "near")
    cli.ok("write", "k", "--domain", "photos", stdin=b"value")
    for name in ("films", "photos"):
        cli.ok("write", "moved", "--domain", name, stdin=b"before")
    cli.ok("domain", "move", "films", "--site", "near")
    with cut_off(cli, *FAR):
        assert cli.ok("read", "k", "--domain", "photos") == b"value"
        cli.ok("write", "k", "--domain", "photos", stdin=b"written alone")
        assert cli.ok("read", "moved", "--domain", "films") == b"before"
        assert cli.ok("log", "read", "events", "0") == b"entry"
        cli.ok("log", "append", "events", stdin=b"another")
        assert "nothing was changed" in cli.fails(
            1, "domain", "create", "more", "--site", "near", "--timeout", "3"
        )
        refused = cli.run(
            "reconfig",
            "--domain",
            "photos",
            "--dap",
            "ec",
            "--k",
            "1",
            "--servers",
            "s3,s4,s5",
            "--timeout",
            "3",
        )
        assert (
            refused.returncode,
            "the consensus service did not decide" in refused.stderr.decode(),
        ) == (1, True)
        cli.fails(1, "read", "k", "--timeout", "2")
    assert cli.ok("read", "k", "--domain", "photos", "--site", "far") == b"written alone"
    assert cli.ok("log", "read", "events", "1", "--site", "far") == b"another"
    cli.ok("domain", "create", "more", "--site", "near")


@pytest.mark.slow
def test_what_default_holds_is_found_after_it_moved_here(two_sites: Cli) -> None:
    """The cluster file names servers that cannot be reached."""
    cli = two_sites
    cli.ok("write", "k", stdin=b"value")
    cli.ok("domain", "move", "default", "--site", "near")
    with cut_off(cli, *FAR):
        assert cli.ok("read", "k", "--site", "near") == b"value"


@pytest.mark.slow
def test_a_forged_memory_of_domains_misleads_no_client(two_sites: Cli, tmp_path: Path) -> None:
    cli = two_sites
    cli.environment |= {"ARES_CACHE": str(tmp_path / "cache"), "ARES_SITE": "far"}
    cli.ok("domain", "create", "photos", "--site", "near")
    cli.ok("write", "k", "--domain", "photos", stdin=b"value")
    [known] = (tmp_path / "cache").glob("domains-*.json")
    assert set(json.loads(known.read_bytes())["photos"]) == {"s3", "s4", "s5"}
    for forged in ('{"photos": ["s0", "s1", "s2"]}', '{"photos": ["elsewhere"]}', "garbage"):
        known.write_text(forged)
        assert cli.ok("read", "k", "--domain", "photos") == b"value"
        assert set(json.loads(known.read_bytes())["photos"]) == {"s3", "s4", "s5"}


@pytest.fixture(scope="module")
def piloted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    more = ("--durability", "memory", "--sites", "nantes:3,rennes:3", "--autopilot")
    yield from running_cluster(tmp_path_factory.mktemp("follow") / "cluster", *more)


@pytest.mark.slow
def test_a_domain_follows_its_users_and_says_why(piloted: Cli) -> None:
    cli = piloted

    def domain_status() -> dict[str, Any]:
        return {each["domain"]: each for each in cli.json("status")["domains"]}["photos"]

    def becomes(decision: str) -> dict[str, Any]:
        end = time.monotonic() + 120.0
        while (seen := domain_status())["follows_users"] is None or seen["follows_users"][
            "decision"
        ] != decision:
            assert time.monotonic() < end, seen
            time.sleep(0.5)
        return seen

    assert (
        cli.json("domain", "create", "photos", "--site", "nantes", "--follow-users")[
            "follows_users"
        ]
        is True
    )
    becomes("idle")
    program = (
        "import sys, time, ares\n"
        "with ares.connect_blocking(sys.argv[1]) as store:\n"
        "    photos = store.domain('photos')\n"
        "    while True:\n"
    )
    program += (
        "        photos.write('k', b'v')\n"
        "        assert photos.read('k') == b'v'\n"
        "        time.sleep(0.01)\n"
    )
    environment = os.environ | {"ARES_SITE": "rennes"}
    users = subprocess.Popen(
        [*python(), "-c", program, str(cli.settings.path)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert becomes("here")["site"] == "rennes"
        assert users.poll() is None
        assert "follows its users: its own site asks most" in cli.ok("status").decode()
    finally:
        users.kill()
        users.communicate()
    assert cli.json("domain", "follow", "photos", "--off") == {
        "domain": "photos",
        "follows_users": False,
    }
    end = time.monotonic() + 60.0
    while domain_status()["follows_users"] is not None:
        assert time.monotonic() < end
        time.sleep(0.5)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    counted = []
    for member in cli.settings.members.values():
        with opener.open(f"http://{member.http}/metrics", timeout=10.0) as page:
            counted += [
                float(line.split()[1])
                for line in page.read().decode().splitlines()
                if line.startswith("ares_autopilot_follows_total")
            ]
    assert sum(counted) == 1


@pytest.mark.slow
def test_default_and_logs_cannot_follow_users(piloted: Cli, cli: Cli) -> None:
    assert "'default' follows no users" in piloted.fails(2, "domain", "follow", "default")
    piloted.ok("log", "create", "events", "--servers", "s0,s1,s2")
    assert "logs follow no users" in piloted.fails(2, "domain", "follow", "events")
    assert "domain 'nowhere'" in piloted.fails(1, "domain", "follow", "nowhere")
    cli.ok("domain", "create", "still", "--site", "nantes")
    assert (
        "no autopilot moves it: the cluster file has no table [autopilot]"
        in cli.ok("domain", "follow", "still").decode()
    )
