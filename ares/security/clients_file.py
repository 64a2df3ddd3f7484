"""The file of authorised clients, with their rights. It holds public keys only.

Servers and consensus members check the file for changes, at most once a second: a new key works and
a revoked key stops without a restart. An unreadable new version changes no rights, and is logged: a
typing error must not shut all clients out.
"""

import contextlib
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ares.model.errors import BadInput
from ares.model.messages import Role
from ares.platform.file_lock import lock_directory
from ares.platform.json_logs import is_worth_a_line
from ares.platform.named_files import NotToml, parse_toml, read_named
from ares.platform.replacement import replace_durably
from ares.platform.trusted_files import require_own
from ares.security.keys import SecretKey, is_key, shown

ROLE_OF_NAME = {role.name.lower(): role for role in Role}

CLIENTS_LOOK_S = 1.0
CLIENTS_FORMAT = 1
CLIENTS_BYTES_MAX = 4 << 20
CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CLIENT_NAME_EXPECTED = (
    "letters, digits, '.', '_' and '-' (ASCII, at most 64, a letter or digit first)"
)

_CLIENTS_HEAD = """\
# Clients that may connect to this cluster, and their roles: read, write, reconfigure, admin. Each
# role includes the roles before it. `ares-cli keys` writes this file; servers read a changed file
# within a second. Every machine of the cluster needs the same file.
format = 1
"""
_CLIENT_TABLE = """
[[client]]
name = "{name}"
role = "{role}"
key = "{key}"
"""

_log = logging.getLogger(__name__)


class AuthorisedClient(Struct, frozen=True):
    """An authorised client.

    ``name`` is for people, ``key`` is the public key (hex) proved by the client. ``server``: the id
    of the server with this key; empty for other clients.
    """

    name: str
    key: str
    role: Role
    server: str = ""


