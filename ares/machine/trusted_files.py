"""Files and directories that a process relies on: nobody else can change them, and what is written is there after a power cut.

Root, and who runs the process, are trusted, and nobody else of the machine. What a function here has written is durable when it returns.
"""

import os
import stat
from pathlib import Path

from ares.model.errors import BadInput

MADE_FOR_ALL = 0o644
"""Mode of a file that everybody may read; whatever the umask, nobody else may write it."""

DIRECTORY_MADE_FOR_ALL = 0o755


def is_foreign(status: os.stat_result) -> bool:
    """Whether it belongs to somebody else, who can then change it and its mode."""
    return status.st_uid not in (0, os.geteuid())


def require_own(
    path: Path,
    status: os.stat_result,
    what: str,
    then: str,
    group: bool = False,
    anybodys: bool = False,
) -> None:
    """Raise :class:`BadInput` if somebody else can change the file of ``status`` at ``path``, or put another in its place, and so do ``then``.

    Looked at are the owners of the file and its directory, and who may write to them and to all directories above, as the path is given and as links
    lead; in a directory with the sticky bit nobody replaces what is not his. ``group``: members of a group that may write to the file's directory are
    trusted. ``anybodys``: whoever owns it is trusted. Raises OSError as well.
    """
    if is_foreign(status) and not anybodys:
        raise BadInput(
            f"{path}: it belongs to another user ({status.st_uid}), who can {then}: chown {os.geteuid()} {path}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            f"{path}: others can write it (mode {stat.S_IMODE(status.st_mode):o}) and so {then}: chmod 644 {path}"
        )
    for place in dict.fromkeys((path.absolute(), path.resolve())):
        nearest, *above = place.parents
        if is_foreign(found := nearest.stat()) and not anybodys:
            why = f"it belongs to another user ({found.st_uid}), who can put another {what} there"
            raise BadInput(f"{nearest}: {why}: chown {os.geteuid()} {nearest}")
        require_unshared(nearest, what, stat.S_IWOTH if group else stat.S_IWOTH | stat.S_IWGRP)
        for directory in above:
            require_unshared(directory, what)


def require_unshared(directory: Path, what: str = "file", bits: int = stat.S_IWOTH) -> None:
    """Raise :class:`BadInput` if somebody else, in the classes of ``bits``, can put another ``what`` into ``directory``."""
    mode = directory.stat().st_mode
    if mode & bits and not mode & stat.S_ISVTX:
        raise BadInput(
            f"{directory}: others can put another {what} there: chmod {'go' if mode & bits & stat.S_IWGRP else 'o'}-w {directory}"
        )


def let_nobody_else_write() -> None:
    """From now on what this process makes can be changed by its user alone, whatever its umask: those files, too, that libraries make."""
    os.umask(os.umask(0o777) | stat.S_IWGRP | stat.S_IWOTH)


def opener(path: str, flags: int) -> int:
    """For ``open``: a file that it makes is for others to read, at most."""
    return os.open(path, flags, MADE_FOR_ALL)


def make_directory(directory: Path, mode: int = 0o700) -> None:
    """With its missing parents, every entry synced: a claim in a directory that vanishes in a power cut would be none."""
    if not directory.is_dir():
        if directory.parent != directory:
            make_directory(directory.parent, mode)
        directory.mkdir(mode=mode, exist_ok=True)
        sync(directory.parent)


def write_new(path: Path, text: str, mode: int, exact: bool = False) -> None:
    """Make the file, synced. Raises FileExistsError, and follows or replaces nothing, if something has the name. ``exact``: whatever the umask."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with open(descriptor, "w", encoding="utf-8") as file:
        if exact:
            os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def replace_durably(path: Path, text: str, mode: int = MADE_FOR_ALL, exact: bool = False) -> None:
    """Whatever happens, the file holds its old content or ``text``, never a part. ``exact``: it has this mode whatever the umask."""
    new = path.with_name(f"{path.name}.new")
    if os.path.lexists(new):  # a crash left it
        new.unlink()
    write_new(new, text, mode, exact)
    os.replace(new, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """fsync of a directory or file; on Linux that covers what others wrote to a file through a memory map."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
