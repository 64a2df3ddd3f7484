"""`ares-cli bucket key` and the reserved bucket, on real processes."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ares.gateway.access.reserved_buckets import KEYS_BUCKET
from tests.process.command_line import Cli, running_cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    for cluster in running_cluster(tmp_path_factory.mktemp("keys") / "cluster"):
        cluster.ok("bucket", "init")
        cluster.ok("bucket", "create", "photos")
        yield cluster


@pytest.fixture
def first(cli: Cli) -> dict[str, object]:
    return cli.json("bucket", "key", "new", "root", "--role", "admin")


def test_keys_are_made_listed_and_revoked(cli: Cli, first: dict[str, object]) -> None:
    seal = cli.directory / "gateway.key"
    assert (first["role"], first["buckets"], first["seal_key"]) == ("admin", [], str(seal))
    assert seal.stat().st_mode & 0o777 == 0o600
    words = ("backup", "--role", "read", "--bucket", "photos", "--bucket", "films")
    shell = cli.ok("bucket", "key", "new", *words).decode()
    assert "was made: copy it" not in shell
    shown = subprocess.run(
        ["sh", "-c", f"{shell}\necho $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert [len(word) for word in shown] == [20, 40]
    listed = {key["access_key"]: key for key in cli.json("bucket", "key", "ls")}
    assert listed[shown[0]]["buckets"] == ["photos", "films"]
    assert {"root", "backup"} <= {key["name"] for key in listed.values()}
    text = cli.ok("bucket", "key", "ls").decode()
    assert "backup: read, photos films" in text
    assert shown[1] not in text
    assert cli.ok("bucket", "key", "rm", shown[0]) == f"{shown[0]}: revoked\n".encode()
    assert shown[0].encode() not in cli.ok("bucket", "key", "ls")
    assert "no access key" in cli.fails(1, "bucket", "key", "rm", shown[0])


def test_mistakes_with_keys_are_told(cli: Cli, first: dict[str, object], tmp_path: Path) -> None:
    new = ("bucket", "key", "new")
    assert "unlike 'a name'" in cli.fails(2, *new, "a name", "--role", "read")
    assert "--role" in cli.fails(2, *new, "me", "--role", "reader")
    assert "bucket's name" in cli.fails(2, *new, "me", "--role", "read", "--bucket", "No")
    assert "of the gateways" in cli.fails(
        2, *new, "me", "--role", "read", "--bucket", "ares-gateway-keys"
    )
    elsewhere = ("--seal-key", tmp_path / "gateway.key")
    assert "is missing" in cli.fails(2, *new, "me", "--role", "read", *elsewhere)
    (tmp_path / "gateway.key").write_text("0" * 64)
    assert "mode 644" in cli.fails(2, *new, "me", "--role", "read", *elsewhere)
    (tmp_path / "gateway.key").chmod(0o600)
    assert "is another key" in cli.fails(2, *new, "me", "--role", "read", *elsewhere)
    assert b"cannot be unsealed with" in cli.ok("bucket", "key", "ls", *elsewhere)
    refused = cli.fails(2, "bucket", "key", "rm", str(first["secret_key"]))
    assert str(first["secret_key"]) not in refused


def test_the_reserved_bucket_is_kept_from_accidents(cli: Cli, first: dict[str, object]) -> None:
    key = f"{KEYS_BUCKET}/{first['access_key']}"
    assert cli.ok("bucket", "ls").split() == [b"photos"]
    assert KEYS_BUCKET.encode() in cli.ok("bucket", "ls", "--reserved").split()
    cli.ok("bucket", "put", "-", "photos/key", stdin=b"x")
    for words in (
        *(("rm", KEYS_BUCKET), ("rm", key), ("mv", key, "photos/moved")),
        *(("cp", "photos/key", key), ("mv", "photos/key", key), ("create", "ares-gateway-more")),
    ):
        assert "belongs to the gateways" in cli.fails(2, "bucket", *words)
    assert "belongs to the gateways" in cli.fails(2, "bucket", "put", "-", key, stdin=b"x")
    listed = [each["access_key"] for each in cli.json("bucket", "key", "ls")]
    assert first["access_key"] in listed
    cli.ok("bucket", "rm", key, "--reserved")
    assert first["access_key"] not in [
        each["access_key"] for each in cli.json("bucket", "key", "ls")
    ]
