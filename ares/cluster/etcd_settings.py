"""The cluster file's [etcd] table: an etcd that runs already keeps the decisions, in place of consensus members of this cluster's own."""

import re
from pathlib import Path

from msgspec import Struct

from ares.cluster.tables import EtcdTable, FileTable
from ares.machine.named_files import SETTINGS_BYTES_MAX, read_named, refuse
from ares.security.secrets import read_secret, shown

_PREFIX = re.compile(r"[A-Za-z0-9_./-]{1,200}")


class EtcdSettings(Struct, frozen=True):
    """How one etcd cluster is reached: members' addresses for clients (``host:port``), and what every key of ares in it begins with.

    With ``ca`` (PEM) connections are TLS; ``certificate`` and ``key`` then identify the client to an etcd that asks for it. ``user`` logs in with the
    password in the file ``password_path``. ``file`` is the cluster file, for errors.
    """

    file: Path
    endpoints: tuple[str, ...]
    prefix: str = "/ares"
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password_path: Path | None = None

    def password(self) -> str | None:
        """The user's password, None without a user. Raises :class:`ares.BadInput` when its file is missing, empty or readable by
        others."""
        if self.password_path is None:
            return None
        return read_secret(self.file, "etcd.password", self.password_path, "the password of the etcd user", anybodys=True)

    def pem(self, key: str, path: Path | None) -> bytes | None:
        """What the file of ``etcd.key`` holds, None for none. Raises :class:`ares.BadInput` when it cannot be read."""
        if path is None:
            return None
        try:
            return read_named(path, SETTINGS_BYTES_MAX)[0]
        except OSError as error:
            refuse(self.file, f"etcd.{key}", f"{shown(path)} cannot be read: {error.strerror}")


def etcd_settings(path: Path, file: FileTable) -> EtcdSettings | None:
    """What the table says, None if there is none. Raises :class:`ares.BadInput`; addresses are checked with all others (settings.py)."""
    table = file.etcd
    if table is None:
        return None
    if file.consensus:
        why = "expected either [[consensus]] tables or [etcd], found both: two services would decide apart from each other"
        refuse(path, "etcd", why)
    if file.consensus_password is not None:
        refuse(path, "consensus_password", "expected only with [[consensus]] tables, and here etcd decides")
    _check(path, table)
    home = path.absolute().parent
    files = {name: None if given is None else home / given for name, given in _files(table).items()}
    prefix = table.prefix.rstrip("/")
    return EtcdSettings(
        path.absolute(), tuple(table.endpoints), prefix, files["ca"], files["certificate"], files["key"], table.user, files["password"]
    )


def _files(table: EtcdTable) -> dict[str, str | None]:
    return {"ca": table.ca, "certificate": table.certificate, "key": table.key, "password": table.password}


def _check(path: Path, table: EtcdTable) -> None:
    if not table.endpoints:
        refuse(path, "etcd.endpoints", "expected the host:port of at least one member of an etcd cluster, found none")
    if not _PREFIX.fullmatch(table.prefix) or not table.prefix.strip("/"):
        refuse(path, "etcd.prefix", f"expected letters, digits, '/', '.', '_' and '-' (at most 200), found {table.prefix!r}")
    for name, given in _files(table).items():
        if given == "":
            refuse(path, f"etcd.{name}", "expected the path of a file, found ''")
    for one, other in (("certificate", "key"), ("key", "certificate"), ("certificate", "ca"), ("user", "password"), ("password", "user")):
        if getattr(table, one) is not None and getattr(table, other) is None:
            refuse(path, f"etcd.{other}", f"expected together with {one}, but missing")
