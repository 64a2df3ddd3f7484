"""Directories of a round, for modules: emptied of the last round, and filled with new files.

All files have the same owner.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from ansible_collections.ares.storage.plugins.module_utils.processes import found, stop


def started_below(directory: Path) -> dict[Path, int]:
    """Return the running processes that files directory/**/*.pid name.

    Raises ValueError for a path that is too short for a round's directory.
    """
    if not directory.is_absolute() or len(directory.parts) < 3 or ".." in directory.parts:
        raise ValueError(
            f"{directory} is not an absolute path below a directory; nothing was ended or removed"
        )
    return {file: pid for file in directory.rglob("*.pid") if (pid := found(file))}


def clear(directory: Path, stop_s: float) -> None:
    """End every process that a file directory/**/*.pid names, and remove the directory.

    Raises OSError, ValueError.
    """
    if left := stop(started_below(directory), stop_s):
        raise ValueError(
            f"processes {left} cannot be ended, not even by SIGKILL; {directory} was not removed"
        )
    if directory.is_symlink() or not directory.is_dir():
        directory.unlink(missing_ok=True)
    else:
        shutil.rmtree(directory)


def owner(name: str) -> tuple[int, int]:
    """Return user and group of the account, making an absent account. Raises OSError.

    Without root, the current user owns all files.
    """
    if os.geteuid() != 0 or not name:
        return os.geteuid(), os.getegid()
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        words = [
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/",
            "--shell",
            "/usr/sbin/nologin",
            name,
        ]
        made = subprocess.run(words, check=False, capture_output=True, text=True)
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            raise OSError(f"the user {name} cannot be made: {made.stderr.strip()}") from None
    return account.pw_uid, account.pw_gid


def make(directory: Path, mode: int, uid: int, gid: int) -> None:
    """Make a directory of this owner; all users can read missing parents."""
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    os.chown(directory, uid, gid)
    directory.chmod(mode)
