"""Large files on the command line, against real processes: transfers, conflicts, refusals."""

import json
import os
import random
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ares.cli import main
from ares.cli.files.file_commands import Transfer
from ares.fragment.read import FileProgress
from ares.platform.interpreter import python

from .command_line import Cli, running_cluster

pytestmark = pytest.mark.process

SMALL_BLOCKS = ["--block-min", "1K", "--block-avg", "2K", "--block-max", "8K"]
SIZE_BYTES = 200_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    yield from running_cluster(tmp_path_factory.mktemp("files") / "cluster")


@pytest.fixture
def cli(shared: Cli, tmp_path: Path) -> Cli:
    """Yield a running cluster that the tests share; each test has separate files and a cache."""
    shared.environment = {"ARES_CACHE": str(tmp_path / "cache")}
    return shared


def content(seed: int = 0, size: int = SIZE_BYTES) -> bytes:
    return random.Random(seed).randbytes(size)


def edited(data: bytes, offset: int, by: bytes) -> bytes:
    return data[:offset] + by + data[offset + len(by) :]


class Copy:
    """A local copy of a file of the cluster, and its operations."""

    def __init__(self, cli: Cli, path: Path, name: str) -> None:
        self.cli, self.path, self.name = cli, path, name

    def put(self, *words: str | Path, status: int = 0) -> Any:
        return self.cli.json("put", self.path, self.name, *words, status=status)

    def get(self, *words: str | Path) -> Any:
        return self.cli.json("get", self.name, self.path, *words)

    def edit(self, offset: int, by: bytes) -> bytes:
        data = edited(self.path.read_bytes(), offset, by)
        self.path.write_bytes(data)
        return data


def two_copies(cli: Cli, tmp_path: Path, name: str) -> tuple[Copy, Copy]:
    """Make two copies: Ann put the file, and Bob has it, too."""
    ann, bob = (Copy(cli, tmp_path / f"{who}.bin", name) for who in ("ann", "bob"))
    ann.path.write_bytes(content())
    ann.put(*SMALL_BLOCKS)
    bob.get()
    return ann, bob


def test_only_what_changed_moves(cli: Cli, tmp_path: Path) -> None:
    ann = Copy(cli, tmp_path / "ann.bin", "moves/a")
    ann.path.write_bytes(content())
    made = ann.put(*SMALL_BLOCKS)
    assert (made["bytes"], made["moved_bytes"], made["kept"], made["kind"], made["domain"]) == (
        SIZE_BYTES,
        SIZE_BYTES,
        0,
        "shared",
        "file/moves/a",
    )
    data = ann.edit(100_000, b"edited")
    again = ann.put()
    assert (again["kept"], again["modified"] + again["inserted"]) == (made["inserted"] - 1, 1)
    assert 6 <= again["moved_bytes"] <= 8192
    assert ann.put()["moved_bytes"] == 0
    copy = Copy(cli, tmp_path / "copy.bin", "moves/a")
    got = copy.get()
    assert (copy.path.read_bytes(), got["moved_bytes"], got["changed"]) == (data, SIZE_BYTES, True)
    assert (copy.get()["moved_bytes"], copy.get()["changed"]) == (0, False)
    data = ann.edit(20_000, b"!")
    ann.put()
    got = copy.get()
    assert (copy.path.read_bytes(), got["moved_blocks"], got["changed"]) == (data, 1, True)


