"""The keys of a cluster: public keys in the cluster file, secret keys, and new keys.

The cluster file holds no secret and can be handed out. In the directory of keys, by default
``keys`` beside the file, a machine needs the secrets of the processes that run on this machine, and
``clients.toml``.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from ares.cluster.tables import FileTable
from ares.model.errors import BadInput
from ares.model.identity import ServerId
from ares.model.messages import Role
from ares.platform.named_files import refuse
from ares.platform.trusted_files import require_own
from ares.security.clients_file import (
    CLIENT_NAME,
    CLIENT_NAME_EXPECTED,
    ROLE_OF_NAME,
    AuthorisedClient,
    alone,
    read_clients,
    write_clients,
)
from ares.security.keys import SecretKey, SigningKey, is_key, may_be_key, read_key, write_secret

FIRST_CLIENT = "admin"
KEYS_NAME = "keys"
CLIENTS_NAME = "clients.toml"
DECISIONS_ID = "decisions"
"""A name forbidden for processes and clients: the name of the secret that signs decisions."""


class SecuritySettings(Struct, frozen=True):
    """The security of a cluster.

    ``directory``: the directory of secrets and of the list of clients. ``decision_key``: public;
    empty without consensus members. A method that reads a secret raises :class:`ares.BadInput` if
    the secret's file is missing, readable by other users, or malformed.
    """

    file: Path
    directory: Path
    decision_key: str

    @property
    def clients_path(self) -> Path:
        return self.directory / CLIENTS_NAME

    def secret_path(self, id: str) -> Path:
        """Return the path of the secret of a process or client."""
        return self.directory / f"{id}.secret"

    def process_key(self, id: str, public_key: str) -> SecretKey:
        """Return the key pair of a server or consensus member.

        The cluster file must be protected: a user who may write the file decides which keys are
        believed.
        """
        require_own(
            self.file,
            self.file.stat(),
            "cluster file",
            "name the clients whose keys are accepted",
            group=True,
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
        """Return the key pair that signs decisions."""
        path = self.secret_path(DECISIONS_ID)
        key = SigningKey(read_key(self.file, "decision_key", path, "the consensus members"))
        if key.public != self.decision_key:
            refuse(self.file, "decision_key", f"{path} does not belong to it")
        return key

    def check(self, public_keys: Mapping[ServerId, str]) -> None:
        """Read all secrets needed by processes with these ids and public keys."""
        for id, public_key in public_keys.items():
            self.process_key(id, public_key)
        if self.decision_key:
            self.signing_key()
        read_clients(self.clients_path)

    def client_key(self, path: str | None) -> SecretKey:
        """Return the key pair of this client."""
        if path is None:
            why = (
                "this cluster knows its clients by their keys: give --key FILE, set ARES_KEY, or "
                "write key = 'FILE' under [client]"
            )
            refuse(self.file, "client.key", f"{why}. `ares-cli keys new` makes keys")
        if may_be_key(Path(path).name) and not os.path.lexists(path):
            # a slip; the error must not repeat the secret
            why = (
                "expected the path of a file with the key, and found the key itself: write the "
                "key into a file of mode 600"
            )
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
    """Return the security of the cluster file, or None for a cluster without keys.

    Raises :class:`ares.BadInput`.
    """
    processes = file.processes()
    if file.security != "curve":
        given = [f"{key}.public_key" for key, table in processes if table.public_key]
        given += [key for key in ("keys", "decision_key") if getattr(file, key) is not None]
        given += [] if file.client.key is None else ["client.key"]
        if given:
            refuse(
                path,
                given[0],
                'expected only with security = "curve": keys that no process checks secure nothing',
            )
        return None
    if file.etcd is not None:
        why = (
            "servers take only decisions that consensus members of the cluster's own have signed, "
            "and etcd signs nothing"
        )
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
                f"expected another name: {DECISIONS_ID} is the name of the key that signs "
                "decisions",
            )
        seen[table.public_key] = key
    if file.consensus and (file.decision_key is None or not is_key(file.decision_key)):
        refuse(
            path,
            "decision_key",
            "expected the public key that decisions are signed with, 64 characters 0-9a-f, "
            f"{_found(file.decision_key)}",
        )
    return SecuritySettings(
        path.absolute(), path.absolute().parent / (file.keys or KEYS_NAME), file.decision_key or ""
    )


def _found(value: str | None) -> str:
    """Describe a wrong value without repeating it: the value may be a secret key by mistake."""
    return "but missing" if value is None else f"found another value, of {len(value)}"


def new_keys(processes: Iterable[str], members: int) -> dict[str, SecretKey | SigningKey]:
    """Return a key pair for each of ``processes`` and for the first client.

    With consensus members, also a pair for the signing of decisions.
    """
    keys: dict[str, SecretKey | SigningKey] = {
        id: SecretKey.generate() for id in [*processes, FIRST_CLIENT]
    }
    return keys | {DECISIONS_ID: SigningKey.generate()} if members else keys


def write_keys(keys: Mapping[str, SecretKey | SigningKey], cluster_directory: Path) -> None:
    """Write the secrets and the list of clients.

    Raises :class:`ares.BadInput` rather than replace a secret.
    """
    directory = cluster_directory / KEYS_NAME
    for id, pair in keys.items():
        write_secret(directory / f"{id}.secret", pair.secret.hex())
    write_clients(
        directory / CLIENTS_NAME,
        [AuthorisedClient(FIRST_CLIENT, keys[FIRST_CLIENT].public, Role.ADMIN)],
    )


def authorise(
    security: SecuritySettings, name: str, role: str, secret_path: Path | None = None
) -> tuple[AuthorisedClient, Path]:
    """Make a key for a new client and enter the client in the list.

    Returns the client and the path of its secret. Raises :class:`BadInput`, with nothing made, for
    a name that is taken or impossible, an unknown role, or a secret that would be overwritten or
    whose directory is missing.
    """
    if not CLIENT_NAME.fullmatch(name):
        raise BadInput(
            f"a client's name has {CLIENT_NAME_EXPECTED}, unlike {name!r}; nothing was made"
        )
    if role not in ROLE_OF_NAME:
        raise BadInput(
            f"a role is one of {', '.join(ROLE_OF_NAME)}, not {role!r}; nothing was made"
        )
    path = secret_path or security.secret_path(name)
    if not path.parent.is_dir():
        raise BadInput(
            f"there is no directory {path.parent} to write {path.name} in; nothing was made"
        )
    with alone(security.clients_path):
        clients = read_clients(security.clients_path, managed=True)
        if any(client.name == name for client in clients):
            raise BadInput(
                f"there is a client {name!r} already: choose another name, or `ares-cli keys "
                f"revoke {name}` first; nothing was made"
            )
        pair = SecretKey.generate()
        client = AuthorisedClient(name, pair.public, ROLE_OF_NAME[role])
        write_secret(path, pair.secret.hex())
        write_clients(security.clients_path, [*clients, client])
    return client, path


def revoke(security: SecuritySettings, name: str, allow_no_admin: bool = False) -> None:
    """Remove a client from the list.

    Raises :class:`BadInput` if the client is not in the list, or if it is the last client with the
    role admin, unless ``allow_no_admin``.
    """
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
            why = (
                f"{name} is the last client with the role admin: no client could make servers "
                "scrub or change their log level any longer"
            )
            raise BadInput(
                f"{why}. `ares-cli keys new NAME --role admin` makes another first; or say "
                "--allow-no-admin; nothing was changed"
            )
        write_clients(security.clients_path, left)
