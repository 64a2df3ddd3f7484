"""The directory of a server or consensus member: identity, lock, and the mark of a first start.

A configuration names a server by its random identity, because a quorum counts on the server's
earlier acknowledgements: a server that has forgotten an acknowledgement must never answer under the
old identity. The first start in a directory claims the identity of the cluster file, durably,
before the server serves a request.

An empty directory cannot tell which start is the first: the directory of a lost disk, or of a disk
that is not mounted, is empty, too. A directory is therefore prepared once, by a command which knows
that no process ever ran in the directory (`init`, `up --fresh`, `ares-cli prepare`): a file in the
directory says so, and is removed by the first start. A directory with neither this file nor a
server's files is refused. The same holds for consensus members, which must remember their votes.

The prepared file may be in the wrong place: below the mount point of a disk that is missing today,
or made again by mistake. Therefore a file beside the directory remembers the names that started in
the directory. A name is never new in the same directory twice, until told to forget, or until the
whole cluster begins afresh.

With state in memory, every later start finds the claim and takes a new random identity instead.
Configurations with the old identity count the server as crashed, until a reconfiguration brings the
server back. With a store, the claim is in the store as well, and a later start continues under the
claim. If the claim is present without the store, the server is refused until an operator says that
it may forget.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ares.model.errors import BadInput, DirectoryLost, ForeignStore, StoreLost
from ares.platform.file_lock import take_lock
from ares.platform.named_files import read_named
from ares.platform.replacement import replace_durably
from ares.platform.trusted_files import make_directory, require_unshared, sync

CLAIM_NAME = "identity"
STORE_NAME = "journal"
SCRUBBED_NAME = "scrubbed"
"""Name of the file with the time of the last scrub."""
LOCK_NAME = "lock"
NEW_NAME = "never-started"
"""Name of the file that marks the next start as the first, if no other file is present."""

_KEPT_NAMES = (CLAIM_NAME, STORE_NAME, f"{STORE_NAME}.anchor", "journal.meta", "dump")
"""The files of a started server, or of a consensus member (ares/consensus/raft/directory.py)."""

RECORD_SUFFIX = ".started"
"""Suffix of the file beside a directory that remembers the names which started in the directory.

The file has a line for each identity of a server in a cluster file, or a member's id.
"""

_CLAIM_BYTES_MAX = 64
_RECORD_BYTES_MAX = 1 << 20
_log = logging.getLogger(__name__)
_NEW_TEXT = (
    "No process has started in this directory yet. The first start removes this file; without "
    "this file an empty directory counts as lost.\n"
)


class IdentityClaim(Struct, frozen=True):
    """The identity (32 hex characters) to serve under.

    ``lost``: an earlier life of the server ended, and its state is lost.
    """

    identity: str
    lost: bool


def new_identity() -> str:
    """Return a random identity: 32 hex characters."""
    return secrets.token_hex(16)


def prepare(directory: Path) -> bool:
    """Mark ``directory`` durably as a directory in which no process ever ran.

    The directory is made if absent. Returns False if the mark was present. Raises :class:`BadInput`
    if the directory has a process's files, or cannot be written.
    """
    with _refusing_unusable(directory):
        if (kept := kept_in(directory)) is not None:
            raise BadInput(
                f"{directory} is not the directory of a process that never ran: {kept} is there; "
                "nothing was changed in it"
            )
        if (directory / NEW_NAME).exists():
            return False
        make_directory(directory)
        replace_durably(directory / NEW_NAME, _NEW_TEXT)
    return True


def kept_in(directory: Path) -> Path | None:
    """Return a file in ``directory`` left by a started process, or None."""
    return next((path for name in _KEPT_NAMES if (path := directory / name).exists()), None)


def is_new(directory: Path) -> bool:
    """Return whether ``directory`` is marked as a directory without a start."""
    return (directory / NEW_NAME).exists()


def is_bare(directory: Path, name: str) -> bool:
    """Return whether ``directory`` has no process's files, and is not new for ``name``.

    A start in such a directory would be refused. False if the directory cannot be looked into, or
    is no directory: a start says why.
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
    """Raise :class:`DirectoryLost` unless ``directory``, an empty directory, is new for ``name``.

    ``votes``: the process is a consensus member.
    """
    with _refusing_unusable(directory):
        if was_started(directory, name):
            raise DirectoryLost(directory, votes=votes, record=record_of(directory))
        if not is_new(directory):
            raise DirectoryLost(directory, votes=votes)