def test_the_last_line_says_what_moved(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(content())
    told = cli.ok("put", tmp_path / "in", "line", *SMALL_BLOCKS).decode()
    assert told.startswith("line: ")
    assert "blocks, 195.3 KiB of 195.3 KiB moved (0 blocks kept" in told
    assert "0 bytes of 195.3 KiB moved" in cli.ok("get", "line", tmp_path / "in").decode()


def test_edits_of_different_blocks_both_prevail(cli: Cli, tmp_path: Path) -> None:
    ann, bob = two_copies(cli, tmp_path, "merge")
    ann.edit(10_000, b"ann was here")
    assert ann.put()["merged"] == 0
    bob.edit(150_000, b"bob was here")
    told = cli.run("put", bob.path, "merge")
    assert told.returncode == 0
    assert b"not byte for byte" in told.stdout
    assert b"clients changed 1 other block, which stays as it is; `ares-cli get`" in told.stdout
    both = edited(edited(content(), 10_000, b"ann was here"), 150_000, b"bob was here")
    for copy in (ann, bob):
        copy.get()
        assert copy.path.read_bytes() == both


@pytest.mark.slow
def test_get_does_not_overwrite_what_was_edited(cli: Cli, tmp_path: Path) -> None:
    """This holds after a put and after a get; the content put or brought can be replaced."""
    ann, bob = two_copies(cli, tmp_path, "mine to lose")
    bob.edit(10_000, b"bob was here")
    bob.put()
    assert ann.get()["changed"], "ann's was put"
    assert bob.edit(150_000, b"bob alone") != ann.path.read_bytes()
    mine = bob.path.read_bytes()
    told = cli.fails(1, "get", "mine to lose", bob.path)
    assert told == (
        f"error: {bob.path} was edited since its last put or get on this machine, and differs "
        f"from mine to lose: the file was not changed. `ares-cli put {bob.path} 'mine to lose'` "
        f"puts the edited content, `ares-cli get 'mine to lose' {bob.path} --force` overwrites "
        "it\n"
    )
    assert bob.path.read_bytes() == mine
    ann.edit(150_000, b"bob alone")
    ann.put()
    assert not bob.get()["changed"], "it is edited, and what is there by now"
    ann.edit(20_000, b"ann was here")
    ann.put()
    assert bob.get()["changed"]
    bob.edit(30_000, b"bob thinks better of it")
    assert bob.get("--force")["changed"]
    assert bob.path.read_bytes() == ann.path.read_bytes()


@pytest.mark.slow
def test_get_does_not_overwrite_a_file_that_it_knows_nothing_of(cli: Cli, tmp_path: Path) -> None:
    ann = Copy(cli, tmp_path / "ann.bin", "unknown")
    ann.path.write_bytes(content())
    ann.put(*SMALL_BLOCKS, "--domain", "default")
    thesis = Copy(cli, tmp_path / "thesis", "unknown")
    thesis.path.write_bytes(b"years of work")
    told = cli.fails(1, "get", "unknown", thesis.path, "--domain", "default")
    assert (
        f"{thesis.path} exists already, no put or get of it is remembered on this machine, and "
        "it differs from unknown: the file was not changed. " in told
    )
    assert (
        f"Name another file, or `ares-cli get unknown --domain default {thesis.path} --force` "
        "overwrites it" in told
    )
    assert thesis.path.read_bytes() == b"years of work"
    thesis.path.write_bytes(b"")
    assert thesis.get("--domain", "default")["changed"], "there is nothing to lose"
    thesis.path.write_bytes(b"years of work")
    assert thesis.get("--domain", "default", "--no-cache")["changed"], (
        "nothing is kept that would tell"
    )
    cli.ok("rm", "unknown", "--domain", "default")


@pytest.mark.slow
def test_get_after_a_conflict_overwrites_only_what_was_given_up(cli: Cli, tmp_path: Path) -> None:
    _, bob, theirs = in_conflict(cli, tmp_path, "given up")
    bob.put(status=1)
    assert "was edited since" in cli.fails(1, "get", "given up", bob.path)
    bob.put("--theirs")
    assert bob.get()["changed"]
    assert bob.path.read_bytes() == edited(theirs, 150_000, b"bob alone")


@pytest.mark.slow
def test_two_copies_on_one_machine_do_not_take_each_others_base(cli: Cli, tmp_path: Path) -> None:
    ann, bob = two_copies(cli, tmp_path, "apart")
    ann.edit(10_000, b"ann was here")
    ann.put()
    bob.edit(10_000, b"bob was here")
    assert len(bob.put(status=1)["conflicts"]) == 1
    assert len(bob.put(status=1)["conflicts"]) == 1
    # without knowledge of the copy, blocks missing from bob's file count as deleted by bob
    assert bob.put("--no-cache")["conflicts"] == []


def in_conflict(cli: Cli, tmp_path: Path, name: str) -> tuple[Copy, Copy, bytes]:
    """Make a conflict; return the copies and Ann's content.

    Both changed the same block, Ann first, and Bob changed another block as well.
    """
    ann, bob = two_copies(cli, tmp_path, name)
    theirs = ann.edit(10_000, b"ann was here")
    ann.put()
    bob.edit(10_004, b"bob was here")
    bob.edit(150_000, b"bob alone")
    return ann, bob, theirs


@pytest.mark.slow
def test_a_conflict_names_the_range_and_what_to_do(cli: Cli, tmp_path: Path) -> None:
    _, bob, theirs = in_conflict(cli, tmp_path, "dir/conflict")
    done = cli.run("put", bob.path, "dir/conflict")
    told = done.stderr.decode()
    assert done.returncode == 1
    assert b"1 modified" in done.stdout
    assert f"conflict: 1 range of {bob.path} did not get into dir/conflict" in told
    assert "another client changed it since" in told
    assert "Nothing of theirs was overwritten" in told
    assert [
        f"put {bob.path} dir/conflict {option}" in told
        for option in ("--mine", "--theirs", "--save-conflicts DIR")
    ] == [True] * 3
    [conflict] = bob.put(status=1)["conflicts"]
    assert conflict["offset"] <= 10_004 < conflict["offset"] + conflict["length"]
    assert f"bytes {conflict['offset']} to {conflict['offset'] + conflict['length'] - 1}" in told
    assert cli.ok("get", "dir/conflict", "-") == edited(theirs, 150_000, b"bob alone")


def test_mine_replaces_theirs(cli: Cli, tmp_path: Path) -> None:
    ann, bob, _ = in_conflict(cli, tmp_path, "mine")
    bob.put(status=1)
    assert bob.put("--mine")["conflicts"] == []
    ann.get()
    assert ann.path.read_bytes() == bob.path.read_bytes()
    assert bob.put()["moved_bytes"] == 0


@pytest.mark.slow
def test_theirs_is_left_and_fetched(cli: Cli, tmp_path: Path) -> None:
    _, bob, theirs = in_conflict(cli, tmp_path, "theirs")
    done = cli.run("put", bob.path, "theirs", "--theirs")
    assert done.returncode == 0
    assert f"ares-cli get theirs {bob.path}" in done.stderr.decode()
    bob.get()
    assert bob.path.read_bytes() == edited(theirs, 150_000, b"bob alone")
    bob.edit(10_004, b"bob now")
    assert bob.put()["conflicts"] == []


@pytest.mark.slow
def test_both_sides_of_a_conflict_are_saved(cli: Cli, tmp_path: Path) -> None:
    _, bob, theirs = in_conflict(cli, tmp_path, "../odd name")
    told = bob.put("--save-conflicts", tmp_path / "saved/here", status=1)
    [conflict] = told["conflicts"]
    start, stop = conflict["offset"], conflict["offset"] + conflict["length"]
    mine, other = sorted((tmp_path / "saved/here").iterdir())
    assert told["saved"] == [str(mine), str(other)]
    assert (mine.read_bytes(), other.read_bytes()) == (
        bob.path.read_bytes()[start:stop],
        theirs[start:stop],
    )
    assert mine.name.startswith("_odd_name-")
    assert mine.name.endswith(f".{start}.mine")
    assert "is not a directory" in cli.fails(2, "put", bob.path, "x", "--save-conflicts", bob.path)


@pytest.mark.slow
def test_an_atomic_file_is_replaced_whole_or_not(cli: Cli, tmp_path: Path) -> None:
    ann, bob = (Copy(cli, tmp_path / f"{who}.bin", "atomic") for who in ("ann", "bob"))
    ann.path.write_bytes(content())
    assert ann.put("--atomic", *SMALL_BLOCKS)["kind"] == "atomic"
    bob.get()
    theirs = ann.edit(10_000, b"ann was here")
    ann.put()
    bob.edit(150_000, b"bob was here")
    done = cli.run("put", bob.path, "atomic")
    assert done.returncode == 1
    assert (
        f"bytes 0 to {SIZE_BYTES - 1} (195.3 KiB): the whole file was replaced"
        in done.stderr.decode()
    )
    assert "nothing else was changed" in done.stderr.decode()
    assert cli.ok("get", "atomic", "-") == theirs
    bob.put("--mine")
    assert cli.ok("get", "atomic", "-") == bob.path.read_bytes()
    assert {one["file"]: one["kind"] for one in cli.json("files", "atomic")["files"]} == {
        "atomic": "atomic"
    }


@pytest.mark.slow
def test_what_a_file_is_stays(cli: Cli, tmp_path: Path) -> None:
    ann = Copy(cli, tmp_path / "ann.bin", "kind")
    ann.path.write_bytes(content())
    ann.put(*SMALL_BLOCKS)
    ann.put(*SMALL_BLOCKS)
    for words, why in (
        (["--atomic"], "it is a shared file, not an atomic one"),
        (["--block-avg", "4M"], "they are min 1024, avg 2048, max 8192 bytes"),
        (["--chunking", "rabin"], "they are by fastcdc, not by rabin"),
    ):
        for more in ([], ["--no-cache"]):
            assert why in cli.fails(2, "put", ann.path, "kind", *words, *more)


def test_a_file_by_rabin_fingerprints(cli: Cli, tmp_path: Path) -> None:
    ann, bob = (Copy(cli, tmp_path / name, "by/rabin") for name in ("ann.bin", "bob.bin"))
    ann.path.write_bytes(content())
    assert ann.put("--chunking", "rabin", *SMALL_BLOCKS)["chunking"] == "rabin"
    bob.get()
    data = bob.edit(100_000, b"edited")
    again = bob.put()
    assert (again["chunking"], again["modified"] + again["inserted"] <= 2) == ("rabin", True)
    got = ann.get()
    assert (ann.path.read_bytes(), got["moved_blocks"] <= 2) == (data, True)
    assert ann.put("--chunking", "rabin")["moved_bytes"] == 0
    assert "they are by rabin, not by fastcdc" in cli.fails(
        2, "put", ann.path, "by/rabin", "--chunking", "fastcdc", "--no-cache"
    )
    assert [one["chunking"] for one in cli.json("files", "by/rabin")["files"]] == ["rabin"]
    assert cli.ok("files", "by/rabin").decode().split()[5:7] == ["shared", "rabin"]
    assert cli.run("put", ann.path, "by/gear", "--chunking", "gear").returncode == 2
    assert cli.json("files", "by/gear") == {"files": []}


def test_put_and_get_through_streams(cli: Cli, tmp_path: Path) -> None:
    data = content(1)
    cli.ok("put", "-", "stream", *SMALL_BLOCKS, stdin=data)
    assert cli.ok("get", "stream", "-") == data
    assert cli.json("put", "/dev/null", "empty")["bytes"] == 0
    assert cli.ok("get", "empty", "-") == b""
    cli.ok("put", "-", "stream", stdin=edited(data, 0, b"!"))
    assert cli.ok("get", "stream", "/dev/stdout").startswith(b"!" + data[1:])
    assert not (tmp_path / "cache").exists()
    done = cli.run("get", "stream", "-", "--json")
    assert (done.returncode, done.stdout) == (2, b"")
    assert "name a FILE" in json.loads(done.stderr)["error"]


@pytest.mark.slow
def test_a_link_stays_a_link_and_a_mode_a_mode(cli: Cli, tmp_path: Path) -> None:
    cli.ok("put", "-", "link", stdin=b"new")
    target = tmp_path / "target"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "link").symlink_to(target)
    cli.ok("get", "link", tmp_path / "link", "--force")
    assert (
        target.read_bytes(),
        target.stat().st_mode & 0o777,
        (tmp_path / "link").is_symlink(),
    ) == (b"new", 0o640, True)
    target.write_text("newer")
    assert cli.json("put", tmp_path / "link", "link")["modified"] == 1


