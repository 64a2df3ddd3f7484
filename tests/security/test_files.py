"""Keys and lists as files: modes, refusals and their words; no secret is shown."""

import logging
import stat
from pathlib import Path

import pytest

from ares.cli.options import SharedOptions
from ares.client.connect import connect
from ares.cluster.cluster_keys import SecuritySettings, authorise, revoke
from ares.cluster.new_cluster import InitPlan, create, renew_identities
from ares.cluster.settings import Settings
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.messages import Role
from ares.security.clients_file import (
    AuthorisedClient,
    AuthorisedClients,
    KeyedSender,
    read_clients,
    write_clients,
)
from ares.security.keys import SecretKey, SigningKey, write_secret
from ares.server.process_lifecycle import certifying, guard_of, processes_as_clients


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return create(tmp_path / "cluster", InitPlan(servers=3, consensus=1, security="curve"))


@pytest.fixture
def security(settings: Settings) -> SecuritySettings:
    assert settings.security is not None
    return settings.security


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def secrets_in(directory: Path) -> list[str]:
    return [path.read_text().strip() for path in directory.rglob("*.secret")]


def test_secrets_are_in_files_of_their_own_and_nowhere_else(
    settings: Settings, security: SecuritySettings
) -> None:
    paths = sorted(path.name for path in security.directory.glob("*.secret"))
    assert paths == [
        "admin.secret",
        "decisions.secret",
        "r0.secret",
        "s0.secret",
        "s1.secret",
        "s2.secret",
    ]
    assert {mode(path) for path in security.directory.glob("*.secret")} == {0o600}
    assert mode(security.directory) == 0o700
    secrets = secrets_in(security.directory)
    assert len(set(secrets)) == 6
    told = settings.path.read_text() + security.clients_path.read_text() + repr(settings)
    assert not any(secret in told for secret in secrets)
    assert read_clients(security.clients_path) == [
        AuthorisedClient("admin", security.client_key(settings.client.key).public, Role.ADMIN)
    ]


def test_a_secret_shows_itself_nowhere() -> None:
    for key in (SecretKey.generate(), SigningKey.generate()):
        for shown in (repr(key), str(key), f"{key}", repr([key]), repr({"key": key})):
            assert key.secret.hex() not in shown
            assert repr(key.secret) not in shown


def test_keys_are_different_and_the_same_when_read_again(
    security: SecuritySettings, settings: Settings
) -> None:
    server = settings.servers[ServerId("s0")]
    assert security.process_key("s0", server.public_key).public == server.public_key
    assert security.signing_key().public == security.decision_key
    assert SecretKey.generate().public != SecretKey.generate().public


USES = {
    "s0": lambda settings: guard_of(settings, "s0", settings.servers["s0"].public_key),
    "r0": lambda settings: guard_of(settings, "r0", settings.members["r0"].public_key),
    "decisions": certifying,
    "admin": lambda settings: settings.security.client_key(settings.client.key),
}


@pytest.mark.parametrize("id", USES)
@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o666])
def test_a_secret_that_others_can_read_is_refused_and_mended_as_told(
    settings: Settings, security: SecuritySettings, id: str, bits: int
) -> None:
    path = security.secret_path(id)
    path.chmod(bits)
    with pytest.raises(BadInput) as refused:
        USES[id](settings)
    message = str(refused.value)
    assert f"{path} has mode {bits:o}: chmod 600 {path}" in message
    assert path.read_text().strip() not in message
    path.chmod(0o600)
    USES[id](settings)


@pytest.mark.parametrize("id", USES)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("", "is empty"),
        ("no key", "holds another value"),
        ("ab" * 31, "holds another value"),
    ],
)
def test_what_is_no_secret_key_is_refused_without_showing_it(
    settings: Settings, security: SecuritySettings, id: str, content: str | None, said: str
) -> None:
    path = security.secret_path(id)
    path.unlink()
    if content is not None:
        write_secret(path, content)
    with pytest.raises(BadInput, match=said) as refused:
        USES[id](settings)
    assert not content or content not in str(refused.value)


@pytest.mark.parametrize("id", ["s0", "r0", "decisions"])
def test_a_secret_of_another_process_is_refused(
    settings: Settings, security: SecuritySettings, id: str
) -> None:
    path = security.secret_path(id)
    path.unlink()
    write_secret(path, SecretKey.generate().secret.hex())
    with pytest.raises(BadInput, match="does not belong"):
        USES[id](settings)
    with pytest.raises(BadInput, match="does not belong"):
        settings.check_secrets()