def end_newness(directory: Path) -> None:
    """Remove the mark of a first start, durably. Idempotent.

    The files that make a later start possible must be present before.
    """
    if is_new(directory):
        (directory / NEW_NAME).unlink()
        sync(directory)


def record_of(directory: Path) -> Path:
    """Return the path of the file that remembers the names started in ``directory``."""
    return directory.parent / f"{directory.name}{RECORD_SUFFIX}"


def was_started(directory: Path, name: str) -> bool:
    """Return whether the file beside ``directory`` remembers a start of ``name``."""
    return name in (_content(record_of(directory), _RECORD_BYTES_MAX) or "").split()


def remember_start(directory: Path, name: str) -> None:
    """Remember durably, beside ``directory``, that ``name`` starts in it. Idempotent.

    To be called before the process sends a message. If the file cannot be written, the failure is
    only logged: the directory itself has the same record, and the file is for the day when the
    directory is gone.
    """
    record = record_of(directory)
    try:
        names = (_content(record, _RECORD_BYTES_MAX) or "").split()
        if name not in names:
            replace_durably(record, "".join(f"{line}\n" for line in (*names, name)))
    except OSError as error:
        then = "if its disk is missing one day, no record will tell that a process ran there"
        _log.warning("this start cannot be remembered in %s (%s): %s", record, error.strerror, then)


def forget_starts(directory: Path) -> None:
    """Make the names that started in ``directory`` new again. Raises OSError."""
    record_of(directory).unlink(missing_ok=True)


def claim_identity(directory: Path, identity_of_file: str, forget: bool = False) -> IdentityClaim:
    """Return the identity of a server without a store, claimed durably before the return.

    Call it with the directory held. The first start claims the identity of the cluster file; every
    later start gets a new identity. ``forget``: this start is not the first, although the directory
    is empty. Raises :class:`DirectoryLost`, and :class:`BadInput` if the directory cannot be
    written.
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
    return IdentityClaim(identity, lost)


def store_identity(directory: Path, identity_of_file: str, forget: bool) -> IdentityClaim:
    """Return the identity of a server with a store, if the store is present or no start was before.

    Call it with the directory held. The store is ``directory``/journal. ``forget``: the store of an
    earlier life is moved aside, and a new life begins; also in an empty directory, which may be a
    lost disk. Raises :class:`DirectoryLost`, :class:`StoreLost`, :class:`ForeignStore` and
    :class:`BadInput`.
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
        # After a crash between the two writes a first start is repeated, and a start that forgets
        # is asked for again: a claim without its store is refused.
        for place in (directory, store) if forget else (store, directory):
            if _read_claim(place) != identity:  # a full disk is no reason not to start
                replace_durably(place / CLAIM_NAME, f"{identity}\n")
        remember_start(directory, identity_of_file)
        end_newness(directory)
    return IdentityClaim(identity, forget)


def _read_claim(directory: Path) -> str | None:
    claim = _content(directory / CLAIM_NAME, _CLAIM_BYTES_MAX)
    return None if claim is None else claim.strip()


def _content(path: Path, bytes_max: int) -> str | None:
    """Return the content of a small file, or None for an absent file."""
    try:
        return read_named(path, bytes_max, streams=False)[0].decode("ascii", "replace")
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep every other process out of ``directory``; the lock ends with the process at the latest.

    The directory is made if absent. Raises :class:`BadInput` with the process that holds the lock,
    or with the reason why the directory cannot be used.
    """
    with _refusing_unusable(directory):
        make_directory(directory)
        require_unshared(directory)
        descriptor = take_lock(directory / LOCK_NAME, make=True)
    if descriptor is None:
        holder = (_content(directory / LOCK_NAME, _CLAIM_BYTES_MAX) or "").strip() or "unknown"
        raise BadInput(
            f"{directory} is in use by the process with pid {holder}: stop that process "
            "first, or give this process another directory"
        )
    try:
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
            f"the directory {directory} cannot be used: {error.strerror} ({error.filename}); "
            "nothing was changed in it"
        ) from error