def test_what_cannot_be_is_refused_before_anything_is_sent(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"content")
    assert "No such file" in cli.fails(2, "put", tmp_path / "missing", "refused")
    assert "is a directory" in cli.fails(2, "put", tmp_path, "refused")
    assert "exclude each other" in cli.fails(
        2, "put", tmp_path / "in", "refused", "--mine", "--theirs"
    )
    assert "in this order" in cli.fails(2, "put", tmp_path / "in", "refused", "--block-min", "2M")
    assert "from 64 to 134217728" in cli.fails(
        2, "put", tmp_path / "in", "refused", "--block-avg", "1024M"
    )
    assert "for example 512K" in cli.fails(
        2, "put", tmp_path / "in", "refused", "--block-max", "1T"
    )
    assert "printable" in cli.fails(2, "put", tmp_path / "in", "a\nb")
    assert "1 to" in cli.fails(2, "put", tmp_path / "in", "")
    assert "no domain 'nowhere'" in cli.fails(
        1, "put", tmp_path / "in", "refused", "--domain", "nowhere"
    )
    assert "there is no file 'refused'" in cli.fails(1, "get", "refused", tmp_path / "out")
    assert "is a directory" in cli.fails(2, "get", "refused", tmp_path)
    assert "no directory" in cli.fails(2, "get", "refused", tmp_path / "no/where")
    assert "there is no file 'refused'" in cli.fails(1, "rm", "refused")
    assert "for example 24h" in cli.fails(2, "collect", "--grace", "soon")
    assert "only one of the two" in cli.fails(2, "collect", "refused", "--domain", "default")
    assert cli.json("files", "refused") == {"files": []}
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_put_and_get_without_space_for_temporary_files(cli: Cli, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    cli.ok("put", "-", "space", stdin=content())
    cli.environment["TMPDIR"] = str(full)
    command = f"ulimit -f 10; exec {shlex.join(python('-m', 'ares'))} "
    environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)} | cli.environment
    for words, stdin in (("put - space", content(1)), ("get space " + str(tmp_path / "out"), b"")):
        shell = ["bash", "-c", f"trap '' XFSZ; {command}{words}"]
        done = subprocess.run(
            shell, input=stdin, capture_output=True, check=False, timeout=240, env=environment
        )
        assert done.returncode == 2
        assert b"File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    assert list(full.iterdir()) == []
    assert cli.ok("get", "space", "-") == content()


