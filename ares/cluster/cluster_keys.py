"""The keys of a cluster: what the cluster file says of them, where the secret ones are, and how new ones are made.

The file itself holds no secret and can be handed out. In the directory of keys, by default ``keys`` beside the file, a machine needs the secrets of
the processes that run there, and ``clients.toml``.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from ares.cluster.tables import FileTable
from ares.machine.named_files import refuse
from ares.machine.trusted_files import require_own
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.security.clients_file import NAME, NAME_EXPECTED, alone, read_clients, write_clients
from ares.security.keys import SecretKey, SigningKey, is_key, may_be_key, read_key, write_secret
from ares.security.roles import ROLES, Client, Role

FIRST_CLIENT = "admin"
KEYS_NAME = "keys"
CLIENTS_NAME = "clients.toml"
DECISIONS_ID = "decisions"
"""What no process and no client can be called: its secret signs decisions."""


class SecuritySettings(Struct, frozen=True):
    """``directory``: where secrets are, and who the clients are. ``decision_key``: public; empty without consensus members.

    Every method that reads a secret raises :class:`ares.BadInput` when its file is missing, readable by others, or not what it should
    be.
    """

    file: Path
    directory: Path
    decision_key: str

    @property
    def clients_path(self) -> Path:
        return self.directory / CLIENTS_NAME

    def secret_path(self, id: str) -> Path:
        """Where the secret of a process or client is kept."""
        return self.directory / f"{id}.secret"

    def process_key(self, id: str, public_key: str) -> SecretKey:
        """The key pair of a server or consensus member. Who may write the cluster file decides whose keys are believed."""
        require_own(
            self.file, self.file.stat(), "cluster file", "say whose keys are believed", group=True
        )
        key = SecretKey(read_key(self.file, f"the key of {id}", self.secret_path(id), id))
        if key.public != public_key:
            refuse(
                self.file,
                f"the key of {id}",
                f"{self.secret_path(id)} does not belong to its public_key in this file",
            )
        return key

    def signing_key(self) -> SigningKey:
        """The key pair that decisions are signed with."""
        path = self.secret_path(DECISIONS_ID)
        key = SigningKey(read_key(self.file, "decision_key", path, "the consensus members"))
        if key.public != self.decision_key:
            refuse(self.file, "decision_key", f"{path} does not belong to it")
        return key

    def check(self, public_keys: Mapping[ServerId, str]) -> None:
        """Read all that processes with these ids and public keys need."""
        for id, public_key in public_keys.items():
            self.process_key(id, public_key)
        if self.decision_key:
            self.signing_key()
        read_clients(self.clients_path)

    def client_key(self, path: str | None) -> SecretKey:
        """The key pair of this client."""
        if path is None:
            why = "this cluster knows its clients by their keys: give --key FILE, set ARES_KEY, or write key = 'FILE' under [client]"
            refuse(self.file, "client.key", f"{why}. `ares-cli keys new` makes keys")
        if may_be_key(Path(path).name) and not os.path.lexists(
            path
        ):  # a slip that must not be repeated in an error
            why = "expected the path of a file that holds it, and was given what looks like the key itself: write it into a file of mode 600"
            refuse(self.file, "the client's key (--key, ARES_KEY or client.key)", why)
        return SecretKey(
            read_key(
                self.file,
                "the client's key (--key, ARES_KEY or client.key)",
                Path(path),
                "the client",
                anybodys=True,
            )
        )


def security_settings(path: Path, file: FileTable) -> SecuritySettings | None:
    """What the file says, None for a cluster without keys. Raises :class:`ares.BadInput`."""
    processes = file.processes()
    if file.security != "curve":
        given = [f"{key}.public_key" for key, table in processes if table.public_key]
        given += [key for key in ("keys", "decision_key") if getattr(file, key) is not None]
        given += [] if file.client.key is None else ["client.key"]
        if given:
            refuse(
                path,
                given[0],
                'expected only with security = "curve": keys that nobody asks for secure nothing',
            )
        return None
    if file.etcd is not None:
        why = "servers take only decisions that consensus members of the cluster's own have signed, and etcd signs nothing"
        refuse(path, "etcd", f'expected [[consensus]] tables with security = "curve": {why}')
    seen: dict[str, str] = {}
    for key, table in processes:
        if not is_key(table.public_key):
            refuse(
                path,
                f"{key}.public_key",
                f"expected a public key, 64 characters 0-9a-f, {_found(table.public_key or None)}",
            )
        if table.public_key in seen:
            refuse(
                path,
                f"{key}.public_key",
                f"expected one of its own, but it is also {seen[table.public_key]}'s",
            )
        if table.id == DECISIONS_ID:
            refuse(
                path,
                f"{key}.id",
                f"expected another name: {DECISIONS_ID} is what the key is called that decisions are signed with",
            )
        seen[table.public_key] = key
    if file.consensus and (file.decision_key is None or not is_key(file.decision_key)):
        refuse(
            path,
            "decision_key",
            f"expected the public key that decisions are signed with, 64 characters 0-9a-f, {_found(file.decision_key)}",
        )
    return SecuritySettings(
        path.absolute(), path.absolute().parent / (file.keys or KEYS_NAME), file.decision_key or ""
    )


def _found(value: str | None) -> str:
    """Never the value: a secret key may stand there by mistake."""
    return "but missing" if value is None else f"found something else, of {len(value)}"


def new_keys(processes: Iterable[str], members: int) -> dict[str, SecretKey | SigningKey]:
    """A pair for each of ``processes`` and for the first client, and one to sign decisions with if there are ``members`` to do so."""
    keys: dict[str, SecretKey | SigningKey] = {
        id: SecretKey.generate() for id in [*processes, FIRST_CLIENT]
    }
    return keys | {DECISIONS_ID: SigningKey.generate()} if members else keys


def write_keys(keys: Mapping[str, SecretKey | SigningKey], cluster_directory: Path) -> None:
    """Raises :class:`ares.BadInput` rather than replace a secret."""
    directory = cluster_directory / KEYS_NAME
    for id, pair in keys.items():
        write_secret(directory / f"{id}.secret", pair.secret.hex())
    write_clients(
        directory / CLIENTS_NAME, [Client(FIRST_CLIENT, keys[FIRST_CLIENT].public, Role.ADMIN)]
    )


def authorise(
    security: SecuritySettings, name: str, role: str, secret_path: Path | None = None
) -> tuple[Client, Path]:
    """Make a key for a new client and enter it in the list; the client, and where its secret is now.

    Raises :class:`BadInput`, with nothing made, for a name that is taken or impossible, an unknown role, or a secret that would be overwritten or
    has no directory to be in.
    """
    if not NAME.fullmatch(name):
        raise BadInput(f"a client's name has {NAME_EXPECTED}, unlike {name!r}; nothing was made")
    if role not in ROLES:
        raise BadInput(f"a role is one of {', '.join(ROLES)}, not {role!r}; nothing was made")
    path = secret_path or security.secret_path(name)
    if not path.parent.is_dir():
        raise BadInput(
            f"there is no directory {path.parent} to write {path.name} in; nothing was made"
        )
    with alone(security.clients_path):
        clients = read_clients(security.clients_path, managed=True)
        if any(client.name == name for client in clients):
            raise BadInput(
                f"there is a client {name!r} already: choose another name, or `ares-cli keys revoke {name}` first; nothing was made"
            )
        pair = SecretKey.generate()
        client = Client(name, pair.public, ROLES[role])
        write_secret(path, pair.secret.hex())
        write_clients(security.clients_path, [*clients, client])
    return client, path


def revoke(security: SecuritySettings, name: str, allow_no_admin: bool = False) -> None:
    """Take a client off the list. Raises :class:`BadInput` if it is not there, or the last one with the role admin and that is not allowed."""
    with alone(security.clients_path):
        clients = read_clients(security.clients_path, managed=True)
        left = [client for client in clients if client.name != name]
        if len(left) == len(clients):
            known = ", ".join(client.name for client in clients) or "nobody"
            raise BadInput(
                f"no client is called {name!r}; authorised: {known}; nothing was changed"
            )
        admins = [client.name for client in clients if client.role is Role.ADMIN]
        if admins == [name] and not allow_no_admin:
            why = f"{name} is the last client with the role admin: nobody could have servers scrub or log more any longer"
            raise BadInput(
                f"{why}. `ares-cli keys new NAME --role admin` makes another first; or say --allow-no-admin; nothing was changed"
            )
        write_clients(security.clients_path, left)
