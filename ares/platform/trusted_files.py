"""Files and directories which no other user can change, and whose contents survive a power cut.

Root, and the user of the process, are trusted, and no other user of the machine. A file written by
a function of this module is durable when the function returns.
"""

import os
import stat
from pathlib import Path

from ares.model.errors import BadInput

MADE_FOR_ALL = 0o644
"""Mode of a file readable by all users; under any umask, no other user may write it."""

DIRECTORY_MADE_FOR_ALL = 0o755


def is_foreign(status: os.stat_result) -> bool:
    """Return whether the file belongs to another user, who can change the file and its mode."""
    return status.st_uid not in (0, os.geteuid())


def require_own(
    path: Path,
    status: os.stat_result,
    what: str,
    then: str,
    group: bool = False,
    anybodys: bool = False,
) -> None:
    """Raise :class:`BadInput` if another user can change or replace the file, and thereby ``then``.

    ``status``: of the file at ``path``. The check covers the owners of the file and its directory,
    and the write permissions on them and on all directories above, along the given path and along
    links; in a directory with the sticky bit no user replaces another's file. ``group``: members of
    a group with write permission on the file's directory are trusted. ``anybodys``: any owner is
    trusted. Raises OSError as well.
    """
    if is_foreign(status) and not anybodys:
        raise BadInput(
            f"{path}: it belongs to another user ({status.st_uid}), who can {then}: chown "
            f"{os.geteuid()} {path}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            f"{path}: other users can write it (mode {stat.S_IMODE(status.st_mode):o}) and so "
            f"{then}: chmod 644 {path}"
        )
    for place in dict.fromkeys((path.absolute(), path.resolve())):
        nearest, *above = place.parents
        if is_foreign(found := nearest.stat()) and not anybodys:
            why = f"it belongs to another user ({found.st_uid}), who can replace the {what} there"
            raise BadInput(f"{nearest}: {why}: chown {os.geteuid()} {nearest}")
        require_unshared(nearest, what, stat.S_IWOTH if group else stat.S_IWOTH | stat.S_IWGRP)
        for directory in above:
            require_unshared(directory, what)


def require_unshared(directory: Path, what: str = "file", bits: int = stat.S_IWOTH) -> None:
    """Raise :class:`BadInput` if another user can put another ``what`` into ``directory``.

    ``bits``: the permissions of the users to consider.
    """
    mode = directory.stat().st_mode
    if mode & bits and not mode & stat.S_ISVTX:
        raise BadInput(
            f"{directory}: other users can replace the {what} there: chmod "
            f"{'go' if mode & bits & stat.S_IWGRP else 'o'}-w {directory}"
        )


def restrict_writes_to_user() -> None:
    """Let only the user change the files made by this process from now on, under any umask.

    This includes files made by libraries.
    """
    os.umask(os.umask(0o777) | stat.S_IWGRP | stat.S_IWOTH)


def opener(path: str, flags: int) -> int:
    """Open a file for ``open``; a new file is at most readable for the other users."""
    return os.open(path, flags, MADE_FOR_ALL)


def make_directory(directory: Path, mode: int = 0o700) -> None:
    """Make a directory with its missing parents, every entry synced.

    A claim in a directory that vanishes in a power cut would be no claim.
    """
    if not directory.is_dir():
        if directory.parent != directory:
            make_directory(directory.parent, mode)
        directory.mkdir(mode=mode, exist_ok=True)
        sync(directory.parent)


def write_new(path: Path, text: str, mode: int, exact: bool = False) -> None:
    """Make the file, synced. ``exact``: with this mode, under any umask.

    Raises FileExistsError, and follows or replaces nothing, if any file has the name.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        if exact:
            os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def sync(path: Path) -> None:
    """Run fsync on a directory or file.

    On Linux this covers other processes' writes to a file through a memory map.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