@pytest.mark.slow
def test_files_are_listed_and_deleted_with_their_blocks(cli: Cli, tmp_path: Path) -> None:
    ann = Copy(cli, tmp_path / "ann.bin", "list/a")
    ann.path.write_bytes(content())
    blocks = ann.put(*SMALL_BLOCKS)["inserted"]
    cli.ok("put", "-", "list/b", "--atomic", stdin=b"b")
    a, b = cli.json("files", "list/")["files"]
    assert (a["file"], a["bytes"], a["blocks"], a["kind"], a["domain"]) == (
        "list/a",
        SIZE_BYTES,
        blocks,
        "shared",
        "file/list/a",
    )
    assert (b["file"], b["bytes"], b["blocks"], b["kind"]) == ("list/b", 1, 1, "atomic")
    first, second = cli.ok("files", "list/").decode().splitlines()
    assert first.split()[:7] == [
        *("list/a", "195.3", "KiB", str(blocks), "blocks", "shared", "fastcdc")
    ]
    assert second.split()[:6] == ["list/b", "1", "byte", "1", "blocks", "atomic"]
    assert cli.ok("rm", "list/a") == b"list/a: deleted\n"
    assert [one["file"] for one in cli.json("files", "list/")["files"]] == ["list/b"]
    # with blocks of the usual size: the base of the copy is forgotten
    assert ann.put()["inserted"] == 1
    assert cli.ok("get", "list/a", "-") == content()