def test_a_secret_is_never_overwritten_or_followed(tmp_path: Path) -> None:
    write_secret(tmp_path / "new" / "one", "first")
    assert (mode(tmp_path / "new"), mode(tmp_path / "new" / "one")) == (0o700, 0o600)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "new" / "one", tmp_path / "link"):
        with pytest.raises(BadInput, match="never overwritten"):
            write_secret(path, "second")
    assert (tmp_path / "new" / "one").read_text() == "first\n"
    assert not (tmp_path / "elsewhere").exists()


def test_init_writes_over_no_keys(settings: Settings) -> None:
    settings.path.unlink()
    settings.password_path.unlink()  # type: ignore[union-attr]
    with pytest.raises(BadInput, match="keys exists"):
        create(settings.path.parent, InitPlan(security="curve"))


def test_a_fresh_start_keeps_the_keys(settings: Settings) -> None:
    renewed = renew_identities(settings)
    assert renewed.security == settings.security
    assert {server.public_key for server in renewed.servers.values()} == {
        server.public_key for server in settings.servers.values()
    }
    renewed.check_secrets()


# -- the list of clients ---------------------------------------------------------------------------


def test_clients_come_and_go(security: SecuritySettings) -> None:
    bob, path = authorise(security, "bob", "write")
    assert path == security.directory / "bob.secret"
    assert security.client_key(str(path)).public == bob.key
    assert [(client.name, client.role) for client in read_clients(security.clients_path)] == [
        ("admin", Role.ADMIN),
        ("bob", Role.WRITE),
    ]
    revoke(security, "bob")
    assert [client.name for client in read_clients(security.clients_path)] == ["admin"]
    with pytest.raises(BadInput, match=r"bob\.secret exists"):  # the owner may still have it
        authorise(security, "bob", "write")
    assert [client.name for client in read_clients(security.clients_path)] == ["admin"]


@pytest.mark.parametrize(
    ("name", "role", "said"),
    [
        ("admin", "read", "already"),
        ("bob", "king", "one of read, write, reconfigure, admin"),
        ("../bob", "read", "letters"),
        ("", "read", "letters"),
    ],
)
def test_impossible_clients_are_not_made(
    security: SecuritySettings, name: str, role: str, said: str
) -> None:
    before = sorted(security.directory.iterdir()), security.clients_path.read_bytes()
    with pytest.raises(BadInput, match=said):
        authorise(security, name, role)
    assert (sorted(security.directory.iterdir()), security.clients_path.read_bytes()) == before


def test_the_names_of_processes_are_not_taken(security: SecuritySettings) -> None:
    for id in ("s0", "r0", "decisions"):
        with pytest.raises(BadInput, match="never overwritten"):
            authorise(security, id, "admin")


def test_an_unknown_client_cannot_be_revoked(security: SecuritySettings) -> None:
    with pytest.raises(BadInput, match="no client is called 'bob'; authorised: admin"):
        revoke(security, "bob")


def test_the_last_administrator_is_revoked_only_on_purpose(security: SecuritySettings) -> None:
    with pytest.raises(
        BadInput, match=r"admin is the last client with the role admin.*nothing was changed"
    ):
        revoke(security, "admin")
    authorise(security, "second", "admin")
    revoke(security, "admin")
    revoke(security, "second", allow_no_admin=True)
    assert read_clients(security.clients_path) == []


def test_a_secret_goes_where_there_is_a_directory(
    security: SecuritySettings, tmp_path: Path
) -> None:
    with pytest.raises(
        BadInput, match=r"no directory .*missing to write bob\.secret in; nothing was made"
    ):
        authorise(security, "bob", "read", tmp_path / "missing" / "bob.secret")
    assert [client.name for client in read_clients(security.clients_path)] == ["admin"]
    assert not (tmp_path / "missing").exists()


KEY = "ab" * 32


def client_table(name: str = "a", role: str = "read", key: str = KEY) -> str:
    return f'[[client]]\nname = "{name}"\nrole = "{role}"\nkey = "{key}"\n'


BAD_LISTS = {
    "not TOML": ("[[", "expected"),
    "an unknown field": (client_table() + "rank = 1", "rank"),
    "no role": (f'[[client]]\nname = "a"\nkey = "{KEY}"', "role"),
    "an unknown role": (client_table(role="king"), "one of read, write, reconfigure, admin"),
    "no key": (client_table(key="abc"), "64 characters"),
    "a name twice": (client_table() + client_table(key="cd" * 32), "the name a"),
    "a key twice": (client_table() + client_table("b", "admin"), "the key"),
}


