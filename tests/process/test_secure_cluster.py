"""A cluster with keys from `init` to `down`: roles, new and revoked keys, a reconfiguration.

No secret is ever visible.
"""

import os
import subprocess
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from .command_line import Cli
from .warm_start import ares_cli

pytestmark = pytest.mark.process


def ares(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ares_cli(*words), capture_output=True, text=True, check=False, timeout=240
    )


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    directory = tmp_path_factory.mktemp("secure") / "cluster"
    made = ares("init", directory, "--servers", "4", "--security", "curve", "--base-port", "0")
    assert made.returncode == 0, made.stderr
    assert "`ares-cli keys new` makes more" in made.stdout
    up = ares("up", directory, "--detach")
    assert up.returncode == 0, up.stderr
    try:
        yield Cli(directory)
    finally:
        down = ares("down", directory)
        assert down.returncode == 0, down.stderr


@pytest.fixture(scope="module")
def keys(cli: Cli) -> dict[str, str]:
    return {
        role: cli.json("keys", "new", f"a-{role}", "--role", role)["secret"]
        for role in ("read", "write", "reconfigure")
    }


def test_each_command_takes_its_role(cli: Cli, keys: dict[str, str]) -> None:
    # the cluster file names the key of the first client, admin
    cli.ok("write", "greeting", stdin=b"hello")
    assert cli.ok("--key", keys["read"], "read", "greeting") == b"hello"
    assert "PutData takes the role write, and the key of 'a-read' has the role read" in cli.fails(
        1, "--key", keys["read"], "write", "greeting", stdin=b"no"
    )
    cli.ok("write", "greeting", "--key", keys["write"], stdin=b"hello again")
    move = ("--key", keys["write"], "reconfig", "--dap", "abd", "--servers", "s0,s1,s2")
    for switch, request in (("--ahead", "GetAhead"), ("--no-ahead", "Propose")):
        denied = cli.run(switch, *move)
        assert denied.returncode == 1
        assert f"{request} takes the role reconfigure" in denied.stderr.decode()
    assert cli.ok("--key", keys["read"], "read", "greeting") == b"hello again"


def test_a_reconfiguration_is_found_by_readers(cli: Cli, keys: dict[str, str]) -> None:
    cli.ok("write", "before", stdin=b"moved")
    cli.ok(
        "--key",
        keys["reconfigure"],
        "reconfig",
        "--dap",
        "ec",
        "--k",
        "2",
        "--servers",
        "s0,s1,s2,s3",
    )
    assert cli.ok("--key", keys["read"], "read", "before") == b"moved"
    cli.ok(
        "--key",
        keys["reconfigure"],
        "domain",
        "create",
        "photos",
        "--dap",
        "abd",
        "--servers",
        "s1,s2,s3",
    )
    cli.ok("--key", keys["write"], "write", "--domain", "photos", "cat", stdin=b"meow")
    assert cli.ok("--key", keys["read"], "read", "--domain", "photos", "cat") == b"meow"
    assert cli.json("--key", keys["read"], "status")["domains"][0]["index"] == 1


def test_a_key_is_made_listed_and_revoked_while_everything_runs(cli: Cli, tmp_path: Path) -> None:
    cli.ok("write", "key", stdin=b"value")
    secret = tmp_path / "bob.secret"
    printed = cli.ok("keys", "new", "bob", "--role", "read", "-o", secret).decode()
    assert str(secret) in printed
    assert secret.read_text().strip() not in printed
    assert cli.ok("--key", secret, "read", "key") == b"value"
    cli.environment["ARES_KEY"] = str(secret)
    assert cli.ok("read", "key") == b"value"
    del cli.environment["ARES_KEY"]
    assert ("bob", "read") in [
        (client["name"], client["role"]) for client in cli.json("keys", "list")
    ]
    assert "already" in cli.fails(2, "keys", "new", "bob", "--role", "admin")
    cli.ok("keys", "revoke", "bob")
    while cli.run("--key", secret, "read", "key").returncode == 0:
        time.sleep(0.1)  # servers look at the list once a second
    assert "does not know this client's key" in cli.fails(1, "--key", secret, "read", "key")
    assert "bob" not in [client["name"] for client in cli.json("keys", "list")]
    turned_away = [server["unknown_keys"] for server in cli.json("status")["servers"].values()]
    assert all(turned_away)
    assert "no client is called 'bob'" in cli.fails(2, "keys", "revoke", "bob")