@pytest.mark.slow
def test_put_of_a_file_that_another_client_deleted(cli: Cli, tmp_path: Path) -> None:
    ann = Copy(cli, tmp_path / "ann.bin", "gone")
    ann.path.write_bytes(content())
    ann.put()
    somewhere_else = cli.environment | {"ARES_CACHE": "off"}
    here, cli.environment = cli.environment, somewhere_else
    cli.ok("rm", "gone")
    cli.environment = here
    ann.edit(5, b"!")
    done = cli.run("put", ann.path, "gone")
    assert done.returncode == 1
    assert "the file was deleted meanwhile" in done.stderr.decode()
    assert f"To make it anew: ares-cli put {ann.path} gone --mine" in done.stderr.decode()
    assert cli.json("files", "gone") == {"files": []}
    ann.put("--mine")
    assert cli.ok("get", "gone", "-") == ann.path.read_bytes()


@pytest.mark.slow
def test_many_files_of_one_domain(cli: Cli, tmp_path: Path) -> None:
    cli.ok("domain", "create", "many")
    for place in ("many", "default"):
        ann = Copy(cli, tmp_path / f"{place}.bin", "in")
        ann.path.write_bytes(content())
        assert ann.put("--domain", place, *SMALL_BLOCKS)["domain"] == place
        assert ann.get("--domain", place)["changed"] is False
        assert [one["file"] for one in cli.json("files", "--domain", place)["files"]] == ["in"]
        assert cli.ok("get", "in", "-", "--domain", place) == content()
    assert "in" not in [one["file"] for one in cli.json("files")["files"]]
    cli.ok("rm", "in", "--domain", "many")
    assert cli.json("files", "--domain", "many") == {"files": []}
    assert cli.json("collect", "--domain", "many", "--grace", "0") == {
        "grace_s": 0,
        "domains": {"many": 0},
    }
    assert set(cli.json("collect")["domains"]) >= {"default", "many"}


