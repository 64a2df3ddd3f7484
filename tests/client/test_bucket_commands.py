"""Buckets on the command line, and without asyncio, on real processes with stores."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ares
from ares.platform.interpreter import python
from tests.process.command_line import Cli, running_cluster
from tests.process.warm_start import ares_cli

pytestmark = pytest.mark.process

BODY = bytes(range(256)) * 40_000
"""10 MB: two chunks."""


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    for cluster in running_cluster(tmp_path_factory.mktemp("buckets") / "cluster"):
        assert "bucket init" in cluster.fails(1, "bucket", "ls")
        made = cluster.ok("bucket", "init", "--dap", "ec", "--k", "2").decode()
        assert "s3/meta/0: chain n=3" in made
        assert "s3/blobs: EC n=4 k=2" in made
        assert "buckets can be made" in cluster.fails(1, "bucket", "init")
        yield cluster


@pytest.fixture
def bucket(cli: Cli, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    cli.ok("bucket", "create", name)
    return name


def test_a_sweep_tells_its_work(cli: Cli) -> None:
    swept = cli.json("bucket", "sweep")
    assert (set(swept), swept["silent"]) == ({"sessions", "blobs", "names", "silent"}, [])
    assert b"0 names of litter dropped" in cli.ok("bucket", "sweep")


def test_objects_are_put_listed_copied_and_deleted(cli: Cli, bucket: str, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(BODY)
    told = cli.json("bucket", "put", tmp_path / "body", f"{bucket}/2026/large", "--if-absent")
    assert told["bytes"] == len(BODY)
    cli.ok("bucket", "put", "-", f"{bucket}/small", "--content-type", "text/plain", stdin=b"hello")
    assert "does not hold: it has version" in cli.fails(
        1, "bucket", "put", "-", f"{bucket}/small", "--if-absent", stdin=BODY
    )
    assert cli.ok("bucket", "get", f"{bucket}/2026/large") == BODY
    assert cli.ok("bucket", "get", f"{bucket}/small", "--range", "1-3") == b"ell"
    assert cli.ok("bucket", "get", f"{bucket}/2026/large", "--range", "-2") == BODY[-2:]
    got = cli.json("bucket", "get", f"{bucket}/2026/large", tmp_path / "copy")
    assert (got["version"], (tmp_path / "copy").read_bytes()) == (told["version"], BODY)
    stored = cli.json("bucket", "stat", f"{bucket}/small")
    assert stored["metadata"] == {"content-type": "text/plain"}
    assert b"content-type  text/plain" in cli.ok("bucket", "stat", f"{bucket}/small")
    assert cli.ok("bucket", "ls", f"{bucket}/", "--delimiter", "/") == b"2026/\nsmall\n"

    cli.ok("bucket", "cp", f"{bucket}/small", f"{bucket}/again")
    cli.ok("bucket", "mv", f"{bucket}/2026/large", f"{bucket}/large", "--if-absent")
    listed = cli.json("bucket", "ls", bucket)["entries"]
    assert [entry["key"] for entry in listed] == ["again", "large", "small"]
    assert listed[1]["etag"] == told["etag"]
    assert cli.json("bucket", "stat", bucket)["objects"] == 3
    assert bucket.encode() in cli.ok("bucket", "ls").split()
    assert "has objects" in cli.fails(1, "bucket", "rm", bucket)
    version = cli.json("bucket", "stat", f"{bucket}/again")["version"]
    cli.ok("bucket", "rm", f"{bucket}/again", "--if-version", version)
    for key in ("large", "small"):
        cli.ok("bucket", "rm", f"{bucket}/{key}")
    cli.ok("bucket", "rm", bucket)
    assert "there is no bucket" in cli.fails(1, "bucket", "ls", bucket)


def test_versions_tags_and_settings_have_options(cli: Cli, bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/key"
    (tmp_path / "body").write_bytes(b"1")
    told = cli.json("bucket", "set", bucket, "--versioning", "on", "--quota", "1K")
    assert told == {"bucket": bucket, "versioning": "on", "quota": 1024}
    first = cli.json("bucket", "put", tmp_path / "body", place, "--tag", "colour=red")
    cli.ok("bucket", "put", "-", place, stdin=b"2")
    assert "no room" in cli.fails(1, "bucket", "put", "-", place, stdin=bytes(2000))
    cli.ok("bucket", "rm", place)
    *newer, last = cli.json("bucket", "ls", bucket, "--versions")["entries"]
    assert [each["deletion"] for each in newer] == [True, False]
    assert (last["version"], last["tags"]) == (first["version"], {"colour": "red"})
    assert cli.ok("bucket", "ls", f"{bucket}/k", "--versions").split()[-1] == b"key"
    assert cli.ok("bucket", "get", place, "--version", first["version"]) == b"1"
    cli.ok("bucket", "cp", place, place, "--version", first["version"])
    assert b"tag       colour=red" in cli.ok("bucket", "stat", place)
    cli.ok("bucket", "rm", place, "--version", newer[0]["version"])
    assert "no object" in cli.fails(1, "bucket", "stat", place, "--version", newer[0]["version"])
    assert b"versioning  on" in cli.ok("bucket", "stat", bucket)
    for wrong in (("set", bucket), ("ls", "--versions"), ("rm", bucket, "--version", "1")):
        assert "--version" in cli.fails(2, "bucket", *wrong)
    assert "NAME=TEXT" in cli.fails(2, "bucket", "put", "-", place, "--tag", "x", stdin=b"")


def test_mistakes_are_told(cli: Cli, bucket: str, tmp_path: Path) -> None:
    assert "no object 'absent' in bucket" in cli.fails(1, "bucket", "get", f"{bucket}/absent")
    assert "as BUCKET/KEY" in cli.fails(2, "bucket", "get", bucket)
    assert "cannot be read" in cli.fails(2, "bucket", "put", tmp_path / "no", f"{bucket}/key")
    assert "a bucket's name" in cli.fails(2, "bucket", "create", "No")
    cli.ok("bucket", "put", "-", f"{bucket}/key", stdin=b"0123")
    for given in ("x", "-", "3-1"):
        assert "--range" in cli.fails(2, "bucket", "get", f"{bucket}/key", "--range", given)
    assert "behind the 4 bytes" in cli.fails(2, "bucket", "get", f"{bucket}/key", "--range", "9-")
    assert not (tmp_path / "new").exists()
    assert "is a directory" in cli.fails(2, "bucket", "get", f"{bucket}/key", tmp_path)


def test_of_eight_commands_one_makes_the_object(cli: Cli, bucket: str) -> None:
    environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)}
    rivals = [
        subprocess.Popen(
            ares_cli("bucket", "put", "-", f"{bucket}/key", "--if-absent"),
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=environment,
        )
        for _ in range(8)
    ]  # fmt: skip
    for number, rival in enumerate(rivals):
        rival.communicate(b"%d" % number, timeout=200)
    assert sorted(rival.returncode for rival in rivals) == [0] + [1] * 7
    won = next(number for number, rival in enumerate(rivals) if rival.returncode == 0)
    assert cli.ok("bucket", "get", f"{bucket}/key") == b"%d" % won


def watched(cli: Cli, place: str, since: int, count: int) -> list[dict[str, object]]:
    """Return the next changes with events, until an interrupt."""
    command = python("-m", "ares", "bucket", "watch", place, "--since", str(since), "--json")
    environment = os.environ | {"ARES_CLUSTER": str(cli.settings.path)}
    found: list[dict[str, object]] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as watcher:
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        while len(found) < count:
            change = json.loads(watcher.stdout.readline())
            found += [change] if change["events"] else []
        watcher.send_signal(signal.SIGINT)
        assert b"goes on here" in watcher.stderr.read()
    assert watcher.returncode == 130
    return found


def test_a_watch_goes_on_in_another_process(cli: Cli, bucket: str) -> None:
    start = cli.json("bucket", "stat", bucket)["position"]
    cli.ok("bucket", "put", "-", f"{bucket}/2026/a", stdin=b"hello")
    cli.ok("bucket", "mv", f"{bucket}/2026/a", f"{bucket}/2026/b")
    put, move = watched(cli, f"{bucket}/2026/", start, 2)
    about = cli.json("bucket", "stat", f"{bucket}/2026/b")
    assert [event["key"] for event in move["events"]] == ["2026/b", "2026/a"]
    assert move["events"][0] == {
        "kind": "put", "key": "2026/b", "version": about["version"],
        "etag": about["etag"], "size": 5,
    }  # fmt: skip
    assert watched(cli, bucket, put["position"], 1) == [move]


def test_a_watch_blocks_without_asyncio(cli: Cli, bucket: str) -> None:
    with ares.connect_blocking(cli.settings) as store:
        photos = store.bucket(bucket)
        changes = photos.watch()
        assert next(changes).events == ()
        photos.put("key", b"1")
        found = next(change for change in changes if change.events)
        assert [event.key for event in found.events] == ["key"]
        changes.close()


def test_buckets_are_used_without_asyncio(cli: Cli, bucket: str) -> None:
    with ares.connect_blocking(cli.settings) as store:
        photos = store.bucket(bucket)
        seen: list[int] = []
        pieces = (BODY[start : start + 3_000_000] for start in range(0, len(BODY), 3_000_000))
        stored = photos.put("key", pieces, progress=seen.append)
        assert seen[-1] == stored.size == len(BODY)
        with photos.get("key") as found:
            assert b"".join(found.chunks()) == BODY
        assert photos.get("key", start=-3).read() == BODY[-3:]
        with pytest.raises(ares.PreconditionFailed) as failed:
            photos.put("key", b"", if_absent=True)
        assert failed.value.current.version == stored.version
        assert [entry.key for entry in photos.list()] == ["key"]
        photos.move("key", "moved")
        photos.delete("moved")
        assert [entry.key for entry in photos.list()] == []
