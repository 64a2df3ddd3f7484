"""The directory of a server, or of a consensus member: who the server is, that only one process is it, and that it never started.

A configuration names a server by its random identity, because a quorum counts on what that server once acknowledged: a server that has forgotten
that must never answer under the old identity. The first start in a directory claims the identity that the cluster file gives, durably, before
anything is served.

Which start is the first, an empty directory cannot tell: that of a disk which was lost, or is not mounted, is as empty. So a directory is prepared
once, by those who know that nothing ever ran there (`init`, `up --fresh`, `ares-cli prepare`): a file in it says so, and goes with the first start.
A directory with neither that file nor what a server keeps is refused. The same holds for consensus members, which must remember whom they voted for.

That file may be in the wrong place: below the mount point of a disk that is missing today, or made again by mistake. So a file beside the directory
remembers, too, who started in it: nobody is new there twice, until told to forget, or the whole cluster begins afresh.

With state in memory, every later start finds that claim and takes a new random identity instead. Configurations that name the old one then count
the server as crashed, until a reconfiguration brings it back. With a store, the claim stands in the store as well, and a later start goes on under
it; where the claim is without its store, the server is refused until somebody says that it may forget.
"""

import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ares.machine.named_files import read_named
from ares.machine.trusted_files import make_directory, replace_durably, require_unshared, sync
from ares.model.errors import BadInput, DirectoryLost, ForeignStore, StoreLost

CLAIM_NAME = "identity"
STORE_NAME = "journal"
SCRUBBED_NAME = "scrubbed"
"""Holds the time of the last scrub."""
LOCK_NAME = "lock"
NEW_NAME = "never-started"
"""While it is there, and nothing else is, the next start is the first."""

_KEPT_NAMES = (CLAIM_NAME, STORE_NAME, f"{STORE_NAME}.anchor", "journal.meta", "dump")
"""What a server that started has in its directory, or a consensus member (ares/consensus/raft/directory.py)."""

RECORD_SUFFIX = ".started"
"""Of the file beside a directory that remembers who started in it: a line for each identity of a server in a cluster file, or a member's id."""

_CLAIM_BYTES_MAX = 64
_RECORD_BYTES_MAX = 1 << 20
_log = logging.getLogger(__name__)
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
            raise BadInput(
                f"{directory} is not that of a process that never ran: {kept} is there; nothing was changed in it"
            )
        if (directory / NEW_NAME).exists():
            return False
        make_directory(directory)
        replace_durably(directory / NEW_NAME, _NEW_TEXT)
    return True


def kept_in(directory: Path) -> Path | None:
    """Something in ``directory`` that a server or consensus member left which started there, if there is any."""
    return next((path for name in _KEPT_NAMES if (path := directory / name).exists()), None)


def is_new(directory: Path) -> bool:
    """Whether ``directory`` says that nothing has started in it yet."""
    return (directory / NEW_NAME).exists()


def is_bare(directory: Path, name: str) -> bool:
    """Whether nothing of a server or consensus member is in ``directory``, and it is not new for the one called ``name``: a start would be refused.

    False where it cannot be looked into, or is no directory: a start says why.
    """
    try:
        new = is_new(directory) and not was_started(directory, name)
        return (
            kept_in(directory) is None
            and not new
            and (directory.is_dir() or not directory.exists())
        )
    except OSError:
        return False


def require_first(directory: Path, name: str, votes: bool = False) -> None:
    """Raise :class:`DirectoryLost` unless ``directory``, in which nothing was found, is new for ``name``. ``votes``: that is a consensus member."""
    with _refusing_unusable(directory):
        if was_started(directory, name):
            raise DirectoryLost(directory, votes=votes, record=record_of(directory))
        if not is_new(directory):
            raise DirectoryLost(directory, votes=votes)


def end_newness(directory: Path) -> None:
    """The next start is not the first any more, on stable storage; what makes a later one possible must be there before. Idempotent."""
    if is_new(directory):
        (directory / NEW_NAME).unlink()
        sync(directory)