@pytest.mark.slow
def test_a_file_moves_and_is_put_meanwhile_by_a_client_without_the_news(
    cli: Cli, tmp_path: Path
) -> None:
    ann, bob = two_copies(cli, tmp_path, "moving")
    [moved] = cli.json(
        "reconfig", "--domain", "file/moving", "--dap", "ec", "--k", "2", "--servers", "s0,s1,s2,s3"
    )["domains"]
    assert (moved["ours"], moved["after"]["dap"]) == (True, "ec")
    data = bob.edit(10_000, b"bob was here")
    assert bob.put()["conflicts"] == []
    ann.get()
    assert ann.path.read_bytes() == data
    assert "file/NAME" in cli.ok("reconfig", "--help").decode()


@pytest.mark.slow
def test_domains_of_files_do_not_flood_status_and_lists(cli: Cli) -> None:
    cli.ok("put", "-", "flood", stdin=b"x")
    for words in (["status"], ["domain", "ls"]):
        told = cli.json(*words)
        assert not [domain for domain in told["domains"] if domain["domain"].startswith("file/")]
        assert told["files"]
        assert "file/flood" not in cli.ok(*words).decode()
        assert "file/flood" in [domain["domain"] for domain in cli.json(*words, "--all")["domains"]]
        assert "file/flood" in cli.ok(*words, "--all").decode()
    moved = [
        domain["domain"]
        for domain in cli.json(
            "reconfig", "--all", "--dry-run", "--dap", "abd", "--servers", "s0,s1,s2"
        )["domains"]
    ]
    assert moved[0] == "default"
    assert "file/flood" in moved
    files = cli.json("status")["files"]
    assert (files["crashes_survived"], files["without_quorum"]) == (1, [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [["--atomic"], []], ids=["atomic", "shared"])
@pytest.mark.parametrize("after", [1, 20])
def test_ctrl_c_in_the_middle_of_a_put(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: list[str],
    after: int,
) -> None:
    name = f"middle/{after}{kind}"
    ann = Copy(cli, tmp_path / "ann.bin", name)
    ann.path.write_bytes(content())
    ann.put(*kind, *SMALL_BLOCKS)
    data = content(1, 50_000) + content()
    ann.path.write_bytes(data)
    calls = []

    def follow(self: Transfer, now: FileProgress) -> None:
        calls.append(now)
        if len(calls) == after:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Transfer, "follow", follow)
    for variable, value in (cli.environment | {"ARES_CLUSTER": str(cli.settings.path)}).items():
        monkeypatch.setenv(variable, value)
    assert main.run(["put", str(ann.path), name]) == 130
    assert "has its old content, or" in capsys.readouterr().err
    assert cli.ok("get", name, "-") in (content(), data)
    assert ann.put()["conflicts"] == []
    assert cli.ok("get", name, "-") == data
    ann.path.unlink()
    calls.clear()
    assert main.run(["get", name, str(ann.path)]) == 130
    assert f"interrupted: {ann.path} is as it was" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.slow