def test_a_secret_that_others_can_read_is_not_used(
    cli: Cli, keys: dict[str, str], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.secret"
    copy.write_text(Path(keys["read"]).read_text())
    copy.chmod(0o644)
    message = cli.fails(2, "--key", copy, "read", "key")
    assert f"{copy} has mode 644: chmod 600 {copy}" in message
    assert copy.read_text().strip() not in message


def test_no_secret_is_in_sight(cli: Cli, keys: dict[str, str]) -> None:
    """The secrets are not in processes, environments, logs at the most verbose level or pages.

    The file for distribution has no secret either.
    """
    assert keys
    cli.ok("log-level", "debug")
    cli.ok("write", "key", stdin=b"value")
    cli.fails(1, "--key", keys["read"], "write", "key", stdin=b"x")
    assert (
        cli.run("--key", keys["reconfigure"], "log-level", "info").stdout.count(
            b"SetLogLevel takes the role admin"
        )
        == 7
    )
    cli.ok("domain", "create", "debugged", "--dap", "abd", "--servers", "s1,s2,s3")
    secrets = [
        path.read_bytes().strip()
        for path in [*cli.directory.glob("keys/*.secret"), *cli.directory.glob("secrets/*")]
    ]
    assert len(secrets) >= 4 + 3 + 2 + 3
    pids = [int(path.read_text()) for path in cli.directory.glob("run/*.pid")]
    seen = [
        Path(f"/proc/{pid}/{what}").read_bytes() for pid in pids for what in ("cmdline", "environ")
    ]
    seen += [
        path.read_bytes()
        for path in [
            *cli.directory.glob("logs/*.log"),
            cli.directory / "cluster.toml",
            cli.directory / "keys/clients.toml",
        ]
    ]
    seen += [path.read_bytes() for path in cli.directory.glob("data/**/*") if path.is_file()]
    assert len(seen) > 2 * 7 + 7
    seen += [
        http_answer(address, page)
        for address in http_addresses(cli)
        for page in ("health", "metrics")
    ]
    assert not [
        secret for secret in secrets for text in seen if secret in text or bytes_of(secret) in text
    ]


def http_addresses(cli: Cli) -> list[str]:
    tables = tomllib.loads((cli.directory / "cluster.toml").read_text())
    return [table["http"] for table in [*tables["server"], *tables["consensus"]]]


def http_answer(address: str, page: str) -> bytes:
    """Return a process's answer over HTTP."""
    with urllib.request.urlopen(f"http://{address}/{page}", timeout=10) as answer:
        body: bytes = answer.read()
    assert body
    return body


def bytes_of(secret: bytes) -> bytes:
    """Return a key's bytes in memory; a password stays the same."""
    try:
        return bytes.fromhex(secret.decode())
    except ValueError:
        return secret


@pytest.mark.parametrize("name", ["s1.secret", "decisions.secret", "clients.toml"])
def test_up_starts_nothing_with_files_that_others_can_use(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "cluster"
    assert (
        ares(
            "init", directory, "--servers", "3", "--security", "curve", "--base-port", "0"
        ).returncode
        == 0
    )
    os.chmod(directory / "keys" / name, 0o666)
    up = ares("up", directory, "--detach")
    assert up.returncode == 2
    assert (
        f"chmod {'644' if name == 'clients.toml' else '600'} {directory / 'keys' / name}"
        in up.stderr
    )
    assert not list(directory.glob("run/*.pid"))


@pytest.mark.parametrize(("kind", "id"), [("server", "s1"), ("consensus", "r0")])
def test_a_process_does_not_start_without_its_key(tmp_path: Path, kind: str, id: str) -> None:
    directory = tmp_path / "cluster"
    assert (
        ares(
            "init", directory, "--servers", "3", "--security", "curve", "--base-port", "0"
        ).returncode
        == 0
    )
    (directory / "keys" / f"{id}.secret").unlink()
    started = ares(kind, directory / "cluster.toml", "--id", id)
    assert started.returncode == 2
    assert f"keys/{id}.secret cannot be read" in started.stderr


def test_keys_are_for_clusters_that_have_them(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    assert ares("init", directory, "--base-port", "0").returncode == 0
    refused = ares("-c", directory / "cluster.toml", "keys", "new", "bob", "--role", "read")
    assert refused.returncode == 2
    assert "this cluster has no keys" in refused.stderr


def test_an_address_that_others_can_reach_takes_a_choice(tmp_path: Path) -> None:
    refused = ares("init", tmp_path / "cluster", "--host", "10.0.0.1")
    assert refused.returncode == 2
    assert "--security curve" in refused.stderr
    assert "--security none" in refused.stderr
    assert not (tmp_path / "cluster").exists()


def test_large_values_travel_from_server_to_server_under_the_keys_of_servers(
    cli: Cli, keys: dict[str, str]
) -> None:
    value = os.urandom(3_000_000)
    cli.ok("write", "large", stdin=value)
    move = ("--key", keys["reconfigure"], "reconfig", "--anyway", "--transfer", "servers")
    for words in (
        ("--dap", "ec", "--k", "2", "--servers", "s0,s1,s2,s3"),
        ("--dap", "abd", "--servers", "s1,s2,s3"),
        ("--dap", "abd", "--servers", "s0,s1,s2"),
    ):
        assert cli.json(*move, *words)["domains"][0]["bytes"] >= len(value)
        assert cli.ok("--key", keys["read"], "read", "large") == value
    assert "transfer" in cli.fails(
        2, "reconfig", "--transfer", "pigeons", "--dap", "abd", "--servers", "s1,s2,s3"
    )