def record_of(directory: Path) -> Path:
    """The file beside ``directory`` that remembers who started in it."""
    return directory.parent / f"{directory.name}{RECORD_SUFFIX}"


def was_started(directory: Path, name: str) -> bool:
    """Whether it is remembered beside ``directory`` that ``name`` started in it."""
    return name in (_content(record_of(directory), _RECORD_BYTES_MAX) or "").split()


def remember_start(directory: Path, name: str) -> None:
    """Remember beside ``directory``, on stable storage, that ``name`` starts in it; to be done before it says anything to anybody. Idempotent.

    Where nothing can be written there, that is only logged: the directory itself says who started in it, and this is for the day when it is gone.
    """
    record = record_of(directory)
    try:
        names = (_content(record, _RECORD_BYTES_MAX) or "").split()
        if name not in names:
            replace_durably(record, "".join(f"{line}\n" for line in (*names, name)))
    except OSError as error:
        then = "nothing but the directory itself will tell whether anything ran there, should its disk be missing one day"
        _log.warning("this start cannot be remembered in %s (%s): %s", record, error.strerror, then)


def forget_starts(directory: Path) -> None:
    """Let those that started in ``directory`` be new there again. Raises OSError."""
    record_of(directory).unlink(missing_ok=True)


def claim_identity(directory: Path, identity_of_file: str, forget: bool = False) -> Claim:
    """Who the server in ``directory`` is from now on, if it keeps everything in memory; on stable storage before this returns. Call it with the
    directory held.

    The first start claims the identity of the file, every other one is somebody new. ``forget``: this one is not the first, though nothing is there.
    Raises :class:`DirectoryLost`, and :class:`BadInput` when the directory cannot be written.
    """
    with _refusing_unusable(directory):
        lost = forget or (directory / CLAIM_NAME).exists()
        if not lost:
            require_first(directory, identity_of_file)
        make_directory(directory)
        identity = new_identity() if lost else identity_of_file
        replace_durably(directory / CLAIM_NAME, f"{identity}\n")
        remember_start(directory, identity_of_file)
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
        if not (forget or claimed or stored):
            require_first(directory, identity_of_file)
        make_directory(directory)
        if forget and store.exists():
            os.rename(store, store.with_name(f"{STORE_NAME}.{secrets.token_hex(4)}"))
        elif claimed is not None and stored is None and not forget:
            raise StoreLost(store)
        identity = new_identity() if forget else claimed or stored or identity_of_file
        if not forget and stored not in (None, identity):
            raise ForeignStore(
                store, f"it was made under the identity {stored!r}, and this server is {identity}"
            )
        make_directory(store)
        # Cut short between the two, a first start is repeated, and one that forgets is asked for again: a claim without its store is refused.
        for place in (directory, store) if forget else (store, directory):
            if _read_claim(place) != identity:  # a full disk is no reason not to start
                replace_durably(place / CLAIM_NAME, f"{identity}\n")
        remember_start(directory, identity_of_file)
        end_newness(directory)
    return Claim(identity, forget)


def _read_claim(directory: Path) -> str | None:
    claim = _content(directory / CLAIM_NAME, _CLAIM_BYTES_MAX)
    return None if claim is None else claim.strip()


def _content(path: Path, bytes_max: int) -> str | None:
    """Of a small file; None if there is none."""
    try:
        return read_named(path, bytes_max, streams=False)[0].decode("ascii", "replace")
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep every other process out of ``directory`` (made if need be); the lock ends with the process at the latest.

    Raises :class:`BadInput` naming the process that holds it, or why the directory cannot be used.
    """
    with _refusing_unusable(directory):
        make_directory(directory)
        require_unshared(directory)
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise BadInput(
                f"{directory} is in use by the process with pid {holder}: stop that one first, or give this one another directory"
            ) from None
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
        raise BadInput(
            f"the directory {directory} cannot be used: {error.strerror} ({error.filename}); nothing was changed in it"
        ) from error