@pytest.mark.parametrize("kind", BAD_LISTS)
def test_a_bad_list_starts_nothing_and_says_where(
    security: SecuritySettings, settings: Settings, kind: str
) -> None:
    text, said = BAD_LISTS[kind]
    security.clients_path.write_text(text)
    with pytest.raises(BadInput, match=said) as refused:
        guard_of(settings, "s0", settings.servers[ServerId("s0")].public_key)
    assert str(refused.value).startswith(str(security.clients_path))


def test_a_list_that_others_can_write_starts_nothing(security: SecuritySettings) -> None:
    security.clients_path.chmod(0o664)
    with pytest.raises(BadInput, match=r"authorise themselves: chmod 644"):
        AuthorisedClients(security.clients_path)


def test_a_list_that_others_can_replace_starts_nothing(security: SecuritySettings) -> None:
    security.directory.chmod(0o777)
    with pytest.raises(
        BadInput,
        match=rf"other users can replace the file .* there: chmod go-w {security.directory}",
    ):
        AuthorisedClients(security.clients_path)
    security.directory.chmod(0o1777)
    AuthorisedClients(security.clients_path)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def sender(key: str) -> KeyedSender:
    made = KeyedSender()
    made.key = key
    return made


def test_a_changed_list_is_seen_within_a_second_and_a_new_client_at_once(
    security: SecuritySettings,
) -> None:
    clock = Clock()
    clients = AuthorisedClients(security.clients_path, clock)
    bob, _ = authorise(security, "bob", "read")
    assert clients.client(sender(bob.key)) == bob
    assert clients.admits(bob.key, "127.0.0.1")
    revoke(security, "bob")
    clock.now_s = 0.9
    assert clients.client(sender(bob.key)) == bob
    clock.now_s = 1.1
    assert clients.client(sender(bob.key)) is None
    assert not clients.admits(bob.key, "127.0.0.1")
    assert clients.unknown_keys == 1


def test_the_clusters_own_processes_are_clients_whatever_the_list_says(
    security: SecuritySettings, settings: Settings
) -> None:
    clock = Clock()
    clients = AuthorisedClients(security.clients_path, clock, processes_as_clients(settings))
    s0, r0 = settings.servers[ServerId("s0")], settings.members[ServerId("r0")]
    for clock.now_s in (0.0, 2.0):
        assert clients.client(sender(s0.public_key)) == AuthorisedClient(
            "s0", s0.public_key, Role.READ, "s0"
        )
        assert clients.client(sender(r0.public_key)) == AuthorisedClient(
            "r0", r0.public_key, Role.RECONFIGURE
        )
        security.clients_path.write_text("")
    write_clients(
        security.clients_path, [AuthorisedClient("the-server", s0.public_key, Role.WRITE)]
    )
    clock.now_s = 4.0
    assert clients.client(sender(s0.public_key)) == AuthorisedClient(
        "the-server", s0.public_key, Role.WRITE, "s0"
    )
    assert clients.unknown_keys == 0


def test_a_sender_without_a_key_is_no_known_client(security: SecuritySettings) -> None:
    assert AuthorisedClients(security.clients_path).client(b"connection") is None


