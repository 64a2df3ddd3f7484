"""A server's directory: who the server is, and that only one process is it.

A configuration names a server by its random identity, because a quorum counts on what that server once acknowledged: a server that has forgotten
that must never answer under the old identity. The first start in a directory claims the identity that the cluster file gives, durably, before
anything is served.

With state in memory, every later start finds that claim and takes a new random identity instead. Configurations that name the old one then count
the server as crashed, until a reconfiguration brings it back. With a store, the claim stands in the store as well, and a later start goes on under
it; where the claim is without its store, the server is refused until somebody says that it may forget.

The claim is as durable as the directory: a directory that was emptied by hand looks like a first start.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ares.errors import BadInput, ForeignStore, StoreLost

CLAIM_NAME = "identity"
STORE_NAME = "journal"
SCRUBBED_NAME = "scrubbed"
"""Holds the time of the last scrub."""
LOCK_NAME = "lock"


class Claim(Struct, frozen=True):
    """The identity (32 hex characters) to serve under. ``lost``: an earlier life of the server ended, and its state with it."""

    identity: str
    lost: bool


def new_identity() -> str:
    """A random identity: 32 hex characters."""
    return secrets.token_hex(16)


def was_claimed(directory: Path) -> bool:
    """Whether a server ever started in ``directory``."""
    return (directory / CLAIM_NAME).exists()


def claim_identity(directory: Path, identity_of_file: str) -> Claim:
    """Who the server in ``directory`` is from now on; on stable storage before this returns. Call it with the directory held.

    Raises :class:`BadInput` when the directory cannot be written.
    """
    with _refusing_unusable(directory):
        _make_directory(directory)
        lost = was_claimed(directory)
        identity = new_identity() if lost else identity_of_file
        _replace_durably(directory / CLAIM_NAME, f"{identity}\n")
    return Claim(identity, lost)


def store_identity(directory: Path, identity_of_file: str, forget: bool) -> Claim:
    """Who the server in ``directory`` is, if its store is there or it never ran; call it with the directory held. The store is ``directory``/journal.

    ``forget``: what is there of an earlier life is moved aside, and a new one begins; also if nothing is there, for that may be a lost disk. Without
    it a directory in which nothing is is taken for that of a server that never ran. Raises :class:`StoreLost`, :class:`ForeignStore` and
    :class:`BadInput`.
    """
    store = directory / STORE_NAME
    with _refusing_unusable(directory):
        _make_directory(directory)
        claimed = _read_claim(directory)
        if forget and store.exists():
            os.rename(store, store.with_name(f"{STORE_NAME}.{secrets.token_hex(4)}"))
        elif claimed is not None and _read_claim(store) is None and not forget:
            raise StoreLost(store)
        identity = new_identity() if forget else claimed or _read_claim(store) or identity_of_file
        if _read_claim(store) not in (None, identity):
            raise ForeignStore(store, f"it was made under the identity {_read_claim(store)}, and this server is {identity}")
        _make_directory(store)
        for place in (store, directory):
            if _read_claim(place) != identity:  # a full disk is no reason not to start
                _replace_durably(place / CLAIM_NAME, f"{identity}\n")
    return Claim(identity, forget)


def _read_claim(directory: Path) -> str | None:
    try:
        return (directory / CLAIM_NAME).read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep every other process out of ``directory`` (made if need be); the lock ends with the process at the latest.

    Raises :class:`BadInput` naming the process that holds it, or why the directory cannot be used.
    """
    with _refusing_unusable(directory):
        _make_directory(directory)
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise BadInput(f"{directory} is in use by the process with pid {holder}: stop that one first, or give this one another data") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _refusing_unusable(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(f"the directory {directory} cannot be used: {error.strerror} ({error.filename}); nothing was changed in it") from error


def _make_directory(directory: Path) -> None:
    """With its missing parents, every entry synced: a claim in a directory that vanishes in a power cut would be none."""
    if not directory.is_dir():
        if directory.parent != directory:
            _make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        _sync(directory.parent)


def _replace_durably(path: Path, text: str) -> None:
    """Whatever happens, the file holds its old content or ``text``, never a part."""
    new = path.with_name(f"{path.name}.new")
    with open(new, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