class _ClientTable(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    role: str
    key: str


class _ClientsTable(Struct, frozen=True, forbid_unknown_fields=True):
    format: int = CLIENTS_FORMAT
    client: list[_ClientTable] = []


def read_clients(path: Path, managed: bool = False) -> list[AuthorisedClient]:
    """Return the clients in the file.

    ``managed``: the file is read for display or change, may have any owner, and admits no client.
    Raises :class:`BadInput` naming the file and the fault.
    """
    try:
        data, status = read_named(path, CLIENTS_BYTES_MAX, streams=False)
        require_own(
            path, status, "file of authorised clients", "authorise themselves", anybodys=managed
        )
        text = data.decode("utf-8")
    except OSError as error:
        raise BadInput(
            f"{shown(path)}: the file of authorised clients cannot be read: {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: expected a text file in UTF-8: the file of authorised clients cannot be read"
        ) from error
    try:
        content = parse_toml(text)
        if content.get("format", CLIENTS_FORMAT) != CLIENTS_FORMAT:
            why = (
                f"format: expected {CLIENTS_FORMAT}, found {content['format']}: the file was "
                "written by another release of ares"
            )
            raise BadInput(f"{path}: {why}; use that one, or a newer one")
        tables = msgspec.convert(content, _ClientsTable).client
    except (NotToml, msgspec.ValidationError) as error:
        raise BadInput(
            f"{path}: expected [[client]] tables of name, role and key: {error}"
        ) from error
    clients = []
    for index, table in enumerate(tables):
        if not CLIENT_NAME.fullmatch(table.name):
            raise BadInput(
                f"{path}: client[{index}].name: expected {CLIENT_NAME_EXPECTED}, found "
                f"{table.name!r}"
            )
        if table.role not in ROLE_OF_NAME:
            raise BadInput(
                f"{path}: client[{index}].role: expected one of {', '.join(ROLE_OF_NAME)}, found "
                f"{table.role!r}"
            )
        if not is_key(table.key):
            raise BadInput(
                f"{path}: client[{index}].key: expected a public key, 64 characters 0-9a-f"
            )
        clients.append(AuthorisedClient(table.name, table.key, ROLE_OF_NAME[table.role]))
    names, keys = (
        Counter(client.name for client in clients),
        Counter(client.key for client in clients),
    )
    for client in clients:
        if names[client.name] > 1:
            raise BadInput(f"{path}: two clients have the name {client.name}")
        if keys[client.key] > 1:
            raise BadInput(f"{path}: two clients have the key of {client.name}")
    return clients


def write_clients(path: Path, clients: Iterable[AuthorisedClient]) -> None:
    """Write the file; after any failure the file holds the old clients or the new clients."""
    text = _CLIENTS_HEAD + "".join(
        _CLIENT_TABLE.format(name=client.name, role=client.role.name.lower(), key=client.key)
        for client in clients
    )
    replace_durably(path, text, exact=True)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait for the exclusive right to change the file, and hold it.

    Raises :class:`BadInput` if the file's directory is missing.
    """
    try:
        lock = lock_directory(path.parent)
    except OSError as error:
        raise BadInput(
            f"{path.parent}: {error.strerror}: the keys are managed where the cluster was made"
        ) from error
    try:
        yield
    finally:
        os.close(lock)


class KeyedSender:
    """The sender of a batch on a connection whose client has proved to own ``key`` (hex)."""

    key: str = ""


class AuthorisedClients:
    """The file as seen by a running process.

    ``extra``: clients authorised in addition, by key; for a key in both the file counts. Raises
    :class:`BadInput` if the file cannot be used at all.
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        extra: Mapping[str, AuthorisedClient] | None = None,
    ) -> None:
        self.unknown_keys = 0
        self._path = path
        self._clock = clock
        self._extra = dict(extra or {})
        self._looked_at_s = clock()
        self._seen = self._signature()
        self._clients = self._read()

    def _read(self) -> dict[str, AuthorisedClient]:
        """Read the file; a server's key stays the server's under any name and role in the file."""
        extra = self._extra
        listed = [
            replace(client, server=extra[client.key].server) if client.key in extra else client
            for client in read_clients(self._path)
        ]
        return extra | {client.key: client for client in listed}

    def client(self, sender: Hashable) -> AuthorisedClient | None:
        """Return the sender of a batch; None if the key is not authorised (any more)."""
        return self._known(sender.key) if isinstance(sender, KeyedSender) else None

    def admits(self, key: str, address: str) -> bool:
        """Return whether a client with this public key (hex) may connect; count refusals."""
        if self._known(key) is not None:
            return True
        self.unknown_keys += 1
        if is_worth_a_line(self.unknown_keys):
            _log.warning(
                "an unknown key was refused (%d so far)",
                self.unknown_keys,
                extra={"key": key, "address": address},
            )
        return False

    def _known(self, key: str) -> AuthorisedClient | None:
        """Return the client with this key, by the file as of at most a second ago.

        For a key missing in memory the file is checked at once: the key may have been entered just
        now.
        """
        now_s = self._clock()
        if now_s - self._looked_at_s >= CLIENTS_LOOK_S or key not in self._clients:
            self._looked_at_s = now_s
            signature = self._signature()
            if signature != self._seen:
                self._seen = signature
                try:
                    self._clients = self._read()
                    _log.info("the authorised clients changed: %d now", len(self._clients))
                except BadInput as error:
                    _log.error("the authorised clients stay as they were: %s", error)
        return self._clients.get(key)

    def _signature(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)


Sender = TypeVar("Sender", bound=Hashable)


class Lock:
    """The security of a server with keys: its own key, and the admitted clients.

    The same for any transport.
    """

    def __init__(self, key: SecretKey, clients: AuthorisedClients) -> None:
        self.key = key
        self.clients = clients

    def revoked(self, senders: Iterable[Sender]) -> list[Sender]:
        """Return the connected clients which would not be admitted now."""
        admits = self.clients.admits
        return [
            sender
            for sender in senders
            if isinstance(sender, KeyedSender)
            and sender.key
            and not admits(sender.key, "connected before")
        ]