def test_a_file_that_grows_while_it_is_put(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    log.write_bytes(content())
    grown = content() + b"late"
    monkeypatch.setattr(Transfer, "follow", lambda self, now: log.write_bytes(grown))
    for variable, value in (cli.environment | {"ARES_CLUSTER": str(cli.settings.path)}).items():
        monkeypatch.setenv(variable, value)
    assert main.run(["put", str(log), "grows", *SMALL_BLOCKS]) == 0
    assert (
        "log has grown since: a program writes to it, and its last 4 bytes may not be in grows"
        in capsys.readouterr().err
    )
    assert cli.ok("get", "grows", "-") == content()
    monkeypatch.undo()
    assert cli.run("put", log, "grows").stderr == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "background"),
    [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, False), (signal.SIGTERM, 143, True)],
    ids=["ctrl-c", "term", "term in the background"],
)
def test_a_put_cut_short_before_anything_is_sent(
    cli: Cli, tmp_path: Path, number: signal.Signals, status: int, background: bool
) -> None:
    """A shell without job control starts background commands with SIGINT ignored."""
    ann = Copy(cli, tmp_path / "ann.bin", "short")
    ann.path.write_bytes(content())
    ann.put("--atomic", *SMALL_BLOCKS)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)} | cli.environment
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if background else []
    command = [*ignoring, *python("-m", "ares", "put", pipe, "short", "--json")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        with pipe.open("wb") as stream:
            stream.write(content(1))
            process.send_signal(number)
        process.wait(60)
        assert process.stderr is not None
        told = json.loads(process.stderr.read())
    assert (process.returncode, told["kind"], told["error"]) == (
        status,
        "Interrupted",
        "interrupted: nothing was sent",
    )
    assert cli.ok("get", "short", "-") == content()


@pytest.mark.slow
def test_a_file_without_a_quorum_is_seen_and_said(tmp_path: Path) -> None:
    for cli in running_cluster(tmp_path / "cluster"):
        cli.ok("put", "-", "f", stdin=b"content")
        cli.ok("reconfig", "--domain", "file/f", "--dap", "abd", "--servers", "s0,s1,s2")
        cli.kill("s0")
        assert (
            "1 domain of a single file: 1 of them survive no more crashes"
            in cli.ok("status").decode()
        )
        cli.kill("s1")
        told = cli.json("status", status=1)
        assert (told["files"]["without_quorum"], told["files"]["crashes_survived"]) == (
            ["file/f"],
            0,
        )
        assert "1 of them without a quorum: 'file/f'" in cli.run("status").stdout.decode()
        assert "nothing was changed" in cli.fails(
            1, "put", "-", "f", "--timeout", "3", stdin=b"new"
        )


@pytest.mark.slow
def test_a_conflict_that_was_saved_is_settled_by_a_plain_put_over_what_was_seen(cli, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_bytes(b"a" * 1000)
    caches = {"ours": str(tmp_path / "1"), "theirs": str(tmp_path / "2")}

    def run(who, *words):
        cli.environment["ARES_CACHE"] = caches[who]
        return cli.run(*words)

    assert run("ours", "put", ours, "settled").returncode == 0
    assert run("theirs", "get", "settled", theirs).returncode == 0
    theirs.write_bytes(b"A" + b"a" * 999)
    assert run("theirs", "put", theirs, "settled").returncode == 0
    ours.write_bytes(b"a" * 999 + b"Z")
    assert (
        run("ours", "put", ours, "settled", "--save-conflicts", tmp_path / "saved").returncode == 1
    )
    assert (tmp_path / "saved" / "settled.0.theirs").read_bytes() == theirs.read_bytes()
    ours.write_bytes(b"A" + b"a" * 998 + b"Z")
    theirs.write_bytes(b"AB" + b"a" * 998)
    assert run("theirs", "put", theirs, "settled").returncode == 0
    assert run("ours", "put", ours, "settled").returncode == 1, "a third edit that nobody saw here"
    assert (
        run("ours", "put", ours, "settled", "--save-conflicts", tmp_path / "saved").returncode == 1
    )
    ours.write_bytes(b"AB" + b"a" * 997 + b"Z")
    assert run("ours", "put", ours, "settled").returncode == 0
    assert run("ours", "get", "settled", "-").stdout == ours.read_bytes()


@pytest.mark.slow
def test_a_file_that_was_deleted_and_made_again_is_told_as_replaced(cli, tmp_path):
    local = tmp_path / "local"
    local.write_bytes(b"mine")
    cli.environment["ARES_CACHE"] = str(tmp_path / "1")
    cli.ok("put", local, "again")
    cli.environment["ARES_CACHE"] = "off"
    cli.ok("rm", "again")
    cli.ok("put", "-", "again", stdin=b"somebody else's, and longer")
    cli.environment["ARES_CACHE"] = str(tmp_path / "1")
    local.write_bytes(b"mine, edited")
    told = cli.run("put", local, "again")
    assert told.returncode == 1
    assert b"replaced by another put" in told.stderr
    assert b"--mine" in told.stderr
    assert b"changed by other clients" not in told.stdout
