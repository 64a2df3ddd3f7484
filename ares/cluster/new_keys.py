"""New keys: of a new cluster, told to its file and written beside it, and of its clients later on."""

from collections.abc import Iterable
from pathlib import Path

from ares.cluster.security_settings import CLIENTS_NAME, DECISIONS_ID, KEYS_NAME, SecuritySettings
from ares.model.errors import BadInput
from ares.security.clients_file import NAME, alone, read_clients, write_clients
from ares.security.keys import SecretKey, SigningKey
from ares.security.roles import ROLES, Client, Role
from ares.security.secrets import write_secret

FIRST_CLIENT = "admin"


class NewKeys:
    """A pair for each of ``processes`` and for the first client, and one to sign decisions with if there are ``members`` to do so."""

    def __init__(self, processes: Iterable[str], members: int) -> None:
        self._pairs = {id: SecretKey.generate() for id in processes}
        self._client = SecretKey.generate()
        self._decisions = SigningKey.generate() if members else None

    def public_key(self, id: str) -> str:
        """Of a server or consensus member."""
        return self._pairs[id].public

    @property
    def decision_key(self) -> str | None:
        return None if self._decisions is None else self._decisions.public

    def write(self, cluster_directory: Path) -> None:
        """Raises :class:`ares.BadInput` rather than replace a secret."""
        directory = cluster_directory / KEYS_NAME
        for id, pair in [*self._pairs.items(), (FIRST_CLIENT, self._client)]:
            write_secret(directory / f"{id}.secret", pair.secret.hex())
        if self._decisions is not None:
            write_secret(directory / f"{DECISIONS_ID}.secret", self._decisions.secret.hex())
        write_clients(directory / CLIENTS_NAME, [Client(FIRST_CLIENT, self._client.public, Role.ADMIN)])


def authorise(security: SecuritySettings, name: str, role: str, secret_path: Path | None = None) -> tuple[Client, Path]:
    """Make a key for a new client and enter it in the list; the client, and where its secret is now.

    Raises :class:`BadInput`, with nothing made, for a name that is taken or impossible, an unknown role, or a secret that would be overwritten or
    has no directory to be in.
    """
    if not NAME.fullmatch(name):
        raise BadInput(f"a client's name has letters, digits, '.', '_' and '-' (at most 64), unlike {name!r}; nothing was made")
    if role not in ROLES:
        raise BadInput(f"a role is one of {', '.join(ROLES)}, not {role!r}; nothing was made")
    path = secret_path or security.secret_path(name)
    if not path.parent.is_dir():
        raise BadInput(f"there is no directory {path.parent} to write {path.name} in; nothing was made")
    with alone(security.clients_path):
        clients = read_clients(security.clients_path, managed=True)
        if any(client.name == name for client in clients):
            raise BadInput(f"there is a client {name!r} already: choose another name, or `ares-cli keys revoke {name}` first; nothing was made")
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
            raise BadInput(f"no client is called {name!r}; authorised: {known}; nothing was changed")
        admins = [client.name for client in clients if client.role is Role.ADMIN]
        if admins == [name] and not allow_no_admin:
            why = f"{name} is the last client with the role admin: nobody could have servers scrub or log more any longer"
            raise BadInput(f"{why}. `ares-cli keys new NAME --role admin` makes another first; or say --allow-no-admin; nothing was changed")
        write_clients(security.clients_path, left)
