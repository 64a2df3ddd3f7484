"""Directories of a round, for modules: emptied of what the round before left, and filled with files of one owner."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from ansible_collections.ares.storage.plugins.module_utils.processes import found, stop


def started_below(directory: Path) -> dict[Path, int]:
    """Processes that run, by the files directory/**/*.pid that name them. Raises ValueError for a path that is too short to be that of a round."""
    if not directory.is_absolute() or len(directory.parts) < 3 or ".." in directory.parts:
        raise ValueError(
            f"{directory} is not an absolute path below a directory; nothing was ended or removed"
        )
    return {file: pid for file in directory.rglob("*.pid") if (pid := found(file))}


def clear(directory: Path, stop_s: float) -> None:
    """End every process that a file directory/**/*.pid names, and remove the directory. Raises OSError, ValueError."""
    if left := stop(started_below(directory), stop_s):
        raise ValueError(
            f"processes {left} cannot be ended, not even by SIGKILL; {directory} was not removed"
        )
    if directory.is_symlink() or not directory.is_dir():
        directory.unlink(missing_ok=True)
    else:
        shutil.rmtree(directory)


def owner(name: str) -> tuple[int, int]:
    """User and group of the account, which is made if it is not there; who is not root has everything itself. Raises OSError."""
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
    """A directory of this owner; missing parents are for everybody to read."""
    directory.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    os.chown(directory, uid, gid)
    directory.chmod(mode)
