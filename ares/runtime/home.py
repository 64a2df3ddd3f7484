"""The directory of a server, or of a consensus member: who the server is, that only one process is it, and that it never started.

A configuration names a server by its random identity, because a quorum counts on what that server once acknowledged: a server that has forgotten
that must never answer under the old identity. The first start in a directory claims the identity that the cluster file gives, durably, before
anything is served.

Which start is the first, an empty directory cannot tell: that of a disk which was lost, or is not mounted, is as empty. So a directory is prepared
once, by those who know that nothing ever ran there (`init`, `up --fresh`, `ares-cli prepare`): a file in it says so, and goes with the first start.
A directory with neither that file nor what a server keeps is refused. The same holds for consensus members, which must remember whom they voted for.

With state in memory, every later start finds that claim and takes a new random identity instead. Configurations that name the old one then count
the server as crashed, until a reconfiguration brings it back. With a store, the claim stands in the store as well, and a later start goes on under
it; where the claim is without its store, the server is refused until somebody says that it may forget.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ares.errors import BadInput, DirectoryLost, ForeignStore, StoreLost

CLAIM_NAME = "identity"
STORE_NAME = "journal"
SCRUBBED_NAME = "scrubbed"
"""Holds the time of the last scrub."""
LOCK_NAME = "lock"
NEW_NAME = "never-started"
"""While it is there, and nothing else is, the next start is the first."""

_KEPT_NAMES = (CLAIM_NAME, STORE_NAME, "journal.meta", "dump")
"""What a server that started has in its directory, or a consensus member (ares/runtime/raft_directory.py)."""

_NEW_TEXT = "Nothing has started in this directory yet. The first start removes this file; without it an empty directory is taken for a lost one.\n"


class Claim(Struct, frozen=True):
    """The identity (32 hex characters) to serve under. ``lost``: an earlier life of the server ended, and its state with it."""

    identity: str
    lost: bool


def new_identity() -> str:
    """A random identity: 32 hex characters."""
    return secrets.token_hex(16)


def prepare(directory: Path) -> bool:
    """Say, on stable storage, that no server or consensus member ever ran in ``directory``, made if need be; False: that was said already.

    Raises :class:`BadInput` when something of one is there, or the directory cannot be written.
    """
    with _refusing_unusable(directory):
        if (kept := kept_in(directory)) is not None:
            raise BadInput(f"{directory} is not that of a process that never ran: {kept} is there; nothing was changed in it")
        if (directory / NEW_NAME).exists():
            return False
        _make_directory(directory)
        _replace_durably(directory / NEW_NAME, _NEW_TEXT)
    return True


def kept_in(directory: Path) -> Path | None:
    """Something in ``directory`` that a server or consensus member left which started there, if there is any."""
    return next((path for name in _KEPT_NAMES if (path := directory / name).exists()), None)


def is_new(directory: Path) -> bool:
    """Whether ``directory`` says that nothing has started in it yet."""
    return (directory / NEW_NAME).exists()


def is_bare(directory: Path) -> bool:
    """Whether nothing of a server or consensus member is in ``directory``, nor that none ever ran there: a start would be refused.

    False where it cannot be looked into, or is no directory: a start says why.
    """
    try:
        return kept_in(directory) is None and not is_new(directory) and (directory.is_dir() or not directory.exists())
    except OSError:
        return False


def end_newness(directory: Path) -> None:
    """The next start is not the first any more, on stable storage; what makes a later one possible must be there before. Idempotent."""
    if is_new(directory):
        (directory / NEW_NAME).unlink()
        _sync(directory)


def was_claimed(directory: Path) -> bool:
    """Whether a server ever started in ``directory``."""
    return (directory / CLAIM_NAME).exists()


def claim_identity(directory: Path, identity_of_file: str, forget: bool = False) -> Claim:
    """Who the server in ``directory`` is from now on, if it keeps everything in memory; on stable storage before this returns. Call it with the
    directory held.

    The first start claims the identity of the file, every other one is somebody new. ``forget``: this one is not the first, though nothing is there.
    Raises :class:`DirectoryLost`, and :class:`BadInput` when the directory cannot be written.
    """
    with _refusing_unusable(directory):
        lost = forget or was_claimed(directory)
        if not (lost or is_new(directory)):
            raise DirectoryLost(directory)
        _make_directory(directory)
        identity = new_identity() if lost else identity_of_file
        _replace_durably(directory / CLAIM_NAME, f"{identity}\n")
        end_newness(directory)
    return Claim(identity, lost)


def store_identity(directory: Path, identity_of_file: str, forget: bool) -> Claim:
    """Who the server in ``directory`` is, if its store is there or it never ran; call it with the directory held. The store is ``directory``/journal.

    ``forget``: what is there of an earlier life is moved aside, and a new one begins; also if nothing is there, for that may be a lost disk. Raises
    :class:`DirectoryLost`, :class:`StoreLost`, :class:`ForeignStore` and :class:`BadInput`.
    """
    store = directory / STORE_NAME
    with _refusing_unusable(directory):
        claimed, stored = _read_claim(directory), _read_claim(store)
        if not (forget or claimed or stored or is_new(directory)):
            raise DirectoryLost(directory)
        _make_directory(directory)
        if forget and store.exists():
            os.rename(store, store.with_name(f"{STORE_NAME}.{secrets.token_hex(4)}"))
        elif claimed is not None and stored is None and not forget:
            raise StoreLost(store)
        identity = new_identity() if forget else claimed or stored or identity_of_file
        if not forget and stored not in (None, identity):
            raise ForeignStore(store, f"it was made under the identity {stored}, and this server is {identity}")
        _make_directory(store)
        # Cut short between the two, a first start is repeated, and one that forgets is asked for again: a claim without its store is refused.
        for place in (directory, store) if forget else (store, directory):
            if _read_claim(place) != identity:  # a full disk is no reason not to start
                _replace_durably(place / CLAIM_NAME, f"{identity}\n")
        end_newness(directory)
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