@pytest.mark.parametrize("slip", ["[[client", None])
def test_a_list_that_becomes_unreadable_changes_nothing(
    security: SecuritySettings, slip: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    clients = AuthorisedClients(security.clients_path, clock)
    [admin] = read_clients(security.clients_path)
    whole = security.clients_path.read_text()
    security.clients_path.unlink()
    if slip is not None:
        security.clients_path.write_text(slip)
    for clock.now_s in (2.0, 4.0, 6.0):
        assert clients.client(sender(admin.key)) == admin
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    security.clients_path.write_text(whole.replace('"admin"\nkey', '"read"\nkey'))
    clock.now_s = 8.0
    assert clients.client(sender(admin.key)) == AuthorisedClient("admin", admin.key, Role.READ)


# -- the cluster file ------------------------------------------------------------------------------


def without(settings: Settings, line: str) -> str:
    text = settings.path.read_text()
    [found] = [each for each in text.splitlines(keepends=True) if each.startswith(line)][:1]
    return text.replace(found, "", 1)


@pytest.mark.parametrize("line", ["public_key", "decision_key"])
def test_keys_that_are_missing_are_refused(settings: Settings, line: str) -> None:
    with pytest.raises(BadInput, match=f"{line}: expected .* but missing"):
        Settings.parse(without(settings, line), settings.path)


def test_keys_without_security_are_refused(settings: Settings) -> None:
    with pytest.raises(BadInput, match=r"server\[0\].public_key: expected only with security"):
        Settings.parse(without(settings, "security"), settings.path)


def test_two_servers_with_one_key_are_refused(settings: Settings) -> None:
    one, two = (settings.servers[ServerId(id)].public_key for id in ("s0", "s1"))
    with pytest.raises(BadInput, match=r"server\[1\].public_key: expected one of its own"):
        Settings.parse(settings.path.read_text().replace(two, one), settings.path)


def test_decisions_of_an_etcd_cannot_be_certified(tmp_path: Path) -> None:
    settings = create(tmp_path / "cluster", InitPlan(consensus=0, security="curve"))
    text = settings.path.read_text() + '\n[etcd]\nendpoints = ["127.0.0.1:2379"]\n'
    with pytest.raises(BadInput, match=r"etcd: expected \[\[consensus\]\] tables with security"):
        Settings.parse(text, settings.path)


def test_addresses_that_others_can_reach_take_a_choice(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--security curve, .* --security none"):
        create(tmp_path / "cluster", InitPlan(host="10.0.0.1"))
    assert (
        create(tmp_path / "cluster", InitPlan(host="10.0.0.1", security="curve")).security
        is not None
    )


def test_a_cluster_without_keys_is_as_it_was(tmp_path: Path) -> None:
    settings = create(tmp_path / "cluster", InitPlan())
    assert settings.security is None
    assert not (tmp_path / "cluster" / "keys").exists()
    assert "key" not in settings.path.read_text().replace("No keys", "")
    assert guard_of(settings, "s0", "") == (guard_of(settings, "s1", ""))
    assert all("/" not in server.address for server in settings.book().values())


def test_c0_has_no_keys_in_it(settings: Settings) -> None:
    """A server's key can therefore change without a change of c0, which is for ever."""
    assert all("/" not in server.address for server in settings.initial.servers)
    other = SecretKey.generate().public
    changed = Settings.parse(
        settings.path.read_text().replace(settings.servers[ServerId("s0")].public_key, other),
        settings.path,
    )
    assert changed.initial.id == settings.initial.id
    assert changed.book()[ServerId("s0")].address.endswith(other)


# -- which key a client uses -----------------------------------------------------------------------


async def test_a_client_without_a_key_is_told_how_to_give_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARES_KEY", raising=False)
    settings.path.write_text(without(settings, 'key = "keys/admin'))
    with pytest.raises(BadInput, match="give --key FILE, set ARES_KEY"):
        await connect(settings.path)


@pytest.mark.parametrize("way", ["variable", "argument"])
async def test_a_key_in_place_of_its_file_is_refused_without_showing_it(
    settings: Settings, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = SecretKey.generate().secret.hex()
    monkeypatch.setenv("ARES_KEY", secret if way == "variable" else "")
    with pytest.raises(BadInput, match="found the key itself") as refused:
        await connect(settings.path, key=secret if way == "argument" else None)
    assert secret not in str(refused.value)


async def test_the_key_that_is_given_is_used(
    settings: Settings, security: SecuritySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {name: authorise(security, name, "read")[1] for name in ("variable", "argument")}
    monkeypatch.delenv("ARES_KEY", raising=False)

    async def used(**arguments: Path) -> str:
        manager = await connect(settings.path, **arguments)
        await manager.close()
        return manager._runner._connections._secret.public  # type: ignore[attr-defined, no-any-return]

    names = {client.key: client.name for client in read_clients(security.clients_path)}
    assert names[await used()] == "admin"
    monkeypatch.setenv("ARES_KEY", str(paths["variable"]))
    assert names[await used()] == "variable"
    assert names[await used(key=paths["argument"])] == "argument"
    assert SharedOptions(cluster=settings.path).settings().client.key == str(paths["variable"])
    assert SharedOptions(
        cluster=settings.path, key_file=paths["argument"]
    ).settings().client.key == str(paths["argument"])


def test_a_key_for_a_cluster_without_keys_is_refused(tmp_path: Path) -> None:
    settings = create(tmp_path / "cluster", InitPlan())
    with pytest.raises(BadInput, match="has no keys"):
        SharedOptions(cluster=settings.path, key_file=tmp_path / "some").settings()
