"""Files which another user of the machine could change, with keys or votes: they are refused.

No umask makes a command write such a file.
"""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from ares.cluster.cluster_keys import SecuritySettings, authorise
from ares.cluster.home import held, prepare
from ares.cluster.new_cluster import InitPlan, create
from ares.cluster.settings import Settings
from ares.consensus.raft.member import RaftMember
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.platform.interpreter import python
from ares.security.clients_file import AuthorisedClients, read_clients
from ares.server.process_lifecycle import guard_of

SOMEBODY = 12_345
"""A user id without a user on this machine."""

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return create(
        tmp_path / "cluster", InitPlan(servers=3, consensus=1, security="curve", base_port=0)
    )


@pytest.fixture
def security(settings: Settings) -> SecuritySettings:
    assert settings.security is not None
    return settings.security


def guard(settings: Settings) -> None:
    guard_of(settings, "s0", settings.servers[ServerId("s0")].public_key)


@AS_ROOT
@pytest.mark.parametrize(
    "whose",
    ["the list", "its directory", "the cluster file", "the cluster's directory", "a secret"],
)
def test_files_of_another_user_start_no_process(
    settings: Settings, security: SecuritySettings, whose: str
) -> None:
    path = {
        "the list": security.clients_path,
        "its directory": security.directory,
        "the cluster file": settings.path,
        "the cluster's directory": settings.path.parent,
        "a secret": security.secret_path("s0"),
    }[whose]
    guard(settings)
    os.chown(path, SOMEBODY, -1)
    with pytest.raises(BadInput, match=rf"{path}.* belongs to another user \({SOMEBODY}\)"):
        guard(settings)
    os.chown(path, os.geteuid(), -1)
    guard(settings)


@AS_ROOT
def test_root_manages_lists_and_uses_keys_of_any_owner(
    settings: Settings, security: SecuritySettings
) -> None:
    os.chown(security.clients_path, SOMEBODY, -1)
    bob, path = authorise(security, "bob", "read")
    os.chown(path, SOMEBODY, -1)
    assert security.client_key(str(path)).public == bob.key
    os.chown(security.clients_path, SOMEBODY, -1)
    with pytest.raises(BadInput, match="belongs to another user"):
        AuthorisedClients(security.clients_path)


def test_whom_the_list_belongs_to_is_asked_of_the_file_that_is_read(
    security: SecuritySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the test owns neither the file nor root's files."""
    clients = AuthorisedClients(security.clients_path)
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    if security.clients_path.stat().st_uid == 0:
        read_clients(security.clients_path)  # root's is trusted
    else:
        with pytest.raises(BadInput, match="belongs to another user"):
            read_clients(security.clients_path)
    assert clients.unknown_keys == 0


@pytest.mark.parametrize(
    ("which", "mode", "said"),
    [
        ("list", 0o664, "chmod 644"),
        ("list", 0o646, "chmod 644"),
        ("keys", 0o770, "chmod go-w"),
        ("keys", 0o707, "chmod o-w"),
        ("cluster file", 0o664, "name the clients whose keys are accepted: chmod 644"),
        ("cluster directory", 0o757, "chmod o-w"),
        ("above", 0o777, "chmod go-w|chmod o-w"),
    ],
)
def test_what_others_can_write_starts_nothing(
    settings: Settings, security: SecuritySettings, which: str, mode: int, said: str
) -> None:
    path = {
        "list": security.clients_path,
        "keys": security.directory,
        "cluster file": settings.path,
        "cluster directory": settings.path.parent,
        "above": settings.path.parent.parent,
    }[which]
    before = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode)
    with pytest.raises(BadInput, match=rf"{path}: other users can .*({said})"):
        guard(settings)
    path.chmod(before)
    guard(settings)


def test_a_link_to_a_place_where_others_write_starts_nothing(
    settings: Settings, security: SecuritySettings, tmp_path: Path
) -> None:
    open_place = tmp_path / "open"
    open_place.mkdir()
    security.directory.rename(open_place / "keys")
    security.directory.symlink_to(open_place / "keys")
    guard(settings)
    open_place.chmod(0o777)
    with pytest.raises(BadInput, match=rf"{open_place}: other users can replace the file"):
        guard(settings)


def test_a_directory_writable_for_all_users_is_refused(tmp_path: Path) -> None:
    for name in ("server", "member"):
        prepare(tmp_path / name)
        (tmp_path / name).chmod(0o777)
    with (
        pytest.raises(BadInput, match="other users can replace the file there: chmod o-w"),
        held(tmp_path / "server"),
    ):
        pass
    member = RaftMember(
        ServerId("r0"), {ServerId("r0"): "127.0.0.1:1"}, tmp_path / "member", "password"
    )
    with pytest.raises(BadInput, match="other users can replace the file there: chmod o-w"):
        member.start()


def writable_by_others(directory: Path) -> list[tuple[str, str]]:
    found = []
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        if status.st_mode & 0o022 and not stat.S_ISLNK(status.st_mode):
            found.append((str(path), f"{stat.S_IMODE(status.st_mode):o}"))
    return found


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("umask", [0, 0o002])
def test_nothing_is_made_that_others_can_write_whatever_the_umask(
    tmp_path: Path, umask: int
) -> None:
    home = tmp_path / "new" / "cluster"
    (tmp_path / "value").write_bytes(b"value")

    def cli(*words: object) -> None:
        done = subprocess.run(
            python("-m", "ares", *map(str, words)),
            umask=umask,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr

    cli("init", home, "--servers", 3, "--consensus", 1, "--security", "curve", "--base-port", 0)
    cli("keys", "new", "bob", "--role", "write", "-c", home / "cluster.toml")
    cli("up", home, "--detach")
    try:
        cli("write", "-c", home / "cluster.toml", "key", tmp_path / "value")
        cli("scrub", "-c", home / "cluster.toml")
        cli("keys", "revoke", "bob", "-c", home / "cluster.toml")
    finally:
        cli("down", home)
    made = writable_by_others(tmp_path / "new")
    assert made == []
    names = {path.name for path in home.rglob("*")}
    assert {
        "logs",
        "run",
        "s0.log",
        "r0.log",
        "clients.toml",
        "journal",
        "journal.meta",
        "format",
        "scrubbed",
    } <= names


def test_what_is_made_without_a_process_is_for_its_user_alone_to_change(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        settings = create(
            tmp_path / "a" / "b" / "cluster",
            InitPlan(servers=3, consensus=1, security="curve", base_port=0),
        )
        assert settings.security is not None
        authorise(settings.security, "bob", "read")
        prepare(tmp_path / "c" / "d")
    finally:
        os.umask(before)
    assert writable_by_others(tmp_path / "a") + writable_by_others(tmp_path / "c") == []
