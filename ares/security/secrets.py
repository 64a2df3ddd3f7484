"""Secrets that the cluster file names by the path of a file, so that the cluster file itself can be read by everybody."""

import os
import re
from pathlib import Path

from ares.machine.durable_files import make_directory
from ares.machine.named_files import read_named, refuse
from ares.machine.ownership import is_foreign
from ares.model.errors import BadInput

SECRET_BYTES_MAX = 4096
_SUFFIXES = (".secret", ".password", ".toml", ".pem", ".crt", ".key")
_ANYTHING = re.compile(r"[^\0]*")


def read_secret(cluster_file: Path, key: str, path: Path, what: str, shape: re.Pattern[str] = _ANYTHING, anybodys: bool = False) -> str:
    """The secret in the file at ``path``, without spaces around it; ``what`` says whose it is, ``shape`` what it looks like.

    ``anybodys``: the file may belong to another user, who then knows it.

    Raises :class:`ares.BadInput`, naming the cluster file and ``key`` but never the secret, when the file is missing, empty, readable by
    others, another user's or of another shape.
    """
    if "\0" in str(path):
        refuse(cluster_file, key, "expected the path of a file, and found what is none")
    try:
        content, status = read_named(path, SECRET_BYTES_MAX)  # the status of this very file, whatever has the name a moment later
        if is_foreign(status) and not anybodys:
            why = f"belongs to another user ({status.st_uid}), who knows it: make another secret, in a file of your own"
            refuse(cluster_file, key, f"expected a file of the user who runs this, and {path} {why}")
        if (mode := status.st_mode & 0o777) & 0o077:
            refuse(cluster_file, key, f"expected a file that only its owner can read, and {path} has mode {mode:o}: chmod 600 {path}")
        text = content.decode("utf-8").strip()
    except OSError as error:
        refuse(cluster_file, key, f"{shown(path)} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        refuse(cluster_file, key, f"expected a text file in UTF-8, and {path} is none")
    if not text:
        refuse(cluster_file, key, f"expected {what}, and {path} is empty")
    if not shape.fullmatch(text):
        refuse(cluster_file, key, f"expected {what}, and {path} holds something else")
    return text


def shown(path: Path) -> str:
    """``path`` for an error about it, unless somebody may have written a secret where its path belongs.

    That is so where nothing is there, and neither its name nor its directory is one of those that this project gives.
    """
    try:
        os.lstat(path)
    except OSError:
        if not path.parent.is_dir() or path.suffix not in _SUFFIXES:
            return f"the file that is named there, which is not in {path.parent}," if path.parent.is_dir() else "the file that is named there"
    return str(path)


def write_secret(path: Path, text: str) -> None:
    """Make the file, readable by its owner only and durable, in a directory that others cannot look into.

    Raises :class:`BadInput` when there is such a file already: it is never followed or replaced.
    """
    try:
        make_directory(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise BadInput(f"{path} exists, and a secret is never overwritten: if it is not needed any more, remove it yourself") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from error
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, 0o600)
        file.write(f"{text}\n")
        file.flush()
        os.fsync(descriptor)
