"""What the cluster file says about keys: everybody's public ones, and where the secret ones are.

The file itself holds no secret and can be handed out. In the directory of keys, by default ``keys`` beside the file, a machine needs the secrets of
the processes that run there, and ``clients.toml``.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from ares.cluster.tables import ClientSettings, FileTable
from ares.machine.named_files import refuse
from ares.machine.ownership import require_own
from ares.model.identity import ServerId
from ares.security.clients_file import read_clients
from ares.security.keys import SecretKey, SigningKey, is_key, may_be_key, read_key

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
        require_own(self.file, self.file.stat(), "cluster file", "say whose keys are believed", group=True)
        key = SecretKey(read_key(self.file, f"the key of {id}", self.secret_path(id), id))
        if key.public != public_key:
            refuse(self.file, f"the key of {id}", f"{self.secret_path(id)} does not belong to its public_key in this file")
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
        if may_be_key(Path(path).name) and not _is_there(path):  # a slip that must not be repeated in an error
            why = "expected the path of a file that holds it, and was given what looks like the key itself: write it into a file of mode 600"
            refuse(self.file, "the client's key (--key, ARES_KEY or client.key)", why)
        return SecretKey(read_key(self.file, "the client's key (--key, ARES_KEY or client.key)", Path(path), "the client", anybodys=True))


def security_settings(path: Path, file: FileTable) -> SecuritySettings | None:
    """What the file says, None for a cluster without keys. Raises :class:`ares.BadInput`."""
    processes = file.processes()
    if file.security != "curve":
        given = [f"{key}.public_key" for key, table in processes if table.public_key is not None]
        given += [key for key in ("keys", "decision_key") if getattr(file, key) is not None]
        given += [] if file.client.key is None else ["client.key"]
        if given:
            refuse(path, given[0], 'expected only with security = "curve": keys that nobody asks for secure nothing')
        return None
    if file.etcd is not None:
        why = "servers take only decisions that consensus members of the cluster's own have signed, and etcd signs nothing"
        refuse(path, "etcd", f'expected [[consensus]] tables with security = "curve": {why}')
    seen: dict[str, str] = {}
    for key, table in processes:
        if table.public_key is None or not is_key(table.public_key):
            refuse(path, f"{key}.public_key", f"expected a public key, 64 characters 0-9a-f, {_found(table.public_key)}")
        if table.public_key in seen:
            refuse(path, f"{key}.public_key", f"expected one of its own, but it is also {seen[table.public_key]}'s")
        if table.id == DECISIONS_ID:
            refuse(path, f"{key}.id", f"expected another name: {DECISIONS_ID} is what the key is called that decisions are signed with")
        seen[table.public_key] = key
    if file.consensus and (file.decision_key is None or not is_key(file.decision_key)):
        refuse(path, "decision_key", f"expected the public key that decisions are signed with, 64 characters 0-9a-f, {_found(file.decision_key)}")
    return SecuritySettings(path.absolute(), path.absolute().parent / (file.keys or KEYS_NAME), file.decision_key or "")


def located(path: Path, client: ClientSettings) -> ClientSettings:
    """``client`` with the path of its key seen from the cluster file at ``path``."""
    return client if client.key is None else msgspec.structs.replace(client, key=str(path.absolute().parent / client.key))


def _is_there(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a zero in its name
        return False


def _found(value: str | None) -> str:
    """Never the value: a secret key may stand there by mistake."""
    return "but missing" if value is None else f"found something else, of {len(value)}"
